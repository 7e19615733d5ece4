// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	namespaceRetry = 15 * time.Second // where no event tells
)

// Reasons of Ready on an APIServiceNamespace.
const (
	ReasonNotATenant  = "NotATenant"
	reasonNameInvalid = "NameInvalid"
	reasonNameTaken   = "NameTaken"
	reasonTerminating = "Terminating"
	reasonRefused     = "Refused" // by an API server
)

// longestReason keeps what API servers say from filling conditions, in bytes.
const longestReason = 1024

// serviceNamespaces mirror namespaces of App Clusters.
type serviceNamespaces struct {
	Clients

	opts     *Options
	tenants  *Tenants
	caches   *Caches
	gates    *gates
	quotas   *quotas
	contents *contents
	breaker  *breaker
}

// Reconcile gives a tenant the service namespace that it asks for, with
// the rights of its exports, and takes it away when nothing is left in it.
func (n *serviceNamespaces) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	asked, ok := Lookup(n.caches.Namespaces, key)
	if !ok {
		return 0, nil
	}
	if foreign, err := n.caches.IsForeign(ctx, key.Namespace); foreign || err != nil {
		return 0, errors.Join(err, n.letGo(ctx, asked))
	}
	if asked.DeletionTimestamp != nil {
		return n.remove(ctx, asked)
	}
	if _, ok := n.breaker.removing(key.Namespace); ok {
		return 0, nil // it is about to be deleted
	}
	if !slices.Contains(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer) {
		return 0, n.setFinalizers(ctx, NamespaceResource, asked, append(slices.Clone(asked.Finalizers), v1alpha1.ServiceNamespaceFinalizer))
	}
	name := serviceNamespaceName(key.Namespace, key.Name)
	again, err := n.provide(ctx, name, asked)
	if condition, ok := blocked(err); ok {
		return namespaceRetry, n.writeStatus(ctx, asked, condition, asked.Status.Namespace)
	}
	if fates.IsRefused(err) {
		said := fmt.Sprintf("the platform's API server %s it: %s", fates.Of(err).Word(), text.Clip(err.Error(), longestReason))
		return 0, errors.Join(err, n.writeStatus(ctx, asked, v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, reasonRefused, said), asked.Status.Namespace))
	}
	if err != nil {
		return 0, err
	}
	return again, n.writeStatus(ctx, asked, v1alpha1.True(v1alpha1.ConditionReady), name)
}

// letGo removes the marks that earlier versions put on foreign namespaces.
func (n *serviceNamespaces) letGo(ctx context.Context, asked *v1alpha1.APIServiceNamespace) error {
	if i := slices.Index(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer); i >= 0 {
		return n.setFinalizers(ctx, NamespaceResource, asked, slices.Delete(slices.Clone(asked.Finalizers), i, i+1))
	}
	ours := func(c v1alpha1.Condition) bool { return c.Reason == ReasonNotATenant }
	if !slices.ContainsFunc(asked.Status.Conditions, ours) {
		return nil
	}
	return status.Write(ctx, n.Dyn.Resource(NamespaceResource).Namespace(asked.Namespace), asked, func(o *v1alpha1.APIServiceNamespace) {
		o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, ours)
	})
}

