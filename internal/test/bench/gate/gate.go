// SPDX-License-Identifier: Apache-2.0

// Package gate counts what a program asks of an API server.
package gate

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

// A Gate stands before an API server and counts what one program asks for. Credentials
// go through as they are.
type Gate struct {
	server *httptest.Server

	mu       sync.Mutex
	requests map[string]int // ended or going on, by kind
	watches  int            // going on
	last     time.Time
}

// New returns a Gate that is open until ctx is done.
func New(ctx context.Context, config *rest.Config) (*Gate, error) {
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
	g := &Gate{requests: map[string]int{}}
	g.server = httptest.NewUnstartedServer(g.counting(proxy))
	g.server.EnableHTTP2 = true
	g.server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	g.server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	g.server.StartTLS()
	context.AfterFunc(ctx, g.server.CloseClientConnections)
	return g, nil
}

func (g *Gate) counting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		watch := r.URL.Query().Has("watch")
		g.note(kindOf(r), watch, 1)
		defer g.note("", watch, -1)
		next.ServeHTTP(w, r)
	})
}

func (g *Gate) note(kind string, watch bool, change int) {
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

// Seen is how many requests there were, by kind, and how many watches there are.
func (g *Gate) Seen() (requests map[string]int, watches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.requests), g.watches
}

// Quiet waits until nothing has been asked for, but for leases, for that long.
func (g *Gate) Quiet(ctx context.Context, still time.Duration) error {
	for before := -1; ; {
		requests, _ := g.Seen()
		delete(requests, "lease")
		now := Total(requests)
		if now == before {
			return nil
		}
		before = now
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(still):
		}
	}
}

// Total is how many requests there were of all kinds.
func Total(requests map[string]int) (n int) {
	for _, count := range requests {
		n += count
	}
	return n
}

// Kubeconfig writes a copy of a kubeconfig that leads through the gate.
func (g *Gate) Kubeconfig(path, dir string) (string, error) {
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

// CAFile writes the certificates that a config trusts.
func CAFile(config *rest.Config, dir string) (string, error) {
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
