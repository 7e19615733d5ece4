// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// do does one step; done says that the next event brings us back.
func (r *relation) do(ctx context.Context, t *transfer, s step, c *copied) (done bool, err error) {
	switch s {
	case stepConflict:
		r.tell(c, t, r.conflict(t.name))
		return true, nil
	case stepBarred:
		r.tell(c, t, r.barred(t))
		return true, nil
	case stepVerify:
		if c.verified, c.shared, err = r.verify(ctx, t); c.verified {
			err = r.engine.confirm(ctx, r.engine.checkup.now(), "") // what is gone there may be where it was
			c.verified = err == nil
		}
		return !c.verified, err
	case stepLeave:
		*c = copied{pace: c.pace}
		return true, r.leave(ctx, t)
	case stepDelete:
		*c = copied{pace: c.pace}
		return true, r.delete(ctx, t, t.copy.GetUID())
	default:
		return true, r.transfer(ctx, t, c)
	}
}

// verify confirms live that the original has gone, or that its namespace has no source
// any more, or that the bound object that was recorded to refer to it does so no more;
// and in that case, whether another Sync wants the copy.
func (r *relation) verify(ctx context.Context, t *transfer) (verified, shared bool, err error) {
	if r.former(t, t.copy) {
		return r.forsaken(ctx, t)
	}
	live, err := r.owner.metadata(ctx, r.Resource, t.from.name)
	from, _ := OriginOf(t.copy)
	if err != nil || live == nil || live.GetUID() != from.UID || !r.mayTravel(live, t.name) {
		return err == nil, false, err
	}
	if r.selects(live, t.name).selected {
		return false, false, nil // the original is there: the watch will show it
	}
	ours, others, err := r.held(ctx, t)
	if err != nil || !ours {
		return false, false, err
	}
	if namespace := r.sourceNamespace(t.from.name, t.name); !r.engine.spaces.has(namespace) {
		deserted, err := r.engine.deserted(ctx, namespace)
		return deserted, others, err
	}
	unreferred, err := r.unreferred(ctx, t, live)
	return unreferred, others, err
}

// held is holders, of the copy as it is live.
func (r *relation) held(ctx context.Context, t *transfer) (ours, others bool, err error) {
	live, err := r.other.metadata(ctx, r.Resource, t.name)
	if err != nil || live == nil {
		return false, false, err
	}
	ours, others = r.holders(live)
	return ours, others, nil
}

// unreferred confirms live that the bound object that was recorded to refer to the
// original no longer selects it.
func (r *relation) unreferred(ctx context.Context, t *transfer, original metav1.Object) (bool, error) {
	referrer := t.copy.GetAnnotations()[ReferrerAnnotation]
	if referrer == "" {
		return true, nil // it was selected by name, and the selector has changed
	}
	u, err := r.owner.reader(r.engine.resource)(ctx, cache.NewObjectName(t.from.name.Namespace, referrer))
	if err != nil || u == nil {
		return err == nil, err
	}
	return !r.selectedBy([]metav1.Object{u}, original, t.name).selected, nil
}

// leave takes this Sync off those that hold a copy.
func (r *relation) leave(ctx context.Context, t *transfer) error {
	live, err := r.other.metadata(ctx, r.Resource, t.name)
	if err != nil || live == nil || live.GetUID() != t.copy.GetUID() {
		return err
	}
	others := slices.DeleteFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == r.manager() })
	began := time.Now()
	_, err = r.engine.merge(ctx, r.client(r.other, t.name), t.name.Name, map[string]any{
		"uid": string(live.GetUID()), "resourceVersion": live.GetResourceVersion(), "managedFields": others,
	})
	r.wrote(ctx, "leave-related", t, began, err)
	return err
}

