// SPDX-License-Identifier: Apache-2.0

package related

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// A teller makes known why a related object does not travel.
type teller struct {
	filter *filter
	owners ownership
	Engine Engine
}

func (t teller) conflict(name cache.ObjectName) string {
	return fmt.Sprintf("%s %s exists and is not a copy of %s; it is left untouched", t.filter.Resource.GroupResource(), name, t.owner())
}

func (t teller) excepted(p *pair) string {
	return fmt.Sprintf("%s %s does not travel: nothing does in namespace %s unless that is named, and * does not name it",
		t.filter.Resource.GroupResource(), p.from.Name, t.filter.sourceNamespace(p.from.Name, p.name))
}

// denied says why a copy is not what it should be. It does not quote the answer, since what an
// API server, or an admission webhook, does not like in a Secret it may repeat.
func (t teller) denied(name cache.ObjectName, kind fates.Kind) string {
	if kind == fates.Terminal { // errTaken
		return t.conflict(name)
	}
	return fmt.Sprintf("an API server %s the copy %s %s of %s", kind.Word(), t.filter.Resource.GroupResource(), name, t.owner())
}

func (t teller) wrong(name cache.ObjectName, kind string) string {
	return fmt.Sprintf("%s %s of %s is of type %s, which does not travel", t.filter.Resource.GroupResource(), name, t.owner(), kind)
}

// kept says that the copy, which goes for a reason, waits.
func (t teller) kept(name cache.ObjectName, goes, why string) string {
	return fmt.Sprintf("%s %s %s, and is kept: %s; if all are meant, release the deletions of the binding",
		t.filter.Resource.GroupResource(), name, cmp.Or(goes, "has lost "+t.owner()), why)
}

// Reasons why a copy goes although its original is there.
func (t teller) strays(kind string) string {
	return fmt.Sprintf("is a copy of %s, which is of type %s by now and does not travel", t.owner(), kind)
}

func (t teller) anew() string {
	return fmt.Sprintf("is a copy of %s that cannot be changed, and has to be made anew", t.owner())
}

// contested says that others keep changing the copy; empty if they do not.
func (t teller) contested(p *pair, r *record) string {
	if !r.contest.Told() {
		return ""
	}
	return fmt.Sprintf("%s %s, a copy of %s, is changed%s each time that it is put right, which is done ever more slowly",
		t.filter.Resource.GroupResource(), p.name, t.owner(), r.contest.Rivals)
}

func (t teller) owner() string {
	if t.filter.FromTarget {
		return "the target cluster's"
	}
	return "the source cluster's"
}

// tell makes a problem with a related object known to the claims that refer to it.
func (t teller) tell(r *record, p *pair, problem string) {
	claims := r.claims
	if p != nil && problem != "" {
		claims = t.claims(p)
	}
	if r.problem == problem && slices.Equal(r.claims, claims) {
		return
	}
	for _, claim := range r.claims {
		t.Engine.Tell(claim, r.problem, "")
	}
	for _, claim := range claims {
		t.Engine.Tell(claim, problem, problem)
	}
	r.problem, r.claims = problem, claims
}

// await tells the claims that refer to an original that what is asked for its copy is not answered,
// until the returned function is called.
func (t teller) await(p *pair) (answered func()) {
	claims, takeBack := t.claims(p), func() {}
	waited := refusal.Await(func() { takeBack = t.late(p, claims, "what was asked for") })
	return func() {
		waited()
		takeBack()
	}
}

// late tells claims that no answer has come to what the copy waits for, until the returned function
// is called.
func (t teller) late(p *pair, claims []cache.ObjectName, what string) (takeBack func()) {
	late := fmt.Sprintf("no answer has come for %s to %s the copy %s %s of %s", refusal.Slow, what, t.filter.Resource.GroupResource(), p.name, t.owner())
	for _, claim := range claims {
		t.Engine.Tell(claim, late, late)
	}
	return func() {
		for _, claim := range claims {
			t.Engine.Tell(claim, late, "")
		}
	}
}

// lastClaim is the claim, if it is there, that a copy was for to which nothing refers any more.
func (t teller) lastClaim(p *pair) (key cache.ObjectName, ok bool) {
	if len(p.referrers) > 0 || p.copy == nil {
		return key, false
	}
	if key, ok = t.owners.claim(p); !ok {
		return key, false
	}
	obj, known := t.owners.Sources.Get(key)
	return key, obj != nil || !known
}

// claims are the sources of the bound objects that refer to an original.
func (t teller) claims(p *pair) []cache.ObjectName {
	if key, ok := t.lastClaim(p); ok {
		return []cache.ObjectName{key}
	}
	if !t.filter.FromTarget {
		return p.referrers
	}
	var out []cache.ObjectName
	for _, target := range p.referrers {
		if source, ok := t.filter.Names.Source(target); ok {
			out = append(out, source)
		}
	}
	return out
}
