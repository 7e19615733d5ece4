// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"slices"
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

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var continents = widgets.GroupVersion().WithResource("continents")

// switchOn does what a platform team does to offer continents, which are cluster-scoped, and
// islands, which no tenant here binds.
func (w *world) switchOn() {
	w.t.Helper()
	w.apply(crdOf("islands", v1alpha1.ClusterScope))
	w.apply(deploy.Prefixed("continents.example.org", "islands.example.org")...)
	w.apply(changed(templateOf("continents"), string(v1alpha1.IsolationPrefixed), "spec", "clusterScopedIsolation"))
	w.eventually("the rights of the backend to pass these on", func(ctx context.Context) (bool, error) {
		e := exportOf("example.org", "continents")
		e.Spec.Scope = v1alpha1.ClusterScope
		return must(New(w.config, Options{})).tenants.Rights.CheckExports(ctx, []*v1alpha1.APIServiceExport{e}) == nil, nil
	})
}

// continent is what a konnector makes for an object of its App Cluster.
func (c *tenantClient) continent(name, says string) string {
	return fmt.Sprintf(`{apiVersion: example.org/v1, kind: Continent, metadata: {name: %s, annotations: {klutch.anynines.com/cluster-namespace: %s}}}`, name, says)
}

// settleContinent returns a tenant with a continent, owned by its namespace as konnectors do it.
func (w *world) settleContinent(user, clusterID string) *tenantClient {
	w.t.Helper()
	c := w.tenant(user, clusterID, "continents.example.org")
	if got := c.request("first", "continents.example.org"); got.Status.Phase != v1alpha1.RequestSucceeded {
		w.t.Fatalf("request: %+v", got.Status)
	}
	ns := must(w.admin.CoreV1().Namespaces().Get(w.t.Context(), c.namespace, metav1.GetOptions{}))
	u := object(c.continent(c.namespace+"-mu", c.namespace))
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}})
	w.eventually("a continent of "+user, func(ctx context.Context) (bool, error) {
		_, err := c.dyn.Resource(continents).Create(ctx, u, metav1.CreateOptions{})
		return err == nil, ignoreForbidden(err)
	})
	return c
}

func ignoreForbidden(err error) error {
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
		return nil
	}
	return err
}

