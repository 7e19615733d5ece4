// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// strips has the target's API server take our annotations off whatever is applied.
func (w *world) strips(annotations ...string) {
	patch := `{"metadata":{"annotations":{`
	for i, a := range annotations {
		patch += strings.Repeat(",", min(i, 1)) + `"` + a + `":null`
	}
	w.meddles(patch+`}}}`, func(u *unstructured.Unstructured) bool { return u.GetAnnotations()[annotations[0]] != "" })
}

// meddles has someone patch each target that is applied and has what is to be undone.
func (w *world) meddles(patch string, undone func(*unstructured.Unstructured) bool) {
	w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Verb != "apply" {
			return do()
		}
		err := do()
		if u := w.targetOf(r.Object.Name); err == nil && u != nil && undone(u) { //nolint:contextcheck // the world has one
			w.merge(w.target, w.targetNS, r.Object.Name, patch) //nolint:contextcheck // the world has one
		}
		return err
	})
}

// What others change back each time is written ever more rarely over an hour, and all
// else goes on: a change, the status, the deletion. Who holds a field is named.
func TestContests(t *testing.T) {
	for name, contest := range map[string]struct {
		begin func(w *world)
		by    string
	}{
		"source annotation stripped": {func(w *world) { w.strips(SourceAnnotation) }, ""},
		"all annotations stripped":   {func(w *world) { w.strips(SourceAnnotation, BoundAnnotation) }, ""},
		"field changed": {func(w *world) {
			w.meddles(`{"spec":{"color":"blue"}}`, func(u *unstructured.Unstructured) bool { return field(u, "spec", "color") == "red" })
		}, " by someone (.spec.color)"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(Options{})()
				contest.begin(w)
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
				w.until("made", func() bool { return w.targetOf("a") != nil })
				before := len(w.fakeTarget.Writes()) + len(w.fakeSource.Writes())
				time.Sleep(time.Hour)
				if n := len(w.fakeTarget.Writes()) + len(w.fakeSource.Writes()) - before; n > 60 {
					t.Errorf("%d writes in an hour, with those of the policy", n)
				}
				if got := w.message("a"); !strings.HasPrefix(got, string(ReasonContested)) || !strings.Contains(got, "in the target cluster"+contest.by+" each time") {
					t.Errorf("message is %q", got)
				}
				began := time.Now()
				w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
				w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
				w.until("in step", func() bool {
					return field(w.targetOf("a"), "spec", "size") == "large" && field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready"
				})
				w.delete(w.source, w.sourceNS, "a")
				w.until("gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("in step and gone after %v", took)
				}
			})
		})
	}
}

// What a Sync puts on a source, and others take off each time, is put on ever more rarely over an hour, and told; so
// is the note on a target whose source is older. A change goes up all the same, at once.
func TestContestedMarks(t *testing.T) {
	for name, c := range map[string]struct {
		opts    Options
		restore bool // the source, so that it is older than its target
		patch   string
		on      func(*world) (dynamic.Interface, string)
		sees    func(*unstructured.Unstructured) bool
		says    string
	}{
		"the finalizer": {Options{}, false, `{"metadata":{"finalizers":null}}`, (*world).onSource, func(u *unstructured.Unstructured) bool {
			return len(u.GetFinalizers()) > 0
		}, "Contested: the finalizer " + DefaultFinalizer},
		"the record of the target": {Options{Lost: LostReport}, false, `{"metadata":{"annotations":{"` + TargetAnnotation + `":null}}}`, (*world).onSource, func(u *unstructured.Unstructured) bool {
			return u.GetAnnotations()[TargetAnnotation] != ""
		}, "Contested: the finalizer"},
		"both": {Options{Lost: LostReport}, false, `{"metadata":{"finalizers":null,"annotations":{"` + TargetAnnotation + `":null}}}`, (*world).onSource, func(u *unstructured.Unstructured) bool {
			return len(u.GetFinalizers()) > 0 || u.GetAnnotations()[TargetAnnotation] != ""
		}, "Contested: the finalizer"},
		"the note": {Options{}, true, `{"metadata":{"annotations":{"` + BehindAnnotation + `":null}}}`, (*world).onTarget, func(u *unstructured.Unstructured) bool {
			return u.GetAnnotations()[BehindAnnotation] != ""
		}, "each time that it is written to"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				defer w.run(c.opts)()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
				w.settle()
				backup := w.fakeSource.Version()
				if c.restore {
					w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
					w.settle()
					w.fakeSource.Restore(backup)
				}
				rival, stop := context.WithCancel(w.Context())
				var undone atomic.Int64
				go func() {
					for rival.Err() == nil {
						if side, ns := c.on(w); c.sees(w.get(side, ns, "a")) { //nolint:contextcheck // the world has one
							undone.Add(1)
							w.merge(side, ns, "a", c.patch) //nolint:contextcheck // the world has one
						}
						time.Sleep(100 * time.Millisecond)
					}
				}()
				time.Sleep(time.Minute)
				if got := w.message("a"); !strings.Contains(got, c.says) {
					t.Errorf("after a minute the message is %q", got)
				}
				time.Sleep(time.Hour)
				if n := undone.Load(); n < 5 || n > 40 {
					t.Errorf("undone %d times in an hour", n)
				}
				w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":"blue"}}`)
				time.Sleep(time.Second)
				if got := field(w.targetOf("a"), "spec", "color"); got != "blue" {
					t.Errorf("a second after a change the color is %v", got)
				}
				stop()
				time.Sleep(40 * time.Minute)
				if got := w.message("a"); got != "" {
					t.Errorf("40 minutes after the last time the message is %q", got)
				}
				w.delete(w.source, w.sourceNS, "a")
				w.until("gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
			})
		})
	}
}

