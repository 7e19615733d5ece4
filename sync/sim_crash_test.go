// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
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
var scripts = map[string]string{ // traits and ops
	"a life":                      ": create 1, status 1, update 2, label 1, status 2, unset, delete",
	"two namespaces":              ": create 1, create b/y 1, update 2, update b/y 3, delete, status b/y 1",
	"made again":                  ": create 1, status 1, delete, create 2, status 1",
	"refused":                     ": create 1, invalid, status 1, update 2",
	"refused from the start":      ": invalid create, update 1, delete",
	"held by others":              ": create 1, target held, delete",
	"provider's own":              ": create 1, late-init 3, update 2, late-init 4, delete",
	"drift":                       ": create 1, target drifts 1, update 2",
	"drift, reported":             "drift reported: create 1, target drifts 1, update 2, delete",
	"target deleted":              ": create 1, status 1, target deleted, status 1",
	"target deleted, reported":    "loss reported: create 1, target deleted, delete",
	"released":                    "targets kept: create 1, status 1, delete",
	"released, adopted":           "targets kept, adopt: create 1, delete, create 2",
	"taken":                       ": target taken, create 1, delete",
	"taken over":                  "adopt: target taken, create 1, update 2, delete",
	"a Secret":                    "Secrets: create 1, secret 1, status 1, secret 2, delete",
	"a Secret that goes":          "Secrets: create 1, secret 1, status 1, forget-secret, secret 2",
	"a Secret not referred to":    "Secrets: create 1, secret 1, status 1, status 3, delete",
	"a webhook":                   "normalising webhook: create 1, update 2, status 1, delete",
	"namespaces, mapped":          "mapped: create 1, namespace unmapped, update 2, namespace mapped, delete",
	"finalizer removed by hand":   ": create 1, finalizer removed by hand, update 2, delete",
	"a clock that runs elsewhere": ": create 1, clock skew 1, update 2, delete",
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
	if testing.Short() {
		t.Skip("goes through each script once for each of its writes")
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan := parsePlan(t, "1:"+script)
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

// perform lets a script happen, with one crash, and returns how it ends.
func perform(t *testing.T, p simPlan, b blow) (end outcomeOf, writes int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t.Context(), p)
		defer s.stop()
		s.spaces.open = true // the end has no copies where no source is
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
		_ = s.carry(c)
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
	if from, ok := klutchsync.OriginOf(o); ok {
		from.Version = ""
		_ = unstructured.SetNestedField(o.Object, fmt.Sprint(from), "metadata", "annotations", klutchsync.SourceAnnotation)
	}
	owners := map[string]any{}
	for _, entry := range o.GetManagedFields() {
		owners[fmt.Sprintf("%s %s %s", entry.Manager, entry.Operation, entry.Subresource)] = entry.FieldsV1.GetRawString()
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
	return map[string]any{"object": o.Object, "owners": owners}
}
