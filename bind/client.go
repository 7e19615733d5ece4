// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ClientID is the name of command line programs at a backend (RFC 6749 §2.2).
const ClientID = "kubectl-bind"

// ErrNotBackend says that what answers at a URL is not a Klutch backend.
var ErrNotBackend = errors.New("not a Klutch backend")

// ErrResponse says that a backend's answer to a login makes no sense, or belongs
// to another login.
var ErrResponse = errors.New("answer of the backend refused")

// ClientOptions tune a Client. The zero value is ready to use.
type ClientOptions struct {
	// CAData is a bundle of PEM certificates that vouch for the backend, in place
	// of those of the system.
	CAData []byte
}

// A Client is the client's end of a backend's HTTP handshake: Discover, Login, and
// what Login does at the end of it, Redeem. It speaks https except to loopback
// addresses, and no backend can hold or flood it.
type Client struct {
	url  *url.URL
	http *http.Client
}

// NewClient returns a Client of the backend at the given URL, that of its
// discovery document. A URL without a path means its /export.
func NewClient(backend string, opts ClientOptions) (*Client, error) {
	u, err := url.Parse(backend)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("backend %q: not an http or https URL", backend)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/export"
	}
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ResponseHeaderTimeout:  20 * time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
	}
	if len(opts.CAData) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(opts.CAData) {
			return nil, errors.New("the backend's certificate authority: no PEM certificate in it")
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	return &Client{url: u, http: auth.Bounded(&http.Client{Transport: transport, Timeout: 30 * time.Second})}, nil
}

// Discover reads the discovery document. Every URL in it that this client is going
// to use is on the origin of the document. The error is ErrNotBackend if something
// else answers.
func (c *Client) Discover(ctx context.Context) (*v1alpha1.BindingProvider, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", c.url, err)
	}
	req.Header.Set("Accept", "application/json")
	a, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s: %w", c.url, a, ErrNotBackend)
	}
	provider := &v1alpha1.BindingProvider{}
	if err := json.Unmarshal(a.body, provider); err != nil {
		return nil, fmt.Errorf("%s answers with %s: %w", c.url, a.kind, ErrNotBackend)
	}
	return provider, c.checkProvider(provider)
}

func (c *Client) checkProvider(p *v1alpha1.BindingProvider) error {
	if p.APIVersion != v1alpha1.BindingProviderAPIVersion || p.Kind != "BindingProvider" {
		return fmt.Errorf("%s answers with a document of kind %q, apiVersion %q: %w", c.url, p.Kind, p.APIVersion, ErrNotBackend)
	}
	grant := codeGrant(p)
	if grant == nil {
		return fmt.Errorf("%s offers no login that this program knows (%s): %w", c.url, v1alpha1.MethodOAuth2CodeGrant, ErrNotBackend)
	}
	for _, raw := range []string{grant.AuthenticatedURL, grant.TokenURL, grant.Issuer} {
		if raw != "" && !c.sameOrigin(raw) {
			return fmt.Errorf("%s sends the login to another place, %q: %w", c.url, raw, ErrNotBackend)
		}
	}
	return nil
}

// sameOrigin: a document that could name any URL could lend its trust to anyone.
func (c *Client) sameOrigin(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && u.Scheme == c.url.Scheme && u.Host == c.url.Host && u.User == nil
}

// codeGrant returns the login that this client can do, or nil.
func codeGrant(p *v1alpha1.BindingProvider) *v1alpha1.OAuth2CodeGrant {
	for _, m := range p.AuthenticationMethods {
		if g := m.OAuth2CodeGrant; m.Method == v1alpha1.MethodOAuth2CodeGrant && g != nil && g.AuthenticatedURL != "" {
			return g
		}
	}
	return nil
}

// LoginOptions describe a login at a backend.
type LoginOptions struct {
	// ClusterID tells the clusters of one person apart, see [ClusterID].
	ClusterID string
	// Services are preselected on the page, as "<resource>.<group>".
	Services []string
	// Prompt shows where to go, and the code that the page shows too. The code is
	// empty where the backend knows none. It is called before Open.
	Prompt func(url, displayCode string)
	// Open opens a browser and returns. Nil leaves that to the person.
	Open func(url string) error
}

