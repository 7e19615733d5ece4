// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// serviceNamespaces keeps each namespace of the App Cluster that has a bound object
// together with a service namespace of the tenant.
type serviceNamespaces struct {
	app    *appCluster
	calls  dynamic.Interface // of the Control Plane Cluster
	tenant string            // the tenant namespace
	grace  time.Duration     // see NamespaceGrace of Options
	touch  func()            // asks for a look at the bindings

	asked       cache.SharedIndexInformer // APIServiceNamespaces
	queue       *controller.Controller
	mapper      *klutchsync.Namespaces
	unrequested *unrequested

	mu    sync.Mutex
	wants map[string]bool      // namespaces that objects wait for
	gone  map[string]time.Time // namespaces of the App Cluster, since when
	// withObjects are the namespaces in which Syncs have met objects, with the
	// APIServiceNamespace that each is mapped by; empty for none.
	withObjects map[string]types.UID
	// refused are the namespaces that get no service namespace, with the reasons.
	refused map[string]string
	told    time.Time // when the bindings last heard of these
}

// newServiceNamespaces does no I/O.
func newServiceNamespaces(h *heartbeat, asked cache.SharedIndexInformer, records *refusalRecords) *serviceNamespaces {
	n := &serviceNamespaces{
		app: h.app, calls: h.calls, tenant: h.place.Namespace, grace: h.opts.NamespaceGrace, asked: asked,
		touch: func() { h.touch(h.secret.name) },
		wants: map[string]bool{}, gone: map[string]time.Time{}, refused: map[string]string{}, withObjects: map[string]types.UID{},
	}
	n.unrequested = newUnrequested(n.grace, records, func() { n.queue.Add(tellKey) })
	n.mapper = klutchsync.NewNamespaces(n.want)
	n.queue = cluster.NewController("namespaces", h.holding(n.reconcile), 4)
	return n
}

// want is called by Syncs, without end, for namespaces that have an object and no
// service namespace yet.
func (n *serviceNamespaces) want(namespace string) {
	n.mu.Lock()
	n.wants[namespace] = true
	if _, ok := n.withObjects[namespace]; !ok {
		n.withObjects[namespace] = ""
	}
	n.mu.Unlock()
	n.queue.Add(cache.NewObjectName("", namespace))
}

// reconcile keeps one namespace of the App Cluster and its service
// namespace together.
func (n *serviceNamespaces) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key == tellKey {
		return n.tellBindings(), nil
	}
	asked, err := cluster.Cached[v1alpha1.APIServiceNamespace](n.asked, cache.NewObjectName(n.tenant, key.Name))
	if err != nil {
		return 0, err
	}
	if asked == nil {
		n.refuse(key.Name, "")
		n.unrequested.requested(key.Name)
		n.mapper.Delete(key.Name)
		n.goneFor(key.Name, false)
		return 0, n.askFor(ctx, key.Name)
	}
	if !n.hasObjects(key.Name) {
		return n.unmapped(ctx, asked)
	}
	n.unrequested.requested(key.Name)
	n.refuse(key.Name, cmp.Or(n.mapTo(asked), refusedFor(asked)))
	return n.giveUp(ctx, asked)
}

// unmapped leaves a namespace alone in which no object was met.
func (n *serviceNamespaces) unmapped(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if requestedHere(asked) {
		return n.giveUp(ctx, asked)
	}
	return n.unrequested.note(ctx, asked.Name), nil
}

// hasObjects reports whether a Sync has met an object in a namespace. That, and nothing
// that the provider says, is why a namespace is mapped.
func (n *serviceNamespaces) hasObjects(namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.withObjects[namespace]
	return ok
}

// mapTo has the objects of a namespace be kept in step with those of its service
// namespace, and returns why not. An APIServiceNamespace keeps the service namespace
// that it first said: objects would be made anew in another.
func (n *serviceNamespaces) mapTo(asked *v1alpha1.APIServiceNamespace) (why string) {
	service := asked.Status.Namespace
	if service == "" {
		return ""
	}
	before, mapped := n.mapper.Of(asked.Name)
	if mapped && before != service && n.mappedBy(asked.Name) == asked.UID {
		return fmt.Sprintf("its service namespace is %s, and the provider says now that it is %s; a new APIServiceNamespace could say so", before, service)
	}
	if !n.mapper.Set(asked.Name, service) {
		return fmt.Sprintf("its service namespace %s is that of another namespace already", service)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wants, asked.Name)
	n.withObjects[asked.Name] = asked.UID
	return ""
}

func (n *serviceNamespaces) mappedBy(namespace string) types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.withObjects[namespace]
}