// TestP12P34Prefixed: tenants of a cluster-scoped API that is switched on write nothing but what
// is theirs by name and annotation. They read each other's objects of it, and no other's.
func TestP12P34Prefixed(t *testing.T) {
	w := newStillWorld(t)
	w.switchOn()
	w.serve(Options{PrefixedAPIs: []string{"continents.example.org"}})
	ada, grace := w.settleContinent("ada", "c1"), w.settleContinent("grace", "c1")
	until(w, "apiserviceexporttemplates", "default", "continents", func(o *v1alpha1.APIServiceExportTemplate) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionTrue && strings.Contains(c.Message, "read each other's objects")
	})
	objects, theirs := ada.dyn.Resource(continents), grace.namespace+"-mu"
	if list, err := objects.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("reads: %v", err)
	}
	// The platform has one of its own, and one that says that it is ada's.
	w.apply(object(ada.continent("gondwana", "nobody")), object(ada.continent(ada.namespace+"-atlantis", "nobody")))

	ns := must(w.admin.CoreV1().Namespaces().Get(t.Context(), grace.namespace, metav1.GetOptions{}))
	owner := func(kind, name string, uid types.UID, more string) string {
		return fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":%q,"name":%q,"uid":%q%s}]}}`, kind, name, uid, more)
	}
	own := must(w.admin.CoreV1().Namespaces().Get(t.Context(), ada.namespace, metav1.GetOptions{}))
	for what, deed := range map[string]struct {
		err   error
		hands bool // whether it is ada's to do
	}{
		"make one's own":                 {makeContinent(t, ada.dyn, ada.continent(ada.namespace+"-lemuria", ada.namespace)), true},
		"make one without a prefix":      {makeContinent(t, ada.dyn, ada.continent("lemuria", ada.namespace)), false},
		"make another's":                 {makeContinent(t, ada.dyn, ada.continent(grace.namespace+"-lemuria", grace.namespace)), false},
		"make another's by name":         {makeContinent(t, ada.dyn, ada.continent(grace.namespace+"-lemuria", ada.namespace)), false},
		"make another's by annotation":   {makeContinent(t, ada.dyn, ada.continent(ada.namespace+"-lemur", grace.namespace)), false},
		"make one with a finalizer":      {makeContinent(t, ada.dyn, strings.Replace(ada.continent(ada.namespace+"-x", ada.namespace), "metadata: {", "metadata: {finalizers: [example.org/mine], ", 1)), false},
		"change one's own":               {ada.patchContinent("mu", `{"spec":{"size":2}}`), true},
		"give it to another":             {ada.patchContinent("mu", `{"metadata":{"annotations":{"klutch.anynines.com/cluster-namespace":"`+grace.namespace+`"}}}`), false},
		"take the annotation off":        {ada.patchContinent("mu", `{"metadata":{"annotations":{"klutch.anynines.com/cluster-namespace":null}}}`), false},
		"take one that says nothing":     {ada.patchContinent("atlantis", `{"metadata":{"annotations":{"klutch.anynines.com/cluster-namespace":"`+ada.namespace+`"}}}`), false},
		"set a finalizer":                {ada.patchContinent("mu", `{"metadata":{"finalizers":["example.org/mine"]}}`), false},
		"set a label of Argo CD":         {ada.patchContinent("mu", `{"metadata":{"labels":{"argocd.argoproj.io/instance":"x"}}}`), false},
		"own it by the tenant namespace": {ada.patchContinent("mu", owner("Namespace", ada.namespace, own.UID, "")), true},
		"hold the tenant namespace up":   {ada.patchContinent("mu", owner("Namespace", ada.namespace, own.UID, `,"blockOwnerDeletion":true`)), false},
		"own it by another's namespace":  {ada.patchContinent("mu", owner("Namespace", grace.namespace, ns.UID, "")), false},
		"own it by something else":       {ada.patchContinent("mu", owner("Secret", "x", "x", "")), false},
		"write its status":               {ada.patchContinent("mu", `{"status":{"x":"y"}}`, "status"), false},
		"leave behind what it owns":      {objects.Delete(t.Context(), ada.namespace+"-mu", metav1.DeleteOptions{DryRun: dry, PropagationPolicy: new(metav1.DeletePropagationOrphan)}), false},
		"delete one's own":               {objects.Delete(t.Context(), ada.namespace+"-mu", metav1.DeleteOptions{DryRun: dry}), true},
		"delete another's":               {objects.Delete(t.Context(), theirs, metav1.DeleteOptions{DryRun: dry}), false},
		"delete the platform's":          {objects.Delete(t.Context(), "gondwana", metav1.DeleteOptions{DryRun: dry}), false},
		"delete one that says nothing":   {objects.Delete(t.Context(), ada.namespace+"-atlantis", metav1.DeleteOptions{DryRun: dry}), false},
		"delete all":                     {objects.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: dry}, metav1.ListOptions{}), false},
		"make one of a kind not bound":   {makeContinentOf(t, ada.dyn, "islands", strings.Replace(ada.continent(ada.namespace+"-x", ada.namespace), "Continent", "Island", 1)), false},
	} {
		if (deed.err == nil) != deed.hands || deed.err != nil && !apierrors.IsForbidden(deed.err) && !apierrors.IsInvalid(deed.err) {
			t.Errorf("%s: %v", what, deed.err)
		}
	}
	patch := []byte(`{"spec":{"size":2}}`)
	for what, write := range map[string]func() error{
		"patch": func() error {
			_, err := objects.Patch(t.Context(), theirs, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dry})
			return err
		},
		"update": func() error {
			u := must(objects.Get(t.Context(), theirs, metav1.GetOptions{}))
			u.Object["spec"] = map[string]any{"size": int64(2)}
			_, err := objects.Update(t.Context(), u, metav1.UpdateOptions{DryRun: dry})
			return err
		},
		"take over": func() error {
			u := must(objects.Get(t.Context(), theirs, metav1.GetOptions{}))
			u.SetAnnotations(map[string]string{v1alpha1.ClusterNamespaceAnnotation: ada.namespace})
			_, err := objects.Update(t.Context(), u, metav1.UpdateOptions{DryRun: dry})
			return err
		},
		"read a kind not bound": func() error {
			_, err := ada.dyn.Resource(widgets.GroupVersion().WithResource("islands")).List(t.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := write(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s another's: %v", what, err)
		}
	}
	prefixedBackend(w, ada)
}

