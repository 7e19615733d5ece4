// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/inflight"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/watchstore"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A Cluster is one API server as a Sync uses it. Any number of Syncs can share
// one. Create it with NewCluster or NewClusterForClients.
type Cluster struct {
	reads  dynamic.Interface // lists and watches
	writes dynamic.Interface // everything that is answered at once
	meta   metadata.Interface
	stores *watchstore.Stores
	timing timing
	raw    rest.Interface // for what the other clients keep to themselves; nil if there is none

	identity string // the namespace whose UID is the cluster's
}

// NewCluster returns the API server that config describes. Config is copied; its
// rate limit is replaced by a limit of requests in flight, which follows what the
// API server says and how fast it answers. Watches and writes go over connections
// of their own.
// NewCluster does no I/O.
func NewCluster(config *rest.Config) (*Cluster, error) {
	if config == nil {
		return nil, &OptionError{"config", "is nil"}
	}
	watches, writes := tune(config, 0), tune(config, 30*time.Second)
	inflight.New().Wrap(writes)
	inflight.Once(watches)
	inflight.Once(writes)
	c := &Cluster{stores: &watchstore.Stores{}, identity: metav1.NamespaceSystem}
	var err error
	if c.reads, err = watchstore.NewDynamic(watches); err != nil {
		return nil, fmt.Errorf("client for watches: %w", err)
	}
	if c.meta, err = metadata.NewForConfig(metadata.ConfigFor(watches)); err != nil {
		return nil, fmt.Errorf("client for metadata: %w", err)
	}
	writes = dynamic.ConfigFor(writes)
	connections, err := rest.HTTPClientFor(writes)
	if err != nil {
		return nil, fmt.Errorf("client for writes: %w", err)
	}
	if c.writes, err = dynamic.NewForConfigAndClient(writes, connections); err != nil {
		return nil, fmt.Errorf("client for writes: %w", err)
	}
	direct := *connections
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // to a document of another hash than was asked for
	d, err := discovery.NewDiscoveryClientForConfigAndClient(writes, &direct)
	if err != nil {
		return nil, fmt.Errorf("client for schemas: %w", err)
	}
	c.raw = d.RESTClient()
	return c, nil
}

// NewClusterForClients returns a Cluster behind clients that exist already, such
// as fakes. Meta may be nil if no related objects are synced. What only one side
// knows of an object's fields is not left out.
func NewClusterForClients(dyn dynamic.Interface, meta metadata.Interface) (*Cluster, error) {
	if dyn == nil {
		return nil, &OptionError{"dyn", "is nil"}
	}
	return &Cluster{reads: dyn, writes: dyn, meta: meta, stores: &watchstore.Stores{}, identity: metav1.NamespaceSystem}, nil
}

// IdentifiedBy returns the same Cluster, known by the UID of the given namespace and
// not by that of kube-system: for credentials that may read no other.
func (c *Cluster) IdentifiedBy(namespace string) *Cluster {
	same := *c
	same.identity = namespace
	return &same
}

// Bounded has no more than 100 000 objects, or 128 MB, be kept of the Cluster, for API
// servers that may be an enemy's. Beyond that its objects count as unknown, Status has
// the error, and they are listed anew after a minute. It is for Clusters that nothing
// uses yet.
func (c *Cluster) Bounded() *Cluster {
	c.stores.Budget = &kubeconfig.Budget{}
	return c
}

// tune returns a copy of config with connections of its own and no rate limit.
func tune(config *rest.Config, timeout time.Duration) *rest.Config {
	c := rest.CopyConfig(config)
	c.QPS, c.Burst, c.RateLimiter = -1, 0, nil
	c.Timeout = timeout
	if c.Dial == nil && c.Transport == nil {
		// client-go shares connections between configs with the same dialer.
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return c
}

// uid identifies the cluster; empty if that may not be read. It retries until ctx is
// done, and calls failed with each error in between.
func (c *Cluster) uid(ctx context.Context, failed func(error)) (types.UID, error) {
	log := logr.FromContextOrDiscard(ctx)
	for attempt := 1; ; attempt++ {
		ns, err := c.namespace(ctx)
		switch {
		case err == nil:
			return ns.GetUID(), nil
		case fates.Is(err, fates.Forbidden, fates.Terminating, fates.Absent, fates.Unserved):
			log.Info("cluster cannot be identified, so that another one in its place would not be noticed yet", "namespace", c.identity, "reason", err.Error())
			return "", nil
		}
		log.V(1).Info("cluster cannot be reached, retrying", "reason", err.Error())
		if ctx.Err() == nil {
			failed(err)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(watchstore.PauseAfter(err, attempt)):
		}
	}
}

// namespace reads the one whose UID is the cluster's.
func (c *Cluster) namespace(ctx context.Context) (*unstructured.Unstructured, error) {
	return c.writes.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Get(ctx, c.identity, metav1.GetOptions{})
}

// dynamicLister lists and watches objects, of which it keeps what slim does. Form
// names slim: watches of the same form are shared.
func (c *Cluster) dynamicLister(resource schema.GroupVersionResource, form string, slim func(any) any) watchstore.Source {
	return watchstore.Source{
		Resource: resource, Form: form, Transform: slim,
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			return c.reads.Resource(resource).Namespace(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			return c.reads.Resource(resource).Namespace(namespace).Watch(ctx, o)
		},
		Example: &unstructured.Unstructured{},
		Client:  c.reads,
	}
}

// metadataLister lists and watches the metadata of objects; form is that of dynamicLister.
func (c *Cluster) metadataLister(resource schema.GroupVersionResource, selector, form string, slim func(any) any) watchstore.Source {
	return watchstore.Source{
		Resource: resource, Form: form, Transform: slim,
		List: func(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = selector
			return c.meta.Resource(resource).Namespace(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, namespace string, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return c.meta.Resource(resource).Namespace(namespace).Watch(ctx, o)
		},
		Example: &metav1.PartialObjectMetadata{},
		Client:  c.meta,
	}
}

// reader reads one object live; nil if there is none.
func (c *Cluster) reader(resource schema.GroupVersionResource) func(context.Context, cache.ObjectName) (*unstructured.Unstructured, error) {
	return func(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
		return view.Found(c.writes.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
	}
}

func (c *Cluster) readUID(ctx context.Context) (types.UID, error) {
	ns, err := c.namespace(ctx)
	if err != nil {
		return "", fmt.Errorf("identify cluster: %w", err)
	}
	return ns.GetUID(), nil
}

// Timing is when something is tried again. The zero value spreads in time what fails
// everywhere at once. Histories that are to be repeated give another one.
type timing struct {
	spread watchstore.Jitter                       // after a failure
	order  func(pause time.Duration) time.Duration // of what else would happen at one moment
}

// jitter is between half and one and a half of pause.
func (t timing) jitter(pause time.Duration, what any, attempt int) time.Duration {
	if t.spread == nil {
		return watchstore.Random(pause)
	}
	return t.spread(pause, what, attempt)
}

// delay is what a queue waits.
func (t timing) delay() queue.Delay {
	return func(pause time.Duration, key cache.ObjectName, failures int) time.Duration {
		if failures > 0 {
			pause = t.jitter(pause, key, failures)
		}
		if t.order != nil {
			pause = t.order(pause)
		}
		return pause
	}
}
