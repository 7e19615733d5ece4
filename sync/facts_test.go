// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/writer"
)

// A ledge is an API server, real or not, and one object.
type ledge struct {
	testing.TB
	client  dynamic.ResourceInterface
	cluster *Cluster
	name    string
}

func (l ledge) deleter() *writer.Writer {
	return &writer.Writer{Resource: widgets, Targets: l.cluster.writes.Resource(widgets), Raw: l.cluster.raw}
}

// apply applies metadata and a spec, and returns what has become of the object.
func (l ledge) apply(manager, meta, spec string) *unstructured.Unstructured {
	l.Helper()
	return l.must(l.tryApply(manager, meta, spec))
}

func (l ledge) tryApply(manager, meta, spec string) (*unstructured.Unstructured, error) {
	u := object(l, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{`+meta+`},"spec":`+spec+`}`)
	u.SetName(l.name)
	return l.client.Apply(l.Context(), l.name, u, metav1.ApplyOptions{FieldManager: manager})
}

func (l ledge) merge(patch string, sub ...string) (*unstructured.Unstructured, error) {
	return l.client.Patch(l.Context(), l.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "other"}, sub...)
}

func (l ledge) must(u *unstructured.Unstructured, err error) *unstructured.Unstructured {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
	return u
}

func (l ledge) delete(uid, version string) error {
	p := &metav1.Preconditions{}
	if uid != "" {
		p.UID = (*types.UID)(&uid)
	}
	if version != "" {
		p.ResourceVersion = &version
	}
	return l.client.Delete(l.Context(), l.name, metav1.DeleteOptions{Preconditions: p})
}

// facts are what the engine and the simulator rely on: each is the same on a real
// API server and on that of package fakecluster. It returns what is to be compared.
var facts = map[string]func(l ledge) any{
	"labels of others stay when the last applied one goes": func(l ledge) any {
		l.apply("one", `"labels":{"mine":"1"}`, `{}`)
		l.must(l.merge(`{"metadata":{"labels":{"theirs":"1"}}}`))
		return l.apply("one", ``, `{}`).GetLabels()
	},
	"the last label that goes leaves nothing": func(l ledge) any {
		l.apply("one", `"labels":{"mine":"1"},"annotations":{"mine":"1"}`, `{}`)
		u := l.apply("one", ``, `{}`)
		return []any{len(u.GetLabels()), len(u.GetAnnotations())}
	},
	"a label is added to those of others": func(l ledge) any {
		l.apply("one", ``, `{}`)
		l.must(l.merge(`{"metadata":{"labels":{"theirs":"1"}}}`))
		return l.apply("one", `"labels":{"mine":"1"}`, `{}`).GetLabels()
	},
	"a spec of which the last part goes would be null": func(l ledge) any {
		l.apply("one", ``, `{"size":"small"}`)
		_, err := l.tryApply("one", ``, `{}`)
		return apierrors.IsInvalid(err)
	},
	"a foreign edit takes the field from the one who applied it": func(l ledge) any {
		l.apply("one", ``, `{"size":"small","color":"red"}`)
		spec, _ := fields.Of(l.must(l.merge(`{"spec":{"size":"large","late":"x"}}`)), "one")["f:spec"].(map[string]any)
		delete(spec, ".") // that there is a spec
		return spec
	},
	"an apply leaves what another one owns too, and a patch takes it away from both": func(l ledge) any {
		l.apply("one", `"labels":{"mine":"1","a":"1"}`, `{"size":"small","color":"red"}`)
		l.must(l.merge(`{"metadata":{"labels":{"theirs":"1"}}}`))
		l.apply("two", `"labels":{"a":"1"}`, `{"color":"red"}`)
		u := l.apply("one", `"labels":{"mine":"1"}`, `{"size":"small"}`)
		left := []any{u.GetLabels(), u.Object["spec"]}
		taken := fields.Set{"f:metadata": map[string]any{"f:labels": map[string]any{"f:a": map[string]any{}}}, "f:spec": map[string]any{"f:color": map[string]any{}}}
		w := &writer.Writer{Names: names.Of("example.org", "one")}
		u = l.must(w.TakeAway(l.Context(), l.client, u, []string{"/metadata/labels/a", "/spec/color"}))
		for e := range fields.Entries(u) {
			if taken.Overlaps(e.Fields) {
				left = append(left, e.Manager)
			}
		}
		return append(left, u.GetLabels(), u.Object["spec"])
	},
	"generations count changes of the spec, and the deletion": func(l ledge) any {
		n := []any{l.apply("one", `"finalizers":["example.org/a"]`, `{"size":"small"}`).GetGeneration()}
		n = append(n, l.must(l.merge(`{"status":{"phase":"x"}}`, "status")).GetGeneration())
		n = append(n, l.must(l.merge(`{"metadata":{"labels":{"a":"1"}}}`)).GetGeneration())
		n = append(n, l.must(l.merge(`{"spec":{"size":"large"}}`)).GetGeneration())
		if err := l.delete("", ""); err != nil {
			l.Fatal(err)
		}
		u := l.must(l.client.Get(l.Context(), l.name, metav1.GetOptions{}))
		n = append(n, u.GetGeneration(), u.GetDeletionTimestamp() != nil)
		_, err := l.merge(`{"metadata":{"finalizers":null}}`)
		_, gone := l.client.Get(l.Context(), l.name, metav1.GetOptions{})
		return append(n, err == nil, apierrors.IsNotFound(gone))
	},
	"no finalizer is added to what is being deleted": func(l ledge) any {
		l.apply("one", `"finalizers":["example.org/a"]`, `{}`)
		if err := l.delete("", ""); err != nil {
			l.Fatal(err)
		}
		_, err := l.merge(`{"metadata":{"finalizers":["example.org/a","example.org/b"]}}`)
		return []any{apierrors.IsInvalid(err), l.must(l.merge(`{"metadata":{"finalizers":null}}`)) != nil}
	},
	"preconditions of a deletion": func(l ledge) any {
		u := l.apply("one", ``, `{}`)
		uid, version := string(u.GetUID()), u.GetResourceVersion()
		return []any{
			apierrors.IsConflict(l.delete("11111111-1111-1111-1111-111111111111", "")), apierrors.IsConflict(l.delete(uid, "1")),
			l.delete(uid, version), apierrors.IsNotFound(l.delete(uid, version)),
		}
	},
	"what a deletion is answered with": func(l ledge) any {
		remove := func() writer.Outcome {
			o, err := l.deleter().Remove(l.Context(), cache.NewObjectName("default", l.name), metav1.DeleteOptions{})
			if err != nil {
				l.Fatal(err)
			}
			return o
		}
		u := l.apply("one", `"finalizers":["example.org/a"]`, `{}`)
		marked, again := remove(), remove()
		held := l.must(l.client.Get(l.Context(), l.name, metav1.GetOptions{}))
		l.must(l.merge(`{"metadata":{"finalizers":null}}`))
		next := l.apply("one", ``, `{}`)
		ended := remove()
		_, err := l.deleter().Remove(l.Context(), cache.NewObjectName("default", l.name), metav1.DeleteOptions{})
		return []any{
			cmp.Equal(marked.Left, held), cmp.Equal(again.Left, held), held.GetUID() == u.GetUID(), marked.Gone == "",
			ended.Left == nil, ended.Gone == next.GetUID(), absent(err),
		}
	},
	"status and the rest are apart": func(l ledge) any {
		l.apply("one", ``, `{"size":"small"}`)
		u := l.must(l.merge(`{"spec":{"size":"large"},"metadata":{"labels":{"a":"1"}},"status":{"phase":"x"}}`, "status"))
		after := l.must(l.merge(`{"spec":{"color":"red"},"status":{"phase":"y"}}`))
		return []any{u.Object["spec"], len(u.GetLabels()), after.Object["spec"], after.Object["status"]}
	},
	"a watch from a version that is too old, or yet to come": func(l ledge) any {
		u := l.apply("one", ``, `{}`)
		n, err := strconv.ParseInt(u.GetResourceVersion(), 10, 64)
		if err != nil {
			l.Fatal(err)
		}
		return []any{l.begins("1"), l.begins(strconv.FormatInt(n-1, 10)), l.begins(strconv.FormatInt(n+1_000_000, 10))}
	},
	"what a watch shows of the end of an object": func(l ledge) any {
		const finalizers = `"finalizers":["example.org/a"]`
		remove := func() {
			if err := l.delete("", ""); err != nil {
				l.Fatal(err)
			}
		}
		free := func(patch string) { l.must(l.merge(`{"metadata":{"finalizers":` + patch + `}}`)) }
		return []any{
			l.end(finalizers, func() { remove(); l.apply("one", ``, `{}`) }), // by its owner
			l.end(finalizers, func() { remove(); free(`null`) }),             // by hand
			l.end(finalizers+`,"labels":{"a":"1"}`, func() { remove(); l.must(l.merge(`{"metadata":{"finalizers":null,"labels":{"a":"2"}}}`)) }),
			l.end(`"finalizers":["example.org/a","example.org/b"]`, func() { remove(); free(`["example.org/b"]`); free(`[]`) }),
			l.end(finalizers, func() { free(`null`); remove() }),
			l.end(``, remove),
		}
	},
	"a status for another version, another object, or none": func(l ledge) any {
		give := func(meta string) error {
			u := object(l, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{`+meta+`},"status":{"phase":"x"}}`)
			u.SetName(l.name)
			_, err := l.client.ApplyStatus(l.Context(), l.name, u, metav1.ApplyOptions{FieldManager: "one", Force: true})
			return err
		}
		none := give(``)
		u := l.apply("one", ``, `{}`)
		return []any{
			apierrors.IsNotFound(none), apierrors.IsConflict(give(`"resourceVersion":"1"`)),
			give(`"uid":"11111111-1111-1111-1111-111111111111"`), give(`"uid":"` + string(u.GetUID()) + `"`),
		}
	},
}

