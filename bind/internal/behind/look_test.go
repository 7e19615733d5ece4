// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func TestJudge(t *testing.T) {
	at := func(ago time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-ago)) }
	taken := []string{v1alpha1.SyncerFinalizer}
	message := func(m *metav1.PartialObjectMetadata, text string) *metav1.PartialObjectMetadata {
		set := at(40 * time.Second)
		m.Annotations = map[string]string{klutchsync.MessageAnnotation: text}
		m.ManagedFields = []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Time: &m.CreationTimestamp, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)},
			{Manager: "k", Time: &set, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:klutch.anynines.com/sync-message":{}}}}`)},
		}
		return m
	}
	object := func(age time.Duration, finalizers ...string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: at(age), Finalizers: finalizers}}
	}
	deleted := func(ago time.Duration) *metav1.PartialObjectMetadata {
		m, then := object(time.Hour, taken...), at(ago)
		m.DeletionTimestamp = &then
		return m
	}
	known := func(m *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
		m.UID = "denied"
		return m
	}
	none := denials{}
	denied := denials{all: NoRights, of: map[subject]denial{{"", "denied"}: {"AccessDenied", "patch source: forbidden", noon.Add(-20 * time.Second)}}}
	copied := object(time.Hour)
	copied.Annotations = map[string]string{klutchsync.SourceAnnotation: `{"uid":"u","name":"n"}`}
	for name, c := range map[string]struct {
		m    *metav1.PartialObjectMetadata
		d    denials
		want string
	}{
		"in step":              {object(time.Hour, taken...), none, ""},
		"new":                  {object(20 * time.Second), none, ""},
		"not taken up":         {object(50 * time.Second), none, "NotTakenUp 50s the konnector has not taken it up: it does not run, or the provider has no namespace for it"},
		"no namespace":         {object(50 * time.Second), denials{namespaces: ". No: quota"}, "NotTakenUp 50s the konnector has not taken it up: it does not run, or the provider has no namespace for it. No: quota"},
		"a copy":               {copied, none, ""},
		"it says why":          {message(object(time.Hour, taken...), "TargetForbidden: the target: no"), none, "TargetForbidden 40s the target: no"},
		"going":                {deleted(20 * time.Second), none, ""},
		"going for long":       {deleted(40 * time.Second), none, "DeletionWaits 40s it waits for its finalizers: klutch.anynines.com/syncer"},
		"going, and why not":   {message(deleted(time.Minute), "DeletionsHeld: many"), none, "DeletionsHeld 40s many"},
		"an Event says why":    {known(object(time.Hour, taken...)), denied, "AccessDenied 20s patch source: forbidden"},
		"and of one that goes": {known(deleted(time.Minute)), denied, "AccessDenied 20s patch source: forbidden"},
		"never taken up":       {object(50 * time.Second), denied, "AccessDenied 50s " + NoRights},
		"of another object":    {object(time.Hour, taken...), denied, ""},
	} {
		got := ""
		if o, ok := judge(c.m, c.d, noon); ok {
			got = fmt.Sprintf("%s %s %s", o.Reason, noon.Sub(o.Since), o.Message)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Of two Events of an object the later one counts; those of other APIs, other programs and other
// namespaces than the object's do not.
func TestDenials(t *testing.T) {
	event := func(uid, reason, resource string, ago time.Duration) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata":       map[string]any{"annotations": map[string]any{v1alpha1.ResourceAnnotation: resource}},
			"involvedObject": map[string]any{"uid": uid, "namespace": "team"}, "source": map[string]any{"component": EventSource}, "reason": reason, "message": "no", "lastTimestamp": noon.Add(-ago).UTC().Format(time.RFC3339),
		}}
	}
	d := denials{of: map[subject]denial{}}
	forged, elsewhere := event("forged", "AccessDenied", "widgets.example.org", 0), event("denied", ReasonInStep, "widgets.example.org", 0)
	forged.Object["source"] = map[string]any{"component": "mallory"}
	elsewhere.Object["involvedObject"] = map[string]any{"uid": "denied", "namespace": "mallory"}
	for _, e := range []*unstructured.Unstructured{
		event("denied", "AccessDenied", "widgets.example.org", time.Minute),
		event("over", "AccessDenied", "widgets.example.org", time.Hour),
		event("again", "AccessDenied", "widgets.example.org", time.Second),
		event("other", "AccessDenied", "cogs.example.org", time.Second),
		event("over", ReasonInStep, "widgets.example.org", time.Minute),
		event("again", ReasonInStep, "widgets.example.org", time.Minute),
		forged, elsewhere,
	} {
		d.hear(e, "widgets.example.org")
	}
	if _, again := d.of[subject{"team", "again"}]; len(d.of) != 2 || !again || !d.of[subject{"team", "denied"}].since.Equal(noon.Add(-time.Minute)) {
		t.Errorf("%+v", d.of)
	}
}