func (w *world) onSource() (dynamic.Interface, string) { return w.source, w.sourceNS }
func (w *world) onTarget() (dynamic.Interface, string) { return w.target, w.targetNS }

// An edit goes up at once beside a contest also where the target changes while its API server says who
// holds what: that is news, and no write that met another state.
func TestEditRacesInAContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.meddles(`{"spec":{"color":"blue"}}`, func(u *unstructured.Unstructured) bool { return field(u, "spec", "color") == "red" })
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		time.Sleep(time.Minute)
		var raced atomic.Bool
		w.fakeTarget.Intercept(func(_ context.Context, _ fakecluster.Request, do func() error) error {
			err := do()
			if len(fates.Holders(err)) > 0 && !raced.Swap(true) {
				w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status") //nolint:contextcheck // the world has one
			}
			return err
		})
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Second)
		if got := field(w.targetOf("a"), "spec", "size"); got != "large" || !raced.Load() {
			t.Errorf("after a second the size is %v, raced: %t", got, raced.Load())
		}
	})
}

// The message names the manager that has changed a target, also where another one comes later.
func TestLaterRivalIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{Drift: DriftReport})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		time.Sleep(time.Minute)
		for _, rival := range []string{"alice", "bob"} {
			u := w.targetOf("a")
			_ = unstructured.SetNestedField(u.Object, "of-"+rival, "spec", "color")
			if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Update(w.Context(), u, metav1.UpdateOptions{FieldManager: rival}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if got := w.message("a"); !strings.HasPrefix(got, string(ReasonDrifted)) || !strings.Contains(got, "by "+rival+" (") {
				t.Errorf("after a change by %s: message %q", rival, got)
			}
		}
	})
}

// A rival that takes the account of who owns what off a target, each time that it is written, is
// answered ever more rarely, and told within a minute, also where what others change is left so.
func TestContestedOwnership(t *testing.T) {
	for _, drift := range []DriftPolicy{DriftCorrect, DriftReport} {
		synctest.Test(t, func(t *testing.T) {
			w := newFake(t)
			var taken atomic.Int32
			w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				err := do()
				if err != nil || r.Verb != "apply" && r.Verb != "patch" || taken.Load() == 1000 {
					return err
				}
				taken.Add(1)
				u := w.targetOf(r.Object.Name) //nolint:contextcheck // the world has one
				u.SetManagedFields([]metav1.ManagedFieldsEntry{{}})
				_, err = w.target.Resource(widgets).Namespace(w.targetNS).Update(w.Context(), u, metav1.UpdateOptions{FieldManager: "restorer"}) //nolint:contextcheck // the world has one
				return err
			})
			defer w.run(Options{Drift: drift})()
			w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
			time.Sleep(time.Minute)
			if got := w.message("a"); !strings.HasPrefix(got, string(ReasonContested)) {
				t.Errorf("%s: message %q", drift, got)
			}
			time.Sleep(time.Hour)
			if n := taken.Load(); n > 30 {
				t.Errorf("%s: %d writes in an hour", drift, n)
			}
		})
	}
}

