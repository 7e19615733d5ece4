// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestHolderOf(t *testing.T) {
	h := Holder{"https://issuer", "ada", "c1"}
	name := h.Namespace("cluster")
	good := metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.TenantLabel: name}, Annotations: h.Annotations()}
	if got, ok := holderOf(&good); !ok || got != h {
		t.Errorf("%+v %t", got, ok)
	}
	for what, change := range map[string]func(*metav1.ObjectMeta){
		"no label": func(o *metav1.ObjectMeta) { o.Labels = nil },
		"other name": func(o *metav1.ObjectMeta) {
			o.Name = "cluster-x"
			o.Labels = map[string]string{v1alpha1.TenantLabel: "cluster-x"}
		},
		"other holder":   func(o *metav1.ObjectMeta) { o.Annotations = Holder{"https://issuer", "eve", "c1"}.Annotations() },
		"no annotations": func(o *metav1.ObjectMeta) { o.Annotations = nil },
	} {
		bad := good.DeepCopy()
		change(bad)
		if _, ok := holderOf(bad); ok {
			t.Errorf("%s: taken for a tenant", what)
		}
	}
}

func FuzzP14Holder(f *testing.F) {
	f.Add("a", "bc", "d", "ab", "c", "d")
	f.Add("", "", "x", "", "x", "")
	f.Fuzz(func(t *testing.T, a, b, c, x, y, z string) {
		one, two := Holder{a, b, c}, Holder{x, y, z}
		if (one == two) != (one.Namespace("p") == two.Namespace("p")) {
			t.Errorf("%+v and %+v: %s and %s", one, two, one.Namespace("p"), two.Namespace("p"))
		}
		if problems := validation.IsDNS1123Label(one.Namespace("cluster")); len(problems) > 0 {
			t.Errorf("%s: %v", one.Namespace("cluster"), problems)
		}
	})
}

func FuzzP26ServiceNamespaceName(f *testing.F) {
	f.Add("default", "team-a")
	f.Add(strings.Repeat("x", 60), strings.Repeat("x", 61))
	f.Add(strings.Repeat("x", 63), "-"+strings.Repeat("a", 16))
	f.Fuzz(func(t *testing.T, a, b string) {
		if validation.IsDNS1123Label(a) != nil || validation.IsDNS1123Label(b) != nil {
			t.Skip()
		}
		ada, eve := Holder{"i", "ada", "c"}.Namespace("cluster"), Holder{"i", "eve", "c"}.Namespace("cluster")
		one, two := serviceNamespaceName(ada, a), serviceNamespaceName(ada, b)
		if (a == b) != (one == two) || one == serviceNamespaceName(eve, b) || one == ada {
			t.Errorf("%q and %q: %s and %s", a, b, one, two)
		}
		if problems := validation.IsDNS1123Label(one); len(problems) > 0 {
			t.Errorf("%s: %v", one, problems)
		}
	})
}

func TestRecordKeepsItsShape(t *testing.T) {
	data, err := json.Marshal(Record{Identity: auth.Identity{Issuer: "i", Subject: "s"}, Cluster: "c", Services: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"identity":{"issuer":"i","subject":"s","expiry":"0001-01-01T00:00:00Z"},"cluster":"c","services":["a"]}`
	if string(data) != want {
		t.Errorf("%s, want %s", data, want)
	}
}
