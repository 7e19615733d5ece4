// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// A selector is a Related as it is used.
type selector struct {
	names, namespaces []string
	paths             [][]string
}

// newSelector completes what validate has found to be good.
func newSelector(spec Related) selector {
	s := selector{names: spec.Names, namespaces: spec.Namespaces}
	for _, path := range spec.References {
		if fields, err := parsePath(path); err == nil {
			s.paths = append(s.paths, fields)
		}
	}
	return s
}

// references are the names of the objects that a bound object refers to.
func (r *relation) references(obj any) ([]string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	var out []string
	for _, s := range r.selectors {
		out = append(out, s.references(u)...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
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
		return r.engine.opts.Mapper.Target(copied)
	}
	return r.engine.opts.Mapper.Source(copied)
}

func (r *relation) copyName(original cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.opts.Mapper.Source(original)
	}
	return r.engine.opts.Mapper.Target(original)
}

// selects reports whether an original is to travel, and which bound objects
// refer to it, in order of their names on the owner's side.
func (r *relation) selects(original, copied cache.ObjectName) (referrers []cache.ObjectName, selected bool) {
	namespace := original.Namespace
	if r.From == TargetSide {
		namespace = copied.Namespace
	}
	objects := r.referrers.by(r.index, original.String())
	for _, s := range r.selectors {
		if !allows(s.namespaces, namespace) {
			continue
		}
		selected = selected || s.named(original.Name)
		for _, obj := range objects {
			if u, ok := obj.(*unstructured.Unstructured); ok && slices.Contains(s.references(u), original.String()) && r.bound(u) {
				referrers = append(referrers, cache.MetaObjectToName(u))
			}
		}
	}
	slices.SortFunc(referrers, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	referrers = slices.Compact(referrers)
	return referrers, selected || len(referrers) > 0
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
