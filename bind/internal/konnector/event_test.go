// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// TestReferredTo: credentials of a lost instance are told, and nothing else is: the advice to make it
// anew would cost a Backup.
func TestReferredTo(t *testing.T) {
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
		if got := referredTo(u, "PostgresqlInstance"); (got == "orders") != tc.want {
			t.Errorf("%+v: %q", tc, got)
		}
	}
}

// The objects that wait for their Sync are looked at ever more rarely, each minute at least, and far more rarely where
// they may not be listed.
func TestStoppedLooksArePaced(t *testing.T) {
	for name, test := range map[string]struct {
		refused     bool
		least, most int
	}{
		"refused": {true, 3, 20},
		"listed":  {false, 60, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition", Cluster: true})
				asked := 0
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource != cluster.CRDs {
						return do()
					}
					if asked++; test.refused {
						return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("no"))
					}
					return do()
				})
				w.verdict = newVerdict()
				p := w.pass()
				w.verdict.set(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound, "The Secret is gone."))
				for range 3600 {
					w.konnector.tellStopped(t.Context(), p)
					time.Sleep(time.Second)
				}
				if asked < test.least || asked > test.most {
					t.Errorf("%d requests in an hour", asked)
				}
			})
		})
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
			t.Fatalf("there is no CRD: %q", got)
		}
		if _, err := w.app.Client().Resource(cluster.CRDs).Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
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

// The Events of objects come at their time also while the passes of their binding fail for hours, and
// have nothing asked more often that is refused.
func TestEventsWhileAPassFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		events := record.NewFakeRecorder(100)
		k := w.konnector
		k.events = events
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.binding)
		if err == nil {
			err = k.app.bindings.GetStore().Add(&unstructured.Unstructured{Object: content})
		}
		if err != nil {
			t.Fatal(err)
		}
		key := cache.MetaObjectToName(w.binding)
		w.verdict = newVerdict()
		p := w.pass()
		p.record.sync.fingerprint = "runs"
		asked := 0
		k.bindings = controller.New("binding", func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			asked++
			p.record.last, p.again = p, 0
			k.objects(ctx, p)
			return p.again, apierrors.NewForbidden(cluster.CRDs.GroupResource(), w.binding.Name, errors.New("a policy protects it"))
		}, controller.Options{Meanwhile: k.meanwhile})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = k.bindings.Run(ctx) })
		defer running.Wait()
		defer cancel()
		l := k.ledger(key, schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Widget"})
		k.bindings.Add(key)
		time.Sleep(time.Hour)
		asked = 0
		for _, name := range []string{"one", "two"} {
			l.Report(t.Context(), klutchsync.Report{Source: cache.NewObjectName("team", name), UID: "u", Reason: klutchsync.ReasonForbidden, Message: "It may not be."})
			time.Sleep(5 * time.Second)
			synctest.Wait()
			if len(events.Events) != 1 || !strings.Contains(<-events.Events, string(klutchsync.ReasonForbidden)) {
				t.Errorf("%s is not told", name)
			}
		}
		if asked > 1 {
			t.Errorf("asked %d times", asked)
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

// What refers to an object that was lost is told that the object is not made anew, or that it was,
// on whatever page it is; what could not be read is read again, and nothing else is told twice.
func TestReferrersAreTold(t *testing.T) {
	for reason, says := range map[klutchsync.Reason]string{
		klutchsync.ReasonLost:     "TargetLost What stood for PostgresqlInstance orders in the Control Plane Cluster has vanished, and is not made anew",
		klutchsync.ReasonVanished: "TargetRecreated What stood for PostgresqlInstance orders in the Control Plane Cluster had vanished and was made anew",
	} {
		synctest.Test(t, func(t *testing.T) {
			client, second := referrers(150)
			events := record.NewFakeRecorder(1000)
			k, p := instances(t, client, events)
			l := behind.NewLedger(func() {})
			p.record.sync.ledger = l
			orders := klutchsync.Report{Source: cache.NewObjectName("shop", "orders"), UID: "one", Reason: reason, Message: "It is gone."}
			l.Report(t.Context(), orders)
			if reason == klutchsync.ReasonVanished {
				orders.Reason, orders.Message = "", ""
				l.Report(t.Context(), orders)
			}
			time.Sleep(time.Minute)
			told := func() (own, theirs int) {
				for len(events.Events) > 0 {
					if e := <-events.Events; strings.Contains(e, says) {
						theirs++
					} else {
						own++
					}
				}
				return own, theirs
			}
			look := func() { p.again = 0; k.objects(t.Context(), p) }
			*second = true
			look()
			if own, theirs := told(); own != 1 || theirs != 1 {
				t.Errorf("%s: told %d and %d", reason, own, theirs)
			}
			for end := time.Now().Add(time.Hour); time.Now().Before(end) && p.again > 0; time.Sleep(p.again) {
				look()
			}
			if _, theirs := told(); theirs < 10 || theirs > 30 {
				t.Errorf("%s: tried %d times in an hour", reason, theirs)
			}
			if c := p.verdict.found[v1alpha1.ConditionObjectsSynced]; c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "not told of it: away") {
				t.Errorf("%s: %+v", reason, c)
			}
			*second = false
			time.Sleep(10 * time.Minute)
			look()
			if own, theirs := told(); own != 0 || theirs != 2 {
				t.Errorf("%s, again: told %d and %d", reason, own, theirs)
			}
			look()
			if c := p.verdict.found[v1alpha1.ConditionObjectsSynced]; len(events.Events) > 0 || strings.Contains(c.Message, "not told") {
				t.Errorf("%s, and again: %+v", reason, c)
			}
		})
	}
}

// What refers to the objects of a namespace that were lost at the same time is read once for all of them; where it may
// not be read, that is asked ever more rarely, however many there are.
func TestLossesAreToldTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := referrers(10)
		lists, refuses := 0, true
		client.PrependReactor("list", "servicebindings", func(clienttesting.Action) (bool, runtime.Object, error) {
			lists++
			if refuses {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "servicebindings"}, "", errors.New("no"))
			}
			return false, nil, nil
		})
		events := record.NewFakeRecorder(10)
		k, p := instances(t, client, events)
		p.record.sync.ledger = behind.NewLedger(func() {})
		look := func() { p.again = 0; k.objects(t.Context(), p) }
		lose := func(reason string) {
			for i := range 1000 {
				p.record.lost.add(behind.News{Object: cache.NewObjectName("shop", fmt.Sprint("db-", i)), Lost: reason})
			}
			p.record.lost.add(behind.News{Object: cache.NewObjectName("shop", "orders"), Lost: reason})
		}
		lose("Older")
		for range 60 {
			look()
			lose(string(klutchsync.ReasonLost))
			time.Sleep(time.Minute)
		}
		if lists < 5 || lists > 20 {
			t.Errorf("%d lists in an hour", lists)
		}
		lists, refuses = 0, false
		time.Sleep(10 * time.Minute)
		look()
		if lists != 1 || len(events.Events) != 1 || !strings.Contains(<-events.Events, string(klutchsync.ReasonLost)) {
			t.Errorf("%d lists", lists)
		}
	})
}

