// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP10Caps: no identity and no tenant can fill the Control Plane Cluster.
func TestP10Caps(t *testing.T) {
	w := newStillWorld(t)
	if !t.Run("quotas", func(t *testing.T) { w.t = t; quotasOfOthers(t, w) }) || !t.Run("facts", func(t *testing.T) { w.t = t; quotaFacts(t, w) }) {
		return
	}
	w.t = t
	w.tune = func(e *Exporter) { e.tenants.Opts.Pauses.NewKind = 40 * time.Second } // kube-controller-manager looks every 30
	w.serve(Options{Caps: Caps{Tenants: 4, PerIdentity: 2, Namespaces: 2, Objects: 3}})
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"tenants of an identity, also at once", func() { capsIdentity(w.t, w) }},
		{"tenants in all", func() { capsTenants(w.t, w) }},
		{"people and programs are told", func() { capsTold(w.t, w) }},
		{"service namespaces, objects and requests of a tenant", func() { capsTenant(w.t, w) }},
	} {
		if !t.Run(step.name, func(t *testing.T) { w.t = t; step.run() }) {
			return
		}
	}
}

func (w *world) bindAs(user, clusterID string) error {
	_, err := w.exporter.tenants.Bind(w.t.Context(), tenant.Record{
		Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: user, Groups: users[user].Groups}, Cluster: clusterID, Services: []string{"widgets.example.org"},
	})
	return err
}

// tenants are the tenant namespaces that are there to stay.
func (w *world) tenants() int {
	w.t.Helper()
	list, err := w.admin.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel})
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, ns := range list.Items {
		n += tenant.One(ns.DeletionTimestamp == nil)
	}
	return n
}

// gone waits until what was undone does not count any more.
func (w *world) gone() {
	w.t.Helper()
	w.eventually("namespaces that were undone are gone", func(ctx context.Context) (bool, error) {
		list, err := w.admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel})
		for _, ns := range list.Items {
			if ns.DeletionTimestamp != nil {
				return false, nil
			}
		}
		return err == nil, nil
	})
}

func capsIdentity(t *testing.T, w *world) {
	t.Helper()
	errs := make([]error, 12)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { errs[i] = w.bindAs("ada", fmt.Sprintf("c%d", i)) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil && !errors.Is(err, tenant.ErrCapped) {
			t.Errorf("c%d: %v", i, err)
		}
	}
	if n := w.tenants(); n > 2 {
		t.Fatalf("%d tenants, want 2 at most", n)
	}
	w.gone()
	for i := range errs {
		errs[i] = w.bindAs("ada", fmt.Sprintf("c%d", i))
	}
	if n := w.tenants(); n != 2 {
		t.Fatalf("%d tenants, want 2", n)
	}
	for i := range errs { // those that are there stay
		if err := w.bindAs("ada", fmt.Sprintf("c%d", i)); (err == nil) != (errs[i] == nil) {
			t.Errorf("c%d: %v, before %v", i, err, errs[i])
		}
	}
}

