// SPDX-License-Identifier: Apache-2.0

package legacycopy_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/legacycopy"
)

func TestIs(t *testing.T) {
	const update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
	mark := map[string]string{legacycopy.OwnerAnnotation: "Provider"}
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, key string) metav1.ManagedFieldsEntry {
		fields := metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + key + `":{}}}}`)
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: fields}
	}
	for name, test := range map[string]struct {
		annotations map[string]string
		entry       metav1.ManagedFieldsEntry
		want        bool
	}{
		"as it writes them":            {mark, entry("konnector", update, legacycopy.OwnerAnnotation), true},
		"ours, of which it took marks": {mark, entry("klutch.anynines.com/x/related", apply, legacycopy.OwnerAnnotation), true},
		"marked by hand":               {mark, entry("kubectl", update, legacycopy.OwnerAnnotation), false},
		"it changed something else":    {mark, entry("konnector", update, "note"), false},
		"of the other side":            {map[string]string{legacycopy.OwnerAnnotation: "Consumer"}, entry("konnector", update, legacycopy.OwnerAnnotation), false},
		"without a mark":               {nil, entry("konnector", update, legacycopy.OwnerAnnotation), false},
		"ours": {
			map[string]string{legacycopy.OwnerAnnotation: "Provider", "klutch.anynines.com/source": "x"},
			entry("konnector", update, legacycopy.OwnerAnnotation), false,
		},
		"without managed fields": {mark, metav1.ManagedFieldsEntry{Manager: "konnector", Operation: update}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := &metav1.ObjectMeta{Annotations: test.annotations, ManagedFields: []metav1.ManagedFieldsEntry{test.entry}}
			if got := legacycopy.Is(o, "Provider"); got != test.want {
				t.Errorf("Is = %t, want %t", got, test.want)
			}
		})
	}
}
