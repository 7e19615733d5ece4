// SPDX-License-Identifier: Apache-2.0

package prune_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
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

// I18: what is left out is told within a minute also where the schema cannot be read any more: not at
// once, since a newer one may know it.
func TestSureOfWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		cluster := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: fakecluster.Schema{"spec": {"a"}}})
		c := prune.NewCache(cluster.View(nil).Schemas(), widgets, nil, func(string) {})
		c.Load(t.Context())
		cluster.Intercept(func(context.Context, fakecluster.Request, func() error) error {
			return apierrors.NewInternalError(errors.New("no documents"))
		})
		go c.Run(t.Context())
		c.Prune(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"b": "1"}}})
		for after, want := range []bool{false, true} {
			time.Sleep(15*time.Second + time.Duration(after)*30*time.Second)
			if c.Sure() != want {
				t.Errorf("sure: %t, want %t", !want, want)
			}
		}
	})
}

// I19: a field that is left out for good has the schema be looked at ever more rarely, whether it can
// be read or not; another schema shows soon after a watch began, and what is left out then is looked at
// as often as before.
func TestI19LooksAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		cluster := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: fakecluster.Schema{"spec": {"a"}}})
		var reads atomic.Int64
		var broken atomic.Bool
		cluster.Intercept(func(_ context.Context, _ fakecluster.Request, do func() error) error {
			reads.Add(1)
			if broken.Load() {
				return apierrors.NewInternalError(errors.New("no documents"))
			}
			return do()
		})
		c := prune.NewCache(cluster.View(nil).Schemas(), widgets, nil, func(string) {})
		c.Load(t.Context())
		go c.Run(t.Context())
		kept := func() any {
			return c.Prune(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"a": "1", "b": "1", "c": "1"}}}).Object["spec"]
		}
		if diff := cmp.Diff(map[string]any{"a": "1"}, kept()); diff != "" {
			t.Fatalf("kept (-want +got):\n%s", diff)
		}
		time.Sleep(time.Hour)
		if n := reads.Swap(0); n > 30 || n < 10 || !c.Sure() {
			t.Errorf("%d reads in the first hour; sure: %t", n, c.Sure())
		}
		broken.Store(true)
		time.Sleep(time.Hour)
		if n := reads.Swap(0); n > 30 || n < 6 {
			t.Errorf("%d reads of what cannot be read in an hour", n)
		}
		broken.Store(false)
		cluster.Reshape(widgets, fakecluster.Schema{"spec": {"a", "b"}}, 0)
		c.Doubt() // as a watch that begins does
		time.Sleep(time.Second)
		if diff := cmp.Diff(map[string]any{"a": "1", "b": "1"}, kept()); diff != "" {
			t.Errorf("kept with another schema (-want +got):\n%s", diff)
		}
		time.Sleep(time.Minute)
		cluster.Reshape(widgets, fakecluster.Schema{"spec": {"a", "b", "c"}}, 0)
		time.Sleep(time.Minute)
		if diff := cmp.Diff(map[string]any{"a": "1", "b": "1", "c": "1"}, kept()); diff != "" {
			t.Errorf("kept with a schema of which no watch told (-want +got):\n%s", diff)
		}
	})
}
