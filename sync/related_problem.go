// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"fmt"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
)

func (r *relation) conflict(name cache.ObjectName) string {
	return fmt.Sprintf("%s %s exists and is not a copy of %s; it is left untouched", r.Resource.GroupResource(), name, r.From.word())
}

func (r *relation) barred(t *transfer) string {
	return fmt.Sprintf("%s %s does not travel: nothing does in namespace %s unless that is named, and * does not name it",
		r.Resource.GroupResource(), t.from.name, r.sourceNamespace(t.from.name, t.name))
}

// denied does not say more, since what an admission webhook says may quote content.
func (r *relation) denied(name cache.ObjectName) string {
	return fmt.Sprintf("an API server does not permit to copy %s %s from %s", r.Resource.GroupResource(), name, r.From.word())
}

func (r *relation) wrong(name cache.ObjectName, kind string) string {
	return fmt.Sprintf("%s %s of %s is of type %s, which does not travel", r.Resource.GroupResource(), name, r.From.word(), kind)
}

func (s Side) word() string {
	if s == TargetSide {
		return "the target cluster's"
	}
	return "the source cluster's"
}

// tell makes a problem with a related object known to the claims that refer to it.
func (r *relation) tell(c *copied, t *transfer, problem string) {
	claims := c.claims
	if t != nil && problem != "" {
		claims = r.claims(t)
	}
	if c.problem == problem && slices.Equal(c.claims, claims) {
		return
	}
	for _, claim := range c.claims {
		r.engine.setProblem(claim, r.index+c.problem, "")
		r.engine.queue.Add(claim, queue.Related)
	}
	for _, claim := range claims {
		r.engine.setProblem(claim, r.index+problem, problem)
		r.engine.queue.Add(claim, queue.Related)
	}
	c.problem, c.claims = problem, claims
}

// claims are the sources of the bound objects that refer to an original.
func (r *relation) claims(t *transfer) []cache.ObjectName {
	if r.From == SourceSide {
		return t.referrers
	}
	var out []cache.ObjectName
	for _, target := range t.referrers {
		if source, ok := r.engine.opts.Mapper.Source(target); ok {
			out = append(out, source)
		}
	}
	return out
}

// setProblem notes why a related object of a source cannot travel, or that it
// can again.
func (e *engine) setProblem(source cache.ObjectName, id, text string) {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	problems := e.problems[source]
	if text == "" {
		delete(problems, id)
		if len(problems) == 0 {
			delete(e.problems, source)
		}
		return
	}
	if problems == nil {
		problems = map[string]string{}
		e.problems[source] = problems
	}
	problems[id] = text
}
