// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// strangers are the ways in which a target comes to have fields that another writer owns as well, or
// a Sync under another name, and what users remove then. One history in sixteen has some: they are
// drawn apart, as losses are.
func strangers() []generator {
	return []generator{
		{"a stranger makes what the source asks for", 3, doTwin},
		{"bound under another name", 3, func(s *sim, _ op) { s.rename() }},
		{"the user removes all that may be left out", 4, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", `{"spec":{"size":null},"metadata":{"labels":{"tier":null},"annotations":{"note":null,"team":null}}}`)
		}},
	}
}

// A twin is the object of a stranger that has all that a source asks of its target.
const twin = "twin"

// doTwin has a stranger make a twin under the name of a target, in its place if it can go.
func doTwin(s *sim, o op) {
	source, t := s.get(sideSource, o.name), s.get(sideTarget, o.target())
	if source == nil || t != nil && len(t.GetFinalizers()) > 0 {
		return
	}
	things := s.things(sideTarget, o.target().Namespace)
	if t != nil {
		_ = things.Delete(s.ctx, t.GetName(), metav1.DeleteOptions{})
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": source.GetAPIVersion(), "kind": source.GetKind(), "spec": map[string]any{}}}
	u.SetName(o.name.Name)
	for _, field := range simFields {
		path := make([]string, 0, len(field))
		for _, part := range field {
			path = append(path, part[len("f:"):])
		}
		if value, has, _ := unstructured.NestedString(source.Object, path...); has {
			_ = unstructured.SetNestedField(u.Object, value, path...)
		}
	}
	_, _ = things.Create(s.ctx, u, metav1.CreateOptions{FieldManager: twin})
}

// otherName is what the binding is called before it is renamed, and after.
var otherName = map[string]string{"sim": "renamed", "renamed": "sim"}

// rename ends all konnectors, and starts them anew with another name of the binding: the one that
// they had before, if they have had two.
func (s *sim) rename() {
	for _, k := range s.konnectors {
		s.crash(k)
	}
	s.plan.Binding = otherName[s.plan.Binding]
	for _, k := range s.konnectors {
		if k.until == 0 {
			s.start(k)
		}
	}
}

// estrange puts strangers into a plan, and has every other one take over what they make.
func (p *simPlan) estrange(r *rand.Rand) {
	if r.IntN(16) > 0 {
		return
	}
	if r.IntN(2) == 0 {
		p.gain("adopt")
	}
	for range 2 + r.IntN(4) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, strangers()))
	}
}

// formerly reports whether a target was last applied by a Sync under another name than it has now,
// which tells of it no more.
func (m *model) formerly(t *unstructured.Unstructured) bool {
	bound := []string{"f:metadata", "f:annotations", "f:klutch.anynines.com/bound"}
	return heldBy(t, "klutch.anynines.com/", bound...) && !heldBy(t, "klutch.anynines.com/"+m.sim.plan.Binding+"/", bound...)
}

// leftBehind reports whether the Sync under its other name wants a copy too, as far as that can be told:
// then the copy stays once it is asked for no more.
func (m *model) leftBehind(copied *unstructured.Unstructured) bool {
	return heldBy(copied, "klutch.anynines.com/"+otherName[m.sim.plan.Binding]+"/related", "f:metadata", "f:annotations", "f:klutch.anynines.com/bound")
}