// A field that a policy of the target's cluster removes is sent once to each target after each
// list, in turns: nothing on a target tells that from what someone else has removed.
func TestRemovedFieldsOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.fakeTarget.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Mutate: func(o *unstructured.Unstructured) {
			unstructured.RemoveNestedField(o.Object, "spec", "color")
		}})
		var sent, lists atomic.Int32
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			err := do()
			switch {
			case err != nil: // such as a conflict, after which it is sent again
			case r.Verb == "apply":
				sent.Add(1)
			case r.Verb == "list":
				lists.Add(1)
			}
			return err
		})
		const objects = 200
		stop := w.run(Options{})
		for i := range objects {
			w.create(w.source, w.sourceNS, w.widget(fmt.Sprint("w", i), `{"size":"small","color":"red"}`, ``))
		}
		time.Sleep(time.Hour)
		stop()
		sent.Store(0)
		lists.Store(0)
		defer w.run(Options{})()
		time.Sleep(time.Second)
		if n := sent.Load(); n < pace.TurnsAtOnce || n > pace.TurnsAtOnce+int32(time.Second/pace.OneTurn) {
			t.Errorf("%d targets written in the first second", n)
		}
		time.Sleep(objects * pace.OneTurn)
		if n := sent.Load(); n < objects || n > objects*lists.Load() { // a silent watch may have begun anew, with a list
			t.Errorf("%d targets written, of %d, after %d lists", n, objects, lists.Load())
		}
		time.Sleep(time.Hour)
		if n, most := sent.Load(), objects*lists.Load(); n > most {
			t.Errorf("%d targets written in an hour, of %d at most", n, most)
		}
	})
}

// A message that others take off each time is set ever more rarely over an hour, and another
// one at once.
func TestContestedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var taken atomic.Int32
		var other atomic.Bool
		w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			err := do()
			if r.Resource == widgets && r.Verb == "patch" && strings.Contains(w.message(r.Object.Name), "over quota") { //nolint:contextcheck // the world has one
				taken.Add(1)
				w.merge(w.source, w.sourceNS, r.Object.Name, `{"metadata":{"annotations":{"`+MessageAnnotation+`":null}}}`) //nolint:contextcheck // the world has one
			}
			return err
		})
		w.fakeTarget.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			switch {
			case r.Verb != "apply":
				return do()
			case other.Load():
				return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("not today"))
			}
			return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("over quota"))
		})
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(time.Hour)
		if n := taken.Load(); n < 3 || n > 25 {
			t.Errorf("the message was set %d times in an hour", n)
		}
		other.Store(true)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Second)
		if text := w.message("a"); !strings.Contains(text, "not today") {
			t.Errorf("message is %q", text)
		}
	})
}

// The content of a copy that others change back each time is written ever more rarely over an
// hour, and new content goes at once.
func TestContestedCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			err := do()
			if r.Resource == secrets && r.Verb == "apply" && field(b.copied(r.Object.Name), "data", "password") != "bmV3" { //nolint:contextcheck // the world has one
				b.mergeSecret(b.source, b.sourceNS, r.Object.Name, `{"data":{"password":"dGhlaXJz"}}`) //nolint:contextcheck // the world has one
			}
			return err
		})
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}})()
		b.secret(b.target, b.targetNS, "creds", "b3Vycw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		before := b.writes()
		time.Sleep(time.Hour)
		if n := b.writes() - before; n < 2 || n > 60 {
			t.Errorf("%d writes in an hour, with those of the other", n)
		}
		if !strings.HasPrefix(b.message("a"), string(ReasonRelated)) {
			t.Errorf("message is %q", b.message("a"))
		}
		b.mergeSecret(b.target, b.targetNS, "creds", `{"data":{"password":"bmV3"}}`)
		b.settle()
		if got := field(b.copied("creds"), "data", "password"); got != "bmV3" {
			t.Errorf("the new content has not come: %v", got)
		}
	})
}

// A credential that came with a target stays while a policy takes our annotations off that.
func TestCopiesOfAStrippedTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}})()
		b.secret(b.target, b.targetNS, "creds", "b3Vycw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		before := b.writes()
		b.strips(SourceAnnotation)
		b.merge(b.source, b.sourceNS, "a", `{"spec":{"size":"large"}}`)
		time.Sleep(time.Hour)
		if n := b.writes() - before; n > 0 || b.copied("creds") == nil {
			t.Errorf("%d writes to the copy, which is now %v", n, b.copied("creds"))
		}
	})
}

