// SPDX-License-Identifier: Apache-2.0

// Package queue calls functions with the names of objects, fairly: it has the one worker
// loop of this module.
//
//	pool := queue.NewPool(8, nil)
//	q := pool.Queue(reconcile, queue.Options{Name: "widgets"})
//	go q.Run(ctx)
//	q.Add(key, queue.User)
//
// A [Pool] is so many workers, which its queues share: goroutines that end when nothing is
// left to do. A call that waits for an API server holds its worker, so that what must not
// wait for the same API servers has a Pool of its own. A key waits once in a [Queue], with its best
// [Priority], and is worked on by one worker at a time; added meanwhile it waits again.
// Queues take turns, in a queue the namespaces do, and of a namespace the first priority
// comes first. What goes through all objects comes behind all that has happened, and every
// sixteenth time before it, so that nothing starves. One namespace has no more than three
// quarters of the workers: the next queue finds one free.
//
// What fails is called again after a pause, which grows as package fates says: at most to seconds
// where an API server cannot be reached, since its return is to be noticed within seconds and one
// request every few seconds costs little; and to ten minutes where it refuses, where a webhook or
// anything else fails while the API server works, or where something is missing.
// A pause is as long as the answer asks for, if that is longer, and no more than these ten minutes.
// An event ends a pause ([Queue.Add]), and a change of what is asked for begins anew with short ones
// ([Queue.Changed]). The first key that succeeds shows that what was in the way of others is gone: it
// has two of them called, each of which has two more. The log has a line for each kind of failure
// that a key meets and one when that is over, and once an hour how many keys fail.
//
// A key that waits for seconds while calls hang is told of without a worker ([Options].Late): it may
// be minutes before one is free.
//
// Client-go's workqueue takes an order of one's own (Touch, Push, Len, Pop). But it does not
// tell the order when a key is done, so that bounds for namespaces and queues need a second
// lock and a second map; Add has no priority; a delayed Add cannot be taken back; and
// shutting down works through all that waits. Speed is no reason: in order of arrival alone
// it takes 0.65 to 0.9 times as long as this one, and as much memory, both some 3 to 6 µs a
// key on a busy machine (BenchmarkKeys), where a request takes milliseconds.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/hourly"
	"github.com/klutch-go/sdk/internal/text"
)

// A Priority says how soon a key is to be worked on.
type Priority int

// Priorities, the first one first. From Initial on all objects are gone through.
const (
	User    Priority = iota // a user's change, a deletion, or a failure of one of these
	Digest                  // a status changed in what users wait for
	Related                 // a related object changed
	Status                  // a status changed otherwise
	Initial                 // an object of a first list
	Resync                  // all objects are looked at anew
	priorities
)

// A tier is the priorities among which queues and namespaces take turns.
type tier int

const (
	live tier = iota // something has happened
	bulk             // all objects are gone through
	tiers
)

func (p Priority) tier() tier {
	if p >= Initial {
		return bulk
	}
	return live
}

// Slow is how long an answer, or a turn, is waited for before people are told.
const Slow = 5 * time.Second

// lookEvery is the pace of looks at what waits.
const lookEvery = time.Second

// A Func works on a key. It is called again after the time that it returns, unless that
// is 0, and after an error; [fates.IsTold] with the context then says whether the error has lasted.
// The time that it returns with an error is that of [Options].Meanwhile.
type Func = func(context.Context, cache.ObjectName) (again time.Duration, err error)

// ErrBusy is the error of a Func that could not begin and returns when to call it again: neither a failure
// nor a success, so that the pauses after failures stay as long as they were.
var ErrBusy = errors.New("not yet")

// A Delay changes how long to wait until key is worked on again, after so many failures
// in a row; after none the Func has returned pause. Its calls do not overlap.
type Delay func(pause time.Duration, key cache.ObjectName, failures int) time.Duration

// A Pool is workers that queues share. Create it with NewPool.
type Pool struct {
	workers int
	delay   Delay

	mu    sync.Mutex
	busy  int // workers that work
	turns [tiers]rotation[*Queue]
	taken int // how many keys were handed out

	calls  map[*item]struct{} // keys that are worked on
	tended bool               // there is a look at what waits to come
}

