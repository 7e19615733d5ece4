// SPDX-License-Identifier: Apache-2.0

// Package typed gives dynamic clients and informers Go types, so that no
// clientset, lister or informer has to be generated.
package typed

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// Object is a pointer to an API type T.
type Object[T any] interface {
	*T
	metav1.Object
	runtime.Object
}

// A Client reads and writes objects of one type.
type Client[T any, P Object[T]] struct {
	dyn dynamic.Interface
	gvr schema.GroupVersionResource
	gvk schema.GroupVersionKind
}

// NewClient returns a Client for gvr, whose objects have kind gvk.
func NewClient[T any, P Object[T]](dyn dynamic.Interface, gvr schema.GroupVersionResource, gvk schema.GroupVersionKind) *Client[T, P] {
	return &Client[T, P]{dyn, gvr, gvk}
}

// Get reads an object from the API server.
func (c *Client[T, P]) Get(ctx context.Context, name cache.ObjectName) (P, error) {
	u, err := c.dyn.Resource(c.gvr).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return decode[T, P](u)
}

// ApplyStatus writes o's status with server-side apply as manager.
func (c *Client[T, P]) ApplyStatus(ctx context.Context, o P, manager string) error {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": m["status"]}}
	u.SetGroupVersionKind(c.gvk)
	u.SetName(o.GetName())
	u.SetNamespace(o.GetNamespace())
	_, err = c.dyn.Resource(c.gvr).Namespace(o.GetNamespace()).ApplyStatus(ctx, o.GetName(), u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	return err
}

// Informer returns an informer whose store holds P, not unstructured objects.
func (c *Client[T, P]) Informer() (cache.TypedSharedIndexInformer[P], error) {
	inf := dynamicinformer.NewFilteredDynamicInformer(c.dyn, c.gvr, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	err := inf.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		return decode[T, P](u)
	})
	return cache.NewTypedSharedIndexInformer[P](inf), err
}

func decode[T any, P Object[T]](u *unstructured.Unstructured) (P, error) {
	var o P = new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("decode %s: %w", u.GetName(), err)
	}
	return o, nil
}
