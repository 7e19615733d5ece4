// SPDX-License-Identifier: Apache-2.0

package testplatform

import (
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A Platform is an HTTPS server on a loopback address. It may be used by many
// goroutines at once.
type Platform struct {
	tb       testing.TB
	upstream *rest.Config // nil if it keeps its objects by itself
	server   *httptest.Server
	honest   http.Handler
	store    *store // nil if it does not

	mu     sync.Mutex
	faults []*ordered
	asked  []*http.Request
}

// An ordered fault is one for some requests.
type ordered struct {
	match Match
	fault Fault
}

// Start serves a platform until the test ends: one in front of the API server of
// upstream, or for nil one that keeps its objects by itself.
func Start(tb testing.TB, upstream *rest.Config) *Platform {
	tb.Helper()
	if upstream == nil {
		s := newStore()
		p := Front(tb, s)
		p.store = s
		return p
	}
	honest, err := proxy(upstream)
	if err != nil {
		tb.Fatal(err)
	}
	p := Front(tb, honest)
	p.upstream = upstream
	return p
}

// Front serves a platform in front of a handler until the test ends.
func Front(tb testing.TB, honest http.Handler) *Platform {
	tb.Helper()
	p := &Platform{tb: tb, honest: honest}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients hang up on an enemy
	p.server.StartTLS()
	tb.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// ServeHTTP implements [http.Handler].
func (p *Platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f := p.faultFor(r); f != nil {
		f(w, r, p.honest)
		return
	}
	p.honest.ServeHTTP(w, r)
}

// faultFor notes the request and returns the fault that was told last for it.
func (p *Platform) faultFor(r *http.Request) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, &http.Request{Method: r.Method, URL: r.URL})
	for _, f := range slices.Backward(p.faults) {
		if f.match(r) {
			return f.fault
		}
	}
	return nil
}

// Fault misbehaves for the requests that match, until mend is called. Of several
// faults for a request the latest counts.
func (p *Platform) Fault(match Match, fault Fault) (mend func()) {
	f := &ordered{match, fault}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.faults = slices.DeleteFunc(p.faults, func(other *ordered) bool { return other == f })
	}
}

// Hangup ends all connections, and with them watches that began before a fault.
func (p *Platform) Hangup() { p.server.CloseClientConnections() }

// Asked counts the requests that match.
func (p *Platform) Asked(match Match) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, r := range p.asked {
		if match(r) {
			n++
		}
	}
	return n
}

// URL is where the platform is.
func (p *Platform) URL() string { return p.server.URL }

// CA is the certificate of the platform, in PEM.
func (p *Platform) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

// Kubeconfig leads to a tenant namespace of the platform.
func (p *Platform) Kubeconfig(namespace, token string) *kubeconfig.Kubeconfig {
	return &kubeconfig.Kubeconfig{Server: p.URL(), CAData: p.CA(), Namespace: namespace, Token: token}
}

// Plant writes objects as the platform's administrator.
func (p *Platform) Plant(objects ...*unstructured.Unstructured) {
	p.tb.Helper()
	if p.store != nil {
		p.tb.Fatal("testplatform: Plant is for API servers; use Put")
	}
	client, err := dynamic.NewForConfig(p.upstream)
	if err != nil {
		p.tb.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(p.upstream))
	if err != nil {
		p.tb.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, u := range objects {
		mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			p.tb.Fatal(err)
		}
		var r dynamic.ResourceInterface = client.Resource(mapping.Resource)
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			r = client.Resource(mapping.Resource).Namespace(u.GetNamespace())
		}
		if _, err := r.Apply(p.tb.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "testplatform", Force: true}); err != nil {
			p.tb.Fatalf("plant %s %s: %v", u.GetKind(), u.GetName(), err)
		}
	}
}

// Put has a platform without an API server serve objects of a resource.
func (p *Platform) Put(resource string, objects ...*unstructured.Unstructured) {
	p.tb.Helper()
	if p.store == nil {
		p.tb.Fatal("testplatform: Put is for platforms without an API server; use Plant")
	}
	for _, u := range objects {
		p.store.put(address{groupVersion: u.GetAPIVersion(), namespace: u.GetNamespace(), resource: resource, name: u.GetName()}, u.DeepCopy())
	}
}
