// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func rightChecks() []check {
	return []check{
		{"what a konnector needs", "WIRE 3.4, 11.8", checkNeeded},
		{"objects in a service namespace", "WIRE 3.8", checkObjects},
		{"nothing in the whole cluster", "P12", checkClusterWide},
		{"nothing in namespaces of the platform", "P12", func(c checker) {
			nothingIn(c, c.tenant(c.one), "default", "kube-system", "kube-public", "klutch-backend")
		}},
		{"no right to give itself rights", "P12", checkEscalation},
		{"no ClusterRoleBinding names a tenant", "P12", checkClusterRoleBindings},
	}
}

// A right is an entry of a role. An empty namespace is the whole cluster.
type right struct{ namespace, verb, group, resource, name string }

func (c checker) may(ctx context.Context, t *tenant, r right) bool {
	c.Helper()
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
		Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: r.resource, Name: r.name,
	}}}
	got, err := t.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	c.must("ask what a tenant may do", err)
	return got.Status.Allowed
}

var writes = []string{"create", "update", "patch", "delete"}

func everything() []string { return append([]string{"get", "list", "watch"}, writes...) }

// needed are the rights without which a konnector cannot work.
func needed(c checker, t *tenant) []right {
	c.Helper()
	mirror, err := t.mirror()
	c.must("the service namespace", err)
	rights := []right{
		{t.namespace, "get", "", "namespaces", t.namespace},
		{t.namespace, "get", "", "secrets", v1alpha1.KubeconfigSecretName},
	}
	add := func(namespace, group, resource string, verbs ...string) {
		for _, verb := range verbs {
			rights = append(rights, right{namespace, verb, group, resource, ""})
		}
	}
	ours := v1alpha1.GroupVersion.Group
	add(t.namespace, ours, "apiserviceexports", "get", "list", "watch")
	add(t.namespace, ours, "apiserviceexports/status", "patch", "update")
	add(t.namespace, ours, "apiserviceexportrequests", "get", "list", "watch", "create")
	add(t.namespace, ours, "clusterbindings", "get", "list", "watch")
	add(t.namespace, ours, "clusterbindings/status", "patch", "update")
	add(t.namespace, ours, "apiservicenamespaces", "get", "list", "watch", "create", "delete")
	add(mirror, c.service.Group, c.service.Resource, everything()...)
	return rights
}

func checkNeeded(c checker) {
	t := c.tenant(c.one)
	c.export()
	for _, r := range needed(c, t) {
		if !c.eventually(c.Context(), func(ctx context.Context) bool { return c.may(ctx, t, r) }) {
			c.violated("a tenant may not %s %s in %s", r.verb, r.resource, r.namespace)
		}
	}
}

// objects are those of the service in a namespace.
func (c checker) objects(t *tenant, namespace string) dynamic.ResourceInterface {
	c.Helper()
	return t.dyn.Resource(schema.GroupVersionResource{
		Group: c.service.Group, Version: c.export().Spec.Versions[0].Name, Resource: c.service.Resource,
	}).Namespace(namespace)
}

func checkObjects(c checker) {
	t := c.tenant(c.one)
	mirror, err := t.mirror()
	c.must("the service namespace", err)
	objects := c.objects(t, mirror)
	if !c.eventually(c.Context(), func(ctx context.Context) bool {
		_, err = objects.List(ctx, metav1.ListOptions{})
		return err == nil
	}) {
		c.violated("list %s in %s: %v", c.Service, mirror, err)
	}
	if c.Object == nil {
		c.Skip("Options.Object is nil")
	}
	object := c.Object.DeepCopy()
	object.SetName("conformance")
	object.SetNamespace(mirror)
	_, err = objects.Create(c.Context(), object, metav1.CreateOptions{})
	if !fates.Is(err, fates.None, fates.Exists) {
		c.violated("create one of %s: %v", c.Service, err)
	}
	if err := objects.Delete(c.Context(), object.GetName(), metav1.DeleteOptions{}); err != nil {
		c.violated("delete it: %v", err)
	}
}

