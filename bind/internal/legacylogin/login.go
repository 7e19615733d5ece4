// SPDX-License-Identifier: Apache-2.0

// Package legacylogin logs in at backends without a token endpoint, as the legacy CLI
// does: the browser brings the whole response, credential included, as a parameter of its
// callback to a listener on the loopback interface.
//
// Only the session ID ties a response to the login, and any page that the person visits
// meanwhile can call the listener: it answers and ignores all but the first response for
// the session. With a token endpoint package auth
// does the login, and nothing secret is in a URL; this one is kept for backends that do
// not have one yet.
package legacylogin

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/serve"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Login is one login of a person at a backend.
type Login struct {
	AuthorizeURL string                                                               // of the backend
	ClusterID    string                                                               // of the App Cluster
	Prompt       func(url, displayCode string)                                        // shows where to go; may be nil
	Open         func(url string) error                                               // opens a browser; may be nil
	Read         func(body []byte, session string) (*v1alpha1.BindingResponse, error) // refuses what is not the response to a session
}

// Run returns the response that the browser brings. The error is that of ctx, unless
// nothing could be listened on or the URL makes no sense.
func (l Login) Run(ctx context.Context) (*v1alpha1.BindingResponse, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	r := &receiver{read: l.Read, session: rand.Text(), port: listener.Addr().(*net.TCPAddr).Port, response: make(chan *v1alpha1.BindingResponse, 1)}
	server := &http.Server{Handler: r, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20}
	server.SetKeepAlivesEnabled(false)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	defer serving.Wait()
	defer serve.Stop(ctx, server)

	target, err := r.authorizeURL(l.AuthorizeURL, l.ClusterID)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", l.AuthorizeURL, ErrURL)
	}
	if l.Prompt != nil {
		l.Prompt(target, "")
	}
	if l.Open != nil {
		_ = l.Open(target) // the person may follow the prompt
	}
	select {
	case response := <-r.response:
		return response, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the browser: %w", context.Cause(ctx))
	}
}

// ErrURL says that a backend names no URL to log in at.
var ErrURL = errors.New("not a URL")

// A receiver takes the first good response for its session and answers
// everything else without ending the login.
type receiver struct {
	read     func(body []byte, session string) (*v1alpha1.BindingResponse, error)
	session  string
	port     int
	response chan *v1alpha1.BindingResponse // takes one
}

func (r *receiver) authorizeURL(raw, clusterID string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", err
	}
	query := u.Query()
	query.Set("p", strconv.Itoa(r.port))
	query.Set("s", r.session)
	query.Set("c", clusterID)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// ServeHTTP implements [http.Handler].
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("X-Content-Type-Options", "nosniff")
	port := strconv.Itoa(r.port)
	switch {
	case req.Host != "localhost:"+port && req.Host != "127.0.0.1:"+port:
		http.Error(w, "This is not the login that is waited for.", http.StatusForbidden)
	case req.URL.Path != "/callback":
		http.NotFound(w, req)
	case req.Method != http.MethodGet:
		http.Error(w, "This is not the login that is waited for.", http.StatusMethodNotAllowed)
	default:
		r.take(w, req)
	}
}

func (r *receiver) take(w http.ResponseWriter, req *http.Request) {
	body, err := decodeBase64(req.URL.Query().Get("response"))
	var response *v1alpha1.BindingResponse
	if err == nil {
		response, err = r.read(body, r.session)
	}
	if err != nil {
		http.Error(w, "This is not the login that is waited for.", http.StatusBadRequest)
		return
	}
	if serve.OtherUser(req) {
		http.Error(w, "This is the login of another user of this machine.", http.StatusForbidden)
		return
	}
	select {
	case r.response <- response:
	default: // the first one counts
	}
	_, _ = io.WriteString(w, "The login is complete; the terminal goes on. You may close this tab.\n")
}

// decodeBase64 reads both alphabets, padded or not. A plus sign that was not
// escaped has become a space on its way through a query.
func decodeBase64(s string) ([]byte, error) {
	s = strings.NewReplacer("-", "+", "_", "/", " ", "+", "=", "").Replace(s)
	return base64.RawStdEncoding.DecodeString(s)
}
