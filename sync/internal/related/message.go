// SPDX-License-Identifier: Apache-2.0

package related

import (
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"
)

func (c *Copier) conflict(name cache.ObjectName) string {
	return fmt.Sprintf("%s %s exists and is not a copy of %s; it is left untouched", c.Resource.GroupResource(), name, c.owner())
}

func (c *Copier) excepted(p *pair) string {
	return fmt.Sprintf("%s %s does not travel: nothing does in namespace %s unless that is named, and * does not name it",
		c.Resource.GroupResource(), p.from.Name, c.sourceNamespace(p.from.Name, p.name))
}

// denied does not say more, since what an admission webhook says may quote content.
func (c *Copier) denied(name cache.ObjectName) string {
	return fmt.Sprintf("an API server does not permit to copy %s %s from %s", c.Resource.GroupResource(), name, c.owner())
}

func (c *Copier) wrong(name cache.ObjectName, kind string) string {
	return fmt.Sprintf("%s %s of %s is of type %s, which does not travel", c.Resource.GroupResource(), name, c.owner(), kind)
}

// contested says that others keep changing the copy; empty if they do not.
func (c *Copier) contested(p *pair, r *record) string {
	if !r.contest.Told() {
		return ""
	}
	return fmt.Sprintf("%s %s, a copy of %s, is changed%s each time that it is put right, which is done ever more slowly",
		c.Resource.GroupResource(), p.name, c.owner(), r.contest.Rivals)
}

func (c *Copier) owner() string {
	if c.FromTarget {
		return "the target cluster's"
	}
	return "the source cluster's"
}

// tell makes a problem with a related object known to the claims that refer to it.
func (c *Copier) tell(r *record, p *pair, problem string) {
	claims := r.claims
	if p != nil && problem != "" {
		claims = c.claims(p)
	}
	if r.problem == problem && slices.Equal(r.claims, claims) {
		return
	}
	for _, claim := range r.claims {
		c.Engine.Tell(claim, r.problem, "")
	}
	for _, claim := range claims {
		c.Engine.Tell(claim, problem, problem)
	}
	r.problem, r.claims = problem, claims
}

// claims are the sources of the bound objects that refer to an original.
func (c *Copier) claims(p *pair) []cache.ObjectName {
	if !c.FromTarget {
		return p.referrers
	}
	var out []cache.ObjectName
	for _, target := range p.referrers {
		if source, ok := c.Names.Source(target); ok {
			out = append(out, source)
		}
	}
	return out
}
