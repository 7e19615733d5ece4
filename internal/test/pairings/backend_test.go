// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A klutchBackend does in a Control Plane Cluster what Klutch's backend does there, with the
// rights of an administrator, as that has. It offers all that is in its map.
type klutchBackend struct {
	*side

	offers  map[string][]any // permission claims by the name of the CRD
	tenants []string
}

// bind makes what Klutch's backend makes when a person binds, and returns the kubeconfig.
func (b *klutchBackend) bind(t *testing.T, tenant, identity string) []byte {
	t.Helper()
	b.must(t, b.ensure(t.Context(), object("v1", "Namespace", "", tenant, nil), func(u *unstructured.Unstructured) {
		u.SetAnnotations(map[string]string{v1alpha1.IdentityAnnotation: identity})
	}))
	anchor := object("v1", "Secret", tenant, "klutch-binder", map[string]any{"type": string(corev1.SecretTypeServiceAccountToken)})
	anchor.SetAnnotations(map[string]string{corev1.ServiceAccountNameKey: "klutch-binder"})
	for _, u := range []*unstructured.Unstructured{
		object(v1alpha1.GroupVersion.String(), "ClusterBinding", tenant, "cluster", map[string]any{"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"name": "kubeconfig", "key": "kubeconfig"}, "providerPrettyName": "Klutch",
		}}),
		object("v1", "ServiceAccount", tenant, "klutch-binder", nil), anchor,
	} {
		b.must(t, b.ensure(t.Context(), u, nil))
	}
	var data []byte
	eventually(t, func(ctx context.Context) error {
		token, err := b.kube.CoreV1().Secrets(tenant).Get(ctx, "klutch-binder", metav1.GetOptions{})
		if err == nil && len(token.Data["token"]) == 0 {
			err = errors.New("the ServiceAccount has no token yet")
		}
		if err == nil {
			data, err = kubeconfigOf(b.Cluster, tenant, token)
		}
		return err
	})
	b.must(t, b.ensure(t.Context(), object("v1", "Secret", tenant, "kubeconfig", map[string]any{"data": map[string]any{"kubeconfig": base64Of(data)}}), nil))
	b.tenants = append(b.tenants, tenant)
	return data
}

func kubeconfigOf(c *cluster.Cluster, tenant string, token *corev1.Secret) ([]byte, error) {
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"default": {Server: c.URL(), CertificateAuthorityData: c.Config().CAData, TLSServerName: c.Config().ServerName}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"default": {Token: string(token.Data["token"])}},
		Contexts:       map[string]*clientcmdapi.Context{"default": {Cluster: "default", AuthInfo: "default", Namespace: tenant}},
		CurrentContext: "default",
	})
}

// pass does once what the controllers of Klutch's backend do at each event.
func (b *klutchBackend) pass(ctx context.Context) error {
	every := []any{"create", "delete", "patch", "update", "get", "list", "watch"}
	look := []any{"get", "watch", "list"}
	status := []any{"get", "patch", "update"}
	errs := []error{b.ensure(ctx, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-binder", map[string]any{"rules": []any{
		rule(v1alpha1.GroupVersion.Group, every, "apiserviceexportrequests", "apiservicenamespaces"), rule("", []any{"get"}, "namespaces"), rule("", look, "secrets"),
		rule(v1alpha1.GroupVersion.Group, look, "clusterbindings", "apiserviceexports"),
		rule(v1alpha1.GroupVersion.Group, status, "clusterbindings/status", "apiserviceexports/status"),
	}}), nil)}
	for _, tenant := range b.tenants {
		errs = append(errs, b.serve(ctx, tenant))
	}
	return errors.Join(errs...)
}

func (b *klutchBackend) serve(ctx context.Context, tenant string) error {
	if err := b.requests(ctx, tenant); err != nil {
		return err
	}
	exports, err := b.dyn.Resource(exportsGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	every := []any{"get", "list", "watch", "update", "patch", "delete", "create"}
	var rules []any
	for _, e := range exports.Items {
		rules = append(rules, rule(text(&e, "spec", "group"), every, text(&e, "spec", "names", "plural")))
		claims, _, _ := unstructured.NestedSlice(e.Object, "spec", "permissionClaims")
		for _, c := range claims {
			m, _ := c.(map[string]any)
			group, _ := m["group"].(string)
			rules = append(rules, rule(group, every, m["resource"]))
		}
	}
	ns, err := b.dyn.Resource(namespacesGVR).Get(ctx, tenant, metav1.GetOptions{})
	if err != nil {
		return err
	}
	role := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-binder-"+tenant, map[string]any{"rules": rules})
	yes := true
	role.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: tenant, UID: ns.GetUID(), Controller: &yes}})
	return errors.Join(
		b.ensure(ctx, role, func(u *unstructured.Unstructured) { u.Object["rules"] = rules }),
		b.ensure(ctx, granted("RoleBinding", tenant, tenant, "klutch-binder"), nil),
		b.ensure(ctx, granted("ClusterRoleBinding", "", tenant, role.GetName()), nil),
		b.namespaces(ctx, tenant))
}

