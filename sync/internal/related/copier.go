// SPDX-License-Identifier: Apache-2.0

// Package related copies the related objects of a Sync, Secrets above all, to the same name
// on the other side.
//
// It is a second user of the engine's words: a [Copier] observes an original and its copy,
// plans one step by a table, does it with at most one write, and the next event brings it
// back. It is not the engine itself, since a copy has neither a status nor a finalizer nor
// an original that knows of it: a copy is there for as long as it has a reason, which is that
// a bound object refers to the original, or that a selector names it, while its namespace has
// a source. That a reason has gone is confirmed live, and by another look at the clusters,
// before a copy goes; an absence in a store says nothing.
//
// Contents are read live, compared by a keyed hash and forgotten: watches have metadata only,
// so that neither a store nor a log nor a message ever holds a Secret. The content of what is
// not ours is not read at all: metadata come first, which costs a request more for each copy
// that is looked at. One Copier has all selectors of a resource and side, since two that
// disagreed would fight over one copy. Syncs that want the same copy each apply all of it under
// a field manager of their own, by which the last one to leave is known, and deletes it.
//
// Of the engine it knows what [Config] says: no watches and no queue, so that it can be read,
// and its plan tested, alone. That costs a hundred lines of interfaces on either side.
package related

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/contest"
)

// A Config is what a Copier needs of the Sync that it belongs to.
type Config struct {
	Resource   schema.GroupVersionResource
	FromTarget bool // the target side owns the originals, not the source side
	Selectors  []Selector
	Manager    string // field manager of the copies; it ends in [Managers]
	Marks      Marks

	Originals, Copies Side
	Bound             Bound
	Sources           Sources
	Names             Names
	Engine            Engine
	NewPace           func() Pace
}

// Managers ends the field managers of copies, of whatever Sync.
const Managers = "/related"

// Marks are the annotations of a copy; that of Bound is a label too.
type Marks struct {
	Bound, Source, Owner, Referrer string
	Own                            func(key string) bool // it is one that a Sync writes
}

// A Side is the objects of the resource on one side, by their watch and live.
type Side struct {
	// Get is what the watch has seen, and as of which version; known is false if that
	// cannot be told.
	Get      func(name cache.ObjectName) (obj metav1.Object, version string, known bool)
	Metadata metadata.Getter
	Objects  dynamic.NamespaceableResourceInterface
}

// Bound is the synced objects of the owner's side.
type Bound interface {
	// Known reports whether those of both sides are.
	Known() bool
	// Referrers are those that refer to an original, and Live reads one.
	Referrers(original cache.ObjectName) []metav1.Object
	Live(ctx context.Context, referrer cache.ObjectName) (*unstructured.Unstructured, error)
}

// Sources is the synced objects of the source side.
type Sources interface {
	// In reports whether there is one in a namespace, and Deserted, live, that there is none.
	In(namespace string) bool
	Deserted(ctx context.Context, namespace string) (bool, error)
	Get(name cache.ObjectName) (obj metav1.Object, known bool)
	Live(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error)
}

// Names maps names, and says who is whose.
type Names interface {
	Copy(original cache.ObjectName) (cache.ObjectName, bool)
	// Source is where the source of a name on the target side is.
	Source(target cache.ObjectName) (cache.ObjectName, bool)
	// Clusters are the UIDs of those of the originals and of the copies; empty if unknown.
	Clusters() (owner, other types.UID)
	// Origin is what a copy, or a target, was made from, and Record how a copy says so.
	Origin(obj metav1.Object) (Origin, bool)
	Record(from Origin) string
}

// Engine is what a Copier has the engine do.
type Engine interface {
	// Confirm makes sure that the clusters are those that are known.
	Confirm(ctx context.Context) error
	// Merge patches the metadata of an object.
	Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) error
	// Tell has a source say a problem, or not any more if text is empty.
	Tell(source cache.ObjectName, id, text string)
	// Denied follows an answer that access to a namespace of the source side is forbidden.
	Denied(namespace string)
	Hooks
}

// Hooks tell the embedding program what happened.
type Hooks interface {
	Wrote(ctx context.Context, step Step, object cache.ObjectName, began time.Time, err error)
	Refused(ctx context.Context, original cache.ObjectName, why string)
}

