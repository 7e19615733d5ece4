// SPDX-License-Identifier: Apache-2.0

package behind

import (
	stdcmp "cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var (
	widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// An ask is one of the requests that a Sync makes of an API server which refuses it.
type ask struct {
	target        bool                        // it is the target's API server that refuses
	watches       bool                        // and ends its watches
	late          time.Duration               // after that, what is done
	of            schema.GroupVersionResource // widgets if empty
	meets         func(fakecluster.Request) bool
	before, after func(w *world) // what is done before it begins to refuse, and after that
	reason        func(fates.Kind) klutchsync.Reason
}

// ofTarget is the reason of the Event if the target's API server refuses a write.
func ofTarget(kind fates.Kind) klutchsync.Reason {
	switch kind {
	case fates.Unreachable, fates.Failing, fates.Broken, fates.Damaged, fates.Overloaded, fates.Unauthorized, fates.Exists, fates.Conflict, fates.Replaced, fates.Expired, fates.Ahead:
		return klutchsync.ReasonUnavailable
	case fates.Unserved, fates.Terminating, fates.Absent:
		return klutchsync.ReasonMissing
	case fates.Forbidden:
		return klutchsync.ReasonForbidden
	default:
		return klutchsync.ReasonRefused
	}
}

// ofAccess is the reason of the Event if the source must not be written.
func ofAccess(kind fates.Kind) klutchsync.Reason {
	switch reason := ofTarget(kind); {
	case kind == fates.Contested: // no field of ours on the source is anyone's to hold
		return klutchsync.ReasonUnavailable
	case reason == klutchsync.ReasonForbidden || reason == klutchsync.ReasonRefused:
		return klutchsync.ReasonDenied
	default:
		return klutchsync.ReasonUnavailable
	}
}

// ofStatus is the reason of the Event if the source does not take its status, whatever its API server says.
func ofStatus(fates.Kind) klutchsync.Reason { return klutchsync.ReasonStatus }

var asks = map[string]ask{
	"the target": {
		target: true, meets: func(r fakecluster.Request) bool { return r.Verb == "apply" },
		after: func(w *world) { w.create("orders") }, reason: ofTarget,
	},
	"reads of the target": {
		target: true, meets: func(r fakecluster.Request) bool { return r.Verb == "apply" || r.Verb == "get" },
		after: func(w *world) { w.create("orders") }, reason: ofTarget,
	},
	"a change of the target": {
		target: true, meets: func(r fakecluster.Request) bool { return r.Verb == "apply" },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.patch(w.source, `{"spec":{"size":"large"}}`) }, reason: ofTarget,
	},
	"the deletion": {
		target: true, meets: func(r fakecluster.Request) bool { return r.Verb == "delete" },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.delete("orders") }, reason: ofTarget,
	},
	"all of the target, a new claim": {
		target: true, watches: true, meets: func(fakecluster.Request) bool { return true },
		after: func(w *world) { w.create("orders") }, reason: ofTarget,
	},
	"all of the target, a change": {
		target: true, watches: true, meets: func(fakecluster.Request) bool { return true },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.patch(w.source, `{"spec":{"size":"large"}}`) }, reason: ofTarget,
	},
	"all of the target, a deletion": {
		target: true, watches: true, meets: func(fakecluster.Request) bool { return true },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.delete("orders") },
		reason: func(kind fates.Kind) klutchsync.Reason {
			if kind == fates.Absent {
				return "" // so its target has gone, and the claim goes
			}
			return ofTarget(kind)
		},
	},
	"all of the target, a new claim in the midst of it": {
		target: true, watches: true, late: 30 * time.Second, meets: func(fakecluster.Request) bool { return true },
		after: func(w *world) { w.create("orders") }, reason: ofTarget,
	},
	"all of the target, a change in the midst of it": {
		target: true, watches: true, late: 30 * time.Second, meets: func(fakecluster.Request) bool { return true },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.patch(w.source, `{"spec":{"size":"large"}}`) }, reason: ofTarget,
	},
	"a copy": {
		of: secrets, meets: func(r fakecluster.Request) bool { return r.Verb == "apply" || r.Verb == "patch" },
		before: func(w *world) { w.create("orders") }, after: func(w *world) {
			w.make(w.target, secrets, "Secret", "creds")
			w.patch(w.target, `{"status":{"secret":"creds"}}`, "status")
		},
		reason: func(fates.Kind) klutchsync.Reason { return klutchsync.ReasonRelated },
	},
	"the status": {
		meets:  func(r fakecluster.Request) bool { return r.Subresource == "status" },
		before: func(w *world) { w.create("orders") }, after: func(w *world) { w.patch(w.target, `{"status":{"phase":"Ready"}}`, "status") },
		reason: ofStatus,
	},
	"the finalizer": {
		meets: func(r fakecluster.Request) bool { return r.Verb == "patch" && r.Subresource == "" },
		after: func(w *world) { w.create("orders") }, reason: ofAccess,
	},
}

