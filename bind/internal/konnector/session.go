// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/servicenamespace"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A session is the tenant namespace of one Control Plane Cluster, as long as the
// kubeconfig leads there.
type session struct {
	*shared

	place kubeconfig.Kubeconfig // without token
	token *kubeconfig.Token

	cluster.Clients

	handlers []func() // detach what listens to informers
	target   *klutchsync.Cluster

	heartbeat  *heartbeat
	tenant     cache.SharedIndexInformer // ClusterBindings: whether the platform removes the tenant
	exports    *exports
	namespaces *servicenamespace.Keeper
	records    refusalRecords

	stop context.CancelFunc
	done chan struct{}
}

// newSession does no I/O.
func newSession(shared *shared, secret *kubeconfigSecret, k *kubeconfig.Kubeconfig) (*session, error) {
	s := &session{shared: shared, place: *k, done: make(chan struct{})}
	s.place.Token = ""
	config, token, err := k.Rotating()
	if err != nil {
		return nil, err
	}
	config.UserAgent, s.token = rest.DefaultKubernetesUserAgent(), token
	if err := s.connect(config); err != nil {
		return nil, err
	}
	s.heartbeat = newHeartbeat(shared, secret, s.place, token, s.Calls)
	if err := s.controllers(); err != nil { // as the konnector ends
		for _, c := range []*controller.Controller{s.heartbeat.queue, s.exports.queue, s.namespaces.Queue} {
			c.ShutDown()
		}
		s.detach()
		return nil, err
	}
	return s, nil
}

func (s *session) connect(config *rest.Config) (err error) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &sentry{next, func() { s.heartbeat.unauthorized() }}
	})
	if s.Clients, err = cluster.NewClients(cluster.Unlimited(config)); err != nil {
		return fmt.Errorf("client for the Control Plane Cluster: %w", err)
	}
	if s.target, err = klutchsync.NewCluster(config); err != nil {
		return err
	}
	s.target = s.target.IdentifiedBy(s.place.Namespace).Bounded() // tenants may not read kube-system
	return nil
}

func (s *session) controllers() error {
	exports, namespaces := cluster.Objects(s.Watches, cluster.APIServiceExports, s.place.Namespace), cluster.Objects(s.Watches, cluster.APIServiceNamespaces, s.place.Namespace)
	exports.Told, namespaces.Told = s.heartbeat.readable(true), s.heartbeat.readable(false)
	budget := &kubeconfig.Budget{Decoded: true}
	exports.Share, namespaces.Share = budget.Share("apiserviceexports"), budget.Share("apiservicenamespaces")
	s.exports = newExports(s.heartbeat, exports.Informer(cache.Indexers{}))
	own := cluster.Objects(s.Watches, cluster.ClusterBindings, s.place.Namespace)
	own.Only, own.Share = fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ClusterBindingName).String(), budget.Share("clusterbindings")
	own.Told = func(context.Context, error) {} // the heartbeat reads it, too
	s.tenant = own.Informer(cache.Indexers{})
	if _, err := s.tenant.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.heartbeat.tenantChanged, UpdateFunc: func(_, obj any) { s.heartbeat.tenantChanged(obj) }, DeleteFunc: func(any) { s.heartbeat.lookNow() },
	}); err != nil {
		return err
	}
	s.namespaces = servicenamespace.New(servicenamespace.Config{
		Calls: s.Calls, Tenant: s.place.Namespace, Asked: namespaces.Informer(cache.Indexers{}), App: s.app.namespaces, Grace: s.opts.NamespaceGrace,
		Touch: func() { s.touch(s.heartbeat.secret.name) }, Gone: s.app.namespaceGone, Holds: s.holds, WhileOurs: s.heartbeat.whileOurs, Patience: patience, Recordable: s.records.next,
	})
	if _, err := s.namespaces.Asked.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: s.namespaces.Freed}); err != nil {
		return err
	}
	if err := errors.Join(s.exports.informer.SetWatchErrorHandlerWithContext(s.interrupted), s.namespaces.Asked.SetWatchErrorHandlerWithContext(s.interrupted)); err != nil {
		return err
	}
	for _, w := range []struct {
		c    *controller.Controller
		inf  cache.SharedIndexInformer
		keys func(metav1.Object) []cache.ObjectName
	}{
		{s.bindings, s.exports.informer, s.exports.bindingsWith},
		{s.exports.queue, s.exports.informer, controller.Self},
		{s.exports.queue, s.app.bindings, s.exports.of},
		{s.exports.queue, s.app.crds, s.exports.of},
		{s.namespaces.Queue, s.namespaces.Asked, nameOnly},
		{s.namespaces.Queue, s.app.namespaces, nameOnly},
	} {
		if err := s.watch(w.c, w.inf, w.keys); err != nil {
			return err
		}
	}
	return nil
}

