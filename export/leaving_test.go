// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP13TenantLeaves: tenants delete their own ClusterBindings while the backend is
// down. Those without objects are gone soon after it is back, however many they are and
// whatever else is held; one with objects goes on as before; and where the platform
// team has chosen a policy, a tenant has no say.
func TestP13TenantLeaves(t *testing.T) {
	w := newStillWorld(t)
	var empty, held []*tenantClient
	var waits, chosen *tenantClient
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"tenants settle", func() {
			w.serve(Options{RemovalsAtOnce: 1})
			for i := range 3 {
				empty = append(empty, w.tenant("ada", fmt.Sprintf("c%d", i), "widgets.example.org"))
			}
			empty[0].request("first", "widgets.example.org")
			empty[0].mirror("team-a")
			waits, chosen = w.settle("grace", "c1"), w.tenant("grace", "c2", "widgets.example.org")
			held = []*tenantClient{w.tenant("grace", "c3", "widgets.example.org"), w.tenant("grace", "c4", "widgets.example.org")}
		}},
		{"the backend is down", func() {
			chosen.policy(w.t, v1alpha1.DeletionPolicyDelete)
			for _, c := range append(empty, waits) {
				if err := c.leave(); err != nil {
					w.t.Error(err)
				}
			}
			if err := chosen.leave(); err == nil || !strings.Contains(err.Error(), "the platform team has set spec.deletionPolicy, and removes this tenant itself") {
				w.t.Errorf("a tenant that may not leave: %v", err)
			}
			for _, c := range held {
				c.remove(w.t, v1alpha1.DeletionPolicyDelete)
			}
		}},
		{"it is back, and knows little", func() {
			w.tune = blindTo("/apiservicenamespaces")
			w.serve(Options{RemovalsAtOnce: 1})
			for _, c := range held {
				c.awaitsRemoval(v1alpha1.ReasonRemovalHeld, "2 tenants are being removed at once")
			}
			waits.awaitsRemoval(tenant.ReasonObjectsRemain, "widgets.example.org are left in "+waits.namespace+"-team-a")
			waits.widget(w.t)
			for _, c := range empty[1:] {
				c.isDead()
			}
		}},
		{"it knows all", func() {
			w.tune = nil
			w.serve(Options{RemovalsAtOnce: 1})
			if _, _, err := w.login("grace", "c1", "widgets.example.org"); err == nil || !strings.Contains(err.Error(), "temporarily_unavailable") || !strings.Contains(err.Error(), "are left in") {
				w.t.Errorf("a login at a tenant that is being removed: %v", err)
			}
			for _, c := range empty {
				c.isDead()
				c.isGone(c.namespace)
			}
			again := w.tenant("ada", "c0", "widgets.example.org")
			if got := again.request("first", "widgets.example.org"); got.Status.Phase != v1alpha1.RequestSucceeded {
				w.t.Errorf("a tenant that is back: %+v", got.Status)
			}
			again.mirror("team-a")
			if _, err := chosen.kube.CoreV1().Namespaces().Get(w.t.Context(), chosen.namespace, metav1.GetOptions{}); err != nil {
				w.t.Errorf("a tenant that may not leave: %v", err)
			}
			waits.widget(w.t)
			if err := waits.dyn.Resource(widgets).Namespace(waits.namespace+"-team-a").Delete(w.t.Context(), "w", metav1.DeleteOptions{}); err != nil {
				w.t.Fatal(err)
			}
			waits.isGone(waits.namespace)
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) { w.t = t; step.run() }) {
			return
		}
	}
}

// leave is what kubectl bind unbind does with a tenant's own credential.
func (c *tenantClient) leave() error {
	return c.dyn.Resource(tenant.ClusterBindingResource).Namespace(c.namespace).Delete(c.w.t.Context(), v1alpha1.ClusterBindingName, metav1.DeleteOptions{})
}

// blindTo keeps the caches of a backend from ever knowing what is at a path.
func blindTo(path string) func(*Exporter) {
	return func(e *Exporter) {
		config := watchstore.Config(e.config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if strings.Contains(r.URL.Path, path) {
					<-r.Context().Done()
					return nil, r.Context().Err()
				}
				return next.RoundTrip(r)
			})
		})
		e.watches.Dyn = must(dynamic.NewForConfig(config))
	}
}

// A pass over a tenant that began before its removal gives nothing back of what the removal
// takes: the removal waits for it, and revokes once.
func TestRemovalWaitsForPass(t *testing.T) {
	const (
		slow     = 12 * time.Second // is an API server, so that the pass outlasts the grace of the removal
		patience = 2 * time.Second  // with an event that does not come where one waits for the other
	)
	w := newStillWorld(t)
	var armed atomic.Bool
	looks, deleted, made := newEvent(), newEvent(), newEvent()
	w.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			_, secret, is := strings.Cut(r.URL.Path, "/secrets")
			switch anchor := secret == "/"+v1alpha1.TokenAnchorSecret; {
			case !is || !armed.Load():
			case r.Method == http.MethodGet && anchor: // a pass
				looks.happen()
				deleted.await(slow)
			case r.Method == http.MethodPost && secret == "": // which makes it anew
				defer made.happen()
			case r.Method == http.MethodDelete && anchor: // the removal
				defer deleted.happen()
			case r.Method == http.MethodDelete:
				made.await(patience)
			}
			return next.RoundTrip(r)
		})
	})
	w.serve(Options{})
	ada := w.tenant("ada", "c1", "widgets.example.org")
	ada.policy(t, v1alpha1.DeletionPolicyDelete)
	armed.Store(true)
	touch := []byte(`{"metadata":{"annotations":{"example.org/touched":"yes"}}}`)
	if _, err := w.admin.CoreV1().ServiceAccounts(ada.namespace).Patch(t.Context(), v1alpha1.TenantServiceAccount, types.MergePatchType, touch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if !looks.await(time.Minute) {
		t.Fatal("no pass over the tenant")
	}
	ada.remove(t, "")
	w.awaitRecord("tenant removed")
	ada.isGone(ada.namespace)
	if n := strings.Count(w.log.String(), "credential revoked"); n != 1 {
		t.Errorf("revoked %d times, want once:\n%s", n, strings.Join(w.audited(), "\n"))
	}
}

// An event happens once.
type event struct {
	once sync.Once
	done chan struct{}
}

func newEvent() *event { return &event{done: make(chan struct{})} }

func (e *event) happen() { e.once.Do(func() { close(e.done) }) }

// await reports whether it happened within that time.
func (e *event) await(within time.Duration) bool {
	select {
	case <-e.done:
		return true
	case <-time.After(within):
		return false
	}
}
