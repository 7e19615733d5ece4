// SPDX-License-Identifier: Apache-2.0

package related

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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/contest"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// do does one step; done says that the next event brings us back.
func (c *Copier) do(ctx context.Context, p *pair, s Step, r *record) (done bool, err error) {
	switch s {
	case StepConflict:
		c.tell(r, p, c.conflict(p.name))
		return true, nil
	case StepExcepted:
		c.tell(r, p, c.excepted(p))
		return true, nil
	case StepVerify:
		if r.verified, r.shared, err = c.verify(ctx, p); r.verified {
			err = c.Engine.Confirm(ctx) // what is gone there may be where it was
			r.verified = err == nil
		}
		return !r.verified, err
	case StepLeave:
		*r = record{pace: r.pace, contest: r.contest}
		return true, c.leave(ctx, p)
	case StepDelete:
		*r = record{pace: r.pace, contest: r.contest}
		return true, c.delete(ctx, p, p.copy.GetUID())
	default:
		return true, c.transfer(ctx, p, r)
	}
}

// verify confirms live that the original has gone, or that its namespace has no source
// any more, or that the bound object that was recorded to refer to it does so no more;
// and in that case, whether another Sync wants the copy.
func (c *Copier) verify(ctx context.Context, p *pair) (verified, shared bool, err error) {
	if c.ofPredecessor(p, p.copy) {
		return c.unclaimed(ctx, p)
	}
	live, err := c.Originals.metadata(ctx, p.from.Name)
	from, _ := c.Names.Origin(p.copy)
	if err != nil || live == nil || live.GetUID() != from.UID || !c.mayTravel(live, p.name) {
		return err == nil, false, err
	}
	if c.selects(live, p.name).selected {
		return false, false, nil // the original is there: the watch will show it
	}
	ours, others, err := c.held(ctx, p)
	if err != nil || !ours {
		return false, false, err
	}
	if namespace := c.sourceNamespace(p.from.Name, p.name); !c.Sources.In(namespace) {
		deserted, err := c.Sources.Deserted(ctx, namespace)
		return deserted, others, err
	}
	unreferred, err := c.unreferred(ctx, p, live)
	return unreferred, others, err
}

// held is holders, of the copy as it is live.
func (c *Copier) held(ctx context.Context, p *pair) (ours, others bool, err error) {
	live, err := c.Copies.metadata(ctx, p.name)
	if err != nil || live == nil {
		return false, false, err
	}
	ours, others = c.Holders(live)
	return ours, others, nil
}

// unreferred confirms live that the bound object that was recorded to refer to the
// original no longer selects it.
func (c *Copier) unreferred(ctx context.Context, p *pair, original metav1.Object) (bool, error) {
	referrer := p.copy.GetAnnotations()[c.Marks.Referrer]
	if referrer == "" {
		return true, nil // it was selected by name, and the selector has changed
	}
	u, err := c.Bound.Live(ctx, cache.NewObjectName(p.from.Name.Namespace, referrer))
	if err != nil || u == nil {
		return err == nil, err
	}
	return !c.selectedBy([]metav1.Object{u}, original, p.name).selected, nil
}

// leave takes this Sync off those that hold a copy.
func (c *Copier) leave(ctx context.Context, p *pair) error {
	live, err := c.Copies.metadata(ctx, p.name)
	if err != nil || live == nil || live.GetUID() != p.copy.GetUID() {
		return err
	}
	others := slices.DeleteFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == c.Manager })
	began := time.Now()
	err = c.Engine.Merge(ctx, c.Copies.Objects.Namespace(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(live.GetUID()), "resourceVersion": live.GetResourceVersion(), "managedFields": others,
	})
	c.Engine.Wrote(ctx, "leave-related", p.name, began, err)
	return err
}

