// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Caches are the informers that the controllers of tenants share. What they hold must
// not be changed.
type Caches struct {
	Kube kubernetes.Interface // for what they have not seen yet

	Exports         cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExport]
	Namespaces      cache.TypedSharedIndexInformer[*v1alpha1.APIServiceNamespace]
	ClusterBindings cache.TypedSharedIndexInformer[*v1alpha1.ClusterBinding]
	// Of these only the metadata is kept:
	CRDs     cache.SharedIndexInformer
	Owned    cache.SharedIndexInformer // tenant and service namespaces
	Accounts cache.SharedIndexInformer // ServiceAccounts of tenants
	Bindings cache.SharedIndexInformer // RoleBindings of tenants, in both kinds of namespaces
	Roles    cache.SharedIndexInformer // Roles of tenants
	Entries  cache.SharedIndexInformer // RoleBindings of the backend itself, in both kinds of namespaces
}

// namespace returns a namespace. What the cache has not seen yet is looked up.
func (c *Caches) namespace(ctx context.Context, name string) (metav1.Object, error) {
	if ns, ok := stored(c.Owned, name); ok {
		return ns, nil
	}
	ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// HolderIn returns the holder of a tenant namespace that is there to stay.
func (c *Caches) HolderIn(ctx context.Context, namespace string) (Holder, bool, error) {
	ns, err := c.namespace(ctx, namespace)
	if fates.Is(err, fates.Absent) {
		return Holder{}, false, nil
	}
	if err != nil {
		return Holder{}, false, err
	}
	h, ok := holderOf(ns)
	return h, ok && ns.GetDeletionTimestamp() == nil, nil
}

// IsForeign tells whether a namespace is no tenant's of ours, nor ever was: what is in it
// belongs to another backend, or to none.
func (c *Caches) IsForeign(ctx context.Context, namespace string) (bool, error) {
	ns, err := c.namespace(ctx, namespace)
	if fates.Is(err, fates.Absent) {
		return false, nil
	}
	return err == nil && ns.GetLabels()[v1alpha1.TenantLabel] == "" && ns.GetAnnotations()[v1alpha1.HolderAnnotation] == "", err
}

// Leaving tells whether a tenant is about to lose its rights, or has lost them.
func (c *Caches) Leaving(tenant string) bool {
	binding, ok := Lookup(c.ClusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	return ok && removalBegan(binding)
}

// Lookup returns the object of that name from a cache. It must not be changed.
func Lookup[T cache.Object](inf cache.TypedSharedIndexInformer[T], key cache.ObjectName) (o T, ok bool) {
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

// shows tells whether inf shows an object in the version that was written, or has not come
// as far yet: then the event of that version is still to come.
func shows(inf cache.SharedInformer, key, version string) bool {
	if o, ok := stored(inf, key); ok && o.GetResourceVersion() == version {
		return true
	}
	return watchstore.Newer(version, inf.LastSyncResourceVersion())
}

// inNamespace returns all objects of a namespace from a cache, by name. They must
// not be changed.
func inNamespace[T cache.Object](inf cache.TypedSharedIndexInformer[T], namespace string) []T {
	all, _ := inf.GetTypedIndexer().ByTypedIndex(cache.NamespaceIndex, namespace)
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// Key is the tenant namespace that ns is, if it is one.
func Key(ns metav1.Object) []cache.ObjectName {
	if ns.GetLabels()[v1alpha1.TenantLabel] != ns.GetName() {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName("", ns.GetName())}
}

// ClusterBindingKey is the ClusterBinding of the tenant namespace that ns is, if it is
// one.
func ClusterBindingKey(ns metav1.Object) []cache.ObjectName {
	if len(Key(ns)) == 0 {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName(ns.GetName(), v1alpha1.ClusterBindingName)}
}

// NamespaceKey is the namespace of o.
func NamespaceKey(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName("", o.GetNamespace())}
}

// NamespacesOfTenant are the APIServiceNamespaces beside o.
func (c *Caches) NamespacesOfTenant(o metav1.Object) []cache.ObjectName {
	return c.namespacesIn(o.GetNamespace())
}

// ServiceNamespaces returns the names of a tenant's service namespaces.
func (c *Caches) ServiceNamespaces(tenant string) (names []string) {
	for _, asked := range inNamespace(c.Namespaces, tenant) {
		if asked.Status.Namespace != "" {
			names = append(names, asked.Status.Namespace)
		}
	}
	return names
}

// hasServiceNamespace reports whether the service namespace of asked is there, as far as the cache of
// namespaces shows: the status of asked, which another cache shows, may be older.
func (c *Caches) hasServiceNamespace(asked *v1alpha1.APIServiceNamespace) bool {
	ns, ok := stored(c.Owned, serviceNamespaceName(asked.Namespace, asked.Name))
	return ok && ns.GetDeletionTimestamp() == nil
}

func (c *Caches) namespacesIn(tenant string) (keys []cache.ObjectName) {
	for _, asked := range inNamespace(c.Namespaces, tenant) {
		keys = append(keys, cache.MetaObjectToName(asked))
	}
	return keys
}

// NamespacesKeys are the APIServiceNamespaces that a namespace of a tenant concerns:
// All of them if it is the tenant namespace.
func (c *Caches) NamespacesKeys(ns metav1.Object) []cache.ObjectName {
	if len(Key(ns)) == 0 {
		return serviceNamespaceKey(ns)
	}
	return c.namespacesIn(ns.GetName())
}

// ExportsOfAdopted are the exports of an adopted tenant, which are older than it is ours.
func (c *Caches) ExportsOfAdopted(ns metav1.Object) (keys []cache.ObjectName) {
	if ns.GetAnnotations()[v1alpha1.AdoptedAnnotation] != "" {
		for _, export := range inNamespace(c.Exports, ns.GetName()) {
			keys = append(keys, cache.NewObjectName(export.Namespace, export.Name))
		}
	}
	return keys
}

// ExportsOfSilent are the exports of a tenant that do not say yet that its konnector should have
// reported and has not, or say so still.
func (c *Caches) ExportsOfSilent(binding metav1.Object) (keys []cache.ObjectName) {
	silent := len(c.Silence(binding.GetNamespace())) > 0
	for _, export := range inNamespace(c.Exports, binding.GetNamespace()) {
		said := v1alpha1.FindCondition(export.Status.Conditions, v1alpha1.ConditionConnected)
		if silent != (said != nil && said.Reason == v1alpha1.ReasonFirstHeartbeatPending) {
			keys = append(keys, cache.NewObjectName(export.Namespace, export.Name))
		}
	}
	return keys
}

// Silence says of the exports of a tenant, in the place of its konnector, that this has never
// reported; it is empty where that is not so, or it is too early to tell.
func (c *Caches) Silence(tenant string) []v1alpha1.Condition {
	binding, ok := Lookup(c.ClusterBindings, cache.NewObjectName(tenant, v1alpha1.ClusterBindingName))
	if !ok {
		return nil
	}
	health := v1alpha1.FindCondition(binding.Status.Conditions, v1alpha1.ConditionHealthy)
	if health == nil || health.Reason != v1alpha1.ReasonFirstHeartbeatPending || health.Severity != v1alpha1.SeverityWarning {
		return nil
	}
	return []v1alpha1.Condition{v1alpha1.False(v1alpha1.ConditionConnected, health.Severity, health.Reason, health.Message)}
}

// NamespaceAround is the APIServiceNamespace for which the namespace of o was made.
func (c *Caches) NamespaceAround(o metav1.Object) []cache.ObjectName {
	ns, ok := stored(c.Owned, o.GetNamespace())
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
func (c *Caches) snapshot(tenant string) (s snapshot) {
	if ns, ok := stored(c.Owned, tenant); ok {
		s.namespace, s.klutchs = ns.GetUID(), ns.GetLabels()[v1alpha1.KlutchKonnectorLabel]
	}
	if binding, ok := stored(c.ClusterBindings, tenant+"/"+v1alpha1.ClusterBindingName); ok {
		s.binding, s.anchor = binding.GetUID(), binding.GetAnnotations()[v1alpha1.AnchorAnnotation]
	}
	if account, ok := stored(c.Accounts, tenant+"/"+v1alpha1.TenantServiceAccount); ok {
		s.account = account.GetResourceVersion()
	}
	if rights, ok := stored(c.Bindings, tenant+"/"+v1alpha1.TenantRoleBinding); ok {
		s.rights = rights.GetResourceVersion()
	}
	if entry, ok := stored(c.Entries, tenant+"/"+v1alpha1.BackendRoleBinding); ok {
		s.entry = entry.GetResourceVersion()
	}
	return s
}

// All returns the informers, to be run.
func (c *Caches) All() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.Exports, c.Namespaces, c.ClusterBindings, c.CRDs, c.Owned, c.Accounts, c.Bindings, c.Roles, c.Entries}
}

// removalBegan tells whether a tenant is being removed. Without a policy it goes on as
// before until nothing of it is left. Its status is no evidence, since it writes there.
func removalBegan(binding *v1alpha1.ClusterBinding) bool {
	return binding.DeletionTimestamp != nil && (hasPolicy(binding) || metav1.HasAnnotation(binding.ObjectMeta, v1alpha1.DrainingAnnotation))
}

// hasPolicy tells whether a deletion policy says what becomes of the objects of a tenant. A policy that
// this backend does not know, as the CRD of a newer backend may admit, counts as none.
func hasPolicy(binding *v1alpha1.ClusterBinding) bool {
	p := binding.Spec.DeletionPolicy
	return p == v1alpha1.DeletionPolicyDelete || p == v1alpha1.DeletionPolicyOrphan
}

// A snapshot is what the caches show of a tenant that tells whether something of it may
// be missing.
type snapshot struct {
	namespace, binding     types.UID
	klutchs                string // the value of its label
	anchor                 string // that the last login made
	account, rights, entry string // their versions
}
