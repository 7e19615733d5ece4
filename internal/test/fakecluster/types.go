// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// Types are those of a kind, by which managed fields are kept: as API servers do it, the finalizers
// of each kind are owned one by one, and fields is what else is known of the kind.
func Types(fields string) (managedfields.TypeConverter, error) {
	parser, err := typed.NewParser(typed.YAMLObject(fmt.Sprintf(typesOf, fields)))
	if err != nil {
		return nil, err
	}
	return converter{parser.Type("object")}, nil
}

var plainTypes = sync.OnceValues(func() (managedfields.TypeConverter, error) { return Types("") })

const typesOf = `types:
- name: object
  map:
    fields:
    - name: metadata
      type: {namedType: metadata}
%s
    elementType: {namedType: __untyped_deduced_}
- name: metadata
  map:
    fields:
    - name: finalizers
      type: {list: {elementType: {scalar: string}, elementRelationship: associative}}
    elementType: {namedType: __untyped_deduced_}
- name: __untyped_atomic_
  scalar: untyped
  list:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
  map:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
- name: __untyped_deduced_
  scalar: untyped
  list:
    elementType: {namedType: __untyped_atomic_}
    elementRelationship: atomic
  map:
    elementType: {namedType: __untyped_deduced_}
    elementRelationship: separable
`

// A converter is a managedfields.TypeConverter of one type.
type converter struct{ typed.ParseableType }

// ObjectToTyped implements managedfields.TypeConverter.
func (c converter) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return c.FromUnstructured(o.(*unstructured.Unstructured).Object, opts...)
}

// TypedToObject implements managedfields.TypeConverter.
func (converter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	object, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("no object: %v", v)
	}
	return &unstructured.Unstructured{Object: object}, nil
}
