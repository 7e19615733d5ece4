// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// records are what a program has logged.
type records struct {
	mu    sync.Mutex
	lines []string
}

func (r *records) context(ctx context.Context) context.Context {
	return logr.NewContext(ctx, funcr.NewJSON(func(line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, line)
	}, funcr.Options{}))
}

// take returns what was logged since the last call.
func (r *records) take() (lines []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines, r.lines = r.lines, nil
	return lines
}

// serveIssuer serves i at a new address until stop is called.
func serveIssuer(t *testing.T, i *testissuer.Issuer) (address string, stop func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { _ = i.Serve(ctx, listener, nil) })
	stop = func() { cancel(); serving.Wait() }
	t.Cleanup(stop)
	return listener.Addr().String(), stop
}

// An issuer that stops is told by the log, by /readyz and by the hook, once an hour, and so
// is its return; the backend stays ready all along.
func TestIssuerAway(t *testing.T) {
	i := testissuer.New(testissuer.Options{URL: "http://127.0.0.1:1"})
	address, stop := serveIssuer(t, i)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
	p, err := auth.New(auth.Config{Issuer: i.URL(), ClientID: "klutch", HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	log, now, up := &records{}, time.Now(), map[string]bool{}
	watched := &issuers{now: func() time.Time { return now }, seen: func(name string, is bool) { up[name] = is }}
	watched.add("login", p)
	watched.add("machines-1", p) // of the same issuer
	look := func(when string, later time.Duration, wantUp bool, wantLog string) {
		t.Helper()
		now = now.Add(later)
		watched.look(log.context(t.Context()))
		page := httptest.NewRecorder()
		health(nil, watched.away).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
		if is, told := up["login"]; page.Code != http.StatusOK || is != wantUp || !told || len(up) != 1 || strings.Contains(page.Body.String(), "issuer login ("+i.URL()+") is away since") == wantUp {
			t.Errorf("%s: up is %v, /readyz %d %s", when, up, page.Code, page.Body)
		}
		lines := log.take()
		if wantLog == "" && len(lines) > 0 || wantLog != "" && (len(lines) != 1 || !strings.Contains(lines[0], wantLog)) {
			t.Errorf("%s: logged %q, want %q", when, lines, wantLog)
		}
	}
	look("there", 0, true, "")
	stop()
	look("away", time.Minute, false, "the issuer does not answer")
	look("still away", time.Minute, false, "")
	look("after an hour", time.Hour, false, "the issuer does not answer")
	address, _ = serveIssuer(t, i)
	look("back", time.Minute, true, `"away":"1h2m0s"`)
	look("still there", time.Minute, true, "")
}

// silence is a network in which no request is answered.
type silence struct{}

func (silence) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// An issuer that takes requests and does not answer is away after ten seconds.
func TestIssuerHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := auth.New(auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", HTTPClient: &http.Client{Transport: silence{}}})
		if err != nil {
			t.Fatal(err)
		}
		log, began := &records{}, time.Now()
		watched := &issuers{now: time.Now}
		watched.add("login", p)
		watched.look(log.context(t.Context()))
		if took := time.Since(began); took != issuerPatience || !strings.Contains(watched.away(), "https://login.example.com) is away since") {
			t.Errorf("after %s: %q", took, watched.away())
		}
		time.Sleep(time.Minute) // the request outlives the look, until the client's timeout
	})
}

// Both programs begin with one line that says what they are and where.
func TestStartLines(t *testing.T) {
	log, config := &records{}, &rest.Config{Host: "https://127.0.0.1:1"}
	ctx, cancel := context.WithCancel(log.context(t.Context()))
	cancel()
	backend := Backend{
		Config: config, Login: auth.Config{Issuer: "http://127.0.0.1:1", ClientID: "klutch"}, SessionKeys: [][]byte{make([]byte, sessionKeySize)},
		Options: export.Options{ExternalURL: "https://bind.example.com", Version: "v1.2.3"}, ListenAddress: "127.0.0.1:0",
		Issuers:  []Issuer{{Name: "partners", Login: auth.Config{Issuer: "http://127.0.0.1:2", ClientID: "klutch"}}},
		Machines: []auth.Config{{Issuer: "http://127.0.0.1:3", ClientID: "klutch", Audiences: []string{"machines"}}},
	}
	konnector := Konnector{Config: config, LeaseNamespace: "n", LeaseName: "l"}
	konnector.Options.Version = "v1.2.3"
	for name, c := range map[string]struct {
		run  func(context.Context) error
		says []string
	}{
		"backend":   {backend.Run, []string{"v1.2.3", "commit", "127.0.0.1:0", "http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", "https://bind.example.com", "https://127.0.0.1:1"}},
		"konnector": {konnector.Run, []string{"v1.2.3", "commit", "https://127.0.0.1:1", "klutch-bind", "n/l"}},
	} {
		if err := c.run(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		lines := log.take()
		if len(lines) == 0 || !strings.Contains(lines[0], "starting the "+name) {
			t.Errorf("%s logs %q", name, lines)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(lines[0], `"`+word+`"`) {
				t.Errorf("%s does not say %s: %s", name, word, lines[0])
			}
		}
	}
}

// A backend looks at its issuers as soon as it runs.
func TestBackendLooksAtIssuers(t *testing.T) {
	seen := make(chan string, 4)
	ctx, cancel := context.WithCancel(t.Context())
	b := Backend{
		Config:      &rest.Config{Host: "https://127.0.0.1:1"},
		Login:       auth.Config{Issuer: "http://127.0.0.1:1", ClientID: "klutch"},
		Issuers:     []Issuer{{Name: "partners", Login: auth.Config{Issuer: "http://127.0.0.1:2", ClientID: "klutch"}}},
		Machines:    []auth.Config{{Audiences: []string{"machines"}}, {Issuer: "http://127.0.0.1:3", Audiences: []string{"machines"}}},
		Options:     export.Options{ExternalURL: "https://bind.example.com"},
		SessionKeys: [][]byte{make([]byte, sessionKeySize)}, ListenAddress: "127.0.0.1:0",
		IssuerSeen: func(name string, up bool) {
			if !up {
				seen <- name
			}
		},
	}
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	got := map[string]bool{}
	for range 3 {
		got[<-seen] = true
	}
	cancel()
	if err := <-done; err != nil || !got["login"] || !got["partners"] || !got["machines-2"] {
		t.Errorf("looked at %v, %v", got, err)
	}
}