// prefixedBackend: the backend's credential gives these rights to no other account, and deletes
// nothing of the platform's.
func prefixedBackend(w *world, ada *tenantClient) {
	w.t.Helper()
	bindings := metav1.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	gvr := continents
	gvr.Group, gvr.Version, gvr.Resource = bindings.Group, bindings.Version, "clusterrolebindings"
	made := must(w.dyn.Resource(gvr).Get(w.t.Context(), v1alpha1.PrefixedWriteRole+"continents.example.org:"+ada.namespace, metav1.GetOptions{}))
	backend := must(dynamic.NewForConfig(w.config))
	for what, change := range map[string][2]string{
		"to an account of another namespace": {ada.namespace, "kube-system"},
		"to another account":                 {`"name":"klutch-binder"`, `"name":"default"`},
		"of another role":                    {v1alpha1.PrefixedWriteRole + "continents.example.org", v1alpha1.TenantRole},
		"that outlives the tenant":           {`"ownerReferences"`, `"ignored"`},
	} {
		u := made.DeepCopy()
		u.SetResourceVersion("")
		u.SetUID("")
		text := string(must(u.MarshalJSON()))
		if !strings.Contains(text, change[0]) {
			w.t.Fatalf("%s: no %s in %s", what, change[0], text)
		}
		_, err := backend.Resource(gvr).Create(w.t.Context(), object(strings.ReplaceAll(text, change[0], change[1])), metav1.CreateOptions{DryRun: dry})
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			w.t.Errorf("the backend gives a right %s: %v", what, err)
		}
	}
	if err := backend.Resource(continents).Delete(w.t.Context(), "gondwana", metav1.DeleteOptions{DryRun: dry}); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		w.t.Errorf("the backend deletes an object of the platform: %v", err)
	}
	if err := backend.Resource(gvr).Delete(w.t.Context(), "cluster-admin", metav1.DeleteOptions{DryRun: dry}); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
		w.t.Errorf("the backend deletes a ClusterRoleBinding of Kubernetes: %v", err)
	}
}

func makeContinent(t *testing.T, dyn dynamic.Interface, text string) error {
	t.Helper()
	return makeContinentOf(t, dyn, "continents", text)
}

func makeContinentOf(t *testing.T, dyn dynamic.Interface, plural, text string) error {
	t.Helper()
	_, err := dyn.Resource(widgets.GroupVersion().WithResource(plural)).Create(t.Context(), object(text), metav1.CreateOptions{DryRun: dry})
	return err
}

func (c *tenantClient) patchContinent(name, patch string, sub ...string) error {
	c.w.t.Helper()
	_, err := c.dyn.Resource(continents).Patch(c.w.t.Context(), c.namespace+"-"+name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: dry}, sub...)
	return err
}

