// SPDX-License-Identifier: Apache-2.0

// Package refusal remembers what API servers did not take, and says when to ask again.
//
// A refused request is made again, since rights, quotas, webhooks and schemas change without an
// event, and has to cost less and less. An object waits for 5 s (0.2 s where it may pass by itself), then twice as long each time, ten
// minutes at most, so that the end of a short cause is found out soon, and no shorter than the API server asks for. All Ledgers of a Sync share a budget
// of one request in two seconds: the objects that are refused one ask for one kind of reason form a line, in
// which each waits for two seconds for each object in it (four where a look follows, since what came
// of the request is not known), times the number of lines, in all Ledgers, of more than 20. In a shorter line the first wait is 5 s, since most causes are of one object.
// An object that is accepted shows that the cause is gone, and wakes two others of its line, each of
// which wakes two more. As soon as another thing is asked of an object, it is due at once, and soon where what was met is
// another one now, which may be so each time. A refusal of a wish that is not asked any more is dropped: it would have others wait for it, and be woken in their place.
//
// Client-go's rate limiters count failures by key alone. They know neither what was asked
// nor why it was refused, so that they can neither begin anew with what the user has mended
// nor bound the sum.
package refusal

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/sync/internal/pace"
)

// An Ask is what an API server was asked to take of an object.
type Ask string

// Asks of an object.
const (
	Spec        Ask = "spec"     // a write to its target
	Deletion    Ask = "deletion" // the deletion of its target, or of an orphan in the place of that, or that it is let go
	Status      Ask = "status"   // a status of its source
	Message     Ask = "message"  // a message on its source
	SourceRead  Ask = "read source"
	TargetRead  Ask = "read target"
	Access      Ask = "access" // any other request of a pass over the object
	SourceWrite Ask = "own"    // any other write to its source: the finalizer, a mark
	Copy        Ask = "copy"   // a write to the copy of a related object
)

// A Refusal is the answer of an API server that it does not take what it was asked.
type Refusal struct {
	Kind   fates.Kind
	Detail string    // what it said, of a bounded length
	Since  time.Time // when the first of these answers in a row was asked for, whatever was asked: people who go on to edit learn that it lasts

	wish   string // hash of what was asked
	seen   any    // what its answer depends on as well
	asked  int    // in a row
	next   time.Time
	early  time.Time // when it may be asked again once its answer depends on something else
	others pace.Pace // how often of late another wish was refused than before
	other  time.Time // when another wish may be asked
}

// Pauses between two asks for the same.
const (
	quick   = 200 * time.Millisecond // before the second ask for what may pass by itself
	slow    = 5 * time.Second        // before the next ones, doubled each time
	longest = 10 * time.Minute
	edit    = time.Minute // before another wish is asked, after the first few in a row; longer in a crowd
)

// longestDetail keeps the words of others from filling our memory, in bytes.
const longestDetail = 1 << 10

// passing is how long what may pass by itself is not told to people.
const passing = 10 * time.Second

// Slow is how long an answer is waited for before people are told.
const Slow = queue.Slow

// Await calls tell once that is over, unless the returned function is called before. That returns
// when tell has.
func Await(tell func()) (answered func()) {
	told := make(chan struct{})
	slow := time.AfterFunc(Slow, func() {
		defer close(told)
		tell()
	})
	return func() {
		if !slow.Stop() {
			<-told
		}
	}
}

// Lasts reports whether r should be told to people: it will not pass by itself, or has not.
func (r *Refusal) Lasts() bool {
	return r.Kind.Fate() == fates.Refused || time.Since(r.Since) >= passing
}

// Passes is how long r may still pass by itself; 0 if people should know.
func (r *Refusal) Passes() time.Duration {
	if r.Lasts() {
		return 0
	}
	return max(time.Until(r.Since.Add(passing)), time.Millisecond)
}

// Delay is how long to wait before wish is asked again, 0 or less for not at all: if wish is not the refused one, if seen,
// on which the answer depends, has changed since, or if the pause is over. A wish that changes all the time is asked once
// a minute, or as seldom as the budget of its line says, and a seen that does makes it due ever more rarely.
func (r *Refusal) Delay(wish string, seen any) time.Duration {
	switch {
	case !r.Of(wish):
		return min(time.Until(r.other), r.Wait())
	case r.seen != seen:
		return min(time.Until(r.early), r.Wait()) // it may have been woken
	}
	return r.Wait()
}

// Wait is how long the pause lasts, whatever is to be asked.
func (r *Refusal) Wait() time.Duration { return time.Until(r.next) }

// Waits reports whether wish waits, if its answer depends on nothing else. A nil Refusal has nothing wait.
func (r *Refusal) Waits(wish string) bool { return r != nil && r.Delay(wish, r.seen) > 0 }

