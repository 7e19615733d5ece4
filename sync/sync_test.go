// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/names"
)

var (
	widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil // client-go's waits until a time of another bubble
	os.Exit(m.Run())
}

// A world is two clusters, fake or real, and a namespace of the source that is
// synced to one of the target.
type world struct {
	testing.TB
	source, target dynamic.Interface
	from, to       *Cluster
	sourceNS       string
	targetNS       string
	fakeSource     *fakecluster.Cluster // nil if real
	fakeTarget     *fakecluster.Cluster
}

func newFake(tb testing.TB) *world {
	tb.Helper()
	check := func(o *unstructured.Unstructured) error {
		if size, _, _ := unstructured.NestedString(o.Object, "spec", "size"); size == "huge" {
			return errors.New(`spec.size: Unsupported value: "huge"`)
		}
		return nil
	}
	w := &world{
		TB: tb, sourceNS: "team", targetNS: "svc-team",
		fakeSource: fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"}),
		fakeTarget: fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Check: check}),
	}
	w.source, w.target = w.fakeSource.Client(), w.fakeTarget.Client()
	var err error
	if w.from, err = NewClusterForClients(w.source, w.fakeSource.Metadata()); err != nil {
		tb.Fatal(err)
	}
	if w.to, err = NewClusterForClients(w.target, w.fakeTarget.Metadata()); err != nil {
		tb.Fatal(err)
	}
	w.namespace(w.source, w.sourceNS)
	w.namespace(w.target, w.targetNS)
	return w
}

func (w *world) namespace(d dynamic.Interface, name string) {
	w.Helper()
	ns := object(w.TB, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`)
	_, err := d.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(w.Context(), ns, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
}

// resident makes a source that has nothing to do with any related object, other than
// that it is in their namespace.
func (w *world) resident(namespace string) {
	w.Helper()
	w.create(w.source, namespace, w.widget("resident", `{}`, ``))
}

// run runs a Sync with opts; the returned function ends it and waits.
func (w *world) run(opts Options) (stop func()) {
	w.Helper()
	if opts.Mapper == nil {
		table := NewNamespaces(nil)
		table.Set(w.sourceNS, w.targetNS)
		opts.Mapper = table
	}
	if opts.Workers == 0 {
		opts.Workers = 4
	}
	s, err := New(w.from, w.to, widgets, opts)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return gosync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
}

func object(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), u); err != nil {
		tb.Fatal(err)
	}
	return u
}

// widget is an object with a spec, and metadata as JSON.
func (w *world) widget(name, spec, meta string) *unstructured.Unstructured {
	w.Helper()
	u := object(w.TB, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{`+meta+`},"spec":`+spec+`}`)
	u.SetName(name)
	return u
}

func (w *world) create(d dynamic.Interface, ns string, u *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	out, err := d.Resource(widgets).Namespace(ns).Create(w.Context(), u, metav1.CreateOptions{FieldManager: "user"})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) get(d dynamic.Interface, ns, name string) *unstructured.Unstructured {
	w.Helper()
	u, err := d.Resource(widgets).Namespace(ns).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return u
}

// statusAt is the subresource at which the status of widgets is, in both clusters: none of a plain kind.
func (w *world) statusAt(plain bool) []string {
	if !plain {
		return []string{"status"}
	}
	for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
		c.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Plain: true})
	}
	return nil
}

