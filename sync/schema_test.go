// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// ReadSchemas makes schemas be read through raw.
func (c *Cluster) ReadSchemas(raw rest.Interface) { c.raw = raw }

// An API server goes on for a moment to serve lists and watches under the former schema of a
// CRD, without the new fields of objects that have them, and lets a watch go on from there
// under the new one: no event says that there are more fields. A Sync lists anew when it
// reads another schema than before. So it has to read one before it lists for the first time.
func TestSchemaIsReadFirst(t *testing.T) {
	for _, side := range []string{"source", "target"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				end, c := w.from, w.fakeSource
				if side == "target" {
					end, c = w.to, w.fakeTarget
				}
				end.ReadSchemas(c.View(nil).Schemas())
				answer := make(chan struct{})
				var listed atomic.Bool
				c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource.Resource == "openapi" {
						<-answer
					}
					if r.Resource == widgets {
						listed.Store(true)
					}
					return do()
				})
				s, err := New(w.from, w.to, widgets, Options{Mapper: Prefix("svc-")})
				if err != nil {
					t.Fatal(err)
				}
				go s.Run(t.Context()) //nolint:errcheck // it ends with the test
				synctest.Wait()
				if listed.Load() || s.Status().Synced {
					t.Errorf("listed: %v, synced: %v, before the schema was read", listed.Load(), s.Status().Synced)
				}
				close(answer)
				w.until("both sides are listed", func() bool { return listed.Load() && s.Status().Synced })
			})
		})
	}
}

// What is written while an API server changes over to a schema that its document has had for a while is
// shown without the new fields by the watches that are there, and not again by the next ones.
func TestSchemaIsServedLate(t *testing.T) {
	all := fakecluster.Schema{"spec": {"size", "late"}, "status": {"phase", "note"}}
	for side, former := range map[string]fakecluster.Schema{
		"source": {"spec": {"size"}, "status": {"phase", "note"}},
		"target": {"spec": {"size", "late"}, "status": {"phase"}},
	} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.serves(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: all})
				changing := map[string]*fakecluster.Cluster{"source": w.fakeSource, "target": w.fakeTarget}[side]
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				changing.Reshape(widgets, former, 0) // after which the document is read four times
				time.Sleep(time.Second)
				changing.Reshape(widgets, all, -10*time.Second)
				for range 100 { // what is written before the schema is served lacks the field
					if side == "source" {
						w.merge(w.source, w.sourceNS, "a", `{"spec":{"late":"x"}}`)
					} else {
						w.merge(w.target, w.targetNS, "a", `{"status":{"note":"x"}}`, "status")
					}
					time.Sleep(200 * time.Millisecond)
				}
				w.until("the field has travelled", func() bool {
					return field(w.targetOf("a"), "spec", "late") == "x" || field(w.get(w.source, w.sourceNS, "a"), "status", "note") == "x"
				})
			})
		})
	}
}

// A kind that loses its status subresource goes on to have statuses, although no watch ends, as soon
// as its document says so. Until then it is told, and asked ever more rarely. The same once it gets
// the subresource back.
func TestStatusSubresourceGoes(t *testing.T) {
	for name, late := range map[string]time.Duration{"with its document": 0, "before its document": 3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeSource.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: fakecluster.Schema{"spec": {"size"}, "status": {"phase"}}})
				w.from.ReadSchemas(w.fakeSource.View(nil).Schemas())
				var asked atomic.Int64
				w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == widgets && r.Verb != "list" && r.Verb != "watch" {
						asked.Add(1)
					}
					return do()
				})
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				became := func(phase string) bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == phase }
				for i, plain := range []bool{false, true, false} {
					if i > 0 {
						w.fakeSource.Simplify(widgets, plain, late)
					}
					phase, before := fmt.Sprint("Phase", i), asked.Load()
					w.merge(w.target, w.targetNS, "a", fmt.Sprintf(`{"status":{"phase":%q}}`, phase), "status")
					time.Sleep(time.Minute)
					n := asked.Load() - before
					if told := strings.HasPrefix(w.message("a"), string(ReasonStatus)); i > 0 && (n > 25 || told == became(phase)) {
						t.Errorf("after a minute, and %d requests, %s came down: %v, and the message is %q", n, phase, became(phase), w.message("a"))
					}
					before = asked.Load()
					time.Sleep(max(time.Hour, late))
					if n = asked.Load() - before; n > 100 {
						t.Errorf("%d requests while %s waits for the document", n, phase)
					}
					w.until("the status came down", func() bool { return became(phase) && w.message("a") == "" })
				}
			})
		})
	}
}

