// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	gosync "sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var (
	simThings     = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	simSecrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	simNamespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// The two sides of a simulated world.
const (
	sideSource = iota
	sideTarget
)

func sideName(side int) string { return [...]string{"source", "target"}[side] }

// A sim is one simulated history: two API servers, konnectors between them, and
// a scheduler that decides, from a seed, what happens next. Nothing happens
// unless the scheduler lets it: each request waits for its answer, each event for
// its delivery, each timer for time to go on.
type sim struct {
	plan       simPlan
	rng        *rand.Rand
	ctx        context.Context //nolint:containedctx // that of the history
	clusters   [2]*fakecluster.Cluster
	users      [2]dynamic.Interface
	spaces     *simSpaces
	second     *klutchsync.Namespaces // those of a second Sync; nil for none
	former     types.UID              // of the source cluster that was lost; empty if none was
	konnectors []*konnector
	model      *model
	faults     []fault  // armed: each meets the next request that it fits
	windows    []window // during which requests fail
	refusal    *refusal // with which the history ends; nil for none
	rivalries  []rivalry
	silence    [2]bool // of the sides, until all faults end
	program    program
	withdrawn  atomic.Bool    // the target's kind is not on offer any more
	ghosts     []*call        // requests whose senders no longer wait, on their way
	lagging    map[string]int // until which step watches deliver nothing, by their place
	hidden     []string       // places at which the next event is never seen
	missed     bool           // an event was not seen, unless by a list since
	narrow     [2]string      // a field of things that the schema does not know
	plain      [2]bool        // of the sides, whether their things have no status subresource
	step       int
	came       chan struct{} // has one if a request has come
	marked     time.Time     // when the API servers last sent bookmarks
	places     map[*fakecluster.Watch]string
	origins    map[string]string // source UID of each target UID that ever was
	token      int               // last one that the provider has put into a status
	calm       bool
	calmSince  time.Time
	late       bool             // what is carried out was sent by a process that no longer waits
	stale      bool             // an incarnation begins with an old list
	strike     func(*call) bool // called with each write; true if it ends the konnector
	trace      []string
	met        met
	asks       map[string]int // how often was asked what, at rest; nil before

	mu    gosync.Mutex
	calls []*call // waiting
	seq   int
}

// A konnector is a process that runs a Sync; its incarnations follow each other.
type konnector struct {
	id     int
	born   int
	second bool // it runs the second Sync
	one    bool // whose targets are in the source's cluster
	sync   *klutchsync.Sync
	ledger
	log    deletionLog
	until  int // step at which it learns that it has lost its lease; 0 for never
	views  [2]*fakecluster.View
	past   [2]int64 // version that the first lists show, 0 for the present
	listed map[string]bool
	told   reports
	cancel context.CancelFunc
	done   chan error
}

func (k *konnector) alive() bool { return k.cancel != nil }

// A call is a request that waits for its answer.
type call struct {
	konnector *konnector
	side      int
	view      *fakecluster.View
	request   fakecluster.Request
	do        func() error
	answer    chan error
	arrived   int // step
	sent      time.Time
	seq       int
	unseen    string // side that its sender cannot have seen
	made      bool   // it has made a target
	text      string
}

func (c *call) String() string {
	if c.text == "" {
		c.text = fmt.Sprintf("k%d %s %s %s", c.konnector.id, sideName(c.side), asked(c.request), c.request.Object)
	}
	return c.text
}

// asked is what a request asks of which resource.
func asked(r fakecluster.Request) string {
	if r.Subresource != "" {
		return r.Verb + " " + r.Resource.Resource + "/" + r.Subresource
	}
	return r.Verb + " " + r.Resource.Resource
}

func (c *call) writes() bool {
	return !reads(c.request.Verb)
}

// A fault is what becomes of a request.
type fault struct {
	kind   string
	effect string // "none", "done" or "late"
	reads  bool   // it meets reads rather than writes
	n      int    // of simAnswers
}

// A window is a time during which requests to one side fail.
type window struct {
	kind    string // "forbidden": lists and watches; "expired", "outage": all; "refused": as the refusal says
	side    int
	until   int // step
	refusal *refusal
}