func capsTenants(t *testing.T, w *world) {
	t.Helper()
	for i, user := range []string{"grace", "eve", "mallory"} {
		if err := w.bindAs(user, "c1"); (err == nil) != (i < 2) || err != nil && !errors.Is(err, tenant.ErrCapped) {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func capsTold(t *testing.T, w *world) {
	t.Helper()
	_, _, err := w.login("grace", "c2", "widgets.example.org")
	if err == nil || !strings.Contains(err.Error(), "page 403") || !strings.Contains(err.Error(), "no room for more than 4") {
		t.Errorf("login: %v", err)
	}
	told := handshake.AsOAuth(fmt.Errorf("bind: %w", tenant.ErrCapped))
	if told == nil || told.Status != 403 || told.Next == "" {
		t.Errorf("answer to a program: %+v", told)
	}
}

// inForce waits until namespaces have quotas that count, or has waited long.
func (w *world) inForce(namespaces ...string) {
	w.t.Helper()
	_ = wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		for _, namespace := range namespaces {
			q, err := w.admin.CoreV1().ResourceQuotas(namespace).Get(ctx, v1alpha1.CapsQuota, metav1.GetOptions{})
			if err != nil || len(q.Status.Used) < len(q.Spec.Hard) || len(q.Spec.Hard) == 0 {
				return false, nil //nolint:nilerr // it may come yet
			}
		}
		return true, nil
	})
}

func capsTenant(t *testing.T, w *world) {
	t.Helper()
	grace := w.tenant("grace", "c1", "widgets.example.org")
	grace.request("first", "widgets.example.org")
	own := grace.mirror("team-a")
	grace.mirror("team-b")
	grace.create("apiservicenamespaces", object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-c}}"))
	until(w, "apiservicenamespaces", grace.namespace, "team-c", func(o *v1alpha1.APIServiceNamespace) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Reason == tenant.ReasonTooMany && o.Status.Namespace == ""
	})
	filled := func(what string, create func(ctx context.Context, i int) error) (made int) {
		i := 0
		w.eventually(what+" are refused", func(ctx context.Context) (bool, error) {
			for {
				i++
				switch err := create(ctx, i); {
				case err == nil:
					made++
				case strings.Contains(err.Error(), "exceeded quota"):
					return true, nil
				default:
					return false, nil // not counted yet
				}
			}
		})
		return made
	}
	for range 2 { // the kinds have to be old enough
		w.inForce(own, grace.namespace)
	}
	if n := filled("widgets", func(ctx context.Context, i int) error {
		widget := object(fmt.Sprintf("{apiVersion: example.org/v1, kind: Widget, metadata: {name: w-%d}}", i))
		_, err := grace.dyn.Resource(widgets).Namespace(own).Create(ctx, widget, metav1.CreateOptions{})
		return err
	}); n != 3 {
		t.Errorf("%d widgets, want 3", n)
	}
	requests := grace.dyn.Resource(tenant.RequestResource).Namespace(grace.namespace)
	made := filled("requests", func(ctx context.Context, i int) error {
		_, err := requests.Create(ctx, requestOf(fmt.Sprintf("r-%d", i), "widgets.example.org"), metav1.CreateOptions{})
		return err
	})
	quota, err := w.admin.CoreV1().ResourceQuotas(grace.namespace).Get(t.Context(), v1alpha1.CapsQuota, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most := quota.Spec.Hard[corev1.ResourceName("count/"+tenant.RequestResource.GroupResource().String())]
	if made < tenant.MaxRequests-1 || most.Value() != tenant.MaxRequests { // the first is beside them
		t.Errorf("%d requests were made, and the quota says %s, want %d", made, &most, tenant.MaxRequests)
	}
	// Answered requests of a crowded tenant are deleted, so that the quota may be counted anew while others are made,
	// and let in a few too many (quotaFacts). The backend deletes these as it does the others.
	w.eventually("requests beyond the cap are gone", func(ctx context.Context) (bool, error) {
		left, err := requests.List(ctx, metav1.ListOptions{})
		return err == nil && len(left.Items) <= tenant.MaxRequests, nil
	})
	if err := grace.dyn.Resource(tenant.NamespaceResource).Namespace(grace.namespace).Delete(t.Context(), "team-b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(w, "apiservicenamespaces", grace.namespace, "team-c", func(o *v1alpha1.APIServiceNamespace) bool { return o.Status.Namespace != "" })
}

// A quota that the platform team decides about is left alone, and a kind that is too new
// to be counted is in none.
func quotasOfOthers(t *testing.T, w *world) {
	t.Helper()
	e := must(New(w.config, Options{}))
	pauses := &e.tenants.Opts.Pauses
	pauses.NewKind = time.Hour
	c := w.control(e)
	w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: x, labels: {" + v1alpha1.TenantLabel + ": x, " + v1alpha1.AppNamespaceLabel + ": other}}}"))
	hard := func() map[string]string {
		q, err := w.admin.CoreV1().ResourceQuotas("x").Get(t.Context(), v1alpha1.CapsQuota, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		names := map[string]string{}
		for name, n := range q.Spec.Hard {
			names[string(name)] = n.String()
		}
		return names
	}
	caps := map[string]int{"widgets.example.org": 5, "secrets": 7}
	ensure := func() (again time.Duration, err error) { // the quota controller writes to it too
		err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			again, err = c.tenants.Tenants.Quotas.Ensure(t.Context(), "x", caps, false)
			return err
		})
		return again, err
	}
	again, err := ensure()
	if got := hard(); err != nil || again <= 0 || again > time.Hour || len(got) != 1 || got["count/secrets"] != "7" {
		t.Errorf("%v again in %s: %v", got, again, err)
	}
	pauses.NewKind = 0
	again, err = ensure()
	if got := hard(); err != nil || again > time.Minute || len(got) != 2 || got["count/widgets.example.org"] != "5" {
		t.Errorf("%v again in %s: %v", got, again, err)
	}
	w.apply(object("{apiVersion: v1, kind: ResourceQuota, metadata: {name: klutch-binder, namespace: x, annotations: {" + CreateOnlyAnnotation + `: ""}}, spec: {hard: {count/secrets: 70}}}`))
	if _, err = ensure(); err != nil || hard()["count/secrets"] != "70" {
		t.Errorf("%v: %v", hard(), err)
	}
}

