// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A relation copies the related objects of one resource from one side, whichever
// selector selects them. Its keys are the names of originals.
type relation struct {
	family
	engine         *engine
	selectors      []selector
	index          string // of the referrers, by the name of what they refer to
	owner, other   *Cluster
	original, copy *view
	referrers      *view
	queue          *lane
	key            []byte // of the HMAC: never leaves the process

	mu      sync.Mutex
	records map[cache.ObjectName]*copied
}

// copied is what a relation remembers of one object between passes.
type copied struct {
	pace // of looks at the content

	original, copy string // versions that were found, or made, to be the same
	verified       bool   // that the copy has lost its reason has been confirmed live
	shared         bool   // and that another Sync still wants it
	stays          bool   // the original is of a type that does not travel
	problem        string
	claims         []cache.ObjectName // that know of the problem
}

// A family are the related objects that share their names: all that select some
// of one must agree on what stands under a name.
type family struct {
	Resource schema.GroupVersionResource
	From     Side
}

// newRelations returns one relation for each resource and side.
func newRelations(e *engine, p *pool) []*relation {
	var out []*relation
	for _, spec := range e.opts.Related {
		f := family{spec.Resource, spec.From}
		at := slices.IndexFunc(out, func(r *relation) bool { return r.family == f })
		if at < 0 {
			at, out = len(out), append(out, newRelation(e, p, f))
		}
		out[at].selectors = append(out[at].selectors, newSelector(spec))
	}
	return out
}

func newRelation(e *engine, p *pool, f family) *relation {
	r := &relation{family: f, engine: e, records: map[cache.ObjectName]*copied{}, key: []byte(rand.Text())}
	r.index = "references to " + f.Resource.String() + " of " + string(f.From)
	r.owner, r.other, r.referrers = e.from, e.to, e.source
	if f.From == TargetSide {
		r.owner, r.other, r.referrers = e.to, e.from, e.target
	}
	r.referrers.indexes[r.index] = newIndex(r.references, r.referred)
	r.original = r.newView("related original", r.owner, "", func(n cache.ObjectName) (cache.ObjectName, bool) { return n, true })
	r.copy = r.newView("related copy", r.other, BoundAnnotation+"=true", r.ownerName)
	r.queue = p.lane("related", max(e.opts.Workers/4, 1), r.reconcile)
	return r
}

func (r *relation) newView(name string, c *Cluster, selector string, key func(cache.ObjectName) (cache.ObjectName, bool)) *view {
	return &view{
		name: name + " " + r.Resource.Resource, list: c.metadataLister(r.Resource, selector), indexes: map[string]*index{}, parts: map[string]*part{},
		moved: func(string) { r.remapped(); r.engine.notify() }, lost: r.lost, doubt: r.engine.doubt,
		changed: func(o change) {
			if k, ok := key(o.name); ok {
				r.queue.add(k, o.class(classRelated))
			}
		},
	}
}

// lost is called when objects cannot be read any more.
func (r *relation) lost() {
	if r.engine.access != nil {
		r.engine.access.doubt()
	}
	r.engine.notify()
}

// refused has the engine make sure of its access to where t is on the source.
func (r *relation) refused(t *transfer) {
	if a := r.engine.access; a != nil && r.From == TargetSide {
		a.lose(t.name.Namespace)
	} else if a != nil {
		a.lose(t.from.name.Namespace)
	}
}

// onSource is what is watched on the source.
func (r *relation) onSource() *view {
	if r.From == TargetSide {
		return r.copy
	}
	return r.original
}

// copiesOf reports whether there are copies by this Sync, on either side, that belong
// to a namespace of the source, and whether that is known.
func (r *relation) copiesOf(namespace string) (some, known bool) {
	if r.From == SourceSide {
		target, ok := r.engine.targetName(cache.NewObjectName(namespace, ""), false)
		if namespace = target.Namespace; !ok {
			return false, true
		}
	}
	p := r.copy.part(namespace)
	if p == nil || !p.known() {
		return false, false
	}
	return slices.ContainsFunc(p.names(), func(name cache.ObjectName) bool {
		o, _, _ := p.get(name)
		if o == nil || name.Namespace != namespace {
			return false
		}
		ours, _ := r.holders(o.GetObjectMeta())
		return ours
	}), true
}

// uids are those of the clusters of the originals and of the copies.
func (r *relation) uids() (owner, other types.UID) {
	if r.From == TargetSide {
		return r.engine.targetUID, r.engine.sourceUID
	}
	return r.engine.sourceUID, r.engine.targetUID
}