// Where a kind has no status subresource, a status that changes nothing beside fields of others, or
// defaults, is no status that was refused, and a start says nothing.
func TestPlainStatusBesideOthers(t *testing.T) {
	defaulted := func(u *unstructured.Unstructured) {
		if _, has := u.Object["status"]; has {
			_ = unstructured.SetNestedField(u.Object, "default", "status", "note")
		}
	}
	for name, mutate := range map[string]func(*unstructured.Unstructured){"another writer": nil, "a default": defaulted} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeSource.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Plain: true, Mutate: mutate, Schema: fakecluster.Schema{"spec": {"size"}, "status": {"phase", "note"}}})
				w.from.ReadSchemas(w.fakeSource.View(nil).Schemas())
				stop := w.run(Options{})
				defer func() { stop() }()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				w.merge(w.source, w.sourceNS, "a", `{"status":{"note":"theirs"}}`)
				w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
				for range 2 {
					time.Sleep(time.Hour)
					u := w.get(w.source, w.sourceNS, "a")
					if field(u, "status", "phase") != "Ready" || field(u, "status", "note") == nil || w.message("a") != "" {
						t.Errorf("status %v, message %q", u.Object["status"], w.message("a"))
					}
					stop()
					stop = w.run(Options{})
				}
			})
		})
	}
}

// I8: a restart writes nothing where API servers take a map as a whole, as they do a reference to a
// Secret: managed fields look then as if nothing of it were ours.
func TestAtomicMapOverARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		types, err := fakecluster.Types(`
    - name: spec
      type:
        map:
          fields:
          - name: ref
            type: {namedType: __untyped_atomic_}
          elementType: {namedType: __untyped_deduced_}
`)
		if err != nil {
			t.Fatal(err)
		}
		w := newFake(t)
		w.serves(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Types: types, Atomic: []string{"ref"}, Schema: fakecluster.Schema{"spec": {"size", "ref"}}})
		stop := w.run(Options{})
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","ref":{"name":"creds","key":"password"}}`, ``))
		w.until("target exists", func() bool { return field(w.targetOf("a"), "spec", "ref", "key") == "password" })
		time.Sleep(time.Minute)
		stop()
		for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
			c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Resource == widgets && r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" {
					t.Errorf("a restart sends: %s %s", r.Verb, r.Object)
				}
				return do()
			})
		}
		defer w.run(Options{})()
		time.Sleep(time.Hour)
	})
}

// A user's own field that is called like one of Crossplane's travels; of a kind that Crossplane serves
// it stays where it is.
func TestFieldsNamedLikeCrossplanes(t *testing.T) {
	for name, fields := range map[string][]string{"own": {"size", "resourceRef"}, "Crossplane's": {"size", "resourceRef", "compositionRef"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.serves(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: fakecluster.Schema{"spec": fields}})
				defer w.run(Options{})()
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","resourceRef":{"name":"b"}}`, ``))
				w.until("target exists", func() bool { return w.targetOf("a") != nil })
				time.Sleep(time.Minute)
				if got := field(w.targetOf("a"), "spec", "resourceRef", "name"); (got == "b") != (name == "own") || w.message("a") != "" {
					t.Errorf("the target has the reference to %v, message %q", got, w.message("a"))
				}
			})
		})
	}
}

// serves has both clusters serve another shape of widgets, with documents.
func (w *world) serves(r fakecluster.Resource) {
	for c, end := range map[*fakecluster.Cluster]*Cluster{w.fakeSource: w.from, w.fakeTarget: w.to} {
		c.Withdraw(widgets)
		c.Serve(r)
		end.ReadSchemas(c.View(nil).Schemas())
	}
}
