// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/oauth2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestReplicas: two backends serve one login between them, and each goes on without
// the other.
func TestReplicas(t *testing.T) {
	const ns = "replicas"
	var f *front
	feature := features.New("two backends serve one login").
		Setup(step(ns, func(w world) { f = w.front() })).
		Assess("one request here, the next one there", step(ns, func(w world) { w.backAndForth(f) })).
		Assess("a code is good once, wherever it is redeemed", step(ns, func(w world) { w.redeemedEverywhere(f) })).
		Assess("a login on another device", step(ns, func(w world) { w.otherDevice(f) })).
		Assess("one that works is killed in the middle of a login", step(ns, func(w world) { w.killedMeanwhile(f) })).
		Assess("P2: no URL of all this carries a secret", step(ns, func(w world) { w.cleanURLs(f.seen()) })).
		Assess("the other one works on", step(ns, func(w world) { w.newcomer() })).
		Assess("one that has to end answers first", step(ns, func(w world) { w.endsPolitely(f) })).
		Teardown(step(ns, func(w world) {
			w.must(w.s.Backend.Start(w.ctx))
			f.close()
		})).
		Feature()
	testenv.Test(t, feature)
}

// A front passes each request on to the next of the backends, and to the one after it
// if that does not answer.
type front struct {
	server    *httptest.Server
	transport *http.Transport

	mu     sync.Mutex
	all    []*replica
	turn   int
	before func(path string) // called before a request is passed on
	urls   []string          // of all requests, and their referrers
}

type replica struct {
	*stack.Process
	address string
	served  []string // paths
}

// front starts two replicas of the backend behind a front, in place of the one that
// there is.
func (w world) front() *front {
	w.Helper()
	cert, err := w.s.Certificate()
	w.must(err)
	f := &front{before: func(string) {}, transport: &http.Transport{TLSClientConfig: w.trust()}}
	f.server = httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.Host = "https", r.In.Host },
		Transport: f,
	})
	f.server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	f.server.StartTLS()
	for i := range 2 {
		p, address, err := w.s.Replica(w.ctx, fmt.Sprintf("replica-%d", i), f.server.URL)
		w.must(err)
		f.all = append(f.all, &replica{Process: p, address: address})
		w.must(p.Start(w.ctx))
	}
	w.must(w.s.Backend.Stop()) // and gives its Lease up
	return f
}

func (f *front) close() {
	f.server.Close()
	f.transport.CloseIdleConnections()
	for _, r := range f.all {
		_ = r.Stop()
	}
}

// RoundTrip implements [http.RoundTripper].
func (f *front) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	f.mu.Lock()
	before := f.before
	f.urls = append(f.urls, r.URL.String(), r.Referer())
	f.mu.Unlock()
	before(r.URL.Path)
	var errs []error
	for range f.all {
		to := f.next()
		try := r.Clone(r.Context())
		try.URL.Host, try.Body = to.address, io.NopCloser(bytes.NewReader(body))
		resp, err := f.transport.RoundTrip(try)
		if err == nil {
			f.note(to, r.URL.Path)
			return resp, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (f *front) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.urls)
}

func (f *front) note(r *replica, path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.served = append(r.served, path)
}

// served are the paths that each replica served since it was asked last.
func (f *front) served() (all [][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.all {
		all, r.served = append(all, r.served), nil
	}
	return all
}

// meanwhile has do called before each request that comes during fn.
func (f *front) meanwhile(do func(path string), fn func()) {
	set := func(before func(string)) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.before = before
	}
	set(do)
	fn()
	set(func(string) {})
}

func (f *front) next() *replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.turn++
	return f.all[f.turn%len(f.all)]
}

func (w world) trust() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(w.certificate())
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// login does what kubectl bind and a person do, as far as the one-time code.
func (w world) login(f *front) auth.Grant {
	w.Helper()
	cluster, err := bind.ClusterID(w.ctx, w.s.App.Config())
	w.must(err)
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	browser := w.s.Browser(stack.Developer)
	grant, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: f.server.URL + "/authorize", Issuer: f.server.URL, ClientID: bind.ClientID,
		Params: url.Values{"c": {cluster}, "service": services[:1]},
		Open: func(target string) error {
			page, err := browser.Visit(ctx, target)
			if err == nil && page.Status != http.StatusOK {
				w.Errorf("%s: %d %s", page.URL.Path, page.Status, page.Body)
			}
			return err
		},
	})
	w.must(err)
	return grant
}

// redeem trades a code for a credential.
func (w world) redeem(f *front, grant auth.Grant) (*v1alpha1.BindingResponse, error) {
	ca, err := os.ReadFile(w.s.BackendCA)
	if err != nil {
		return nil, err
	}
	client, err := bind.NewClient(f.server.URL, bind.ClientOptions{CAData: ca})
	if err != nil {
		return nil, err
	}
	provider, err := client.Discover(w.ctx)
	if err != nil {
		return nil, err
	}
	return client.Redeem(w.ctx, provider, grant)
}

// backAndForth: no replica sees two requests of a login one after the other.
func (w world) backAndForth(f *front) {
	grant := w.login(f)
	if _, err := w.redeem(f, grant); err != nil {
		w.Fatal(err)
	}
	served := f.served()
	if len(served[0]) < 3 || len(served[1]) < 3 {
		w.Errorf("the replicas served %q", served)
	}
	all := slices.Concat(served...)
	for _, path := range []string{"/authorize", "/callback", "/services", "/bind", "/done", "/token"} {
		if !slices.Contains(all, path) {
			w.Errorf("%s was not asked for: %q", path, all)
		}
	}
}