// Losses of one namespace are told at once while another namespace's are refused; while the API server does not
// answer, none is asked for before its time.
func TestLossesOfOneNamespaceDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, _ := referrers(10)
		lists, answer := map[string]int{}, func(namespace string) error {
			if namespace == "shop" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "servicebindings"}, "", errors.New("no"))
			}
			return nil
		}
		client.PrependReactor("list", "servicebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lists[a.GetNamespace()]++
			err := answer(a.GetNamespace())
			return err != nil, nil, err
		})
		events := record.NewFakeRecorder(10)
		k, p := instances(t, client, events)
		p.record.sync.ledger = behind.NewLedger(func() {})
		lose := func(namespace string) {
			p.record.lost.add(behind.News{Object: cache.NewObjectName(namespace, "orders"), Lost: string(klutchsync.ReasonLost)})
			p.again = 0
			k.objects(t.Context(), p)
		}
		for range 60 {
			lose("shop")
			time.Sleep(time.Minute)
		}
		lose("shop")
		for _, namespace := range []string{"market", "bank"} {
			if lose(namespace); len(events.Events) != 1 || !strings.Contains(<-events.Events, "TargetLost") {
				t.Errorf("%s is not told", namespace)
			}
		}
		if n := lists["shop"]; n < 5 || n > 20 {
			t.Errorf("%d lists of what is refused in an hour", n)
		}
		answer = func(string) error { return errors.New("away") }
		time.Sleep(10 * time.Minute)
		clear(lists)
		for i := range 60 {
			lose(fmt.Sprint("team-", i))
			time.Sleep(time.Second)
		}
		asked := 0
		for _, n := range lists {
			asked += n
		}
		if asked == 0 || asked > 10 {
			t.Errorf("asked %d times in a minute while the API server is away", asked)
		}
	})
}

