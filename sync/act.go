// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/fields"
)

// do does one step of plan: at most one write. What it learns goes to r.
func (e *engine) do(ctx context.Context, p *pair, s step, r *record) error {
	switch s {
	case stepLookSource:
		r.answers.lookSource = true
		return nil
	case stepLookTarget:
		r.answers.lookTarget = true
		return nil
	case stepProve:
		r.answers.lookSource, r.answers.lookTarget = true, true
		return nil
	case stepConfirm:
		return e.confirmed(ctx, &r.proofs, p.source.GetResourceVersion())
	case stepSetMessage, stepAddFinalizer, stepMark, stepRemoveFinalizer, stepStatus:
		return e.doSource(ctx, p, s, r)
	default:
		return e.doTarget(ctx, p, s, r)
	}
}

// doSource does a step that writes to the source.
func (e *engine) doSource(ctx context.Context, p *pair, s step, r *record) error {
	began := time.Now()
	var obj *unstructured.Unstructured
	var err error
	switch s {
	case stepSetMessage:
		obj, err = e.setMessage(ctx, p)
		r.status.messages.count(1, messagePause)
	case stepAddFinalizer:
		if obj, err = e.addFinalizer(ctx, p); err == nil {
			r.proofs.source = p.from.uid
		}
	case stepMark:
		obj, err = e.annotate(ctx, p, TargetAnnotation, p.state.target.uid)
	case stepRemoveFinalizer:
		obj, err = e.removeFinalizer(ctx, p)
	default:
		obj, err = e.giveStatus(ctx, p, r)
	}
	e.opts.Hooks.wrote(ctx, Write{Side: SourceSide, Step: string(s), Object: p.key, Took: time.Since(began), Err: err})
	switch {
	case err == nil:
		r.answers.source, r.answers.listed = e.source.slimmed(obj), p.sources
	case absent(err) && s != stepStatus:
		err = nil // the source has gone meanwhile; its event brings us back
		r.answers.source, r.answers.lookSource = nil, true
	default:
		r.answers.lookSource = true
	}
	return err
}

// doTarget does a step that writes to the target.
func (e *engine) doTarget(ctx context.Context, p *pair, s step, r *record) error {
	began := time.Now()
	var obj *unstructured.Unstructured
	var err error
	switch s {
	case stepCreate:
		obj, err = e.apply(ctx, p, pins{version: nothing})
	case stepApply:
		obj, err = e.apply(ctx, p, p.pins())
	case stepEmptyMap:
		obj, err = e.empty(ctx, p)
	case stepForce:
		obj, err = e.force(ctx, p)
	case stepMigrate:
		obj, err = e.migrate(ctx, p)
	case stepOrphan:
		obj, err = e.orphan(ctx, p)
	case stepCollect:
		obj, err = e.remove(ctx, p, r)
		e.breaker.Forget(p.key) // a new source of the name is counted for itself
	default:
		obj, err = e.remove(ctx, p, r)
	}
	e.opts.Hooks.wrote(ctx, Write{Side: TargetSide, Step: string(s), Object: p.name, Took: time.Since(began), Err: err})
	r.answers.lookTarget = obj == nil && r.answers.gone == ""
	r.proofs.confirmed = r.proofs.confirmed && r.answers.gone != "" // it was for this one
	if err != nil {
		return e.classify(p, s, r, err)
	}
	r.refusals.deletion = nil
	if obj != nil {
		r.answers.target = e.target.slimmed(obj)
		if s == stepMigrate || s == stepEmptyMap || s == stepDelete || s == stepCollect {
			return nil
		}
		r.refusals.intent, r.refusals.fields = nil, nil
		if s == stepCreate {
			r.drift.contest.Made(p.wish)
		} else {
			r.drift.contest.Wrote(p.wish)
		}
		p.target = r.answers.target
		r.drift.accepted, r.drift.listed, r.drift.target = e.acceptance(p), p.targets, p.target.GetUID()
	}
	return nil
}

// pins make the API server refuse an apply unless the target is just this one.
type pins struct {
	uid     types.UID
	version string
	force   bool
}

// pins are those of an apply to a known target. What we know of it may be from
// before someone else's time, and an earlier request of ours may arrive only now:
// neither must bring back an older generation of the source.
func (p *pair) pins() pins {
	return pins{uid: p.target.GetUID(), version: p.target.GetResourceVersion()}
}

// nothing is a resourceVersion that no object ever has. An apply that pins it
// creates an object, or meets a conflict if there is one.
const nothing = "1"

func (e *engine) apply(ctx context.Context, p *pair, pin pins) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: p.want.object}
	if pin.uid != "" {
		object.SetUID(pin.uid)
	}
	if pin.version != "" {
		object.SetResourceVersion(pin.version)
	}
	return e.targets(p.name.Namespace).Apply(ctx, p.name.Name, object, metav1.ApplyOptions{FieldManager: e.manager(p.from.uid), Force: pin.force})
}