// A Pace spaces out the copies of one object.
type Pace interface {
	Wait() time.Duration         // until the next copy may be written
	Count()                      // one was begun
	Spend(object map[string]any) // and written
	Rest() time.Duration         // until none counts any more
}

// An Origin is what a copy or target was made from.
type Origin struct {
	UID, Cluster types.UID
	Name         cache.ObjectName
}

// sameSlot reports whether o was made from what is called from, in whatever incarnation.
func (o Origin) sameSlot(from Origin) bool { return o.sameName(from) && o.sameCluster(from) }

func (o Origin) sameName(from Origin) bool { return o.UID != "" && o.Name == from.Name }

func (o Origin) sameCluster(from Origin) bool {
	return o.Cluster == "" || from.Cluster == "" || o.Cluster == from.Cluster
}

// A Copier copies the related objects of one resource from one side, whichever selector
// selects them. Create it with New.
type Copier struct {
	Config
	key []byte // of the HMAC: never leaves the process

	mu      sync.Mutex
	records map[cache.ObjectName]*record
}

// A record is what a Copier remembers of one object between passes.
type record struct {
	pace           Pace
	contest        contest.Contest // with others that change the copy
	original, copy string          // versions that were found, or made, to be the same
	verified       bool            // that the copy has lost its reason has been confirmed live
	shared         bool            // and that another Sync still wants it
	stays          bool            // the original is of a type that does not travel
	problem        string
	claims         []cache.ObjectName // that know of the problem
}

// New returns a Copier.
func New(config Config) *Copier {
	return &Copier{Config: config, key: []byte(rand.Text()), records: map[cache.ObjectName]*record{}}
}

const (
	maxSteps      = 8
	waitPause     = 5 * time.Second  // between looks at what is waited for
	conflictPause = 30 * time.Second // between looks at what is not ours, and not watched
)

// Reconcile brings the copy of the original called key a step further, and says when to
// look again without an event; 0 for never.
func (c *Copier) Reconcile(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	r := c.record(key)
	for range maxSteps {
		p, ok := c.observe(key, r)
		if !ok {
			return c.forget(key, &pair{}, r), nil
		}
		again, done, err := c.step(ctx, p, plan(p.state), r)
		if done || err != nil {
			return again, err
		}
	}
	return time.Second, nil
}

// step does one step; done says that the pass is over.
func (c *Copier) step(ctx context.Context, p *pair, s Step, r *record) (again time.Duration, done bool, err error) {
	if told := r.contest.Told(); !s.tells() && !(told && s == StepRest && p.ours) {
		c.tell(r, nil, "")
	} else if told && s == StepRest {
		c.tell(r, p, c.contested(p, r))
		return r.contest.Peace(), true, nil
	}
	switch wait := max(r.pace.Wait(), r.contest.Pause(p.wish())); {
	case s == StepStay:
		c.tell(r, p, r.problem) // to those that refer to it since
		return 0, true, nil
	case s == StepRest || s == StepWait && !p.taken && p.original == nil: // what is not there is no reason to wait
		return c.forget(p.from.Name, p, r), true, nil
	case s == StepWait:
		return waitPause, true, nil
	case s == StepCopy && wait > 0:
		return wait, true, nil
	}
	done, err = c.do(ctx, p, s, r)
	if fates.Is(err, fates.Forbidden, fates.Terminating) {
		c.Engine.Denied(c.sourceNamespace(p.from.Name, p.name))
	}
	switch {
	case s == StepCopy && fates.Is(err, fates.Forbidden, fates.Terminating):
		c.tell(r, p, c.denied(p.name))
		return waitPause, true, nil
	case r.problem != "" && err == nil && !r.stays:
		return conflictPause, true, nil
	default:
		return 0, done, err
	}
}

func (c *Copier) record(key cache.ObjectName) *record {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.records[key]
	if r == nil {
		r = &record{pace: c.NewPace()}
		c.records[key] = r
	}
	return r
}

// Records is the number of originals that something is remembered of.
func (c *Copier) Records() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.records)
}

// forget drops what is remembered of an object that is not there, once it is not the
// latest of many.
func (c *Copier) forget(key cache.ObjectName, p *pair, r *record) (again time.Duration) {
	if p.travels || p.taken {
		return 0
	}
	c.tell(r, nil, "")
	if rest := r.pace.Rest(); rest > 0 {
		return rest
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.records, key)
	return 0
}
