// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"
)

// The offers of the CRDs of examples/operator, and what is said about these CRDs.
func TestOffer(t *testing.T) {
	objects := map[string]any{}
	for _, name := range []string{"certificates", "clusters"} {
		data, err := os.ReadFile("../../examples/operator/crds/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var crd map[string]any
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatal(err)
		}
		objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+crd["metadata"].(map[string]any)["name"].(string)] = crd
	}
	api := newFakeAPI(t, objects).kubeconfig(t)
	for name, args := range map[string][]string{
		"offer-certificates": {"certificates.cert-manager.io", "-n", "services", "--group", "oidc:developers", "--secret", "spec.secretName", "--lost-instances", "Recreate"},
		"offer-clusters":     {"clusters.postgresql.cnpg.io", "--secret", "status.credentials.name", "--secret-label", "cnpg.io/userType=app"},
		"offer-forget":       {"clusters.postgresql.cnpg.io", "--lost-instances", "Forget"},
	} {
		golden(t, name+".txt", (terminal{}).run(t.Context(), append([]string{"offer", "--kubeconfig", api}, args...)...).String())
	}
}