// answers are those of the simulator, and that an object is absent whatever is asked of it: there
// reads are spared, since what they are told is believed, as it is that a kind has no status subresource.
func answers() []fakecluster.Answer {
	absent := func(r fakecluster.Request) error {
		if r.Subresource != "" {
			return apierrors.NewServiceUnavailable("starting") // else the kind has none: TestPlainStatus
		}
		return apierrors.NewNotFound(widgets.GroupResource(), "orders")
	}
	all := slices.DeleteFunc(fakecluster.Answers(), func(a fakecluster.Answer) bool {
		return a.Kind == fates.Absent || fates.Is(a.Err(fakecluster.Request{Resource: widgets, Subresource: "status"}), fates.Unserved)
	})
	return append(all, fakecluster.Answer{Kind: fates.Absent, Err: absent})
}

// notAnswered has the kinds that no API server answers such requests with, and why.
var notAnswered = map[fates.Kind]string{
	fates.None:       "no error",
	fates.Ended:      "the end of the Sync",
	fates.Superseded: "the engine's own",
	fates.Terminal:   "the engine's own",
	fates.Unknown:    "no answer of an API server",
}

// ofLists are the kinds with which an API server answers no list, or says that it is to be asked
// for in another way.
var ofLists = []fates.Kind{fates.Terminating, fates.Expired, fates.Ahead, fates.Invalid, fates.Replaced, fates.Malformed, fates.NotAllowed, fates.NotAcceptable}

// Whatever an API server answers for as long as it does: within 15 seconds a claim that is not
// in step for it has an Event with the reason, and its binding counts it.
func TestEachFateIsTold(t *testing.T) {
	met := maps.Clone(notAnswered)
	for _, answer := range answers() {
		met[answer.Kind] = "answered"
		for name, ask := range asks {
			if ask.watches && slices.Contains(ofLists, answer.Kind) || ask.late > 0 && answer.Kind == fates.Contested {
				continue
			}
			err := answer.Err(fakecluster.Request{Resource: widgets})
			t.Run(name+"/"+strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tells(t, ask, answer) })
			})
		}
	}
	for k := range fates.Kinds {
		if met[k] == "" {
			t.Errorf("kind %d is not answered, and there is no reason given", k)
		}
	}
}

// A request that is answered late, or never, as where a webhook hangs, is told within the same 15
// seconds, and that it was done all the same, too.
func TestLateAnswersAreTold(t *testing.T) {
	for name, ask := range asks {
		for _, late := range []time.Duration{10 * time.Second, 30 * time.Second} {
			t.Run(name+"/"+late.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { tellsLate(t, ask, late) })
			})
		}
	}
}

// begin does all that comes before the request, and returns the cluster that answers it.
func (a ask) begin(w *world) *fakecluster.Cluster {
	w.create("before")
	if a.before != nil {
		a.before(w)
	}
	time.Sleep(5 * time.Second)
	if a.target {
		return w.target
	}
	return w.source
}

// resource is the one that is asked for.
func (a ask) resource() schema.GroupVersionResource { return stdcmp.Or(a.of, widgets) }

func tellsLate(t *testing.T, ask ask, late time.Duration) {
	t.Helper()
	w, l := newWorld(t), NewLedger(func() {})
	view := w.target.View(nil)
	defer run(t, w.source, view, l, klutchsync.LostRecreate)()
	hanging := ask.begin(w)
	hanging.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource != ask.resource() || !ask.meets(r) {
			return do()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(late):
			return errors.New("context deadline exceeded")
		}
	})
	if ask.watches {
		for _, watch := range view.Watches() {
			watch.Expire()
		}
	}
	if events := l.within(ask.late); len(events) > 0 {
		t.Errorf("nothing was changed yet: %q", events)
	}
	ask.after(w)
	events := l.within(told)
	if counted, _ := l.Condition("widgets.example.org", time.Now()); len(events) == 0 || counted.Status == metav1.ConditionTrue {
		t.Errorf("Events %q; %s: %s", events, counted.Status, counted.Message)
	}
	hanging.Intercept(nil)
	events = l.within(5 * time.Minute)
	if counted, _ := l.Condition("widgets.example.org", time.Now()); counted.Status != metav1.ConditionTrue {
		t.Errorf("afterwards: Events %q; %s: %s", events, counted.Status, counted.Message)
	}
}

