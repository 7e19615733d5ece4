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

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/sync/internal/breaker"
	"github.com/klutch-go/sdk/sync/internal/fence"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/refusal"
	"github.com/klutch-go/sdk/sync/internal/related"
	"github.com/klutch-go/sdk/sync/internal/view"
	"github.com/klutch-go/sdk/sync/internal/writer"
)

// A relatedResource is the related objects of one resource and side: a [related.Copier]
// with its watches and its queue. Its keys are the names of originals.
type relatedResource struct {
	family
	copier         *related.Copier
	refused        *refusal.Ledger
	mapper         Mapper
	original, copy *view.View
	queue          *queue.Queue
}

// A family are the related objects of one resource and one side: all Related that select some
// of them must agree on the object under a name.
type family struct {
	Resource schema.GroupVersionResource
	From     Side
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
// to a namespace of the source, and whether that is known. Of one that is not mapped none can be
// taken back.
func (r *relatedResource) CopiesOf(namespace string) (some, known bool) {
	target, mapped := targetName(r.mapper, cache.NewObjectName(namespace, ""), false)
	if r.From == SourceSide {
		namespace = target.Namespace
	}
	p := r.copy.Part(namespace)
	if p == nil || !p.Known() {
		return false, !mapped
	}
	return slices.ContainsFunc(p.Names(), func(name cache.ObjectName) bool {
		o, _, _ := p.Get(name)
		if o == nil || name.Namespace != namespace {
			return false
		}
		ours, _ := r.copier.MadeBy(o.GetObjectMeta())
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

// late follows a key that waits behind others that are not answered.
func (r *relatedResource) late(_ context.Context, key cache.ObjectName, _ queue.Priority) {
	if key.Name != "" {
		r.copier.Late(key)
	}
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
	names              *names.Names
	finalizer          string
}

func (b relatedBound) Known() bool {
	known, _ := b.referrers.State()
	sources, _ := b.sources.State()
	return known && sources
}

func (b relatedBound) Referrers(original cache.ObjectName) []metav1.Object {
	return b.referrers.By(b.index, original.String())
}

func (b relatedBound) Leaving(original cache.ObjectName, all bool) bool {
	if all {
		return b.sources.Has(leaving, original.Namespace) || b.sources.Has(leaving, metav1.NamespaceAll)
	}
	return slices.ContainsFunc(b.Referrers(original), func(o metav1.Object) bool { return leavingWith(b.finalizer)(o) != nil })
}

func (b relatedBound) MadeFrom(target *unstructured.Unstructured, source types.UID) bool {
	made, _ := originIn(b.names.Source, target)
	return madeFrom(b.names, made, target, source)
}

// leaving is the index, by namespace, of the sources that are being deleted and whose targets
// have not gone.
const leaving = "leaving"

func leavingWith(finalizer string) func(metav1.Object) []string {
	return func(source metav1.Object) []string {
		if source.GetDeletionTimestamp() == nil || !slices.Contains(source.GetFinalizers(), finalizer) {
			return nil
		}
		return []string{source.GetNamespace()}
	}
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
	return related.Origin{UID: o.UID, Cluster: o.cluster(), Name: cache.NewObjectName(o.Namespace, o.Name)}, ok
}

func (n relatedNames) Record(from related.Origin) string {
	return origin{cluster: from.Cluster, uid: from.UID, name: from.Name}.record(0, "")
}

// relatedEngine implements related.Engine.
type relatedEngine struct {
	family
	index   string
	guard   *fence.Guard
	write   *writer.Writer
	reports *reports
	sources *queue.Queue
	denied  func(namespace string)
	heldCopies
}

// heldCopies are those of a resource that go, too many at once.
type heldCopies struct {
	resource string // with the side
	sync     *Sync
	count    func() int // of copies that there are
}

func (h heldCopies) key(original cache.ObjectName) cache.ObjectName {
	return cache.NewObjectName(original.Namespace, h.resource+" "+original.Name)
}

func (h heldCopies) Hold(ctx context.Context, original cache.ObjectName, uid types.UID, free bool) (why string, err error) {
	if h.sync.suspect.Load() {
		h.sync.copies.Trip(fence.DoubtCause, false)
	}
	ask := breaker.Request{Source: h.key(original), Going: string(uid), Free: free, Deletes: true, Objects: h.count}
	if why = h.sync.copies.Ask(ask).Why; why != "" {
		h.sync.notify()
	}
	return why, h.sync.journal.Write(ctx)
}

func (h heldCopies) Blocks(original cache.ObjectName) string {
	return h.sync.copies.Blocks(h.key(original)).Why
}

func (h heldCopies) Forget(original cache.ObjectName) {
	before := h.sync.copies.Held()
	if h.sync.copies.Forget(h.key(original)); h.sync.copies.Held() != before {
		h.sync.notify()
	}
}

func (r relatedEngine) Confirm(ctx context.Context) error {
	return r.guard.Confirm(ctx, r.guard.Now(), "")
}

func (r relatedEngine) Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) error {
	_, err := r.write.Merge(ctx, client, name, metadata)
	return err
}

func (r relatedEngine) TakeAway(ctx context.Context, client dynamic.ResourceInterface, seen *unstructured.Unstructured, pointers []string) (*unstructured.Unstructured, error) {
	return r.write.TakeAway(ctx, client, seen, pointers)
}

func (r relatedEngine) Tell(source cache.ObjectName, id, text string) {
	r.reports.setProblem(source, r.index+id, text)
	r.sources.Add(source, queue.Related)
}

func (r relatedEngine) Notify() { r.sync.notify() }

func (r relatedEngine) Denied(namespace string) { r.denied(namespace) }

func (r relatedEngine) Wrote(ctx context.Context, step related.Step, object cache.ObjectName, began time.Time, err error) {
	side := TargetSide
	if r.From == TargetSide {
		side = SourceSide
	}
	r.reports.hooks.wrote(ctx, Write{Side: side, Step: string(step), Object: object, Took: time.Since(began), Err: fates.Silent(err)})
}

func (r relatedEngine) Refused(ctx context.Context, original cache.ObjectName, why string) {
	r.reports.hooks.refused(ctx, Refusal{Resource: r.Resource, From: r.From, Object: original, Why: why})
}
