// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Options are the options of a konnector, complete; see the Options of package bind.
type Options struct {
	Version            string
	HeartbeatInterval  time.Duration
	NamespaceGrace     time.Duration
	SchemaInterval     time.Duration
	CRDOwnerReferences bool
	Sync               func(binding string, opts *klutchsync.Options)
}

// shared is what the connections of a konnector have in common.
type shared struct {
	app      *appCluster
	opts     Options
	bindings *controller.Controller // looks at bindings
	log      logr.Logger
}

// touch asks for a look at all bindings of a Secret.
func (s *shared) touch(secret cache.ObjectName) {
	for _, b := range s.app.lookup(indexSecret, secret.String()) {
		s.bindings.Add(b)
	}
}

// connections are the connections of a konnector, by Secret.
type connections struct {
	*shared

	wg sync.WaitGroup // of the connections that run

	mu       sync.Mutex
	uses     map[cache.ObjectName]cache.ObjectName // the Secret of each binding
	bySecret map[cache.ObjectName]*connection
}

func newConnections(s *shared) *connections {
	return &connections{shared: s, uses: map[cache.ObjectName]cache.ObjectName{}, bySecret: map[cache.ObjectName]*connection{}}
}

// of returns the connection that a binding names, also before its first pass; nil if there
// is none.
func (all *connections) of(binding cache.ObjectName) *connection {
	b, err := all.app.binding(binding)
	if b == nil || err != nil {
		return nil
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.bySecret[cache.NewObjectName(b.Spec.KubeconfigSecretRef.Namespace, b.Spec.KubeconfigSecretRef.Name)]
}

// connect returns the connection over secret, and ends the one that the binding used
// before if it is unused now.
func (all *connections) connect(ctx context.Context, binding, secret cache.ObjectName) *connection {
	all.mu.Lock()
	defer all.mu.Unlock()
	if before, ok := all.uses[binding]; ok && before != secret {
		all.drop(binding)
	}
	all.uses[binding] = secret
	c := all.bySecret[secret]
	if c == nil {
		c = newConnection(all.shared, secret)
		ctx, c.stop = context.WithCancel(ctx) // that of Run: a call of reconcile has none of its own
		all.bySecret[secret] = c
		all.wg.Go(func() {
			if err := c.run(ctx); err != nil {
				all.log.Error(err, "connection ended", "secret", secret.String())
			}
		})
	}
	return c
}

// disconnect gives up the binding's use of its connection.
func (all *connections) disconnect(binding cache.ObjectName) {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.drop(binding)
}

// drop is disconnect for callers that have the lock.
func (all *connections) drop(binding cache.ObjectName) {
	secret, ok := all.uses[binding]
	delete(all.uses, binding)
	for _, other := range all.uses {
		if other == secret {
			return
		}
	}
	if c := all.bySecret[secret]; ok && c != nil {
		c.stop()
		delete(all.bySecret, secret)
	}
}

// A connection is a kubeconfig Secret and what it leads to. Bindings that name the
// same Secret share it.
type connection struct {
	*shared

	secret kubeconfigSecret
	queue  *controller.Controller // looks at the Secret
	stop   context.CancelFunc

	passes chan struct{} // has one for each pass that goes on

	mu      sync.Mutex
	valid   v1alpha1.Condition // SecretValid
	session *session           // nil while the Secret is of no use
}

// newConnection watches the one Secret and nothing beside it.
func newConnection(s *shared, name cache.ObjectName) *connection {
	c := &connection{
		shared: s,
		secret: kubeconfigSecret{name: name, calls: s.app.Calls, rotations: newRarePace()},
		passes: make(chan struct{}, mostPasses),
		valid:  pending(v1alpha1.ConditionSecretValid, fmt.Sprintf("Reading Secret %s.", name)),
	}
	r := cluster.Objects(s.app.Watches, cluster.Secrets, name.Namespace)
	r.Told, r.Only = c.readable, fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	c.secret.informer = r.Informer(cache.Indexers{})
	c.queue = controller.New("kubeconfig", c.reconcile, controller.Options{})
	return c
}

// run follows the Secret until ctx is done, and ends the session then.
func (c *connection) run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, c.log.WithValues("secret", c.secret.name.String()))
	if _, err := c.queue.Watch(c.secret.informer, controller.Self); err != nil {
		return err
	}
	c.queue.Add(c.secret.name) // it may not be there
	defer c.end()
	return group.Run(ctx, group.Informer(c.secret.informer), c.queue.Run)
}

// state is what the Secret is worth, and where it leads to.
func (c *connection) state() (v1alpha1.Condition, *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.valid, c.session
}

// readable is called when the Secret cannot be watched, and when it can be again.
func (c *connection) readable(ctx context.Context, err error) {
	if err == nil {
		c.queue.Add(c.secret.name) // it may be as it was, or not there: the watch shows neither
		return
	}
	switch valid, session := c.state(); {
	case fates.Is(err, fates.Forbidden, fates.Terminating):
		c.set(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound,
			fmt.Sprintf("The konnector may not read Secret %s: it reads Secrets of namespace %s only.", c.secret.name, v1alpha1.Namespace)))
		c.touch(c.secret.name)
	case session == nil && isPending(valid): // it has not been read yet
		c.set(pending(v1alpha1.ConditionSecretValid, fmt.Sprintf("Secret %s cannot be read: %s.", c.secret.name, cluster.Explain(err))))
		c.touch(c.secret.name)
	}
	logr.FromContextOrDiscard(ctx).V(4).Info("watch of Secret interrupted", "reason", cluster.Explain(err))
}

func (c *connection) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	k, valid := c.secret.read()
	defer c.touch(c.secret.name)
	if k == nil {
		c.end()
		c.set(valid)
		return 0, nil
	}
	return 0, c.open(ctx, k)
}

func (c *connection) set(valid v1alpha1.Condition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = valid
}

// open makes k the credential: of the session that is there, if it leads to the same
// place, else of a new one.
func (c *connection) open(ctx context.Context, k *kubeconfig.Kubeconfig) error {
	_, s := c.state()
	if s != nil && samePlace(&s.place, k) {
		s.use(k.Token)
		c.set(v1alpha1.True(v1alpha1.ConditionSecretValid))
		return nil
	}
	c.end()
	s, err := newSession(c.shared, &c.secret, k)
	if err != nil {
		c.set(c.secret.invalid(err))
		return nil // the condition says it, and a retry cannot cure it
	}
	s.start(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.valid = s, v1alpha1.True(v1alpha1.ConditionSecretValid)
	return nil
}

// end ends the session and returns when it has ended.
func (c *connection) end() {
	c.mu.Lock()
	s := c.session
	c.session = nil
	c.mu.Unlock()
	if s != nil {
		s.end()
	}
}

// enter reports whether there is room for one more pass.
func (c *connection) enter() bool {
	select {
	case c.passes <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *connection) leave() { <-c.passes }
