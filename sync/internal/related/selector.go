// SPDX-License-Identifier: Apache-2.0

package related

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// A Selector selects originals. Its fields are the ones of a Related of package sync.
type Selector struct {
	Names, Namespaces, Except []string
	Labels                    labels.Selector
	References                [][]string // paths

	KeepLabels, KeepAnnotations []string
	SecretTypes                 []string
}

// Path splits a path such as status.managed.secret.name.
func Path(path string) ([]string, error) {
	fields := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "$"), "."), ".")
	if slices.Contains(fields, "") {
		return nil, fmt.Errorf("has an empty element in path %q", path)
	}
	return fields, nil
}

// A filter says what travels: what one of the selectors of a resource and side selects.
type filter struct {
	Resource   schema.GroupVersionResource
	FromTarget bool
	Manager    string // of our copies
	Selectors  []Selector
	Marks      Marks
	Bound      Bound
	Sources    Sources
	Names      Names
}

// references are the names of the objects that a bound object refers to.
func (f *filter) references(obj metav1.Object) []string {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var out []string
	for _, s := range f.Selectors {
		out = append(out, f.referencesBy(s, u)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// referencesBy are those that a selector finds. The target's side wrote an adopted source,
// which names nothing of the source's side until a person takes the label off.
func (f *filter) referencesBy(s Selector, u *unstructured.Unstructured) []string {
	if !f.FromTarget && u.GetLabels()[f.Marks.Adopted] != "" {
		return nil
	}
	var out []string
	for _, path := range s.References {
		if name, _, _ := unstructured.NestedString(u.Object, path...); name != "" {
			out = append(out, cache.NewObjectName(u.GetNamespace(), name).String())
		}
	}
	return out
}

// rootCA is the ConfigMap that every cluster keeps in each of its namespaces.
const rootCA = "kube-root-ca.crt"

// mayTravel reports whether anything may select an original. Not copied are: a copy of an object of the cluster that
// it would go to, which would have copies of copies without end, and be called something else each time; a copy that
// this Sync made of an object of that name in a cluster that has been replaced since; and what each cluster makes for
// itself: the token of a service account, which API servers require to name it, and the CA.
func (f *filter) mayTravel(original metav1.Object, copied cache.ObjectName) bool {
	if original.GetAnnotations()[corev1.ServiceAccountNameKey] != "" ||
		original.GetName() == rootCA && f.Resource.GroupResource() == (schema.GroupResource{Resource: "configmaps"}) {
		return false
	}
	from, made := f.Names.Origin(original)
	_, other := f.Names.Clusters()
	switch {
	case !made:
		return true
	case !from.sameName(Origin{Name: copied}):
		return from.Cluster == "" || from.Cluster != other
	}
	ours, _ := madeBy(original, f.Manager)
	return !ours && !from.sameCluster(Origin{Cluster: other})
}

// A selection is what selects an original.
type selection struct {
	selected  bool
	referrers []cache.ObjectName // the bound objects that refer to it, in order of their names on the owner's side
	excepted  []cache.ObjectName // those that would, were it not for its namespace
}

// selects says what selects an original. Nothing does while its namespace has no
// source: a Sync has no business there.
func (f *filter) selects(original metav1.Object, copied cache.ObjectName) selection {
	if !f.Sources.In(f.sourceNamespace(cache.MetaObjectToName(original), copied)) {
		return selection{}
	}
	return f.selectedBy(f.Bound.Referrers(cache.MetaObjectToName(original)), original, copied)
}

// sourceNamespace is that of an original, or of its copy.
func (f *filter) sourceNamespace(original, copied cache.ObjectName) string {
	if f.FromTarget {
		return copied.Namespace
	}
	return original.Namespace
}

// selectedBy is selects, given the bound objects that may refer to the original.
func (f *filter) selectedBy(objects []metav1.Object, original metav1.Object, copied cache.ObjectName) (all selection) {
	name := cache.MetaObjectToName(original)
	namespace := f.sourceNamespace(name, copied)
	for _, s := range f.Selectors {
		if !Allows(s.Namespaces, namespace) || !s.Labels.Matches(labels.Set(original.GetLabels())) {
			continue
		}
		var referrers []cache.ObjectName
		for _, obj := range objects {
			if u, ok := obj.(*unstructured.Unstructured); ok && slices.Contains(f.referencesBy(s, u), name.String()) && f.bound(u) {
				referrers = append(referrers, cache.MetaObjectToName(u))
			}
		}
		if s.excepts(namespace) {
			all.excepted = append(all.excepted, referrers...)
			continue
		}
		all.referrers = append(all.referrers, referrers...)
		all.selected = all.selected || s.named(name.Name) || len(referrers) > 0
	}
	all.referrers, all.excepted = unique(all.referrers), unique(all.excepted)
	return all
}

func unique(names []cache.ObjectName) []cache.ObjectName {
	slices.SortFunc(names, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}

// excepts reports whether a namespace is excepted, and not named either: nothing travels there.
func (s Selector) excepts(namespace string) bool {
	return !slices.Contains(s.Namespaces, namespace) && slices.ContainsFunc(s.Except, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return namespace == pattern || open && strings.HasPrefix(namespace, beginning)
	})
}

// named reports whether s selects an object, be there references to it or not.
func (s Selector) named(name string) bool {
	if len(s.Names) == 0 {
		return len(s.References) == 0
	}
	return Allows(s.Names, name)
}

// Allows reports whether a list names a value; an empty one, or "*", names all.
func Allows(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, value)
}

// bound reports whether an object of the owner's side is one of a synced pair.
func (f *filter) bound(u *unstructured.Unstructured) bool {
	if !f.FromTarget {
		return true
	}
	key, ok := f.Names.Source(cache.MetaObjectToName(u))
	if !ok {
		return false
	}
	source, known := f.Sources.Get(key)
	return known && source != nil && source.GetUID() != "" && f.Bound.MadeFrom(u, source.GetUID())
}

// keeps tells the keys that patterns of some of the selectors stand for.
func (f *filter) keeps(patterns func(Selector) []string) func(key string) bool {
	return func(key string) bool {
		return slices.ContainsFunc(f.Selectors, func(s Selector) bool { return matches(patterns(s), key) })
	}
}

// keepsKeys is keeps, less what a Sync itself writes.
func (f *filter) keepsKeys(patterns func(Selector) []string) func(key string) bool {
	kept := f.keeps(patterns)
	return func(key string) bool { return !f.Marks.Own(key) && kept(key) }
}

// matches reports whether one of patterns stands for value.
func matches(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return p == value || open && strings.HasPrefix(value, prefix)
	})
}

// wrongType is the type of a Secret that does not travel; empty for all else.
func (f *filter) wrongType(original *unstructured.Unstructured) string {
	if original == nil || f.Resource.GroupResource() != (schema.GroupResource{Resource: "secrets"}) {
		return ""
	}
	kind, _, _ := unstructured.NestedString(original.Object, "type")
	if kind == "" || f.keeps(func(s Selector) []string { return s.SecretTypes })(kind) {
		return "" // without a type API servers make it Opaque
	}
	return kind
}

// chosen reports whether an original that has been read is still one that travels.
func (f *filter) chosen(original *unstructured.Unstructured, name cache.ObjectName) bool {
	return f.selects(original, name).selected && f.mayTravel(original, name)
}
