// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// everywhere selects all Secrets of both sides, as bluntly as a claim can.
var everywhere = []Related{
	{Resource: secrets, From: SourceSide, Names: []string{"*"}},
	{Resource: secrets, From: TargetSide, Names: []string{"*"}},
}

// open makes a namespace known to the mapper, with a Secret on each side.
func (b *bench) open(namespaces ...string) {
	b.Helper()
	for _, name := range namespaces {
		b.namespace(b.source, name)
		b.namespace(b.target, "svc-"+name)
		b.table.Set(name, "svc-"+name)
		b.secret(b.source, name, "up", "dXA=")
		b.secret(b.target, "svc-"+name, "down", "ZG93bg==")
	}
	b.settle()
}

// travelled are the copies in a namespace of the source's side and its service
// namespace.
func (b *bench) travelled(namespace string) (got string) {
	b.Helper()
	if b.getSecret(b.target, "svc-"+namespace, "up") != nil {
		got = "up"
	}
	if b.getSecret(b.source, namespace, "down") != nil {
		got += " down"
	}
	return strings.TrimSpace(got)
}

// P30: a namespace that the mapper knows is open to related objects while it has a
// source of this Sync, and no longer.
func TestP30RelatedWhereSourcesAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open("team", "payroll")
		defer b.sync(widgets, everywhere...)()
		b.settle()
		both := func(when, team, payroll string) {
			t.Helper()
			b.settle()
			if diff := cmp.Diff([]string{team, payroll}, []string{b.travelled("team"), b.travelled("payroll")}); diff != "" {
				t.Errorf("copies in team and payroll %s (-want +got):\n%s", when, diff)
			}
		}
		both("without a source", "", "")
		gadget := object(t, `{"apiVersion":"example.org/v1","kind":"Gadget","metadata":{"name":"a"},"spec":{}}`)
		if _, err := b.source.Resource(gadgets).Namespace("payroll").Create(t.Context(), gadget, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		both("with an object of another API", "", "")
		for _, name := range []string{"a", "b"} {
			b.create(b.source, "team", b.widget(name, `{}`, ``))
		}
		both("with sources in team", "up down", "")
		b.resident("payroll")
		both("with sources in both", "up down", "up down")
		b.delete(b.source, "team", "a")
		both("after the first of two has gone", "up down", "up down")
		b.merge(b.target, "svc-team", "b", `{"metadata":{"finalizers":["provider.example.org/busy"]}}`)
		b.delete(b.source, "team", "b")
		time.Sleep(time.Hour)
		both("while the last one is being deleted", "up down", "up down")
		b.merge(b.target, "svc-team", "b", `{"metadata":{"finalizers":null}}`)
		time.Sleep(time.Minute)
		both("after the last one has gone", "", "up down")
		b.mergeSecret(b.target, "svc-team", "down", `{"data":{"password":"bmV3"}}`)
		b.mergeSecret(b.source, "team", "up", `{"data":{"password":"bmV3"}}`)
		both("after the originals have changed", "", "up down")
		b.resident("team")
		both("after a source has come back", "up down", "up down")
		if got := field(b.copied("down"), "data", "password"); got != "bmV3" {
			t.Errorf("password = %v", got)
		}
	})
}

// P30: where the mapper renames no namespaces it is the same.
func TestP30RelatedWhereSourcesAreWithAnyMapper(t *testing.T) {
	for name, m := range map[string]Mapper{"identity": Identity(), "a mapper of the program's own": suffixed{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				target, _ := m.Target(cache.NewObjectName(w.sourceNS, "a"))
				w.namespace(w.target, target.Namespace)
				defer w.run(Options{Mapper: m, Related: everywhere})()
				w.secret(w.source, w.sourceNS, "up", "dXA=")
				w.secret(w.target, target.Namespace, "down", "ZG93bg==")
				copies := func() bool {
					w.settle()
					up, _ := m.Target(cache.NewObjectName(w.sourceNS, "up"))
					down, _ := m.Source(cache.NewObjectName(target.Namespace, "down"))
					upThere, downThere := w.getSecret(w.target, up.Namespace, up.Name) != nil, w.getSecret(w.source, down.Namespace, down.Name) != nil
					if upThere != downThere {
						t.Errorf("copy on the target: %t, on the source: %t", upThere, downThere)
					}
					return upThere
				}
				before := copies()
				w.resident(w.sourceNS)
				during := copies()
				w.delete(w.source, w.sourceNS, "resident")
				time.Sleep(time.Minute)
				if after := copies(); before || !during || after {
					t.Errorf("copies before, with and after a source: %t, %t, %t", before, during, after)
				}
			})
		})
	}
}

type suffixed struct{}

func (suffixed) Target(source cache.ObjectName) (cache.ObjectName, bool) {
	return cache.NewObjectName("x-"+source.Namespace, source.Name), true
}

func (suffixed) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	namespace, ok := strings.CutPrefix(target.Namespace, "x-")
	return cache.NewObjectName(namespace, target.Name), ok
}

