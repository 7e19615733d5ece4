// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P20: a binding that was written by hand, or by GitOps, accepts all that a hostile
// platform claims, and the konnector has the rights. Still no roles, nodes or storage
// classes are touched, no Secrets by which clusters and tools work arrive, and no metadata
// that the claim does not name or that are switches of others.
func TestP20HostileClaims(t *testing.T) {
	w := newWorld(t)
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)), object("v1", "Namespace", "", "team", nil))
	w.offer(t, read(t, "testdata/widgets.yaml")[0])
	said := &record{}
	w.run(t, bind.Options{}, said.logger())
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	claim := func(group, resource, version string, more map[string]any) any {
		c := map[string]any{"group": group, "resource": resource, "version": version, "required": false, "state": "Accepted", "selector": map[string]any{"owner": "Provider"}}
		maps.Copy(c, more)
		return c
	}
	w.bind(t, widgets,
		claim("", "secrets", "v1", map[string]any{"update": map[string]any{
			"labels":      []any{map[string]any{"pattern": "tier"}, map[string]any{"pattern": "*"}, map[string]any{"pattern": "sidecar.istio.io/inject"}},
			"annotations": []any{map[string]any{"pattern": "example.org/*"}, map[string]any{"pattern": "reloader.stakater.com/match"}},
		}}),
		claim("", "configmaps", "v1", nil),
		claim("rbac.authorization.k8s.io", "roles", "v1", nil), claim("", "nodes", "v1", nil), claim("storage.k8s.io", "storageclasses", "v1", nil))
	w.allow(t, widgets)
	w.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	all := []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	service := w.serveNamespace(t, "team", append([]rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: all}, {APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles"}, Verbs: all},
	}, widgetRights...))
	w.condition(t, widgets, v1alpha1.ConditionClaimsInSync, v1alpha1.ReasonRefusedClaim,
		"The claim on roles.rbac.authorization.k8s.io was accepted and is refused all the same, since it gives rights",
		"nodes", "The claim on storageclasses.storage.k8s.io was accepted and is refused all the same, since it is cluster-scoped", "kubectl bind claims")

	typed := func(name, kind string) *unstructured.Unstructured {
		u := object("v1", "Secret", service, name, map[string]any{"type": kind, "stringData": map[string]any{"password": password}})
		u.SetLabels(map[string]string{"tier": "db", "grafana_dashboard": "1", "sidecar.istio.io/inject": "true", "argocd.argoproj.io/secret-type": "cluster"})
		u.SetAnnotations(map[string]string{"example.org/note": "n", "reloader.stakater.com/match": "true", "cert-manager.io/allow-direct-injection": "true"})
		return u
	}
	w.controlPlane.apply(t,
		object("rbac.authorization.k8s.io/v1", "Role", service, "planted", nil),
		typed("release", "helm.sh/release.v1"), typed("boot", "bootstrap.kubernetes.io/token"), typed("plain", "Opaque"), typed("tool", "example.net/tool"),
		object("v1", "ConfigMap", service, "last", map[string]any{"data": map[string]any{"a": "b"}}))
	w.travels(t, service, "one", "size", int64(6))
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "release"})
	for gvr, name := range map[schema.GroupVersionResource]string{secretsGVR: "plain", {Version: "v1", Resource: "configmaps"}: "last"} {
		eventually(t, func() error {
			_, err := w.app.dyn.Resource(gvr).Namespace("team").Get(t.Context(), name, metav1.GetOptions{})
			return err
		})
	}
	plain := get[unstructured.Unstructured](t, w.app, secretsGVR, "team", "plain")
	if diff := cmp.Diff([]string{"klutch.anynines.com/bound", "tier"}, slices.Sorted(maps.Keys(plain.GetLabels()))); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"example.org/note", "klutch.anynines.com/bound", "klutch.anynines.com/resource-owner", "klutch.anynines.com/source"}, slices.Sorted(maps.Keys(plain.GetAnnotations()))); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	// What comes last has arrived: what is not here by now was not copied.
	w.controlPlane.apply(t, typed("sentinel", "Opaque"))
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(secretsGVR).Namespace("team").Get(t.Context(), "sentinel", metav1.GetOptions{})
		return err
	})
	here, err := w.app.dyn.Resource(secretsGVR).Namespace("team").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range here.Items {
		names = append(names, u.GetName())
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"plain", "sentinel"}, names); diff != "" {
		t.Errorf("Secrets (-want +got):\n%s", diff)
	}
	roles := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	if _, err := w.app.dyn.Resource(roles).Namespace("team").Get(t.Context(), "planted", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a role was planted: %v", err)
	}
	w.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	said.mu.Lock()
	defer said.mu.Unlock()
	for _, name := range []string{"release", "boot", "tool"} {
		if n := said.records("related object refused", `"object":"`+service+"/"+name+`"`); n != 1 {
			t.Errorf("%d audit records of %s", n, name)
		}
	}
}

// A cluster-scoped API of the App Cluster can stand for a namespaced one of the Control Plane
// Cluster: its objects are in one service namespace of the tenant, whose rights are on service
// namespaces alone. An object of that name elsewhere is none of them.
func TestP12ClusterScopedForNamespaced(t *testing.T) {
	w := newWideWorld(t)
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export) // the Control Plane Cluster's API is namespaced
	spec := export.Object["spec"].(map[string]any)
	spec["scope"], spec["informerScope"], spec["clusterScopedIsolation"] = "Cluster", "Cluster", "Namespaced"
	if err := w.controlPlane.dyn.Resource(exportsGVR).Namespace(tenant).Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	export.SetNamespace(tenant)
	w.controlPlane.apply(t, export)
	w.setUp(t)
	w.bind(t, widgets)
	w.allow(t, widgets)
	stop := w.run(t, bind.Options{})
	w.ready(t, widgets)
	w.app.apply(t, widget("", "one", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, v1alpha1.Namespace, widgetRights)
	up := func() error {
		_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "one")
		return err
	}
	eventually(t, up)
	elsewhere := widget(tenant, "one", map[string]any{"size": int64(1)})
	w.controlPlane.apply(t, elsewhere)
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "s"})
	status := func(want string) {
		t.Helper()
		eventually(t, func() error {
			one := get[unstructured.Unstructured](t, w.app, widgetsGVR, "", "one")
			if got, _, _ := unstructured.NestedString(one.Object, "status", "secret"); got != want {
				return fmt.Errorf("status %q, message %v", got, one.GetAnnotations())
			}
			return nil
		})
	}
	status("s")
	uid := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "one").GetUID()
	stop()

	// After a restart all goes on with the same object, down to the deletion.
	w.run(t, bind.Options{})
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "t"})
	status("t")
	if again := get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "one").GetUID(); again != uid {
		t.Error("the object was made anew")
	}
	if err := w.app.dyn.Resource(widgetsGVR).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, w.app, widgetsGVR, "", "one") })
	if err := goneFrom(t, w.controlPlane, widgetsGVR, service, "one"); err != nil {
		t.Error(err)
	}
	get[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, tenant, "one")
}