// simResource is what a target serves.
func simResource(mutate bool) fakecluster.Resource {
	r := fakecluster.Resource{
		GroupVersionResource: simThings, Kind: "Widget",
		Check: func(o *unstructured.Unstructured) error {
			if size, _, _ := unstructured.NestedString(o.Object, "spec", "size"); size == "huge" {
				return errors.New(`spec.size: Unsupported value: "huge"`)
			}
			return nil
		},
	}
	if mutate {
		r.Mutate = func(o *unstructured.Unstructured) {
			if color, ok, _ := unstructured.NestedString(o.Object, "spec", "color"); ok {
				_ = unstructured.SetNestedField(o.Object, strings.ToLower(color), "spec", "color")
			}
		}
	}
	return r
}

func newSim(ctx context.Context, p simPlan) *sim {
	s := &sim{plan: p, ctx: ctx, rng: rand.New(rand.NewPCG(p.seed, 2)), lagging: map[string]int{}, met: met{}, came: make(chan struct{}, 1), places: map[*fakecluster.Watch]string{}, origins: map[string]string{}, spaces: newSimSpaces(p.seed%2 == 0)}
	s.clusters = [2]*fakecluster.Cluster{fakecluster.Named("src", s.resource(sideSource)), fakecluster.Named("dst", s.resource(sideTarget))}
	s.model = newModel(s)
	for side, c := range s.clusters {
		s.users[side] = c.Client()
		for _, ns := range []string{"a", "b"} {
			s.makeNamespace(side, s.at(side, ns))
		}
		c.Observe(func(commit fakecluster.Commit) {
			if *simTwice {
				s.note("%s %s %v", sideName(side), commit.Kind, commit.After)
			}
			s.model.commit(side, commit)
		})
	}
	for _, ns := range []string{"a", "b"} {
		s.spaces.serve(ns)
	}
	for i := range p.konnectors {
		k := &konnector{id: i}
		s.konnectors = append(s.konnectors, k)
		s.start(k) //nolint:contextcheck // a history has one
	}
	return s
}

// strict reports whether there is one konnector, which sees its clusters go
// forward.
func (s *sim) strict() bool {
	return len(s.konnectors) == 1 && !s.stale && !s.plan.has("time travel", "restored from a backup", "another cluster", "lease lost", "old konnector beside new")
}

// at is what a source namespace is called on a side.
func (s *sim) at(side int, namespace string) string {
	if side == sideTarget {
		return "svc-" + namespace
	}
	return namespace
}

// identity is the UID of a side's cluster.
func (s *sim) identity(side int) types.UID {
	ns, err := s.users[side].Resource(simNamespaces).Get(s.ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		panic(err) // each cluster has it
	}
	return ns.GetUID()
}

// source is the source of a target, by their names.
func (s *sim) source(target cache.ObjectName) cache.ObjectName {
	return cache.NewObjectName(strings.TrimPrefix(strings.TrimPrefix(target.Namespace, "svc-"), secondSpaces), target.Name)
}

func (s *sim) makeNamespace(side int, name string) {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(name)
	ns.SetFinalizers([]string{"kubernetes"})
	_, _ = s.users[side].Resource(simNamespaces).Create(s.ctx, ns, metav1.CreateOptions{})
}

func (s *sim) note(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%4d  %s  ", s.step, time.Now().UTC().Format("15:04:05.000"))+fmt.Sprintf(format, args...))
}

// beginsAgain has this incarnation of k know, when its Run begins again, what a start knows.
func (s *sim) beginsAgain(k *konnector) func() {
	born := k.born
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if k.born == born {
			s.model.remembers(k)
		}
	}
}