// NewPool returns a Pool of so many workers, without queues. Delay may be nil.
func NewPool(workers int, delay Delay) *Pool {
	p := &Pool{workers: workers, delay: delay, calls: map[*item]struct{}{}}
	if delay == nil {
		p.delay = func(pause time.Duration, _ cache.ObjectName, _ int) time.Duration { return pause }
	}
	return p
}

// hire has one more worker work, if there is a key for it. It needs mu.
func (p *Pool) hire() (hired bool) {
	if p.busy == p.workers {
		return false
	}
	q, key, ok := p.next()
	if !ok {
		return false
	}
	p.busy++
	go p.work(q, key)
	if !p.tended {
		p.tended = true
		time.AfterFunc(Slow, p.tend)
	}
	return true
}

// work works on key, and then on whatever is next, until nothing is.
func (p *Pool) work(q *Queue, key cache.ObjectName) {
	for ok := true; ok; {
		q.work(q.ctx, key)
		p.mu.Lock()
		if q, key, ok = p.next(); !ok {
			p.busy--
		}
		p.mu.Unlock()
	}
}

// fairness is how often the last comes first, so that it comes at all.
const fairness = 16

func (p *Pool) next() (*Queue, cache.ObjectName, bool) {
	p.taken++
	for t := range tiers {
		if p.taken%fairness == 0 {
			t = tiers - 1 - t
		}
		for range len(p.turns[t].list) {
			q := p.turns[t].pop()
			key, ok := q.next(t)
			if len(q.turns[t].list) > 0 && !q.ended {
				p.turns[t].push(q)
			}
			if ok {
				return q, key, true
			}
		}
	}
	p.taken--
	return nil, cache.ObjectName{}, false
}

// Options tune a Queue. The zero value is ready to use.
type Options struct {
	Name         string // in the log
	Limit        int    // calls at once; 0 means as many as there are workers
	PerNamespace int    // of these with keys of one namespace; 0 means three quarters of the workers

	// Patience is how long the pauses after failures may grow in any case: where many keys fail
	// because of an outage. Package fates may say more.
	Patience time.Duration

	// Meanwhile, if not nil, is called with a key in the pause after a failure, at the time that the Func
	// has returned with the error, or Meanwhile since, for what does not depend on what has failed. Its
	// calls do not overlap with those of the Func with the same key, and count as no failures; after an
	// error the Func is next.
	Meanwhile Func

	// Late, if not nil, is called with a key that waits for Slow while a call of the Pool takes as
	// long, once for each turn and priority. Its calls do not overlap, nor with those of the Func
	// with the same key. It needs no worker, and must not block.
	Late func(context.Context, cache.ObjectName, Priority)
}

// A Queue is the keys that one function is called with. Create it with Pool.Queue.
type Queue struct {
	pool *Pool
	fn   Func
	opts Options

	// All below is guarded by pool.mu.
	ctx   context.Context //nolint:containedctx // that of Run; nil while it does not run
	idle  *sync.Cond
	busy  int
	ended bool
	turns [tiers]rotation[*line]

	telling bool             // calls Late
	lines   map[string]*line // by namespace
	items   map[cache.ObjectName]*item
}

// A line is the keys of one namespace that wait.
type line struct {
	busy    int
	waiting [priorities][]cache.ObjectName
}

// An item is a key that waits, is worked on, or has failed.
type item struct {
	waiting, busy bool
	priority      Priority
	since         time.Time // when the call, or else the wait, began
	late          bool      // Late was called for this wait
	failing
	called failing // as it was when the call began: what the call itself changes is told sooner than it ends
	timer  *time.Timer

	due       time.Time // the end of the pause after a failure
	meanwhile bool      // the next call is of Meanwhile, if it is in that pause
}

// A failing is the failures of a key in a row.
type failing struct {
	failures int
	since    time.Time  // the first one
	kind     fates.Kind // of the last one
	told     uint64     // has a bit for each kind that the log has
}

func (f failing) has(kind fates.Kind) bool { return f.told>>kind&1 == 1 }

// Queue returns an empty queue of calls to fn.
func (p *Pool) Queue(fn Func, o Options) *Queue {
	if o.Limit == 0 {
		o.Limit = p.workers
	}
	if o.PerNamespace == 0 {
		o.PerNamespace = max(1, p.workers*3/4)
	}
	return &Queue{pool: p, fn: fn, opts: o, idle: sync.NewCond(&p.mu), lines: map[string]*line{}, items: map[cache.ObjectName]*item{}}
}

