// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func isolationChecks() []check {
	return []check{
		{"two tenants, two namespaces", "P14", checkApart},
		{"neither may do anything with the other's", "P12", checkMatrix},
		{"neither gets anything of the other's", "P12", checkCalls},
	}
}

func both(c checker) (one, two *tenant, mirrors [2]string) {
	c.Helper()
	one, two = c.tenant(c.one), c.tenant(c.two)
	for i, t := range []*tenant{one, two} {
		_, err := t.export()
		c.must("the export", err)
		mirrors[i], err = t.mirror()
		c.must("the service namespace", err)
	}
	return one, two, mirrors
}

func checkApart(c checker) {
	one, two, mirrors := both(c)
	if one.namespace == two.namespace || mirrors[0] == mirrors[1] {
		c.violated("tenants %s and %s, service namespaces %s and %s", one.namespace, two.namespace, mirrors[0], mirrors[1])
	}
	if one.access.Token == two.access.Token {
		c.violated("both have the same token")
	}
}

func checkMatrix(c checker) {
	one, two, mirrors := both(c)
	nothingIn(c, one, two.namespace, mirrors[1])
	nothingIn(c, two, one.namespace, mirrors[0])
}

// checkCalls does what a review may be wrong about.
func checkCalls(c checker) {
	one, two, mirrors := both(c)
	refused := func(what string, err error) {
		c.Helper()
		if !fates.Is(err, fates.Forbidden) {
			c.violated("%s of another tenant: %v, not forbidden", what, err)
		}
	}
	_, err := c.objects(one, mirrors[1]).List(c.Context(), metav1.ListOptions{})
	refused("list objects", err)
	_, err = c.objects(one, metav1.NamespaceAll).List(c.Context(), metav1.ListOptions{})
	refused("list all objects, those", err)
	_, err = one.kube.CoreV1().Secrets(two.namespace).Get(c.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	refused("read the credential", err)
	_, err = one.kube.CoreV1().Namespaces().Get(c.Context(), two.namespace, metav1.GetOptions{})
	refused("read the namespace", err)
	_, err = one.dyn.Resource(v1alpha1.Resource("apiserviceexports")).Namespace(two.namespace).List(c.Context(), metav1.ListOptions{})
	refused("list the exports", err)
}
