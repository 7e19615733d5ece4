// SPDX-License-Identifier: Apache-2.0

package legacy_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
	"github.com/klutch-go/sdk/sync/internal/legacy"
)

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return u
}

// A target is inherited only with all the evidence that there is.
func TestMadeFrom(t *testing.T) {
	const source = `{"apiVersion":"v1","kind":"X","metadata":{"name":"a","finalizers":["klutch.anynines.com/syncer"],"creationTimestamp":"2026-01-01T12:00:00Z"}}`
	const target = `{"apiVersion":"v1","kind":"X","metadata":{"name":"a","annotations":{"klutch.anynines.com/bound":"true"},"creationTimestamp":"2026-01-01T12:00:01Z"}}`
	ending := func(text string) string {
		return strings.Replace(text, `"name"`, `"deletionTimestamp":"2026-01-02T12:00:00Z","name"`, 1)
	}
	for name, test := range map[string]struct {
		source, target string
		want           bool
	}{
		"all evidence":        {source, target, true},
		"no finalizer":        {strings.Replace(source, "syncer", "other", 1), target, false},
		"no mark":             {source, strings.Replace(target, "true", "false", 1), false},
		"clocks that differ":  {source, strings.Replace(target, "12:00:01", "11:59:30", 1), true},
		"an older target":     {source, strings.Replace(target, "12:00:01", "11:58:59", 1), false},
		"a target that goes":  {source, ending(target), false},
		"both that are going": {ending(source), ending(target), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := legacy.MadeFrom(object(t, test.source), object(t, test.target)); got != test.want {
				t.Errorf("MadeFrom = %t", got)
			}
		})
	}
}

// What a legacy konnector held is as if we had applied it; statuses and what others hold
// stay theirs.
func TestTakeOver(t *testing.T) {
	target := object(t, `{"apiVersion":"example.org/v1","kind":"X","metadata":{"name":"a","managedFields":[
		{"manager":"konnector","operation":"Update","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:source":{}}},"f:spec":{".":{},"f:size":{},"f:ports":{"k:{\"p\":1}":{".":{},"f:p":{}}}}}},
		{"manager":"konnector","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}},
		{"manager":"us","operation":"Apply","fieldsV1":{"f:spec":{"f:color":{}}}},
		{"manager":"kubectl","operation":"Update","fieldsV1":{"f:spec":{"f:size":{}}}}]}}`)
	if got := legacy.Writer(target); got != "konnector" {
		t.Errorf("Writer = %q", got)
	}
	target.Object["metadata"].(map[string]any)["managedFields"] = legacy.TakeOver(target, "us", legacy.Wrote, legacy.Annotation("source"))
	none := map[string]any{}
	want := fields.Set{
		"f:metadata": map[string]any{"f:annotations": none},
		"f:spec": map[string]any{
			"f:size": none, "f:color": none,
			"f:ports": map[string]any{`k:{"p":1}`: map[string]any{".": none, "f:p": none}},
		},
	}
	if diff := cmp.Diff(want, fields.Of(target, "us")); diff != "" {
		t.Errorf("what is ours (-want +got):\n%s", diff)
	}
	var left []string
	for e := range fields.Entries(target) {
		left = append(left, e.Manager+" "+e.Subresource)
	}
	if diff := cmp.Diff([]string{"us ", "konnector status", "kubectl "}, left); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	if got := legacy.Writer(target); got != "" {
		t.Errorf("Writer = %q after all was taken over", got)
	}
}
