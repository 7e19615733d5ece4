// SPDX-License-Identifier: Apache-2.0

package inflight

import (
	"context"
	"errors"
	"net/http"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// A busy API server takes so many requests at once, answers each after a while,
// and refuses the others.
type busy struct {
	capacity int
	took     func(inFlight int) time.Duration

	mu              gosync.Mutex
	inFlight, most  int
	served, refused int
}

func (b *busy) RoundTrip(*http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight++
	defer func() { b.inFlight-- }()
	b.most = max(b.most, b.inFlight)
	if b.capacity > 0 && b.inFlight > b.capacity {
		b.refused++
		return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}}}, nil
	}
	took := b.took(b.inFlight)
	b.mu.Unlock()
	time.Sleep(took)
	b.mu.Lock()
	b.served++
	return &http.Response{StatusCode: http.StatusOK}, nil
}

// hammer sends requests from so many clients for a while.
func hammer(t *testing.T, l *Limit, b *busy, clients int, long time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	way := &transport{l, b}
	var wg gosync.WaitGroup
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.org", nil)
				if err != nil {
					t.Error(err)
					return
				}
				resp, err := way.RoundTrip(r)
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				if resp != nil && resp.Body != nil {
					_ = resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	if l.inFlight != 0 || len(l.waiting) != 0 {
		t.Errorf("%d in flight and %d waiting when all have gone", l.inFlight, len(l.waiting))
	}
}

func TestLimit(t *testing.T) {
	swift := func(int) time.Duration { return 5 * time.Millisecond }
	for name, test := range map[string]struct {
		server  *busy
		clients int
		is      func(l *Limit, b *busy) bool
	}{
		"grows while it is full": {&busy{took: swift}, 200, func(l *Limit, b *busy) bool { return l.size > 40 && b.most > 40 }},
		"stays while it is not":  {&busy{took: swift}, 10, func(l *Limit, b *busy) bool { return l.size == first }},
		"yields to refusals": {
			&busy{took: swift, capacity: 10}, 200,
			func(l *Limit, b *busy) bool { return l.size < 24 && b.refused*20 < b.served },
		},
		"yields to overload": {
			&busy{took: func(n int) time.Duration {
				if n > 12 {
					return 3 * time.Second
				}
				return 5 * time.Millisecond
			}}, 200,
			func(l *Limit, b *busy) bool { return l.size < 24 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New()
				hammer(t, l, test.server, test.clients, 5*time.Second)
				if !test.is(l, test.server) {
					t.Errorf("limit of %.1f; %d served, %d refused, at most %d at once", l.size, test.server.served, test.server.refused, test.server.most)
				}
			})
		})
	}
}

// Of users who wait, one with many requests does not hold up one with few.
func TestUsersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, server := New(), &busy{took: func(int) time.Duration { return 5 * time.Millisecond }}
		way := &transport{l, server}
		send := func(ctx context.Context) {
			if r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.org", nil); err == nil {
				_, _ = way.RoundTrip(r) //nolint:bodyclose // it has none
			}
		}
		ctx, cancel := context.WithCancel(By(t.Context(), "loud"))
		var wg gosync.WaitGroup
		for range 50 * first {
			wg.Go(func() { send(ctx) })
		}
		synctest.Wait()
		began := time.Now()
		send(By(t.Context(), "quiet"))
		if took := time.Since(began); took > 10*time.Millisecond {
			t.Errorf("a request waited for %v, behind all of another user", took)
		}
		cancel()
		wg.Wait()
		if l.inFlight != 0 || len(l.waiting) != 0 {
			t.Errorf("%d in flight and %v waiting when all have gone", l.inFlight, l.waiting)
		}
	})
}

// Requests that are refused at once are one overload, and so one cut.
func TestOneOverloadIsOneCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		for range 10 {
			if err := l.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			l.leave(time.Millisecond, &http.Response{StatusCode: http.StatusTooManyRequests})
		}
		if l.size != first/2 {
			t.Errorf("limit of %v after one overload, want %v", l.size, first/2)
		}
	})
}

// Client-go finds the transport below the limit: it looks there for what cancels a request.
func TestTransportIsFound(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	New().Wrap(config)
	rt, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := utilnet.TLSClientConfig(rt); err != nil {
		t.Error(err)
	}
}