// refusedFor is what the backend says against a service namespace; empty if nothing.
func refusedFor(asked *v1alpha1.APIServiceNamespace) string {
	c := v1alpha1.FindCondition(asked.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.Severity == v1alpha1.SeverityInfo {
		return ""
	}
	return cmp.Or(c.Message, c.Reason, "the provider does not say why")
}

// refuse notes why a namespace gets no service namespace, and tells the bindings if
// that is new.
func (n *serviceNamespaces) refuse(namespace, why string) {
	n.mu.Lock()
	before := n.refused[namespace]
	if why == "" {
		delete(n.refused, namespace)
	} else {
		n.refused[namespace] = why
	}
	n.mu.Unlock()
	if before != why {
		n.queue.Add(tellKey)
	}
}

// tellKey is the key by which the bindings are told of namespaces.
var tellKey = cache.NewObjectName("", "")

// tellBindings has the bindings report news of namespaces, at a pace that the provider
// cannot raise.
func (n *serviceNamespaces) tellBindings() (again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := retryEvery - time.Since(n.told); left > 0 {
		return left
	}
	n.told = time.Now()
	n.touch()
	return 0
}

// mostRefused bounds how many namespaces a condition names.
const mostRefused = 3

// ready says which namespaces get no service namespace, and which the
// provider has one for that this App Cluster did not ask for.
func (n *serviceNamespaces) ready() v1alpha1.Condition {
	refused, unrequested := n.refusals(), n.unrequested.names()
	reason, said := "", []string{}
	if len(unrequested) > 0 {
		reason = v1alpha1.ReasonUninvitedNamespace
		said = append(said, "The provider has service namespaces that this cluster did not ask for and has no objects in: "+some(unrequested)+
			". They are not used: nothing travels to or from these namespaces.")
	}
	if len(refused) > 0 {
		reason = v1alpha1.ReasonServiceNamespaceRefused
		said = append(said, "The provider has no service namespace for objects in "+some(refused)+". Objects in other namespaces are kept in step.")
	}
	if reason == "" {
		return v1alpha1.True(v1alpha1.ConditionNamespacesReady)
	}
	slices.Reverse(said) // what keeps objects from being in step comes first
	return warned(v1alpha1.ConditionNamespacesReady, reason, strings.Join(said, " "))
}

// refusals are the namespaces that are refused, each with its reason.
func (n *serviceNamespaces) refusals() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return reasons(n.refused)
}

// reasons are names of namespaces, each with its fault.
func reasons(why map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(why)) {
		all = append(all, fmt.Sprintf("%s (%s)", name, text.Clip(why[name], cluster.MaxMessage/2/mostRefused)))
	}
	return all
}

// some names a few of many.
func some(all []string) string {
	parts := slices.Clone(all[:min(len(all), mostRefused)])
	if more := len(all) - mostRefused; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// askFor creates the APIServiceNamespace of a namespace that objects wait for.
func (n *serviceNamespaces) askFor(ctx context.Context, namespace string) error {
	n.mu.Lock()
	wanted := n.wants[namespace]
	delete(n.wants, namespace)
	if !wanted {
		delete(n.withObjects, namespace)
	}
	n.mu.Unlock()
	if !wanted || !n.inApp(namespace) {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("APIServiceNamespace")
	u.SetName(namespace)
	_, err := n.calls.Resource(cluster.APIServiceNamespaces).Namespace(n.tenant).Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil && !fates.Is(err, fates.Exists) {
		n.mu.Lock()
		n.wants[namespace] = true
		n.mu.Unlock()
		return fmt.Errorf("ask for a service namespace for %s: %w", namespace, err)
	}
	return nil
}

// inApp tells whether the cache knows the namespace.
func (n *serviceNamespaces) inApp(namespace string) bool {
	_, ok, err := n.app.namespaces.GetStore().GetByKey(namespace)
	return ok && err == nil
}

// giveUp deletes the APIServiceNamespace of a namespace that is gone. Our backend then deletes
// the service namespace once no object of an exported API is left in it; another make of backend
// may delete all of it. So the App Cluster's API server has to say twice, a grace period apart,
// that the namespace is gone; the cache is not believed.
func (n *serviceNamespaces) giveUp(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if n.inApp(asked.Name) || asked.DeletionTimestamp != nil {
		n.goneFor(asked.Name, false)
		return 0, nil
	}
	gone, err := n.app.namespaceGone(ctx, asked.Name)
	if err != nil {
		return 0, err
	}
	since := n.goneFor(asked.Name, gone)
	if !gone {
		return 0, nil
	}
	if left := n.grace - since; left > 0 {
		return left, nil
	}
	uid := asked.UID
	err = n.calls.Resource(cluster.APIServiceNamespaces).Namespace(n.tenant).Delete(ctx, asked.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !fates.Is(err, fates.Absent, fates.Unserved, fates.Conflict, fates.Contested) {
		return 0, fmt.Errorf("give up the service namespace of %s: %w", asked.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("namespace is gone, service namespace given up")
	return 0, nil
}

// goneFor notes whether the namespace is gone, and returns for how long it has been.
func (n *serviceNamespaces) goneFor(namespace string, gone bool) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !gone {
		delete(n.gone, namespace)
		return 0
	}
	first, ok := n.gone[namespace]
	if !ok {
		first = time.Now()
		n.gone[namespace] = first
	}
	return time.Since(first)
}

// services are the service namespaces of the tenant that this App Cluster has asked
// for, once they and the App Cluster's namespaces are known.
func (n *serviceNamespaces) services() (names []string, known bool) {
	for _, o := range n.asked.GetStore().List() {
		u, _ := o.(*unstructured.Unstructured)
		if !n.hasObjects(u.GetName()) && !requestedHere(u) {
			continue
		}
		if name, ok, _ := unstructured.NestedString(u.Object, "status", "namespace"); ok && name != "" {
			names = append(names, name)
		}
	}
	return names, n.asked.HasSynced() && n.app.namespaces.HasSynced()
}
