// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// ServedNames are the resources of a cluster as of the last minute.
type ServedNames struct {
	mu    sync.Mutex
	at    time.Time
	lists []*metav1.APIResourceList
}

// read does not miss what the API server knows because another API server behind it is
// away.
func (s *ServedNames) read(ctx context.Context, d discovery.ServerResourcesInterfaceWithContext, now time.Time) ([]*metav1.APIResourceList, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.IsZero() && now.Sub(s.at) < time.Minute {
		return s.lists, nil
	}
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, fmt.Errorf("names that the App Cluster serves: %w", err)
	}
	s.at, s.lists = now, lists
	return lists, nil
}

// DropNames leaves out of wanted the short names, categories and the singular name by
// which people here already reach something else, and returns them. Live may be nil.
func (s *ServedNames) DropNames(ctx context.Context, d discovery.ServerResourcesInterfaceWithContext, live, wanted *unstructured.Unstructured) ([]string, error) {
	served, err := s.read(ctx, d, time.Now())
	if err != nil {
		return nil, err
	}
	dropped, err := dropSingular(served, live, wanted)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"shortNames", "categories"} {
		var had []string
		if live != nil {
			had, _, _ = unstructured.NestedStringSlice(live.Object, "spec", "names", field)
		}
		all, _, _ := unstructured.NestedStringSlice(wanted.Object, "spec", "names", field)
		taken := takenNames(served, schema.ParseGroupResource(wanted.GetName()), had)
		free := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return taken[name] })
		dropped = append(dropped, slices.DeleteFunc(all, func(name string) bool { return !taken[name] })...)
		if err := unstructured.SetNestedStringSlice(wanted.Object, free, "spec", "names", field); err != nil {
			return nil, err
		}
		if len(free) == 0 {
			unstructured.RemoveNestedField(wanted.Object, "spec", "names", field)
		}
	}
	return dropped, nil
}

// dropSingular puts another in the place of a singular name that is taken: the one that the
// API server has accepted before, or else the plural. Without one the API server would make
// it of the kind, and for a CRD that has another one it takes the plural for a name in use.
func dropSingular(served []*metav1.APIResourceList, live, wanted *unstructured.Unstructured) ([]string, error) {
	singular, had := singularOf(wanted), ""
	if live != nil {
		accepted, _, _ := unstructured.NestedString(live.Object, "status", "acceptedNames", "singular")
		had = cmp.Or(accepted, singularOf(live))
	}
	own := schema.ParseGroupResource(wanted.GetName())
	if singular == own.Resource || singular == had || !takenNames(served, own, nil)[singular] {
		return nil, nil
	}
	return []string{singular}, unstructured.SetNestedField(wanted.Object, cmp.Or(had, own.Resource), "spec", "names", "singular")
}

func singularOf(crd *unstructured.Unstructured) string {
	singular, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "singular")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	return cmp.Or(singular, strings.ToLower(kind))
}

// takenNames are those by which something other than own is reached: names, kinds and
// short names of resources, and the categories of Kubernetes itself. What own has
// already is not given up to another custom resource that came later.
func takenNames(served []*metav1.APIResourceList, own schema.GroupResource, had []string) map[string]bool {
	taken := map[string]bool{}
	for _, list := range served {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if gv.Group == own.Group && (r.Name == own.Resource || strings.HasPrefix(r.Name, own.Resource+"/")) {
				continue
			}
			names := append([]string{r.Name, r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...)
			if ofKubernetes(gv.Group) {
				names = append(names, r.Categories...)
			}
			for _, name := range names {
				taken[name] = taken[name] || ofKubernetes(gv.Group) || !slices.Contains(had, name)
			}
		}
	}
	return taken
}

// ofKubernetes reports whether a group is one of Kubernetes itself.
func ofKubernetes(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
