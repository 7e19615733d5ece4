// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// scripts are histories in which each thing happens after the one before it has
// been dealt with.
var scripts = map[string]struct {
	plan simPlan
	ops  string // kinds, each with a number; of b/y where a star follows
}{
	"a life":                      {ops: "create 1, status 1, update 2, label 1, status 2, unset 0, delete 0"},
	"two namespaces":              {ops: "create 1, create 1*, update 2, update 3*, delete 0, status 1*"},
	"made again":                  {ops: "create 1, status 1, delete 0, create 2, status 1"},
	"refused":                     {ops: "create 1, invalid 0, status 1, update 2"},
	"refused from the start":      {ops: "invalid create 0, update 1, delete 0"},
	"held by others":              {ops: "create 1, target held 0, delete 0"},
	"provider's own":              {ops: "create 1, late-init 3, update 2, late-init 4, delete 0"},
	"drift":                       {ops: "create 1, target drifts 1, update 2"},
	"drift, reported":             {plan: simPlan{drift: klutchsync.DriftReport}, ops: "create 1, target drifts 1, update 2, delete 0"},
	"target deleted":              {ops: "create 1, status 1, target deleted 0, status 1"},
	"target deleted, reported":    {plan: simPlan{lost: klutchsync.LostReport}, ops: "create 1, target deleted 0, delete 0"},
	"released":                    {plan: simPlan{deletion: klutchsync.DeletionOrphan}, ops: "create 1, status 1, delete 0"},
	"released, adopted":           {plan: simPlan{deletion: klutchsync.DeletionOrphan, conflict: klutchsync.ConflictAdopt}, ops: "create 1, delete 0, create 2"},
	"taken":                       {ops: "target taken 0, create 1, delete 0"},
	"taken over":                  {plan: simPlan{conflict: klutchsync.ConflictAdopt}, ops: "target taken 0, create 1, update 2, delete 0"},
	"a Secret":                    {plan: simPlan{related: true}, ops: "create 1, secret 1, status 1, secret 2, delete 0"},
	"a Secret that goes":          {plan: simPlan{related: true}, ops: "create 1, secret 1, status 1, forget-secret 0, secret 2"},
	"a Secret not referred to":    {plan: simPlan{related: true}, ops: "create 1, secret 1, status 1, status 3, delete 0"},
	"a webhook":                   {plan: simPlan{webhook: true}, ops: "create 1, update 2, status 1, delete 0"},
	"namespaces, mapped":          {plan: simPlan{mapped: true}, ops: "create 1, namespace unmapped 0, update 2, namespace mapped 0, delete 0"},
	"finalizer removed by hand":   {ops: "create 1, finalizer removed by hand 0, update 2, delete 0"},
	"a clock that runs elsewhere": {ops: "create 1, clock skew 1, update 2, delete 0"},
}

// A blow ends the konnector at one of its writes.
type blow struct {
	at     int // number of the write; 0 for never
	effect bool
	side   int // whose lists are old afterwards
	behind int // by how many versions
}

func (b blow) String() string {
	text := fmt.Sprintf("crash at write %d, before its effect", b.at)
	if b.effect {
		text = fmt.Sprintf("crash at write %d, before its answer", b.at)
	}
	if b.behind > 0 {
		text += fmt.Sprintf(", then a list of the %s that is %d versions old", sideName(b.side), b.behind)
	}
	return text
}

// blows are all the ways to crash in a history of so many writes.
func blows(writes int) []blow {
	var out []blow
	for at := 1; at <= writes; at++ {
		out = append(out, blow{at: at}, blow{at: at, effect: true})
		for _, behind := range []int{1, 3} {
			out = append(out, blow{at, true, sideSource, behind}, blow{at, true, sideTarget, behind})
		}
	}
	return out
}

// An outcome of a script is what can be told from another one.
type outcomeOf struct {
	Objects          map[string]any
	Created, Deleted int // targets
}