// Run has keys worked on until ctx is done and every call has returned. It can be called
// once.
func (q *Queue) Run(ctx context.Context) {
	named := logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("controller", q.opts.Name))
	q.pool.mu.Lock()
	for q.ctx = named; q.pool.hire(); {
	}
	q.pool.mu.Unlock()
	hourly.Log(named, "objects are not reconciled", q.failed)
	q.Close()
}

// failed is how many keys fail that the log has told of, by what API servers say to them.
func (q *Queue) failed() map[string]int {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	counts := map[string]int{}
	for _, i := range q.items {
		if i.told != 0 {
			counts[i.kind.Word().String()]++
		}
	}
	return counts
}

// Close drops all keys, and returns when every call has.
func (q *Queue) Close() {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.ended = true
	for _, i := range q.items {
		i.stop()
	}
	for q.busy > 0 || q.telling {
		q.idle.Wait()
	}
	q.pool.hire() // so that the pool forgets it
}

// Add queues key. A key that waits already moves up to a better priority.
func (q *Queue) Add(key cache.ObjectName, p Priority) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	q.put(key, p)
}

// Changed is Add of a key of which something else is asked for than before: what failed does not
// count any more.
func (q *Queue) Changed(key cache.ObjectName, p Priority) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if i := q.items[key]; i != nil {
		i.failing = failing{}
	}
	q.put(key, p)
}

// Look is Add of a key of which only that has changed which Options.Meanwhile does: a pause after a
// failure goes on, also after one of the call that goes on now.
func (q *Queue) Look(key cache.ObjectName, p Priority) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	i := q.items[key]
	asked := i != nil && i.waiting && !i.meanwhile // for the Func
	q.put(key, p)
	if i = q.items[key]; i != nil && !asked {
		i.meanwhile = q.opts.Meanwhile != nil
	}
}

func (q *Queue) put(key cache.ObjectName, p Priority) {
	i := q.items[key]
	if i != nil {
		i.meanwhile = false
	}
	switch {
	case q.ended, i != nil && i.waiting && i.priority <= p:
		return
	case i == nil:
		i = &item{}
		q.items[key] = i
	}
	if !i.waiting && !i.busy {
		i.since = time.Now()
	}
	i.waiting, i.priority, i.late = true, p, false
	if !i.busy { // else finish does it
		q.enqueue(key, p)
	}
}

func (q *Queue) enqueue(key cache.ObjectName, p Priority) {
	l := q.lines[key.Namespace]
	if l == nil {
		l = &line{}
		q.lines[key.Namespace] = l
	}
	l.waiting[p] = append(l.waiting[p], key)
	q.turns[p.tier()].push(l)
	q.pool.turns[p.tier()].push(q)
	q.pool.hire()
}

// next takes the key of a tier whose turn it is.
func (q *Queue) next(t tier) (key cache.ObjectName, ok bool) {
	if q.ctx == nil || q.ended || q.busy >= q.opts.Limit {
		return key, false
	}
	for range len(q.turns[t].list) {
		l := q.turns[t].pop()
		if l.busy < q.opts.PerNamespace {
			key, ok = q.take(l, t)
		}
		if !l.empty(t) {
			q.turns[t].push(l)
		}
		if ok {
			return key, true
		}
	}
	return key, false
}

// take takes the first key of the first priority; every so often the last one is first.
func (q *Queue) take(l *line, t tier) (cache.ObjectName, bool) {
	for p := range priorities {
		if q.pool.taken%(fairness/2) == 0 {
			p = priorities - 1 - p
		}
		for p.tier() == t && len(l.waiting[p]) > 0 {
			key := pop(&l.waiting[p])
			if i := q.items[key]; i != nil && i.waiting && !i.busy && i.priority == p { // else it moved up
				i.waiting, i.busy, i.since, i.called = false, true, time.Now(), i.failing
				q.pool.calls[i] = struct{}{}
				l.busy++
				q.busy++
				return key, true
			}
		}
	}
	return cache.ObjectName{}, false
}

func (l *line) empty(t tier) bool {
	for p, keys := range l.waiting {
		if Priority(p).tier() == t && len(keys) > 0 {
			return false
		}
	}
	return true
}

