// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// What an API server of the other side may have a client take. Sizes are those that JSON
// takes once it is decoded, see weigh: some five times that of an ordinary object.
const (
	maxAnswer   = 64 << 20         // of an answer, and of one event of a watch: an object of etcd has 1.5 MB of JSON at most, a page 500 of them
	maxRefusal  = 1 << 20          // of the text of a refusal
	maxMessage  = 2 << 10          // of what is kept of its message
	maxHeader   = 64 << 10         // of the headers of an answer
	maxAtOnce   = 128 << 20        // of all answers of a connection,
	maxASecond  = 64 << 20         // and for each second after that: thousands of objects
	answerTime  = time.Minute      // for an answer, if the client sets no shorter one; API servers give themselves as long
	headerTime  = 90 * time.Second // for the begin of a watch
	watchExtra  = time.Minute      // of a watch beyond the end that was asked for
	watchMost   = time.Hour        // of a watch without one
	longestWait = 5                // seconds that an API server can have a client without a timeout wait
	// Quarantine is for how long nothing is asked for again whose answer was too large.
	Quarantine = time.Minute
)

// An ExcessError says what was too much of an answer. Until the quarantine of what it is
// about ends, each request for it gets the same error at once.
type ExcessError struct{ What string }

// Error implements error.
func (e *ExcessError) Error() string { return e.What }

// errElsewhere: no redirect leads to another host, with or without the token.
var errElsewhere = errors.New("it redirects to another host")

// A boundary is what all requests of a connection pass. It bounds what the other side
// can have this one take, whoever asks: in size, in time, and of all answers together.
type boundary struct {
	scheme, host string
	allowance    allowance

	mu         sync.Mutex
	quarantine map[string]verdict // by path
}

// A verdict keeps requests for a path back.
type verdict struct {
	err   *ExcessError
	until time.Time
}

// maxVerdicts bounds the paths in quarantine; beyond it all are.
const maxVerdicts = 256

func newBoundary(server string) *boundary {
	b := &boundary{quarantine: map[string]verdict{}}
	if u, err := url.Parse(server); err == nil {
		b.scheme, b.host = u.Scheme, u.Host
	}
	b.allowance.left = maxAtOnce
	return b
}

// wrap is a [transport.WrapperFunc].
func (b *boundary) wrap(next http.RoundTripper) http.RoundTripper {
	for inner := next; inner != nil; {
		if t, ok := inner.(*http.Transport); ok { // of this client alone: client-go shares none that have a dialer
			t.MaxResponseHeaderBytes, t.ResponseHeaderTimeout = maxHeader, headerTime
		}
		wrapper, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = wrapper.WrappedRoundTripper()
	}
	return &bounded{b, next}
}

// A bounded transport passes the boundary.
type bounded struct {
	*boundary
	next http.RoundTripper
}

// WrappedRoundTripper lets client-go find the transport, to close its connections.
func (t *bounded) WrappedRoundTripper() http.RoundTripper { return t.next }

// CloseIdleConnections is what [http.Client] calls to close connections.
func (t *bounded) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.check(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	watching := r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "watch=")
	limited, cancel := limit(r, watching)
	resp, err := t.next.RoundTrip(limited)
	if err != nil {
		cancel()
		return nil, err
	}
	body := &body{ReadCloser: resp.Body, boundary: t.boundary, request: r, done: limited.Context().Done(), cancel: cancel}
	if watching && resp.StatusCode == http.StatusOK {
		body.frames = &frames{}
	}
	resp.Body = body
	if err := t.sober(resp, r); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// check refuses what must not be asked, or not now.
