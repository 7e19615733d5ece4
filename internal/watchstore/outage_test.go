// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// answers are given one after the other; a nil one stands for no connection.
type answers struct {
	statuses []int
	asked    int
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	status := a.statuses[min(a.asked, len(a.statuses)-1)]
	a.asked++
	if status == 0 {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	return &http.Response{StatusCode: status, Body: http.NoBody}, nil
}

func through(a http.RoundTripper) http.RoundTripper {
	config := Config(&rest.Config{Host: "https://127.0.0.1:1"})
	return config.WrapTransport(a)
}

func TestReadsOutliveAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		method   string
		statuses []int
		want     int // status; 0 for an error
		asked    int
	}{
		"an outage":          {http.MethodGet, []int{0, 0, 503, 502, 200}, 200, 5},
		"an answer":          {http.MethodGet, []int{403}, 403, 1},
		"an error of theirs": {http.MethodGet, []int{500}, 500, 1},
		"a write":            {http.MethodPatch, []int{0, 200}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &answers{statuses: c.statuses}
				req, err := http.NewRequestWithContext(t.Context(), c.method, "https://127.0.0.1:1/api", http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := through(a).RoundTrip(req)
				switch {
				case c.want == 0 && err == nil:
					t.Error("no error")
				case c.want != 0 && (err != nil || resp.StatusCode != c.want):
					t.Errorf("got %v, %v", resp, err)
				}
				if resp != nil {
					_ = resp.Body.Close()
				}
				if a.asked != c.asked {
					t.Errorf("asked %d times, want %d", a.asked, c.asked)
				}
			})
		})
	}
}

// However long an outage was, its end is noticed within three seconds.
func TestThePauseStaysShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := time.Now().Add(time.Hour)
		var noticed time.Duration
		rt := transport{roundTrip(func(*http.Request) (*http.Response, error) {
			if time.Now().Before(outage) {
				return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			noticed = time.Since(outage)
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:1/api", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if noticed > 3*time.Second {
			t.Errorf("noticed after %s", noticed)
		}
	})
}

func TestTheContextEndsTheWait(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://127.0.0.1:1/api", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := through(&answers{statuses: []int{0}}).RoundTrip(req)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("error %v, want the cause", err)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
