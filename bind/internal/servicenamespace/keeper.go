// SPDX-License-Identifier: Apache-2.0

// Package servicenamespace gives each namespace of the App Cluster that has a bound object a
// service namespace of the tenant, and gives it up when the namespace is gone.
//
// A [Keeper] asks for a service namespace with an APIServiceNamespace as soon as a Sync meets
// an object in a namespace, and tells the Syncs by [Keeper.Mapper] which one it got. It maps
// no namespace that it has not asked for. One that a konnector asked for earlier, and in which no
// object was met since, is recalled: the Syncs look at what was left there, and open nothing.
// [Keeper.Ready] names the namespaces that the provider refuses, service namespaces that the konnector
// did not request, and those that it does not give up since they have objects.
package servicenamespace

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Config is what a Keeper works with.
type Config struct {
	Calls  dynamic.Interface         // of the Control Plane Cluster
	Tenant string                    // the tenant namespace
	Asked  cache.SharedIndexInformer // the APIServiceNamespaces of it
	App    cache.SharedIndexInformer // the namespaces of the App Cluster
	Grace  time.Duration             // see NamespaceGrace of bind.Options
	Touch  func()                    // asks for a look at the bindings

	// Gone asks the App Cluster's API server whether a namespace is gone.
	Gone func(ctx context.Context, namespace string) (bool, error)
	// Holds asks the control plane's API server for an object of an API of the tenant in a service
	// namespace, and names it; empty if there is none.
	Holds func(ctx context.Context, service string) (string, error)
	// WhileOurs makes a function that works only while the tenant is this App Cluster's.
	WhileOurs func(controller.Func) controller.Func
	// Patience is how rarely that is asked for in the end which the control plane cannot take.
	Patience time.Duration
	// Recordable reports whether one more refusal has an audit record of its own.
	Recordable func(context.Context) bool
}

// A Keeper keeps each namespace of the App Cluster that has a bound object together with a
// service namespace of the tenant.
type Keeper struct {
	Config

	Queue  *controller.Controller
	Mapper *klutchsync.Namespaces
	Wide   *klutchsync.Namespaces // maps cluster-scoped objects, which have none, to the one of wideNamespace

	unrequested unrequested
	looks       flowcontrol.PassiveRateLimiter // of the App Cluster, at whether a namespace is gone

	mu    sync.Mutex
	wants map[string]time.Time // namespaces that objects wait for; not before when they are asked for
	gone  map[string]time.Time // namespaces of the App Cluster, since when
	// withObjects are the namespaces in which Syncs have met objects, with the
	// APIServiceNamespace that each is mapped by; empty for none.
	withObjects map[string]types.UID
	// refused are the namespaces that get no service namespace, with the reasons.
	refused map[string]string
	// kept are the namespaces that are gone and whose service namespaces have objects, with one of each.
	kept map[string]string
	// recalled are the namespaces without objects, and whether it was looked what was left there.
	recalled map[string]*look
	told     time.Time // when the bindings last heard of these
}

// wideNamespace is the namespace whose service namespace has the objects of cluster-scoped
// APIs that are namespaced in the Control Plane Cluster. It is there in every App Cluster, and
// no place for users.
const wideNamespace = v1alpha1.Namespace

// New does no I/O.
func New(c Config) *Keeper {
	n := &Keeper{Config: c, looks: flowcontrol.NewTokenBucketPassiveRateLimiter(float32(1/fates.Share.Seconds()), fates.Few), wants: map[string]time.Time{}, gone: map[string]time.Time{}, refused: map[string]string{}, kept: map[string]string{}, recalled: map[string]*look{}, withObjects: map[string]types.UID{}}
	n.Mapper = klutchsync.NewNamespaces(n.want)
	n.Wide = klutchsync.NewNamespaces(func(string) { n.want(wideNamespace) })
	n.Queue = controller.New("namespaces", c.WhileOurs(n.reconcile), controller.Options{Workers: 16, Patience: c.Patience})
	return n
}

// want is called by Syncs that meet an object in a namespace without a service namespace,
// perhaps once only.
func (n *Keeper) want(namespace string) {
	n.mu.Lock()
	if _, ok := n.wants[namespace]; !ok {
		n.wants[namespace] = time.Time{}
	}
	if _, ok := n.withObjects[namespace]; !ok {
		n.withObjects[namespace] = ""
	}
	n.mu.Unlock()
	n.Queue.Add(cache.NewObjectName("", namespace))
}