// start runs the next incarnation of k.
func (s *sim) start(k *konnector) {
	k.born++
	if s.plan.has("deletion log") {
		k.ledger = ledger{asked: k.asked, copies: k.copies}
	} else {
		k.ledger = ledger{}
	}
	s.model.remembers(k)
	k.listed = map[string]bool{}
	var ctx context.Context
	ctx, k.cancel = context.WithCancel(s.ctx)
	k.done = make(chan error, 1)
	var ends [2]*klutchsync.Cluster
	for end, c := range s.clusters {
		side := end
		if k.one {
			side, c = sideSource, s.clusters[sideSource]
		}
		var view *fakecluster.View // a request of k's past may still be on its way: it must not see this one
		view = c.Held(fmt.Sprintf("k%d", k.id), s.gate(k, side, &view))
		k.views[end] = view
		ends[end], _ = klutchsync.NewClusterForClients(view.Client(), view.Metadata())
		klutchsync.Ordered(ends[end])
		if s.plan.schemas() && !s.plan.has("schemas unreadable") {
			ends[end].ReadSchemas(view.Schemas())
		}
	}
	options := s.plan.Options
	options.Mapper, options.FormerSource, options.Offered = s.spaces.start(k), s.former, s.offered
	options.Hooks.Reported = s.hears(k)
	options.Hooks.Done = func(_ context.Context, r klutchsync.Result) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.model.sight.passed(k, r.Source)
	}
	if s.plan.has("deletion log") {
		options.DeletionLog = s.keepsLog(k)
	}
	if s.plan.has(accessByNamespace) {
		options.RelatedAccess = s.access
	}
	if k.second {
		options = s.secondOptions(options)
	}
	y, err := klutchsync.New(ends[0], ends[1], simThings, options)
	if err != nil {
		panic(err)
	}
	k.sync = y
	done := k.done
	ctx = logr.NewContext(ctx, logr.New(inTurn{ctx, fmt.Sprintf("k%d", k.id), s.beginsAgain(k)}))
	go func() { done <- y.Run(ctx) }()
}

// gate makes the requests of k through view wait for the scheduler.
func (s *sim) gate(k *konnector, side int, view **fakecluster.View) func(context.Context, fakecluster.Request, func() error) error {
	return func(ctx context.Context, r fakecluster.Request, do func() error) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := &call{konnector: k, side: side, view: *view, request: r, do: do, answer: make(chan error, 1)}
		s.arrives(c)
		select {
		case err := <-c.answer:
			return err
		case <-ctx.Done():
			s.withdraw(c)
			return ctx.Err()
		}
	}
}

// arrives notes what is known of a request as it is sent.
func (s *sim) arrives(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seq++
	c.seq, c.arrived, c.sent = s.seq, s.step, time.Now()
	s.calls = append(s.calls, c)
	select {
	case s.came <- struct{}{}:
	default:
	}
	r := c.request
	if r.Resource != simThings || !c.writes() {
		return
	}
	source, target := r.Object, op{name: r.Object}.target()
	if c.side == sideTarget {
		source, target = s.source(r.Object), r.Object
	}
	c.unseen = s.model.sight.unseen(c, source, target)
	if r.Verb == "delete" {
		s.model.asks(c, s.model.now[sideTarget][target])
	}
}

func (s *sim) withdraw(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = slices.DeleteFunc(s.calls, func(o *call) bool { return o == c })
}

// waiting are the calls that wait, in an order that does not depend on the Go
// scheduler.
func (s *sim) waiting() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.calls)
	slices.SortFunc(out, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.String(), b.String()), strings.Compare(a.request.Selector, b.request.Selector), a.seq-b.seq)
	})
	return out
}

// A choice is something that may happen next.
type choice struct {
	weight int
	do     func()
}

// run lets the history unfold: the plan, then the end of all faults.
func (s *sim) run() *violation {
	defer s.stop()
	next := 0
	for next < len(s.plan.ops) && s.step < 3000 {
		s.settled()
		if s.model.broken != nil {
			return s.model.broken
		}
		s.step++
		choices := append(s.progress(), choice{3, func() {
			op := s.plan.ops[next]
			next++
			if !op.skip {
				s.note("%s", op)
				op.do(s)
			}
		}}, choice{1, s.wait})
		s.pick(choices)
	}
	return s.converge()
}

func (s *sim) pick(choices []choice) {
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	n := s.rng.IntN(total)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			c.do()
			return
		}
	}
}