func (b *boundary) check(r *http.Request) error {
	if r.URL.Host != b.host || r.URL.Scheme != b.scheme {
		return errElsewhere
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, path := range [...]string{r.URL.Path, ""} {
		if v, ok := b.quarantine[path]; ok && time.Now().Before(v.until) {
			return v.err
		}
	}
	return nil
}

// exceeded keeps requests for the same back for a while.
func (b *boundary) exceeded(r *http.Request, what string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := r.URL.Path
	now := time.Now()
	for p, v := range b.quarantine {
		if now.After(v.until) {
			delete(b.quarantine, p)
		}
	}
	if len(b.quarantine) >= maxVerdicts {
		path = ""
	}
	err := &ExcessError{"its answer to " + r.Method + " " + clip(r.URL.Path, 200) + " " + what}
	b.quarantine[path] = verdict{err, now.Add(Quarantine)}
	return err
}

// limit bounds the time of a request, and asks for JSON alone: in the binary format of
// Kubernetes two bytes make an object.
func limit(r *http.Request, watching bool) (limited *http.Request, cancel context.CancelFunc) {
	ctx, cancel := r.Context(), func() {}
	switch _, has := ctx.Deadline(); {
	case watching:
		ctx, cancel = context.WithTimeout(ctx, lifetime(r.URL.Query().Get("timeoutSeconds")))
	case !has:
		ctx, cancel = context.WithTimeout(ctx, answerTime)
	}
	accept := r.Header.Get("Accept")
	binary := strings.Contains(accept, "protobuf") || strings.Contains(accept, "cbor")
	if ctx == r.Context() && !binary {
		return r, cancel
	}
	r = r.WithContext(ctx)
	if binary {
		r.Header = r.Header.Clone()
		r.Header.Set("Accept", textOf(accept))
	}
	return r, cancel
}

func lifetime(asked string) time.Duration {
	seconds, err := strconv.Atoi(asked)
	if err != nil || seconds <= 0 {
		return watchMost
	}
	return min(time.Duration(seconds)*time.Second+watchExtra, watchMost)
}

func textOf(accept string) string {
	var kept []string
	for part := range strings.SplitSeq(accept, ",") {
		if !strings.Contains(part, "protobuf") && !strings.Contains(part, "cbor") {
			kept = append(kept, part)
		}
	}
	if len(kept) == 0 {
		return "application/json"
	}
	return strings.Join(kept, ",")
}

// sober makes an answer one that a client can be given: JSON, a refusal that can be
// shown to people, and a pause that is none for ever.
func (b *boundary) sober(resp *http.Response, r *http.Request) error {
	if wait, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && wait > longestWait {
		if _, has := r.Context().Deadline(); !has {
			resp.Header.Set("Retry-After", strconv.Itoa(longestWait))
		}
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return b.refusal(resp, r)
	}
	switch kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); {
	case resp.StatusCode >= http.StatusMultipleChoices || resp.StatusCode == http.StatusNoContent:
	case resp.Header.Get("Content-Type") == "" || err == nil && (kind == "application/json" || kind == "text/plain"): // as which API servers send OpenAPI
	default:
		return fmt.Errorf("it answers with %q where JSON was asked for", clip(kind, 100))
	}
	return nil
}

// refusal shortens an answer that says no: its message ends in conditions, logs and
// terminals.
func (b *boundary) refusal(resp *http.Response, r *http.Request) error {
	if resp.ContentLength >= 0 && resp.ContentLength <= maxMessage {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal+1))
	if err != nil {
		return err
	}
	if len(text) > maxRefusal {
		return b.exceeded(r, "is a refusal of more than 1 MB")
	}
	if len(text) > maxMessage {
		text = shorten(text)
	}
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	resp.Header.Del("Content-Length")
	return nil
}