// reconcile keeps one namespace of the App Cluster and its service
// namespace together.
func (n *Keeper) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key == tellKey {
		return n.tellBindings(), nil
	}
	asked, err := cluster.Cached[v1alpha1.APIServiceNamespace](n.Asked, cache.NewObjectName(n.Tenant, key.Name))
	if err != nil {
		return 0, err
	}
	if asked == nil {
		n.requested(key.Name)
		n.unmap(key.Name)
		return n.askFor(ctx, key.Name)
	}
	if !n.hasObjects(key.Name) {
		return n.unmapped(ctx, asked)
	}
	n.requested(key.Name)
	n.refuse(key.Name, cmp.Or(n.mapTo(asked), refusedFor(asked)))
	return n.giveUp(ctx, asked)
}

// unmapped leaves a namespace alone in which no object was met, but for a look at what was left there
// by a konnector that asked for it.
func (n *Keeper) unmapped(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if !requestedHere(asked) {
		return n.noteUnrequested(ctx, asked.Name), nil
	}
	wait, err := n.recall(ctx, asked)
	if err != nil {
		return 0, err
	}
	again, err := n.giveUp(ctx, asked)
	if again == 0 || wait > 0 && wait < again {
		again = wait
	}
	return again, err
}

// mostRecalled bounds what a provider can have looked at: it may forge who made an APIServiceNamespace.
const mostRecalled = 1000

