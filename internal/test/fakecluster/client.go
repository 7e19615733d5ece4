// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
)

type client struct{ view *View }

// IsWatchListSemanticsUnSupported tells reflectors to list and then watch.
func (client) IsWatchListSemanticsUnSupported() bool { return true }

func (c client) Resource(gvr schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return resource{view: c.view, gvr: gvr}
}

// resource is the objects of one resource, of one namespace or of all.
type resource struct {
	view      *View
	gvr       schema.GroupVersionResource
	namespace string
}

func (r resource) Namespace(namespace string) dynamic.ResourceInterface {
	r.namespace = namespace
	return r
}

// do carries out a request for one object.
func (r resource) do(ctx context.Context, verb, name string, subresources []string, f func(write) (*unstructured.Unstructured, error)) (out *unstructured.Unstructured, err error) {
	req := Request{Verb: verb, Subresource: first(subresources), Resource: r.gvr, Object: cache.NewObjectName(r.namespace, name)}
	err = r.view.handle(ctx, req, func(s *served) (err error) {
		out, err = f(write{r.view.cluster, s, req.Object})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func first(subresources []string) string {
	if len(subresources) > 0 {
		return subresources[0]
	}
	return ""
}

func (r resource) Create(ctx context.Context, o *unstructured.Unstructured, options metav1.CreateOptions, sub ...string) (*unstructured.Unstructured, error) {
	return r.do(ctx, "create", o.GetName(), sub, func(w write) (*unstructured.Unstructured, error) {
		return w.create(o, options.FieldManager)
	})
}

func (r resource) Update(ctx context.Context, o *unstructured.Unstructured, options metav1.UpdateOptions, sub ...string) (*unstructured.Unstructured, error) {
	return r.do(ctx, "update", o.GetName(), sub, func(w write) (*unstructured.Unstructured, error) {
		return w.update(o, options.FieldManager, first(sub))
	})
}

func (r resource) UpdateStatus(ctx context.Context, o *unstructured.Unstructured, options metav1.UpdateOptions) (*unstructured.Unstructured, error) {
	return r.Update(ctx, o, options, "status")
}

func (r resource) Delete(ctx context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	_, err := r.DeleteAnswer(ctx, name, options)
	return err
}

// DeleteAnswer is Delete with the answer of the API server: the object, if something
// holds it, or a Status.
func (r resource) DeleteAnswer(ctx context.Context, name string, options metav1.DeleteOptions) (*unstructured.Unstructured, error) {
	return r.do(ctx, "delete", name, nil, func(w write) (*unstructured.Unstructured, error) {
		return w.remove(options)
	})
}

func (r resource) DeleteCollection(context.Context, metav1.DeleteOptions, metav1.ListOptions) error {
	return errors.New("fakecluster deletes no collections")
}

func (r resource) Get(ctx context.Context, name string, _ metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	return r.do(ctx, "get", name, sub, func(w write) (*unstructured.Unstructured, error) {
		o, err := w.in.find(w.name)
		return o.DeepCopy(), err
	})
}

func (r resource) List(ctx context.Context, options metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list := &unstructured.UnstructuredList{}
	err := r.view.handle(ctx, Request{Verb: "list", Resource: r.gvr, Object: cache.NewObjectName(r.namespace, ""), Selector: options.LabelSelector}, func(s *served) error {
		objects, version, err := r.view.list(s, r.namespace, options)
		for _, o := range objects {
			list.Items = append(list.Items, *o)
		}
		list.SetGroupVersionKind(s.GroupVersion().WithKind(s.Kind + "List"))
		list.SetResourceVersion(strconv.FormatInt(version, 10))
		return err
	})
	return list, err
}

func (r resource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return r.watch(ctx, options, func(o *unstructured.Unstructured) runtime.Object { return o.DeepCopy() })
}

//nolint:revive // the interface says so
func (r resource) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, sub ...string) (*unstructured.Unstructured, error) {
	if kind == types.ApplyPatchType {
		o := &unstructured.Unstructured{}
		if err := json.Unmarshal(data, o); err != nil {
			return nil, err
		}
		return r.Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: options.FieldManager, Force: options.Force != nil && *options.Force}, sub...)
	}
	return r.do(ctx, "patch", name, sub, func(w write) (*unstructured.Unstructured, error) {
		return w.patch(patch{kind, data, options.FieldManager, first(sub)})
	})
}