// work calls the function for key, and tells of its failures.
func (q *Queue) work(ctx context.Context, key cache.ObjectName) {
	log := logr.FromContextOrDiscard(ctx).WithValues("object", key.String())
	since, meanwhile := q.failing(ctx, key)
	if meanwhile {
		again, err := call(logr.NewContext(since, log), key, q.opts.Meanwhile)
		if q.finish(key, func(i *item) time.Duration { return q.untilDue(i, key, again, err) }); err != nil {
			log.V(4).Info("in the pause after a failure not all is done", "reason", err.Error())
		}
		return
	}
	again, err := call(logr.NewContext(since, log), key, q.fn)
	ended := err != nil && ctx.Err() != nil // which is no failure
	kind, busy := fates.Of(err), errors.Is(err, ErrBusy)
	before, now, pause := q.finish(key, func(i *item) time.Duration { return q.note(i, key, again, err, ended || kind == fates.Terminal) })
	switch {
	case ended, busy:
	case kind == fates.Terminal:
		log.Error(clipped(err), "reconcile failed, not retrying")
	case now.has(kind) && !before.has(kind):
		log.Error(clipped(err), "reconcile failed, retrying", "failures", now.failures, "pause", pause.String())
	case err != nil:
		log.V(4).Info("reconcile failed again, or met another state than it had seen, retrying", "reason", clipped(err).Error())
	case before.told != 0:
		log.Info("reconciled again", "failures", before.failures)
	}
}

// maxLogged is how much of an error the log has, in bytes: an API server quotes webhooks and policies, at any length.
const maxLogged = 1 << 10

func clipped(err error) error { return fates.Reworded(err, text.Clip(err.Error(), maxLogged)) }

// failing is ctx for a call with key, which may have failed before, and whether it is one of Meanwhile.
func (q *Queue) failing(ctx context.Context, key cache.ObjectName) (since context.Context, meanwhile bool) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	i := q.items[key]
	if i.called.failures > 0 {
		ctx = fates.FailingSince(ctx, i.called.since)
	}
	return ctx, i.meanwhile && i.called.failures > 0
}

// fails counts one more failure. Of the first few that say only that another writer was faster,
// there is nothing to tell.
func (f *failing) fails(err error) {
	if f.failures++; f.failures == 1 {
		f.since = time.Now()
	}
	f.kind = fates.Of(err)
	quiet := f.kind.Fate() == fates.Again || f.kind == fates.Contested || errors.Is(err, fates.ErrAgain)
	if !quiet || f.failures > maxQuiet {
		f.told |= 1 << f.kind
	}
}

// maxQuiet is the number of conflicts in a row that are nothing to tell anyone.
const maxQuiet = 5

// call calls fn, and turns a panic into an error.
func call(ctx context.Context, key cache.ObjectName, fn Func) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return fn(ctx, key)
}

// finish follows a call for key: plan decides when there is to be another. What was to
// happen later is decided anew each time.
func (q *Queue) finish(key cache.ObjectName, plan func(*item) (pause time.Duration)) (before, now failing, pause time.Duration) {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	i, l := q.items[key], q.lines[key.Namespace]
	i.stop()
	before = i.called
	pause = plan(i)
	i.busy, i.since = false, time.Now()
	delete(q.pool.calls, i)
	l.busy--
	q.busy--
	now = i.failing
	switch {
	case q.ended:
		q.idle.Broadcast()
	case i.waiting:
		q.enqueue(key, i.priority)
	case i.failures == 0 && i.timer == nil:
		delete(q.items, key)
	}
	if l.busy == 0 && l.empty(live) && l.empty(bulk) {
		delete(q.lines, key.Namespace)
	}
	return before, now, pause
}

// note takes note of what came of a call of the Func. It returns the pause before the next one.
func (q *Queue) note(i *item, key cache.ObjectName, again time.Duration, err error, final bool) (pause time.Duration) {
	switch {
	case final:
		i.failing = failing{}
		return 0
	case errors.Is(err, ErrBusy):
		q.later(i, key, again, Status, false)
		return again
	case err == nil:
		i.failing = failing{}
		q.wake(i.called.kind, 2)
		if again > 0 {
			q.later(i, key, q.pool.delay(again, key, 0), Status, false)
		}
		return again
	}
	i.fails(err)
	pause = max(i.kind.Pause(i.failures), fates.Pause(i.failures, q.opts.Patience))
	pause = max(q.pool.delay(pause, key, i.failures), fates.Asked(err))
	i.due = time.Now().Add(pause)
	q.untilDue(i, key, again, nil)
	return pause
}

