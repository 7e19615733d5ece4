// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// TestRefersTo: credentials of a lost instance are told, and nothing else is: the advice to make it
// anew would cost a Backup.
func TestRefersTo(t *testing.T) {
	for _, tc := range []struct {
		kind, service, instance string
		want                    bool
	}{
		{"ServiceBinding", "postgresql", "orders", true},
		{"ServiceBinding", "Postgresql", "orders", true},
		{"ServiceBinding", "postgresql", "other", false},
		{"ServiceBinding", "mongodb", "orders", false},
		{"ServiceBinding", "post", "orders", false},
		{"ServiceBinding", "", "orders", false},
		{"Backup", "postgresql", "orders", false},
		{"Restore", "postgresql", "orders", false},
		{"Report", "", "orders", false},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{"kind": tc.kind, "spec": map[string]any{"instanceRef": tc.instance, "serviceInstanceType": tc.service}}}
		if got := refersTo(u, "PostgresqlInstance", "orders"); got != tc.want {
			t.Errorf("%+v: %t", tc, got)
		}
	}
}

// Of objects that wait while no Sync runs, those that have changed since are told why, and counted,
// whatever keeps it from running; the others are not. When it runs again, that is told.
func TestStoppedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		crds := fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition", Cluster: true}
		w.app.Serve(crds)
		crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": crds.Kind, "metadata": map[string]any{"name": w.binding.Name}, "spec": map[string]any{
			"group": "example.org", "names": map[string]any{"plural": "widgets", "kind": "Widget"}, "versions": []any{map[string]any{"name": "v1", "served": true}},
		}}}
		if _, err := w.app.Client().Resource(cluster.CRDs).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		events := record.NewFakeRecorder(100)
		w.konnector.events = events
		objects := func() (said []string) {
			w.verdict = newVerdict()
			p := w.pass()
			w.verdict.set(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound, "The Secret is gone."))
			for range 20 {
				w.konnector.objects(t.Context(), p)
				time.Sleep(time.Second)
			}
			for len(events.Events) > 0 {
				said = append(said, <-events.Events)
			}
			return said
		}
		if got := objects(); got != nil {
			t.Fatalf("nothing has changed: %q", got)
		}
		w.named("team", "new")
		w.named("team", "leaving")
		w.finalize("leaving")
		if err := w.widgets("team").Delete(t.Context(), "leaving", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		const of = " map[klutch.anynines.com/resource:widgets.example.org]"
		const why = "Warning KubeconfigSecretNotFound It waits for the APIServiceBinding widgets.example.org: The Secret is gone." + of
		if diff := cmp.Diff([]string{why, why}, objects()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if c := w.verdict.found[v1alpha1.ConditionObjectsSynced]; c.Message != "2 not in step: 2 KubeconfigSecretNotFound. kubectl bind status widgets.example.org lists them." {
			t.Errorf("%+v", c)
		}
		if got := objects(); got != nil {
			t.Errorf("told again: %q", got)
		}
		defer w.run()()
		w.look()
		const over = "Normal InStep Nothing keeps this object from being in step any more." + of
		if diff := cmp.Diff([]string{over, over}, objects()); diff != "" {
			t.Errorf("it runs again (-want +got):\n%s", diff)
		}
		if c := w.verdict.found[v1alpha1.ConditionObjectsSynced]; c.Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	})
}

func TestChangedSince(t *testing.T) {
	since := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	object := func(created, edited time.Duration, field string, finalizers ...string) *metav1.PartialObjectMetadata {
		at := metav1.NewTime(since.Add(edited))
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(since.Add(created)), Finalizers: finalizers,
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: &at, FieldsV1: metav1.NewFieldsV1(`{"` + field + `":{}}`)}},
		}}
	}
	deleted := func(o *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		o.DeletionTimestamp = &metav1.Time{Time: since.Add(-time.Hour)}
		return o
	}
	copied := object(time.Second, time.Second, "f:spec")
	copied.Annotations = map[string]string{klutchsync.SourceAnnotation: `{"uid":"u","name":"n"}`}
	status := object(-time.Hour, time.Second, "f:spec", v1alpha1.SyncerFinalizer)
	status.ManagedFields[0].Subresource = "status"
	for name, c := range map[string]struct {
		o    *metav1.PartialObjectMetadata
		want bool
	}{
		"as it was":                  {object(-time.Hour, -time.Hour, "f:spec", v1alpha1.SyncerFinalizer), false},
		"edited":                     {object(-time.Hour, time.Second, "f:spec", v1alpha1.SyncerFinalizer), true},
		"another field":              {object(-time.Hour, time.Second, "f:metadata", v1alpha1.SyncerFinalizer), false},
		"a status":                   {status, false},
		"created":                    {object(time.Second, time.Second, "f:spec"), true},
		"never taken up":             {object(-time.Hour, time.Second, "f:spec"), false},
		"a copy":                     {copied, false},
		"deleted":                    {deleted(object(-2*time.Hour, -2*time.Hour, "f:spec", v1alpha1.SyncerFinalizer)), true},
		"deleted, others' finalizer": {deleted(object(-2*time.Hour, -2*time.Hour, "f:spec", "example.org/hold")), false},
	} {
		if got := changedSince(c.o, since); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// named creates an object of the bound API.
func (w *claimWorld) named(namespace, name string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": name}}}
	if _, err := w.widgets(namespace).Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// finalize puts the konnector's finalizer on an object.
func (w *claimWorld) finalize(name string) {
	w.Helper()
	patch := []byte(`{"metadata":{"finalizers":["` + v1alpha1.SyncerFinalizer + `"]}}`)
	if _, err := w.widgets("team").Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}