// hangs are requests that an API server does not answer, each made for every one of many claims.
var hangs = map[string]struct {
	ask
	claims        int
	before, after func(w *world, name string)
	restarts      bool
}{
	"new claims":                    {ask: asks["the target"], claims: 50, after: (*world).create},
	"so many that Events are paced": {ask: asks["the target"], claims: 500, after: (*world).create},
	"changes": {
		ask: asks["a change of the target"], claims: 50, before: (*world).create,
		after: func(w *world, name string) { w.patchOf(w.source, name, `{"spec":{"size":"large"}}`) },
	},
	"new claims, and the konnector starts": {ask: asks["the target"], claims: 50, after: (*world).create, restarts: true},
	"statuses": {
		ask: asks["the status"], claims: 50, before: (*world).create,
		after: func(w *world, name string) { w.patchOf(w.target, name, `{"status":{"phase":"Ready"}}`, "status") },
	},
	"copies": {
		ask: asks["a copy"], claims: 50, before: (*world).create,
		after: func(w *world, name string) {
			w.make(w.target, secrets, "Secret", name)
			w.patchOf(w.target, name, `{"status":{"secret":"`+name+`"}}`, "status")
		},
	},
}

// Where all workers wait for answers, the claims that wait for a worker are told and counted
// within the same 15 seconds, by no request. Nothing is told of objects that are in step.
func TestWhatWaitsBehindLateAnswersIsTold(t *testing.T) {
	for name, hang := range hangs {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, l := newWorld(t), NewLedger(func() {})
				end := run(t, w.source, w.target.View(nil), l, klutchsync.LostRecreate)
				defer func() { end() }()
				for i := range 50 {
					w.create(fmt.Sprintf("in-step-%d", i))
				}
				names := make([]string, hang.claims)
				for i := range names {
					if names[i] = fmt.Sprintf("orders-%04d", i); hang.before != nil {
						hang.before(w, names[i])
					}
				}
				hanging := hang.begin(w)
				time.Sleep(time.Minute)
				asked := atomic.Int64{}
				hanging.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource != hang.resource() || !hang.meets(r) {
						return do()
					}
					asked.Add(1)
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(20 * time.Second):
						return errors.New("context deadline exceeded")
					}
				})
				if hang.restarts { // a claim that it had begun with before would not surely be behind
					end()
				}
				for _, name := range names {
					hang.after(w, name)
				}
				if hang.restarts {
					l = NewLedger(func() {})
					end = run(t, w.source, w.target.View(nil), l, klutchsync.LostRecreate)
				}
				events := l.within(told)
				if i := slices.IndexFunc(events, func(e string) bool { return !strings.HasPrefix(e, "orders-") }); i >= 0 {
					t.Errorf("it is in step: %s", events[i])
				}
				counted, _ := l.Condition("widgets.example.org", time.Now())
				if want := fmt.Sprintf("%d not in step: ", hang.claims); !strings.HasPrefix(counted.Message, want) {
					t.Errorf("%s: %s, want %s", counted.Status, counted.Message, want)
				}
				if most := 100 + 10*int(told/time.Second); len(events) != min(hang.claims, most) && hang.claims < most || len(events) > most {
					t.Errorf("%d Events, of %d claims: %q", len(events), hang.claims, events)
				}
				if asked.Load() > 40 {
					t.Errorf("%d requests hang", asked.Load())
				}
				hanging.Intercept(nil)
				events = l.within(5 * time.Minute)
				if counted, _ := l.Condition("widgets.example.org", time.Now()); counted.Status != metav1.ConditionTrue {
					t.Errorf("afterwards: Events %q; %s: %s", events, counted.Status, counted.Message)
				}
			})
		})
	}
}

const told = 15 * time.Second

// within are the Events that come within a time.
func (l *Ledger) within(d time.Duration) (events []string) {
	for began := time.Now(); time.Since(began) < d; time.Sleep(time.Second) {
		news, _ := l.News(time.Now())
		for _, n := range news {
			events = append(events, strings.Join([]string{n.Object.Name, n.Type, n.Reason}, " "))
		}
	}
	return events
}