// A target without our annotation is known by its source's field manager, be it that the binding
// has another name now, and what the user removes of it goes.
func TestStrippedUnderAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		stop := w.run(Options{Binding: "first"})
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		time.Sleep(time.Minute)
		stop()
		w.merge(w.target, w.targetNS, "a", fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, SourceAnnotation))
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":null}}`)
		defer w.run(Options{Binding: "second"})()
		time.Sleep(time.Minute)
		got := w.targetOf("a")
		if why, spec := w.message("a"), got.Object["spec"]; why != "" || field(got, "spec", "color") != nil || got.GetAnnotations()[SourceAnnotation] == "" {
			t.Errorf("message %q, spec %v, annotations %v", why, spec, got.GetAnnotations())
		}
	})
}

// Where source and target are one cluster, targets have no targets: those of other Syncs neither,
// nor those whose annotations a policy takes off. A target that goes is let go by all.
func TestOneCluster(t *testing.T) {
	two := []Options{{Mapper: Prefix("a-")}, {Mapper: Prefix("b-"), Binding: "two", Finalizer: "example.org/two"}}
	far := Options{Mapper: Prefix("b-"), Domain: "example.org", Finalizer: "example.org/two"}
	for name, tt := range map[string]struct {
		syncs []Options
		strip bool
	}{
		"one Sync":                        {two[:1], false},
		"two Syncs":                       {two, false},
		"two domains":                     {[]Options{two[0], far}, false},
		"a policy that strips":            {two[:1], true},
		"a policy that strips, two Syncs": {two, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if len(r.Object.Name) > 10 { // else there would be no end
						return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("exceeded quota"))
					}
					err := do()
					if tt.strip && r.Verb == "apply" && err == nil && r.Subresource == "" {
						w.merge(w.source, w.sourceNS, r.Object.Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null}}}`, SourceAnnotation, BoundAnnotation)) //nolint:contextcheck // the world has one
					}
					return err
				})
				w.to = w.from
				for _, opts := range tt.syncs {
					defer w.run(opts)()
				}
				w.create(w.source, w.sourceNS, w.widget("x", `{"size":"small"}`, ``))
				time.Sleep(time.Minute)
				if objects, _ := w.fakeSource.Objects(widgets); len(objects) != 1+len(tt.syncs) {
					t.Errorf("%d objects", len(objects))
				}
				w.delete(w.source, w.sourceNS, "x")
				time.Sleep(time.Minute)
				if objects, _ := w.fakeSource.Objects(widgets); len(objects) != 0 {
					t.Errorf("%d objects are left", len(objects))
				}
			})
		})
	}
}

// TestRelatedGoNoFurther: a copy of a related object is no original for its own cluster: neither where source and target are
// one cluster, nor with a Sync each way.
func TestRelatedGoNoFurther(t *testing.T) {
	all := []Related{{Resource: secrets, From: SourceSide, Names: []string{"*"}}}
	for name, back := range map[string]bool{"one cluster": false, "two Syncs, each way": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
					c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
						if r.Resource == secrets && len(r.Object.Name) > 20 { // else there would be no end
							return apierrors.NewForbidden(secrets.GroupResource(), r.Object.Name, errors.New("exceeded quota"))
						}
						return do()
					})
				}
				if back {
					w.namespace(w.target, w.sourceNS)
					defer w.run(Options{Mapper: Prefix("a-"), Related: all})()
					w.from, w.to = w.to, w.from
					defer w.run(Options{Mapper: Prefix("b-"), Related: all, Binding: "back", Finalizer: "example.org/back"})()
				} else {
					w.to = w.from
					defer w.run(Options{Mapper: Prefix("a-"), Related: all})()
				}
				w.create(w.source, w.sourceNS, w.widget("x", `{"size":"small"}`, ``))
				if back {
					w.create(w.target, w.sourceNS, w.widget("y", `{"size":"small"}`, ``))
				}
				w.secret(w.source, w.sourceNS, "key", "a2V5")
				time.Sleep(5 * time.Minute)
				here, _ := w.fakeSource.Objects(secrets)
				there, _ := w.fakeTarget.Objects(secrets)
				if len(here)+len(there) != 2 {
					t.Errorf("of one Secret there are %d", len(here)+len(there))
				}
			})
		})
	}
}

// Two Syncs between two clusters, one each way, make one target of an object, and none of that target.
func TestCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.namespace(w.target, w.sourceNS)
		for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
			c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if len(r.Object.Name) > 20 { // else there would be no end
					return apierrors.NewForbidden(widgets.GroupResource(), r.Object.Name, errors.New("exceeded quota"))
				}
				return do()
			})
		}
		defer w.run(Options{Mapper: Prefix("a-")})()
		back := *w
		back.from, back.to = w.to, w.from
		defer back.run(Options{Mapper: Prefix("b-"), Binding: "back", Finalizer: "example.org/back"})()
		w.create(w.source, w.sourceNS, w.widget("x", `{"size":"small"}`, ``))
		time.Sleep(time.Minute)
		sources, _ := w.fakeSource.Objects(widgets)
		targets, _ := w.fakeTarget.Objects(widgets)
		if len(sources) != 1 || len(targets) != 1 {
			t.Errorf("%d and %d objects", len(sources), len(targets))
		}
	})
}

// Where source and target are one cluster, a target that was released has no target either, until
// the mark is taken off it.
func TestOneClusterReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.to = w.from
		defer w.run(Options{Mapper: Prefix("a-"), Deletion: DeletionOrphan})()
		w.create(w.source, w.sourceNS, w.widget("x", `{"size":"small"}`, ``))
		w.settle()
		w.delete(w.source, w.sourceNS, "x")
		w.settle()
		if w.get(w.source, w.sourceNS, "a-x") == nil || w.get(w.source, w.sourceNS, "a-a-x") != nil {
			t.Error("what was released is not there, or has a target")
		}
		w.merge(w.source, w.sourceNS, "a-x", `{"metadata":{"annotations":{"`+OrphanedAnnotation+`":null}}}`)
		w.settle()
		if w.get(w.source, w.sourceNS, "a-a-x") == nil {
			t.Error("without the mark it has no target")
		}
	})
}

// A Secret that a source refers to goes up also when the source is being deleted.
func TestRelatedWhileDeleting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		defer b.sync(widgets, Related{Resource: secrets, From: SourceSide, References: []string{"spec.backup"}})()
		b.claim(widgets, "Widget", "a")
		b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":["provider.example.org/backup"]}}`)
		b.delete(b.source, b.sourceNS, "a")
		b.settle()
		b.secret(b.source, b.sourceNS, "key", "a2V5")
		b.merge(b.source, b.sourceNS, "a", `{"spec":{"backup":"key"}}`)
		b.until("the name and the Secret went up", func() bool {
			return field(b.targetOf("a"), "spec", "backup") == "key" && b.getSecret(b.target, b.targetNS, "key") != nil
		})
		b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":null}}`)
		b.until("all is gone", func() bool {
			return b.targetOf("a") == nil && b.get(b.source, b.sourceNS, "a") == nil && b.getSecret(b.target, b.targetNS, "key") == nil
		})
	})
}