// granted binds a ClusterRole to the account of a tenant.
func granted(kind, namespace, tenant, role string) *unstructured.Unstructured {
	name := "klutch-binder"
	if namespace == "" {
		name = role
	}
	return object("rbac.authorization.k8s.io/v1", kind, namespace, name, map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "name": "klutch-binder", "namespace": tenant}},
	})
}

func rule(group string, verbs []any, resources ...any) any {
	return map[string]any{"apiGroups": []any{group}, "resources": resources, "verbs": verbs}
}

// requests makes the exports that a tenant asks for.
func (b *klutchBackend) requests(ctx context.Context, tenant string) error {
	list, err := b.dyn.Resource(requestsGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range list.Items {
		if phase := text(&r, "status", "phase"); phase != "" && phase != "Pending" {
			continue
		}
		resources, _, _ := unstructured.NestedSlice(r.Object, "spec", "resources")
		for _, one := range resources {
			m, _ := one.(map[string]any)
			name := fmt.Sprintf("%s.%s", m["resource"], m["group"])
			claims, offered := b.offers[name]
			if !offered {
				return fmt.Errorf("%s is not on offer", name)
			}
			crd, err := b.dyn.Resource(crdsGVR).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := b.ensure(ctx, exportOf(crd, tenant, claims), nil); err != nil {
				return err
			}
		}
		done := `{"status":{"phase":"Succeeded","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-06-01T00:00:00Z"},{"type":"ExportsReady","status":"True","lastTransitionTime":"2026-06-01T00:00:00Z"}]}}`
		if _, err := b.dyn.Resource(requestsGVR).Namespace(tenant).Patch(ctx, r.GetName(), types.MergePatchType, []byte(done), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

func exportOf(crd *unstructured.Unstructured, tenant string, claims []any) *unstructured.Unstructured {
	was, _, _ := unstructured.NestedMap(crd.Object, "spec")
	spec := map[string]any{"informerScope": "Namespaced", "permissionClaims": claims}
	for _, field := range []string{"group", "names", "scope", "versions"} {
		spec[field] = was[field]
	}
	if spec["scope"] == "Cluster" {
		spec["informerScope"], spec["clusterScopedIsolation"] = "Cluster", "Prefixed"
	}
	export := object(v1alpha1.GroupVersion.String(), "APIServiceExport", tenant, crd.GetName(), map[string]any{"spec": spec})
	export.SetAnnotations(map[string]string{v1alpha1.SourceSpecHashAnnotation: "theirs"})
	return export
}

// namespaces makes the service namespaces that a tenant asks for.
func (b *klutchBackend) namespaces(ctx context.Context, tenant string) error {
	list, err := b.dyn.Resource(requestedGVR).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, asked := range list.Items {
		service := text(&asked, "status", "namespace")
		if service == "" {
			service = tenant + "-" + asked.GetName()
		}
		ns := object("v1", "Namespace", "", service, nil)
		ns.SetAnnotations(map[string]string{v1alpha1.ServiceNamespaceAnnotation: tenant + "/" + asked.GetName()})
		if err := errors.Join(b.ensure(ctx, ns, nil), b.ensure(ctx, granted("RoleBinding", service, tenant, "klutch-binder-"+tenant), nil)); err != nil {
			return err
		}
		if text(&asked, "status", "namespace") != "" {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"namespace": service}})
		if err != nil {
			return err
		}
		if _, err := b.dyn.Resource(requestedGVR).Namespace(tenant).Patch(ctx, asked.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// ensure creates an object, or has change change the one that is there.
func (s *side) ensure(ctx context.Context, u *unstructured.Unstructured, change func(*unstructured.Unstructured)) error {
	client := s.of(u)
	live, err := client.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if change != nil {
			change(u)
		}
		_, err = client.Create(ctx, u, metav1.CreateOptions{FieldManager: "example-backend"})
	case err == nil && change != nil:
		was := live.DeepCopy()
		if change(live); !same(was.Object, live.Object) {
			_, err = client.Update(ctx, live, metav1.UpdateOptions{FieldManager: "example-backend"})
		}
	}
	return err
}
