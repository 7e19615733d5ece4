// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// judgeWait tells v whether what it waits for is overdue, and says when to look again.
func (r *bindingRecord) judgeWait(v *verdict, again time.Duration) time.Duration {
	if !v.waits() {
		r.waitsSince = time.Time{}
		return again
	}
	if r.waitsSince.IsZero() {
		r.waitsSince = time.Now()
	}
	left := unknownGrace - time.Since(r.waitsSince)
	if v.overdue = left <= 0; v.overdue || again > 0 && again < left {
		return again
	}
	return left
}

// A pass takes one binding through the steps. Each step brings about one thing that the next
// ones need, and reports whether it is there.
type pass struct {
	app                *appCluster
	connections        *connections
	syncs              *syncs
	schemaInterval     time.Duration // see Options
	crdOwnerReferences bool          // see Options

	record   *bindingRecord
	key      cache.ObjectName
	binding  *v1alpha1.APIServiceBinding
	verdict  *verdict
	session  *session
	export   *v1alpha1.APIServiceExport
	kept     []v1alpha1.AcceptablePermissionClaim // that are carried out, as far as rights are needed for them
	grant    *permission.Grant                    // nil if the konnector has the rights of the claims everywhere, or needs none
	again    time.Duration                        // until the next look at what no watch shows; see lookAgain
	disabled bool                                 // the objects must not be synced
}

// lookAgain has the next pass come no later than that.
func (p *pass) lookAgain(wait time.Duration) {
	if wait > 0 && (p.again == 0 || wait < p.again) {
		p.again = wait
	}
}

// block records why the pass ends here, and has the Sync stopped: no object is changed or
// deleted.
func (p *pass) block(c v1alpha1.Condition) (bool, error) {
	p.verdict.set(c)
	p.disabled = true
	return false, nil
}

// A step is a part of a pass: the condition that its failure changes, how the message begins then, and its work.
type step struct {
	condition, what string
	do              func(context.Context) (ok bool, err error)
}

// stumble sets the condition of a step that an API server refused, once people are to be told. A Sync that runs goes on.
func (p *pass) stumble(ctx context.Context, s step, err error) {
	said := p.verdict.found[s.condition]
	if !fates.IsTold(ctx, err) || said.Status == metav1.ConditionFalse && !isPending(said) {
		return
	}
	say := failed
	if p.record.sync.fingerprint != "" {
		say = warned
	}
	p.verdict.set(say(s.condition, v1alpha1.ReasonStepFailed, s.what+": "+cluster.Explain(err)+". It is tried again by itself."))
}

// mention sets a condition, unless all is well and always was.
func (p *pass) mention(c v1alpha1.Condition) {
	if c.Message != "" || v1alpha1.FindCondition(p.binding.Status.Conditions, c.Type) != nil {
		p.verdict.set(c)
	}
}

// A bindingRecord remembers a binding from one pass to the next. Passes of one
// binding follow each other, so that only the map of records needs the lock.
type bindingRecord struct {
	sync          made
	stop          stop
	legacy        legacyCopies
	nextReview    time.Time // of its rights, while its Sync runs
	unreviewed    trouble   // the App Cluster does not say which rights there are
	missingRights string    // in words; empty if none is
	unpermitted   trouble   // rights are missing
	unread        trouble   // objects cannot be read
	unlisted      trouble   // namespaces cannot be listed
	everywhere    bool      // the konnector has the rights of its claims in all namespaces
	consent       consent   // that has been carried out
	unfinished    unfinished
	stoppedFor    string    // id of the consent for which what makes copies was last stopped
	schemaChanged time.Time // when its CRD was last changed
	schemaRefused refusedSchema
	judged        judgment  // of the last change of its CRD
	waitsSince    time.Time // when it began to wait for an answer; zero if it does not
	failsSince    time.Time // the first of its passes that failed in a row; zero if the last one has not
	last          *pass     // for what is due before the next one
	written       bool      // its status was
	lost          lost
	goneUntold    bool      // the objects were not told yet that the tenant is gone
	toldGone      time.Time // when they last were
	pace          pace      // of passes
	starts        starts    // of its Sync
}