// force takes over what others hold of a target, in the version that we saw.
func (e *engine) force(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	pin := p.pins()
	pin.force = true
	return e.apply(ctx, p, pin)
}

// remove deletes the target, if it still is in the version that we saw. The answer
// that this very object is no more is as good as a live look: no other cluster had it.
func (e *engine) remove(ctx context.Context, p *pair, r *record) (*unstructured.Unstructured, error) {
	uid, version := p.target.GetUID(), p.target.GetResourceVersion()
	o, err := e.to.delete(ctx, e.resource, p.name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if absent(err) {
		return nil, nil //nolint:nilnil // where it went has to be looked at
	}
	if err == nil && o.gone == uid {
		r.answers.gone = uid
	}
	return o.left, err
}

// orphan takes our identity and our claim to fields off the target, and leaves
// the fields: an empty apply would remove them.
func (e *engine) orphan(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	full, err := e.targets(p.name.Namespace).Get(ctx, p.name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	ours := map[string]any{BoundAnnotation: nil, SourceAnnotation: nil, OrphanedAnnotation: e.display(p.key)}
	others := fields.Except(full, func(entry fields.Entry) bool { return entry.Manager == e.manager(p.from.uid) })
	if len(others) == 0 {
		others = []any{map[string]any{}} // an empty list would be ignored
	}
	return e.merge(ctx, e.targets(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(p.target.GetUID()), "resourceVersion": full.GetResourceVersion(),
		"annotations": ours, "managedFields": others,
	})
}

// classify turns an error of a target's API server into what follows from it.
func (e *engine) classify(p *pair, s step, r *record, err error) error {
	holders := conflicting(err)
	switch {
	case len(holders) > 0 && p.target != nil:
		r.answers.lookTarget = false
		r.refusals.fields = &heldFields{
			hash:    p.want.hash,
			version: p.target.GetResourceVersion(),
			detail:  clip(" by " + strings.Join(holders, ", ")),
		}
		r.drift.contest.Rivals = r.refusals.fields.detail
		r.refusals.intent = nil // an API server asks first who owns what
		return again(err)
	case fates.Is(err, fates.Conflict, fates.Contested), replaced(err):
		return again(err) // not the object, or not the version, that we saw
	case final(err):
		e.targetFields.Doubt()
		r.answers.lookTarget, r.refusals.fields = false, nil
		if refused := refusalOf(p.want.hash, p.targets, err); s == stepDelete || s == stepOrphan {
			r.refusals.deletion = refused
		} else {
			r.refusals.intent = refused
		}
		return again(err)
	default:
		return fmt.Errorf("write target %s: %w", p.name, err)
	}
}

// errAgain is a step that met a state other than it had seen: look again.
var errAgain = fates.ErrAgain

func again(err error) error { return fmt.Errorf("%w: %w", errAgain, err) }

// replaced reports whether err says that there is another object than we meant.
func replaced(err error) bool {
	return fates.Is(err, fates.Replaced)
}

// final reports whether err is an answer that the same request gets again, unless
// a schema or a right changes.
func final(err error) bool {
	return fates.Is(err, fates.Invalid, fates.Malformed, fates.Undeclared, fates.TooLarge, fates.Forbidden)
}

// refusalOf is the refusal of what has that hash.
func refusalOf(hash string, listed int, err error) *refusal {
	f := &refusal{reason: ReasonRefused, hash: hash, listed: listed, detail: clip(err.Error()), next: time.Now().Add(refusedPause)}
	if fates.Is(err, fates.Forbidden) {
		f.reason, f.next = ReasonForbidden, time.Now().Add(waitPause) // rights come back without a change here
	}
	return f
}

var manager = regexp.MustCompile(`conflict with "([^"]*)"`)

// conflicting returns who holds which fields, if err is a conflict of field
// managers.
func conflicting(err error) []string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		if c.Type != metav1.CauseTypeFieldManagerConflict {
			continue
		}
		who := "someone else"
		if m := manager.FindStringSubmatch(c.Message); m != nil {
			who = m[1]
		}
		out = append(out, fmt.Sprintf("%s (%s)", who, c.Field))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// addFinalizer puts our finalizer on the source, in the version that we saw.
func (e *engine) addFinalizer(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	patch := []operation{
		{"test", "/metadata/uid", string(p.source.GetUID())},
		{"test", "/metadata/resourceVersion", p.source.GetResourceVersion()},
	}
	if len(p.source.GetFinalizers()) == 0 {
		patch = append(patch, operation{"add", "/metadata/finalizers", []string{e.opts.Finalizer}})
	} else {
		patch = append(patch, operation{"add", "/metadata/finalizers/-", e.opts.Finalizer})
	}
	return e.jsonPatch(ctx, p, patch)
}

// removeFinalizer takes our finalizer, and no other, off the source, as long as it is being
// deleted: a backup may bring it back to life.
func (e *engine) removeFinalizer(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	at := fmt.Sprintf("/metadata/finalizers/%d", slices.Index(p.source.GetFinalizers(), e.opts.Finalizer))
	return e.jsonPatch(ctx, p, []operation{
		{"test", "/metadata/uid", string(p.source.GetUID())},
		{"test", "/metadata/deletionTimestamp", p.source.GetDeletionTimestamp().UTC().Format(time.RFC3339)},
		{"test", at, e.opts.Finalizer},
		{"remove", at, nil},
	})
}

// An operation of RFC 6902.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func (e *engine) jsonPatch(ctx context.Context, p *pair, patch []operation) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	obj, err := e.sources(p.key.Namespace).Patch(ctx, p.key.Name, types.JSONPatchType, data, metav1.PatchOptions{FieldManager: e.fieldManager})
	if fates.Is(err, fates.Invalid, fates.Replaced, fates.Conflict, fates.Contested) {
		return nil, again(err) // a test failed
	}
	if err != nil && !absent(err) {
		return nil, fmt.Errorf("patch source: %w", err)
	}
	return obj, err
}

// setMessage puts the message on the source, or takes it off.
func (e *engine) setMessage(ctx context.Context, p *pair) (*unstructured.Unstructured, error) {
	var value any
	if text := explain(p.state, obstacle(p.state)); text != "" {
		value = text
	}
	return e.annotate(ctx, p, MessageAnnotation, value)
}

func (e *engine) annotate(ctx context.Context, p *pair, key string, value any) (*unstructured.Unstructured, error) {
	return e.merge(ctx, e.sources(p.key.Namespace), p.key.Name, map[string]any{
		"uid": string(p.source.GetUID()), "annotations": map[string]any{key: value},
	})
}

// merge patches the metadata of an object; the API server refuses another uid.
func (e *engine) merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) (*unstructured.Unstructured, error) {
	return e.patch(ctx, client, name, map[string]any{"metadata": metadata})
}

