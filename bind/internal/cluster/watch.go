// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// A reader reads a resource for an informer.
type reader struct {
	client  any            // what client-go asks for its abilities
	example runtime.Object // of the objects that it reads
	list    func(context.Context, metav1.ListOptions) (runtime.Object, error)
	watch   func(context.Context, metav1.ListOptions) (watch.Interface, error)
	Only    string            // a field selector; empty reads all
	Share   *kubeconfig.Share // of what may be kept; nil without bounds

	// Told is called with an error when reading begins to fail, or fails
	// otherwise than before, and with nil when it works again.
	Told func(context.Context, error)
}

// Objects reads whole objects.
func Objects(client dynamic.Interface, resource schema.GroupVersionResource, namespace string) reader {
	r := client.Resource(resource).Namespace(namespace)
	return reader{
		client: client, example: &unstructured.Unstructured{}, Told: tellLog(resource),
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
		watch: r.Watch,
	}
}

// Metas reads the metadata of all objects.
func Metas(client metadata.Interface, resource schema.GroupVersionResource) reader {
	r := client.Resource(resource)
	return reader{
		client: client, example: &metav1.PartialObjectMetadata{}, Told: tellLog(resource),
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
		watch: r.Watch,
	}
}

func tellLog(resource schema.GroupVersionResource) func(context.Context, error) {
	return func(ctx context.Context, err error) {
		log := logr.FromContextOrDiscard(ctx).WithValues("resource", resource.GroupResource().String())
		if err != nil {
			log.Info("cannot be read, retrying", "reason", Explain(err))
			return
		}
		log.Info("can be read again")
	}
}

// Informer returns one that retries by itself what client-go's would give ever more
// time: up to a minute.
func (r reader) Informer(indexers cache.Indexers) cache.SharedIndexInformer {
	var p progress
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = r.Only
			return persist(ctx, r.Told, &p, func() (runtime.Object, error) { return r.Share.List(ctx, o, r.list) })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = r.Only
			return persist(ctx, r.Told, &p, func() (watch.Interface, error) {
				w, err := r.Share.Watch(ctx, o, r.watch)
				if err == nil {
					p.Found()
				}
				return w, err
			})
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(lw, r.client), r.example, 0, indexers)
}

// progress is the progress of one informer, which makes one request at a time.
type progress struct {
	watchstore.Pauses
	said string // why it cannot read, as was told; empty if it can
}

// persist tries until it gets an answer that an informer has to see.
func persist[T any](ctx context.Context, tell func(context.Context, error), p *progress, try func() (T, error)) (T, error) {
	out, err := watchstore.Retry(ctx, &p.Pauses, func(err error) {
		if why := Explain(err); why != p.said {
			p.said = why
			tell(ctx, err)
		}
	}, try)
	if err == nil && p.said != "" && !p.Lost() {
		p.said = ""
		tell(ctx, nil)
	}
	return out, err
}

// Stored returns an object of the store of inf; nil if it is not there.
func Stored(inf cache.SharedIndexInformer, name cache.ObjectName) *unstructured.Unstructured {
	obj, _, _ := inf.GetStore().GetByKey(name.String())
	u, _ := obj.(*unstructured.Unstructured)
	return u
}

// Cached is Stored as a T.
func Cached[T any](inf cache.SharedIndexInformer, name cache.ObjectName) (*T, error) {
	if u := Stored(inf, name); u != nil {
		return Decode[T](u)
	}
	return nil, nil //nolint:nilnil // absence in a cache is a value
}
