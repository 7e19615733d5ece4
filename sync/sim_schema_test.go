// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// schemaWithout is the schema of things without one of their fields.
func schemaWithout(field string) fakecluster.Schema {
	out := fakecluster.Schema{
		"spec":   {"size", "color", "late", "resourceRef", "compositionRef", "key", "tags"},
		"status": {"phase", "secret", "observedGeneration", "conditions", "used"},
	}
	for top, fields := range out {
		out[top] = slices.DeleteFunc(fields, func(name string) bool { return name == field })
	}
	return out
}

// schemaChanges are what happens to schemas. One history in eight has some: they are
// drawn apart, so that the others stay what they were.
func schemaChanges() []generator {
	return []generator{
		{"field leaves the target", 3, func(s *sim, o op) { s.reshape(sideTarget, []string{"color", "color", "secret"}[o.n%3], o) }},
		{"fields return to the target", 2, func(s *sim, o op) { s.reshape(sideTarget, "", o) }},
		{"field leaves the source", 2, func(s *sim, o op) { s.reshape(sideSource, "color", o) }},
		{"status field unknown on the source", 2, func(s *sim, o op) { s.reshape(sideSource, "secret", o) }},
		{"fields return to the source", 2, func(s *sim, o op) { s.reshape(sideSource, "", o) }},
	}
}

// reshape puts changes of schemas into a plan.
func (p *simPlan) reshape(r *rand.Rand) {
	if r.IntN(8) > 0 {
		return
	}
	if r.IntN(6) == 0 && p.Drift != klutchsync.DriftReport { // what is both changed and refused is told as one or the other
		p.traits = append(p.traits, "schemas unreadable")
	}
	for range 1 + r.IntN(4) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, schemaChanges()))
	}
}

// schemas reports whether there are any.
func (p simPlan) schemas() bool {
	kinds := []string{"schemas readable", "CRD back with another schema", "kind taken away"}
	for _, g := range schemaChanges() {
		kinds = append(kinds, g.kind)
	}
	return p.has(kinds...)
}

// reshape gives things on a side another schema, which lacks a field. Its document follows, or comes first.
func (s *sim) reshape(side int, without string, o op) {
	c := s.clusters[side]
	if _, served := c.Objects(simThings); !served {
		return
	}
	late := []time.Duration{0, time.Second, 4 * time.Second, -3 * time.Second}[o.n/3%4]
	c.Reshape(simThings, schemaWithout(without), late)
	if late < 0 {
		time.AfterFunc(-late+time.Nanosecond, func() { s.reshaped(side) })
	}
	s.narrow[side] = without
	s.reshaped(side)
}

// reshaped reads a side again: objects are read with other fields.
func (s *sim) reshaped(side int) {
	objects, _ := s.clusters[side].Objects(simThings)
	for _, o := range objects {
		s.model.now[side][cache.MetaObjectToName(o)] = o
	}
}

// reportsSecret reports whether the provider has named a secret in a status.
func reportsSecret(target *unstructured.Unstructured) bool {
	if target == nil {
		return false
	}
	name, _, _ := unstructured.NestedString(target.Object, "status", "secret")
	return name != ""
}