// tempting are resources that a tenant has no business with outside its namespaces.
func tempting(c checker) []schema.GroupResource {
	const rbac = "rbac.authorization.k8s.io"
	return []schema.GroupResource{
		c.service,
		{Resource: "secrets"},
		{Resource: "configmaps"},
		{Resource: "pods"},
		{Resource: "serviceaccounts"},
		{Resource: "serviceaccounts/token"},
		{Group: rbac, Resource: "roles"},
		{Group: rbac, Resource: "rolebindings"},
		v1alpha1.Resource("apiserviceexports").GroupResource(),
		v1alpha1.Resource("apiserviceexportrequests").GroupResource(),
		v1alpha1.Resource("apiservicenamespaces").GroupResource(),
		v1alpha1.Resource("clusterbindings").GroupResource(),
	}
}

// nothingIn fails if a tenant may do anything in one of the namespaces.
func nothingIn(c checker, t *tenant, namespaces ...string) {
	c.Helper()
	for _, namespace := range namespaces {
		for _, resource := range tempting(c) {
			for _, verb := range everything() {
				if c.may(c.Context(), t, right{namespace, verb, resource.Group, resource.Resource, ""}) {
					c.violated("tenant %s may %s %s in namespace %q", t.namespace, verb, resource, namespace)
				}
			}
		}
	}
}

func checkClusterWide(c checker) {
	t := c.tenant(c.one)
	nothingIn(c, t, metav1.NamespaceAll)
	for _, r := range []right{
		{"", "list", "", "namespaces", ""},
		{"", "create", "", "namespaces", ""},
		{"", "get", "", "nodes", ""},
		{"", "create", "rbac.authorization.k8s.io", "clusterrolebindings", ""},
		{"", "list", "apiextensions.k8s.io", "customresourcedefinitions", ""},
		{"", "list", v1alpha1.GroupVersion.Group, "apiserviceexporttemplates", ""},
	} {
		if c.may(c.Context(), t, r) {
			c.violated("tenant %s may %s %s", t.namespace, r.verb, r.resource)
		}
	}
}

func checkEscalation(c checker) {
	t := c.tenant(c.one)
	mirror, err := t.mirror()
	c.must("the service namespace", err)
	const rbac = "rbac.authorization.k8s.io"
	for _, namespace := range []string{t.namespace, mirror} {
		for _, resource := range []schema.GroupResource{
			{Group: rbac, Resource: "roles"},
			{Group: rbac, Resource: "rolebindings"},
			{Resource: "serviceaccounts"},
			{Resource: "serviceaccounts/token"},
			{Resource: "pods"},
			v1alpha1.Resource("apiserviceexports").GroupResource(),
			v1alpha1.Resource("clusterbindings").GroupResource(),
		} {
			for _, verb := range writes {
				if c.may(c.Context(), t, right{namespace, verb, resource.Group, resource.Resource, ""}) {
					c.violated("a tenant may %s %s in its own namespace %s", verb, resource, namespace)
				}
			}
		}
	}
}

func checkClusterRoleBindings(c checker) {
	if c.ControlPlane == nil {
		c.Skip("Options.ControlPlane is nil")
	}
	t := c.tenant(c.one)
	c.export()
	kube, err := kubernetes.NewForConfig(c.ControlPlane)
	c.must("client of the Control Plane Cluster", err)
	bindings, err := kube.RbacV1().ClusterRoleBindings().List(c.Context(), metav1.ListOptions{})
	c.must("list ClusterRoleBindings", err)
	for _, b := range bindings.Items {
		for _, s := range b.Subjects {
			if s.Namespace == t.namespace {
				c.violated("ClusterRoleBinding %s names %s %s of tenant %s", b.Name, s.Kind, s.Name, t.namespace)
			}
		}
	}
}