// Login lets a person log in and choose services with a browser, until ctx ends,
// and returns what the backend hands out then. A refusal is an [*auth.Error].
func (c *Client) Login(ctx context.Context, p *v1alpha1.BindingProvider, opts LoginOptions) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant == nil {
		return nil, fmt.Errorf("%s: %w", c.url, ErrNotBackend)
	}
	if grant.TokenURL == "" {
		return c.loginThroughBrowser(ctx, grant, opts)
	}
	params := url.Values{"c": {opts.ClusterID}}
	if len(opts.Services) > 0 {
		params["service"] = opts.Services
	}
	code, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: grant.AuthenticatedURL,
		Issuer:       grant.Issuer,
		ClientID:     ClientID,
		Params:       params,
		Prompt:       opts.Prompt,
		Open:         opts.Open,
	})
	if err != nil {
		return nil, fmt.Errorf("log in at %s: %w", c.url.Host, err)
	}
	return c.Redeem(ctx, p, code)
}

// Redeem trades the one-time code of a login for the backend's response (RFC 6749
// §4.1.3 with RFC 7636). It is checked to be the answer to that very login.
func (c *Client) Redeem(ctx context.Context, p *v1alpha1.BindingProvider, code auth.Grant) (*v1alpha1.BindingResponse, error) {
	grant := codeGrant(p)
	if grant == nil || !c.sameOrigin(grant.TokenURL) {
		return nil, fmt.Errorf("%s has no token endpoint: %w", c.url, ErrNotBackend)
	}
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {ClientID},
		"code": {code.Code}, "code_verifier": {code.Verifier}, "redirect_uri": {code.RedirectURL},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, grant.TokenURL, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("redeem the login at %s: %w", c.url.Host, err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Accept", "application/json")
	a, err := c.do(req)
	if err != nil {
		return nil, err
	}
	if a.code != http.StatusOK {
		return nil, fmt.Errorf("redeem the login at %s: %w", c.url.Host, tokenError(a))
	}
	return readResponse(a.body, code.State)
}

// An answer is an HTTP response that has been read.
type answer struct {
	code int
	kind string // in words
	body []byte
}

// String is for messages.
func (a *answer) String() string {
	return fmt.Sprintf("%d %s (%s)", a.code, http.StatusText(a.code), a.kind)
}

// do reads the whole answer. Only a GET is worth following elsewhere: a POST
// carries the code.
func (c *Client) do(req *http.Request) (*answer, error) {
	client := c.http
	if req.Method != http.MethodGet {
		stay := *c.http
		stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		client = &stay
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, withoutQuery(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	return &answer{resp.StatusCode, mediaType(resp.Header), body}, nil
}

// withoutQuery keeps what a redirect may have put into a query out of messages.
func withoutQuery(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, err := url.Parse(e.URL); err == nil {
			u.RawQuery, u.Fragment = "", ""
			e.URL = u.String()
		}
	}
	return err
}

// tokenError reads an error of RFC 6749 §5.2.
func tokenError(a *answer) error {
	var e struct {
		Error       string `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(a.body, &e) != nil || e.Error == "" {
		return fmt.Errorf("%s: %w", a, ErrResponse)
	}
	return &auth.Error{Code: printable(e.Error), Description: printable(e.Description)}
}

// printable keeps the characters that RFC 6749 §5.2 allows, and not many of them.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), 300)]
}

func mediaType(header http.Header) string {
	t, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return "something unknown"
	}
	return cmp.Or(map[string]string{"text/html": "a web page", "application/json": "JSON"}[t], printable(t))
}

// readResponse takes what answers the login with the given session ID.
func readResponse(body []byte, session string) (*v1alpha1.BindingResponse, error) {
	r := &v1alpha1.BindingResponse{}
	if err := json.Unmarshal(body, r); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrResponse, printable(err.Error()))
	}
	grant := r.Authentication.OAuth2CodeGrant
	switch {
	case r.APIVersion != v1alpha1.GroupVersion.String() || r.Kind != "BindingResponse":
		return nil, fmt.Errorf("%w: kind %q, apiVersion %q is no BindingResponse", ErrResponse, r.Kind, r.APIVersion)
	case grant == nil || grant.SessionID != session:
		return nil, fmt.Errorf("%w: it belongs to another login", ErrResponse)
	case len(r.Kubeconfig) == 0:
		return nil, fmt.Errorf("%w: it has no kubeconfig", ErrResponse)
	}
	return r, nil
}

// clusterID names a cluster after its namespace klutch-bind, as every program of
// Klutch does: base62(SHA-224(UID)), cut to 6 characters.
func clusterID(namespace types.UID) string {
	sum := sha256.Sum224([]byte(namespace))
	text := new(big.Int).SetBytes(sum[:]).Text(62)
	return text[:min(len(text), 6)]
}

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
	if err != nil {
		http.Error(w, "This is not the login that is waited for.", http.StatusBadRequest)
		return
	}
	response, err := readResponse(body, r.session)
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
