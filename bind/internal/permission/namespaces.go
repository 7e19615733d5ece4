// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"fmt"
	"slices"
	"strings"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A reach is where the claims of a binding are about related objects.
type reach struct {
	named  []string
	others bool // all namespaces but those of Kubernetes and of Klutch
}

func reachOf(claims []v1alpha1.AcceptablePermissionClaim) (r reach) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			continue
		}
		r.others = r.others || len(c.Selector.Namespaces) == 0 || slices.Contains(c.Selector.Namespaces, anyName)
		r.named = append(r.named, c.Selector.Namespaces...)
	}
	r.named = slices.DeleteFunc(r.named, func(n string) bool { return n == anyName })
	slices.Sort(r.named)
	r.named = slices.Compact(r.named)
	return r
}

// The namespaces that are closed to related objects, unless a claim that was agreed to
// has the very name: those of Kubernetes, and of the programs of Klutch, where the
// credentials of all platforms are. The shipped policy of the konnector closes the same.
const closedPrefix = "kube-"

var closedNames = []string{v1alpha1.Namespace, "klutch-backend"}

// closedPatterns are the closed namespaces as a Sync takes them.
func closedPatterns() []string { return append([]string{closedPrefix + "*"}, closedNames...) }

func isClosed(namespace string) bool {
	return strings.HasPrefix(namespace, closedPrefix) || slices.Contains(closedNames, namespace)
}

// closedExpression is isClosed in CEL.
func closedExpression() string {
	return fmt.Sprintf("request.namespace.startsWith(%q) || request.namespace in %s", closedPrefix, celList(closedNames))
}

func (r reach) covers(namespace string) bool {
	return slices.Contains(r.named, namespace) || r.others && !isClosed(namespace)
}

// expression is covers in CEL.
func (r reach) expression() string {
	text := "request.namespace in " + celList(r.named)
	if r.others {
		text += " || !(" + closedExpression() + ")"
	}
	return text
}
