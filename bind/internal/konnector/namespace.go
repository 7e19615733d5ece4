// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// want is called by Syncs, without end, for namespaces that have an object and no
// service namespace yet.
func (s *session) want(namespace string) {
	s.mu.Lock()
	s.wants[namespace] = true
	if _, ok := s.met[namespace]; !ok {
		s.met[namespace] = ""
	}
	s.mu.Unlock()
	s.spaces.Add(cache.NewObjectName("", namespace))
}

// reconcileNamespace keeps one namespace of the App Cluster and its service
// namespace together.
func (s *session) reconcileNamespace(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key == news {
		return s.tell(), nil
	}
	asked, err := cached[v1alpha1.APIServiceNamespace](s.namespaces, cache.NewObjectName(s.place.Namespace, key.Name))
	if err != nil {
		return 0, err
	}
	if asked == nil {
		s.refuse(key.Name, "")
		s.invited(key.Name)
		s.mapper.Delete(key.Name)
		s.sighted(key.Name, false)
		return 0, s.askFor(ctx, key.Name)
	}
	if !s.hasMet(key.Name) {
		return s.leaveAlone(ctx, asked)
	}
	s.invited(key.Name)
	s.refuse(key.Name, cmp.Or(s.mapTo(asked), refusedFor(asked)))
	return s.giveUp(ctx, asked)
}

// hasMet reports whether a Sync has met an object in a namespace. That, and nothing
// that the provider says, is why a namespace is mapped.
func (s *session) hasMet(namespace string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.met[namespace]
	return ok
}

// mapTo has the objects of a namespace be kept in step with those of its service
// namespace, and returns why not. An APIServiceNamespace keeps the service namespace
// that it first said: what is there would be made anew elsewhere.
func (s *session) mapTo(asked *v1alpha1.APIServiceNamespace) (why string) {
	service := asked.Status.Namespace
	if service == "" {
		return ""
	}
	before, mapped := s.mapper.Of(asked.Name)
	if mapped && before != service && s.mappedBy(asked.Name) == asked.UID {
		return fmt.Sprintf("its service namespace is %s, and the provider says now that it is %s; a new APIServiceNamespace could say so", before, service)
	}
	if !s.mapper.Set(asked.Name, service) {
		return fmt.Sprintf("its service namespace %s is that of another namespace already", service)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.wants, asked.Name)
	s.met[asked.Name] = asked.UID
	return ""
}

func (s *session) mappedBy(namespace string) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met[namespace]
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
func (s *session) refuse(namespace, why string) {
	s.mu.Lock()
	before := s.refused[namespace]
	if why == "" {
		delete(s.refused, namespace)
	} else {
		s.refused[namespace] = why
	}
	s.mu.Unlock()
	if before != why {
		s.spaces.Add(news)
	}
}

// news is the key by which the bindings are told of namespaces.
var news = cache.NewObjectName("", "")

// tell has the bindings say what is new of namespaces: not as often as a provider
// thinks of something.
func (s *session) tell() (again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := retryEvery - time.Since(s.told); left > 0 {
		return left
	}
	s.told = time.Now()
	s.agent.touch(s.connection.name)
	return 0
}

// mostRefused bounds how many namespaces a condition names.
const mostRefused = 3

// namespacesReady says which namespaces get no service namespace, and which the
// provider has one for that this App Cluster did not ask for.
func (s *session) namespacesReady() v1alpha1.Condition {
	refused, uninvited := s.refusals(), s.strangers()
	reason, said := "", []string{}
	if len(uninvited) > 0 {
		reason = v1alpha1.ReasonUninvitedNamespace
		said = append(said, "The provider has service namespaces that this cluster did not ask for and has no objects in: "+some(uninvited)+
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
func (s *session) refusals() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return reasons(s.refused)
}

// reasons are names of namespaces, each with what is wrong with it.
func reasons(why map[string]string) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(why)) {
		all = append(all, fmt.Sprintf("%s (%s)", name, cluster.ClipTo(why[name], cluster.MaxMessage/2/mostRefused)))
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
func (s *session) askFor(ctx context.Context, namespace string) error {
	s.mu.Lock()
	wanted := s.wants[namespace]
	delete(s.wants, namespace)
	if !wanted {
		delete(s.met, namespace)
	}
	s.mu.Unlock()
	if !wanted || !s.inApp(namespace) {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("APIServiceNamespace")
	u.SetName(namespace)
	_, err := s.calls.Resource(cluster.APIServiceNamespaces).Namespace(s.place.Namespace).Create(ctx, u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		s.mu.Lock()
		s.wants[namespace] = true
		s.mu.Unlock()
		return fmt.Errorf("ask for a service namespace for %s: %w", namespace, err)
	}
	return nil
}

// inApp tells whether the cache knows the namespace.
func (s *session) inApp(namespace string) bool {
	_, ok, err := s.agent.app.namespaces.GetStore().GetByKey(namespace)
	return ok && err == nil
}

// giveUp deletes the APIServiceNamespace, and with it all that is in the service
// namespace, if the App Cluster itself says twice, a grace period apart, that the
// namespace is gone. What a cache says counts for nothing.
func (s *session) giveUp(ctx context.Context, asked *v1alpha1.APIServiceNamespace) (time.Duration, error) {
	if s.inApp(asked.Name) || asked.DeletionTimestamp != nil {
		s.sighted(asked.Name, false)
		return 0, nil
	}
	gone, err := s.agent.app.namespaceGone(ctx, asked.Name)
	if err != nil {
		return 0, err
	}
	since := s.sighted(asked.Name, gone)
	if !gone {
		return 0, nil
	}
	if left := s.agent.opts.NamespaceGrace - since; left > 0 {
		return left, nil
	}
	uid := asked.UID
	err = s.calls.Resource(cluster.APIServiceNamespaces).Namespace(s.place.Namespace).Delete(ctx, asked.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("give up the service namespace of %s: %w", asked.Name, err)
	}
	logr.FromContextOrDiscard(ctx).Info("namespace is gone, service namespace given up")
	return 0, nil
}

// sighted notes whether the namespace is gone, and returns for how long it has been.
func (s *session) sighted(namespace string, gone bool) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !gone {
		delete(s.gone, namespace)
		return 0
	}
	first, ok := s.gone[namespace]
	if !ok {
		first = time.Now()
		s.gone[namespace] = first
	}
	return time.Since(first)
}

// namespaceGone asks the API server. The cluster's identity is asked after, so that
// another cluster at the same address proves nothing.
func (a *appCluster) namespaceGone(ctx context.Context, name string) (bool, error) {
	_, err := cluster.UIDOf(ctx, a.calls, cluster.NamespacesResource, cache.NewObjectName("", name))
	if err == nil {
		return false, nil
	}
	if !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("look for namespace %s: %w", name, err)
	}
	identity, err := a.identity(ctx)
	if err != nil {
		return false, fmt.Errorf("identity of the App Cluster: %w", err)
	}
	return identity == a.uid, nil
}