// A series is the failures in a row of what is tried again beside the passes.
type series struct {
	failures int
	since    time.Time // the first one
	next     time.Time // not before it is tried again; zero after none
	err      error
}

// count notes how it went now.
func (s *series) count(err error) {
	if err == nil {
		*s = series{}
		return
	}
	if s.failures++; s.failures == 1 {
		s.since = time.Now()
	}
	s.err, s.next = err, time.Now().Add(max(fates.Of(err).Pause(s.failures), fates.Asked(err)))
}

// isTold reports whether people are to be told of it.
func (s *series) isTold(ctx context.Context) bool {
	return fates.IsTold(fates.FailingSince(ctx, s.since), s.err)
}

// A lost is the news of objects that were lost for what refers to them, as far as that is not told.
type lost struct {
	series // of what failed

	news map[string]*losses // by namespace
}

// losses are the news of one namespace.
type losses struct {
	why    map[string]string // by name; see behind.News.Lost
	failed bool              // what refers to them could not be told, which is tried again with the series
}

// add has n be told, in place of older news of its object.
func (l *lost) add(n behind.News) {
	if n.Lost == "" {
		return
	}
	if l.news == nil {
		l.news = map[string]*losses{}
	}
	if l.news[n.Object.Namespace] == nil {
		l.news[n.Object.Namespace] = &losses{why: map[string]string{}}
	}
	l.news[n.Object.Namespace].why[n.Object.Name] = n.Lost
}

// since is ctx for a pass that may repeat what has failed. Package queue does not know of passes that
// had to wait for their turn in between.
func (r *bindingRecord) since(ctx context.Context) context.Context {
	if r.failsSince.IsZero() {
		return ctx
	}
	return fates.FailingSince(ctx, r.failsSince)
}

// note takes note of how a pass has ended.
func (r *bindingRecord) note(err error) {
	switch {
	case err == nil:
		r.failsSince = time.Time{}
	case r.failsSince.IsZero():
		r.failsSince = time.Now()
	}
}

// A refusedSchema is the change of a CRD that people were told an API server did not take, and what it said.
type refusedSchema struct {
	change string // its hash
	err    error
	times  int // in a row
}

// count notes that a change was refused, once more or for the first time.
func (r *refusedSchema) count(change string, err error) {
	if r.change != change {
		r.times = 0
	}
	r.change, r.err, r.times = change, err, r.times+1
}

// A judgment is what of a change of a CRD is taken over and what is held, as the objects told that there were then:
// to find it out, all are listed, and the provider's rules are evaluated.
type judgment struct {
	trouble // since when it is held, as far as it is

	change string                            // its hash
	spec   *v1alpha1.APIServiceExportCRDSpec // that is taken over, if something is held
	held   []crdcompat.Change
	made   time.Time
	next   time.Time // it holds until then
}

// holds reports whether there is no need to judge a change anew: it was judged a moment ago, or it is not made now.
func (j *judgment) holds(change string, waits bool) bool {
	return j.change == change && (waits || time.Until(j.next) > 0)
}

// note takes note of a judgment. What is held for long is judged ever more rarely.
func (j *judgment) note(change string, spec *v1alpha1.APIServiceExportCRDSpec, held []crdcompat.Change, every time.Duration) {
	if j.change != change || len(held) == 0 {
		j.trouble = trouble{}
	}
	j.change, j.spec, j.held, j.made = change, nil, held, time.Now()
	if j.next = j.made; len(held) > 0 {
		j.spec, j.next = spec, j.made.Add(j.growing(every, judgedRarely))
	}
}

// records are the records of all bindings.
type records struct {
	mu sync.Mutex
	of map[cache.ObjectName]*bindingRecord
}

// get returns that of a binding.
func (all *records) get(binding cache.ObjectName) *bindingRecord {
	all.mu.Lock()
	defer all.mu.Unlock()
	r := all.of[binding]
	if r == nil {
		r = &bindingRecord{pace: newPace()}
		all.of[binding] = r
	}
	return r
}

func (all *records) forget(binding cache.ObjectName) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.of, binding)
}

