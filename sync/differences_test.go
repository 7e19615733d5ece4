// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDifferences(t *testing.T) {
	source := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","labels":{"x":"y"}},
		"spec":{"size":"large","ports":[{"name":"http"}],"deep":{"new":1,"same":true}},"status":{"phase":"New"}}`)
	target := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","managedFields":[
		{"manager":"klutch.anynines.com/widgets.example.org/1","operation":"Apply","fieldsType":"FieldsV1","fieldsV1":{
			"f:metadata":{"f:labels":{"f:old":{}}},"f:spec":{"f:size":{},"f:color":{},"f:deep":{"f:same":{},"f:gone":{}}}}},
		{"manager":"crossplane","operation":"Update","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:resourceRef":{}}}}]},
		"spec":{"size":"small","color":"red","ports":[{"name":"http"}],"deep":{"same":true,"gone":"x"},"resourceRef":{"name":"r"}}}`)
	want := []string{`spec.color: "red" → none`, `spec.deep.gone: "x" → none`, `spec.deep.new: none → 1`, `spec.size: "small" → "large"`}
	if diff := cmp.Diff(want, Differences(source, target)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
