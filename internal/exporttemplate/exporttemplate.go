// SPDX-License-Identifier: Apache-2.0

// Package exporttemplate reads the APIServiceExportTemplates of a Control Plane Cluster, in each of
// the groups in which installations of Klutch have them.
package exporttemplate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Resource is that of our own group.
var Resource = v1alpha1.Resource("apiserviceexporttemplates")

// Resources are those of all groups, our own first. In the foreign ones the selector has another
// name, nothing writes a status, and cluster-scoped APIs have no isolation but Prefixed.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		Resource,
		{Group: "example-backend.klutch.anynines.com", Version: "v1alpha1", Resource: Resource.Resource},
		{Group: "bind.anynines.com", Version: "v1alpha1", Resource: Resource.Resource},
	}
}

// IsForeign reports whether a template is of another group than ours.
func IsForeign(u *unstructured.Unstructured) bool {
	return u.GroupVersionKind().Group != v1alpha1.GroupVersion.Group
}

// List returns the templates of all groups by API, of each the one that offers it
// first. That is the oldest, of whatever group: rights to bind an API go by its
// template, so a user who may make templates in one namespace must not take an API, and
// the rights of all its tenants, over from a template that was there. A name would be
// chosen for that purpose; a time and a UID cannot be. Groups need not exist but for those
// of needed.
func List(ctx context.Context, dyn dynamic.Interface, needed ...schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	var all []unstructured.Unstructured
	for _, gvr := range Resources() {
		list, err := dyn.Resource(gvr).List(ctx, metav1.ListOptions{})
		if fates.Is(err, fates.Absent, fates.Unserved) && !slices.Contains(needed, gvr) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list templates of %s: %w", gvr.Group, err)
		}
		all = append(all, list.Items...)
	}
	slices.SortFunc(all, func(a, b unstructured.Unstructured) int {
		return cmp.Or(strings.Compare(Selected(&a).String(), Selected(&b).String()),
			a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time), strings.Compare(string(a.GetUID()), string(b.GetUID())))
	})
	return all, nil
}

// Selector returns the field of a template that names the API.
func Selector(u *unstructured.Unstructured) map[string]any {
	for _, name := range []string{"apiServiceSelector", "APIServiceSelector"} {
		if fields, ok, _ := unstructured.NestedMap(u.Object, "spec", name); ok {
			return fields
		}
	}
	return nil
}

// Selected returns the API that a template offers.
func Selected(u *unstructured.Unstructured) schema.GroupResource {
	fields := Selector(u)
	group, _, _ := unstructured.NestedString(fields, "group")
	resource, _, _ := unstructured.NestedString(fields, "resource")
	return schema.GroupResource{Group: group, Resource: resource}
}