func (w *world) merge(d dynamic.Interface, ns, name, patch string, sub ...string) {
	w.Helper()
	_, err := d.Resource(widgets).Namespace(ns).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "someone"}, sub...)
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(d dynamic.Interface, ns, name string) {
	w.Helper()
	if err := d.Resource(widgets).Namespace(ns).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// until waits for a state of the world.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			w.Fatalf("never: %s\nsource: %s\ntarget: %s", what, dump(w.source, w.sourceNS), dump(w.target, w.targetNS))
		}
		select {
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func dump(d dynamic.Interface, ns string) string {
	list, err := d.Resource(widgets).Namespace(ns).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	data, _ := json.MarshalIndent(list.Items, "", " ")
	return string(data)
}

// settle lets everything come to rest; for real clusters that is a guess.
func (w *world) settle() {
	if w.fakeSource != nil {
		time.Sleep(time.Second)
		synctest.Wait()
		return
	}
	time.Sleep(300 * time.Millisecond)
}

func (w *world) message(name string) string {
	u := w.get(w.source, w.sourceNS, name)
	if u == nil {
		return ""
	}
	return u.GetAnnotations()[MessageAnnotation]
}

func (w *world) targetOf(name string) *unstructured.Unstructured {
	return w.get(w.target, w.targetNS, name)
}

func field(u *unstructured.Unstructured, path ...string) any {
	if u == nil {
		return nil
	}
	v, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
	return v
}

// scenarios are what a Sync does, on fake and on real clusters.
var scenarios = map[string]func(w *world){
	"a spec goes up and a status comes down": func(w *world) {
		defer w.run(Options{})()
		src := w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","ports":[{"name":"x","port":1}],"args":["v"]}`,
			`"labels":{"team":"red","app.kubernetes.io/instance":"argo"},"annotations":{"note":"n","argocd.argoproj.io/tracking-id":"t"}`))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		got := w.targetOf("a")
		if diff := cmp.Diff(src.Object["spec"], got.Object["spec"]); diff != "" {
			w.Errorf("spec (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"team": "red"}, got.GetLabels()); diff != "" {
			w.Errorf("labels (-want +got):\n%s", diff)
		}
		from, _ := OriginOf(got)
		if from.Hash == "" || !watchstore.Newer(w.get(w.source, w.sourceNS, "a").GetResourceVersion(), from.Version) && w.get(w.source, w.sourceNS, "a").GetResourceVersion() != from.Version {
			w.Errorf("no hash, or no version, in %+v", from)
		}
		from.Hash, from.Cluster, from.Version = "", "", ""
		if diff := cmp.Diff(Origin{UID: src.GetUID(), Namespace: w.sourceNS, Name: "a", Generation: 1}, from); diff != "" {
			w.Errorf("origin (-want +got):\n%s", diff)
		}
		annotations := got.GetAnnotations()
		delete(annotations, SourceAnnotation)
		want := map[string]string{"note": "n", BoundAnnotation: "true"}
		if diff := cmp.Diff(want, annotations); diff != "" {
			w.Errorf("annotations (-want +got):\n%s", diff)
		}
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready","observedGeneration":1,"conditions":[{"type":"Ready","observedGeneration":1}]}}`, "status")
		w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":null,"node":"n1"}}`, "status")
		w.until("status field went", func() bool {
			s := w.get(w.source, w.sourceNS, "a")
			return field(s, "status", "phase") == nil && field(s, "status", "node") == "n1"
		})
	},
	"the last part of a status can go, and so can all of it": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		status := func() any { return w.get(w.source, w.sourceNS, "a").Object["status"] }
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready","managed":{"id":"1"}}}`, "status")
		w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		w.merge(w.target, w.targetNS, "a", `{"status":{"managed":{"id":null}}}`, "status")
		w.until("a part is empty", func() bool {
			return cmp.Equal(map[string]any{"phase": "Ready", "managed": map[string]any{}}, status())
		})
		w.merge(w.source, w.sourceNS, "a", `{"status":{"theirs":"1"}}`, "status")
		w.merge(w.target, w.targetNS, "a", `{"status":null}`, "status")
		w.until("what is another owner's is left", func() bool {
			return cmp.Equal(map[string]any{"theirs": "1"}, status()) && w.message("a") == ""
		})
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.merge(w.source, w.sourceNS, "a", `{"status":{"theirs":null}}`, "status")
		w.until("status is filled again", func() bool { return cmp.Equal(map[string]any{"phase": "Ready"}, status()) })
		w.merge(w.target, w.targetNS, "a", `{"status":null}`, "status")
		w.until("status is empty", func() bool { s, _ := status().(map[string]any); return len(s) == 0 && w.message("a") == "" })
	},
	"what the user changes and removes changes and goes, what the provider adds stays": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, `"labels":{"x":"1","y":"1"}`))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"spec":{"late":"provider"},"metadata":{"labels":{"theirs":"1"}}}`)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large","color":null},"metadata":{"labels":{"x":null,"y":"2"}}}`)
		w.until("spec went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		got := w.targetOf("a")
		if diff := cmp.Diff(map[string]any{"size": "large", "late": "provider"}, got.Object["spec"]); diff != "" {
			w.Errorf("spec (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"y": "2", "theirs": "1"}, got.GetLabels()); diff != "" {
			w.Errorf("labels (-want +got):\n%s", diff)
		}
	},
	"the last part of a spec can be taken away": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":null,"color":null}}`)
		w.until("target is empty", func() bool {
			from, _ := OriginOf(w.targetOf("a"))
			return cmp.Equal(map[string]any{}, w.targetOf("a").Object["spec"]) && from.Generation == 2 && w.message("a") == ""
		})
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		w.until("target is filled again", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		w.merge(w.target, w.targetNS, "a", `{"spec":{"late":"provider"}}`)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":null}}`)
		w.until("what is the provider's stays", func() bool {
			return cmp.Equal(map[string]any{"late": "provider"}, w.targetOf("a").Object["spec"]) && w.message("a") == ""
		})
	},
	"drift is corrected": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"large"}}`)
		w.until("drift corrected", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":null}}`)
		w.until("removal corrected", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
	},
	"drift is reported where the policy says so": func(w *world) {
		defer w.run(Options{Drift: DriftReport})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"large"}}`)
		w.until("drift reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonDrifted)) })
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		if got := field(w.targetOf("a"), "spec", "size"); got != "large" {
			w.Errorf("size = %v, want the provider's", got)
		}
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"small"}}`)
		w.until("what was changed back is no drift", func() bool { return w.message("a") == "" })
	},
	"a lost target is created anew": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		uid := w.targetOf("a").GetUID()
		w.delete(w.target, w.targetNS, "a")
		w.until("target is back", func() bool { u := w.targetOf("a"); return u != nil && u.GetUID() != uid })
	},
	"a lost target is reported where the policy says so": func(w *world) {
		defer w.run(Options{Lost: LostReport})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target recorded", func() bool {
			u := w.targetOf("a")
			return u != nil && strings.HasPrefix(w.get(w.source, w.sourceNS, "a").GetAnnotations()[TargetAnnotation], string(u.GetUID())+"/")
		})
		w.delete(w.target, w.targetNS, "a")
		w.until("loss reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonLost)) })
		w.settle()
		if w.targetOf("a") != nil {
			w.Error("target was created anew")
		}
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"annotations":{"`+TargetAnnotation+`":null}}}`)
		w.until("target is back", func() bool { return w.targetOf("a") != nil && w.message("a") == "" })
	},
	"what was copied from a claim has lost nothing": func(w *world) {
		defer w.run(Options{Lost: LostReport})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target recorded", func() bool {
			return w.targetOf("a") != nil && w.get(w.source, w.sourceNS, "a").GetAnnotations()[TargetAnnotation] != ""
		})
		manifest := w.get(w.source, w.sourceNS, "a")
		manifest.SetResourceVersion("")
		manifest.SetUID("")
		w.delete(w.source, w.sourceNS, "a")
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
		for _, name := range []string{"a", "b"} {
			manifest.SetName(name)
			w.create(w.source, w.sourceNS, manifest.DeepCopy())
		}
		w.until("both have targets", func() bool { return w.targetOf("a") != nil && w.targetOf("b") != nil })
		w.until("nothing is said of them", func() bool { return w.message("a") == "" && w.message("b") == "" })
	},
	"what users remove goes, be it that someone else made the target": func(w *world) {
		all := `{"size":"small","color":"red"}`
		w.create(w.target, w.targetNS, w.widget("adopted", all, `"labels":{"team":"red"}`))
		for _, name := range []string{"restored", "adopted", "bound", "bound-later"} {
			w.create(w.source, w.sourceNS, w.widget(name, all, `"labels":{"team":"red"}`))
		}
		stop := w.run(Options{Conflict: ConflictAdopt, Binding: "first"})
		w.until("targets exist", func() bool {
			return w.targetOf("restored") != nil && w.targetOf("bound") != nil && w.targetOf("bound-later") != nil
		})
		stop()
		w.merge(w.source, w.sourceNS, "bound-later", `{"spec":{"color":null},"metadata":{"labels":null}}`)
		manifest := w.targetOf("restored")
		w.delete(w.target, w.targetNS, "restored")
		manifest.SetUID("")
		manifest.SetResourceVersion("")
		manifest.SetManagedFields(nil)
		w.create(w.target, w.targetNS, manifest)
		defer w.run(Options{Conflict: ConflictAdopt, Binding: "second"})()
		for _, name := range []string{"restored", "adopted", "bound", "bound-later"} {
			w.until(name+" is ours", func() bool {
				u := w.targetOf(name)
				return fields.Of(u, names.Of(names.Klutch, "second").Incarnation(w.get(w.source, w.sourceNS, name).GetUID())) != nil
			})
			w.merge(w.source, w.sourceNS, name, `{"spec":{"color":null},"metadata":{"labels":null}}`)
			w.until("what the user removes of "+name+" goes", func() bool {
				u := w.targetOf(name)
				return field(u, "spec", "color") == nil && field(u, "spec", "size") == "small" && len(u.GetLabels()) == 0
			})
		}
	},
	"what is made from its manifest beside a Sync that runs is taken up as it is": func(w *world) {
		for name, opts := range map[string]Options{"reported": {Lost: LostReport}, "recreated": {Lost: LostRecreate}} {
			stop := w.run(opts)
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small","color":"red"}`, `"labels":{"team":"red"}`))
			w.until("target exists", func() bool { return w.targetOf(name) != nil })
			w.until("target recorded", func() bool {
				return opts.Lost == LostRecreate || w.get(w.source, w.sourceNS, name).GetAnnotations()[TargetAnnotation] != ""
			})
			restored := w.restore(name, opts.Lost)
			w.merge(w.target, w.targetNS, name, `{"status":{"phase":"Restored"}}`, "status")
			w.until("its status is back, and nothing is told", func() bool {
				return field(w.get(w.source, w.sourceNS, name), "status", "phase") == "Restored" && w.message(name) == ""
			})
			w.settle()
			if diff := cmp.Diff(restored.Object["spec"], w.targetOf(name).Object["spec"]); diff != "" {
				w.Errorf("spec (-restored +now):\n%s", diff)
			}
			w.merge(w.source, w.sourceNS, name, `{"spec":{"color":null},"metadata":{"labels":null}}`)
			w.until("what the user removes of "+name+" goes", func() bool {
				u := w.targetOf(name)
				return field(u, "spec", "color") == nil && field(u, "spec", "size") == "small" && len(u.GetLabels()) == 0
			})
			if w.targetOf(name).GetUID() != restored.GetUID() {
				w.Errorf("the target of %s was made anew", name)
			}
			w.delete(w.source, w.sourceNS, name)
			w.until("both are gone", func() bool { return w.targetOf(name) == nil && w.get(w.source, w.sourceNS, name) == nil })
			stop()
		}
	},
	"a source stays until its target is gone": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":["provider.example.org/busy"]}}`)
		w.delete(w.source, w.sourceNS, "a")
		w.until("target is being deleted", func() bool { u := w.targetOf("a"); return u != nil && u.GetDeletionTimestamp() != nil })
		w.until("the claim says what it waits for", func() bool {
			return strings.Contains(w.message("a"), "held by provider.example.org/busy")
		})
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":null}}`)
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	},
	"an orphan keeps what it has": func(w *world) {
		defer w.run(Options{Deletion: DeletionOrphan})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, `"labels":{"team":"red"}`))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.delete(w.source, w.sourceNS, "a")
		w.until("source is gone", func() bool { return w.get(w.source, w.sourceNS, "a") == nil })
		got := w.targetOf("a")
		if got == nil || got.GetDeletionTimestamp() != nil || field(got, "spec", "size") != "small" || got.GetLabels()["team"] != "red" {
			w.Errorf("orphan = %v", got)
		}
		if a := got.GetAnnotations(); a[SourceAnnotation] != "" || a[OrphanedAnnotation] == "" || len(got.GetManagedFields()) > 1 {
			w.Errorf("orphan has annotations %v and managed fields %v", a, got.GetManagedFields())
		}
	},
	"what is someone else's is never touched": func(w *world) {
		foreign := w.create(w.target, w.targetNS, w.widget("a", `{"size":"small"}`, ``))
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonConflict)) })
		w.settle()
		if diff := cmp.Diff(foreign, w.targetOf("a")); diff != "" {
			w.Errorf("foreign object changed:\n%s", diff)
		}
		if f := w.get(w.source, w.sourceNS, "a").GetFinalizers(); len(f) > 0 {
			w.Errorf("source has finalizers %v", f)
		}
		w.delete(w.target, w.targetNS, "a")
		w.until("target made once the name is free", func() bool { return w.targetOf("a") != nil && w.message("a") == "" })
	},
	"what a peer made is taken over with all that it applied": func(w *world) {
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, `"finalizers":["`+DefaultFinalizer+`"]`))
		peers := w.widget("a", `{"size":"small","color":"red"}`, `"labels":{"old":"1"},"annotations":{"`+BoundAnnotation+`":"true"}`)
		made, err := w.target.Resource(widgets).Namespace(w.targetNS).Create(w.Context(), peers, metav1.CreateOptions{FieldManager: "konnector"})
		if err != nil {
			w.Fatal(err)
		}
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"labels":{"theirs":"1"}}}`)
		defer w.run(Options{})()
		w.until("taken over", func() bool { return w.targetOf("a").GetAnnotations()[SourceAnnotation] != "" })
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":null,"size":"large"}}`)
		w.until("spec went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		got := w.targetOf("a")
		if diff := cmp.Diff(map[string]any{"size": "large"}, got.Object["spec"]); diff != "" || got.GetUID() != made.GetUID() {
			w.Errorf("spec (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"theirs": "1"}, got.GetLabels()); diff != "" {
			w.Errorf("labels (-want +got):\n%s", diff)
		}
		w.delete(w.source, w.sourceNS, "a")
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	},
	"what a peer writes on what is ours goes when the user takes it back": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		w.until("made", func() bool { return w.targetOf("a") != nil })
		right := map[string]any{"size": "small", "color": "red"}
		for _, spec := range []map[string]any{
			{"size": "small", "color": "blue"}, {"size": "large", "color": "red", "late": "peer"}, {"size": "small", "color": "red", "late": "peer"},
		} {
			w.settle()
			u := w.targetOf("a")
			u.Object["spec"] = spec
			if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Update(w.Context(), u, metav1.UpdateOptions{FieldManager: "konnector"}); err != nil {
				w.Fatal(err)
			}
			w.until("put right", func() bool { return cmp.Equal(w.targetOf("a").Object["spec"], right) })
		}
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":null}}`)
		w.until("taken back", func() bool { return cmp.Equal(w.targetOf("a").Object["spec"], map[string]any{"size": "small"}) })
	},
	"what a peer made goes with its source": func(w *world) {
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, `"finalizers":["`+DefaultFinalizer+`"]`))
		peers := w.widget("a", `{"size":"small"}`, `"annotations":{"`+BoundAnnotation+`":"true"}`)
		if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Create(w.Context(), peers, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
			w.Fatal(err)
		}
		w.delete(w.source, w.sourceNS, "a")
		defer w.run(Options{})()
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	},
	"what is someone else's is adopted where the policy says so": func(w *world) {
		foreign := w.create(w.target, w.targetNS, w.widget("a", `{"size":"large","late":"x"}`, ``))
		defer w.run(Options{Conflict: ConflictAdopt})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("adopted", func() bool { return field(w.targetOf("a"), "spec", "size") == "small" })
		if w.targetOf("a").GetUID() != foreign.GetUID() {
			w.Error("target was replaced")
		}
	},
	"what the target refuses is reported": func(w *world) {
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"huge"}`, ``))
		w.until("refusal reported", func() bool {
			return strings.HasPrefix(w.message("a"), string(ReasonRefused)) && strings.Contains(w.message("a"), `Unsupported value: "huge"`)
		})
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"small"}}`)
		w.until("target made", func() bool { return w.targetOf("a") != nil && w.message("a") == "" })
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"huge"}}`)
		w.until("refusal reported again", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonRefused)) })
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		w.delete(w.source, w.sourceNS, "a")
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	},
	"a restart writes nothing": func(w *world) {
		stop := w.run(Options{})
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","ports":[{"name":"x","port":1}],"args":["v"]}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.until("status came down", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
		stop()
		var mu gosync.Mutex
		var writes []Write
		defer w.run(Options{Hooks: Hooks{Wrote: func(_ context.Context, x Write) {
			mu.Lock()
			defer mu.Unlock()
			writes = append(writes, x)
		}}})()
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		w.until("another target exists", func() bool { return w.targetOf("b") != nil })
		w.settle()
		mu.Lock()
		defer mu.Unlock()
		var steps []string
		for _, x := range writes {
			steps = append(steps, x.Object.Name+" "+x.Step)
		}
		if diff := cmp.Diff([]string{"b add-finalizer", "b create"}, steps); diff != "" {
			w.Errorf("writes (-want +got):\n%s", diff)
		}
	},
	"a secret that a status names comes down, and no other": func(w *world) {
		defer w.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret.name"}}}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.secret(w.target, w.targetNS, "creds", "cGFzcw==")
		w.secret(w.target, w.targetNS, "other", "cGFzcw==")
		w.merge(w.target, w.targetNS, "a", `{"status":{"secret":{"name":"creds"}}}`, "status")
		w.until("secret came down", func() bool {
			return field(w.getSecret(w.source, w.sourceNS, "creds"), "data", "password") == "cGFzcw=="
		})
		got := w.getSecret(w.source, w.sourceNS, "creds")
		if a := got.GetAnnotations(); a[OwnerAnnotation] != "Provider" || a[ReferrerAnnotation] != "a" {
			w.Errorf("copy has annotations %v", a)
		}
		w.mergeSecret(w.target, w.targetNS, "creds", `{"data":{"password":"bmV3"}}`)
		w.until("change came down", func() bool { return field(w.getSecret(w.source, w.sourceNS, "creds"), "data", "password") == "bmV3" })
		w.mergeSecret(w.source, w.sourceNS, "creds", `{"data":{"password":"b29wcw==","x":null}}`)
		w.until("copy put right", func() bool { return field(w.getSecret(w.source, w.sourceNS, "creds"), "data", "password") == "bmV3" })
		w.deleteSecret(w.source, w.sourceNS, "creds")
		w.until("copy made anew", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil })
		if w.getSecret(w.source, w.sourceNS, "other") != nil {
			w.Error("a secret that no object refers to came down")
		}
		w.merge(w.target, w.targetNS, "a", `{"status":{"secret":null}}`, "status")
		w.until("copy went with the reference", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") == nil })
		w.merge(w.target, w.targetNS, "a", `{"status":{"secret":{"name":"creds"}}}`, "status")
		w.until("secret came down again", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil })
		w.deleteSecret(w.target, w.targetNS, "creds")
		w.until("copy went with the original", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") == nil })
	},
	"a secret that is not ours stays as it is": func(w *world) {
		mine := w.secret(w.source, w.sourceNS, "mine", "bWluZQ==")
		defer w.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, References: []string{"status.secret.name"}}}})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.secret(w.target, w.targetNS, "mine", "dGhlaXJz")
		w.merge(w.target, w.targetNS, "a", `{"status":{"secret":{"name":"mine"}}}`, "status")
		w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonRelated)) })
		w.settle()
		if diff := cmp.Diff(mine, w.getSecret(w.source, w.sourceNS, "mine")); diff != "" {
			w.Errorf("secret changed:\n%s", diff)
		}
		w.deleteSecret(w.source, w.sourceNS, "mine")
		w.until("secret came down once the name is free", func() bool {
			return w.getSecret(w.source, w.sourceNS, "mine") != nil && w.message("a") == ""
		})
		w.delete(w.target, w.targetNS, "a") // the source decides, not the one who deletes
		w.delete(w.source, w.sourceNS, "a")
		w.until("all are gone", func() bool {
			return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil && w.getSecret(w.source, w.sourceNS, "mine") == nil
		})
	},
	"a secret goes up by name": func(w *world) {
		defer w.run(Options{Related: []Related{{Resource: secrets, From: SourceSide, Names: []string{"cfg"}}}})()
		w.resident(w.sourceNS)
		w.secret(w.source, w.sourceNS, "cfg", "cGFzcw==")
		w.secret(w.source, w.sourceNS, "private", "cGFzcw==")
		w.until("secret went up", func() bool { return w.getSecret(w.target, w.targetNS, "cfg") != nil })
		w.settle()
		if w.getSecret(w.target, w.targetNS, "private") != nil {
			w.Error("an unselected secret went up")
		}
		if got := w.getSecret(w.target, w.targetNS, "cfg").GetAnnotations()[OwnerAnnotation]; got != "Consumer" {
			w.Errorf("owner = %s", got)
		}
	},
	"P20 Secrets by which clusters and tools work stay where they are": func(w *world) {
		defer w.run(Options{Related: []Related{
			{Resource: secrets, From: TargetSide, References: []string{"status.secret.name"}},
			{Resource: secrets, From: TargetSide, Names: []string{"*"}},
			{Resource: secrets, From: SourceSide, Names: []string{"up", "up-good"}},
		}})()
		typed := func(name, kind string) *unstructured.Unstructured {
			return object(w.TB, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+name+`"},"type":"`+kind+`","data":{"password":"YQ==","username":"YQ=="}}`)
		}
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		w.merge(w.target, w.targetNS, "a", `{"status":{"secret":{"name":"creds"}}}`, "status")
		w.createSecret(w.target, w.targetNS, typed("creds", "Opaque"))
		w.until("secret came down", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil })
		w.deleteSecret(w.target, w.targetNS, "creds")
		w.createSecret(w.target, w.targetNS, typed("creds", "helm.sh/release.v1"))
		w.until("copy went with the type", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") == nil })
		w.until("the claim is told", func() bool {
			return strings.Contains(w.message("a"), "is of type helm.sh/release.v1, which does not travel")
		})
		w.createSecret(w.target, w.targetNS, typed("boot", "bootstrap.kubernetes.io/token"))
		w.createSecret(w.target, w.targetNS, typed("own", "example.org/own"))
		w.createSecret(w.source, w.sourceNS, typed("up", "helm.sh/release.v1"))
		good := []string{"kubernetes.io/basic-auth", "connection.crossplane.io/v1alpha1", "Opaque"}
		for i, kind := range good {
			w.createSecret(w.target, w.targetNS, typed(fmt.Sprint("good", i), kind))
		}
		w.createSecret(w.source, w.sourceNS, typed("up-good", "Opaque"))
		for i, kind := range good {
			w.until(kind+" came down", func() bool { return w.getSecret(w.source, w.sourceNS, fmt.Sprint("good", i)) != nil })
		}
		w.until("what is harmless went up", func() bool { return w.getSecret(w.target, w.targetNS, "up-good") != nil })
		w.settle()
		for _, name := range []string{"creds", "boot", "own"} {
			if w.getSecret(w.source, w.sourceNS, name) != nil {
				w.Errorf("%s came down", name)
			}
		}
		if w.getSecret(w.target, w.targetNS, "up") != nil {
			w.Error("a release of Helm went up")
		}
		w.deleteSecret(w.target, w.targetNS, "creds")
		w.createSecret(w.target, w.targetNS, typed("creds", "Opaque"))
		w.until("secret came down, and nothing is told", func() bool { return w.getSecret(w.source, w.sourceNS, "creds") != nil && w.message("a") == "" })
	},
	"P20 labels and annotations of a copy are those that were named": func(w *world) {
		meta := `"labels":{"tier":"db","sidecar.istio.io/inject":"true","argocd.argoproj.io/secret-type":"cluster"},` +
			`"annotations":{"example.org/note":"n","example.org/other":"o","reloader.stakater.com/match":"true","cert-manager.io/allow-direct-injection":"true"}`
		w.createSecret(w.target, w.targetNS, object(w.TB, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"creds",`+meta+`},"type":"Opaque","data":{"password":"YQ=="}}`))
		w.resident(w.sourceNS)
		metaOf := func() (labels, annotations []string) {
			u := w.getSecret(w.source, w.sourceNS, "creds")
			if u == nil {
				return nil, nil
			}
			return slices.Sorted(maps.Keys(u.GetLabels())), slices.Sorted(maps.Keys(u.GetAnnotations()))
		}
		for _, c := range []struct {
			labels, annotations, wantLabels, wantAnnotations []string
		}{
			{[]string{"tier", "argocd.argoproj.io/*"}, []string{"example.org/*"}, []string{"tier"}, []string{"example.org/note", "example.org/other"}},
			{nil, nil, nil, nil},
		} {
			stop := w.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, Names: []string{"creds"}, KeepLabels: c.labels, KeepAnnotations: c.annotations}}})
			labels := slices.Sorted(slices.Values(append(c.wantLabels, BoundAnnotation)))
			annotations := slices.Sorted(slices.Values(append(c.wantAnnotations, BoundAnnotation, OwnerAnnotation, SourceAnnotation)))
			w.until("the copy has what was named", func() bool {
				l, a := metaOf()
				return slices.Equal(l, labels) && slices.Equal(a, annotations)
			})
			stop()
		}
	},
	"an immutable copy is replaced": func(w *world) {
		defer w.run(Options{Related: []Related{{Resource: secrets, From: TargetSide, Names: []string{"fix"}}}})()
		w.resident(w.sourceNS)
		u := object(w.TB, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"fix"},"immutable":true,"data":{"password":"YQ=="},"type":"Opaque"}`)
		w.createSecret(w.target, w.targetNS, u)
		w.until("secret came down", func() bool { return w.getSecret(w.source, w.sourceNS, "fix") != nil })
		w.deleteSecret(w.target, w.targetNS, "fix")
		u.Object["data"] = map[string]any{"password": "Yg=="}
		w.createSecret(w.target, w.targetNS, u)
		w.until("copy replaced", func() bool { return field(w.getSecret(w.source, w.sourceNS, "fix"), "data", "password") == "Yg==" })
	},
}

