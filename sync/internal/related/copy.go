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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/sync/internal/contest"
	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// A mirror reads and writes the copies.
type mirror struct {
	filter *filter
	owners ownership
	Copies Side
	Engine Engine
	key    []byte // of the HMAC: never leaves the process
}

// leave takes this Sync off the list of Syncs that made a copy.
func (m *mirror) leave(ctx context.Context, p *pair) error {
	live, err := m.Copies.metadata(ctx, p.name)
	if err != nil || live == nil || live.GetUID() != p.copy.GetUID() {
		return err
	}
	others := slices.DeleteFunc(live.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == m.owners.Manager })
	began := time.Now()
	err = m.Engine.Merge(ctx, m.Copies.Objects.Namespace(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(live.GetUID()), "resourceVersion": live.GetResourceVersion(), "managedFields": others,
	})
	m.Engine.Wrote(ctx, "leave-related", p.name, began, err)
	return err
}

func (m *mirror) delete(ctx context.Context, p *pair, uid types.UID) error {
	began := time.Now()
	err := m.Copies.Objects.Namespace(p.name.Namespace).Delete(ctx, p.name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	m.Engine.Wrote(ctx, "delete-related", p.name, began, err)
	if err == nil || absent(err) || fates.Is(err, fates.Conflict, fates.Contested) {
		return nil // its event brings us back
	}
	return fmt.Errorf("delete copy %s: %w", p.name, err)
}

// existing reads the copy. Its metadata come first: the content of what is not
// ours is never read.
func (m *mirror) existing(ctx context.Context, p *pair) (have *unstructured.Unstructured, taken bool, err error) {
	live, err := m.Copies.metadata(ctx, p.name)
	if err != nil {
		return nil, false, fmt.Errorf("read metadata of copy: %w", err)
	}
	if live == nil {
		return nil, false, nil
	}
	if !m.owners.isOurs(p, live) {
		return nil, true, nil
	}
	have, err = m.Copies.read(ctx, p.name)
	if err != nil {
		return nil, false, fmt.Errorf("read copy: %w", err)
	}
	if have == nil {
		return nil, false, nil
	}
	if !m.owners.isOurs(p, have) {
		return nil, true, nil // it was exchanged meanwhile; what was read of it is not used
	}
	return have, false, nil
}

// write writes the copy if it is not what it should be. Anew says that it cannot be changed into that: it has to
// go first.
func (m *mirror) write(ctx context.Context, p *pair, r *record, original, have *unstructured.Unstructured) (anew bool, err error) {
	if have != nil {
		made, _ := m.filter.Names.Origin(have)
		p.from = p.from.since(made)
	}
	want := m.intent(p, original)
	if have != nil {
		m.share(want, have)
	}
	legacyWriter := m.filter.Marks.Owner == legacycopy.OwnerAnnotation && have != nil && fields.By(have, legacy.WroteCopy) != nil
	if have != nil && m.same(want, have) {
		if legacyWriter {
			return false, m.takeOver(ctx, p, want, have)
		}
		r.wish, r.copy = p.wishOf(original), have.GetResourceVersion()
		return false, nil
	}
	if have != nil && (have.Object["immutable"] == true || have.Object["type"] != want.Object["type"]) {
		return true, nil
	}
	opts := metav1.ApplyOptions{FieldManager: m.owners.Manager, Force: true}
	want.SetResourceVersion("1") // which no object ever has
	if have != nil {
		want.SetUID(have.GetUID())
		want.SetResourceVersion("")
	}
	began := time.Now()
	got, err := m.Copies.Objects.Namespace(p.name.Namespace).Apply(ctx, p.name.Name, want, opts)
	m.Engine.Wrote(ctx, StepCopy, p.name, began, err)
	if m.filter.FromTarget {
		r.pace.Spend(want.Object)
	}
	if err != nil {
		return false, fmt.Errorf("apply copy %s: %w", p.name, err)
	}
	if legacyWriter {
		return false, m.takeOver(ctx, p, want, got)
	}
	if have != nil {
		got, err = m.takeAway(ctx, p, got, m.surplus(want, got, fields.Of(have, m.owners.Manager)))
	}
	if err != nil {
		return false, err
	}
	r.wish, r.copy = p.wishOf(original), got.GetResourceVersion()
	if have != nil {
		r.contest.Rivals = contest.RivalNames(have, m.owners.Manager, want.Object)
	}
	r.contest.Wrote(p.wish())
	return false, nil
}

// takeOver makes ours what a legacy konnector owns of a copy, which bears our marks by now.
// Its event brings us back, and the next apply takes away what we leave out, but for labels:
// people may select by them, and they have been there all along.
func (m *mirror) takeOver(ctx context.Context, p *pair, want, copied *unstructured.Unstructured) error {
	var stay [][]string
	for key := range copied.GetLabels() {
		if _, wanted := want.GetLabels()[key]; !wanted {
			stay = append(stay, legacy.Label(key))
		}
	}
	began := time.Now()
	err := m.Engine.Merge(ctx, m.Copies.Objects.Namespace(p.name.Namespace), p.name.Name, map[string]any{
		"uid": string(copied.GetUID()), "resourceVersion": copied.GetResourceVersion(),
		"managedFields": legacy.TakeOver(copied, m.owners.Manager, legacy.WroteCopy, stay...),
	})
	m.Engine.Wrote(ctx, "take-over-related", p.name, began, err)
	return err
}

// intent is what the copy should be.
func (m *mirror) intent(p *pair, original *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := travel.Metadata(original.GetAnnotations(), m.filter.keepsKeys(func(s Selector) []string { return s.KeepAnnotations }))
	annotations[m.filter.Marks.Bound] = "true"
	annotations[m.filter.Marks.Source] = m.filter.Names.Record(p.from)
	annotations[m.filter.Marks.Owner] = m.owners.side()
	if len(p.referrers) > 0 {
		annotations[m.filter.Marks.Referrer] = p.referrers[0].Name
	}
	labels := travel.Metadata(original.GetLabels(), m.filter.keepsKeys(func(s Selector) []string { return s.KeepLabels }))
	labels[m.filter.Marks.Bound] = "true"
	object := travel.Body(original.Object, nil)
	object["metadata"] = map[string]any{
		"name": p.name.Name, "namespace": p.name.Namespace, "labels": labels, "annotations": annotations,
	}
	return &unstructured.Unstructured{Object: object}
}

// share keeps the referrer that a copy names, if another Sync made the copy too and wrote that referrer.
func (m *mirror) share(want, have *unstructured.Unstructured) {
	_, others := m.owners.madeBy(have)
	named := map[string]any{"metadata": map[string]any{"annotations": map[string]any{m.filter.Marks.Referrer: ""}}}
	if others && have.GetAnnotations()[m.filter.Marks.Referrer] != "" && !fields.Of(have, m.owners.Manager).Own(named, nil) {
		unstructured.RemoveNestedField(want.Object, "metadata", "annotations", m.filter.Marks.Referrer)
	}
}

// same compares two objects by a keyed hash of their content, and what we keep
// in a copy's metadata; all of which has to be ours, and nothing else beside it.
func (m *mirror) same(want, have *unstructured.Unstructured) bool {
	ours := fields.Of(have, m.owners.Manager)
	return hmac.Equal(m.digest(want), m.digest(have)) &&
		contains(have.GetAnnotations(), want.GetAnnotations()) && contains(have.GetLabels(), want.GetLabels()) &&
		ours.Own(want.Object, nil) && len(m.surplus(want, have, ours)) == 0
}

// takeAway takes off a copy what an apply of ours leaves, since others own it too.
func (m *mirror) takeAway(ctx context.Context, p *pair, copied *unstructured.Unstructured, surplus fields.Set) (*unstructured.Unstructured, error) {
	pointers := surplus.Pointers(copied.Object, "")
	if len(pointers) == 0 {
		return copied, nil
	}
	began := time.Now()
	left, err := m.Engine.TakeAway(ctx, m.Copies.Objects.Namespace(p.name.Namespace), copied, pointers)
	m.Engine.Wrote(ctx, "take-away-related", p.name, began, err)
	return left, err
}

// surplus are the fields that a copy should not have: fields that this Sync applied, which ours has, and does not want any
// more; and fields that other writers, such as a backup or a Sync of another name, wrote together with our marks, if such
// fields travel. Of a Secret or a ConfigMap all content of other writers is surplus; other kinds have controllers that complete them.
func (m *mirror) surplus(want, have *unstructured.Unstructured, ours fields.Set) fields.Set {
	mark := fields.Set{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:" + m.filter.Marks.Bound: map[string]any{}}}}
	marked := func(e fields.Entry) bool { return e.Subresource == "" && mark.Overlaps(e.Fields) }
	whole := m.filter.Resource.Group == "" && (m.filter.Resource.Resource == "secrets" || m.filter.Resource.Resource == "configmaps")
	content := fields.By(have, func(e fields.Entry) bool { return marked(e) || e.Subresource == "" && whole })
	delete(content, "f:metadata")
	delete(content, "f:status")
	metadata, _ := fields.By(have, marked)["f:metadata"].(map[string]any)
	return ours.Union(content).Union(fields.Set{"f:metadata": map[string]any{
		"f:labels":      travelling(metadata["f:labels"], m.filter.keepsKeys(func(s Selector) []string { return s.KeepLabels })),
		"f:annotations": travelling(metadata["f:annotations"], m.filter.keepsKeys(func(s Selector) []string { return s.KeepAnnotations })),
	}}).Beyond(want.Object)
}

// travelling are the owned labels or annotations that travel.
func travelling(owned any, kept func(key string) bool) map[string]any {
	out := map[string]any{}
	all, _ := owned.(map[string]any)
	for field := range all {
		if key, isKey := strings.CutPrefix(field, "f:"); isKey && !travel.Denied(key) && kept(key) {
			out[field] = map[string]any{}
		}
	}
	return out
}

func (m *mirror) digest(u *unstructured.Unstructured) []byte {
	mac := hmac.New(sha256.New, m.key)
	_ = json.NewEncoder(mac).Encode(travel.Body(u.Object, nil)) // JSON values can be encoded, and a hash takes all
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
