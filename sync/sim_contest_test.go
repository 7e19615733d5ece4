// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"math/rand/v2"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// meddling is what others do to what a konnector writes. One history in eight has some: they
// are drawn apart, so that the others stay what they were.
func meddling() []generator {
	return []generator{
		{"our annotation stripped", 2, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "composer", `{"metadata":{"annotations":{"`+klutchsync.SourceAnnotation+`":null}}}`)
		}},
		{"our annotations stripped", 1, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "composer", `{"metadata":{"annotations":{"`+klutchsync.SourceAnnotation+`":null,"`+klutchsync.BoundAnnotation+`":null,"team":null}}}`)
		}},
		{"target made again", 2, doMakeAgain},
		{"a manager insists", 2, func(s *sim, o op) { s.insisting = append(s.insisting, o.target()) }},
		{"a policy strips", 1, func(s *sim, o op) { s.stripping = append(s.stripping, o.target()) }},
	}
}

// meddle puts meddling into a plan.
func (p *simPlan) meddle(r *rand.Rand) {
	if r.IntN(8) > 0 {
		return
	}
	for range 1 + r.IntN(3) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, meddling()))
	}
}

// doMakeAgain makes a target again as a tool does that restores backups.
func doMakeAgain(s *sim, o op) {
	t, source := s.get(sideTarget, o.target()), s.get(sideSource, o.name)
	if t == nil || source == nil || source.GetDeletionTimestamp() != nil || len(t.GetFinalizers()) > 0 || sourceUID(t) != string(source.GetUID()) {
		return
	}
	t = t.DeepCopy()
	_ = s.things(sideTarget, t.GetNamespace()).Delete(s.ctx, t.GetName(), metav1.DeleteOptions{})
	for _, key := range []string{"uid", "resourceVersion", "managedFields", "creationTimestamp", "generation"} {
		delete(t.Object["metadata"].(map[string]any), key)
	}
	_, _ = s.things(sideTarget, t.GetNamespace()).Create(s.ctx, t, metav1.CreateOptions{FieldManager: "velero-server"})
}

// meddles has those who insist do so, until all faults end.
func (s *sim) meddles() {
	each := func(all []cache.ObjectName, wants func(cache.ObjectName) bool, patch string) {
		for _, name := range all {
			if wants(name) {
				s.merge(sideTarget, name, "composer", patch)
			}
		}
	}
	each(s.insisting, func(name cache.ObjectName) bool { t := s.get(sideTarget, name); return t != nil && has(t, "size") }, `{"spec":{"size":"drift-composer"}}`)
	each(s.stripping, func(name cache.ObjectName) bool {
		return annotation(s.get(sideTarget, name), klutchsync.SourceAnnotation) != ""
	}, `{"metadata":{"annotations":{"`+klutchsync.SourceAnnotation+`":null}}}`)
}