// What a target reads while it is deprovisioned stays until it has gone, although users delete the
// original with the claim, be it chosen by its name or because the claim names it.
func TestSecretsOutliveTargets(t *testing.T) {
	for how, related := range map[string]Related{
		"referred": {Resource: secrets, From: SourceSide, References: []string{"spec.backup"}}, "named": {Resource: secrets, From: SourceSide, Names: []string{"*"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			defer b.sync(widgets, related)()
			b.secret(b.source, b.sourceNS, "key", "a2V5")
			b.claim(widgets, "Widget", "a")
			b.merge(b.source, b.sourceNS, "a", `{"spec":{"backup":"key"}}`)
			b.until("the Secret went up", func() bool { return b.getSecret(b.target, b.targetNS, "key") != nil })
			b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":["provider.example.org/backup"]}}`)
			b.delete(b.source, b.sourceNS, "a")
			b.settle()
			b.deleteSecret(b.source, b.sourceNS, "key")
			time.Sleep(time.Hour)
			if b.targetOf("a") == nil || b.getSecret(b.target, b.targetNS, "key") == nil {
				t.Errorf("%s: the Secret has gone before the target", how)
			}
			b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":null}}`)
			b.until("all is gone", func() bool {
				return b.targetOf("a") == nil && b.get(b.source, b.sourceNS, "a") == nil && b.getSecret(b.target, b.targetNS, "key") == nil
			})
		})
	}
}

