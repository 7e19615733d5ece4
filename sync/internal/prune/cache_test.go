// SPDX-License-Identifier: Apache-2.0

package prune_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/sync/internal/prune"
)

// publisher is an API server that publishes widgets, with a field more each time.
type publisher struct {
	fields atomic.Int64
	moves  atomic.Int64 // how often the document changes once its index was read
}

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	n := p.fields.Load()
	if r.URL.Path == "/openapi/v3" {
		_, _ = fmt.Fprintf(w, `{"paths":{"apis/example.org/v1":{"serverRelativeURL":"/openapi/v3/apis/example.org/v1?hash=%d"}}}`, n)
		return
	}
	if p.moves.Add(-1) >= 0 {
		n = p.fields.Add(1)
	}
	if hash := strconv.FormatInt(n, 10); r.URL.Query().Get("hash") != hash { // as API servers do
		r.URL.RawQuery = "hash=" + hash
		http.Redirect(w, r, r.URL.String(), http.StatusMovedPermanently)
		return
	}
	_, _ = fmt.Fprintf(w, `{"paths":{"/apis/example.org/v1/widgets":{"get":{"x-kubernetes-group-version-kind":{"group":"example.org","kind":"Widget"}}}},
		"components":{"schemas":{"Widget":{"properties":{"field%d":{}},"x-kubernetes-group-version-kind":[{"group":"example.org","kind":"Widget"}]}}}}`, n)
}

// cache is one that reads what the publisher publishes, and follows redirects no more than those
// of clusters do.
func (p *publisher) cache(t *testing.T, changed func(version string)) *prune.Cache {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	stay := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	client, err := discovery.NewDiscoveryClientForConfigAndClient(&rest.Config{Host: server.URL}, stay)
	if err != nil {
		t.Fatal(err)
	}
	return prune.NewCache(client.RESTClient(), schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, nil, changed)
}

// A document that changes between the reads of its index and of itself, as while CRDs are installed,
// answers 301: the index is read again.
func TestDocumentMoves(t *testing.T) {
	for moves, want := range map[int64]bool{0: true, 1: true, 3: true, 4: false} {
		t.Run(fmt.Sprint(moves), func(t *testing.T) {
			t.Parallel()
			p := &publisher{}
			p.moves.Store(moves)
			c := p.cache(t, nil)
			c.Load(t.Context())
			if has, known := c.Has([]string{fmt.Sprintf("field%d", moves)}); known != want || has != want {
				t.Errorf("has the latest field: %t, known %t, want %t", has, known, want)
			}
		})
	}
}

// A schema that changes is told although no object was pruned yet: a watch that the old
// schema still served may have left out a field of an object that is not sent again.
func TestChangeBeforeTheFirstObject(t *testing.T) {
	p := &publisher{}
	changed := make(chan string, 10)
	c := p.cache(t, func(version string) { changed <- version })
	c.Load(t.Context())
	c.Load(t.Context())
	before := c.Changes()
	go c.Run(t.Context())
	p.fields.Add(1)
	c.Doubt()
	select {
	case <-changed:
		if n := c.Changes(); before != 1 || n != 2 {
			t.Errorf("changes %d, and %d after one", before, n)
		}
	case <-time.After(10 * time.Second):
		t.Error("the change was not told")
	}
}