// P30: what a cache says is not enough to take a copy away.
func TestP30LastSourceIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open("team")
		var blind atomic.Bool
		b.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if blind.Load() && r.Resource == widgets && r.Verb == "list" {
				return forbidden(r)
			}
			return do()
		})
		defer b.sync(widgets, everywhere...)()
		b.resident("team")
		b.settle()
		blind.Store(true)
		b.delete(b.source, "team", "resident")
		time.Sleep(time.Minute)
		if got := b.travelled("team"); got != "up down" {
			t.Errorf("copies while the sources cannot be listed: %q", got)
		}
		blind.Store(false)
		time.Sleep(10 * time.Minute)
		if got := b.travelled("team"); got != "" {
			t.Errorf("copies once they can: %q", got)
		}
	})
}

// P30: namespaces in which nothing travels stay closed until they are named, and the
// claim that refers to something there says so.
func TestP30ClosedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open("team", "kube-public", "kube-system", "klutch-bind", "kubernetes")
		except := []string{"kube-*", "klutch-bind"}
		related := []Related{
			{Resource: secrets, From: SourceSide, Names: []string{"*"}, Namespaces: []string{"*"}, Except: except},
			{Resource: secrets, From: SourceSide, References: []string{"spec.secret"}, Except: except},
			{Resource: secrets, From: TargetSide, Except: except},
			{Resource: secrets, From: TargetSide, Namespaces: []string{"kube-public"}, Except: except},
		}
		defer b.sync(widgets, related...)()
		want := map[string]string{"team": "up down", "kube-public": "down", "kube-system": "", "klutch-bind": "", "kubernetes": "up down"}
		for namespace := range want {
			b.create(b.source, namespace, b.widget("w", `{"secret":"up"}`, ``))
		}
		time.Sleep(time.Minute)
		got := map[string]string{}
		for namespace := range want {
			got[namespace] = b.travelled(namespace)
			if b.get(b.target, "svc-"+namespace, "w") == nil {
				t.Errorf("the object in %s is not kept in step", namespace)
			}
			message := b.get(b.source, namespace, "w").GetAnnotations()[MessageAnnotation]
			told := strings.Contains(message, fmt.Sprintf("secrets %s/up does not travel", namespace))
			if closed := !strings.Contains(want[namespace], "up"); told != closed {
				t.Errorf("the claim in %s says %q", namespace, message)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("copies (-want +got):\n%s", diff)
		}
	})
}

// P30: what came into a namespace that has been closed since is taken back.
func TestP30NamespaceIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.open("team")
		b.resident("team")
		stop := b.sync(widgets, everywhere...)
		b.settle()
		stop()
		if got := b.travelled("team"); got != "up down" {
			t.Fatalf("copies: %q", got)
		}
		var closed []Related
		for _, r := range everywhere {
			r.Except = []string{"team"}
			closed = append(closed, r)
		}
		defer b.sync(widgets, closed...)()
		time.Sleep(time.Minute)
		if got := b.travelled("team"); got != "" {
			t.Errorf("copies: %q", got)
		}
	})
}

// Cluster-scoped sources are in no namespace: while there is one, related objects travel in
// all that the table of related objects has, and in none besides.
func TestRelatedOfClusterScopedSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		plans := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "plans"}
		for _, c := range []*fakecluster.Cluster{b.fakeSource, b.fakeTarget} {
			c.Serve(fakecluster.Resource{GroupVersionResource: plans, Kind: "Plan", Cluster: true})
		}
		b.open("team", "payroll")
		b.table.Delete("payroll")
		var asked []string
		s, err := New(b.from, b.to, plans, Options{
			Mapper: Prefix("tenant-"), RelatedMapper: b.table, Related: everywhere,
			RelatedAccess: func(_ context.Context, namespace string, wanted bool) (bool, error) {
				asked = append(asked, fmt.Sprintf("%s %t", namespace, wanted))
				return wanted, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		both := func(when, team, payroll string) {
			t.Helper()
			b.settle()
			if diff := cmp.Diff([]string{team, payroll}, []string{b.travelled("team"), b.travelled("payroll")}); diff != "" {
				t.Errorf("copies in team and payroll %s (-want +got):\n%s", when, diff)
			}
		}
		both("without a source", "", "")
		plan := object(t, `{"apiVersion":"example.org/v1","kind":"Plan","metadata":{"name":"a"},"spec":{}}`)
		if _, err := b.source.Resource(plans).Create(t.Context(), plan, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		both("with a source", "up down", "")
		if slices.ContainsFunc(asked, func(a string) bool { return strings.HasPrefix(a, "payroll") }) {
			t.Errorf("access was asked for in a namespace that is not mapped: %v", asked)
		}
		b.mergeSecret(b.target, "svc-team", "down", `{"data":{"password":"bmV3"}}`)
		b.settle()
		if got := field(b.getSecret(b.source, "team", "down"), "data", "password"); got != "bmV3" {
			t.Errorf("a changed password did not travel: %v", got)
		}
		b.table.Set("payroll", "svc-payroll")
		both("after the second namespace is mapped", "up down", "up down")
		if err := b.source.Resource(plans).Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		both("after the last source has gone", "", "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
