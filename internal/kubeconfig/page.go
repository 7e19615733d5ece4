// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// paged is o as API servers answer it in pages: they ignore a limit where any state of
// theirs will do.
func paged(o metav1.ListOptions) metav1.ListOptions {
	switch {
	case o.ResourceVersion == "0":
		o.ResourceVersion = ""
	case o.ResourceVersion != "" && o.ResourceVersionMatch == "" && o.Continue == "":
		o.ResourceVersionMatch = metav1.ResourceVersionMatchNotOlderThan
	}
	o.Limit = page
	return o
}

func (s *Share) pages(ctx context.Context, o metav1.ListOptions, list func(context.Context, metav1.ListOptions) (runtime.Object, error)) (all runtime.Object, err error) {
	weight := 0
	for {
		next, err := list(ctx, o)
		if err != nil {
			return nil, err
		}
		err = meta.EachListItem(next, func(item runtime.Object) error {
			size, decoded := s.sizeOf(item)
			if weight += decoded; weight > mostListed {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.exceed(tooMuch)
			}
			return s.count(item, size)
		})
		if err != nil {
			return nil, err
		}
		if all, err = joined(all, next); err != nil {
			return nil, err
		}
		m, err := meta.ListAccessor(next)
		if err != nil {
			return nil, err
		}
		if o.Continue = m.GetContinue(); o.Continue == "" {
			return all, nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
	}
}

// joined is a list with the items of its next page.
func joined(all, next runtime.Object) (runtime.Object, error) {
	switch a := all.(type) {
	case nil:
		return next, nil
	case *unstructured.UnstructuredList:
		if n, ok := next.(*unstructured.UnstructuredList); ok {
			a.Items = append(a.Items, n.Items...)
			a.SetContinue("")
			return a, nil
		}
	case *metav1.PartialObjectMetadataList:
		if n, ok := next.(*metav1.PartialObjectMetadataList); ok {
			a.Items = append(a.Items, n.Items...)
			a.Continue = ""
			return a, nil
		}
	}
	return nil, fmt.Errorf("a list of %T goes on with %T", all, next)
}
