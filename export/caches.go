// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// caches are the informers that the controllers of tenants share. What they hold must
// not be changed.
type caches struct {
	kube kubernetes.Interface // for what they have not seen yet

	exports         cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExport]
	namespaces      cache.TypedSharedIndexInformer[*v1alpha1.APIServiceNamespace]
	clusterBindings cache.TypedSharedIndexInformer[*v1alpha1.ClusterBinding]
	// Of these only the metadata is kept:
	crds     cache.SharedIndexInformer
	owned    cache.SharedIndexInformer // tenant and service namespaces
	accounts cache.SharedIndexInformer // ServiceAccounts of tenants
	bindings cache.SharedIndexInformer // RoleBindings of tenants, in both kinds of namespaces
	roles    cache.SharedIndexInformer // Roles of tenants
	entries  cache.SharedIndexInformer // RoleBindings of the backend itself, in both kinds of namespaces
}

// namespace returns a namespace. What the cache has not seen yet is looked up.
func (c *caches) namespace(ctx context.Context, name string) (metav1.Object, error) {
	if ns, ok := stored(c.owned, name); ok {
		return ns, nil
	}
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// holderIn returns the holder of a tenant namespace that is there to stay.
func (c *caches) holderIn(ctx context.Context, namespace string) (holder, bool, error) {
	ns, err := c.namespace(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return holder{}, false, nil
	}
	if err != nil {
		return holder{}, false, err
	}
	h, ok := holderOf(ns)
	return h, ok && ns.GetDeletionTimestamp() == nil, nil
}

// leaving tells whether a tenant is about to lose its rights, or has lost them.
func (c *caches) leaving(tenant string) bool {
	binding, ok := lookup(c.clusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return ok && terminating(binding)
}

// lookup returns the object of that name from a cache. It must not be changed.
func lookup[T cache.Object](inf cache.TypedSharedIndexInformer[T], key cache.ObjectName) (o T, ok bool) {
	obj, _, _ := inf.GetStore().GetByKey(key.String())
	o, ok = obj.(T)
	return o, ok
}

// stored is lookup where only the metadata counts.
func stored(inf cache.SharedInformer, key string) (metav1.Object, bool) {
	obj, _, _ := inf.GetStore().GetByKey(key)
	o, ok := obj.(metav1.Object)
	return o, ok
}

// inNamespace returns all objects of a namespace from a cache, by name. They must
// not be changed.
func inNamespace[T cache.Object](inf cache.TypedSharedIndexInformer[T], namespace string) []T {
	all, _ := inf.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, namespace)
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// tenantKey is the tenant namespace that ns is, if it is one.
func tenantKey(ns metav1.Object) []cache.ObjectName {
	if ns.GetLabels()[v1alpha1.TenantLabel] != ns.GetName() {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName("", ns.GetName())}
}

// clusterBindingKey is the ClusterBinding of the tenant namespace that ns is, if it is
// one.
func clusterBindingKey(ns metav1.Object) []cache.ObjectName {
	if len(tenantKey(ns)) == 0 {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(ns.GetName(), v1alpha1.ClusterBindingName)}
}

// namespaceKey is the namespace of o.
func namespaceKey(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName("", o.GetNamespace())}
}

// namespacesOfTenant are the APIServiceNamespaces beside o.
func (c *caches) namespacesOfTenant(o metav1.Object) []cache.ObjectName {
	return c.namespacesIn(o.GetNamespace())
}

func (c *caches) namespacesIn(tenant string) (keys []cache.ObjectName) {
	for _, asked := range inNamespace(c.namespaces, tenant) {
		keys = append(keys, cache.MetaObjectToName(asked))
	}
	return keys
}

// namespacesKeys are the APIServiceNamespaces that a namespace of a tenant concerns:
// all of them if it is the tenant namespace.
func (c *caches) namespacesKeys(ns metav1.Object) []cache.ObjectName {
	if len(tenantKey(ns)) == 0 {
		return serviceNamespaceKey(ns)
	}
	return c.namespacesIn(ns.GetName())
}

// namespaceAround is the APIServiceNamespace for which the namespace of o was made.
func (c *caches) namespaceAround(o metav1.Object) []cache.ObjectName {
	ns, ok := stored(c.owned, o.GetNamespace())
	if !ok {
		return nil
	}
	return serviceNamespaceKey(ns)
}

// serviceNamespaceKey is the APIServiceNamespace for which ns was made.
func serviceNamespaceKey(ns metav1.Object) []cache.ObjectName {
	key, err := cache.ParseObjectName(ns.GetAnnotations()[v1alpha1.ServiceNamespaceAnnotation])
	if err != nil || key.Namespace == "" {
		return nil
	}
	return []cache.ObjectName{key}
}

// snapshot returns what the caches show of a tenant.
func (c *caches) snapshot(tenant string) (s snapshot) {
	if ns, ok := stored(c.owned, tenant); ok {
		s.namespace = ns.GetUID()
	}
	if binding, ok := stored(c.clusterBindings, tenant+"/"+v1alpha1.ClusterBindingName); ok {
		s.binding, s.anchor = binding.GetUID(), binding.GetAnnotations()[v1alpha1.AnchorAnnotation]
	}
	if account, ok := stored(c.accounts, tenant+"/"+v1alpha1.TenantServiceAccount); ok {
		s.account = account.GetResourceVersion()
	}
	if rights, ok := stored(c.bindings, tenant+"/"+v1alpha1.TenantServiceAccount); ok {
		s.rights = rights.GetResourceVersion()
	}
	if entry, ok := stored(c.entries, tenant+"/"+v1alpha1.BackendRoleBinding); ok {
		s.entry = entry.GetResourceVersion()
	}
	return s
}

// all are the informers, for whoever runs them.
func (c *caches) all() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.exports, c.namespaces, c.clusterBindings, c.crds, c.owned, c.accounts, c.bindings, c.roles, c.entries}
}
