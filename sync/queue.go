// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
)

// A class says how soon an object is to be looked at, the first one first.
type class int

const (
	classUser    class = iota // a user's change, a deletion, or a failure of one of these
	classFlip                 // a status changed in what users wait for
	classRelated              // a related object changed
	classStatus               // a status changed otherwise
	classInitial              // an object of a first list
	classResync               // all objects are looked at anew
	classes
)

// A tier is the classes among which taking turns goes before class: what one
// namespace has to say for itself must not hold up what another waits for.
type tier int

const (
	tierLive tier = iota // something has happened
	tierBulk             // all objects are gone through
	tiers
)

func (c class) tier() tier {
	if c >= classInitial {
		return tierBulk
	}
	return tierLive
}

// A pool is the workers that the lanes of a Set share. Lanes take turns within a
// tier, and so do the namespaces of a lane; of a namespace the first class comes
// first. No namespace, and no lane beside others, has more than three quarters of
// the workers: whoever comes next finds one that is free.
type pool struct {
	workers int
	jitter  jitter

	mu      sync.Mutex
	more    *sync.Cond
	turns   [tiers]turns[*lane]
	taken   int // how many keys were handed out
	delayed int // how many were to come later
	ended   bool
}

// A lane is the keys that one function is called with.
type lane struct {
	pool  *pool
	name  string
	limit int // calls at once
	fn    func(context.Context, cache.ObjectName) (time.Duration, error)

	// All below is guarded by pool.mu.
	ctx   context.Context //nolint:containedctx // that of run; nil while it does not run
	idle  *sync.Cond
	busy  int
	ended bool
	turns [tiers]turns[*flow]
	flows map[string]*flow
	keys  map[cache.ObjectName]*ticket
}

// A flow is the keys of one namespace.
type flow struct {
	namespace string
	busy      int
	waiting   [classes]fifo[cache.ObjectName]
}

// A ticket is what is known of a key that waits, is worked on, or has failed.
type ticket struct {
	waiting, busy bool
	class         class
	failures      int
	timer         *time.Timer
	due           time.Time
}

func newPool(workers int, j jitter) *pool {
	p := &pool{workers: workers, jitter: j}
	p.more = sync.NewCond(&p.mu)
	return p
}

func (p *pool) lane(name string, limit int, fn func(context.Context, cache.ObjectName) (time.Duration, error)) *lane {
	return &lane{
		pool: p, name: name, limit: limit, fn: fn, idle: sync.NewCond(&p.mu),
		flows: map[string]*flow{}, keys: map[cache.ObjectName]*ticket{},
	}
}

// share is how many workers one namespace, or one lane, can have.
func (p *pool) share() int { return max(1, p.workers*3/4) }

// run works until ctx is done and every call has returned.
func (p *pool) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range p.workers {
		wg.Go(func() {
			for p.work() {
			}
		})
	}
	<-ctx.Done()
	p.mu.Lock()
	p.ended = true
	p.more.Broadcast()
	p.mu.Unlock()
	wg.Wait()
}

// work calls the function of one key, and reports whether there may be another.
func (p *pool) work() bool {
	p.mu.Lock()
	l, key, ok := p.next()
	for !ok && !p.ended {
		p.more.Wait()
		l, key, ok = p.next()
	}
	p.mu.Unlock()
	if !ok {
		return false
	}
	l.work(l.ctx, key)
	p.mu.Lock()
	defer p.mu.Unlock()
	l.finish(key)
	return true
}

// fairness is how often the last comes first, so that it comes at all.
const fairness = 16

// next takes the key whose turn it is. It needs mu.
func (p *pool) next() (*lane, cache.ObjectName, bool) {
	p.taken++
	for i := range tiers {
		t := i
		if p.taken%fairness == 0 {
			t = tiers - 1 - i
		}
		for range p.turns[t].len() {
			l := p.turns[t].pop()
			key, ok := l.next(t, p.taken)
			if l.turns[t].len() > 0 {
				p.turns[t].push(l)
			}
			if ok {
				return l, key, true
			}
		}
	}
	p.taken--
	return nil, cache.ObjectName{}, false
}

