// SPDX-License-Identifier: Apache-2.0

// Package breaker stops a mass deletion before it has become one.
//
// Each deletion by itself looks right: its source has a deletionTimestamp, its clusters
// are confirmed. What is wrong shows only in the number: a CRD that is removed, a namespace
// deleted by mistake, another cluster behind the endpoint. So a [Breaker] counts the
// deletions of a binding in a sliding window. Past the limit it holds each further one, by
// its source, until a person releases it: neither time nor a restart closes it.
//
// The limit is a share of the objects, since one number suits neither ten databases nor
// ten thousand, and a least number, so that a few deletions by hand never meet it. A token
// bucket would let a mass deletion go on slowly. What is held stands in the message on each
// source, from which [Breaker.Hold] takes it up after a restart. What was counted, and that
// a breaker is open, stands in a [Journal], if the embedding program keeps one.
//
// A person releases one [Hold] by its word, which the message spells. A release without a word would
// go on to hold for whatever happens to the source later.
package breaker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	window = 5 * time.Minute
	least  = 10 // deletions that are let pass however few the objects
	share  = 20 // one in so many objects
)

// A Breaker admits or holds deletions, by the names of their sources. It is safe for
// concurrent use.
type Breaker struct {
	limit int
	mu    sync.Mutex

	cause    string // why it is open; empty if it is closed
	replaced bool   // because a cluster is another one: what is not found may be elsewhere
	doubted  bool   // that something was held since Request.Suspect said so
	times    []time.Time
	admitted map[cache.ObjectName]bool
	held     map[cache.ObjectName]Hold   // by source
	going    map[cache.ObjectName]string // what was asked for, as Request.Going
}

// A Hold is why one deletion has to wait, and the word by which a person lets it pass. The zero Hold is
// none.
type Hold struct{ Why, Word string }

// hold makes a Hold that no other one has the word of, but for those of the same second.
func hold(why string) Hold { return Hold{why, time.Now().UTC().Format(time.RFC3339)} }

// New returns a closed Breaker that admits limit deletions in five minutes; 0 is one in
// twenty objects but at least ten, and a negative limit is none.
func New(limit int) *Breaker {
	return &Breaker{limit: limit, admitted: map[cache.ObjectName]bool{}, held: map[cache.ObjectName]Hold{}, going: map[cache.ObjectName]string{}}
}

// A Request asks whether a deletion may go on.
type Request struct {
	Source  cache.ObjectName
	Going   string     // identifies the instance that goes: what was said of another one of the name is void
	Free    bool       // it passes uncounted: the claim that asked for the copy goes, or has gone, itself
	Word    string     // by which a person lets it pass, of the Hold that there is; empty if none does
	Before  Hold       // that the message on the source tells of; zero if it tells of none
	Suspect string     // why it has to wait in any case; empty if nothing says so
	Deletes bool       // the target goes now, or comes back as an empty one; otherwise the finalizer may go
	Objects func() int // counts the objects that there are
}

// Ask answers why a deletion has to wait; the zero Hold if it may go on.
func (b *Breaker) Ask(r Request) Hold {
	b.about(r.Source, r.Going)
	if r.Free {
		b.Allow(r.Source)
		return Hold{}
	}
	if r.Before.Why != "" {
		b.Hold(r.Source, r.Before)
	}
	if r.Suspect != "" {
		b.doubt()
		b.Hold(r.Source, hold(r.Suspect))
	}
	h := b.Blocks(r.Source)
	if h.Why == "" && r.Deletes {
		h = b.Admit(r.Source, time.Now(), r.Objects)
	}
	if h.Why != "" && r.Word != "" && r.Word == h.Word {
		b.Allow(r.Source)
		return Hold{}
	}
	return h
}

func (b *Breaker) doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = true
}

// Doubted reports whether something was held because of Request.Suspect, before a restart too, and
// nothing was released since.
func (b *Breaker) Doubted() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doubted
}

// about forgets what was said of another instance of the source's name.
func (b *Breaker) about(source cache.ObjectName, going string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if before, asked := b.going[source]; asked && before != going {
		b.forget(source)
	}
	b.going[source] = going
}

// Admit asks whether the target of source may be deleted, and counts it if so, once. It
// answers why not. Objects counts the objects that there are.
func (b *Breaker) Admit(source cache.ObjectName, now time.Time, objects func() int) Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h, held := b.held[source]; held || b.admitted[source] {
		return h
	}
	b.count(now, objects)
	if b.cause != "" {
		b.held[source] = hold(b.cause)
		return b.held[source]
	}
	if b.limit >= 0 {
		b.times = append(b.times, now)
	}
	b.admitted[source] = true
	return Hold{}
}

// count opens the breaker if one more deletion would be too many.
func (b *Breaker) count(now time.Time, objects func() int) {
	b.times = slices.DeleteFunc(b.times, func(t time.Time) bool { return now.Sub(t) >= window })
	if b.cause != "" || b.limit < 0 || b.limit == 0 && len(b.times) < least {
		return
	}
	if limit := cmp.Or(b.limit, max(least, objects()/share)); len(b.times) >= limit {
		b.cause = fmt.Sprintf("more than %d objects were deleted within %d minutes", limit, window/time.Minute)
	}
}

// Blocks says why source is held; empty if it is not. It counts no deletion. While a cluster is
// another one, it holds each source that was not admitted since: the target may be in the
// cluster before, so that the finalizer must not come off.
func (b *Breaker) Blocks(source cache.ObjectName) Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.admitted[source] {
		return Hold{}
	}
	if _, held := b.held[source]; b.replaced && !held {
		b.held[source] = hold(b.cause)
	}
	return b.held[source]
}

// Trip opens the breaker. Replaced says that a cluster is another one: what was admitted
// was meant for the one before, and is asked for anew.
func (b *Breaker) Trip(cause string, replaced bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause, b.replaced = cmp.Or(b.cause, cause), b.replaced || replaced
	if replaced {
		clear(b.admitted)
	}
}

// Hold holds source, as before a restart; the breaker is not opened for others.
func (b *Breaker) Hold(source cache.ObjectName, h Hold) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, held := b.held[source]; held || b.admitted[source] {
		return
	}
	if h.Word == "" {
		h = hold(h.Why)
	}
	b.held[source] = h
}

// Release closes the breaker, admits what it holds, and returns the sources of that.
func (b *Breaker) Release() []cache.ObjectName {
	b.mu.Lock()
	defer b.mu.Unlock()
	released := slices.SortedFunc(maps.Keys(b.held), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	for _, source := range released {
		b.admitted[source] = true
	}
	clear(b.held)
	b.cause, b.replaced, b.doubted, b.times = "", false, false, nil
	return released
}

// Allow admits one source, uncounted.
func (b *Breaker) Allow(source cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, source)
	b.admitted[source] = true
}

// Forget forgets a source of which nothing goes, or that has gone.
func (b *Breaker) Forget(source cache.ObjectName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(source)
}

// forget needs mu.
func (b *Breaker) forget(source cache.ObjectName) {
	delete(b.admitted, source)
	delete(b.held, source)
	delete(b.going, source)
}

// Held is the number of deletions that are held.
func (b *Breaker) Held() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}
