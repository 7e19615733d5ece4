// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// loginThroughBrowser is the login of backends without a token endpoint: the whole
// response, credential included, comes as a parameter of the callback. What ties
// it to this login is the session ID alone.
func (c *Client) loginThroughBrowser(ctx context.Context, grant *v1alpha1.OAuth2CodeGrant, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w", err)
	}
	r := &responseReceiver{session: rand.Text(), port: listener.Addr().(*net.TCPAddr).Port, response: make(chan *v1alpha1.BindingResponse, 1)}
	server := &http.Server{Handler: r, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 20}
	server.SetKeepAlivesEnabled(false)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with shutdown
	defer serving.Wait()
	defer shutdown(ctx, server)

	target, err := r.authorizeURL(grant.AuthenticatedURL, opts.ClusterID)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNotBackend)
	}
	if opts.Prompt != nil {
		opts.Prompt(target, "")
	}
	if opts.Open != nil {
		_ = opts.Open(target) // the person may follow the prompt
	}
	select {
	case response := <-r.response:
		return response, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("log in at %s: wait for the browser: %w", c.url.Host, context.Cause(ctx))
	}
}

// shutdown lets the browser have its page.
func shutdown(ctx context.Context, server *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(ctx) != nil {
		_ = server.Close()
	}
}

// A responseReceiver takes the first good response for its session and answers
// everything else without ending the login.
type responseReceiver struct {
	session  string
	port     int
	response chan *v1alpha1.BindingResponse // takes one
}

func (r *responseReceiver) authorizeURL(raw, clusterID string) (string, error) {
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
func (r *responseReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
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

func (r *responseReceiver) take(w http.ResponseWriter, req *http.Request) {
	body, err := decodeBase64(req.URL.Query().Get("response"))
	var response *v1alpha1.BindingResponse
	if err == nil {
		response, err = readResponse(body, r.session)
	}
	if err != nil {
		http.Error(w, "This is not the login that is waited for.", http.StatusBadRequest)
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