// untilDue has the Func called with key once its pause is over, or Meanwhile at a time before.
func (q *Queue) untilDue(i *item, key cache.ObjectName, again time.Duration, err error) time.Duration {
	left := max(time.Until(i.due), time.Millisecond)
	meanwhile := q.opts.Meanwhile != nil && err == nil && again > 0 && again < left
	if meanwhile {
		left = again
	}
	q.later(i, key, left, User, meanwhile)
	return left
}

// wake ends the pauses of a few keys that failed as one did that has succeeded, if such pauses are long.
func (q *Queue) wake(kind fates.Kind, most int) {
	if kind.Longest() < fates.Forbidden.Longest() {
		return
	}
	for key, i := range q.items {
		if most > 0 && i.kind == kind && i.timer != nil {
			i.stop()
			q.put(key, User)
			most--
		}
	}
}

// later queues key after a while, for a call of the Func or of Meanwhile.
func (q *Queue) later(i *item, key cache.ObjectName, pause time.Duration, p Priority, meanwhile bool) {
	if q.ended {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		q.pool.mu.Lock()
		defer q.pool.mu.Unlock()
		if i.timer == timer {
			i.timer = nil
			waits := i.waiting
			q.put(key, p)
			i.meanwhile = meanwhile && !waits
		}
	})
	i.timer = timer
}

func (i *item) stop() {
	if i.timer != nil {
		i.timer.Stop()
		i.timer = nil
	}
}

// tend has the queues tell of the keys that wait while calls hang. It comes again for as long as
// there are calls.
func (p *Pool) tend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tended = p.busy > 0; !p.tended {
		return
	}
	if p.hangs() {
		for t := range tiers {
			for _, q := range slices.Clone(p.turns[t].list) {
				q.tell()
			}
		}
	}
	time.AfterFunc(lookEvery, p.tend)
}

// hangs reports whether a call takes long. It needs mu.
func (p *Pool) hangs() bool {
	for i := range p.calls {
		if time.Since(i.since) >= Slow {
			return true
		}
	}
	return false
}

// tell calls Late with the keys that have waited for long. It needs mu, and gives it back during
// each of these calls.
func (q *Queue) tell() {
	if q.opts.Late == nil || q.ctx == nil {
		return
	}
	var late []cache.ObjectName
	for key, i := range q.items {
		if i.isLate() {
			late = append(late, key)
		}
	}
	q.telling = true
	for _, key := range late {
		i := q.items[key]
		if i == nil || !i.isLate() || q.ended {
			continue
		}
		p := i.priority
		i.busy, i.late = true, true // no worker takes it meanwhile
		q.pool.mu.Unlock()
		_, err := call(q.ctx, key, func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			q.opts.Late(ctx, key, p)
			return 0, nil
		})
		if err != nil {
			logr.FromContextOrDiscard(q.ctx).Error(err, "late key is not told", "object", key.String())
		}
		q.pool.mu.Lock()
		i.busy = false
		q.enqueue(key, i.priority) // its turn may have come
	}
	q.telling = false
	q.idle.Broadcast()
}

// isLate reports whether a key has waited for long, and nothing has been told of that.
func (i *item) isLate() bool {
	return i.waiting && !i.busy && !i.late && time.Since(i.since) >= Slow
}

// A rotation is who is next, each of them once.
type rotation[T comparable] struct {
	list []T
	in   map[T]struct{}
}

func (r *rotation[T]) push(v T) {
	if _, ok := r.in[v]; ok {
		return
	}
	if r.in == nil {
		r.in = map[T]struct{}{}
	}
	r.in[v] = struct{}{}
	r.list = append(r.list, v)
}

func (r *rotation[T]) pop() T {
	v := pop(&r.list)
	delete(r.in, v)
	return v
}

// pop takes the first of a list, and gives memory back.
func pop[T any](list *[]T) T {
	var zero T
	v := (*list)[0]
	(*list)[0] = zero
	if *list = (*list)[1:]; len(*list) == 0 {
		*list = nil
	}
	return v
}
