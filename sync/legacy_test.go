// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// A peer that insists on what it wants is answered ever more rarely, and loses once
// it has ended.
func TestInsistingPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("made", func() bool { return w.targetOf("a") != nil })
		before := len(w.fakeTarget.Writes())
		puts := 0
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(time.Second) {
			u := w.targetOf("a")
			if cmp.Equal(u.Object["spec"], map[string]any{"size": "large", "color": "red"}) {
				continue
			}
			u.Object["spec"] = map[string]any{"size": "large", "color": "red"}
			if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Update(w.Context(), u, metav1.UpdateOptions{FieldManager: "konnector"}); err == nil {
				puts++
			}
		}
		if ours := len(w.fakeTarget.Writes()) - before - puts; puts < 10 || ours > 60 {
			t.Errorf("%d writes against %d of a peer in an hour", ours, puts)
		}
		time.Sleep(5 * time.Minute)
		w.until("put right", func() bool { return cmp.Equal(w.targetOf("a").Object["spec"], map[string]any{"size": "small"}) })
	})
}

// I12: of two konnectors one does not know yet what the other does; they do not fight.
func TestTwoOfOneBinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		blind := w.fakeSource.Held("blind", nil)
		w.from, _ = NewClusterForClients(blind.Client(), blind.Metadata())
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		w.until("made", func() bool { return w.targetOf("a") != nil })
		w.settle()
		defer w.run(Options{})()
		w.settle()
		before := len(w.fakeTarget.Writes())
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"labels":{"tier":"gold"}}}`)
		time.Sleep(watchstore.Silence / 2)
		if n := len(w.fakeTarget.Writes()) - before; n != 1 || w.targetOf("a").GetLabels()["tier"] != "gold" {
			t.Errorf("%d writes for one label, which is %q", n, w.targetOf("a").GetLabels()["tier"])
		}
	})
}

// The finalizer that an older konnector has put on a source keeps its place: the status stays that
// of the Sync which goes on from there, also when there is a second one.
func TestSecondSyncAfterALegacyFinalizer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, `"finalizers":["klutch.anynines.com/syncer"]`))
		defer w.run(Options{})()
		w.until("the first target exists", func() bool { return w.targetOf("a") != nil })
		two := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		w.namespace(two.Client(), w.targetNS)
		other := *w
		var err error
		if other.to, err = NewClusterForClients(two.Client(), two.Metadata()); err != nil {
			t.Fatal(err)
		}
		defer other.run(Options{Finalizer: "example.org/two"})()
		w.until("the second target exists", func() bool { return two.Created(widgets) == 1 })
		w.settle()
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Ready"}}`, "status")
		w.until("the status has come", func() bool { return field(w.get(w.source, w.sourceNS, "a"), "status", "phase") == "Ready" })
	})
}

// Names of cluster-scoped objects begin with their tenant: that of tenant svc for team-a is that
// of tenant svc-team for a. What a legacy konnector made for one tenant is not taken over by
// another that has an object of such a name.
func TestLegacyTargetOfAnotherTenant(t *testing.T) {
	const tenant = "klutch.anynines.com/cluster-namespace"
	for made, taken := range map[string]bool{"svc": true, "svc-team": false, "": true} {
		synctest.Test(t, func(t *testing.T) {
			w := newFake(t)
			w.targetNS = w.sourceNS
			w.namespace(w.target, w.targetNS)
			meta := func(cache.ObjectName) Meta { return Meta{Annotations: map[string]string{tenant: "svc"}} }
			w.create(w.source, w.sourceNS, w.widget("team-a", `{"size":"small"}`, `"finalizers":["klutch.anynines.com/syncer"]`))
			annotations := `"klutch.anynines.com/bound":"true"`
			if made != "" {
				annotations += `,"` + tenant + `":"` + made + `"`
			}
			theirs := w.widget("svc-team-a", `{"size":"large"}`, `"annotations":{`+annotations+`}`)
			if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Create(t.Context(), theirs, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
				t.Fatal(err)
			}
			defer w.run(Options{Mapper: Prefix("svc-"), TargetMeta: meta})()
			w.until("it is decided", func() bool {
				return field(w.get(w.target, w.targetNS, "svc-team-a"), "spec", "size") == "small" || strings.HasPrefix(w.message("team-a"), string(ReasonConflict))
			})
			w.settle()
			if got := field(w.get(w.target, w.targetNS, "svc-team-a"), "spec", "size") == "small"; got != taken {
				t.Errorf("made for %q: taken over %t", made, got)
			}
		})
	}
}

// What a legacy konnector has given as a status does not outlive what the provider takes away; what
// other controllers have given stays.
func TestStatusOfALegacyKonnector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		for manager, status := range map[string]string{
			"konnector": `{"phase":"failed","message":"no room","connection":{"host":"h"}}`, "auditor": `{"audited":"yes"}`,
		} {
			patch := []byte(`{"status":` + status + `}`)
			if _, err := w.source.Resource(widgets).Namespace(w.sourceNS).Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: manager}, "status"); err != nil {
				t.Fatal(err)
			}
		}
		defer w.run(Options{})()
		w.until("made", func() bool { return w.targetOf("a") != nil })
		for _, step := range []struct {
			status string
			want   map[string]any
		}{
			{`{"phase":"failed","message":"no room"}`, map[string]any{"phase": "failed", "message": "no room", "audited": "yes"}},
			{`{"phase":"running","message":null}`, map[string]any{"phase": "running", "audited": "yes"}},
		} {
			w.merge(w.target, w.targetNS, "a", `{"status":`+step.status+`}`, "status")
			w.settle()
			if diff := cmp.Diff(step.want, w.get(w.source, w.sourceNS, "a").Object["status"]); diff != "" {
				t.Error(diff)
			}
		}
	})
}