// They do so also if the Secret is deleted with the source, and a watch shows that first.
func TestSecretsOutliveTargetsOfAMoment(t *testing.T) {
	for how, related := range map[string]Related{
		"referred": {Resource: secrets, From: SourceSide, References: []string{"spec.backup"}}, "named": {Resource: secrets, From: SourceSide},
	} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				defer b.sync(widgets, related)()
				b.secret(b.source, b.sourceNS, "key", "a2V5")
				b.claim(widgets, "Widget", "a")
				b.claim(widgets, "Widget", "stays")
				b.merge(b.source, b.sourceNS, "a", `{"spec":{"backup":"key"}}`)
				b.until("the Secret went up", func() bool { return b.getSecret(b.target, b.targetNS, "key") != nil })
				b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":["provider.example.org/backup"]}}`)
				b.settle()
				b.fakeSource.Lag(widgets, true)
				b.delete(b.source, b.sourceNS, "a")
				b.deleteSecret(b.source, b.sourceNS, "key")
				time.Sleep(time.Minute)
				if b.getSecret(b.target, b.targetNS, "key") == nil {
					t.Error("the Secret has gone before it is known that the source is being deleted")
				}
				b.fakeSource.Lag(widgets, false)
				time.Sleep(time.Hour)
				if b.targetOf("a") == nil || b.getSecret(b.target, b.targetNS, "key") == nil {
					t.Error("the Secret has gone before the target")
				}
				b.merge(b.target, b.targetNS, "a", `{"metadata":{"finalizers":null}}`)
				b.until("all is gone", func() bool {
					return b.targetOf("a") == nil && b.get(b.source, b.sourceNS, "a") == nil && b.getSecret(b.target, b.targetNS, "key") == nil
				})
			})
		})
	}
}

// Who changes a status back each time is named, also where each write is answered with an error and done
// all the same.
func TestStatusRivalsAreNamed(t *testing.T) {
	for name, answer := range map[string]error{"done": nil, "done all the same": apierrors.NewInternalError(errors.New("etcdserver: request timed out"))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var written atomic.Bool
				var taken atomic.Int32
				w.fakeSource.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
					err := do()
					switch {
					case err != nil || r.Resource != widgets:
						return err
					case r.Verb == "apply" && r.Subresource == "status":
						written.Store(true)
						err = answer
					}
					if written.Load() && (r.Verb == "get" || answer == nil) && taken.Load() < 1000 {
						written.Store(false)
						taken.Add(1)
						_, err = w.source.Resource(widgets).Namespace(w.sourceNS).Patch(ctx, r.Object.Name, types.MergePatchType, []byte(`{"status":{"phase":"Mine"}}`), metav1.PatchOptions{FieldManager: "auditor"}, "status")
					}
					return err
				})
				_, stop := w.sync(Options{})
				defer stop()
				w.createMany(1)
				w.merge(w.target, w.targetNS, "w0", `{"status":{"phase":"Ready","node":"n1"}}`, "status")
				time.Sleep(10 * time.Minute)
				if got := w.message("w0"); !strings.HasPrefix(got, string(ReasonStatus)) || !strings.HasSuffix(got, "changed back by auditor (.status.phase)") {
					t.Errorf("message %q", got)
				}
				before := taken.Load()
				time.Sleep(time.Hour)
				if n := taken.Load() - before; n < 2 || n > 30 {
					t.Errorf("%d statuses in an hour", n)
				}
			})
		})
	}
}

// A condition that another controller added is still its own after a restart, which writes nothing,
// and stays when the status changes then.
func TestConditionsOfOthersOverRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		_, stop := w.sync(Options{})
		w.createMany(1)
		const ready, audited = `{"type":"Ready","status":"True"}`, `{"type":"Audited","status":"True"}`
		w.merge(w.target, w.targetNS, "w0", `{"status":{"conditions":[`+ready+`]}}`, "status")
		w.settle()
		w.merge(w.source, w.sourceNS, "w0", `{"status":{"conditions":[`+ready+`,`+audited+`]}}`, "status")
		w.settle()
		stop()
		before := len(w.fakeSource.Writes())
		_, stop = w.sync(Options{})
		defer stop()
		w.settle()
		is := func(want string) {
			t.Helper()
			status, _ := w.get(w.source, w.sourceNS, "w0").Object["status"].(map[string]any)
			if got := strings.Join(travel.ConditionTypes(status), " "); got != want {
				t.Errorf("conditions are %q, not %q", got, want)
			}
		}
		is("Audited Ready")
		if n := len(w.fakeSource.Writes()) - before; n > 0 {
			t.Errorf("a restart makes %d writes", n)
		}
		w.merge(w.target, w.targetNS, "w0", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
		w.settle()
		is("Audited Ready")
		w.merge(w.source, w.sourceNS, "w0", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "status")
		w.settle()
		is("Ready")
	})
}

