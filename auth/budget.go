// SPDX-License-Identifier: Apache-2.0

package auth

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// budgetTime is how long a budget takes to fill up.
const budgetTime = 30 * time.Second

// errSpent says that the issuer has been asked often enough lately.
var errSpent = errors.New("asked for keys a moment ago")

// A budget is three requests in any 30 seconds. It protects an issuer from clients
// that send tokens which only the issuer can judge.
type budget struct {
	now func() time.Time

	mu    sync.Mutex
	spent [3]time.Time
	next  int
	sick  error // of the last request; nil where the issuer has answered
}

// spend takes one request, or says why there is none.
func (b *budget) spend() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if now.Sub(b.spent[b.next]) < budgetTime {
		return errors.Join(errSpent, b.sick)
	}
	b.spent[b.next] = now
	b.next = (b.next + 1) % len(b.spent)
	return nil
}

func (b *budget) outcome(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sick = err
}

func (b *budget) limit(client *http.Client) *http.Client {
	limited := *client
	limited.Transport = budgetTransport{client.Transport, b}
	return &limited
}

type budgetTransport struct {
	http.RoundTripper

	budget *budget
}

// RoundTrip implements [http.RoundTripper].
func (t budgetTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := t.budget.spend(); err != nil {
		return nil, err
	}
	resp, err := t.RoundTripper.RoundTrip(req)
	t.budget.outcome(err)
	return resp, err
}
