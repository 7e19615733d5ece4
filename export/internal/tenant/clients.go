// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The resources of a tenant namespace.
var (
	ExportResource         = v1alpha1.Resource("apiserviceexports")
	RequestResource        = v1alpha1.Resource("apiserviceexportrequests")
	NamespaceResource      = v1alpha1.Resource("apiservicenamespaces")
	ClusterBindingResource = v1alpha1.Resource("clusterbindings")
)

// Clients are those with the rights of the backend.
type Clients struct {
	Kube kubernetes.Interface
	Dyn  dynamic.Interface
	Meta metadata.Interface
}

// Connect makes clients.
func Connect(config *rest.Config) (c Clients, err error) {
	if c.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return c, err
	}
	if c.Dyn, err = dynamic.NewForConfig(config); err != nil {
		return c, err
	}
	metered := rest.CopyConfig(config)
	metered.Wrap(func(next http.RoundTripper) http.RoundTripper { return meter{next} })
	c.Meta, err = metadata.NewForConfig(metered)
	return c, err
}

// setFinalizers writes the finalizers of an object that is still as it was seen.
func (c Clients) setFinalizers(ctx context.Context, gvr schema.GroupVersionResource, o metav1.Object, finalizers []string) error {
	_, err := c.patchFinalizers(ctx, gvr, o, finalizers)
	return err
}

// removeFinalizer removes one from an object that is still as it was seen.
func removeFinalizer(ctx context.Context, c Clients, gvr schema.GroupVersionResource, o metav1.Object, finalizer string) error {
	return c.setFinalizers(ctx, gvr, o, slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return f == finalizer }))
}

// patchFinalizers is setFinalizers, and returns the version of the object then; none if it is gone.
func (c Clients) patchFinalizers(ctx context.Context, gvr schema.GroupVersionResource, o metav1.Object, finalizers []string) (version string, err error) {
	now, err := c.patch(ctx, gvr, o, map[string]any{"finalizers": finalizers}, nil)
	if IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("set finalizers of %s: %w", o.GetName(), err)
	}
	if err != nil {
		return "", nil //nolint:nilerr // it is gone
	}
	return now.GetResourceVersion(), nil
}

// Patch merges metadata, and a spec if there is one, into an object that is still as
// it was seen.
func (c Clients) Patch(ctx context.Context, gvr schema.GroupVersionResource, seen metav1.Object, metadata, spec map[string]any) error {
	_, err := c.patch(ctx, gvr, seen, metadata, spec)
	return err
}

func (c Clients) patch(ctx context.Context, gvr schema.GroupVersionResource, seen metav1.Object, metadata, spec map[string]any) (now *unstructured.Unstructured, err error) {
	metadata["uid"], metadata["resourceVersion"] = seen.GetUID(), seen.GetResourceVersion()
	change := map[string]any{"metadata": metadata}
	if spec != nil {
		change["spec"] = spec
	}
	data, err := json.Marshal(change)
	if err == nil {
		now, err = c.Dyn.Resource(gvr).Namespace(seen.GetNamespace()).Patch(ctx, seen.GetName(), types.MergePatchType, data, metav1.PatchOptions{})
	}
	return now, err
}

// deleteNamespace deletes exactly the namespace that was read.
func (c Clients) deleteNamespace(ctx context.Context, ns *corev1.Namespace, opts metav1.DeleteOptions) error {
	opts.Preconditions = &metav1.Preconditions{UID: &ns.UID}
	err := c.Kube.CoreV1().Namespaces().Delete(ctx, ns.Name, opts)
	if err := IgnoreNotFound(err); err != nil {
		return fmt.Errorf("delete namespace %s: %w", ns.Name, err)
	}
	return nil
}

// IgnoreNotFound is nil for the error of an object, or of an API, that is not there.
func IgnoreNotFound(err error) error {
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return nil
	}
	return err
}

// deleteAll deletes all objects of a resource in a namespace, and returns how many
// there were.
func (c Clients) deleteAll(ctx context.Context, gvr schema.GroupVersionResource, namespace string) (int, error) {
	all, err := identities(ctx, c.Meta.Resource(gvr).Namespace(namespace), 0, func(metav1.Object) bool { return true })
	if err != nil {
		return 0, fmt.Errorf("list %s in %s: %w", gvr.Resource, namespace, err)
	}
	_, err = c.deleteEach(ctx, gvr, all)
	return len(all), err
}

