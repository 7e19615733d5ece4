// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// A rival undoes what a konnector has written to a target, or because of it, whenever it sees that.
type rival struct {
	name  string
	sees  func(written *unstructured.Unstructured) bool
	undo  func(*sim, cache.ObjectName)                            // of the target
	rests time.Duration                                           // at most, until a konnector tries again
	most  int                                                     // in an hour, that it undoes of each konnector's; 0 for what mostRivalled allows
	found func(*sim, cache.ObjectName) *unstructured.Unstructured // what it looks at; nil for the target
}

const composer = "composer" // that changes targets

var rivals = []rival{
	{"a manager insists", func(t *unstructured.Unstructured) bool {
		size, ok, _ := unstructured.NestedString(t.Object, "spec", "size")
		return ok && size != "drift-composer"
	}, func(s *sim, name cache.ObjectName) {
		s.merge(sideTarget, name, composer, `{"spec":{"size":"drift-composer"}}`)
	}, 0, 0, nil},
	{"a policy strips", func(t *unstructured.Unstructured) bool {
		return annotation(t, klutchsync.SourceAnnotation) != ""
	}, strip(`"` + klutchsync.SourceAnnotation + `":null`), 0, 0, nil},
	{"an owner deletes", func(t *unstructured.Unstructured) bool {
		return t.GetDeletionTimestamp() == nil
	}, func(s *sim, name cache.ObjectName) {
		_ = s.things(sideTarget, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
	}, time.Hour, mostReturns, nil},
}

// besides are rivals of what a konnector writes into the source's cluster. They come at the end of a history.
var besides = []rival{
	{"a message is taken off", func(source *unstructured.Unstructured) bool {
		return annotation(source, klutchsync.MessageAnnotation) != ""
	}, func(s *sim, name cache.ObjectName) {
		s.merge(sideSource, s.source(name), composer, `{"metadata":{"annotations":{"`+klutchsync.MessageAnnotation+`":null}}}`)
	}, 0, mostBesides, func(s *sim, name cache.ObjectName) *unstructured.Unstructured {
		return s.get(sideSource, s.source(name))
	}},
	{"a status is changed back", func(source *unstructured.Unstructured) bool {
		_, _, reported := tokenOf(source.Object["status"])
		return reported
	}, func(s *sim, name cache.ObjectName) {
		s.merge(sideSource, s.source(name), composer, `{"status":{"phase":"theirs"}}`, "status")
	}, 0, mostBesides, func(s *sim, name cache.ObjectName) *unstructured.Unstructured {
		return s.get(sideSource, s.source(name))
	}},
	{"copies are changed back", func(secret *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedString(secret.Object, "data", "n")
		return n != composer
	}, func(s *sim, name cache.ObjectName) {
		_, _ = s.copies(name).Patch(s.ctx, "creds-"+name.Name, types.MergePatchType, []byte(`{"data":{"n":"`+composer+`"}}`), metav1.PatchOptions{FieldManager: composer})
	}, 0, mostBesides, func(s *sim, name cache.ObjectName) *unstructured.Unstructured {
		secret, err := s.copies(name).Get(s.ctx, "creds-"+name.Name, metav1.GetOptions{})
		if err != nil {
			return nil
		}
		return secret
	}},
	{"the finalizer is taken off", func(source *unstructured.Unstructured) bool {
		return holds(source) && source.GetDeletionTimestamp() == nil
	}, func(s *sim, name cache.ObjectName) { doForce(s, op{name: s.source(name)}) }, 0, mostBesides, func(s *sim, name cache.ObjectName) *unstructured.Unstructured {
		return s.get(sideSource, s.source(name))
	}},
	{"the record is taken off", func(source *unstructured.Unstructured) bool {
		return annotation(source, klutchsync.TargetAnnotation) != ""
	}, func(s *sim, name cache.ObjectName) {
		s.merge(sideSource, s.source(name), composer, `{"metadata":{"annotations":{"`+klutchsync.TargetAnnotation+`":null}}}`)
	}, 0, mostBesides, func(s *sim, name cache.ObjectName) *unstructured.Unstructured {
		return s.get(sideSource, s.source(name))
	}},
}

// copies are the credentials where those of a target are copied to.
func (s *sim) copies(target cache.ObjectName) dynamic.ResourceInterface {
	return s.users[sideSource].Resource(simSecrets).Namespace(s.source(target).Namespace)
}

func strip(annotations string) func(*sim, cache.ObjectName) {
	return func(s *sim, target cache.ObjectName) {
		s.merge(sideTarget, target, composer, `{"metadata":{"annotations":{`+annotations+`}}}`)
	}
}

// meddling is what others do to what a konnector writes. One history in eight has some: they
// are drawn apart, so that the others stay what they were.
func meddling() []generator {
	all := strip(`"` + klutchsync.SourceAnnotation + `":null,"` + klutchsync.BoundAnnotation + `":null,"team":null`)
	out := []generator{
		{"our annotation stripped", 2, func(s *sim, o op) { rivals[1].undo(s, o.target()) }},
		{"our annotations stripped", 1, func(s *sim, o op) { all(s, o.target()) }},
	}
	for _, r := range rivals {
		out = append(out, generator{r.name, 2, func(s *sim, o op) { s.rivalries = append(s.rivalries, rivalry{r, o.target()}) }})
	}
	return out
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

// A rivalry is a rival's about one target.
type rivalry struct {
	rival
	target cache.ObjectName
}

// rivalled are the choices of the rivals that see something to undo.
func (s *sim) rivalled() (out []choice) {
	for _, r := range s.rivalries {
		found := r.found
		if found == nil {
			found = func(s *sim, target cache.ObjectName) *unstructured.Unstructured { return s.get(sideTarget, target) }
		}
		if o := found(s, r.target); o != nil && r.sees(o) {
			out = append(out, choice{4, func() {
				s.note("%s: %s", r.name, r.target)
				s.model.undone[s.source(r.target)]++
				r.undo(s, r.target)
			}})
		}
	}
	return out
}

// mostRivalled are the writes to a source, and to its target, that a rivalry may cost each konnector
// in an hour: pauses double from one second to five minutes, and to an hour before what vanished
// is made anew. Each write to a target may be told and taken back, and change the status.
var mostRivalled = [2]int{60, 30}

// mostReturns are the targets that an owner who deletes each costs a konnector in an hour, and mostBesides
// what others change back in the source's cluster.
const (
	mostReturns = 13
	mostBesides = 40
)

// contend has a rival undo each write to a target for an hour, while users and
// providers change what they have. I19: it is written again ever more rarely. I18: it is told.
func (s *sim) contend(r rival) {
	s.note("%s, for an hour", r.name)
	s.model.wrote = [2]map[cache.ObjectName]int{{}, {}}
	clear(s.model.undone)
	for _, name := range sorted(s.model.now[sideSource]) {
		s.rivalries = append(s.rivalries, rivalry{r, op{name: name}.target()})
		s.busy(op{name: name})
		if r.name == besides[0].name {
			s.merge(sideSource, name, "user", `{"spec":{"size":"huge"}}`) // of which there is something to say
		}
	}
	for range 12 {
		if r.rests > 0 {
			s.edits() // which end no pause
		}
		s.pass(time.Hour / 12)
	}
	if r.name == rivals[0].name && s.plan.Drift != klutchsync.DriftReport {
		s.besideContest()
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		for side, wrote := range s.model.wrote {
			if n := wrote[name]; n > mostRivalled[side]*len(s.konnectors) {
				s.model.breaks("I19", "%d writes to the %s of %s in an hour in which %s", n, sideName(side), name, r.name)
			}
		}
		if n := s.model.undone[name]; r.most > 0 && n > r.most*len(s.konnectors) {
			s.model.breaks("I19", "what %s needs was written %d times in an hour in which %s", name, n, r.name)
		}
		why := s.why(name)
		if r.name == besides[2].name && s.untold(cache.NewObjectName(name.Namespace, "creds-"+name.Name)) {
			why = klutchsync.ReasonRelated // no source refers to it
		}
		if s.model.undone[name] > 3 && why == "" {
			s.model.breaks("I18", "%s is not told that %s, for the %dth time", name, r.name, s.model.undone[name])
		}
	}
	if r.name == stripsAll.name {
		s.goesBeside(r)
	}
	s.rivalries = nil
	s.pass(r.rests)
}

// besideContest checks that what users change travels at once while others insist on something else: I1.
func (s *sim) besideContest() {
	s.token++
	for _, name := range sorted(s.model.now[sideSource]) {
		s.merge(sideSource, name, "user", fmt.Sprintf(`{"metadata":{"annotations":{"note":"beside %d"}}}`, s.token))
	}
	s.pass(2 * time.Second)
	for _, name := range sorted(s.model.now[sideSource]) {
		source, target := s.model.now[sideSource][name], s.get(sideTarget, op{name: name}.target())
		if s.model.undone[name] == 0 || source.GetDeletionTimestamp() != nil || target == nil || sourceUID(target) != string(source.GetUID()) || s.model.reason(source, target) != "" {
			continue
		}
		if want, have := annotation(source, "note"), annotation(target, "note"); want != have {
			s.model.breaks("I1", "annotation note of %s is %q on the target, not %q, while others insist on another field", name, have, want)
		}
	}
}
