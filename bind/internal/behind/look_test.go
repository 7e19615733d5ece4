// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	copied := object(time.Hour)
	copied.Annotations = map[string]string{klutchsync.SourceAnnotation: `{"uid":"u","name":"n"}`}
	for name, c := range map[string]struct {
		m    *metav1.PartialObjectMetadata
		want string
	}{
		"in step":            {object(time.Hour, taken...), ""},
		"new":                {object(20 * time.Second), ""},
		"not taken up":       {object(50 * time.Second), "NotTakenUp 50s the konnector has not taken it up: it does not run, or the provider has no namespace for it"},
		"a copy":             {copied, ""},
		"it says why":        {message(object(time.Hour, taken...), "TargetForbidden: the target: no"), "TargetForbidden 40s the target: no"},
		"going":              {deleted(20 * time.Second), ""},
		"going for long":     {deleted(40 * time.Second), "DeletionWaits 40s it waits for its finalizers: klutch.anynines.com/syncer"},
		"going, and why not": {message(deleted(time.Minute), "DeletionsHeld: many"), "DeletionsHeld 40s many"},
	} {
		got := ""
		if o, ok := judge(c.m, noon); ok {
			got = fmt.Sprintf("%s %s %s", o.Reason, noon.Sub(o.Since), o.Message)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