// identities says which of the objects of a resource are wanted, or so many of them if most is not 0. Nothing else of
// their metadata is kept.
func identities(ctx context.Context, from metadata.ResourceInterface, most int, wanted func(metav1.Object) bool) (all []metav1.PartialObjectMetadata, err error) {
	for opts := (metav1.ListOptions{Limit: fewestListed}); ; {
		list, next, err := listPage(ctx, from, opts)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			if o := &list.Items[i]; wanted(o) {
				all = append(all, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, DeletionTimestamp: o.DeletionTimestamp}})
			}
			if most > 0 && len(all) == most {
				return all, nil
			}
		}
		if opts = next; opts.Continue == "" {
			return all, nil
		}
	}
}

// Tenants make the objects that are listed, and give each up to 1.5 MB of metadata; sixteen workers may list at
// the same time. So the first page has few of them, and the next as many as would fit if they were as large.
// They need not be: of a larger page no more is read than a few of the largest objects have.
const (
	fewestListed = 5
	mostListed   = 500
	mostRead     = 4 << 20 // bytes
)

// listPage lists a page of objects, and returns the options of the next one; its Continue is empty after the last page.
func listPage(ctx context.Context, from metadata.ResourceInterface, opts metav1.ListOptions) (list *metav1.PartialObjectMetadataList, next metav1.ListOptions, err error) {
	p := &page{bounded: opts.Limit > fewestListed}
	list, err = from.List(context.WithValue(ctx, pageKey{}, p), opts)
	if p.cut {
		opts.Limit = fewestListed
		return listPage(ctx, from, opts)
	}
	if err != nil {
		return nil, opts, err
	}
	if next = opts; p.read > 0 {
		fit := int64(len(list.Items)) * (mostRead / 2) / p.read
		next.Limit = max(fewestListed, min(fit, 10*opts.Limit, mostListed))
	}
	next.Continue = list.Continue
	return list, next, nil
}

// A page is what was read of the answer to a list.
type page struct {
	bounded, cut bool
	read         int64 // bytes
}

type pageKey struct{}

// A meter reads the pages that are in the contexts of requests.
type meter struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (m meter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(r)
	if p, ok := r.Context().Value(pageKey{}).(*page); ok && err == nil {
		resp.Body = pageBody{resp.Body, p}
	}
	return resp, err
}

type pageBody struct {
	io.ReadCloser
	*page
}

// Read implements [io.Reader].
func (b pageBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	if b.cut = b.bounded && b.read > mostRead; b.cut {
		return 0, io.EOF
	}
	return n, err
}

// deleteEach deletes exactly the objects that were read, and returns how many. If the API server refuses to
// delete one, the rest is deleted all the same.
func (c Clients) deleteEach(ctx context.Context, gvr schema.GroupVersionResource, objects []metav1.PartialObjectMetadata) (deleted int, err error) {
	var refused fates.Refusals
	for _, o := range objects {
		if o.DeletionTimestamp != nil {
			continue
		}
		err := c.Meta.Resource(gvr).Namespace(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}})
		if IgnoreNotFound(err) == nil {
			deleted++
		} else if err := refused.Keep(fmt.Errorf("delete %s %s: %w", gvr.Resource, cache.MetaObjectToName(&o), err)); err != nil {
			return deleted, err
		}
	}
	return deleted, refused.Err()
}

// put creates or updates a Secret. What an API server has against that is told without its words: an
// admission policy may quote the content.
func (c Clients) put(ctx context.Context, secret *corev1.Secret) (err error) {
	secrets := c.Kube.CoreV1().Secrets(secret.Namespace)
	if secret.ResourceVersion == "" {
		_, err = secrets.Create(ctx, secret, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return fates.Withheld(err)
}

// obtain reads an object, or makes it where there is none. In a namespace that was made a moment ago
// none is expected: fresh saves the look, and an object that is there all the same is read after all.
func obtain[T any](fresh bool, get, create func() (T, error)) (got T, made bool, err error) {
	if !fresh {
		if got, err = get(); !fates.Is(err, fates.Absent) {
			return got, false, err
		}
	}
	if got, err = create(); fates.Is(err, fates.Exists) {
		got, err = get()
		return got, false, err
	}
	return got, err == nil, err
}

// ensured wraps the error of a write; that another writer was faster is none.
func ensured(err error, what, namespace string) error {
	if fates.Is(err, fates.None, fates.Exists) {
		return nil
	}
	return fmt.Errorf("make %s in %s: %w", what, namespace, err)
}

// One is 1 for yes and 0 for no.
func One(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