// watch feeds c from inf for as long as the session lives.
func (s *session) watch(c *controller.Controller, inf cache.SharedIndexInformer, keys func(metav1.Object) []cache.ObjectName) error {
	detach, err := c.Watch(inf, keys)
	if err != nil {
		return err
	}
	s.handlers = append(s.handlers, detach)
	return nil
}

// detach leaves nothing of the session at the informers that outlive it.
func (s *session) detach() {
	for _, detach := range s.handlers {
		detach()
	}
	s.Close()
}

// holds names an object of an API of the tenant that is in a service namespace, or an API of which it cannot be
// told; empty if there is none.
func (s *session) holds(ctx context.Context, service string) (string, error) {
	exports, err := s.Calls.Resource(cluster.APIServiceExports).Namespace(s.place.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("list what %s exports: %w", s.place.Namespace, err)
	}
	for i := range exports.Items {
		export, err := cluster.Decode[v1alpha1.APIServiceExport](&exports.Items[i])
		if err != nil {
			return "", err
		}
		list, err := s.Calls.Resource(crd.SyncVersion(&export.Spec, "")).Namespace(service).List(ctx, metav1.ListOptions{Limit: 1})
		switch wide := export.Spec.Scope == v1alpha1.ClusterScope && export.Spec.ClusterScopedIsolation != v1alpha1.IsolationNamespaced; {
		// Its objects are in no namespace, unless the provider has changed that of late.
		case wide && fates.Is(err, fates.Unserved, fates.Absent, fates.Forbidden):
		case fates.Is(err, fates.Unserved):
			return export.Name + " is not served in the version of its APIServiceExport", nil
		case err != nil:
			return "", fmt.Errorf("look for %s in %s: %w", export.Name, service, err)
		case len(list.Items) > 0:
			return export.Name + " " + list.Items[0].GetName(), nil
		}
	}
	return "", nil
}

func nameOnly(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName("", o.GetName())}
}

// start begins to work; ctx ends it, as end does.
func (s *session) start(ctx context.Context) {
	log := s.log.WithValues("controlPlane", s.place.Server, "tenant", s.place.Namespace)
	ctx, s.stop = context.WithCancel(logr.NewContext(ctx, log))
	s.heartbeat.lookNow()
	go func() {
		defer close(s.done)
		defer s.detach()
		err := group.Run(ctx, group.Informer(s.exports.informer), group.Informer(s.namespaces.Asked), group.Informer(s.tenant), s.listed, s.heartbeat.queue.Run, s.exports.queue.Run, s.namespaces.Queue.Run)
		if err != nil {
			log.Error(err, "session ended")
		}
	}()
}

// listed tells the bindings once it is known which exports and service namespaces there
// are.
func (s *session) listed(ctx context.Context) error {
	if cache.WaitFor(ctx, "", s.exports.informer.HasSyncedChecker(), s.namespaces.Asked.HasSyncedChecker()) {
		s.touch(s.heartbeat.secret.name)
	}
	<-ctx.Done()
	return nil
}

func (s *session) end() {
	s.stop()
	<-s.done
}

// A sentry is a transport that reports each answer 401: the API server takes the token no more.
type sentry struct {
	next         http.RoundTripper
	unauthorized func()
}

// RoundTrip implements [http.RoundTripper].
func (s *sentry) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := s.next.RoundTrip(r)
	if err == nil && fates.OfCode(answer.StatusCode) == fates.Unauthorized {
		s.unauthorized()
	}
	return answer, err
}

// WrappedRoundTripper is the one within.
func (s *sentry) WrappedRoundTripper() http.RoundTripper { return s.next }

// use takes up a new token at once; what runs goes on.
func (s *session) use(token string) {
	if s.token.Swap(token) != token || s.heartbeat.snapshot().refused.Type != "" {
		s.heartbeat.lookNow()
	}
}

// interrupted is called when a watch ends with an error.
func (s *session) interrupted(ctx context.Context, _ *cache.Reflector, err error) {
	logr.FromContextOrDiscard(ctx).V(4).Info("watch interrupted", "reason", cluster.Explain(err))
	s.heartbeat.lookNow()
}
