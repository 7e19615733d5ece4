// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/sync/internal/related"
	"github.com/klutch-go/sdk/sync/internal/view"
)

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

// Known and all that follows implement related.Bound, related.Names and related.Engine.
func (r *relation) Known() bool {
	known, _ := r.referrers.State()
	sources, _ := r.engine.source.State()
	return known && sources
}

func (r *relation) Referrers(original cache.ObjectName) []metav1.Object {
	return r.referrers.By(r.index, original.String())
}

func (r *relation) Live(ctx context.Context, referrer cache.ObjectName) (*unstructured.Unstructured, error) {
	return r.owner.reader(r.engine.resource)(ctx, referrer)
}

func (r *relation) Copy(original cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.Source(original)
	}
	return r.engine.targetName(original, false)
}

func (r *relation) originalName(copied cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.targetName(copied, false)
	}
	return r.Source(copied)
}

func (r *relation) Source(target cache.ObjectName) (cache.ObjectName, bool) {
	return r.engine.opts.Mapper.Source(target)
}

func (r *relation) Clusters() (owner, other types.UID) {
	if r.From == TargetSide {
		return r.engine.targetUID, r.engine.sourceUID
	}
	return r.engine.sourceUID, r.engine.targetUID
}

func (r *relation) Origin(obj metav1.Object) (related.Origin, bool) {
	o, ok := OriginOf(obj)
	return related.Origin{UID: o.UID, Cluster: o.Cluster, Name: cache.NewObjectName(o.Namespace, o.Name)}, ok
}

func (r *relation) Record(from related.Origin) string {
	return origin{cluster: from.Cluster, uid: from.UID, name: from.Name}.record(0, "")
}

func (r *relation) Confirm(ctx context.Context) error {
	return r.engine.confirm(ctx, r.engine.fence.Now(), "")
}

func (r *relation) Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) error {
	_, err := r.engine.merge(ctx, client, name, metadata)
	return err
}

func (r *relation) Tell(source cache.ObjectName, id, text string) {
	r.engine.setProblem(source, r.index+id, text)
	r.engine.queue.Add(source, queue.Related)
}

func (r *relation) Denied(namespace string) {
	if a := r.engine.access; a != nil {
		a.Lose(namespace)
	}
}

func (r *relation) Wrote(ctx context.Context, step related.Step, object cache.ObjectName, began time.Time, err error) {
	side := TargetSide
	if r.From == TargetSide {
		side = SourceSide
	}
	r.engine.opts.Hooks.wrote(ctx, Write{Side: side, Step: string(step), Object: object, Took: time.Since(began), Err: err})
}

func (r *relation) Refused(ctx context.Context, original cache.ObjectName, why string) {
	r.engine.opts.Hooks.refused(ctx, Refusal{Resource: r.Resource, From: r.From, Object: original, Why: why})
}

// targetName is where an object is on the target. Only a source is a reason to want a
// namespace for it.
func (e *engine) targetName(name cache.ObjectName, isSource bool) (cache.ObjectName, bool) {
	if table, ok := e.opts.Mapper.(*Namespaces); ok && !isSource {
		return table.known(name)
	}
	return e.opts.Mapper.Target(name)
}

// setProblem notes why a related object of a source cannot travel, or that it
// can again.
func (e *engine) setProblem(source cache.ObjectName, id, text string) {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	problems := e.problems[source]
	if text == "" {
		delete(problems, id)
		if len(problems) == 0 {
			delete(e.problems, source)
		}
		return
	}
	if problems == nil {
		problems = map[string]string{}
		e.problems[source] = problems
	}
	problems[id] = text
}
