// SPDX-License-Identifier: Apache-2.0

// Package inflight limits the requests that are in flight to one API server, by how it
// fares: one more for each round of answers while the limit is reached, half as many when
// the API server says that it has too much to do, or takes much longer than it can.
//
//	limit := inflight.New()
//	limit.Wrap(config) // of a rest.Config; what comes later passes outside
//	inflight.Once(config) // after that
//	ctx = inflight.By(ctx, user)
//
// Requests beyond the limit wait in order; those of several users take turns, so that the
// many of one do not hold up the few of another.
//
// Client-go's rate limit is a number that has to be guessed: its default of 5 requests a
// second is some 40 times less than an API server on two cores can do. What API servers
// limit themselves (priority and fairness) is how many requests are in flight; so does this,
// with additive increase and multiplicative decrease, as TCP. Slow answers count only beyond
// a second and eight times the best: webhooks are slow, and no overload. A size that was too
// much is not tried again for ten seconds: without that,
// one that takes ten requests at once served 121 in five seconds, instead of 4027 (TestLimit).
//
// An API server that has too much to do says so in plain text, before it looks at a request. The
// same code in an object of the API is the word of a webhook, or of a store, on that request alone,
// and stops no others.
package inflight

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
)

// A Limit is how many requests there can be at once. Create it with New.
type Limit struct {
	mu       sync.Mutex
	size     float64
	inFlight int
	waiting  queue
	until    time.Time     // before which nothing is sent
	shrunk   time.Time     // when the size was cut last
	ceiling  float64       // the size that was too much then
	best     time.Duration // the time that an answer takes when there is little to do
	now      time.Duration // a moving average
}

// Bounds of a limit. It begins with what an API server of any size can take.
const (
	least        = 4
	first        = 32
	most         = 256
	cutPause     = time.Second      // between cuts: one overload is one cut
	memory       = 10 * time.Second // for which a size that was too much is not tried again
	slowest      = time.Second      // answers that are faster are no overload
	factor       = 8                // nor are those that take up to this many times the best
	longestAsked = time.Minute      // that an API server can ask us to wait
)

// New returns a Limit to begin with.
func New() *Limit { return &Limit{size: first} }

// Wrap has all requests of a client wait for the limit.
func (l *Limit) Wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{l, next} })
}

// Once has each request of a client be sent once. Client-go sends what is answered with Retry-After
// up to ten times more, below all code that counts and paces refusals. A limit still hears what an API
// server asks for if it is wrapped before. Requests with a context of Patient are not meant.
func Once(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return once{next} })
}

// Patient is a context in which a person waits for the answer, and no queue asks again: client-go does,
// where an API server asks for a few seconds.
func Patient(ctx context.Context) context.Context {
	return context.WithValue(ctx, patient{}, true)
}

type patient struct{}

func isPatient(ctx context.Context) bool { return ctx.Value(patient{}) != nil }

// isShort reports whether a header Retry-After is no longer than that of an API server that stops.
func isShort(after string) bool {
	seconds, err := strconv.Atoi(after)
	return err == nil && seconds <= 10
}

type once struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t once) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if resp != nil && (!isPatient(r.Context()) || !isShort(resp.Header.Get("Retry-After"))) {
		resp.Header.Del("Retry-After")
	}
	return resp, err
}

// WrappedRoundTripper is that of transport.
func (t once) WrappedRoundTripper() http.RoundTripper { return t.next }

// A transport sends requests within a limit.
type transport struct {
	limit *Limit
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.limit.enter(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	began := time.Now()
	resp, err := t.next.RoundTrip(r)
	t.limit.leave(time.Since(began), resp)
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport that cancels requests: it warns of each
// whose time is up where it finds none.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// enter waits for a place, and until the API server wants to hear from us.
func (l *Limit) enter(ctx context.Context) error {
	place := l.ask(ctx.Value(userKey{}))
	if place != nil {
		select {
		case <-place:
		case <-ctx.Done():
			l.forgo(place)
			return ctx.Err()
		}
	}
	for pause := l.pause(); pause > 0; pause = l.pause() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			l.forgo(nil)
			return ctx.Err()
		}
	}
	return nil
}

func (l *Limit) pause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Until(l.until)
}

// ask takes a place if there is one, and returns nil. Else it returns a channel
// that is closed when one has been given.
func (l *Limit) ask(user any) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if float64(l.inFlight) < l.size && len(l.waiting) == 0 {
		l.inFlight++
		return nil
	}
	place := make(chan struct{})
	l.waiting.add(user, place)
	return place
}

// forgo gives up a place that was asked for, or has been given.
func (l *Limit) forgo(place chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.waiting.remove(place) {
		l.inFlight--
		l.admit()
	}
}

// admit gives places to those who wait. It needs mu.
func (l *Limit) admit() {
	for len(l.waiting) > 0 && float64(l.inFlight) < l.size {
		l.inFlight++
		close(l.waiting.next())
	}
}

// leave gives a place back, and learns from the answer.
func (l *Limit) leave(took time.Duration, resp *http.Response) {
	l.mu.Lock()
	defer l.mu.Unlock()
	full := float64(l.inFlight) >= l.size
	l.inFlight--
	switch {
	case resp == nil: // it was not answered: nothing to learn
	case overloaded(resp):
		l.cut()
		l.until = time.Now().Add(asked(resp))
	case l.slow(took):
		l.cut()
	case full:
		l.grow()
	}
	l.admit()
}

// overloaded reports whether an API server, or a proxy, says that it has too much to do.
func overloaded(resp *http.Response) bool {
	return fates.OfCode(resp.StatusCode) == fates.Overloaded && !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/")
}

// grow raises the limit, though not as large as was just too much.
func (l *Limit) grow() {
	highest := float64(most)
	if time.Since(l.shrunk) < memory {
		highest = max(l.ceiling-1, least)
	}
	l.size = max(l.size, min(l.size+1/l.size, highest))
}

// slow records the time of an answer, and reports whether the latest times tell of an
// overload.
func (l *Limit) slow(took time.Duration) bool {
	if l.now == 0 {
		l.best, l.now = took, took
	}
	l.now += (took - l.now) / 16
	l.best = min(l.best+l.best/1024, took) // forgets what was long ago
	return l.now > slowest && l.now > factor*l.best
}

// cut halves the limit, at most once for each overload.
func (l *Limit) cut() {
	if time.Since(l.shrunk) < cutPause {
		return
	}
	l.shrunk, l.ceiling = time.Now(), l.size
	l.size = max(l.size/2, least)
}

// asked is how long an API server asks to wait (RFC 9110, 10.2.3).
func asked(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestAsked)
}