func (c *Copier) delete(ctx context.Context, p *pair, uid types.UID) error {
	began := time.Now()
	err := c.Copies.Objects.Namespace(p.name.Namespace).Delete(ctx, p.name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	c.Engine.Wrote(ctx, "delete-related", p.name, began, err)
	if err == nil || absent(err) || fates.Is(err, fates.Conflict, fates.Contested) {
		return nil // its event brings us back
	}
	return fmt.Errorf("delete copy %s: %w", p.name, err)
}

// metadata and read read an object live; nil if there is none.
func (s Side) metadata(ctx context.Context, name cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	return live(s.Metadata.Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
}

func (s Side) read(ctx context.Context, name cache.ObjectName) (*unstructured.Unstructured, error) {
	return live(s.Objects.Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{}))
}

func live[T any](obj *T, err error) (*T, error) {
	switch {
	case err == nil:
		return obj, nil
	case absent(err):
		return nil, nil //nolint:nilnil // no object is an answer
	default:
		return nil, err
	}
}

// absent reports whether err says that an object is not there, rather than that its
// resource is not served.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// transfer reads the original and, if there is one, the copy, and writes the copy
// if it is not what it should be.
func (c *Copier) transfer(ctx context.Context, p *pair, r *record) error {
	r.stays = false
	r.pace.Count()
	have, taken, err := c.existing(ctx, p)
	if err != nil {
		return err
	}
	if taken {
		c.tell(r, p, c.conflict(p.name))
		return nil
	}
	original, err := c.Originals.read(ctx, p.from.Name)
	if err != nil {
		return fmt.Errorf("read original: %w", err)
	}
	if original != nil && !c.chosen(original, p.name) {
		return nil // it is not what was seen, as the watch is about to show
	}
	if kind := c.wrongType(original); kind != "" {
		return c.stay(ctx, p, r, kind, have)
	}
	if original != nil {
		p.from.UID = original.GetUID()
		if err = c.write(ctx, p, r, original, have); err == nil {
			c.tell(r, p, c.contested(p, r))
		}
		return err
	}
	c.tell(r, p, "")
	*r = record{pace: r.pace, contest: r.contest, original: p.original.GetResourceVersion(), copy: r.copy}
	return nil
}

// stay leaves an original of that type where it is, and no copy of what it was before.
func (c *Copier) stay(ctx context.Context, p *pair, r *record, kind string, have *unstructured.Unstructured) error {
	why := c.wrong(p.name, kind)
	c.tell(r, p, why)
	c.Engine.Refused(ctx, p.from.Name, why)
	r.original, r.stays = p.original.GetResourceVersion(), true
	if have == nil {
		return nil
	}
	return c.delete(ctx, p, have.GetUID())
}

// chosen reports whether an original that has been read is still one that travels.
func (c *Copier) chosen(original *unstructured.Unstructured, name cache.ObjectName) bool {
	return c.selects(original, name).selected && c.mayTravel(original, name)
}

// existing reads the copy. Its metadata come first: the content of what is not
// ours is never read.
func (c *Copier) existing(ctx context.Context, p *pair) (have *unstructured.Unstructured, taken bool, err error) {
	live, err := c.Copies.metadata(ctx, p.name)
	if err != nil {
		return nil, false, fmt.Errorf("read metadata of copy: %w", err)
	}
	if live == nil {
		return nil, false, nil
	}
	if !c.isOurs(p, live) {
		return nil, true, nil
	}
	have, err = c.Copies.read(ctx, p.name)
	if err != nil {
		return nil, false, fmt.Errorf("read copy: %w", err)
	}
	if have == nil {
		return nil, false, nil
	}
	if !c.isOurs(p, have) {
		return nil, true, nil // it was exchanged meanwhile; what was read of it is not used
	}
	return have, false, nil
}

func (c *Copier) write(ctx context.Context, p *pair, r *record, original, have *unstructured.Unstructured) error {
	want := c.intent(p, original)
	if have != nil {
		c.share(want, have)
	}
	if have != nil && c.same(want, have) {
		r.original, r.copy = original.GetResourceVersion(), have.GetResourceVersion()
		return nil
	}
	if have != nil && (have.Object["immutable"] == true || have.Object["type"] != want.Object["type"]) {
		return c.delete(ctx, p, have.GetUID()) // and make it anew
	}
	opts := metav1.ApplyOptions{FieldManager: c.Manager, Force: true}
	want.SetResourceVersion("1") // which no object ever has
	if have != nil {
		want.SetUID(have.GetUID())
		want.SetResourceVersion("")
	}
	began := time.Now()
	got, err := c.Copies.Objects.Namespace(p.name.Namespace).Apply(ctx, p.name.Name, want, opts)
	c.Engine.Wrote(ctx, StepCopy, p.name, began, err)
	if c.FromTarget {
		r.pace.Spend(want.Object)
	}
	if err != nil {
		return fmt.Errorf("apply copy %s: %w", p.name, withoutContent(err))
	}
	r.original, r.copy = original.GetResourceVersion(), got.GetResourceVersion()
	if have != nil {
		r.contest.Rivals = contest.RivalNames(have, c.Manager, want.Object)
	}
	r.contest.Wrote(p.wish())
	return nil
}

// wish identifies what a copy was made from.
func (p *pair) wish() string {
	if p.original == nil {
		return ""
	}
	wish := p.original.GetResourceVersion()
	if len(p.referrers) > 0 {
		wish += "/" + p.referrers[0].Name
	}
	return wish
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
func (c *Copier) intent(p *pair, original *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := travel.Metadata(original.GetAnnotations(), c.keepsKeys(func(s Selector) []string { return s.KeepAnnotations }))
	annotations[c.Marks.Bound] = "true"
	annotations[c.Marks.Source] = c.Names.Record(p.from)
	annotations[c.Marks.Owner] = "Consumer"
	if c.FromTarget {
		annotations[c.Marks.Owner] = "Provider"
	}
	if len(p.referrers) > 0 {
		annotations[c.Marks.Referrer] = p.referrers[0].Name
	}
	labels := travel.Metadata(original.GetLabels(), c.keepsKeys(func(s Selector) []string { return s.KeepLabels }))
	labels[c.Marks.Bound] = "true"
	object := travel.Body(original.Object)
	object["metadata"] = map[string]any{
		"name": p.name.Name, "namespace": p.name.Namespace, "labels": labels, "annotations": annotations,
	}
	return &unstructured.Unstructured{Object: object}
}

// share lets a copy that others hold too name the referrer that one of them named.
func (c *Copier) share(want, have *unstructured.Unstructured) {
	_, others := c.Holders(have)
	named := map[string]any{"metadata": map[string]any{"annotations": map[string]any{c.Marks.Referrer: ""}}}
	if others && have.GetAnnotations()[c.Marks.Referrer] != "" && !fields.Of(have, c.Manager).Own(named) {
		unstructured.RemoveNestedField(want.Object, "metadata", "annotations", c.Marks.Referrer)
	}
}

// same compares two objects by a keyed hash of their content, and what we keep
// in a copy's metadata; all of which has to be ours.
func (c *Copier) same(want, have *unstructured.Unstructured) bool {
	return hmac.Equal(c.digest(want), c.digest(have)) &&
		contains(have.GetAnnotations(), want.GetAnnotations()) && contains(have.GetLabels(), want.GetLabels()) &&
		fields.Of(have, c.Manager).Own(want.Object) && !c.surplus(want, have)
}

// surplus reports whether we keep metadata on a copy that it should not have.
func (c *Copier) surplus(want, have *unstructured.Unstructured) bool {
	ours, _ := fields.Of(have, c.Manager)["f:metadata"].(map[string]any)
	for path, wanted := range map[string]map[string]string{"f:labels": want.GetLabels(), "f:annotations": want.GetAnnotations()} {
		owned, _ := ours[path].(map[string]any)
		for field := range owned {
			key, isKey := strings.CutPrefix(field, "f:")
			if _, ok := wanted[key]; isKey && !ok {
				return true
			}
		}
	}
	return false
}

func (c *Copier) digest(u *unstructured.Unstructured) []byte {
	mac := hmac.New(sha256.New, c.key)
	_ = json.NewEncoder(mac).Encode(travel.Body(u.Object)) // JSON values can be encoded, and a hash takes all
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
