// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadRequests(t *testing.T) {
	one := `{"apiVersion":"klutch.anynines.com/v1alpha1","kind":"APIServiceExportRequest","metadata":{"name":"a"},"spec":{"resources":[{"group":"example.com","resource":"as"}]}}`
	for _, c := range []struct {
		name, manifest string
		want           []string
		err            string
	}{
		{"JSON", one, []string{"a"}, ""},
		{"YAML", "apiVersion: klutch.anynines.com/v1alpha1\nkind: APIServiceExportRequest\nmetadata: {name: b}\nspec: {resources: [{group: example.com, resource: bs}]}\n", []string{"b"}, ""},
		{"documents", "---\n" + one + "\n---\n---\n# nothing\n---\n" + one + "\n", []string{"a", "a"}, ""},
		{"list", `{"apiVersion":"v1","kind":"List","items":[` + one + `,` + one + `]}`, []string{"a", "a"}, ""},
		{"nothing", "", nil, "no APIServiceExportRequest found"},
		{"another kind", `{"apiVersion":"v1","kind":"Secret"}`, nil, `kind "Secret"`},
		{"another version", strings.Replace(one, "/v1alpha1", "/v2", 1), nil, `apiVersion "klutch.anynines.com/v2"`},
		{"no resource", `{"apiVersion":"klutch.anynines.com/v1alpha1","kind":"APIServiceExportRequest","spec":{}}`, nil, "names no resource"},
		{"nonsense", "}{", nil, "read requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requests, err := ReadRequests([]byte(c.manifest))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error = %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, r := range requests {
				names = append(names, r.Name)
			}
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}
