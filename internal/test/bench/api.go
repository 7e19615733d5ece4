// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// An api is one API server, spoken to with as little work as possible, because this
// process has to share the machine with those that it measures.
type api struct {
	client rest.Interface
	sent   atomic.Int64 // write requests to resources of our group that were answered
}

func newAPI(c *cluster.Cluster) (*api, error) {
	a := &api{}
	config := c.Config()
	config.QPS, config.ContentType = -1, runtime.ContentTypeJSON
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	config.Wrap(a.counting)
	var err error
	a.client, err = rest.UnversionedRESTClientFor(config)
	return a, err
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// counting counts what is really sent, client-go's own retries included.
func (a *api) counting(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		res, err := next.RoundTrip(r)
		if err == nil && r.Method != http.MethodGet && strings.HasPrefix(r.URL.Path, "/apis/"+group+"/") {
			a.sent.Add(1)
		}
		return res, err
	})
}

// path is that of a resource of our group; empty parts are left out.
func path(resource, namespace string, rest ...string) string {
	p := "/apis/" + group + "/" + version
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return strings.Join(append([]string{p, resource}, rest...), "/")
}

func (a *api) create(ctx context.Context, path string, body []byte) error {
	return a.client.Post().AbsPath(path).Body(body).Do(ctx).Error()
}

func (a *api) merge(ctx context.Context, path string, body []byte) error {
	return a.client.Patch(types.MergePatchType).AbsPath(path).Body(body).Do(ctx).Error()
}

func (a *api) remove(ctx context.Context, path string) error {
	return a.client.Delete().AbsPath(path).Do(ctx).Error()
}

// A page is the part of a list that says how much there is.
type page struct {
	Metadata struct {
		ResourceVersion    string
		RemainingItemCount int64
	}
	Items []struct{}
}

// count returns how many objects a path has, and the version of that answer.
func (a *api) count(ctx context.Context, path string) (n int64, version string, err error) {
	data, err := a.client.Get().AbsPath(path).Param("limit", "1").DoRaw(ctx)
	if err != nil {
		return 0, "", err
	}
	var p page
	err = json.Unmarshal(data, &p)
	return p.Metadata.RemainingItemCount + int64(len(p.Items)), p.Metadata.ResourceVersion, err
}

// An event is what a watch tells, as far as this program wants to know.
type event struct {
	Type   string
	Object struct {
		Metadata struct{ Name, Namespace, ResourceVersion string }
		Spec     struct{ Size string }
		Status   struct {
			Phase      string
			Conditions []condition
		}
	}
}

type condition struct{ Type, Status string }

// follow calls see for each event of a path from now until ctx is done.
func (a *api) follow(ctx context.Context, path string, see func(event)) error {
	_, version, err := a.count(ctx, path)
	if err != nil {
		return fmt.Errorf("follow %s: %w", path, err)
	}
	go func() {
		for ctx.Err() == nil {
			if version, err = a.watch(ctx, path, version, see); err != nil {
				wait(ctx, 50*time.Millisecond)
			}
		}
	}()
	return nil
}

// watch ends with the connection, and returns from where to go on.
func (a *api) watch(ctx context.Context, path, version string, see func(event)) (string, error) {
	stream, err := a.client.Get().AbsPath(path).Param("watch", "1").Param("allowWatchBookmarks", "1").
		Param("resourceVersion", version).Stream(ctx)
	if err != nil {
		return version, err
	}
	defer func() { _ = stream.Close() }()
	for decoder := json.NewDecoder(stream); ; {
		var e event
		switch err := decoder.Decode(&e); {
		case err == io.EOF:
			return version, nil
		case err != nil:
			return version, err
		}
		if version = e.Object.Metadata.ResourceVersion; e.Type != "BOOKMARK" {
			see(e)
		}
	}
}

// wait returns after d, or when ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