// progress is what the konnectors wait for.
func (s *sim) progress() []choice {
	var out []choice
	for _, c := range s.waiting() {
		if !s.silent(c.side) || time.Since(c.sent) >= clientTimeout {
			out = append(out, choice{6, func() { s.release(c) }})
		}
	}
	for _, w := range s.watches() {
		if w.Waiting() > 0 && !s.silent(w.side) && (s.calm || s.lagging[w.place] < s.step) {
			out = append(out, choice{6, func() { s.deliver(w) }})
		}
	}
	for i, g := range s.ghosts {
		out = append(out, choice{1, func() {
			s.note("late: %s", g)
			s.ghosts = slices.Delete(s.ghosts, i, i+1)
			s.arrive(g)
		}})
	}
	out = append(out, s.rivalled()...)
	if !s.calm && s.plan.has("old konnector beside new") {
		out = append(out, choice{2, s.oldPass})
	}
	for _, k := range s.konnectors {
		switch {
		case k.until > 0 && k.until <= s.step && k.alive():
			out = append(out, choice{20, func() { s.note("k%d has lost its lease", k.id); s.crash(k) }})
		case k.until == 0 && !k.alive():
			out = append(out, choice{2, func() { s.note("k%d starts", k.id); s.start(k) }})
		}
	}
	return out
}

// A place is a watch and where it is.
type simWatch struct {
	*fakecluster.Watch
	place string
	side  int
}