// provide makes a service namespace, its caps and the rights in it.
func (n *serviceNamespaces) provide(ctx context.Context, name string, asked *v1alpha1.APIServiceNamespace) (again time.Duration, err error) {
	h, ok, err := n.caches.HolderIn(ctx, asked.Namespace)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, Refuse(ReasonNotATenant, fmt.Sprintf("namespace %s %s", asked.Namespace, errNoRecord))
	}
	if problems := validation.IsDNS1123Label(asked.Name); len(problems) > 0 {
		return 0, Refuse(reasonNameInvalid, fmt.Sprintf("%q is not the name of a namespace", asked.Name))
	}
	closed := n.gates.whyClosed(ctx, asked.Namespace)
	if closed != nil && (asked.Status.Namespace == "" || !errors.Is(closed, ErrGateClosed)) {
		return 0, closed
	}
	if err := n.capped(asked); err != nil {
		return 0, err
	}
	labels := h.labels()
	labels[v1alpha1.AppNamespaceLabel] = asked.Name
	ns, err := n.caches.namespace(ctx, asked.Namespace)
	if err == nil && (ns.GetAnnotations()[v1alpha1.AdoptedAnnotation] != "" || n.opts.Adopt(asked.Namespace)) { // a backend of Klutch's beside this one serves ours too
		if err := n.tenants.adoptService(ctx, name, asked.Namespace, serviceAnnotations(asked), labels); err != nil {
			return 0, err
		}
	}
	if err := n.tenants.ensureNamespace(ctx, name, asked.Namespace, serviceAnnotations(asked), labels); err != nil {
		return 0, err
	}
	if err := n.tenants.Rights.Enter(ctx, name, v1alpha1.BackendOfferRole); err != nil {
		return 0, err
	}
	exports := inNamespace(n.caches.Exports, asked.Namespace)
	if err := n.noteExports(ctx, name, slices.DeleteFunc(slices.Clone(exports), IsPrefixed)); err != nil {
		return 0, err
	}
	if again, err = n.quotas.capObjects(ctx, name, Rules(exports)); err != nil {
		return 0, err
	}
	used, withdrawn := InForce(exports)
	if closed != nil { // again
		used, withdrawn = nil, exports
	}
	rules := Rules(used, withdrawn...)
	if ns, err := n.caches.namespace(ctx, asked.Namespace); err == nil && n.opts.klutchKonnector(ns) {
		rules = withAnnotations(rules)
	}
	return again, errors.Join(closed, n.tenants.Rights.ensure(ctx, name, asked.Namespace, rules))
}

func serviceAnnotations(asked metav1.Object) map[string]string {
	return map[string]string{v1alpha1.ServiceNamespaceAnnotation: asked.GetNamespace() + "/" + asked.GetName()}
}

// blocked tells whether err is cured by the tenant or the platform team and not by a
// retry, and then returns the condition that says so.
func blocked(err error) (v1alpha1.Condition, bool) {
	not := func(reason, message string) (v1alpha1.Condition, bool) {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, reason, message), true
	}
	if refused := AsRefusal(err); refused != nil {
		return not(refused.Reason, refused.Message)
	}
	switch {
	case errors.Is(err, ErrGateClosed):
		return not(v1alpha1.ReasonGateClosed, err.Error())
	case errors.Is(err, ErrForeign):
		return not(reasonNameTaken, err.Error())
	case errors.Is(err, ErrTerminating):
		return not(reasonTerminating, err.Error())
	}
	return v1alpha1.Condition{}, false
}

func (n *serviceNamespaces) writeStatus(ctx context.Context, seen *v1alpha1.APIServiceNamespace, condition v1alpha1.Condition, name string) error {
	condition.ObservedGeneration = seen.Generation
	return status.Write(ctx, n.Dyn.Resource(NamespaceResource).Namespace(seen.Namespace), seen, func(o *v1alpha1.APIServiceNamespace) {
		o.Status.Namespace = name
		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, condition)
	})
}

// noteExports remembers on a namespace what its tenant could ever make in it, or in the
// whole cluster, so that nothing is overlooked when the namespace is to go.
func (c Clients) noteExports(ctx context.Context, name string, exports []*v1alpha1.APIServiceExport) error {
	ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
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
	if _, err := c.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("annotate namespace %s: %w", name, err)
	}
	return nil
}

// remove deletes a service namespace in which no object of an exported API
// is left, and lets go of asked when it is gone.
func (n *serviceNamespaces) remove(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	i := slices.Index(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer)
	if i < 0 {
		return 0, nil
	}
	ns, err := n.Kube.CoreV1().Namespaces().Get(ctx, serviceNamespaceName(asked.Namespace, asked.Name), metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return 0, fmt.Errorf("read service namespace: %w", err)
	}
	if err != nil || errors.Is(checkOwned(ns, asked.Namespace, serviceAnnotations(asked)), ErrForeign) {
		return 0, n.setFinalizers(ctx, NamespaceResource, asked, slices.Delete(slices.Clone(asked.Finalizers), i, i+1))
	}
	if ns.DeletionTimestamp != nil {
		return namespaceRetry, nil
	}
	if _, err := n.Meta.Resource(NamespaceResource).Namespace(asked.Namespace).Get(ctx, asked.Name, metav1.GetOptions{}); err != nil {
		return 0, IgnoreNotFound(err) // the cache is behind, and the backend does not enter again what it has left
	}
	kept, err := n.end(ctx, ns, asked.Namespace)
	if kept && err == nil {
		return 0, n.setFinalizers(ctx, NamespaceResource, asked, slices.Delete(slices.Clone(asked.Finalizers), i, i+1))
	}
	if condition, ok := blocked(err); ok {
		return namespaceRetry, n.writeStatus(ctx, asked, condition, asked.Status.Namespace)
	}
	return namespaceRetry, err
}