// next takes the key of a tier whose turn it is.
func (l *lane) next(t tier, taken int) (cache.ObjectName, bool) {
	if l.ctx == nil || l.ended || l.busy >= l.limit {
		return cache.ObjectName{}, false
	}
	for range l.turns[t].len() {
		f := l.turns[t].pop()
		if f.busy >= l.pool.share() {
			l.turns[t].push(f)
			continue
		}
		key, ok := l.first(f, t, taken)
		if !f.empty(t) {
			l.turns[t].push(f)
		}
		if ok {
			return key, true
		}
	}
	return cache.ObjectName{}, false
}

// first takes the first key of the first class of a tier; every so often the
// last class is the first.
func (l *lane) first(f *flow, t tier, taken int) (cache.ObjectName, bool) {
	for i := range classes {
		c := i
		if taken%(fairness/2) == 0 {
			c = classes - 1 - i
		}
		if c.tier() != t {
			continue
		}
		if key, ok := l.take(f, c); ok {
			return key, true
		}
	}
	return cache.ObjectName{}, false
}

// take takes the first key of a class that has not been taken with another class.
func (l *lane) take(f *flow, c class) (cache.ObjectName, bool) {
	for f.waiting[c].len() > 0 {
		key := f.waiting[c].pop()
		t := l.keys[key]
		if t == nil || !t.waiting || t.busy || t.class != c {
			continue
		}
		t.waiting, t.busy = false, true
		f.busy++
		l.busy++
		return key, true
	}
	return cache.ObjectName{}, false
}

// finish follows a call for key.
func (l *lane) finish(key cache.ObjectName) {
	t, f := l.keys[key], l.flows[key.Namespace]
	t.busy = false
	f.busy--
	l.busy--
	switch {
	case l.ended:
		l.idle.Broadcast()
	case t.waiting:
		l.enqueue(key, t.class)
	case t.failures == 0 && t.timer == nil:
		delete(l.keys, key)
	}
	if f.busy == 0 && f.empty(tierLive) && f.empty(tierBulk) {
		delete(l.flows, f.namespace)
	}
	l.pool.more.Signal()
}

func (f *flow) empty(t tier) bool {
	for c := range classes {
		if c.tier() == t && f.waiting[c].len() > 0 {
			return false
		}
	}
	return true
}

// add queues key. A key that waits already moves up to a better class.
func (l *lane) add(key cache.ObjectName, c class) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.put(key, c)
}

func (l *lane) put(key cache.ObjectName, c class) {
	if l.ended {
		return
	}
	t := l.ticket(key)
	if t.waiting && t.class <= c {
		return
	}
	t.waiting, t.class = true, c
	if !t.busy { // else finish does it
		l.enqueue(key, c)
	}
}

func (l *lane) ticket(key cache.ObjectName) *ticket {
	t := l.keys[key]
	if t == nil {
		t = &ticket{}
		l.keys[key] = t
	}
	return t
}

func (l *lane) enqueue(key cache.ObjectName, c class) {
	f := l.flows[key.Namespace]
	if f == nil {
		f = &flow{namespace: key.Namespace}
		l.flows[key.Namespace] = f
	}
	f.waiting[c].push(key)
	l.turns[c.tier()].push(f)
	l.pool.turns[c.tier()].push(l)
	l.pool.more.Signal()
}

// after queues key after a while, unless it is due earlier already.
func (l *lane) after(key cache.ObjectName, pause time.Duration, c class) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.pool.delayed++
	pause += time.Duration(l.pool.delayed % 1_000_000) // timers of one moment have no order
	t, due := l.ticket(key), time.Now().Add(pause)
	if l.ended || t.timer != nil && !t.due.After(due) {
		return
	}
	if t.timer != nil {
		t.timer.Stop()
	}
	t.due = due
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		if t.timer == timer {
			t.timer = nil
			l.put(key, c)
		}
	})
	t.timer = timer
}

