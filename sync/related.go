// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/pace"
	"github.com/klutch-go/sdk/sync/internal/related"
	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/view"
)

// A relatedResource is the related objects of one resource and side: a [related.Copier]
// with its watches and its queue. Its keys are the names of originals.
type relatedResource struct {
	family
	copier         *related.Copier
	mapper         Mapper
	original, copy *view.View
	queue          *queue.Queue
}

// A family are the related objects that share their names: all that select some
// of one must agree on what stands under a name.
type family struct {
	Resource schema.GroupVersionResource
	From     Side
}

// newRelated returns the related objects of e.
func newRelated(e *engine, p *queue.Pool) []*relatedResource {
	var out []*relatedResource
	for _, spec := range e.opts.Related {
		f := family{spec.Resource, spec.From}
		at := slices.IndexFunc(out, func(r *relatedResource) bool { return r.family == f })
		if at < 0 {
			at, out = len(out), append(out, newRelatedResource(e, p, f))
		}
		out[at].copier.Selectors = append(out[at].copier.Selectors, newSelector(spec))
	}
	return out
}

func newRelatedResource(e *engine, p *queue.Pool, f family) *relatedResource {
	r := &relatedResource{family: f, mapper: e.opts.Mapper}
	owner, other, referrers := e.sync.from, e.sync.to, e.source
	if f.From == TargetSide {
		owner, other, referrers = other, owner, e.target
	}
	called := relatedNames{mapper: e.opts.Mapper, guard: e.guard, annotation: e.names.Source, fromTarget: f.From == TargetSide}
	r.original = r.newView(e, "related original", owner, "", func(n cache.ObjectName) (cache.ObjectName, bool) { return n, true })
	r.copy = r.newView(e, "related copy", other, e.names.Bound+"=true", called.original)
	index := "references to " + f.Resource.String() + " of " + string(f.From)
	r.copier = related.New(related.Config{
		Resource: f.Resource, FromTarget: f.From == TargetSide, Manager: e.names.RelatedManager(related.Managers), Names: called, Sources: e.counts,
		Marks:     related.Marks{Bound: e.names.Bound, Source: e.names.Source, Owner: e.names.Owner, Referrer: e.names.Referrer, Own: e.names.Own},
		Originals: relatedSide(r.original, owner, f.Resource), Copies: relatedSide(r.copy, other, f.Resource),
		Bound:   relatedBound{index: index, referrers: referrers, sources: e.source},
		Engine:  relatedEngine{family: f, index: index, engine: e},
		NewPace: func() related.Pace { return &pace.Copy{Budget: &e.statuses, OnSource: f.From == TargetSide} },
	})
	referrers.Index(index, view.NewIndex(r.copier.References, r.referred))
	r.queue = p.Queue(r.reconcile, queue.Options{Name: "related", Limit: max(e.opts.Workers/4, 1)})
	return r
}

func (r *relatedResource) newView(e *engine, name string, c *Cluster, selector string, key func(cache.ObjectName) (cache.ObjectName, bool)) *view.View {
	return view.New(view.Config{
		Name: name + " " + r.Resource.Resource, List: c.metadataLister(r.Resource, selector, slim.Related(e.names, related.Managers)), Stores: c.stores,
		Moved: func(string) { r.remapped(); e.sync.notify() }, Lost: e.lost, Doubt: e.guard.Doubt,
		Changed: func(o view.Change) {
			if k, ok := key(o.Name); ok {
				r.queue.Add(k, o.Class(queue.Related))
			}
		},
	})
}

// OnSource is what is watched on the source.
func (r *relatedResource) OnSource() *view.View {
	if r.From == TargetSide {
		return r.copy
	}
	return r.original
}

// onTarget is what is watched on the target.
func (r *relatedResource) onTarget() *view.View {
	if r.From == TargetSide {
		return r.original
	}
	return r.copy
}

// CopiesOf reports whether there are copies by this Sync, on either side, that belong
// to a namespace of the source, and whether that is known.
func (r *relatedResource) CopiesOf(namespace string) (some, known bool) {
	if r.From == SourceSide {
		target, ok := targetName(r.mapper, cache.NewObjectName(namespace, ""), false)
		if namespace = target.Namespace; !ok {
			return false, true
		}
	}
	p := r.copy.Part(namespace)
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

func (r *relatedResource) run(ctx context.Context) { r.queue.Run(ctx) }

func (r *relatedResource) close() {
	r.queue.Close()
	r.original.Close()
	r.copy.Close()
}

// remapped queues all related objects.
func (r *relatedResource) remapped() {
	for _, v := range []*view.View{r.original, r.copy} {
		for _, name := range v.Keys() {
			v.Changed(view.Change{Name: name, Initial: true})
		}
	}
}

// allOf is the key of all related objects of a source namespace.
func allOf(namespace string) cache.ObjectName { return cache.NewObjectName(namespace, "") }

// stir queues all related objects of a source namespace.
func (r *relatedResource) stir(namespace string) {
	for _, v := range []*view.View{r.original, r.copy} {
		atSource := (v == r.original) == (r.From == SourceSide)
		for _, name := range v.Within(func(name cache.ObjectName) bool { return r.isIn(namespace, name, atSource) }) {
			v.Changed(view.Change{Name: name})
		}
	}
}

// isIn reports whether an object of the source's side, or of the target's, belongs to
// a source namespace.
func (r *relatedResource) isIn(namespace string, name cache.ObjectName, atSource bool) bool {
	if atSource {
		return name.Namespace == namespace
	}
	source, ok := r.mapper.Source(name)
	return ok && source.Namespace == namespace
}

// referred queues what a bound object refers to.
func (r *relatedResource) referred(name string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(name); err == nil {
		r.queue.Add(cache.NewObjectName(namespace, name), queue.Related)
	}
}

func (r *relatedResource) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if key.Name == "" {
		r.stir(key.Namespace)
		return 0, nil
	}
	return r.copier.Reconcile(ctx, key)
}

