// SPDX-License-Identifier: Apache-2.0

package servicebroker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/examples/servicebroker"
	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

// An overloaded broker refuses all but its catalogue, each time in other words.
type overloaded struct {
	wait  string // its Retry-After
	calls atomic.Int64
}

func (o *overloaded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(
		`{"services":[{"id":"s","name":"a9s-postgresql14","plans":[{"id":"p1","name":"postgresql-single-nano"}]}]}`))}
	if r.URL.Path != "/v2/catalog" {
		answer.StatusCode = http.StatusTooManyRequests
		answer.Header.Set("Retry-After", o.wait)
		answer.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"description":"request %d is too much"}`, o.calls.Add(1))))
	}
	return answer, nil
}

// TestPaced: the reason that the controller writes on a claim does not wake it, a broker is not
// asked before the time that it names, and an owner who mends an order does not wait for that.
func TestPaced(t *testing.T) {
	for wait, most := range map[string]int64{"": 21, "60": 20, "36000": 8} {
		t.Run("Retry-After "+wait, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newCluster(t)
				o := &overloaded{wait: wait}
				c := &servicebroker.Controller{Broker: osb.Broker{URL: "http://broker", HTTP: &http.Client{Transport: o}}, Types: []string{"postgresql"}, Client: p.client}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error)
				go func() { done <- c.Run(ctx) }()
				synctest.Wait()
				p.order(instances, claims[0].kind, claims[0].name, claims[0].spec)
				time.Sleep(59 * time.Minute) // not at the moment of a call
				if calls := o.calls.Load(); calls < most*2/3 || calls > most {
					t.Errorf("%d calls in an hour, at most %d", calls, most)
				}
				before := o.calls.Load()
				p.edit(instances, "orders", func(u *unstructured.Unstructured) { u.SetGeneration(2) })
				time.Sleep(time.Second / 2)
				if calls := o.calls.Load(); calls != before+1 {
					t.Errorf("%d calls at once after the order has changed", calls-before)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