// In the pause after a pass that failed no condition is written that was found for an earlier spec.
func TestNoVerdictOfAnEarlierSpec(t *testing.T) {
	bindings := fakecluster.Resource{GroupVersionResource: cluster.APIServiceBindings, Kind: "APIServiceBinding"}
	for generation, writes := range map[int64]int{1: 1, 2: 0} {
		w := newClaimWorld(t)
		w.app.Serve(bindings)
		k, key := w.konnector, cache.MetaObjectToName(w.binding)
		k.events = record.NewFakeRecorder(10)
		w.binding.Generation, w.verdict = 1, newVerdict()
		p := w.pass()
		p.record = k.records.get(key)
		p.record.last, p.record.written = p, true
		p.verdict.set(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound, "The Secret is gone."))
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.binding)
		if err != nil {
			t.Fatal(err)
		}
		stored := &unstructured.Unstructured{Object: content}
		stored.SetAPIVersion(v1alpha1.GroupVersion.String())
		stored.SetKind(bindings.Kind)
		stored.SetGeneration(generation)
		if err := k.app.bindings.GetStore().Add(stored); err != nil {
			t.Fatal(err)
		}
		if _, err := w.app.Client().Resource(cluster.APIServiceBindings).Namespace(key.Namespace).Create(t.Context(), stored, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		written := 0
		w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == cluster.APIServiceBindings && r.Verb != "get" {
				written++
			}
			return do()
		})
		if _, err := k.meanwhile(t.Context(), key); err != nil || written != writes {
			t.Errorf("generation %d: %d writes, want %d: %v", generation, written, writes, err)
		}
	}
}

// instances is a konnector with a running binding of instances, and one of ServiceBindings, over the same Secret.
func instances(t *testing.T, client dynamic.Interface, events record.EventRecorder) (*Konnector, *pass) {
	t.Helper()
	k := &Konnector{shared: shared{app: &appCluster{Clients: cluster.Clients{Calls: client}}}, events: events}
	k.app.bindings = cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{indexSecret: bySecret})
	p := &pass{binding: &v1alpha1.APIServiceBinding{}, record: &bindingRecord{}, verdict: newVerdict()}
	p.binding.Name, p.binding.Namespace, p.binding.Spec.KubeconfigSecretRef.Namespace, p.binding.Spec.KubeconfigSecretRef.Name = "instances", "klutch-bind", "klutch-bind", "kubeconfig"
	for _, name := range []string{"instances", "servicebindings.example.org"} {
		b := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": "klutch-bind", "name": "kubeconfig"}}}}
		b.SetName(name)
		b.SetNamespace("klutch-bind")
		if err := k.app.bindings.GetStore().Add(b); err != nil {
			t.Fatal(err)
		}
	}
	p.record.sync.fingerprint, p.record.sync.kind.Kind = "runs", "PostgresqlInstance"
	return k, p
}

// referrers is a cluster with so many ServiceBindings, of which those with the numbers 5 and 120 refer
// to orders. While away is true, it does not answer for any page but the first.
func referrers(n int) (client *fake.FakeDynamicClient, away *bool) {
	kinds := map[schema.GroupVersionResource]string{{Group: "example.org", Version: "v1", Resource: "servicebindings"}: "ServiceBindingList"}
	client, away = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds), new(bool)
	client.PrependReactor("get", "customresourcedefinitions", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"group": "example.org", "names": map[string]any{"plural": "servicebindings", "kind": "ServiceBinding"}, "versions": []any{map[string]any{"name": "v1", "served": true}},
		}}}, nil
	})
	client.PrependReactor("list", "servicebindings", func(a clienttesting.Action) (bool, runtime.Object, error) {
		opts, list, from := a.(clienttesting.ListActionImpl).ListOptions, &unstructured.UnstructuredList{Object: map[string]any{"metadata": map[string]any{}}}, 0
		if _, _ = fmt.Sscan(opts.Continue, &from); from > 0 && *away {
			return true, nil, errors.New("away")
		}
		for i := from; i < n; i++ {
			if int64(i-from) == opts.Limit {
				list.SetContinue(fmt.Sprint(i))
				break
			}
			u := unstructured.Unstructured{Object: map[string]any{"kind": "ServiceBinding", "spec": map[string]any{"instanceRef": "other", "serviceInstanceType": "postgresql"}}}
			if i == 5 || i == 120 {
				_ = unstructured.SetNestedField(u.Object, "orders", "spec", "instanceRef")
			}
			u.SetName(fmt.Sprint("b", i))
			list.Items = append(list.Items, u)
		}
		return true, list, nil
	})
	return client, away
}