// newSelector completes what validate has found to be good.
func newSelector(spec Related) related.Selector {
	s := related.Selector{
		Names: spec.Names, Namespaces: spec.Namespaces, Except: spec.Except, Labels: labels.Everything(),
		KeepLabels: spec.KeepLabels, KeepAnnotations: spec.KeepAnnotations, SecretTypes: spec.SecretTypes,
	}
	if len(s.SecretTypes) == 0 {
		s.SecretTypes = DefaultSecretTypes()
	}
	if match, err := labels.Parse(spec.Labels); err == nil {
		s.Labels = match
	}
	for _, path := range spec.References {
		if fields, err := related.Path(path); err == nil {
			s.References = append(s.References, fields)
		}
	}
	return s
}

// relatedSide is a side of the resource as a Copier sees it.
func relatedSide(v *view.View, c *Cluster, resource schema.GroupVersionResource) related.Side {
	return related.Side{Get: v.Get, Metadata: c.meta.Resource(resource), Objects: c.writes.Resource(resource)}
}

// relatedBound implements related.Bound.
type relatedBound struct {
	index              string // of the referrers, by the name of what they refer to
	referrers, sources *view.View
}

func (b relatedBound) Known() bool {
	known, _ := b.referrers.State()
	sources, _ := b.sources.State()
	return known && sources
}

func (b relatedBound) Referrers(original cache.ObjectName) []metav1.Object {
	return b.referrers.By(b.index, original.String())
}

func (b relatedBound) Live(ctx context.Context, referrer cache.ObjectName) (*unstructured.Unstructured, error) {
	return b.referrers.Live(ctx, referrer)
}

// relatedNames implements related.Names.
type relatedNames struct {
	mapper     Mapper
	guard      *fence.Guard
	annotation string
	fromTarget bool
}

func (n relatedNames) Copy(original cache.ObjectName) (cache.ObjectName, bool) {
	if n.fromTarget {
		return n.Source(original)
	}
	return targetName(n.mapper, original, false)
}

func (n relatedNames) original(copied cache.ObjectName) (cache.ObjectName, bool) {
	if n.fromTarget {
		return targetName(n.mapper, copied, false)
	}
	return n.Source(copied)
}

func (n relatedNames) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	return n.mapper.Source(target)
}

func (n relatedNames) Clusters() (owner, other types.UID) {
	if n.fromTarget {
		return n.guard.TargetUID, n.guard.SourceUID
	}
	return n.guard.SourceUID, n.guard.TargetUID
}

func (n relatedNames) Origin(obj metav1.Object) (related.Origin, bool) {
	o, ok := originIn(n.annotation, obj)
	return related.Origin{UID: o.UID, Cluster: o.Cluster, Name: cache.NewObjectName(o.Namespace, o.Name)}, ok
}

func (n relatedNames) Record(from related.Origin) string {
	return origin{cluster: from.Cluster, uid: from.UID, name: from.Name}.record(0, "")
}

// relatedEngine implements related.Engine.
type relatedEngine struct {
	family
	index  string
	engine *engine
}

func (r relatedEngine) Confirm(ctx context.Context) error {
	return r.engine.guard.Confirm(ctx, r.engine.guard.Now(), "")
}

func (r relatedEngine) Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) error {
	return r.engine.write.Merge(ctx, client, name, metadata)
}

func (r relatedEngine) Tell(source cache.ObjectName, id, text string) {
	r.engine.reports.setProblem(source, r.index+id, text)
	r.engine.queue.Add(source, queue.Related)
}

func (r relatedEngine) Denied(namespace string) { r.engine.denied(namespace) }

func (r relatedEngine) Wrote(ctx context.Context, step related.Step, object cache.ObjectName, began time.Time, err error) {
	side := TargetSide
	if r.From == TargetSide {
		side = SourceSide
	}
	r.engine.opts.Hooks.wrote(ctx, Write{Side: side, Step: string(step), Object: object, Took: time.Since(began), Err: err})
}

func (r relatedEngine) Refused(ctx context.Context, original cache.ObjectName, why string) {
	r.engine.opts.Hooks.refused(ctx, Refusal{Resource: r.Resource, From: r.From, Object: original, Why: why})
}

// travels reports whether related objects of a namespace may travel at all.
func (o Options) travels(namespace string) bool {
	return slices.ContainsFunc(o.Related, func(r Related) bool { return related.Allows(r.Namespaces, namespace) })
}