// deleteEmpty deletes a service namespace. Its tenant loses its rights there before
// the last look, so that nothing can come in between.
func (n *serviceNamespaces) deleteEmpty(ctx context.Context, ns *corev1.Namespace) error {
	if err := n.contents.checkEmpty(ctx, ns); err != nil {
		return err
	}
	if err := n.tenants.Rights.take(ctx, ns.Name); err != nil {
		return err
	}
	if err := n.contents.checkEmpty(ctx, ns); err != nil {
		return err
	}
	if err := n.deleteNamespace(ctx, ns); err != nil {
		return err
	}
	audit.Record(ctx, "service namespace deleted", "tenant", ns.Labels[v1alpha1.TenantLabel], "namespace", ns.Name)
	return nil
}

// capped returns a *RefusalError if asked is beyond the cap: those that have their
// service namespace come first, then the older ones.
func (n *serviceNamespaces) capped(asked *v1alpha1.APIServiceNamespace) error {
	most := n.opts.Caps.Namespaces
	if most < 0 || asked.Status.Namespace != "" {
		return nil
	}
	before := 0
	for _, other := range inNamespace(n.caches.Namespaces, asked.Namespace) {
		before += One(other.Name != asked.Name && (other.Status.Namespace != "" || older(other, asked)))
	}
	if before < most {
		return nil
	}
	return Refuse(ReasonTooMany, fmt.Sprintf("a tenant may have %d service namespaces, and this one would be one more", most))
}

func older(a, b metav1.Object) bool {
	x, y := a.GetCreationTimestamp().Time, b.GetCreationTimestamp().Time
	return x.Before(y) || x.Equal(y) && a.GetName() < b.GetName()
}

// end deletes a service namespace when nothing is left in it. When its
// tenant is removed, what is left goes too, or stays without it; then the namespace
// stays, and kept is true.
func (n *serviceNamespaces) end(ctx context.Context, ns *corev1.Namespace, tenant string) (kept bool, err error) {
	var policy v1alpha1.DeletionPolicy
	if binding, ok := n.breaker.removing(tenant); ok {
		policy = binding.Spec.DeletionPolicy
	}
	err = n.tenants.Rights.Enter(ctx, ns.Name, v1alpha1.BackendOfferRole)
	if err == nil && policy == v1alpha1.DeletionPolicyDelete {
		err = n.contents.deleteInstances(ctx, ns)
	}
	if err == nil {
		err = n.deleteEmpty(ctx, ns)
	}
	left, ok := errors.AsType[*RefusalError](err)
	if !ok || left.Reason != ReasonObjectsRemain || policy != v1alpha1.DeletionPolicyOrphan {
		return false, err
	}
	if err := n.forsake(ctx, ns.Name); err != nil {
		return false, err
	}
	audit.Record(ctx, "service namespace kept", "tenant", tenant, "namespace", ns.Name)
	return true, nil
}

// forsake leaves a service namespace without caps, and without rights of its tenant
// and of the backend.
func (n *serviceNamespaces) forsake(ctx context.Context, namespace string) error {
	err := errors.Join(n.tenants.Rights.take(ctx, namespace), n.tenants.Rights.ensureRole(ctx, namespace, nil), n.quotas.write(ctx, namespace, nil))
	if err != nil {
		return err
	}
	return n.tenants.Rights.unbind(ctx, namespace, v1alpha1.BackendRoleBinding)
}