// end is what a watch shows last of an object that is applied with metadata, and then ended: its
// finalizers and labels, whether it was being deleted, and whether it has a version of its own.
func (l ledge) end(meta string, ends func()) []any {
	l.Helper()
	begun := l.apply("one", meta, `{}`)
	w, err := l.client.Watch(l.Context(), metav1.ListOptions{ResourceVersion: begun.GetResourceVersion()})
	if err != nil {
		l.Fatal(err)
	}
	defer w.Stop()
	ends()
	before := begun.GetResourceVersion()
	for {
		select {
		case e := <-w.ResultChan():
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok {
				l.Fatalf("the watch shows %v", e)
			}
			if e.Type == watch.Deleted {
				return []any{u.GetFinalizers(), u.GetLabels(), u.GetDeletionTimestamp() != nil, u.GetResourceVersion() != before}
			}
			before = u.GetResourceVersion()
		case <-time.After(5 * time.Second):
			l.Fatal("the watch does not show the end")
		}
	}
}

// begins is what a watch from a version begins with: an event, or that the version
// is too old. An API server that has just taken up another schema asks to be asked again.
func (l ledge) begins(version string) string {
	l.Helper()
	var w watch.Interface
	var err error
	until(l, func() bool {
		w, err = l.client.Watch(l.Context(), metav1.ListOptions{ResourceVersion: version})
		return !apierrors.IsTooManyRequests(err)
	})
	if err != nil {
		return begun(err)
	}
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if e.Type == watch.Error {
			return begun(apierrors.FromObject(e.Object))
		}
		return string(e.Type)
	case <-time.After(5 * time.Second):
		return "nothing"
	}
}