// TestPrefixedEnds: rights on a cluster-scoped API go with the offer, and its objects as the
// removal of their tenant says.
func TestPrefixedEnds(t *testing.T) {
	w := newStillWorld(t)
	w.tune = func(e *Exporter) { e.tenants.Opts.Pauses.NewKind = 40 * time.Second } // kube-controller-manager looks every 30
	w.switchOn()
	w.serve(Options{PrefixedAPIs: []string{"continents.example.org"}})
	patient, doomed, orphaned := w.settleContinent("ada", "c1"), w.settleContinent("ada", "c2"), w.settleContinent("grace", "c1")
	has := func(c *tenantClient) bool {
		t.Helper()
		_, err := w.dyn.Resource(continents).Get(t.Context(), c.namespace+"-mu", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	bound := func(c *tenantClient, want int) {
		t.Helper()
		w.eventually(fmt.Sprintf("%d cluster role bindings of %s", want, c.namespace), func(ctx context.Context) (bool, error) {
			list, err := w.admin.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.TenantLabel + "=" + c.namespace})
			return err == nil && len(list.Items) == want, err
		})
	}
	bound(doomed, 2)
	doomed.remove(t, v1alpha1.DeletionPolicyDelete)
	doomed.isGone(doomed.namespace)
	bound(doomed, 0)
	if has(doomed) {
		t.Error("Delete leaves the continent")
	}
	orphaned.remove(t, v1alpha1.DeletionPolicyOrphan)
	orphaned.isGone(orphaned.namespace)
	bound(orphaned, 0)
	if !has(orphaned) {
		t.Error("Orphan takes the continent")
	}

	// Without a policy it waits, and the tenant lets go.
	patient.remove(t, "")
	patient.awaitsRemoval(tenant.ReasonObjectsRemain, "continents.example.org are left in "+patient.namespace)
	w.apply(templateOf("continents")) // withdrawn
	until(w, "apiserviceexports", patient.namespace, "continents.example.org", func(o *v1alpha1.APIServiceExport) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionOffered)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonClusterScoped && strings.Contains(c.Message, "can be deleted")
	})
	bound(patient, 1)
	w.eventually("what is withdrawn cannot be made", func(context.Context) (bool, error) {
		return apierrors.IsForbidden(makeContinent(t, patient.dyn, patient.continent(patient.namespace+"-x", patient.namespace))), nil //nolint:contextcheck // that of the test
	})
	if err := patient.dyn.Resource(continents).Delete(t.Context(), patient.namespace+"-mu", metav1.DeleteOptions{}); err != nil {
		t.Errorf("what is withdrawn can be deleted: %v", err)
	}
	patient.isGone(patient.namespace)
}

// TestGateIsAskedOfPrefixed: while a gate is closed a tenant has no right to make cluster-scoped objects, and no event
// tells that it opens.
func TestGateIsAskedOfPrefixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locked atomic.Bool
		s := newSpacesOf(t, "prefixed", Options{ReviewInterval: 10 * time.Minute, PrefixedAPIs: []string{"continents.example.org"}, Gate: GateFunc(func(context.Context, Tenant) error {
			if locked.Load() {
				return fmt.Errorf("the account is %w", ErrGateClosed)
			}
			return nil
		})})
		s.put(tenant.ExportResource, s.tenant, object(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: continents.example.org},
			spec: {group: example.org, scope: Cluster, clusterScopedIsolation: Prefixed, names: {plural: continents, kind: Continent}}}`))
		time.Sleep(time.Minute)
		const read, write = v1alpha1.PrefixedReadRole + "continents.example.org", v1alpha1.PrefixedWriteRole + "continents.example.org"
		for range 2 {
			s.hasClusterWide(read, write)
			locked.Store(true)
			time.Sleep(15 * time.Minute)
			s.hasClusterWide(read)
			locked.Store(false)
			time.Sleep(30 * time.Second)
		}
	})
}

// hasClusterWide wants the tenant to have these roles in the whole cluster, and no other.
func (s *spaces) hasClusterWide(want ...string) {
	s.Helper()
	list, err := s.Client().Resource(clusterRoleBindings).List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	var has []string
	for _, b := range list.Items {
		role, _, _ := unstructured.NestedString(b.Object, "roleRef", "name")
		has = append(has, role)
	}
	slices.Sort(has)
	slices.Sort(want)
	if !slices.Equal(has, want) {
		s.Errorf("it has %q, and should have %q", has, want)
	}
}