// What is found when an API server permits something again is told, too, and counted: a target
// that has vanished with its namespace, and the rights there, in the meantime.
func TestWhatADenialHid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newWorld(t), NewLedger(func() {})
		view := w.target.View(nil)
		defer run(t, w.source, view, l, klutchsync.LostReport)()
		w.create("orders")
		time.Sleep(5 * time.Second)
		var denied atomic.Bool
		denied.Store(true)
		w.target.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if denied.Load() && r.Resource == widgets && r.Verb == "get" {
				return apierrors.NewForbidden(widgets.GroupResource(), "orders", nil)
			}
			return do()
		})
		if err := w.target.Client().Resource(widgets).Namespace("default").Delete(t.Context(), "orders", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		events := l.within(told)
		denied.Store(false)
		events = append(events, l.within(time.Minute)...) // it is asked again
		counted, _ := l.Condition("widgets.example.org", time.Now())
		if diff := cmp.Diff([]string{"orders Warning AccessDenied", "orders Warning TargetLost"}, events); diff != "" || !strings.HasPrefix(counted.Message, "1 not in step: 1 TargetLost.") {
			t.Errorf("Events (-want +got):\n%s\ncounted: %s", diff, counted.Message)
		}
	})
}

func tells(t *testing.T, ask ask, answer fakecluster.Answer) {
	t.Helper()
	w, l := newWorld(t), NewLedger(func() {})
	view := w.target.View(nil)
	defer run(t, w.source, view, l, klutchsync.LostRecreate)()
	refusing := ask.begin(w)
	refusing.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Resource == ask.resource() && ask.meets(r) {
			return answer.Err(r)
		}
		return do()
	})
	if ask.watches {
		for _, watch := range view.Watches() {
			watch.Expire()
		}
	}
	events := l.within(ask.late)
	if len(events) > 0 && answer.Kind.Word() == fates.CannotTake {
		t.Errorf("nothing was changed yet: %q", events)
	}
	ask.after(w)
	events = append(events, l.within(told)...)
	reason := ask.reason(answer.Kind)
	if _, err := w.source.Client().Resource(widgets).Namespace("default").Get(t.Context(), "orders", metav1.GetOptions{}); reason == "" && apierrors.IsNotFound(err) {
		return
	}
	counted, _ := l.Condition("widgets.example.org", time.Now())
	if want := "orders Warning " + string(reason); !slices.Contains(events, want) || counted.Status == metav1.ConditionTrue {
		t.Errorf("Events %q, want %q; %s: %s", events, want, counted.Status, counted.Message)
	}
}

// A world is two clusters with widgets.
type world struct {
	*testing.T
	source, target *fakecluster.Cluster
}

func newWorld(t *testing.T) *world {
	t.Helper()
	kinds := []fakecluster.Resource{{GroupVersionResource: widgets, Kind: "Widget"}, {GroupVersionResource: secrets, Kind: "Secret", Plain: true}}
	return &world{T: t, source: fakecluster.New(kinds...), target: fakecluster.New(kinds...)}
}

func (w *world) patch(c *fakecluster.Cluster, patch string, subresource ...string) {
	w.Helper()
	w.patchOf(c, "orders", patch, subresource...)
}

func (w *world) patchOf(c *fakecluster.Cluster, name, patch string, subresource ...string) {
	w.Helper()
	if _, err := c.Client().Resource(widgets).Namespace("default").Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.Helper()
	if err := w.source.Client().Resource(widgets).Namespace("default").Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// run syncs widgets until the returned function is called.
func run(t *testing.T, source *fakecluster.Cluster, target *fakecluster.View, l *Ledger, lost klutchsync.LostPolicy) (end func()) {
	t.Helper()
	from, err := klutchsync.NewClusterForClients(source.Client(), source.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	to, err := klutchsync.NewClusterForClients(target.Client(), target.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	s, err := klutchsync.New(from, to, widgets, klutchsync.Options{
		Mapper: klutchsync.Identity(), Lost: lost, Hooks: klutchsync.Hooks{Reported: l.Report},
		Related: []klutchsync.Related{{Resource: secrets, From: klutchsync.TargetSide, References: []string{"status.secret"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (w *world) create(name string) {
	w.Helper()
	w.make(w.source, widgets, "Widget", name)
}

func (w *world) make(c *fakecluster.Cluster, resource schema.GroupVersionResource, kind, name string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "small"}}}
	u.SetGroupVersionKind(resource.GroupVersion().WithKind(kind))
	u.SetName(name)
	if _, err := c.Client().Resource(resource).Namespace("default").Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}