// run lets keys be worked on until ctx is done and every call has returned. It
// can be called once.
func (l *lane) run(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx).WithValues("controller", l.name)
	l.pool.mu.Lock()
	l.ctx = logr.NewContext(ctx, log)
	l.pool.more.Broadcast()
	l.pool.mu.Unlock()
	<-ctx.Done()
	l.close()
}

// close drops all keys, and returns when every call has.
func (l *lane) close() {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.ended = true
	for _, t := range l.keys {
		if t.timer != nil {
			t.timer.Stop()
			t.timer = nil
		}
	}
	for l.busy > 0 {
		l.idle.Wait()
	}
	for t := range tiers {
		l.pool.turns[t].remove(l)
	}
}

// work calls the function for key, and decides when to do so again.
func (l *lane) work(ctx context.Context, key cache.ObjectName) {
	log := logr.FromContextOrDiscard(ctx).WithValues("object", key.String())
	again, err := l.call(logr.NewContext(ctx, log), key)
	failures := l.outcome(key, err)
	switch {
	case err != nil && ctx.Err() != nil: // the end of run is no failure
	case err != nil:
		pause := l.pool.jitter.spread(backoff(err, failures), key, failures)
		if failures > maxQuiet || !quiet(err) {
			log.Error(err, "reconcile failed, retrying", "failures", failures, "pause", pause.String())
		}
		l.after(key, pause, classUser)
	case again > 0:
		l.after(key, again, classStatus)
	}
}

func (l *lane) call(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return l.fn(ctx, key)
}

// outcome counts the failures of key in a row. What was to happen later is
// decided anew after each call.
func (l *lane) outcome(key cache.ObjectName, err error) int {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	t := l.keys[key]
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	t.failures++
	if err == nil {
		t.failures = 0
	}
	return t.failures
}

// maxQuiet is the number of conflicts in a row that are nothing to tell anyone.
const maxQuiet = 5

// quiet reports whether err says only that someone else was faster.
func quiet(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, errAgain)
}

// backoff is how long to wait after so many failures in a row. What an API
// server has not answered is tried again soon, since users wait for the end of
// an outage; what it does not like has time.
func backoff(err error, failures int) time.Duration {
	longest := 30 * time.Second
	if apierrors.ReasonForError(err) == "" || apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) {
		longest = retryLast
	}
	return min(50*time.Millisecond<<min(failures-1, 10), longest)
}

// turns are who is next, each of them once.
type turns[T comparable] struct {
	list fifo[T]
	in   map[T]struct{}
}

func (t *turns[T]) len() int { return t.list.len() }

func (t *turns[T]) push(v T) {
	if _, ok := t.in[v]; ok {
		return
	}
	if t.in == nil {
		t.in = map[T]struct{}{}
	}
	t.in[v] = struct{}{}
	t.list.push(v)
}

func (t *turns[T]) pop() T {
	v := t.list.pop()
	delete(t.in, v)
	return v
}

func (t *turns[T]) remove(v T) {
	for range t.len() {
		if first := t.pop(); first != v {
			t.push(first)
		}
	}
}

// A fifo is a queue that gives memory back.
type fifo[T any] struct {
	list []T
	head int
}

func (q *fifo[T]) len() int { return len(q.list) - q.head }

func (q *fifo[T]) push(v T) { q.list = append(q.list, v) }

func (q *fifo[T]) pop() T {
	var zero T
	v := q.list[q.head]
	q.list[q.head] = zero
	q.head++
	switch {
	case q.head == len(q.list):
		q.list, q.head = nil, 0
	case q.head > 1024 && q.head > len(q.list)/2:
		q.list, q.head = append([]T(nil), q.list[q.head:]...), 0
	}
	return v
}
