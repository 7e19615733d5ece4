// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/limit"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	namespaceRetry = 15 * time.Second // where no event tells, and a look asks no API server
	turnRetry      = time.Second      // of what waits for its turn
	turnTold       = 10 * time.Second // is how long that lasts before its tenant is told
)

// Reasons of Ready on an APIServiceNamespace.
const (
	ReasonNotATenant  = "NotATenant"
	reasonNameInvalid = "NameInvalid"
	reasonNameTaken   = "NameTaken"
	reasonTerminating = "Terminating"
	reasonRefused     = "Refused" // by an API server
)

// serviceNamespaces mirror namespaces of App Clusters.
type serviceNamespaces struct {
	Clients

	opts     *Options
	tenants  *Tenants
	caches   *Caches
	gates    *gates
	quotas   *quotas
	contents *contents
	breaker  *removalBreaker
	begins   *limit.Limiter // of the service namespaces that each tenant begins; nil is without a limit
	left     sync.Map       // of provision: what the last pass has left, by the name of the APIServiceNamespace
}

// Reconcile gives a tenant the service namespace that it asks for, with
// the rights of its exports, and takes it away when nothing is left in it.
func (n *serviceNamespaces) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	asked, ok := Lookup(n.caches.Namespaces, key)
	if !ok {
		n.left.Delete(key)
		return 0, nil
	}
	if told := n.lastOf(asked).told; told != "" && !watchstore.Newer(asked.ResourceVersion, told) {
		return 0, nil // the event of its own last write leads here again
	}
	if foreign, err := n.caches.IsForeign(ctx, key.Namespace); foreign || err != nil {
		return 0, errors.Join(err, n.removeMarks(ctx, asked))
	}
	if asked.DeletionTimestamp != nil {
		return n.remove(ctx, asked)
	}
	if _, ok := n.breaker.removing(key.Namespace); ok {
		return 0, nil // it is about to be deleted
	}
	if turn := n.paced(asked); turn > 0 {
		return n.tellPaced(ctx, asked, turn)
	}
	asked, err := n.addFinalizer(ctx, asked)
	if asked == nil || err != nil {
		return 0, err
	}
	name := serviceNamespaceName(key.Namespace, key.Name)
	again, err := n.provide(ctx, name, asked)
	if err != nil {
		return n.tell(ctx, asked, err)
	}
	if err := n.writeStatus(ctx, asked, v1alpha1.True(v1alpha1.ConditionReady), name); err != nil {
		return 0, err
	}
	if p := n.lastOf(asked); p.wants != "" && asked.Status.Namespace == "" {
		p.told = asked.ResourceVersion
		n.left.Store(key, p)
	}
	if n.opts.Gate != nil { // no event tells that it closes again
		again = sooner(again, wait.Jitter(n.opts.ReviewInterval, ReviewSpread))
	}
	return again, nil
}

// paced is how long asked waits for its turn. A tenant deletes what it has made, too, so that no cap and no
// quota bounds how many service namespaces it begins, each of which is a dozen requests and a namespace to remove.
// That one has had its turn is read from what no tenant writes: a finalizer may come from a backup or from Klutch.
func (n *serviceNamespaces) paced(asked *v1alpha1.APIServiceNamespace) time.Duration {
	if n.lastOf(asked).of != "" || asked.Status.Namespace != "" || n.caches.hasServiceNamespace(asked) {
		return 0
	}
	if turn := n.begins.Take(asked.Namespace); turn > 0 {
		return max(turn, turnRetry) // many wait for the same turn
	}
	n.left.Store(cache.MetaObjectToName(asked), provision{of: asked.UID})
	return 0
}

// tellPaced has asked wait for its turn, and tells its tenant once that has lasted.
func (n *serviceNamespaces) tellPaced(ctx context.Context, asked *v1alpha1.APIServiceNamespace, turn time.Duration) (time.Duration, error) {
	if time.Since(asked.CreationTimestamp.Time) >= turnTold {
		err := n.writeStatus(ctx, asked, v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityInfo, ReasonTooMany, fmt.Sprintf(
			"a tenant may begin %d service namespaces a minute, and has begun as many: this one waits for its turn", n.opts.Caps.newNamespaces())), "")
		if err != nil {
			return 0, err
		}
	}
	return turn, queue.ErrBusy
}