func shorten(text []byte) []byte {
	status := metav1.Status{}
	if json.Unmarshal(text, &status) != nil || status.Kind != "Status" {
		return text[:maxMessage]
	}
	status.Message = clip(status.Message, maxMessage)
	if d := status.Details; d != nil {
		d.Name, d.Group, d.Kind = clip(d.Name, 300), clip(d.Group, 300), clip(d.Kind, 300)
		d.Causes = d.Causes[:min(len(d.Causes), 10)]
		for i := range d.Causes {
			c := &d.Causes[i]
			c.Type, c.Message, c.Field = metav1.CauseType(clip(string(c.Type), 300)), clip(c.Message, 300), clip(c.Field, 300)
		}
	}
	short, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: clip(status.Status, 100), Message: status.Message,
		Reason: metav1.StatusReason(clip(string(status.Reason), 100)), Details: status.Details, Code: status.Code,
	})
	if err != nil {
		return text[:maxMessage]
	}
	return short
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// A body is that of an answer. It ends with an ExcessError where it is too large.
type body struct {
	io.ReadCloser
	*boundary
	request *http.Request
	done    <-chan struct{}
	cancel  context.CancelFunc
	weight  int
	frames  *frames // of a watch; nil for other answers
	err     error
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	var weight int
	if b.frames != nil {
		weight = b.frames.add(p[:n])
		b.weight = b.frames.weight
	} else {
		weight = weigh(p[:n])
		b.weight += weight
	}
	if b.weight > maxAnswer {
		b.err = b.exceeded(b.request, fmt.Sprintf("is larger than the %d MB that are let in", maxAnswer>>20))
		return 0, b.err
	}
	if !b.allowance.draw(weight, b.done) {
		b.err = context.DeadlineExceeded
		return 0, b.err
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// What JSON takes when it is decoded, besides its own length.
const (
	weightValue  = 64
	weightObject = 256
)

// weigh is about what a part of a JSON document takes when it is decoded.
func weigh(p []byte) int {
	return len(p) + weightValue*(bytes.Count(p, []byte{','})+bytes.Count(p, []byte{'['})) + weightObject*bytes.Count(p, []byte{'{'})
}

// frames finds the events in the stream of a watch. A decoder keeps one until it is
// complete, and has no limit of its own before that.
type frames struct {
	depth           int
	inText, escaped bool
	weight          int // of the event that is not complete
}

// add returns the weight of p.
func (f *frames) add(p []byte) (total int) {
	begin := f.weight
	for _, c := range p {
		f.weight++
		switch {
		case f.escaped:
			f.escaped = false
		case f.inText && c == '\\':
			f.escaped = true
		case c == '"':
			f.inText = !f.inText
		case f.inText:
		case c == '{':
			f.depth++
			f.weight += weightObject
		case c == '[':
			f.depth++
			f.weight += weightValue
		case c == ',':
			f.weight += weightValue
		case c == '}' || c == ']':
			if f.depth--; f.depth <= 0 {
				total += f.weight - begin
				f.depth, f.weight, begin = 0, 0, 0
			}
		}
	}
	return total + f.weight - begin
}

// An allowance is what all answers of a connection together may weigh: so much at once,
// and more with time.
type allowance struct {
	mu   sync.Mutex
	left int
	at   time.Time
}

// draw waits until it can take n; false if done is closed before.
func (a *allowance) draw(n int, done <-chan struct{}) bool {
	wait := a.take(n)
	if wait <= 0 {
		return true
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}

// take takes n and returns for how long that was too much.
func (a *allowance) take(n int) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left < maxAtOnce/2 || a.at.IsZero() {
		now := time.Now()
		if !a.at.IsZero() {
			a.left = min(maxAtOnce, a.left+int(min(now.Sub(a.at), time.Minute).Seconds()*maxASecond))
		}
		a.at = now
	}
	a.left -= n
	if a.left >= 0 {
		return 0
	}
	return time.Duration(float64(-a.left) / maxASecond * float64(time.Second))
}

// bound has all requests of config pass a boundary.
func bound(config *rest.Config) *rest.Config {
	config.WrapTransport = newBoundary(config.Host).wrap
	config.WarningHandlerWithContext = rest.NoWarnings{} // not the other side's to write on our terminal, or into our log
	return config
}