// slimRelated keeps of the metadata of a related object what tells whose it is, and
// its labels. An annotation of kubectl has all the content.
func slimRelated(obj any) any {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return !strings.HasSuffix(entry.Manager, relatedManager)
		})
		for i, entry := range o.ManagedFields {
			o.ManagedFields[i] = metav1.ManagedFieldsEntry{Manager: entry.Manager}
		}
		maps.DeleteFunc(o.Annotations, func(key, _ string) bool {
			return !strings.HasPrefix(key, domain) && key != corev1.ServiceAccountNameKey
		})
		o.OwnerReferences, o.Finalizers = nil, nil
	}
	return obj
}

// relatedManager ends the field manager of copies.
const relatedManager = "/related"

func (r *relation) manager() string { return r.engine.fieldManager + relatedManager }

// holders reports whether a copy was made by this Sync, and whether by others.
// Each of those that want it applies all of it.
func (r *relation) holders(o metav1.Object) (ours, others bool) {
	for _, entry := range o.GetManagedFields() {
		if strings.HasSuffix(entry.Manager, relatedManager) {
			ours = ours || entry.Manager == r.manager()
			others = others || entry.Manager != r.manager()
		}
	}
	return ours, others
}

// watch leaves to the engine's access, if it has one, what is watched on the source.
func (r *relation) watch(ctx context.Context) {
	target := r.copy
	if r.From == TargetSide {
		target = r.original
	}
	r.engine.scope(ctx, target)
	if r.engine.access == nil {
		r.onSource().add(ctx, metav1.NamespaceAll)
	}
}

func (r *relation) run(ctx context.Context) { r.queue.run(ctx) }

func (r *relation) close() {
	r.queue.close()
	r.original.close()
	r.copy.close()
}

// remapped queues all related objects.
func (r *relation) remapped() {
	for _, v := range []*view{r.original, r.copy} {
		for _, name := range v.keys() {
			v.changed(change{name: name, initial: true})
		}
	}
}

// allOf is the key of all related objects of a source namespace.
func allOf(namespace string) cache.ObjectName { return cache.NewObjectName(namespace, "") }

// stir queues all related objects of a source namespace.
func (r *relation) stir(namespace string) {
	for _, v := range []*view{r.original, r.copy} {
		atSource := (v == r.original) == (r.From == SourceSide)
		for _, name := range v.within(func(name cache.ObjectName) bool { return r.engine.isIn(namespace, name, atSource) }) {
			v.changed(change{name: name})
		}
	}
}

// isIn reports whether an object of the source's side, or of the target's, belongs to
// a source namespace.
func (e *engine) isIn(namespace string, name cache.ObjectName, atSource bool) bool {
	if atSource {
		return name.Namespace == namespace
	}
	source, ok := e.opts.Mapper.Source(name)
	return ok && source.Namespace == namespace
}

// referred queues what a bound object refers to.
func (r *relation) referred(name string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(name); err == nil {
		r.queue.add(cache.NewObjectName(namespace, name), classRelated)
	}
}

func (r *relation) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key.Name == "" {
		r.stir(key.Namespace)
		return 0, nil
	}
	c := r.record(key)
	for range maxSteps {
		t, ok := r.observe(key, c)
		if !ok {
			return r.forget(key, &transfer{}, c), nil
		}
		s := planRelated(t.relatedState)
		if s != stepConflict && s != stepBarred && s != stepWait && s != stepCopy && s != stepStay {
			r.tell(c, nil, "")
		}
		if s == stepStay {
			r.tell(c, t, c.problem) // to those that refer to it since
			return 0, nil
		}
		if s == stepRest || s == stepWait && !t.taken && t.original == nil { // what is not there is no reason to wait
			return r.forget(key, t, c), nil
		}
		if s == stepWait {
			return waitPause, nil
		}
		if wait := r.copyWait(c); s == stepCopy && wait > 0 {
			return wait, nil
		}
		done, err := r.do(ctx, t, s, c)
		if apierrors.IsForbidden(err) {
			r.refused(t)
		}
		if s == stepCopy && apierrors.IsForbidden(err) {
			r.tell(c, t, r.denied(t.name))
			return waitPause, nil
		}
		if c.problem != "" && err == nil && !c.stays {
			return livePause, nil // what is not ours is not watched
		}
		if done || err != nil {
			return 0, err
		}
	}
	return time.Second, nil
}

func (r *relation) record(key cache.ObjectName) *copied {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.records[key]
	if c == nil {
		c = &copied{}
		r.records[key] = c
	}
	return c
}

// forget drops what is remembered of an object that is not there, once it is not the
// latest of many.
func (r *relation) forget(key cache.ObjectName, t *transfer, c *copied) time.Duration {
	if t.travels || t.taken {
		return 0
	}
	r.tell(c, nil, "")
	if pause := r.engine.statuses.pause(); c.pending(pause) > 0 {
		return max(c.wait(1, pause), time.Millisecond)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, key)
	return 0
}