// addFinalizer returns the APIServiceNamespace as it is with the finalizer; nil if it is gone.
func (n *serviceNamespaces) addFinalizer(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (*v1alpha1.APIServiceNamespace, error) {
	if slices.Contains(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer) {
		return asked, nil
	}
	after := asked.DeepCopy()
	after.Finalizers = append(after.Finalizers, v1alpha1.ServiceNamespaceFinalizer)
	var err error
	if after.ResourceVersion, err = n.patchFinalizers(ctx, NamespaceResource, asked, after.Finalizers); after.ResourceVersion == "" {
		return nil, err
	}
	return after, nil
}

// removeMarks removes the marks that earlier versions put on foreign namespaces.
func (n *serviceNamespaces) removeMarks(ctx context.Context, asked *v1alpha1.APIServiceNamespace) error {
	if slices.Contains(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer) {
		return removeFinalizer(ctx, n.Clients, NamespaceResource, asked, v1alpha1.ServiceNamespaceFinalizer)
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
	if closed != nil && (asked.Status.Namespace == "" && !n.caches.hasServiceNamespace(asked) || !errors.Is(closed, ErrGateClosed)) {
		return 0, closed
	}
	if err := n.capped(asked); err != nil {
		return 0, err
	}
	tenant, err := n.caches.namespace(ctx, asked.Namespace)
	if err != nil {
		return 0, err
	}
	w := n.wanted(asked, tenant, closed == nil)
	if n.stands(asked, name, w) {
		return 0, closed
	}
	n.left.Store(cache.MetaObjectToName(asked), provision{of: asked.UID})
	w.meta = metav1.ObjectMeta{Name: name, Annotations: serviceAnnotations(asked), Labels: h.labels()}
	w.meta.Labels[v1alpha1.AppNamespaceLabel] = asked.Name
	if tenant.GetAnnotations()[v1alpha1.AdoptedAnnotation] != "" || n.opts.Adopt(asked.Namespace) { // a backend of Klutch's beside this one serves ours too
		if err := n.tenants.adoptService(ctx, name, asked.Namespace, w.meta.Annotations, w.meta.Labels); err != nil {
			return 0, err
		}
	}
	p, again, err := n.build(ctx, asked, w)
	if err == nil && again == 0 {
		n.left.Store(cache.MetaObjectToName(asked), p)
	}
	return again, errors.Join(closed, err)
}

// A wanted is what a service namespace is to be.
type wanted struct {
	meta    metav1.ObjectMeta
	exports []string            // that are noted on it
	capped  []rbacv1.PolicyRule // of what the objects are counted
	rules   []rbacv1.PolicyRule // of its tenant
}

func (n *serviceNamespaces) wanted(asked *v1alpha1.APIServiceNamespace, tenant metav1.Object, open bool) (w wanted) {
	exports := inNamespace(n.caches.Exports, asked.Namespace)
	w.exports = names(slices.DeleteFunc(slices.Clone(exports), IsPrefixed))
	used, withdrawn := InForce(exports)
	if !open { // again
		used, withdrawn = nil, exports
	}
	w.capped, w.rules = Rules(exports), Rules(used, withdrawn...)
	if n.opts.usesLegacyKonnector(tenant) {
		w.rules = withAnnotations(w.rules)
	}
	return w
}

// build makes a service namespace as it is wanted. One that the cache does not show is new as a rule,
// and empty.
func (n *serviceNamespaces) build(ctx context.Context, asked *v1alpha1.APIServiceNamespace, w wanted) (p provision, again time.Duration, err error) {
	name, rights := w.meta.Name, n.tenants.Rights
	_, known := stored(n.caches.Owned, name)
	annotations := w.meta.Annotations
	w.meta.Annotations = maps.Clone(annotations)
	noteOn(&w.meta, w.exports)
	ns, fresh, err := n.tenants.obtainNamespace(ctx, !known, w.meta, asked.Namespace)
	if err == nil {
		err = checkOwned(ns, asked.Namespace, annotations)
	}
	if err != nil {
		return p, 0, err
	}
	entry, err := rights.enter(ctx, name, v1alpha1.BackendOfferRole, fresh)
	if err != nil {
		return p, 0, err
	}
	if ns, err = noteExports(ctx, n.Clients, ns, w.exports); err != nil {
		return p, 0, err
	}
	if again, err = n.quotas.capObjects(ctx, name, w.capped, fresh); err != nil {
		return p, 0, err
	}
	role, given, err := rights.ensure(ctx, name, asked.Namespace, w.rules, fresh)
	if err != nil {
		return p, again, err
	}
	return provision{
		of: asked.UID, wants: w.digest(), due: time.Now().Add(n.opts.ReviewInterval),
		namespace: ns.ResourceVersion, entry: entry.ResourceVersion, rights: given.ResourceVersion, role: role.ResourceVersion,
	}, again, nil
}

// A provision is a service namespace as a pass has left it, with the versions of the objects in
// it: the events of what the pass has written itself lead to no other one. Until a pass has ended well
// it has the UID alone.
type provision struct {
	of                             types.UID // the APIServiceNamespace
	told                           string    // the version of it on which the service namespace was first told; may be empty
	wants                          string    // see digest
	namespace, entry, rights, role string    // versions
	due                            time.Time // no event tells what others do to the quota
}

func (w wanted) digest() string {
	data, _ := json.Marshal([]any{w.exports, w.capped, w.rules}) // strings
	return string(data)
}

// stands tells whether a service namespace is what it is to be, as far as the caches show.
func (n *serviceNamespaces) stands(asked *v1alpha1.APIServiceNamespace, name string, w wanted) bool {
	p := n.lastOf(asked)
	return p.wants == w.digest() && time.Now().Before(p.due) &&
		shows(n.caches.Owned, name, p.namespace) && shows(n.caches.Entries, name+"/"+v1alpha1.BackendRoleBinding, p.entry) &&
		shows(n.caches.Bindings, name+"/"+v1alpha1.TenantRoleBinding, p.rights) && shows(n.caches.Roles, name+"/"+v1alpha1.ServiceNamespaceRole, p.role)
}

// lastOf is what the last pass has left for asked; the zero provision if there was none.
func (n *serviceNamespaces) lastOf(asked *v1alpha1.APIServiceNamespace) provision {
	if p, ok := n.left.Load(cache.MetaObjectToName(asked)); ok && p.(provision).of == asked.UID {
		return p.(provision)
	}
	return provision{}
}

func serviceAnnotations(asked metav1.Object) map[string]string {
	return map[string]string{v1alpha1.ServiceNamespaceAnnotation: asked.GetNamespace() + "/" + asked.GetName()}
}

// blocked tells whether err is cured by the tenant or the platform team and not by a
// retry, and then returns the condition that says so.
func blocked(err error) (v1alpha1.Condition, bool) {
	not := func(reason, message string) (v1alpha1.Condition, bool) {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, reason, text.Clip(message, longestReason)), true
	}
	if refused := AsRefusal(err); refused != nil {
		return not(refused.Reason, refused.Message)
	}
	switch {
	case errors.Is(err, ErrGateClosed):
		return not(v1alpha1.ReasonGateClosed, fates.Stable(err))
	case errors.Is(err, ErrForeign):
		return not(reasonNameTaken, fates.Stable(err))
	case errors.Is(err, ErrTerminating):
		return not(reasonTerminating, fates.Stable(err))
	}
	return v1alpha1.Condition{}, false
}

// writeStatus writes the condition Ready, and the name of the service namespace, which stays if name is empty.
func (n *serviceNamespaces) writeStatus(ctx context.Context, seen *v1alpha1.APIServiceNamespace, condition v1alpha1.Condition, name string) error {
	condition.ObservedGeneration = seen.Generation
	return status.Write(ctx, n.Dyn.Resource(NamespaceResource).Namespace(seen.Namespace), seen, func(o *v1alpha1.APIServiceNamespace) {
		o.Status.Namespace = cmp.Or(name, o.Status.Namespace)
		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, condition)
	})
}

