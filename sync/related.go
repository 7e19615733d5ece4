// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/sync/internal/related"
)

// A relation gives a [related.Copier] of one resource and side its watches, its queue, and
// what it needs of the engine. Its keys are the names of originals.
type relation struct {
	family
	engine         *engine
	copier         *related.Copier
	index          string // of the referrers, by the name of what they refer to
	owner, other   *Cluster
	original, copy *view
	referrers      *view
	queue          *queue.Queue
}

// A family are the related objects that share their names: all that select some
// of one must agree on what stands under a name.
type family struct {
	Resource schema.GroupVersionResource
	From     Side
}

// newRelations returns one relation for each resource and side.
func newRelations(e *engine, p *queue.Pool) []*relation {
	var out []*relation
	for _, spec := range e.opts.Related {
		f := family{spec.Resource, spec.From}
		at := slices.IndexFunc(out, func(r *relation) bool { return r.family == f })
		if at < 0 {
			at, out = len(out), append(out, newRelation(e, p, f))
		}
		out[at].copier.Selectors = append(out[at].copier.Selectors, newSelector(spec))
	}
	return out
}

func newRelation(e *engine, p *queue.Pool, f family) *relation {
	r := &relation{family: f, engine: e, owner: e.from, other: e.to, referrers: e.source}
	r.index = "references to " + f.Resource.String() + " of " + string(f.From)
	if f.From == TargetSide {
		r.owner, r.other, r.referrers = e.to, e.from, e.target
	}
	r.original = r.newView("related original", r.owner, "", func(n cache.ObjectName) (cache.ObjectName, bool) { return n, true })
	r.copy = r.newView("related copy", r.other, BoundAnnotation+"=true", r.originalName)
	former := e.opts.FormerSource
	if f.From == TargetSide {
		former = ""
	}
	r.copier = related.New(related.Config{Former: former,
		Resource: f.Resource, FromTarget: f.From == TargetSide, Manager: e.fieldManager + related.Managers,
		Marks:     related.Marks{Bound: BoundAnnotation, Source: SourceAnnotation, Owner: OwnerAnnotation, Referrer: ReferrerAnnotation},
		Originals: relatedSide(r.original, r.owner, f.Resource), Copies: relatedSide(r.copy, r.other, f.Resource),
		Bound: r, Sources: e.sourceCounts, Names: r, Engine: r,
		NewPace: func() related.Pace { return &copyPace{budget: &e.statuses, bounded: f.From == TargetSide} },
	})
	r.referrers.indexes[r.index] = newIndex(r.copier.References, r.referred)
	r.queue = p.Queue(r.reconcile, queue.Options{Name: "related", Limit: max(e.opts.Workers/4, 1)})
	return r
}

func (r *relation) newView(name string, c *Cluster, selector string, key func(cache.ObjectName) (cache.ObjectName, bool)) *view {
	return &view{
		name: name + " " + r.Resource.Resource, list: c.metadataLister(r.Resource, selector), stores: c.stores, indexes: map[string]*index{}, parts: map[string]*part{},
		moved: func(string) { r.remapped(); r.engine.notify() }, lost: r.lost, doubt: r.engine.doubt,
		changed: func(o change) {
			if k, ok := key(o.name); ok {
				r.queue.Add(k, o.class(queue.Related))
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
	if p == nil || !p.Known() {
		return false, false
	}
	return slices.ContainsFunc(p.Names(), func(name cache.ObjectName) bool {
		o, _, _ := p.Get(name)
		if o == nil || name.Namespace != namespace {
			return false
		}
		ours, _ := r.copier.Holders(o.GetObjectMeta())
		return ours
	}), true
}

// slimRelated keeps of the metadata of a related object what tells whose it is, and
// its labels. An annotation of kubectl has all the content.
func slimRelated(obj any) any {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.ManagedFields = slices.DeleteFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return !strings.HasSuffix(entry.Manager, related.Managers)
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

func (r *relation) run(ctx context.Context) { r.queue.Run(ctx) }

func (r *relation) close() {
	r.queue.Close()
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
		r.queue.Add(cache.NewObjectName(namespace, name), queue.Related)
	}
}

func (r *relation) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key.Name == "" {
		r.stir(key.Namespace)
		return 0, nil
	}
	return r.copier.Reconcile(ctx, key)
}