// Types of conditions that others add are kept, and those that the target had are not.
func TestConditionsOfOthers(t *testing.T) {
	status := func(types ...string) map[string]any {
		var conditions []any
		for _, kind := range types {
			conditions = append(conditions, map[string]any{"type": kind})
		}
		return map[string]any{"conditions": conditions}
	}
	s := &sourceStatus{}
	source := &unstructured.Unstructured{Object: map[string]any{"status": status("Ready", "Synced", "Audited")}}
	if got := s.withOthers(nil, source); got != nil {
		t.Errorf("before the first status: %v", got)
	}
	if got := travel.ConditionTypes(s.withOthers(status("Stored"), source)); len(got) != 1 {
		t.Errorf("before the first write: %v", got)
	}
	s.wrote(&pair{}, status("Ready", "Synced"))
	if got := strings.Join(travel.ConditionTypes(s.withOthers(status("Ready"), source)), " "); got != "Audited Ready" {
		t.Errorf("after it: %v", got)
	}
	source.Object["status"] = status("Ready")
	if got := travel.ConditionTypes(s.withOthers(status("Ready"), source)); len(got) != 1 {
		t.Errorf("when they have gone: %v", got)
	}
}

// I19: under DriftReport an edit of a field that others hold is asked for ever more rarely, whatever else changes on the
// target: its status each second, or all of it at each write. It goes up once they let the field go.
func TestHeldFieldsOfAMovingTarget(t *testing.T) {
	for name, moves := range map[string]bool{"status each second": false, "at each write": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				var asked atomic.Int32
				w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
					err := do()
					if r.Resource == widgets && isWrite(r) {
						if n := asked.Add(1); moves && err != nil {
							w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, n)) //nolint:contextcheck // the world has one
						}
					}
					return err
				})
				defer w.run(Options{Drift: DriftReport})()
				w.createMany(1)
				w.settle()
				w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":"medium"}}`)
				w.settle()
				w.merge(w.source, w.sourceNS, "w0", `{"spec":{"size":"large"}}`)
				for i := range 3600 {
					if !moves {
						w.merge(w.target, w.targetNS, "w0", fmt.Sprintf(`{"status":{"phase":"%d"}}`, i), "status")
					}
					time.Sleep(time.Second)
				}
				if n, said := asked.Load(), w.message("w0"); n > 40 || !strings.HasPrefix(said, string(ReasonDrifted)) {
					t.Errorf("asked %d times in an hour, message %q", n, said)
				}
				w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":null}}`)
				time.Sleep(6 * time.Minute)
				if got := field(w.targetOf("w0"), "spec", "size"); got != "large" || w.message("w0") != "" {
					t.Errorf("afterwards the target has size %v, message %q", got, w.message("w0"))
				}
			})
		})
	}
}

// I19: what others change back each time is put right ever more slowly, and told, also where each write is done and
// answered as if it had not been, as behind a proxy that asks twice.
func TestContestOfWritesAnsweredOutdated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var outdated atomic.Bool
		var asked atomic.Int32
		w.to = w.faulty(w.fakeTarget, func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource != widgets || !isWrite(r) || !outdated.Load() {
				return do()
			}
			asked.Add(1)
			if err := do(); err != nil {
				return err
			}
			time.AfterFunc(100*time.Millisecond, func() { w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":"theirs"}}`) }) //nolint:contextcheck // the world has one
			return conflicts(r)
		})
		defer w.run(Options{})()
		w.createMany(1)
		w.settle()
		outdated.Store(true)
		w.merge(w.target, w.targetNS, "w0", `{"spec":{"size":"theirs"}}`)
		time.Sleep(10 * time.Minute)
		if n, said := asked.Load(), w.message("w0"); n > 20 || !strings.HasPrefix(said, string(ReasonContested)) {
			t.Errorf("asked %d times in ten minutes, message %q", n, said)
		}
	})
}
