// SPDX-License-Identifier: Apache-2.0

package sync

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

// A selector is a Related as it is used.
type selector struct {
	names, namespaces, except []string
	labels                    labels.Selector
	paths                     [][]string

	keepLabels, keepAnnotations []string // keys that travel, as patterns
	secretTypes                 []string // as patterns
}

// newSelector completes what validate has found to be good.
func newSelector(spec Related) selector {
	s := selector{
		names: spec.Names, namespaces: spec.Namespaces, except: spec.Except, labels: labels.Everything(),
		keepLabels: spec.KeepLabels, keepAnnotations: spec.KeepAnnotations, secretTypes: spec.SecretTypes,
	}
	if len(s.secretTypes) == 0 {
		s.secretTypes = DefaultSecretTypes()
	}
	if match, err := labels.Parse(spec.Labels); err == nil {
		s.labels = match
	}
	for _, path := range spec.References {
		if fields, err := parsePath(path); err == nil {
			s.paths = append(s.paths, fields)
		}
	}
	return s
}

// references are the names of the objects that a bound object refers to.
func (r *relation) references(obj metav1.Object) []string {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	var out []string
	for _, s := range r.selectors {
		out = append(out, s.references(u)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s selector) references(u *unstructured.Unstructured) []string {
	var out []string
	for _, path := range s.paths {
		if name, _, _ := unstructured.NestedString(u.Object, path...); name != "" {
			out = append(out, cache.NewObjectName(u.GetNamespace(), name).String())
		}
	}
	return out
}

// parsePath splits a path such as status.managed.secret.name.
func parsePath(path string) ([]string, error) {
	fields := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "$"), "."), ".")
	if slices.Contains(fields, "") {
		return nil, fmt.Errorf("has an empty element in path %q", path)
	}
	return fields, nil
}

func (r *relation) ownerName(copied cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.targetName(copied, false)
	}
	return r.engine.opts.Mapper.Source(copied)
}

func (r *relation) copyName(original cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.opts.Mapper.Source(original)
	}
	return r.engine.targetName(original, false)
}

// targetName is where an object is on the target. Only a source is a reason to want a
// namespace for it.
func (e *engine) targetName(name cache.ObjectName, isSource bool) (cache.ObjectName, bool) {
	if table, ok := e.opts.Mapper.(*Namespaces); ok && !isSource {
		return table.known(name)
	}
	return e.opts.Mapper.Target(name)
}

// mayTravel reports whether anything may select an original: it is not itself a
// copy of what stands under the other name, and not the token of a service account,
// which API servers require to name it.
func (r *relation) mayTravel(original metav1.Object, copied cache.ObjectName) bool {
	if original.GetAnnotations()[corev1.ServiceAccountNameKey] != "" {
		return false
	}
	_, other := r.uids()
	from, made := OriginOf(original)
	return !made || !origin{cluster: other, name: copied}.sameSlot(from)
}

// A selection is what selects an original.
type selection struct {
	selected  bool
	referrers []cache.ObjectName // the bound objects that refer to it, in order of their names on the owner's side
	barred    []cache.ObjectName // those that would, were it not for its namespace
}

// selects says what selects an original. Nothing does while its namespace has no
// source: a Sync has no business there.
func (r *relation) selects(original metav1.Object, copied cache.ObjectName) selection {
	if !r.engine.spaces.has(r.sourceNamespace(cache.MetaObjectToName(original), copied)) {
		return selection{}
	}
	return r.selectedBy(r.referrers.by(r.index, cache.MetaObjectToName(original).String()), original, copied)
}

// sourceNamespace is that of an original, or of its copy.
func (r *relation) sourceNamespace(original, copied cache.ObjectName) string {
	if r.From == TargetSide {
		return copied.Namespace
	}
	return original.Namespace
}

// selectedBy is selects, given the bound objects that may refer to the original.
func (r *relation) selectedBy(objects []metav1.Object, original metav1.Object, copied cache.ObjectName) (all selection) {
	name := cache.MetaObjectToName(original)
	namespace := r.sourceNamespace(name, copied)
	for _, s := range r.selectors {
		if !allows(s.namespaces, namespace) || !s.labels.Matches(labels.Set(original.GetLabels())) {
			continue
		}
		var referrers []cache.ObjectName
		for _, obj := range objects {
			if u, ok := obj.(*unstructured.Unstructured); ok && slices.Contains(s.references(u), name.String()) && r.bound(u) {
				referrers = append(referrers, cache.MetaObjectToName(u))
			}
		}
		if s.bars(namespace) {
			all.barred = append(all.barred, referrers...)
			continue
		}
		all.referrers = append(all.referrers, referrers...)
		all.selected = all.selected || s.named(name.Name) || len(referrers) > 0
	}
	all.referrers, all.barred = unique(all.referrers), unique(all.barred)
	return all
}

func unique(names []cache.ObjectName) []cache.ObjectName {
	slices.SortFunc(names, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(names)
}

// bars reports whether a namespace is excepted, and not named either: nothing travels there.
func (s selector) bars(namespace string) bool {
	return !slices.Contains(s.namespaces, namespace) && slices.ContainsFunc(s.except, func(pattern string) bool {
		beginning, open := strings.CutSuffix(pattern, "*")
		return namespace == pattern || open && strings.HasPrefix(namespace, beginning)
	})
}

// named reports whether s selects an object whoever refers to it.
func (s selector) named(name string) bool {
	if len(s.names) == 0 {
		return len(s.paths) == 0
	}
	return allows(s.names, name)
}

func allows(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, value)
}

// bound reports whether an object of the owner's side is one of a synced pair.
func (r *relation) bound(u *unstructured.Unstructured) bool {
	if r.From == SourceSide {
		return true
	}
	key, ok := r.engine.opts.Mapper.Source(cache.MetaObjectToName(u))
	if !ok {
		return false
	}
	obj, _, ok := r.engine.source.get(key)
	source, found := obj.(*unstructured.Unstructured)
	from, _ := OriginOf(u)
	return ok && found && origin{cluster: r.engine.sourceUID, uid: source.GetUID(), name: key}.made(from)
}

// keeps tells the keys that patterns of some of the selectors stand for.
func (r *relation) keeps(patterns func(selector) []string) func(key string) bool {
	return func(key string) bool {
		return slices.ContainsFunc(r.selectors, func(s selector) bool { return matches(patterns(s), key) })
	}
}

// matches reports whether one of patterns stands for value.
func matches(patterns []string, value string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		prefix, open := strings.CutSuffix(p, "*")
		return p == value || open && strings.HasPrefix(value, prefix)
	})
}

// wrongType is the type of a Secret that does not travel; empty for all else.
func (r *relation) wrongType(original *unstructured.Unstructured) string {
	if original == nil || r.Resource.GroupResource() != (schema.GroupResource{Resource: "secrets"}) {
		return ""
	}
	kind, _, _ := unstructured.NestedString(original.Object, "type")
	if kind == "" || r.keeps(func(s selector) []string { return s.secretTypes })(kind) {
		return "" // without a type API servers make it Opaque
	}
	return kind
}
