// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A connection is a kubeconfig Secret and what it leads to. Bindings that name the
// same Secret share it.
type connection struct {
	agent    *Konnector
	name     cache.ObjectName // of the Secret
	informer cache.SharedIndexInformer
	stop     context.CancelFunc

	passes chan struct{} // has one for each pass that goes on

	mu      sync.Mutex
	valid   v1alpha1.Condition // SecretValid
	session *session           // nil while the Secret is of no use
}

// newConnection watches the one Secret and nothing beside it.
func newConnection(a *Konnector, name cache.ObjectName) *connection {
	c := &connection{
		agent:  a,
		name:   name,
		passes: make(chan struct{}, mostPasses),
		valid:  pending(v1alpha1.ConditionSecretValid, fmt.Sprintf("Reading Secret %s.", name)),
	}
	r := cluster.Objects(a.app.watches, cluster.Secrets, name.Namespace)
	r.Told, r.Only = c.readable, fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	c.informer = r.Informer(cache.Indexers{})
	return c
}

// run follows the Secret until ctx is done, and ends the session then.
func (c *connection) run(ctx context.Context) error {
	ctx = logr.NewContext(ctx, c.agent.log.WithValues("secret", c.name.String()))
	ctl := cluster.NewController("kubeconfig", c.reconcile, 1)
	if _, err := ctl.Watch(c.informer, controller.Self); err != nil {
		return err
	}
	ctl.Add(c.name) // it may not be there
	defer c.end()
	return group.Run(ctx, group.Informer(c.informer), ctl.Run)
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
		return // the watch shows what it is worth
	}
	if fates.Is(err, fates.Forbidden, fates.Terminating) {
		c.set(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound,
			fmt.Sprintf("The konnector may not read Secret %s: it reads Secrets of namespace %s only.", c.name, v1alpha1.Namespace)))
		c.agent.touch(c.name)
	}
	logr.FromContextOrDiscard(ctx).V(4).Info("watch of Secret interrupted", "reason", cluster.Explain(err))
}

func (c *connection) reconcile(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
	k, valid := c.read()
	defer c.agent.touch(c.name)
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

// secret returns the Secret from the cache.
func (c *connection) secret() *unstructured.Unstructured { return stored(c.informer, c.name) }

// read returns the kubeconfig, or nil and what is wrong with it.
func (c *connection) read() (*kubeconfig.Kubeconfig, v1alpha1.Condition) {
	u := c.secret()
	if u == nil {
		return nil, failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound,
			fmt.Sprintf("Secret %s is not there. %s", c.name, repair))
	}
	k, err := cluster.ReadSecret(u)
	if err != nil {
		return nil, invalidSecret(c.name, err)
	}
	return k, v1alpha1.True(v1alpha1.ConditionSecretValid)
}

func invalidSecret(name cache.ObjectName, err error) v1alpha1.Condition {
	return failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid,
		fmt.Sprintf("The kubeconfig in Secret %s is refused: %v. %s", name, err, repair))
}

// open makes k the credential: of the session that is there, if it leads to the same
// place, else of a new one.
func (c *connection) open(ctx context.Context, k *kubeconfig.Kubeconfig) error {
	_, s := c.state()
	if s != nil && s.leadsTo(k) {
		s.use(k.Token)
		c.set(v1alpha1.True(v1alpha1.ConditionSecretValid))
		return nil
	}
	c.end()
	s, err := newSession(c, k)
	if err != nil {
		c.set(invalidSecret(c.name, err))
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

// connectionOf returns the connection that a binding used last; nil for none.
func (a *Konnector) connectionOf(binding cache.ObjectName) *connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.connections[a.uses[binding]]
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

// connect returns the connection over secret, and ends the one that the binding used
// before if it is unused now.
func (a *Konnector) connect(ctx context.Context, binding, secret cache.ObjectName) *connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.uses[binding]; ok && before != secret {
		a.release(binding)
	}
	a.uses[binding] = secret
	c := a.connections[secret]
	if c == nil {
		c = newConnection(a, secret)
		ctx, c.stop = context.WithCancel(ctx) // that of Run: a call of reconcile has none of its own
		a.connections[secret] = c
		a.wg.Go(func() {
			if err := c.run(ctx); err != nil {
				a.log.Error(err, "connection ended", "secret", secret.String())
			}
		})
	}
	return c
}

// disconnect gives up the binding's use of its connection.
func (a *Konnector) disconnect(binding cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release(binding)
}

// release is disconnect for those who hold the lock.
func (a *Konnector) release(binding cache.ObjectName) {
	secret, ok := a.uses[binding]
	delete(a.uses, binding)
	for _, other := range a.uses {
		if other == secret {
			return
		}
	}
	if c := a.connections[secret]; ok && c != nil {
		c.stop()
		delete(a.connections, secret)
	}
}