// order is that in which the conditions of a binding come true.
var order = [...]string{
	v1alpha1.ConditionSecretValid, v1alpha1.ConditionConnected, v1alpha1.ConditionLoginCurrent, v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync, v1alpha1.ConditionSchemaInSync,
	v1alpha1.ConditionInformersSynced, v1alpha1.ConditionHeartbeating, v1alpha1.ConditionClaimsInSync, v1alpha1.ConditionNamespacesReady,
	v1alpha1.ConditionDeletionsInSync, v1alpha1.ConditionObjectsSynced, v1alpha1.ConditionObjectsAdopted,
}

// optional conditions are not there where there is nothing to say.
func optional(conditionType string) bool {
	switch conditionType {
	case v1alpha1.ConditionLoginCurrent, v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync, v1alpha1.ConditionClaimsInSync,
		v1alpha1.ConditionNamespacesReady, v1alpha1.ConditionDeletionsInSync, v1alpha1.ConditionObjectsSynced, v1alpha1.ConditionObjectsAdopted:
		return true
	}
	return false
}

// A verdict is the conditions that one pass found for a binding.
type verdict struct {
	found    map[string]v1alpha1.Condition // by type
	provider string                        // pretty name, if known
	overdue  bool                          // what it waits for should have been known by now
}

func newVerdict() *verdict { return &verdict{found: map[string]v1alpha1.Condition{}} }

func (v *verdict) set(c v1alpha1.Condition) { v.found[c.Type] = c }

// blocker returns the first condition that is known not to be True.
func (v *verdict) blocker() string {
	for _, t := range order {
		if c, ok := v.found[t]; ok && c.Status != metav1.ConditionTrue && !isPending(c) && t != v1alpha1.ConditionObjectsSynced && t != v1alpha1.ConditionObjectsAdopted {
			return t
		}
	}
	return ""
}

// stopper returns the first condition that keeps a Sync from running, where none runs.
func (v *verdict) stopper() (v1alpha1.Condition, bool) {
	for _, t := range order {
		if c := v.found[t]; c.Status == metav1.ConditionFalse && c.Severity == v1alpha1.SeverityError && !optional(t) {
			return c, true
		}
	}
	return v1alpha1.Condition{}, false
}

// waits reports whether a condition waits for an answer.
func (v *verdict) waits() bool {
	for _, c := range v.found {
		if isPending(c) {
			return v.blocker() == ""
		}
	}
	return false
}

// apply puts the verdict into status. What the pass did not get to waits for what
// it stumbled on. A condition that is not known yet, just after a start, stays as it was,
// unless it is overdue.
func (v *verdict) apply(status *v1alpha1.APIServiceBindingStatus, generation int64) {
	blocker := v.blocker()
	for _, t := range order {
		c, ok := v.found[t]
		if !ok && optional(t) {
			continue
		}
		if !ok {
			c = pending(t, "Waits for what comes before it.")
		}
		if isPending(c) {
			before := v1alpha1.FindCondition(status.Conditions, t)
			if blocker == "" && !v.overdue && before != nil && before.ObservedGeneration == generation {
				continue
			}
			if blocker != "" {
				c.Message = "Waits for " + blocker + "."
			}
		}
		c.Message = cluster.Clip(c.Message)
		c.ObservedGeneration = generation
		status.Conditions = v1alpha1.SetCondition(status.Conditions, c)
	}
	status.Conditions = v1alpha1.Summarize(status.Conditions, generation)
	if v.provider != "" {
		status.ProviderPrettyName = text.Clip(v.provider, cluster.MaxMessage/2)
	}
}

// providerFails tells whether the provider has said that its API is not usable.
func (v *verdict) providerFails() bool {
	return v.found[v1alpha1.ConditionProviderInSync].Severity == v1alpha1.SeverityError
}

// A consent is what was last found to be agreed to, and carried out.
type consent struct {
	id       string
	selected []klutchsync.Related
}

// An obstacle is why the answers to claims are not all carried out, as ClaimsInSync says it.
type obstacle struct{ reason, words string }

// An unfinished is the answers to claims that are not all carried out.
type unfinished struct {
	trouble

	id   string // of the answers; empty if there are none
	why  obstacle
	next time.Time // not before it is tried again
}
