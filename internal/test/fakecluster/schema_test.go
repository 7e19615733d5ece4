// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What a schema does not know is not read, stays as long as no client writes, and is
// refused where it is applied. What real API servers do is a test of package sync.
func TestReshape(t *testing.T) {
	const all = `{"x":"1","y":"1"}`
	less, more := Schema{"spec": {"x"}}, Schema{"spec": {"x", "y"}}
	for name, test := range map[string]struct{ patch, want string }{
		"untouched":                    {"", all},
		"written":                      {`{"metadata":{"labels":{"a":"b"}}}`, `{"x":"1"}`},
		"written with nothing changed": {`{}`, `{"x":"1"}`},
		"written with an unknown part": {`{"spec":{"y":"2"}}`, `{"x":"1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Resource{GroupVersionResource: widgets, Kind: "Widget", Schema: more})
			ri := c.Client().Resource(widgets).Namespace("default")
			spec := func() string {
				o, err := ri.Get(t.Context(), "a", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				text, _ := json.Marshal(o.Object["spec"])
				return string(text)
			}
			full := widget("a", map[string]any{"x": "1", "y": "1"})
			if _, err := apply(t, ri, full, "m"); err != nil {
				t.Fatal(err)
			}
			c.Reshape(widgets, less, 0)
			if got := spec(); got != `{"x":"1"}` {
				t.Errorf("read with less: %s", got)
			}
			if _, err := apply(t, ri, full, "m"); err == nil || !strings.Contains(err.Error(), "not declared in schema") {
				t.Errorf("apply of an unknown field: %v", err)
			}
			if test.patch != "" {
				if _, err := ri.Patch(t.Context(), "a", types.MergePatchType, []byte(test.patch), metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			c.Reshape(widgets, more, 0)
			if diff := cmp.Diff(test.want, spec()); diff != "" {
				t.Errorf("read with more (-want +got):\n%s", diff)
			}
		})
	}
}