func names(exports []*v1alpha1.APIServiceExport) (all []string) {
	for _, export := range exports {
		all = append(all, export.Name)
	}
	return all
}

// noteExports remembers on a namespace what its tenant could ever make in it, or in the
// whole cluster, so that nothing is overlooked when the namespace is to go.
func noteExports(ctx context.Context, c Clients, ns *corev1.Namespace, exports []string) (*corev1.Namespace, error) {
	if !noteOn(&ns.ObjectMeta, exports) {
		return ns, nil
	}
	noted, err := c.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("annotate namespace %s: %w", ns.Name, err)
	}
	return noted, nil
}

// noteOn adds the names of exports to what is noted, and reports whether there was more to note.
func noteOn(ns *metav1.ObjectMeta, exports []string) (more bool) {
	noted := exported(ns)
	all := slices.Concat(noted, exports)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) == len(noted) {
		return false
	}
	metav1.SetMetaDataAnnotation(ns, v1alpha1.ExportedAnnotation, strings.Join(all, ","))
	return true
}

// remove ends the service namespace of asked, which is being deleted, and removes the finalizer
// of asked once that namespace is gone or kept. Objects in it are deleted under the policy
// Delete, keep the namespace under Orphan, and are waited for without a policy: see end.
func (n *serviceNamespaces) remove(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if !slices.Contains(asked.Finalizers, v1alpha1.ServiceNamespaceFinalizer) {
		return 0, nil
	}
	ns, err := n.Kube.CoreV1().Namespaces().Get(ctx, serviceNamespaceName(asked.Namespace, asked.Name), metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return 0, fmt.Errorf("read service namespace: %w", err)
	}
	if err != nil || errors.Is(checkOwned(ns, asked.Namespace, serviceAnnotations(asked)), ErrForeign) {
		return 0, removeFinalizer(ctx, n.Clients, NamespaceResource, asked, v1alpha1.ServiceNamespaceFinalizer)
	}
	if ns.DeletionTimestamp != nil {
		return endPace(asked.DeletionTimestamp, namespaceRetry), nil
	}
	if _, err := n.Meta.Resource(NamespaceResource).Namespace(asked.Namespace).Get(ctx, asked.Name, metav1.GetOptions{}); err != nil {
		return 0, IgnoreNotFound(err) // the cache is behind, and the backend does not enter again what it has left
	}
	kept, err := n.end(ctx, ns, asked.Namespace)
	if kept && err == nil {
		return 0, removeFinalizer(ctx, n.Clients, NamespaceResource, asked, v1alpha1.ServiceNamespaceFinalizer)
	}
	if err != nil {
		return n.tell(ctx, asked, err)
	}
	return endPace(asked.DeletionTimestamp, namespaceRetry), nil
}