func (r *relation) delete(ctx context.Context, t *transfer, uid types.UID) error {
	began := time.Now()
	err := r.client(r.other, t.name).Delete(ctx, t.name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	r.wrote(ctx, "delete-related", t, began, err)
	if fates.Is(err, fates.Absent, fates.Conflict, fates.Contested) {
		return nil // its event brings us back
	}
	if err != nil {
		return fmt.Errorf("delete copy %s: %w", t.name, err)
	}
	return nil
}

func (r *relation) client(c *Cluster, name cache.ObjectName) dynamic.ResourceInterface {
	return c.writes.Resource(r.Resource).Namespace(name.Namespace)
}

func (r *relation) wrote(ctx context.Context, s string, t *transfer, began time.Time, err error) {
	side := TargetSide
	if r.From == TargetSide {
		side = SourceSide
	}
	r.engine.opts.Hooks.wrote(ctx, Write{Side: side, Step: s, Object: t.name, Took: time.Since(began), Err: err})
}

// transfer reads the original and, if there is one, the copy, and writes the copy
// if it is not what it should be.
func (r *relation) transfer(ctx context.Context, t *transfer, c *copied) error {
	c.stays = false
	c.count(1, r.engine.statuses.pause())
	have, taken, err := r.existing(ctx, t)
	if err != nil {
		return err
	}
	if taken {
		r.tell(c, t, r.conflict(t.name))
		return nil
	}
	original, err := r.owner.reader(r.Resource)(ctx, t.from.name)
	if err != nil {
		return fmt.Errorf("read original: %w", err)
	}
	if original != nil && !r.chosen(original, t.name) {
		return nil // it is not what was seen, as the watch is about to show
	}
	if kind := r.wrongType(original); kind != "" {
		return r.stay(ctx, t, c, kind, have)
	}
	if original != nil {
		t.from.uid = original.GetUID()
		if err = r.write(ctx, t, c, original, have); err == nil {
			r.tell(c, t, "")
		}
		return err
	}
	r.tell(c, t, "")
	*c = copied{pace: c.pace, original: t.original.GetResourceVersion(), copy: c.copy}
	return nil
}

// stay leaves an original of that type where it is, and no copy of what it was before.
func (r *relation) stay(ctx context.Context, t *transfer, c *copied, kind string, have *unstructured.Unstructured) error {
	why := r.wrong(t.name, kind)
	r.tell(c, t, why)
	r.engine.opts.Hooks.refused(ctx, Refusal{Resource: r.Resource, From: r.From, Object: t.from.name, Why: why})
	c.original, c.stays = t.original.GetResourceVersion(), true
	if have == nil {
		return nil
	}
	return r.delete(ctx, t, have.GetUID())
}

// chosen reports whether an original that has been read is still one that travels.
func (r *relation) chosen(original *unstructured.Unstructured, name cache.ObjectName) bool {
	return r.selects(original, name).selected && r.mayTravel(original, name)
}

// existing reads the copy. Its metadata come first: the content of what is not
// ours is never read.
func (r *relation) existing(ctx context.Context, t *transfer) (have *unstructured.Unstructured, taken bool, err error) {
	live, err := r.other.metadata(ctx, r.Resource, t.name)
	if err != nil {
		return nil, false, fmt.Errorf("read metadata of copy: %w", err)
	}
	if live == nil {
		return nil, false, nil
	}
	if !r.isOurs(t, live) {
		return nil, true, nil
	}
	have, err = r.other.reader(r.Resource)(ctx, t.name)
	if err != nil {
		return nil, false, fmt.Errorf("read copy: %w", err)
	}
	if have == nil {
		return nil, false, nil
	}
	if !r.isOurs(t, have) {
		return nil, true, nil // it was exchanged meanwhile; what was read of it is not used
	}
	return have, false, nil
}

func (r *relation) write(ctx context.Context, t *transfer, c *copied, original, have *unstructured.Unstructured) error {
	want := r.intent(t, original)
	if have != nil {
		r.share(want, have)
	}
	if have != nil && r.same(want, have) {
		c.original, c.copy = original.GetResourceVersion(), have.GetResourceVersion()
		return nil
	}
	if have != nil && (have.Object["immutable"] == true || have.Object["type"] != want.Object["type"]) {
		return r.delete(ctx, t, have.GetUID()) // and make it anew
	}
	opts := metav1.ApplyOptions{FieldManager: r.manager(), Force: true}
	want.SetResourceVersion(nothing)
	if have != nil {
		want.SetUID(have.GetUID())
		want.SetResourceVersion("")
	}
	began := time.Now()
	got, err := r.client(r.other, t.name).Apply(ctx, t.name.Name, want, opts)
	r.wrote(ctx, "copy", t, began, err)
	if r.From == TargetSide {
		r.engine.statuses.spend(weigh(want.Object))
	}
	if err != nil {
		return fmt.Errorf("apply copy %s: %w", t.name, withoutContent(err))
	}
	c.original, c.copy = original.GetResourceVersion(), got.GetResourceVersion()
	return nil
}

// withoutContent keeps of an API server's answer only its kind: the text of a
// validation error quotes the values that it does not like.
func withoutContent(err error) error {
	if fates.Is(err, fates.Invalid, fates.Replaced, fates.Malformed) {
		return fmt.Errorf("refused: %s", apierrors.ReasonForError(err))
	}
	return err
}

// intent is what the copy should be.
func (r *relation) intent(t *transfer, original *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := travelling(original.GetAnnotations(), r.keeps(func(s selector) []string { return s.keepAnnotations }), nil)
	annotations[BoundAnnotation] = "true"
	annotations[SourceAnnotation] = t.from.record(0, "")
	annotations[OwnerAnnotation] = "Consumer"
	if r.From == TargetSide {
		annotations[OwnerAnnotation] = "Provider"
	}
	if len(t.referrers) > 0 {
		annotations[ReferrerAnnotation] = t.referrers[0].Name
	}
	labels := travelling(original.GetLabels(), r.keeps(func(s selector) []string { return s.keepLabels }), nil)
	labels[BoundAnnotation] = "true"
	object := body(original.Object)
	object["metadata"] = map[string]any{
		"name": t.name.Name, "namespace": t.name.Namespace, "labels": labels, "annotations": annotations,
	}
	return &unstructured.Unstructured{Object: object}
}

// share lets a copy that others hold too name the referrer that one of them named.
func (r *relation) share(want, have *unstructured.Unstructured) {
	_, others := r.holders(have)
	named := map[string]any{"metadata": map[string]any{"annotations": map[string]any{ReferrerAnnotation: ""}}}
	if others && have.GetAnnotations()[ReferrerAnnotation] != "" && !(intent{object: named}).owns(have, r.manager()) {
		unstructured.RemoveNestedField(want.Object, "metadata", "annotations", ReferrerAnnotation)
	}
}

// same compares two objects by a keyed hash of their content, and what we keep
// in a copy's metadata; all of which has to be ours.
func (r *relation) same(want, have *unstructured.Unstructured) bool {
	return hmac.Equal(r.digest(want), r.digest(have)) &&
		contains(have.GetAnnotations(), want.GetAnnotations()) && contains(have.GetLabels(), want.GetLabels()) &&
		intent{object: want.Object}.owns(have, r.manager()) && !r.surplus(want, have)
}

// surplus reports whether we keep metadata on a copy that it should not have.
func (r *relation) surplus(want, have *unstructured.Unstructured) bool {
	fields, _ := fieldsOf(have, r.manager())["f:metadata"].(map[string]any)
	for path, wanted := range map[string]map[string]string{"f:labels": want.GetLabels(), "f:annotations": want.GetAnnotations()} {
		owned, _ := fields[path].(map[string]any)
		for field := range owned {
			key, isKey := strings.CutPrefix(field, "f:")
			if _, ok := wanted[key]; isKey && !ok {
				return true
			}
		}
	}
	return false
}

func (r *relation) digest(u *unstructured.Unstructured) []byte {
	mac := hmac.New(sha256.New, r.key)
	_ = json.NewEncoder(mac).Encode(body(u.Object)) // JSON values can be encoded, and a hash takes all
	return mac.Sum(nil)
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// metadata reads the metadata of one object live; nil if there is none.
func (c *Cluster) metadata(ctx context.Context, resource schema.GroupVersionResource, name cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	return gone(c.meta.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
}