// recall finds out once, after the grace period, whether a service namespace still has objects, and if so has the Syncs
// look at it. Within the grace period, in which Syncs can still meet an object, it returns how long that lasts.
func (n *Keeper) recall(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (wait time.Duration, err error) {
	service := asked.Status.Namespace
	n.mu.Lock()
	l, known := n.recalled[asked.Name]
	if !known && len(n.recalled) < mostRecalled {
		l = &look{since: time.Now()}
		n.recalled[asked.Name] = l
	}
	n.mu.Unlock()
	if l == nil || l.over || !isNamespace(service) {
		return 0, nil
	}
	if left := n.Grace - time.Since(l.since); left > 0 {
		return left, nil
	}
	object, err := n.Holds(ctx, service)
	if err != nil {
		return 0, err
	}
	if l.over = true; object != "" && !n.hasObjects(asked.Name) {
		n.Mapper.Recall(asked.Name, service)
		if asked.Name == wideNamespace {
			n.Wide.Recall("", service)
		}
	}
	return 0, nil
}

// A look is one at what was left in a namespace without objects.
type look struct {
	since time.Time // when the namespace was first seen without
	over  bool
}

// noteUnrequested remembers a namespace, and returns when to look at it again.
func (n *Keeper) noteUnrequested(ctx context.Context, namespace string) time.Duration {
	left, fresh := n.unrequested.note(namespace, n.Grace)
	if fresh {
		n.Queue.Add(tellKey)
		if n.Recordable(ctx) {
			audit.Record(ctx, "namespace not asked for, left alone", "namespace", namespace)
		}
	}
	return left
}

// requested forgets a namespace that was noted, and tells the bindings if they were told of it.
func (n *Keeper) requested(namespace string) {
	if n.unrequested.forget(namespace) {
		n.Queue.Add(tellKey)
	}
}

// hasObjects reports whether a Sync has met an object in a namespace. That, and nothing
// that the provider says, is why a namespace is mapped.
func (n *Keeper) hasObjects(namespace string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.withObjects[namespace]
	return ok
}

// mapTo has the objects of a namespace be kept in step with those of its service
// namespace, and returns why not. An APIServiceNamespace keeps the service namespace
// that it first said: objects would be made anew in another.
func (n *Keeper) mapTo(asked *v1alpha1.APIServiceNamespace) (why string) {
	service := asked.Status.Namespace
	switch {
	case service == "":
		return ""
	case !isNamespace(service):
		return fmt.Sprintf("the provider says that its service namespace is %q, which no namespace can be called", text.Clip(service, validation.DNS1123LabelMaxLength))
	}
	before, mapped := n.Mapper.Of(asked.Name)
	if mapped && before != service && n.mappedBy(asked.Name) == asked.UID {
		return fmt.Sprintf("its service namespace is %s, and the provider says now that it is %s; a new APIServiceNamespace could say so", before, service)
	}
	if !n.Mapper.Set(asked.Name, service) {
		return fmt.Sprintf("its service namespace %s is that of another namespace already", service)
	}
	if asked.Name == wideNamespace {
		n.Wide.Set("", service)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.wants, asked.Name)
	delete(n.recalled, asked.Name)
	n.withObjects[asked.Name] = asked.UID
	return ""
}

// isNamespace reports whether a namespace can have the name, which copies have in their annotations.
func isNamespace(name string) bool { return len(validation.IsDNS1123Label(name)) == 0 }

func (n *Keeper) mappedBy(namespace string) types.UID {
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
// that is new. Each object there has an Event that says so, and the provider chooses the words.
func (n *Keeper) refuse(namespace, why string) (isNew bool) {
	why = cluster.Clip(why)
	n.mu.Lock()
	before := n.refused[namespace]
	if why == "" {
		delete(n.refused, namespace)
	} else {
		n.refused[namespace] = why
	}
	n.mu.Unlock()
	if isNew = before != why; isNew {
		n.Queue.Add(tellKey)
	}
	return isNew
}

// tellKey is the key by which the bindings are told of namespaces.
var tellKey = cache.NewObjectName("", "")

// tellEvery is the least time between two tellings.
const tellEvery = 10 * time.Second

// tellBindings has the bindings report news of namespaces, at a pace that the provider
// cannot raise.
func (n *Keeper) tellBindings() (again time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if left := tellEvery - time.Since(n.told); left > 0 {
		return left
	}
	n.told = time.Now()
	n.Touch()
	return 0
}

// Ready says which namespaces get no service namespace, and which the
// provider has one for that this App Cluster did not ask for.
func (n *Keeper) Ready() v1alpha1.Condition {
	refused, kept := n.reasons()
	unrequested := n.unrequested.names()
	reason, said := "", []string{}
	if len(kept) > 0 {
		reason = v1alpha1.ReasonServiceNamespaceKept
		said = append(said, "Namespaces are gone here, and their service namespaces stay: "+cluster.Some(kept)+
			". Make the namespace and the claims again, or ask the provider to delete what nothing needs.")
	}
	if len(unrequested) > 0 {
		reason = v1alpha1.ReasonUninvitedNamespace
		said = append(said, "The provider has service namespaces that this cluster did not ask for and has no objects in: "+cluster.Some(unrequested)+
			". They are not used: nothing travels to or from these namespaces.")
	}
	if len(refused) > 0 {
		reason = v1alpha1.ReasonServiceNamespaceRefused
		said = append(said, "The provider has no service namespace for objects in "+cluster.Some(refused)+". Objects in other namespaces are kept in step.")
	}
	if reason == "" {
		return v1alpha1.True(v1alpha1.ConditionNamespacesReady)
	}
	slices.Reverse(said) // what keeps objects from being in step comes first
	return v1alpha1.False(v1alpha1.ConditionNamespacesReady, v1alpha1.SeverityWarning, reason, strings.Join(said, " "))
}

// reasons are the namespaces that are refused, each with its reason, and those that are kept, each with
// an object.
func (n *Keeper) reasons() (refused, kept []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return cluster.Reasons(n.refused), cluster.Reasons(n.kept)
}

// askEvery is the time after which a service namespace is asked for again.
const askEvery = 10 * time.Second

// askFor creates the APIServiceNamespace of a namespace for as long as objects wait for that.
// The watch may show neither the namespace nor what was created yet. Why it cannot be created, as
// where a quota of the platform is used up, is told until it is.
func (n *Keeper) askFor(ctx context.Context, namespace string) (again time.Duration, err error) {
	n.mu.Lock()
	next, wanted := n.wants[namespace]
	if !wanted {
		delete(n.withObjects, namespace)
	}
	n.mu.Unlock()
	if !wanted || !n.InApp(namespace) {
		n.refuse(namespace, "")
		return 0, nil
	}
	if left := time.Until(next); left > 0 {
		return left, nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("APIServiceNamespace")
	u.SetName(namespace)
	_, err = n.Calls.Resource(cluster.APIServiceNamespaces).Namespace(n.Tenant).Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		if fates.IsTold(ctx, err) {
			n.refuse(namespace, whyNot(err))
		}
		return 0, fmt.Errorf("ask for a service namespace for %s: %w", namespace, err)
	}
	n.mu.Lock()
	n.wants[namespace] = time.Now().Add(askEvery)
	n.mu.Unlock()
	if n.refuse(namespace, "") {
		n.Freed(nil) // the same obstacle may have been in the way of other namespaces
	}
	return askEvery, nil
}

// whyNot is why an APIServiceNamespace cannot be created. One that exists is there for the watch to
// show, and may be a moment ahead of it.
func whyNot(err error) string {
	why := cluster.Explain(err)
	if fates.Is(err, fates.Exists) {
		why += ", but no watch shows it"
	}
	return why
}

// Freed asks again for one of the namespaces that were refused: the tenant has one APIServiceNamespace less, so that
// there is a place in its quota. Once that namespace has its service namespace, the next one is asked for.
func (n *Keeper) Freed(any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace := range n.refused {
		if _, wanted := n.wants[namespace]; wanted {
			n.Queue.Add(cache.NewObjectName("", namespace))
			return
		}
	}
}

// Why is why objects in a namespace have no service namespace; empty if they have one, or are to
// get one.
func (n *Keeper) Why(namespace string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if why := n.refused[cmp.Or(namespace, wideNamespace)]; why != "" {
		return "The provider has no service namespace for it: " + why
	}
	return ""
}

// InApp tells whether the cache knows the namespace.
func (n *Keeper) InApp(namespace string) bool {
	_, ok, err := n.App.GetStore().GetByKey(namespace)
	return ok && err == nil
}

// giveUp deletes the APIServiceNamespace of a namespace that is gone, and of which nothing is left: the
// App Cluster may have been restored from a time before it. Klutch's backend then deletes the service
// namespace with all that is in it. So the App Cluster's API server has to say twice, a grace period apart,
// that the namespace is gone, and the control plane's that no object of the tenant is in it; caches are
// not believed. Where an object is, that may be for good: the pauses between the looks double up to ten minutes.
// The provider may have as many APIServiceNamespaces as it likes, and change them as often: all looks together have a pace.
func (n *Keeper) giveUp(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if n.InApp(asked.Name) || asked.DeletionTimestamp != nil {
		n.stays(asked.Name)
		return 0, nil
	}
	if !n.looks.TryAccept() {
		return askEvery, controller.ErrBusy
	}
	gone, err := n.Gone(ctx, asked.Name)
	if err != nil {
		return 0, err
	}
	since := n.goneFor(asked.Name, gone)
	if !gone {
		return 0, nil
	}
	if left := n.Grace - since; left > 0 {
		return left, nil
	}
	if service := asked.Status.Namespace; service != "" {
		object, err := n.Holds(ctx, service)
		if fates.IsTold(ctx, err) {
			n.keep(asked.Name, "it may not be looked at: "+cluster.Explain(err))
		}
		if err != nil {
			return 0, err
		}
		if object != "" {
			n.keep(asked.Name, object)
			return max(n.Patience, min(since-n.Grace, fates.Forbidden.Longest())), nil
		}
	}
	uid := asked.UID
	err = n.Calls.Resource(cluster.APIServiceNamespaces).Namespace(n.Tenant).Delete(ctx, asked.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !fates.Is(err, fates.Absent, fates.Unserved, fates.Conflict, fates.Contested) {
		if fates.IsTold(ctx, err) {
			n.keep(asked.Name, "it cannot be given up: "+cluster.Explain(err))
		}
		return 0, fmt.Errorf("give up the service namespace of %s: %w", asked.Name, err)
	}
	n.keep(asked.Name, "")
	logr.FromContextOrDiscard(ctx).Info("namespace is gone, service namespace given up")
	return 0, nil
}

// keep notes an object that keeps the service namespace of a namespace that is gone, or that there is
// none, and tells the bindings if that is new.
func (n *Keeper) keep(namespace, object string) {
	object = cluster.Clip(object)
	n.mu.Lock()
	isNew := n.kept[namespace] != object
	if delete(n.kept, namespace); object != "" {
		n.kept[namespace] = object
	}
	n.mu.Unlock()
	if isNew {
		n.Queue.Add(tellKey)
	}
}

// stays forgets that a namespace was gone, and what kept its service namespace.
func (n *Keeper) stays(namespace string) {
	n.goneFor(namespace, false)
	n.keep(namespace, "")
}

// unmap forgets the service namespace of a namespace.
func (n *Keeper) unmap(namespace string) {
	n.Mapper.Delete(namespace)
	if namespace == wideNamespace {
		n.Wide.Delete("")
	}
	n.mu.Lock()
	delete(n.recalled, namespace)
	n.mu.Unlock()
	n.stays(namespace)
}

// goneFor notes whether the namespace is gone, and returns for how long it has been.
func (n *Keeper) goneFor(namespace string, gone bool) time.Duration {
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

// Services are the service namespaces of the tenant that this App Cluster has asked
// for, once they and the App Cluster's namespaces are known.
func (n *Keeper) Services() (names []string, known bool) {
	for _, o := range n.Asked.GetStore().List() {
		u, _ := o.(*unstructured.Unstructured)
		if !n.hasObjects(u.GetName()) && !requestedHere(u) {
			continue
		}
		if name, ok, _ := unstructured.NestedString(u.Object, "status", "namespace"); ok && name != "" {
			names = append(names, name)
		}
	}
	return names, n.Asked.HasSynced() && n.App.HasSynced()
}