// tell tells a tenant why its service namespace is not as it should be, or what an API server has
// against it, unless it is too early for that. What may be over any time is no news of a service
// namespace that is there. Package queue paces all that an API server has to be asked again.
func (n *serviceNamespaces) tell(ctx context.Context, asked *v1alpha1.APIServiceNamespace, err error) (again time.Duration, _ error) {
	condition, ok := blocked(err)
	if !ok {
		if !fates.IsTold(ctx, err) {
			return 0, err
		}
		severity := v1alpha1.SeverityError
		if !fates.IsRefused(err) && asked.Status.Namespace != "" {
			severity = v1alpha1.SeverityInfo
		}
		condition = v1alpha1.False(v1alpha1.ConditionReady, severity, reasonRefused, Against("it", err))
	}
	written := n.writeStatus(ctx, asked, condition, "")
	switch {
	case !ok, !fates.Is(err, fates.Unknown), errors.Is(err, ErrForeign), errors.Is(err, ErrTerminating):
		return 0, errors.Join(err, written)
	case asked.DeletionTimestamp != nil:
		return endPace(asked.DeletionTimestamp, namespaceRetry), written
	}
	return namespaceRetry, written
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
	if err := n.deleteNamespace(ctx, ns, metav1.DeleteOptions{}); err != nil {
		return err
	}
	audit.Record(ctx, "service namespace deleted", "tenant", ns.Labels[v1alpha1.TenantLabel], "namespace", ns.Name)
	return nil
}

// capped returns a *RefusalError if asked is beyond the cap: those that have their
// service namespace come first, then the older ones.
func (n *serviceNamespaces) capped(asked *v1alpha1.APIServiceNamespace) error {
	most := n.opts.Caps.Namespaces
	if most < 0 || asked.Status.Namespace != "" || n.caches.hasServiceNamespace(asked) {
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
	_, role := n.tenants.Rights.ensureRole(ctx, namespace, nil, false)
	_, uncapped := n.quotas.write(ctx, namespace, nil, false)
	err := errors.Join(n.tenants.Rights.take(ctx, namespace), role, uncapped)
	if err != nil {
		return err
	}
	return n.tenants.Rights.unbind(ctx, namespace, v1alpha1.BackendRoleBinding)
}
