// SPDX-License-Identifier: Apache-2.0

package mark

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestPutThenGet(t *testing.T) {
	for name, owner := range map[string]Owner{
		"namespaced":     {cache.NewObjectName("klutch-bind", "widgets.example.org"), "1-2"},
		"cluster-scoped": {cache.NewObjectName("", "widgets.example.org"), "1-2"},
	} {
		t.Run(name, func(t *testing.T) {
			shared := map[string]string{"other": "kept"}
			o := &metav1.ObjectMeta{Annotations: shared}
			Put(o, owner)
			got, ok := Get(o)
			if diff := cmp.Diff(owner, got); diff != "" || !ok {
				t.Errorf("marked %t (-want +got):\n%s", ok, diff)
			}
			if o.Annotations["other"] != "kept" || len(shared) != 1 {
				t.Errorf("annotations are %v, those before %v", o.Annotations, shared)
			}
		})
	}
}

func TestGetOfNoMark(t *testing.T) {
	for _, value := range []string{"", "a", "a/b", "a/b/c/d", "a//c", "a/b/", "//"} {
		o := &metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.BindingAnnotation: value}}
		if got, ok := Get(o); ok {
			t.Errorf("%q marks %v", value, got)
		}
	}
}

func TestOf(t *testing.T) {
	got := Of(&metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "c"})
	if diff := cmp.Diff(Owner{cache.NewObjectName("a", "b"), "c"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
