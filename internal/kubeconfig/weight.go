// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// What JSON takes when it is decoded, besides its own length.
const (
	weightValue  = 64
	weightObject = 256
)

// weigh is about what a part of a JSON document takes when it is decoded.
func weigh(p []byte) int {
	return len(p) + weightValue*(bytes.Count(p, []byte{','})+bytes.Count(p, []byte{'['})) + weightObject*bytes.Count(p, []byte{'{'})
}

// frames finds the events in the stream of a watch. A decoder keeps one until it is
// complete, and has no limit of its own before that.
type frames struct {
	depth           int
	inText, escaped bool
	weight          int // of the event that is not complete
}

// add returns the weight of p.
func (f *frames) add(p []byte) (total int) {
	begin := f.weight
	for _, c := range p {
		f.weight++
		switch {
		case f.escaped:
			f.escaped = false
		case f.inText && c == '\\':
			f.escaped = true
		case c == '"':
			f.inText = !f.inText
		case f.inText:
		case c == '{':
			f.depth++
			f.weight += weightObject
		case c == '[':
			f.depth++
			f.weight += weightValue
		case c == ',':
			f.weight += weightValue
		case c == '}' || c == ']':
			if f.depth--; f.depth <= 0 {
				total += f.weight - begin
				f.depth, f.weight, begin = 0, 0, 0
			}
		}
	}
	return total + f.weight - begin
}

// sizeOf is about the length of an object in JSON, and what it takes decoded.
func sizeOf(obj runtime.Object) (size, decoded int) {
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		size, values := measure(o.Object)
		return size + objectBytes, size + weightValue*values
	case *metav1.PartialObjectMetadata:
		n := 2*objectBytes + weightObject*(len(o.ManagedFields)+len(o.OwnerReferences)+len(o.Finalizers))
		for _, m := range []map[string]string{o.Labels, o.Annotations} {
			for k, v := range m {
				n += len(k) + len(v) + weightValue
			}
		}
		for i := range o.ManagedFields {
			if f := o.ManagedFields[i].FieldsV1; f != nil {
				n += f.Size()
			}
		}
		return n, n
	}
	return objectBytes, objectBytes
}

func measure(value any) (size, values int) {
	switch v := value.(type) {
	case string:
		return len(v) + 3, 1
	case map[string]any:
		size, values = 2, 4
		for k, item := range v {
			s, n := measure(item)
			size, values = size+len(k)+4+s, values+n
		}
		return size, values
	case []any:
		size, values = 2, 1
		for _, item := range v {
			s, n := measure(item)
			size, values = size+s, values+n
		}
		return size, values
	}
	return 8, 1
}