func (w world) redeemedEverywhere(f *front) {
	const n = 8
	grant := w.login(f)
	f.served()
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range errs {
		wg.Go(func() { _, errs[i] = w.redeem(f, grant) })
	}
	wg.Wait()
	good := 0
	for _, err := range errs {
		refused, ok := errors.AsType[*auth.Error](err)
		switch {
		case err == nil:
			good++
		case !ok || refused.Code != "invalid_grant":
			w.Errorf("redeem: %v", err)
		}
	}
	if good != 1 {
		w.Errorf("one code was redeemed %d times", good)
	}
	for i, paths := range f.served() {
		if !slices.Contains(paths, "/token") {
			w.Errorf("%s was not asked to redeem: %q", f.all[i].Name, paths)
		}
	}
}

// otherDevice: what one replica knows of a terminal that waits, the other knows too.
func (w world) otherDevice(f *front) {
	cluster, err := bind.ClusterID(w.ctx, w.s.App.Config())
	w.must(err)
	verifier := oauth2.GenerateVerifier()
	var begun oauth2.DeviceAuthResponse
	w.post(f, "/device", http.StatusOK, &begun, url.Values{
		"client_id": {bind.ClientID}, "state": {"s"}, "c": {cluster}, "service": services[:1],
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}, "code_challenge_method": {"S256"},
	})
	poll := url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "client_id": {bind.ClientID},
		"device_code": {begun.DeviceCode}, "code_verifier": {verifier},
	}
	var claimed atomic.Bool
	var once sync.Once
	var page *testissuer.Page
	f.meanwhile(func(path string) {
		switch path {
		case "/device/claim":
			claimed.Store(true)
		case "/device": // the person waits for the terminal
			if claimed.Load() {
				once.Do(func() { w.post(f, "/token", http.StatusBadRequest, &struct{}{}, poll) })
			}
		}
	}, func() {
		page, err = w.s.Browser(stack.Developer).Visit(w.ctx, f.server.URL+"/authorize?user_code="+begun.UserCode)
	})
	if err != nil || page.URL.Path != "/done" {
		w.Fatalf("the person ends at %+v: %v", page, err)
	}
	var response v1alpha1.BindingResponse
	if w.post(f, "/token", http.StatusOK, &response, poll); len(response.Kubeconfig) == 0 {
		w.Errorf("response: %+v", response)
	}
}

// post sends a form and reads the answer.
func (w world) post(f *front, path string, status int, into any, form url.Values) {
	w.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: w.trust(), DisableKeepAlives: true}}
	resp, err := client.PostForm(f.server.URL+path, form)
	if err != nil {
		w.Error(err)
		return
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != status || json.Unmarshal(body, into) != nil {
		w.Errorf("%s: %d %s %v", path, resp.StatusCode, body, err)
	}
}

// killedMeanwhile kills the replica that holds the Lease, between the page and the
// bind.
func (w world) killedMeanwhile(f *front) {
	leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
	var leader *replica
	w.await(stack.Object{Cluster: w.s.Control, Resource: leases, Namespace: "klutch-backend", Name: "klutch-backend"}, func(u *unstructured.Unstructured) bool {
		for _, r := range f.all {
			if stack.Field(r.Name, "spec", "holderIdentity")(u) {
				leader = r
			}
		}
		return leader != nil
	})
	var kill sync.Once
	var grant auth.Grant
	f.meanwhile(func(path string) {
		if path == "/bind" {
			kill.Do(func() {
				if err := leader.Kill(); err != nil {
					w.Error(err)
				}
			})
		}
	}, func() { grant = w.login(f) })
	response, err := w.redeem(f, grant)
	w.must(err)
	w.handOver(response.Kubeconfig)
	if leader.Running() {
		w.Errorf("%s was not killed", leader.Name)
	}
}

// handOver gives the konnector a credential, as kubectl bind does: a login has ended the
// one that it had.
func (w world) handOver(kubeconfig []byte) {
	w.Helper()
	name, _, _ := unstructured.NestedString(w.get(w.binding(services[0])).Object, "spec", "kubeconfigSecretRef", "name")
	secret := stack.Object{Cluster: w.s.App, Resource: secrets, Namespace: v1alpha1.Namespace, Name: name}
	w.must(w.patch(secret, fmt.Sprintf(`{"data":{%q:%q}}`, v1alpha1.KubeconfigKey, base64.StdEncoding.EncodeToString(kubeconfig))))
}

// endsPolitely asks the replica that is left to end, while half a request is on its way.
func (w world) endsPolitely(f *front) {
	i := slices.IndexFunc(f.all, func(r *replica) bool { return r.Running() })
	if i < 0 {
		w.Fatal("no replica runs")
	}
	left := f.all[i]
	dial := func() (net.Conn, error) {
		return (&tls.Dialer{Config: w.trust()}).DialContext(w.ctx, "tcp", left.address)
	}
	conn, err := dial()
	w.must(err)
	const begin = "POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\n" +
		"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 29\r\n\r\n"
	_, err = io.WriteString(conn, begin)
	w.must(err)
	goOn := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n")) // by then the request is being answered
	_, err = io.ReadFull(conn, goOn)
	w.must(err)
	ended := make(chan error, 1)
	go func() { ended <- left.Stop() }()
	for probe, err := dial(); err == nil; probe, err = dial() { // until it listens no more
		w.must(probe.Close())
	}
	_, err = io.WriteString(conn, "grant_type=authorization_code")
	w.must(err)
	answer, err := io.ReadAll(conn)
	if err := errors.Join(err, <-ended); err != nil || !strings.Contains(string(answer), "invalid_client") {
		w.Errorf("answer %q: %v", answer, err)
	}
	if left.ExitCode() != 0 {
		w.Errorf("%s ended with code %d: %s", left.Name, left.ExitCode(), left.LastWords())
	}
}
