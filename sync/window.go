// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// A window bounds the requests in flight to one API server, by how it fares: one
// more for each round of answers, half as many when it says that it has too much
// to do or takes much longer than it can.
type window struct {
	mu       sync.Mutex
	size     float64
	inFlight int
	waiting  []chan struct{} // in order
	until    time.Time       // before which nothing is sent
	shrunk   time.Time       // when the size was cut last
	ceiling  float64         // the size that was too much then
	best     time.Duration   // the time that an answer takes when there is little to do
	now      time.Duration   // a moving average
}

// Bounds of a window. It begins with what an API server of any size can take.
const (
	windowLeast  = 4
	windowFirst  = 32
	windowMost   = 256
	windowPause  = time.Second      // between cuts: one overload is one cut
	windowMemory = 10 * time.Second // for which a size that was too much is not tried again
	windowSlow   = time.Second      // answers that are faster are no overload
	windowFactor = 8                // nor are those that take up to this many times the best
	longestAsked = time.Minute      // that an API server can ask us to wait
)

func newWindow() *window { return &window{size: windowFirst} }

// wrap makes all requests of a client pass through the window.
func (w *window) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &passage{w, next} })
}

// A passage is a way through a window.
type passage struct {
	window *window
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (p *passage) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := p.window.enter(r.Context()); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	began := time.Now()
	resp, err := p.next.RoundTrip(r)
	p.window.leave(time.Since(began), resp)
	return resp, err
}

// enter waits for a place, and until the API server wants to hear from us.
func (w *window) enter(ctx context.Context) error {
	place := w.ask()
	if place != nil {
		select {
		case <-place:
		case <-ctx.Done():
			w.forgo(place)
			return ctx.Err()
		}
	}
	for pause := w.pause(); pause > 0; pause = w.pause() {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			w.forgo(nil)
			return ctx.Err()
		}
	}
	return nil
}

func (w *window) pause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Until(w.until)
}

// ask takes a place if there is one, and returns nil. Else it returns a channel
// that is closed when one has been given.
func (w *window) ask() chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if float64(w.inFlight) < w.size && len(w.waiting) == 0 {
		w.inFlight++
		return nil
	}
	place := make(chan struct{})
	w.waiting = append(w.waiting, place)
	return place
}

// forgo gives up a place that was asked for, or has been given.
func (w *window) forgo(place chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, c := range w.waiting {
		if c == place {
			w.waiting = append(w.waiting[:i:i], w.waiting[i+1:]...)
			return
		}
	}
	w.inFlight--
	w.admit()
}

// admit gives places to those who wait. It needs mu.
func (w *window) admit() {
	for len(w.waiting) > 0 && float64(w.inFlight) < w.size {
		w.inFlight++
		close(w.waiting[0])
		w.waiting = w.waiting[1:]
	}
}

// leave gives a place back, and learns from the answer.
func (w *window) leave(took time.Duration, resp *http.Response) {
	w.mu.Lock()
	defer w.mu.Unlock()
	full := float64(w.inFlight) >= w.size
	w.inFlight--
	switch {
	case resp == nil: // it was not answered: nothing to learn
	case resp.StatusCode == http.StatusTooManyRequests:
		w.cut()
		w.until = time.Now().Add(asked(resp))
	case w.slow(took):
		w.cut()
	case full:
		w.grow()
	}
	w.admit()
}

// grow makes the window larger, though not as large as was just too much.
func (w *window) grow() {
	most := float64(windowMost)
	if time.Since(w.shrunk) < windowMemory {
		most = max(w.ceiling-1, windowLeast)
	}
	w.size = max(w.size, min(w.size+1/w.size, most))
}

// slow adds to what is known of the times of answers, and reports whether they
// tell of an overload.
func (w *window) slow(took time.Duration) bool {
	if w.now == 0 {
		w.best, w.now = took, took
	}
	w.now += (took - w.now) / 16
	w.best = min(w.best+w.best/1024, took) // forgets what was long ago
	return w.now > windowSlow && w.now > windowFactor*w.best
}

// cut halves the window, at most once for each overload.
func (w *window) cut() {
	if time.Since(w.shrunk) < windowPause {
		return
	}
	w.shrunk, w.ceiling = time.Now(), w.size
	w.size = max(w.size/2, windowLeast)
}

// asked is how long an API server asks to wait (RFC 9110, 10.2.3).
func asked(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestAsked)
}
