// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestPool(t *testing.T) {
	p := &interner{}
	schemaOf := func(o *v1alpha1.APIServiceExport) *byte {
		return &o.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw[0]
	}
	export := func(name, schema string) *v1alpha1.APIServiceExport {
		o := exportOf("example.org", "widgets", claim("secrets", v1alpha1.OwnerProvider))
		o.Name = name
		o.Spec.Versions = []v1alpha1.APIServiceExportVersion{{Name: "v1"}}
		o.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw = []byte(schema)
		want := o.DeepCopy()
		p.intern(o)
		if diff := cmp.Diff(want, o); diff != "" {
			t.Errorf("an export was changed (-before +after):\n%s", diff)
		}
		return o
	}
	first, held := export("widgets.example.org", "{}"), export("widgets.example.org", "{ }")
	if schemaOf(first) != schemaOf(export("widgets.example.org", "{}")) || schemaOf(held) != schemaOf(export("widgets.example.org", "{ }")) {
		t.Error("equal specs are twice in memory")
	}
	if schemaOf(first) == schemaOf(export("gadgets.example.org", "{}")) {
		t.Error("two APIs share a spec")
	}
	for i := range 100 { // of an API that changes all the time
		export("widgets.example.org", fmt.Sprint(i))
	}
	if n := len(p.specs["widgets.example.org"]); n != internedPerAPI {
		t.Errorf("%d specs of one API are remembered", n)
	}
}
