// SPDX-License-Identifier: Apache-2.0

package prune_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/sync/internal/prune"
)

// publisher is an API server that publishes widgets, with a field more each time.
type publisher struct{ fields atomic.Int64 }

func (p *publisher) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	n := p.fields.Load()
	if r.URL.Path == "/openapi/v3" {
		_, _ = fmt.Fprintf(w, `{"paths":{"apis/example.org/v1":{"serverRelativeURL":"/openapi/v3/apis/example.org/v1?hash=%d"}}}`, n)
		return
	}
	_, _ = fmt.Fprintf(w, `{"paths":{"/apis/example.org/v1/widgets":{"get":{"x-kubernetes-group-version-kind":{"group":"example.org","kind":"Widget"}}}},
		"components":{"schemas":{"Widget":{"properties":{"field%d":{}},"x-kubernetes-group-version-kind":[{"group":"example.org","kind":"Widget"}]}}}}`, n)
}

// A schema that changes is told although no object was pruned yet: a watch that the old
// schema still served may have left out a field of an object that is not sent again.
func TestChangeBeforeTheFirstObject(t *testing.T) {
	p := &publisher{}
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan string, 10)
	c := prune.NewCache(client.RESTClient(), schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, nil, func(version string) { changed <- version })
	c.Load(t.Context())
	go c.Run(t.Context())
	p.fields.Add(1)
	c.Doubt()
	select {
	case <-changed:
	case <-time.After(10 * time.Second):
		t.Error("the change was not told")
	}
}