func (r resource) Apply(ctx context.Context, name string, o *unstructured.Unstructured, options metav1.ApplyOptions, sub ...string) (*unstructured.Unstructured, error) {
	return r.do(ctx, "apply", name, sub, func(w write) (*unstructured.Unstructured, error) {
		return w.serverSideApply(o, options, first(sub))
	})
}

func (r resource) ApplyStatus(ctx context.Context, name string, o *unstructured.Unstructured, options metav1.ApplyOptions) (*unstructured.Unstructured, error) {
	return r.Apply(ctx, name, o, options, "status")
}

type metadataClient struct{ view *View }

// IsWatchListSemanticsUnSupported tells reflectors to list and then watch.
func (metadataClient) IsWatchListSemanticsUnSupported() bool { return true }

func (c metadataClient) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return metadataResource{resource{view: c.view, gvr: gvr}}
}

type metadataResource struct{ whole resource }

func (m metadataResource) Namespace(namespace string) metadata.ResourceInterface {
	m.whole.namespace = namespace
	return m
}

func (m metadataResource) Delete(ctx context.Context, name string, options metav1.DeleteOptions, sub ...string) error {
	return m.whole.Delete(ctx, name, options, sub...)
}

func (m metadataResource) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, list metav1.ListOptions) error {
	return m.whole.DeleteCollection(ctx, options, list)
}

func (m metadataResource) Get(ctx context.Context, name string, options metav1.GetOptions, sub ...string) (*metav1.PartialObjectMetadata, error) {
	o, err := m.whole.Get(ctx, name, options, sub...)
	if err != nil {
		return nil, err
	}
	return partial(o), nil
}

func (m metadataResource) List(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := m.whole.List(ctx, options)
	if err != nil {
		return nil, err
	}
	out := &metav1.PartialObjectMetadataList{}
	out.ResourceVersion = list.GetResourceVersion()
	for i := range list.Items {
		out.Items = append(out.Items, *partial(&list.Items[i]))
	}
	return out, nil
}

func (m metadataResource) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return m.whole.watch(ctx, options, func(o *unstructured.Unstructured) runtime.Object { return partial(o) })
}

//nolint:revive // the interface says so
func (m metadataResource) Patch(ctx context.Context, name string, kind types.PatchType, data []byte, options metav1.PatchOptions, sub ...string) (*metav1.PartialObjectMetadata, error) {
	o, err := m.whole.Patch(ctx, name, kind, data, options, sub...)
	if err != nil {
		return nil, err
	}
	return partial(o), nil
}

func partial(o *unstructured.Unstructured) *metav1.PartialObjectMetadata {
	out := &metav1.PartialObjectMetadata{}
	meta, _ := o.Object["metadata"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": meta}, out); err != nil {
		panic(err) // stored objects have metadata
	}
	out.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return out
}

func (r resource) watch(ctx context.Context, options metav1.ListOptions, show func(*unstructured.Unstructured) runtime.Object) (watch.Interface, error) {
	match, err := labels.Parse(options.LabelSelector)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	since, err := strconv.ParseInt("0"+options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	w := &Watch{
		namespace: r.namespace, match: match, show: show, known: map[string]bool{}, resource: r.gvr, held: r.view.held,
		out: make(chan watch.Event), stopped: make(chan struct{}), more: make(chan struct{}, 1),
	}
	w.forget = func() { r.view.forget(w) }
	err = r.view.handle(ctx, Request{Verb: "watch", Resource: r.gvr, Object: cache.NewObjectName(r.namespace, ""), Selector: options.LabelSelector}, func(s *served) error {
		if since > 0 && since < max(r.view.cluster.compacted, s.since) {
			return expired()
		}
		w.after = since
		s.watchers = append(s.watchers, w)
		for _, e := range s.history {
			if e.version > since {
				e.object = s.shown(e.object)
				w.send(e)
			} else {
				w.note(e)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.view.opened(w)
	go w.deliver(ctx)
	return w, nil
}

// Client returns a dynamic client.
func (v *View) Client() dynamic.Interface { return client{v} }

// Metadata returns a metadata client.
func (v *View) Metadata() metadata.Interface { return metadataClient{v} }