// I10: wherever the konnector crashes, and however old what it sees afterwards,
// the end is that of the run without a crash, and as many targets are made and
// deleted on the way.
func TestCrashAtEachWrite(t *testing.T) {
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := scripted(t, script.plan, script.ops)
			want, writes := perform(t, plan, blow{})
			if writes == 0 {
				t.Fatalf("%d writes without a crash", writes)
			}
			for _, b := range blows(writes) {
				got, _ := perform(t, plan, b)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Fatalf("%s (-without +with):\n%s", b, diff)
				}
			}
			t.Logf("%d writes, %d crashes", writes, len(blows(writes)))
		})
	}
}

// scripted is the plan of a script.
func scripted(t *testing.T, p simPlan, text string) simPlan {
	t.Helper()
	known := append(append(workload(), perturbations()...), generator{"invalid create", 1, func(s *sim, o op) {
		doCreate(s, o)
		s.merge(sideSource, o.name, "user", `{"spec":{"size":"huge"}}`)
	}})
	p.seed, p.konnectors = 1, 1
	p.conflict = cmp.Or(p.conflict, klutchsync.ConflictFail)
	p.drift = cmp.Or(p.drift, klutchsync.DriftCorrect)
	p.lost = cmp.Or(p.lost, klutchsync.LostRecreate)
	p.deletion = cmp.Or(p.deletion, klutchsync.DeletionDelete)
	for item := range strings.SplitSeq(text, ", ") {
		o := op{name: cache.NewObjectName("a", "x")}
		if rest, other := strings.CutSuffix(item, "*"); other {
			item, o.name = rest, cache.NewObjectName("b", "y")
		}
		i := strings.LastIndex(item, " ")
		o.kind = item[:i]
		if _, err := fmt.Sscan(item[i+1:], &o.n); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(known, func(g generator) bool { return g.kind == o.kind })
		if at < 0 {
			t.Fatalf("nothing is called %q", o.kind)
		}
		o.act = known[at].act
		p.ops = append(p.ops, o)
	}
	return p
}

// perform lets a script happen, with one crash, and returns how it ends.
func perform(t *testing.T, p simPlan, b blow) (end outcomeOf, writes int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t.Context(), p)
		defer s.stop()
		s.stale = b.behind > 0
		s.strike = func(c *call) bool {
			writes++
			return writes == b.at && s.fell(c, b)
		}
		for _, o := range p.ops {
			s.note("%s", o)
			o.do(s)
			s.settle()
		}
		during := writes
		if broken := s.converge(); broken != nil {
			t.Fatalf("%s\n%s\n%v", b, strings.Join(s.trace, "\n"), broken)
		}
		if b.at == 0 {
			writes = during
		}
		end = s.outcome()
	})
	return end, writes
}

// fell ends the konnector that sent c.
func (s *sim) fell(c *call, b blow) bool {
	s.note("%s: %s", b, c)
	if b.effect {
		_ = c.do()
	}
	c.konnector.end()
	if b.behind > 0 {
		c.konnector.past[b.side] = max(1, s.clusters[b.side].Version()-int64(b.behind))
	}
	return true
}

// settle waits until a konnector has done all that there is to do.
func (s *sim) settle() {
	for quiet := 0; quiet < 3; quiet++ {
		before := s.model.writes
		s.drain()
		time.Sleep(8 * time.Second)
		if s.drain(); s.model.writes != before {
			quiet = -1
		}
	}
}

func (s *sim) outcome() outcomeOf {
	out := outcomeOf{Objects: map[string]any{}, Created: s.model.created, Deleted: s.model.deleted}
	for side, c := range s.clusters {
		for _, gvr := range []schema.GroupVersionResource{simThings, simSecrets} {
			objects, _ := c.Objects(gvr)
			for _, o := range objects {
				key := fmt.Sprintf("%s %s %s", sideName(side), gvr.Resource, cache.MetaObjectToName(o))
				out.Objects[key] = timeless(o)
			}
		}
	}
	return out
}

// timeless is an object without what tells when it was written.
func timeless(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	for _, field := range []string{"resourceVersion", "creationTimestamp"} {
		unstructured.RemoveNestedField(o.Object, "metadata", field)
	}
	owners := map[string]any{}
	for _, entry := range o.GetManagedFields() {
		owners[fmt.Sprintf("%s %s %s", entry.Manager, entry.Operation, entry.Subresource)] = entry.FieldsV1.GetRawString()
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	return map[string]any{"object": o.Object, "owners": owners}
}