// quotaFacts: an API server admits by what a quota says is used. It adds to that before it stores an object, and never
// counts. After each deletion kube-controller-manager counts anew, in its cache, which lacks requests under way; so a cap
// can be exceeded by that much, and no more is let in once it is counted.
func quotaFacts(t *testing.T, w *world) {
	t.Helper()
	quotas, secrets := w.admin.CoreV1().ResourceQuotas("facts"), w.admin.CoreV1().Secrets("facts")
	w.apply(object("{apiVersion: v1, kind: Namespace, metadata: {name: facts}}"),
		object("{apiVersion: v1, kind: ResourceQuota, metadata: {name: facts, namespace: facts}, spec: {hard: {count/secrets: 2}}}"))
	used := func(want string) {
		w.eventually(want+" are used", func(ctx context.Context) (bool, error) {
			q, err := quotas.Get(ctx, "facts", metav1.GetOptions{})
			n := q.Status.Used["count/secrets"]
			return err == nil && len(q.Status.Used) == 1 && n.String() == want, nil
		})
	}
	create := func(ctx context.Context, name string) error {
		_, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		return err
	}
	letIn := func(names ...string) { // as soon as the API server knows the use of before
		for _, name := range names {
			w.eventually(name+" is let in", func(ctx context.Context) (bool, error) { return create(ctx, name) == nil, nil })
		}
	}
	refused := func(name string) {
		if err := create(t.Context(), name); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Errorf("%s: %v, want one that says exceeded quota", name, err)
		}
	}
	used("0")
	letIn("one", "two")
	refused("three")
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // as one who counts in a cache that lacks both
		q, err := quotas.Get(t.Context(), "facts", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Status.Used["count/secrets"] = resource.MustParse("0")
		_, err = quotas.UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	letIn("three", "four")
	refused("five")
	if err := secrets.Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	used("3")
	refused("five")
}

// control returns controllers that nothing drives but the test, see step.
func (w *world) control(e *Exporter) *control {
	w.t.Helper()
	c := must(newControl(e))
	w.look(c)
	return c
}

// look lets c see what there is at this moment.
func (w *world) look(c *control) {
	w.t.Helper()
	for gvr, inf := range map[string]cache.SharedIndexInformer{"crds": c.caches.CRDs} {
		list, err := w.dyn.Resource(offer.CRDResource).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatalf("%s: %v", gvr, err)
		}
		var all []any
		for _, u := range list.Items {
			all = append(all, partial(&u))
		}
		if err := inf.GetStore().Replace(all, ""); err != nil {
			w.t.Fatal(err)
		}
	}
}

func partial(u *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), CreationTimestamp: u.GetCreationTimestamp(),
		DeletionTimestamp: u.GetDeletionTimestamp(), Labels: u.GetLabels(), Annotations: u.GetAnnotations(), Finalizers: u.GetFinalizers(),
	}}
}
