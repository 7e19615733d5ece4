// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// shapes are manifests with what konnectors wrote, and maps that users, providers and status reports fill
// and empty. One history in sixteen has some: they are drawn apart, so that the others stay what they were.
func shapes() []generator {
	return []generator{
		{"a source is copied with its manifest", 3, doCopy},
		{"a user tags", 3, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"spec":{"tags":{"k%d":"%d"}}}`, o.n%2, o.n%3))
		}},
		{"a user takes all tags off", 3, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", `{"spec":{"tags":{"k0":null,"k1":null}}}`)
		}},
		{"a user drops the map of tags", 1, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", `{"spec":{"tags":null}}`)
		}},
		{"a provider tags", 1, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(`{"spec":{"tags":{"provider":"%d"}}}`, o.n%3))
		}},
		{"a provider reports in a map", 2, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(`{"status":{"used":{"k%d":"%d"}}}`, o.n%2, o.n%3), "status")
		}},
		{"a provider empties the map", 2, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", `{"status":{"used":{"k0":null,"k1":null}}}`, "status")
		}},
	}
}

// shapeHours are drawn by shape.
func shapeHours() []generator {
	return []generator{
		{stripsAll.name + " for an hour", 0, func(s *sim, _ op) { s.contend(stripsAll) }},
		{"the source has no status subresource", 0, func(s *sim, o op) { s.simplified(sideSource, o) }},
		{"the target has no status subresource", 0, func(s *sim, o op) { s.simplified(sideTarget, o) }},
	}
}

// shape puts shapes into a plan, and has one history in 32 end with one of their hours.
func (p *simPlan) shape(r *rand.Rand) {
	if r.IntN(16) == 0 {
		for range 2 + r.IntN(5) {
			p.ops = slices.Insert(p.ops, 1+r.IntN(len(p.ops)), generate(r, shapes()))
		}
	}
	if p.seed%4 > 0 || r.IntN(8) > 0 {
		return
	}
	all := shapeHours()
	hour := all[r.IntN(len(all))]
	if p.hour = (op{kind: hour.kind, name: p.hour.name, n: r.IntN(1000), act: hour.act}); hour.kind != all[0].kind {
		p.gain("schemas readable") // else no konnector could know
	}
}

// doCopy makes a user create a source from the manifest of another one, with all metadata that
// konnectors have written to that.
func doCopy(s *sim, o op) {
	source := s.get(sideSource, o.name)
	if source == nil {
		return
	}
	to := map[string]cache.ObjectName{"a/x": {Namespace: "a", Name: "y"}, "a/y": {Namespace: "b", Name: "x"}, "b/x": {Namespace: "a", Name: "x"}}[o.name.String()]
	copied := source.DeepCopy()
	unstructured.RemoveNestedField(copied.Object, "metadata")
	copied.SetName(to.Name)
	copied.SetLabels(source.GetLabels())
	copied.SetAnnotations(source.GetAnnotations())
	copied.SetFinalizers(source.GetFinalizers())
	if made, err := s.things(sideSource, to.Namespace).Create(s.ctx, copied, metav1.CreateOptions{FieldManager: "user"}); err == nil {
		s.model.life(made).copied = annotation(made, klutchsync.MessageAnnotation)
	}
}

// stripsAll is a policy that takes off all that konnectors write to the metadata of targets.
var stripsAll = rival{name: "a policy strips all", sees: func(t *unstructured.Unstructured) bool {
	return annotation(t, klutchsync.SourceAnnotation)+annotation(t, klutchsync.BoundAnnotation)+annotation(t, "team") != ""
}, undo: strip(`"` + klutchsync.SourceAnnotation + `":null,"` + klutchsync.BoundAnnotation + `":null,"team":null`)}

// goesBeside checks that a source goes, and its target with it by policy, while others undo what
// konnectors write to that: I3.
func (s *sim) goesBeside(r rival) {
	for _, name := range sorted(s.model.now[sideSource]) {
		source, target := s.get(sideSource, name), s.get(sideTarget, op{name: name}.target())
		if target == nil || target.GetDeletionTimestamp() != nil || source.GetDeletionTimestamp() != nil || s.model.madeFrom(target) != string(source.GetUID()) || s.model.reason(source, target) != "" {
			continue
		}
		_ = s.things(sideSource, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
		s.pass(10 * time.Minute)
		left, now := s.get(sideSource, name), s.get(sideTarget, op{name: name}.target())
		switch {
		case left != nil && s.model.isHeld(left):
		case left != nil:
			s.model.breaks("I3", "%s is being deleted, and does not go while %s", name, r.name)
		case now != nil && now.GetUID() == target.GetUID() && s.plan.Deletion == klutchsync.DeletionDelete:
			s.model.breaks("I3", "the target of %s, which has gone, is left behind while %s", name, r.name)
		}
		return
	}
}

// simplified has a side's kind lose its status subresource for an hour, which the API server's document tells
// at once or a while later. Statuses arrive all the same (I1), and a restart writes nothing (I8).
func (s *sim) simplified(side int, o op) {
	simplify := func(plain bool) {
		s.clusters[side].Simplify(simThings, plain, []time.Duration{0, 4 * time.Second}[o.n%2])
		s.plain[side] = plain
	}
	simplify(true)
	s.edits()
	s.pass(15 * time.Minute)
	s.reported("after its kind has lost its status subresource")
	s.edits()
	s.pass(time.Minute)
	s.reported("while its kind has no status subresource")
	before := s.model.writes
	for _, k := range s.konnectors {
		s.crash(k)
		s.start(k)
	}
	s.pass(time.Minute)
	if n := s.model.writes - before; n > 0 && len(s.konnectors) == 1 && s.plan.schemas() && !s.plan.has("schemas unreadable") { // else each start finds it out anew
		s.model.breaks("I8", "%d writes over a restart while the %s has no status subresource, the last: %s", n, sideName(side), s.model.last)
	}
	simplify(false)
	s.edits()
	s.pass(15 * time.Minute)
	s.reported("after its kind has its status subresource again")
}

// reported checks that each source that nothing stands in the way of has the status of its target.
func (s *sim) reported(when string) {
	for _, name := range sorted(s.model.now[sideSource]) {
		source, target := s.model.now[sideSource][name], s.get(sideTarget, op{name: name}.target())
		if target == nil || source.GetDeletionTimestamp() != nil || sourceUID(target) != string(source.GetUID()) || s.model.reason(source, target) != "" || secondWrites(source) {
			continue
		}
		if diff := reportDiffers(source, target, s.narrow[sideSource]); diff != "" {
			s.model.breaks("I1", "%s: %s %s", name, diff, when)
		}
	}
}

// tagsDiffer names a tag that the source has and its target has not, or the other way round; left says that
// what the source lacks may stay.
func (m *model) tagsDiffer(source, target *unstructured.Unstructured, left bool) string {
	for _, tag := range []string{"k0", "k1"} {
		want, _, _ := unstructured.NestedString(source.Object, "spec", "tags", tag)
		have, _, _ := unstructured.NestedString(target.Object, "spec", "tags", tag)
		path := []string{"f:spec", "f:tags", "f:" + tag}
		if want == "" && (left || m.theirs(target, path) || m.sim.plan.Drift == klutchsync.DriftReport && heldByOld(target, path...)) {
			continue
		}
		if want != have {
			return fmt.Sprintf("tag %s is %q on the target, not %q", tag, have, want)
		}
	}
	return ""
}
