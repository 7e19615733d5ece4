// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
)

// Get reads an object as a T; nil if it is not there.
func Get[T any](ctx context.Context, r dynamic.ResourceInterface, name string) (*T, error) {
	u, err := r.Get(ctx, name, metav1.GetOptions{})
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return nil, nil //nolint:nilnil // absence is a value
	}
	if err != nil {
		return nil, err
	}
	return Decode[T](u)
}

// Listed reads all objects of r as Ts.
func Listed[T any](ctx context.Context, r dynamic.ResourceInterface) ([]T, error) {
	list, err := r.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := make([]T, len(list.Items))
	for i := range list.Items {
		o, err := Decode[T](&list.Items[i])
		if err != nil {
			return nil, err
		}
		all[i] = *o
	}
	return all, nil
}

// Decode returns an object as a T, read as API servers read it: a field of another case is none.
func Decode[T any](u *unstructured.Unstructured) (*T, error) {
	o := new(T)
	data, err := json.Marshal(u.Object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", u.GetName(), err)
	}
	if err := utiljson.Unmarshal(data, o); err != nil {
		return nil, fmt.Errorf("decode %s: %w", u.GetName(), err)
	}
	return o, nil
}

// Manifest returns o as it is applied: without what only the API server writes.
func Manifest(o runtime.Object) *unstructured.Unstructured {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // types of ours and of k8s.io/api
	}
	delete(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: m}
}

// CallTimeout bounds each request but a watch.
const CallTimeout = 20 * time.Second

// ReadCRD returns nil if there is none.
func ReadCRD(ctx context.Context, app dynamic.Interface, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := Get[apiextensionsv1.CustomResourceDefinition](ctx, app.Resource(CRDs), name)
	if err != nil {
		return nil, fmt.Errorf("CRD %s: %w", name, err)
	}
	return crd, nil
}