// restore makes a target from its manifest, once its loss is reported or before it is made anew: if it
// was, the pause of the next loss is twice as long.
func (w *world) restore(name string, lost LostPolicy) (restored *unstructured.Unstructured) {
	w.Helper()
	manifest := w.targetOf(name)
	manifest.SetUID("")
	manifest.SetResourceVersion("")
	manifest.SetManagedFields(nil)
	w.until("restored", func() (ok bool) {
		w.delete(w.target, w.targetNS, name)
		w.until("loss reported", func() bool { return lost == LostRecreate || strings.HasPrefix(w.message(name), string(ReasonLost)) })
		var err error
		if restored, err = w.target.Resource(widgets).Namespace(w.targetNS).Create(w.Context(), manifest, metav1.CreateOptions{FieldManager: "restorer"}); err != nil && !apierrors.IsAlreadyExists(err) {
			w.Fatal(err)
		}
		return err == nil
	})
	return restored
}

func (w *world) secret(d dynamic.Interface, ns, name, password string) *unstructured.Unstructured {
	w.Helper()
	return w.createSecret(d, ns, object(w.TB, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"`+name+`"},"type":"Opaque","data":{"password":"`+password+`","x":"eA=="}}`))
}

func (w *world) createSecret(d dynamic.Interface, ns string, u *unstructured.Unstructured) *unstructured.Unstructured {
	w.Helper()
	out, err := d.Resource(secrets).Namespace(ns).Create(w.Context(), u, metav1.CreateOptions{FieldManager: "user"})
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) getSecret(d dynamic.Interface, ns, name string) *unstructured.Unstructured {
	w.Helper()
	u, err := d.Resource(secrets).Namespace(ns).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return u
}

func (w *world) mergeSecret(d dynamic.Interface, ns, name, patch string) {
	w.Helper()
	if _, err := d.Resource(secrets).Namespace(ns).Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "someone"}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) deleteSecret(d dynamic.Interface, ns, name string) {
	w.Helper()
	if err := d.Resource(secrets).Namespace(ns).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

func TestScenarios(t *testing.T) {
	for name := range maps.Keys(scenarios) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { scenarios[name](newFake(t)) })
		})
	}
}
