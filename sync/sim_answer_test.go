// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// An answer is an error of the table of fates, as an API server or the way to it gives it.
type answer struct {
	kind fates.Kind
	err  func(fakecluster.Request) error
}

// simAnswers are errors of each kind that a request for one object can meet.
func simAnswers() []answer {
	status := func(code int32, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) func(fakecluster.Request) error {
		return func(r fakecluster.Request) error {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: code, Reason: reason, Message: fmt.Sprintf("widgets %q: %s", r.Object.Name, message),
				Details: &metav1.StatusDetails{Name: r.Object.Name, Group: r.Resource.Group, Kind: r.Resource.Resource, Causes: causes},
			}}
		}
	}
	return []answer{
		{fates.Unreachable, func(fakecluster.Request) error { return errors.New("connection refused") }},
		{fates.Failing, status(http.StatusInternalServerError, metav1.StatusReasonInternalError, "failed calling webhook: connection refused")},
		{fates.Failing, status(http.StatusInternalServerError, "", "etcdserver: request is too large")},
		{fates.Failing, status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the request did not end in time")},
		{fates.Failing, status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")},
		{fates.Damaged, status(http.StatusInternalServerError, metav1.StatusReasonStoreReadError, "cannot be decoded")},
		{fates.Overloaded, status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "slow down")},
		{fates.Unauthorized, status(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")},
		{fates.Forbidden, status(http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota")},
		{fates.Terminating, status(http.StatusForbidden, metav1.StatusReasonForbidden, "namespace is being terminated", metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})},
		{fates.Unserved, func(r fakecluster.Request) error {
			if r.Subresource != "" { // else the kind has none: TestPlainStatus
				return apierrors.NewServiceUnavailable("starting")
			}
			return status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource", metav1.StatusCause{Type: metav1.CauseTypeUnexpectedServerResponse})(r)
		}},
		{fates.Conflict, status(http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")},
		{fates.Exists, status(http.StatusConflict, metav1.StatusReasonAlreadyExists, "already exists")},
		{fates.Invalid, func(r fakecluster.Request) error {
			return apierrors.NewInvalid(simThings.GroupVersion().WithKind("Widget").GroupKind(), r.Object.Name, field.ErrorList{field.Invalid(field.NewPath("spec"), nil, "a policy says no")})
		}},
		{fates.Undeclared, func(fakecluster.Request) error {
			return errors.New("failed to create typed patch object: .spec.size: field not declared in schema")
		}},
		{fates.Malformed, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "makes no sense")},
		{fates.TooLarge, status(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "limit is 3145728")},
		{fates.NotAllowed, status(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "not allowed")},
		{fates.NotAcceptable, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "no such form")},
		{fates.Unsupported, status(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "no such form")},
		{fates.Unreachable, status(http.StatusMovedPermanently, "", "moved")},
	}
}

// answers are what an API server says to a request although it could do as it is asked: to
// one request, or to all of a kind for an hour. One history in four has some.
func answers() []generator {
	return []generator{
		{"write answered", 3, func(s *sim, o op) { s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n}) }},
		{"read answered", 2, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "answer", effect: "none", n: o.n, reads: true})
		}},
		{"refused for an hour", 3, func(s *sim, o op) {
			s.refusal = &refusal{answer: simAnswers()[o.n%len(simAnswers())], side: o.n / 100 % 2, reads: o.n/200%3 == 0}
		}},
	}
}

// answer puts answers into a plan.
func (p *simPlan) answer(r *rand.Rand) {
	if r.IntN(4) > 0 {
		return
	}
	for range 1 + r.IntN(2) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, answers()))
	}
}

// A refusal is an hour in which an API server answers all requests for single objects, or all
// writes, with one error.
type refusal struct {
	answer
	side  int
	reads bool
	begun bool
	asked map[cache.ObjectName]int // of late, by source
	lists int                      // of late
}

// refuses returns the error that c meets, if it meets the refusal.
func (r *refusal) refuses(s *sim, c *call) error {
	if r == nil || !r.begun || c.request.Resource != simThings || c.request.Verb == "watch" {
		return nil
	}
	if c.request.Verb == "list" {
		r.lists++ // the fakes send no bookmarks, so that there are many, after each of which all is asked again
		return nil
	}
	name := c.request.Object
	if c.side == sideTarget {
		name = s.source(name)
	}
	r.asked[name]++
	if c.side != r.side || !c.writes() && !r.reads {
		return nil
	}
	return r.err(c.request)
}

// What a refusal may cost once it has lasted, and when it has to be told.
const (
	toldWithin   = time.Minute
	refusedFor   = time.Hour
	refusedLate  = 20 * time.Minute // the last ones of the hour
	mostRequests = 12               // for each object in these, by each konnector: reads and writes, of four kinds of asks
	mostAfter    = 8                // for each object after a list
)

// endure has an API server refuse for an hour, in a world in which all else is well and users
// change what they have. I18: what is not in step is told within a minute. I19: it is asked
// again ever more rarely.
func (s *sim) endure() *violation {
	r := s.refusal
	s.drain()
	s.note("%s: %v for an hour", sideName(r.side), r.err(fakecluster.Request{}))
	r.begun, r.asked = true, map[cache.ObjectName]int{}
	for _, o := range sorted(s.model.now[sideSource]) {
		s.merge(sideSource, o, "user", fmt.Sprintf(`{"spec":{"size":"%d"}}`, s.token%4+10))
		doStatus(s, op{name: o})
	}
	pass := func(d time.Duration) {
		const rounds = 12
		for range rounds {
			s.drain()
			time.Sleep(d / rounds)
		}
		s.drain()
	}
	pass(toldWithin)
	if broken := s.told18(); broken != nil {
		return broken
	}
	pass(refusedFor - refusedLate - toldWithin)
	clear(r.asked)
	r.lists = 0
	pass(refusedLate)
	for _, name := range sorted(s.model.now[sideSource]) {
		if most := mostRequests*len(s.konnectors) + mostAfter*r.lists; r.asked[name] > most {
			return s.broke("I19", "%d requests for %s in the last %v of an hour of %v", r.asked[name], name, refusedLate, r.err(fakecluster.Request{}))
		}
	}
	r.begun = false
	return s.model.broken
}

// told18 checks that each source that is not in step is told as such.
func (s *sim) told18() *violation {
	if s.model.broken != nil {
		return s.model.broken
	}
	for _, name := range sorted(s.model.now[sideSource]) {
		problem := s.model.finalSource(name, s.model.now[sideSource][name])
		s.mu.Lock()
		why := s.told[name]
		s.mu.Unlock()
		if s.refusal.side == sideSource && strings.HasPrefix(problem, "says ") {
			problem = "" // what it says cannot be changed
		}
		if problem != "" && why == "" {
			return s.broke("I18", "%s %s, and is not told after %v of %v", name, problem, toldWithin, s.refusal.err(fakecluster.Request{}))
		}
	}
	return nil
}
