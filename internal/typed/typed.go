// SPDX-License-Identifier: Apache-2.0

// Package typed gives dynamic informers Go types, so that no clientset, lister or
// informer has to be generated.
package typed

import (
	"fmt"
	"maps"

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

// Informer returns an informer of gvr whose store holds P, not unstructured objects,
// without managedFields, and after tidy, which may be nil. A part of a status that does not
// decode is left out: tenants write statuses, and one bad status must
// not keep all other objects from being seen.
func Informer[T any, P Object[T]](dyn dynamic.Interface, gvr schema.GroupVersionResource, tidy func(P)) (cache.TypedSharedIndexInformer[P], error) {
	inf := dynamicinformer.NewFilteredDynamicInformer(dyn, gvr, metav1.NamespaceAll, 0,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, nil).Informer()
	err := inf.SetTransform(func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		u.SetManagedFields(nil)
		o, err := Decode[T, P](u)
		if err != nil {
			o, err = Decode[T, P](sensible[T, P](u))
		}
		if err == nil && tidy != nil {
			tidy(o)
		}
		return o, err
	})
	return cache.NewTypedSharedIndexInformer[P](inf), err
}

// sensible leaves out of the status of u what cannot be decoded.
func sensible[T any, P Object[T]](u *unstructured.Unstructured) *unstructured.Unstructured {
	status, _, _ := unstructured.NestedMap(u.Object, "status")
	maps.DeleteFunc(status, func(key string, value any) bool {
		_, err := Decode[T, P](&unstructured.Unstructured{Object: map[string]any{"status": map[string]any{key: value}}})
		return err != nil
	})
	u.Object["status"] = status
	return u
}

// Decode returns u as a P.
func Decode[T any, P Object[T]](u *unstructured.Unstructured) (P, error) {
	var o P = new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("decode %s: %w", u.GetName(), err)
	}
	return o, nil
}