func (e *engine) patch(ctx context.Context, client dynamic.ResourceInterface, name string, patch map[string]any, subresource ...string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	obj, err := client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: e.fieldManager}, subresource...)
	if fates.Is(err, fates.Invalid, fates.Replaced, fates.Conflict, fates.Contested) {
		return nil, again(err)
	}
	return obj, err
}

// giveStatus applies the status to the source, of just the incarnation that the
// target was made from, and in just the version that we saw: what an earlier
// request says that arrives only now is out of date.
func (e *engine) giveStatus(ctx context.Context, p *pair, r *record) (*unstructured.Unstructured, error) {
	give := p.give
	if give == nil {
		give = map[string]any{}
	}
	obj, taken, err := e.emptyStatus(ctx, p, give)
	if err == nil {
		r.status.gave(give, &e.statuses)
	}
	if taken {
		return obj, nil
	}
	if err == nil {
		obj, err = e.applyStatus(ctx, p, give)
	}
	switch {
	case err == nil:
		got, _ := obj.Object["status"].(map[string]any)
		r.status.wrote(p.give, got)
		r.status.sent, r.status.got, r.refusals.status, r.status.listed = hashOf(p.give), hashOf(got), nil, p.sources
	case fates.Is(err, fates.Absent, fates.Unserved) && !e.plainStatus.Load():
		return nil, e.missingStatus(ctx, p)
	case fates.Is(err, fates.Conflict, fates.Contested), replaced(err), absent(err):
		return nil, again(err) // another incarnation, or none any more
	case final(err):
		e.sourceFields.Doubt()
		r.refusals.status = refusalOf(hashOf(p.give), p.sources, err)
		return nil, again(err)
	default:
		err = fmt.Errorf("apply status of source: %w", err)
	}
	return obj, err
}

func (e *engine) applyStatus(ctx context.Context, p *pair, give map[string]any) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": p.source.GetAPIVersion(), "kind": p.source.GetKind(), "status": give,
		"metadata": map[string]any{"name": p.key.Name, "uid": string(p.source.GetUID()), "resourceVersion": p.source.GetResourceVersion()},
	}}
	object.SetNamespace(p.key.Namespace)
	opts := metav1.ApplyOptions{FieldManager: e.statusManager(), Force: true}
	if e.plainStatus.Load() {
		return e.sources(p.key.Namespace).Apply(ctx, p.key.Name, object, opts)
	}
	return e.sources(p.key.Namespace).ApplyStatus(ctx, p.key.Name, object, opts)
}

// statusManager is the field manager of statuses.
func (e *engine) statusManager() string { return e.fieldManager + "/status" }

// missingStatus finds out whether it is the source that is not there or its
// status subresource.
func (e *engine) missingStatus(ctx context.Context, p *pair) error {
	obj, err := e.source.live(ctx, p.key)
	if err != nil {
		return fmt.Errorf("read source: %w", err)
	}
	if obj != nil && obj.GetUID() == p.source.GetUID() {
		e.plainStatus.Store(true)
	}
	return errAgain
}