// Of reports whether it was wish that was refused, or may have been.
func (r *Refusal) Of(wish string) bool { return r.wish == wish || wish == Unknown }

// Unknown is a wish that is not known just now, as while its object is listed anew.
const Unknown = "unknown"

func (r *Refusal) pause(objects int, share time.Duration) time.Duration {
	doubled := r.asked
	if r.Kind.Fate() != fates.Refused {
		doubled--
	}
	switch {
	case r.Kind.Fate() == fates.Again && !r.Lasts(): // others write too, and soon are done
		return r.Kind.Pause(r.asked + 1)
	case doubled < 0:
		return quick
	case r.asked == 0 && objects <= fates.Few:
		return slow
	}
	return max(min(slow<<min(doubled, 10), longest), r.share(objects, share))
}

// share is the pause of each of a line of objects, in which an ask of one costs two requests where it was not
// taken for good: what came of it is looked at.
func (r *Refusal) share(objects int, each time.Duration) time.Duration {
	if f := r.Kind.Fate(); f != fates.Refused && f != fates.Waits {
		objects *= 2
	}
	return time.Duration(objects) * each
}

// A Budget is what all Ledgers of a Sync may ask in all. The zero value is ready to use.
type Budget struct{ crowds atomic.Int64 } // lines with more than a few members

// share is the time between two asks of one line.
func (b *Budget) share() time.Duration { return fates.Share * time.Duration(max(b.crowds.Load(), 1)) }

// A Ledger is what is refused of all objects of a Sync. Create it with NewLedger.
type Ledger struct {
	budget *Budget
	wake   func(cache.ObjectName) // an object is due before its time

	mu       sync.Mutex
	refusals map[key]*Refusal
	lines    map[place]*line
}

// A place is where refusals stand in line: what one ask was refused for one kind of reason.
type place struct {
	ask  Ask
	kind fates.Kind
}

// A line is what was refused, in the order in which it was, or was last due before its time.
type line struct {
	members map[key]*Refusal
	order   []entry
}

// An entry is a member of a line, unless that has left, or has another entry.
type entry struct {
	key     key
	refusal *Refusal
}

func (l *line) stands(e entry) bool { return l.members[e.key] == e.refusal }

func (l *line) join(k key, r *Refusal) {
	l.members[k] = r
	if l.order = append(l.order, entry{k, r}); len(l.order) > 2*len(l.members)+16 {
		l.order = slices.DeleteFunc(l.order, func(e entry) bool { return !l.stands(e) })
	}
}

// first takes out of the order the first few members, which have to join again.
func (l *line) first(most int) (members []key) {
	for len(l.order) > 0 && len(members) < most {
		if e := l.order[0]; l.stands(e) {
			members = append(members, e.key)
		}
		l.order = l.order[1:]
	}
	return members
}

type key struct {
	object cache.ObjectName
	ask    Ask
}

// NewLedger returns an empty Ledger, which shares a budget. Wake is called when an object is due
// before its time.
func NewLedger(budget *Budget, wake func(cache.ObjectName)) *Ledger {
	return &Ledger{budget: budget, wake: wake, refusals: map[key]*Refusal{}, lines: map[place]*line{}}
}

// Of is what was refused of an object; nil if nothing was. It does not change.
func (l *Ledger) Of(object cache.ObjectName, ask Ask) *Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusals[key{object, ask}]
}

// Asked is what an API server was asked.
type Asked struct {
	Wish  string // hash of it, or Unknown
	Seen  any    // what the answer depends on as well: how often the schema had changed, or the version of the object; comparable
	Began time.Time
}

// Refused notes that err was the answer, and returns the refusal.
func (l *Ledger) Refused(object cache.ObjectName, ask Ask, asked Asked, err error) *Refusal {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{object, ask}
	r := &Refusal{Kind: fates.Of(err), Detail: text.Clip(fates.Stable(err), longestDetail), Since: asked.Began, wish: asked.Wish, seen: asked.Seen}
	before := l.drop(k)
	l.refusals[k] = r
	at := place{ask, r.Kind}
	if l.lines[at] == nil {
		l.lines[at] = &line{members: map[key]*Refusal{}}
	}
	l.lines[at].join(k, r)
	objects := len(l.lines[at].members)
	if objects == fates.Few+1 {
		l.budget.crowds.Add(1)
	}
	each := l.budget.share()
	r.follow(before, max(edit, r.share(objects, each)))
	r.next = time.Now().Add(max(r.pause(objects, each), fates.Asked(err)))
	if r.Kind.Fate() == fates.Again {
		early := r.Kind.Pause(r.asked + 1)
		if objects > fates.Few {
			early = max(early, r.share(objects, each))
		}
		r.early = time.Now().Add(early)
	}
	return r
}