func begun(err error) string {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return "410"
	}
	return err.Error()
}

// The simulator's API server answers as a real one does.
func TestFakeIsFaithful(t *testing.T) {
	t.Parallel()
	config := cluster.Reused(t, "faithful").Config()
	server := admin(t, config)
	install(t, server)
	genuine, err := NewCluster(config)
	if err != nil {
		t.Fatal(err)
	}
	served := fakecluster.New() // before there are widgets, as the real one
	served.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Check: func(u *unstructured.Unstructured) error {
		if field(u, "spec", "size") == "huge" {
			return errors.New("unsupported value")
		}
		return nil
	}})
	fake, err := NewClusterForClients(served.Client(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, fact := range facts {
		n++
		t.Run(name, func(t *testing.T) {
			object := "fact-" + string(rune('a'+n))
			on := func(c *Cluster) any {
				return fact(ledge{t, c.writes.Resource(widgets).Namespace("default"), c, object})
			}
			want := on(genuine)
			if diff := cmp.Diff(want, on(fake)); diff != "" {
				t.Errorf("a real API server and the fake differ (-real +fake):\n%s", diff)
			}
			t.Logf("%v", want)
		})
	}
	t.Run("a field that goes and returns", func(t *testing.T) {
		v := &evolution{world: &world{TB: t}}
		want := schemaFacts(ledge{TB: t, client: genuine.writes.Resource(widgets).Namespace("default"), cluster: genuine}, func(f ...string) { v.shape(server, v1.with(spec(f...))) })
		known := func(f ...string) fakecluster.Schema {
			return fakecluster.Schema{"spec": append(f, "size"), "status": {"phase"}}
		}
		served := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: known("color")})
		fake.ReadSchemas(served.View(nil).Schemas())
		got := schemaFacts(ledge{TB: t, client: served.Client().Resource(widgets).Namespace("default"), cluster: fake}, func(f ...string) { served.Reshape(widgets, known(f...), 0) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("a real API server and the fake differ (-real +fake):\n%s", diff)
		}
		t.Logf("%v", want)
	})
}