func (s *sim) watches() []simWatch {
	var out []simWatch
	for _, k := range s.konnectors {
		if !k.alive() {
			continue
		}
		for side, v := range k.views {
			if k.one {
				side = sideSource
			}
			for _, w := range v.Watches() {
				if s.places[w] == "" {
					s.places[w] = fmt.Sprintf("k%d %s %s %s", k.id, sideName(side), w.Resource().Resource, w.Namespace())
				}
				out = append(out, simWatch{w, s.places[w], side})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b simWatch) int { return strings.Compare(a.place, b.place) })
	return out
}

// deliver lets the next event out of w, or lets it be lost.
func (s *sim) deliver(w simWatch) {
	at := slices.Index(s.hidden, w.place)
	if at < 0 || s.calm {
		s.note("event to %s", w.place)
		s.model.shown(w.Next())
		w.Deliver()
		return
	}
	s.note("event to %s, hidden", w.place)
	s.hidden, s.missed = slices.Delete(s.hidden, at, at+1), true
	w.Skip()
}

// wait lets time go on.
func (s *sim) wait() {
	d := []time.Duration{60 * time.Millisecond, time.Second, 6 * time.Second, 40 * time.Second}[s.rng.IntN(4)]
	s.note("%v pass", d)
	time.Sleep(d)
}

// release answers a call, as well or badly as has been arranged.
func (s *sim) release(c *call) {
	s.withdraw(c)
	if s.asks != nil {
		s.asks[c.String()]++
	}
	if s.strike != nil && c.writes() && s.strike(c) {
		return
	}
	if err := cmp.Or(s.closed(c), s.refusal.lasts(s, c)); err != nil {
		s.note("%s: %v", c, err)
		s.answer(c, err)
		return
	}
	f, ok := s.meets(c)
	if !ok {
		err := s.carry(c)
		s.note("%s: %s", c, outcome(err))
		s.answer(c, err)
		return
	}
	s.note("%s: %s, effect %s", c, f.kind, f.effect)
	switch f.effect {
	case "done":
		_ = s.carry(c)
	case "late":
		s.ghosts = append(s.ghosts, c)
	}
	err := f.err(c.request)
	if f.kind == "answer" {
		err = s.answered(c, f.n, f.effect == "done" && c.writes())
	}
	s.answer(c, err)
}

func (s *sim) answer(c *call, err error) {
	s.mu.Lock()
	s.model.sight.answered(c, err)
	s.mu.Unlock()
	c.answer <- err
}

// arrive carries out a request whose sender no longer waits.
func (s *sim) arrive(c *call) {
	s.late = true
	_ = s.carry(c)
	s.late = false
}

func outcome(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

func (s *sim) carry(c *call) error {
	if k := c.konnector; c.request.Verb == "list" {
		if at := c.String(); k.past[c.side] > 0 && !k.listed[at] {
			k.listed[at] = true
			c.view.Next(fakecluster.Past{Version: k.past[c.side]})
		}
	}
	s.model.call = c
	defer func() { s.model.call = nil }()
	return c.do()
}

// closed is the error of a window that c runs into.
func (s *sim) closed(c *call) error {
	for _, w := range s.windows {
		if w.side != c.side || s.calm || w.until < s.step {
			continue
		}
		r := c.request
		switch {
		case w.kind == "forbidden" && (r.Verb == "list" || r.Verb == "watch") && r.Resource != simNamespaces:
			return apierrors.NewForbidden(r.Resource.GroupResource(), "", fmt.Errorf("may not %s", r.Verb))
		case w.kind == "expired":
			return apierrors.NewUnauthorized("Unauthorized")
		case w.kind == "outage":
			return errors.New("connection refused")
		case w.kind == "refused" && w.refusal.meets(c):
			return s.refuse(c, w.refusal)
		}
	}
	return nil
}

// clientTimeout is how long a client waits for an answer.
const clientTimeout = 30 * time.Second

// silent reports whether a side answers nothing now.
func (s *sim) silent(side int) bool { return s.silence[side] && !s.calm }

// meets returns the fault that c meets, if any.
func (s *sim) meets(c *call) (fault, bool) {
	if s.calm {
		return fault{}, false
	}
	if s.silent(c.side) {
		return fault{kind: "timeout", effect: []string{"none", "done", "late"}[s.rng.IntN(3)]}, true
	}
	for i, f := range s.faults {
		switch {
		case f.kind == "empty" && c.request.Verb == "list" && c.request.Resource == simThings:
			s.faults = slices.Delete(s.faults, i, i+1)
			c.view.Next(fakecluster.Past{Empty: true})
			return fault{}, false
		case f.kind == "empty" || f.reads == c.writes() || f.kind == "answer" && c.request.Resource != simThings:
			continue
		}
		s.faults = slices.Delete(s.faults, i, i+1)
		return f, true
	}
	return fault{}, false
}

func (f fault) err(r fakecluster.Request) error {
	switch f.kind {
	case "conflict":
		return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
	case "throttled":
		return apierrors.NewTooManyRequests("slow down", 1)
	case "internal":
		return apierrors.NewInternalError(errors.New("etcdserver: leader changed"))
	case "unavailable":
		return apierrors.NewServiceUnavailable("starting")
	default:
		return fmt.Errorf("%w: connection lost", context.DeadlineExceeded)
	}
}

// crash ends k without a warning. What it had sent may still arrive.
func (s *sim) crash(k *konnector) {
	if !k.alive() {
		return
	}
	for _, c := range s.waiting() {
		if c.konnector == k && c.writes() {
			switch s.rng.IntN(3) {
			case 0:
				s.ghosts = append(s.ghosts, c)
			case 1:
				s.note("arrived: %s", c)
				s.arrive(c)
			}
		}
	}
	k.end()
	s.losesSave(k)
}

func (k *konnector) end() {
	k.cancel()
	<-k.done //nolint:errcheck // it has crashed
	k.cancel, k.past = nil, [2]int64{}
}

func (s *sim) stop() {
	for _, k := range s.konnectors {
		s.crash(k)
	}
}

// drain lets everything happen that can happen now.
func (s *sim) drain() bool {
	for range 4000 {
		s.settled()
		if s.model.broken != nil {
			return true
		}
		choices := s.progress()
		if len(choices) == 0 {
			return true
		}
		s.step++
		s.pick(choices)
	}
	return false
}

// converge ends all faults and waits until the world is as it should be. Then an API server
// answers with an error for an hour, or for two, after each of which it has to be so again.
func (s *sim) converge() *violation {
	if s.plan.has("a minute as it is") {
		s.asItIs()
	}
	s.note("all faults end")
	s.heal()
	if s.refusal != nil {
		if broken := s.endure(); broken != nil {
			return broken
		}
	}
	for _, hour := range []op{s.plan.hour, s.plan.later} {
		if broken := s.converges(); broken != nil || hour.act == nil {
			return broken
		}
		if hour.do(s); s.model.broken != nil {
			return s.model.broken
		}
	}
	return s.converges()
}

// converges waits until the world is as it should be, and then that it stays so: for a while,
// and over a restart.
func (s *sim) converges() *violation {
	problem, restless := "", 0
	for round, quiet := 0, 0; round < 50; round++ {
		writes := s.model.writes
		if !s.drain() {
			// Of two, one may see an old label until it watches again, and put that back.
			if restless++; s.strict() || restless > 3 {
				return s.broke("I1", "the konnector does not come to rest")
			}
		}
		if round == 2 { // by now all watch again, also where an empty list was the last one
			s.expireAll()
			writes--
		}
		s.housekeeping()
		if s.model.broken != nil {
			return s.model.broken
		}
		problem = s.model.final()
		if round%10 == 9 {
			s.operatorReleases()
		}
		if quiet++; problem != "" || s.model.writes != writes {
			quiet = 0
		}
		if quiet == 3 {
			return s.rest()
		}
		s.nap([]time.Duration{3 * time.Second, 45 * time.Second}[min(round/8, 1)])
	}
	return s.broke(breaks(problem), "does not converge: %s", problem)
}

func (s *sim) broke(invariant, format string, args ...any) *violation {
	s.model.breaks(invariant, format, args...)
	return s.model.broken
}

// breaks is the invariant that a problem which stays breaks.
func breaks(problem string) string {
	if strings.HasPrefix(problem, "I20: ") {
		return "I20"
	}
	return "I1"
}

// rest checks that a converged world needs no writes.
func (s *sim) rest() *violation {
	s.operatorReleasesCopies() // else a start whose log has lost its last save releases them
	s.pass(24 * time.Minute)   // what is tried again now and then has been
	s.note("at rest")
	before := s.model.writes
	s.asks = map[string]int{}
	s.pass(12 * time.Minute)
	s.rests()
	most := 0
	if s.plan.konnectors > 1 && s.plan.has("deleted as its finalizer comes") {
		most = s.patches() // of two konnectors one may have seen that, and the other not: each says another message, once in five minutes
	}
	s.asks = nil
	if n := s.model.writes - before; n > most {
		return s.broke("I8", "%d writes while nothing happened, the last: %s", n, s.model.last)
	}
	s.note("restart")
	for _, k := range s.konnectors {
		s.crash(k)
	}
	for range 4 {
		s.drain()
		time.Sleep(20 * time.Second)
	}
	// One that starts may find the events that show what became of an orphan's source.
	if n := s.model.writes - before; n > 0 && !s.plan.has("deleted as its finalizer comes") {
		return s.broke("I8", "%d writes over a restart, the last: %s", n, s.model.last)
	}
	if problem := s.model.final(); problem != "" {
		return s.broke(breaks(problem), "does not stay converged: %s", problem)
	}
	return s.model.broken
}

// How often the same is asked of an object at most in twelve minutes in which nothing happens; and
// where all is listed anew meanwhile, every three minutes, after which it is looked at.
const (
	mostAtRest = 2
	mostListed = 36
)

// patches is how many sources were patched at rest.
func (s *sim) patches() (n int) {
	for asks, times := range s.asks {
		if strings.Contains(asks, " source patch ") {
			n += times
		}
	}
	return n
}

// rests checks that an object that is not in step, and told, costs little: I19.
func (s *sim) rests() {
	for _, asks := range slices.Sorted(maps.Keys(s.asks)) {
		words, most := strings.Fields(asks), mostAtRest
		if s.plan.has("no bookmarks") || slices.Contains([]string{"namespaces", "customresourcedefinitions"}, words[3]) {
			most = mostListed // a watch that ends has it be asked who the clusters are
		}
		if s.plan.hour.kind == withinSource {
			most *= 2 // what is asked of both sides is asked of one
		}
		if n := s.asks[asks]; n > most && !looks(words[2]) && words[3] != "openapi" {
			s.model.breaks("I19", "%d times %s in twelve minutes of rest", n, asks)
		}
	}
}

// heal ends what stands in the way.
func (s *sim) heal() {
	s.settled() // for the end of what the last op ended, watches above all
	s.calm, s.calmSince, s.rivalries = true, time.Now(), nil
	for _, k := range s.konnectors {
		if k.until > 0 {
			s.crash(k)
		}
	}
	s.ghosts = slices.DeleteFunc(s.ghosts, func(c *call) bool { return s.rng.IntN(2) == 0 })
	s.serveAgain("")
	if s.plan.contests() {
		s.letGo()
	}
	s.offerAgain()
	for side, c := range s.clusters {
		for _, ns := range []string{"a", "b"} {
			s.makeNamespace(side, s.at(side, ns)) // a backup may have been made while there was none
		}
		c.Skew(0)
		objects, _ := c.Objects(simThings)
		for _, o := range objects {
			var keep []string
			for _, f := range o.GetFinalizers() {
				if !strings.HasPrefix(f, "other/") {
					keep = append(keep, f)
				}
			}
			if len(keep) < len(o.GetFinalizers()) {
				s.setFinalizers(side, o, keep)
			}
		}
	}
	for _, ns := range []string{"a", "b"} {
		s.spaces.serve(ns)
	}
	s.settled()
	s.expireAll()
}

// expireAll makes whatever was hidden be seen.
func (s *sim) expireAll() {
	for _, w := range s.watches() {
		s.expire(w)
	}
}

// expire ends a watch. Nothing else happens meanwhile, so that it is always the
// same.
func (s *sim) expire(w simWatch) {
	w.Expire()
	s.settled()
}

func (s *sim) setFinalizers(side int, o *unstructured.Unstructured, finalizers []string) {
	o = o.DeepCopy()
	o.SetFinalizers(finalizers)
	_, _ = s.things(side, o.GetNamespace()).Update(s.ctx, o, metav1.UpdateOptions{FieldManager: "other"})
}

func (s *sim) things(side int, namespace string) dynamic.ResourceInterface {
	return s.users[side].Resource(simThings).Namespace(namespace)
}

func (s *sim) get(side int, name cache.ObjectName) *unstructured.Unstructured {
	o, err := s.things(side, name.Namespace).Get(s.ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return o
}

func (s *sim) merge(side int, name cache.ObjectName, manager, patch string, sub ...string) {
	_, _ = s.things(side, name.Namespace).Patch(s.ctx, name.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager}, sub...)
}

// serveAgain serves things where their CRD has gone, perhaps with a schema that
// lacks a field.
func (s *sim) serveAgain(narrow string) {
	for side, c := range s.clusters {
		if _, served := c.Objects(simThings); !served {
			s.narrow[side] = narrow
			c.Serve(s.resource(side))
		}
	}
}

// resource is what a side serves.
func (s *sim) resource(side int) fakecluster.Resource {
	r := simResource(side == sideTarget && s.plan.has("normalising webhook"))
	if side == sideSource {
		r.Check = nil
	}
	if s.plan.schemas() {
		r.Schema = schemaWithout(s.narrow[side])
	}
	return r
}

// housekeeping is what the API servers' own controllers do: they empty
// namespaces that are being deleted.
func (s *sim) housekeeping() {
	for side, c := range s.clusters {
		namespaces, _ := c.Objects(simNamespaces)
		for _, ns := range namespaces {
			if ns.GetDeletionTimestamp() != nil {
				s.empty(side, ns.GetName())
			}
		}
	}
}

func (s *sim) empty(side int, namespace string) {
	left := 0
	for _, gvr := range []schema.GroupVersionResource{simThings, simSecrets} {
		objects, _ := s.clusters[side].Objects(gvr)
		for _, o := range objects {
			if o.GetNamespace() != namespace {
				continue
			}
			left++
			if o.GetDeletionTimestamp() == nil {
				_ = s.users[side].Resource(gvr).Namespace(namespace).Delete(s.ctx, o.GetName(), metav1.DeleteOptions{})
			}
		}
	}
	if left == 0 {
		_, _ = s.users[side].Resource(simNamespaces).Patch(s.ctx, namespace, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.makeNamespace(side, namespace)
	}
}
