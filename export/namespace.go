// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	namespaceRetry = 15 * time.Second // where no event tells
)

// Reasons of Ready on an APIServiceNamespace.
const (
	reasonNotATenant    = "NotATenant"
	reasonNameInvalid   = "NameInvalid"
	reasonNameTaken     = "NameTaken"
	reasonTerminating   = "Terminating"
	reasonObjectsRemain = "ObjectsRemain"
)

// reconcileNamespace gives a tenant the service namespace that it asks for, with
// the rights of its exports, and takes it away when nothing is left in it.
func (c *control) reconcileNamespace(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	asked, ok := lookup(c.namespaces, key)
	if !ok {
		return 0, nil
	}
	if asked.DeletionTimestamp != nil {
		return c.removeNamespace(ctx, asked)
	}
	if _, ok := c.removing(key.Namespace); ok {
		return 0, nil // it is about to be deleted
	}
	if !slices.Contains(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer) {
		return 0, c.setFinalizers(ctx, namespaceResource, asked, append(slices.Clone(asked.Finalizers), v1alpha1.ServiceNamespaceFinalizer))
	}
	name := serviceNamespaceName(key.Namespace, key.Name)
	again, err := c.provideNamespace(ctx, name, asked)
	if condition, ok := blocked(err); ok {
		return namespaceRetry, c.writeNamespaceStatus(ctx, asked, condition, asked.Status.Namespace)
	}
	if err != nil {
		return 0, err
	}
	return again, c.writeNamespaceStatus(ctx, asked, v1alpha1.True(v1alpha1.ConditionReady), name)
}

// provideNamespace makes a service namespace, its caps and the rights in it.
func (c *control) provideNamespace(ctx context.Context, name string, asked *v1alpha1.APIServiceNamespace) (again time.Duration, err error) {
	h, ok, err := c.holderIn(ctx, asked.Namespace)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, &refusal{reason: reasonNotATenant, message: fmt.Sprintf("namespace %s %s", asked.Namespace, errNoRecord)}
	}
	if problems := validation.IsDNS1123Label(asked.Name); len(problems) > 0 {
		return 0, &refusal{reason: reasonNameInvalid, message: fmt.Sprintf("%q is not the name of a namespace", asked.Name)}
	}
	closed := c.admitted(ctx, asked.Namespace)
	if closed != nil && (asked.Status.Namespace == "" || !errors.Is(closed, ErrGateClosed)) {
		return 0, closed
	}
	if err := c.capNamespaces(asked); err != nil {
		return 0, err
	}
	labels := h.labels()
	labels[v1alpha1.AppNamespaceLabel] = asked.Name
	if err := c.ensureNamespace(ctx, name, asked.Namespace, serviceAnnotations(asked), labels); err != nil {
		return 0, err
	}
	if err := c.enter(ctx, name, v1alpha1.BackendOfferRole); err != nil {
		return 0, err
	}
	exports := inNamespace(c.exports, asked.Namespace)
	if err := c.noteExports(ctx, name, exports); err != nil {
		return 0, err
	}
	if again, err = c.capObjects(ctx, name, rules(exports)); err != nil {
		return 0, err
	}
	used, withdrawn := inForce(exports)
	if closed != nil { // again
		used, withdrawn = nil, exports
	}
	return again, errors.Join(closed, c.ensureRights(ctx, name, asked.Namespace, rules(used, withdrawn...)))
}

func serviceAnnotations(asked metav1.Object) map[string]string {
	return map[string]string{v1alpha1.ServiceNamespaceAnnotation: asked.GetNamespace() + "/" + asked.GetName()}
}

// blocked tells what waits for somebody else from what only we can cure: it returns
// whether err is of the first kind, and then the condition that says so.
func blocked(err error) (v1alpha1.Condition, bool) {
	not := func(reason, message string) (v1alpha1.Condition, bool) {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, reason, message), true
	}
	if refused := asRefusal(err); refused != nil {
		return not(refused.reason, refused.message)
	}
	switch {
	case errors.Is(err, ErrGateClosed):
		return not(v1alpha1.ReasonGateClosed, err.Error())
	case errors.Is(err, errForeign):
		return not(reasonNameTaken, err.Error())
	case errors.Is(err, errTerminating):
		return not(reasonTerminating, err.Error())
	}
	return v1alpha1.Condition{}, false
}

func (c *control) writeNamespaceStatus(ctx context.Context, seen *v1alpha1.APIServiceNamespace, condition v1alpha1.Condition, name string) error {
	condition.ObservedGeneration = seen.Generation
	return status.Write(ctx, c.dyn.Resource(namespaceResource).Namespace(seen.Namespace), seen, func(o *v1alpha1.APIServiceNamespace) {
		o.Status.Namespace = name
		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, condition)
	})
}

// noteExports remembers on a service namespace what its tenant could ever make in
// it, so that nothing is overlooked when the namespace is to go.
func (c *control) noteExports(ctx context.Context, name string, exports []*v1alpha1.APIServiceExport) error {
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read namespace %s: %w", name, err)
	}
	noted := exported(ns)
	all := slices.Clone(noted)
	for _, export := range exports {
		all = append(all, export.Name)
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == len(noted) {
		return nil
	}
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.ExportedAnnotation, strings.Join(all, ","))
	if _, err := c.kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate namespace %s: %w", name, err)
	}
	return nil
}

func exported(ns *corev1.Namespace) []string {
	return slices.DeleteFunc(strings.Split(ns.Annotations[v1alpha1.ExportedAnnotation], ","), func(name string) bool { return name == "" })
}