// follow notes which refusal was before this one, nil for none. The first few wishes after each other are asked at once,
// as people edit; then one in each pause, and a refusal of these counts as one more in a row.
func (r *Refusal) follow(before *Refusal, pause time.Duration) {
	if before == nil {
		return
	}
	r.Since, r.others = before.Since, before.others
	if before.Of(r.wish) {
		r.asked, r.wish = before.asked+1, before.wish
	} else {
		r.others.Count(1, pause)
		if r.others.Wait(pace.Burst, pause) > 0 {
			r.asked = before.asked + 1
		}
	}
	r.other = time.Now().Add(r.others.Wait(pace.Burst, pause))
}

// Accepted forgets what was refused. Two others that were refused the same ask for the same kind
// of reason are due now.
func (l *Ledger) Accepted(object cache.ObjectName, ask Ask) {
	l.mu.Lock()
	was := l.drop(key{object, ask})
	var due []cache.ObjectName
	if was != nil {
		due = l.due(place{ask, was.Kind}, 2)
	}
	l.mu.Unlock()
	for _, object := range due {
		l.wake(object)
	}
}

// Drop forgets what was refused, since it is not asked any more.
func (l *Ledger) Drop(object cache.ObjectName, ask Ask) {
	l.Keep(object, func(a Ask) bool { return a != ask })
}

// Forget forgets all that was refused of an object that is no more.
func (l *Ledger) Forget(object cache.ObjectName) {
	l.Keep(object, func(Ask) bool { return false })
}

// Keep drops what was refused of an object, but what is still asked.
func (l *Ledger) Keep(object cache.ObjectName, asked func(Ask) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ask := range []Ask{Spec, Deletion, Status, Message, SourceRead, TargetRead, Access, SourceWrite, Copy} {
		if !asked(ask) {
			l.drop(key{object, ask})
		}
	}
}

// Recovered has what failed because of an API server, and not of the object, be due: the first
// few of each kind, each of which wakes two others when it is accepted.
func (l *Ledger) Recovered() {
	l.mu.Lock()
	var due []cache.ObjectName
	for at := range l.lines {
		if at.kind.Fate() == fates.Later {
			due = append(due, l.due(at, fates.Few)...)
		}
	}
	l.mu.Unlock()
	for _, object := range due {
		l.wake(object)
	}
}

// Permitted has all that the source's API server did not permit be due: rights have come back.
func (l *Ledger) Permitted() {
	l.mu.Lock()
	var due []cache.ObjectName
	for k, r := range l.refusals {
		if r.Kind == fates.Forbidden && k.ask.ofSource() {
			l.hurry(k)
			due = append(due, k.object)
		}
	}
	l.mu.Unlock()
	for _, object := range due {
		l.wake(object)
	}
}

// ofSource reports whether the source's API server may be the one that refused.
func (a Ask) ofSource() bool {
	return a == Status || a == Message || a == SourceRead || a == Access || a == SourceWrite
}

// ofAccess reports whether people learn of a refusal as one of access to the object.
func (a Ask) ofAccess() bool {
	return a == SourceRead || a == TargetRead || a == Access || a == SourceWrite
}

// hurry ends the pause of what was refused, which is then the last of its line: it may not be asked, as where its
// API server is gone again.
func (l *Ledger) hurry(k key) {
	now := *l.refusals[k]
	now.next = time.Time{}
	l.refusals[k] = &now
	l.lines[place{k.ask, now.Kind}].join(k, &now)
}

// Count is how many objects are refused a wish.
func (l *Ledger) Count(ask Ask, wish string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.refusals {
		if k.ask == ask && r.wish == wish {
			n++
		}
	}
	return n
}

// Len is how much is refused.
func (l *Ledger) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.refusals)
}

// First is one refusal of access that matches, always the same of the same ones; nil if there
// is none.
func (l *Ledger) First(match func(*Refusal) bool) (first *Refusal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, r := range l.refusals {
		if k.ask.ofAccess() && match(r) && (first == nil || r.Detail < first.Detail) {
			first = r
		}
	}
	return first
}

// drop forgets a refusal, and returns it.
func (l *Ledger) drop(k key) *Refusal {
	r := l.refusals[k]
	if r == nil {
		return nil
	}
	delete(l.refusals, k)
	at := place{k.ask, r.Kind}
	delete(l.lines[at].members, k)
	switch len(l.lines[at].members) {
	case fates.Few:
		l.budget.crowds.Add(-1)
	case 0:
		delete(l.lines, at)
	}
	return r
}

// due ends the pauses of those of a line that were refused first.
func (l *Ledger) due(at place, most int) (objects []cache.ObjectName) {
	all := l.lines[at]
	if all == nil {
		return nil
	}
	for _, k := range all.first(most) {
		l.hurry(k)
		objects = append(objects, k.object)
	}
	return objects
}
