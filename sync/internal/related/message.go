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

func (c *Copier) kept(name cache.ObjectName, why string) string {
	return fmt.Sprintf("%s %s has lost %s, and is kept: %s; if all are meant, release the deletions of the binding", c.Resource.GroupResource(), name, c.owner(), why)
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

// lastClaim is the claim that a copy was for to which nothing refers any more.
func (c *Copier) lastClaim(p *pair) (cache.ObjectName, bool) {
	if len(p.referrers) > 0 || p.copy == nil {
		return cache.ObjectName{}, false
	}
	return c.claim(p)
}

// claims are the sources of the bound objects that refer to an original.
func (c *Copier) claims(p *pair) []cache.ObjectName {
	if key, ok := c.lastClaim(p); ok {
		return []cache.ObjectName{key}
	}
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
