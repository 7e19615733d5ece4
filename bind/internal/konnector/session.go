// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A session is the tenant namespace of one Control Plane Cluster, as long as the
// kubeconfig leads there.
type session struct {
	agent      *Konnector
	connection *connection
	place      kubeconfig.Kubeconfig // without token
	token      *kubeconfig.Token

	clients

	handlers []func() // detach what listens to informers
	target   *klutchsync.Cluster

	exports cache.SharedIndexInformer
	asked   cache.SharedIndexInformer // APIServiceNamespaces

	heartbeat  *heartbeat
	status     *controller.Controller // of exports
	said       pace                   // of what it tells of them
	namespaces *serviceNamespaces
	records    refusalRecords

	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	seen snapshot
}

// newSession does no I/O.
func newSession(c *connection, k *kubeconfig.Kubeconfig) (*session, error) {
	s := &session{
		agent: c.agent, connection: c, place: *k, done: make(chan struct{}),
		said: newPace(),
	}
	s.place.Token = ""
	s.seen.beating = pending(v1alpha1.ConditionHeartbeating, "Connecting to the Control Plane Cluster.")
	config, token, err := k.Rotating()
	if err != nil {
		return nil, err
	}
	config.UserAgent, s.token = rest.DefaultKubernetesUserAgent(), token
	if err := s.connect(config); err != nil {
		return nil, err
	}
	if err := s.controllers(); err != nil { // as the konnector ends
		for _, c := range []*controller.Controller{s.heartbeat.queue, s.status, s.namespaces.queue} {
			c.ShutDown()
		}
		s.detach()
		return nil, err
	}
	return s, nil
}

func (s *session) connect(config *rest.Config) error {
	var err error
	if s.clients, err = newClients(unlimited(config)); err != nil {
		return fmt.Errorf("client for the Control Plane Cluster: %w", err)
	}
	if s.target, err = klutchsync.NewCluster(config); err != nil {
		return err
	}
	s.target = s.target.IdentifiedBy(s.place.Namespace).Bounded() // tenants may not read kube-system
	exports, namespaces := cluster.Objects(s.watches, cluster.APIServiceExports, s.place.Namespace), cluster.Objects(s.watches, cluster.APIServiceNamespaces, s.place.Namespace)
	exports.Told, namespaces.Told = s.readable(true), s.readable(false)
	budget := &kubeconfig.Budget{Decoded: true}
	exports.Share, namespaces.Share = budget.Share("apiserviceexports"), budget.Share("apiservicenamespaces")
	s.exports = exports.Informer(cache.Indexers{})
	s.asked = namespaces.Informer(cache.Indexers{})
	return errors.Join(s.exports.SetWatchErrorHandlerWithContext(s.interrupted), s.asked.SetWatchErrorHandlerWithContext(s.interrupted))
}

func (s *session) controllers() error {
	app := s.agent.app
	s.heartbeat = newHeartbeat(s)
	s.status = cluster.NewController("export-status", s.holding(s.reconcileExport), 1)
	s.namespaces = newServiceNamespaces(s)
	for _, w := range []struct {
		c    *controller.Controller
		inf  cache.SharedIndexInformer
		keys func(metav1.Object) []cache.ObjectName
	}{
		{s.status, s.exports, controller.Self},
		{s.status, app.bindings, s.exportOf},
		{s.status, app.crds, s.exportOf},
		{s.namespaces.queue, s.asked, nameOnly},
		{s.namespaces.queue, app.namespaces, nameOnly},
	} {
		if err := s.watch(w.c, w.inf, w.keys); err != nil {
			return err
		}
	}
	_, err := s.exports.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: s.exportChanged, UpdateFunc: func(_, obj any) { s.exportChanged(obj) }, DeleteFunc: s.exportChanged,
	})
	return err
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
	s.close()
}

func nameOnly(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName("", o.GetName())}
}

// start begins to work; ctx ends it, as end does.
func (s *session) start(ctx context.Context) {
	log := s.agent.log.WithValues("controlPlane", s.place.Server, "tenant", s.place.Namespace)
	ctx, s.stop = context.WithCancel(logr.NewContext(ctx, log))
	s.lookNow()
	go func() {
		defer close(s.done)
		defer s.detach()
		err := group.Run(ctx, group.Informer(s.exports), group.Informer(s.asked), s.listed, s.heartbeat.queue.Run, s.status.Run, s.namespaces.queue.Run)
		if err != nil {
			log.Error(err, "session ended")
		}
	}()
}

// listed tells the bindings once it is known which exports and service namespaces there
// are.
func (s *session) listed(ctx context.Context) error {
	if cache.WaitFor(ctx, "", s.exports.HasSyncedChecker(), s.asked.HasSyncedChecker()) {
		s.agent.touch(s.connection.name)
	}
	<-ctx.Done()
	return nil
}

func (s *session) end() {
	s.stop()
	<-s.done
}

// use takes up a new token at once; what runs goes on.
func (s *session) use(token string) {
	if s.token.Swap(token) != token || s.snapshot().refused.Type != "" {
		s.lookNow()
	}
}

// lookNow asks for a look at the control plane now.
func (s *session) lookNow() {
	s.heartbeat.queue.Add(cache.NewObjectName(s.place.Namespace, v1alpha1.ClusterBindingName))
}

// interrupted is called when a watch ends with an error.
func (s *session) interrupted(ctx context.Context, _ *cache.Reflector, err error) {
	logr.FromContextOrDiscard(ctx).V(4).Info("watch interrupted", "reason", cluster.Explain(err))
	s.lookNow()
}

// readable takes note of when exports, or namespaces, can be read and when not. Both
// are reasons to look at the control plane.
func (s *session) readable(exports bool) func(context.Context, error) {
	return func(ctx context.Context, err error) {
		s.mu.Lock()
		if exports {
			s.seen.unreadable = unlisted(s.place.Server, cluster.APIServiceExports, err)
		} else {
			s.seen.unmapped = unlisted(s.place.Server, cluster.APIServiceNamespaces, err)
		}
		s.mu.Unlock()
		logr.FromContextOrDiscard(ctx).V(4).Info("reading the tenant namespace", "trouble", cluster.Trouble(err))
		s.agent.touch(s.connection.name)
		s.lookNow()
	}
}
