// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/crdcompat"
)

// The offers of the CRDs of examples/operator, and what is said about these CRDs.
func TestOffer(t *testing.T) {
	for name, o := range map[string]*offering{
		"certificates": {namespace: "services", groups: []string{"oidc:developers"}, secrets: []string{"spec.secretName"}},
		"clusters":     {namespace: "default", secrets: []string{"status.credentials.name"}, labels: map[string]string{"cnpg.io/userType": "app"}},
	} {
		data, err := os.ReadFile("../../examples/operator/crds/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			t.Fatal(err)
		}
		if o.api, err = crdcompat.Snapshot(crd); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(o.notes(), "\n") + "\n---\n"
		for _, object := range o.objects() {
			text, err := yaml.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			said += string(text) + "---\n"
		}
		golden(t, "offer-"+name+".txt", said)
	}
}