// removeNamespace deletes a service namespace in which no object of an exported API
// is left, and lets go of asked when it is gone.
func (c *control) removeNamespace(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	i := slices.Index(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer)
	if i < 0 {
		return 0, nil
	}
	ns, err := c.kube.CoreV1().Namespaces().Get(ctx, serviceNamespaceName(asked.Namespace, asked.Name), metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return 0, fmt.Errorf("read service namespace: %w", err)
	}
	if err != nil || errors.Is(owned(ns, asked.Namespace, serviceAnnotations(asked)), errForeign) {
		return 0, c.setFinalizers(ctx, namespaceResource, asked, slices.Delete(slices.Clone(asked.Finalizers), i, i+1))
	}
	if ns.DeletionTimestamp != nil {
		return namespaceRetry, nil
	}
	if _, err := c.meta.Resource(namespaceResource).Namespace(asked.Namespace).Get(ctx, asked.Name, metav1.GetOptions{}); err != nil {
		return 0, ignoreNotFound(err) // the cache is behind, and the backend does not enter again what it has left
	}
	kept, err := c.endNamespace(ctx, ns, asked.Namespace)
	if kept && err == nil {
		return 0, c.setFinalizers(ctx, namespaceResource, asked, slices.Delete(slices.Clone(asked.Finalizers), i, i+1))
	}
	if condition, ok := blocked(err); ok {
		return namespaceRetry, c.writeNamespaceStatus(ctx, asked, condition, asked.Status.Namespace)
	}
	return namespaceRetry, err
}

// deleteEmpty deletes a service namespace. Its tenant loses its rights there before
// the last look, so that nothing can come in between.
func (c *control) deleteEmpty(ctx context.Context, ns *corev1.Namespace) error {
	if err := c.checkEmpty(ctx, ns); err != nil {
		return err
	}
	if err := c.takeRights(ctx, ns.Name); err != nil {
		return err
	}
	if err := c.checkEmpty(ctx, ns); err != nil {
		return err
	}
	if err := c.deleteNamespace(ctx, ns); err != nil {
		return err
	}
	audit(ctx, "service namespace deleted", "tenant", ns.Labels[v1alpha1.TenantLabel], "namespace", ns.Name)
	return nil
}

// checkEmpty returns a *refusal if ns holds an object of an API that was ever
// exported to its tenant.
func (c *control) checkEmpty(ctx context.Context, ns *corev1.Namespace) error {
	for _, name := range exported(ns) {
		count, err := c.count(ctx, name, ns.Name)
		switch {
		case apierrors.IsForbidden(err):
			return &refusal{reason: reasonObjectsRemain, message: fmt.Sprintf("the backend may not see whether %s are left in %s", name, ns.Name)}
		case err != nil:
			return err
		case count > 0:
			return &refusal{reason: reasonObjectsRemain, message: fmt.Sprintf("%s are left in %s", name, ns.Name)}
		}
	}
	return nil
}

// count returns how many objects of a CRD are in a namespace, one of them at most.
// Without the CRD there is none.
func (c *control) count(ctx context.Context, crd, namespace string) (int, error) {
	gvr, err := c.resourceOf(ctx, crd)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	list, err := c.meta.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("list %s in %s: %w", crd, namespace, err)
	}
	return len(list.Items), nil
}

// resourceOf returns the resource of a CRD in a version that is served.
func (c *control) resourceOf(ctx context.Context, crd string) (schema.GroupVersionResource, error) {
	p, err := c.publication(ctx, crd)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return schema.GroupVersionResource{Group: p.spec.Group, Version: p.spec.Versions[0].Name, Resource: p.spec.Names.Plural}, nil
}

func (c *control) setFinalizers(ctx context.Context, gvr schema.GroupVersionResource, o metav1.Object, finalizers []string) error {
	err := c.patch(ctx, gvr, o, map[string]any{"finalizers": finalizers}, nil)
	if ignoreNotFound(err) != nil {
		return fmt.Errorf("set finalizers of %s: %w", o.GetName(), err)
	}
	return nil
}

// patch merges metadata, and a spec if there is one, into an object that is still as
// it was seen.
func (c *control) patch(ctx context.Context, gvr schema.GroupVersionResource, seen metav1.Object, metadata, spec map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = seen.GetUID(), seen.GetResourceVersion()
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	data, err := json.Marshal(change)
	if err == nil {
		_, err = c.dyn.Resource(gvr).Namespace(seen.GetNamespace()).Patch(ctx, seen.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
	}
	return err
}

// namespacesOfTenant are the APIServiceNamespaces beside o.
func (c *control) namespacesOfTenant(o metav1.Object) []cache.ObjectName {
	return c.namespacesIn(o.GetNamespace())
}

func (c *control) namespacesIn(tenant string) (keys []cache.ObjectName) {
	for _, asked := range inNamespace(c.namespaces, tenant) {
		keys = append(keys, cache.MetaObjectToName(asked))
	}
	return keys
}

// namespacesKeys are the APIServiceNamespaces that a namespace of a tenant concerns:
// all of them if it is the tenant namespace.
func (c *control) namespacesKeys(ns metav1.Object) []cache.ObjectName {
	if len(tenantKey(ns)) == 0 {
		return serviceNamespaceKey(ns)
	}
	return c.namespacesIn(ns.GetName())
}

// namespaceAround is the APIServiceNamespace for which the namespace of o was made.
func (c *control) namespaceAround(o metav1.Object) []cache.ObjectName {
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
