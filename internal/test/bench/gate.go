// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// A gate stands before an API server and counts what one program asks for. Credentials
// go through as they are.
type gate struct {
	server *httptest.Server

	mu       sync.Mutex
	requests map[string]int // ended or going on, by kind
	watches  int            // going on
	last     time.Time
}

// newGate returns one that is open until ctx is done.
func newGate(ctx context.Context, config *rest.Config) (*gate, error) {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(config))
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // a watch tells at once
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g := &gate{requests: map[string]int{}}
	g.server = httptest.NewUnstartedServer(g.counting(proxy))
	g.server.EnableHTTP2 = true
	g.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	g.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	g.server.StartTLS()
	context.AfterFunc(ctx, g.server.CloseClientConnections)
	return g, nil
}

func (g *gate) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watch := r.URL.Query().Has("watch")
		g.note(kindOf(r), watch, 1)
		defer g.note("", watch, -1)
		next.ServeHTTP(w, r)
	})
}

func (g *gate) note(kind string, watch bool, change int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = time.Now()
	if kind != "" {
		g.requests[kind]++
	}
	if watch {
		g.watches += change
	}
}

// kindOf is "write" for what may change objects, and otherwise what is asked about.
func kindOf(r *http.Request) string {
	switch {
	case strings.Contains(r.URL.Path, "/leases"):
		return "lease"
	case strings.HasSuffix(r.URL.Path, "accessreviews"):
		return "access review"
	case r.Method != http.MethodGet:
		return "write"
	case r.URL.Query().Has("watch"):
		return "watch"
	case strings.Contains(r.URL.Path, "/secrets/"):
		return "read of a Secret"
	}
	return "read"
}

// seen is how many requests there were, by kind, and how many watches there are.
func (g *gate) seen() (requests map[string]int, watches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.requests), g.watches
}

// quiet waits until nothing has been asked for, but for leases, for that long.
func (g *gate) quiet(ctx context.Context, still time.Duration) error {
	for before := -1; ; {
		requests, _ := g.seen()
		delete(requests, "lease")
		now := total(requests)
		if now == before {
			return nil
		}
		before = now
		if wait(ctx, still); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

func total(requests map[string]int) (n int) {
	for _, count := range requests {
		n += count
	}
	return n
}

// kubeconfig writes a copy of a kubeconfig that leads through the gate.
func (g *gate) kubeconfig(path, dir string) (string, error) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.TLSServerName = g.server.URL, ""
		cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: g.server.Certificate().Raw})
	}
	through := filepath.Join(dir, "gate.kubeconfig")
	return through, clientcmd.WriteToFile(*config, through)
}

// caFile writes the certificates that a config trusts.
func caFile(config *rest.Config, dir string) (string, error) {
	data := config.CAData
	if len(data) == 0 {
		var err error
		if data, err = os.ReadFile(config.CAFile); err != nil {
			return "", errors.Join(errors.New("the API server's CA is not known"), err)
		}
	}
	path := filepath.Join(dir, "api-server.crt")
	return path, os.WriteFile(path, data, 0o600)
}
