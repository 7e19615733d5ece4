// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Namespaces are those in which the claims of a binding are about related objects.
type Namespaces struct {
	named  []string
	others bool // all namespaces but those of Kubernetes and of Klutch
}

// NamespacesOf returns the namespaces of the accepted claims.
func NamespacesOf(claims []v1alpha1.AcceptablePermissionClaim) (r Namespaces) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			continue
		}
		r.others = r.others || len(c.Selector.Namespaces) == 0 || slices.Contains(c.Selector.Namespaces, AnyName)
		r.named = append(r.named, c.Selector.Namespaces...)
	}
	r.named = slices.DeleteFunc(r.named, func(n string) bool { return n == AnyName })
	slices.Sort(r.named)
	r.named = slices.Compact(r.named)
	return r
}

// The namespaces that are closed to related objects, unless a claim that was agreed to
// has the very name: those of Kubernetes, and of the programs of Klutch, where the
// credentials of all platforms are. The shipped policy of the konnector closes the same.
const closedPrefix = "kube-"

var closedNames = []string{v1alpha1.Namespace, "klutch-backend"}

// ClosedPatterns are the closed namespaces as a Sync takes them.
func ClosedPatterns() []string { return append([]string{closedPrefix + "*"}, closedNames...) }

// IsClosed reports whether a namespace is closed to what a provider makes.
func IsClosed(namespace string) bool { return isClosed(namespace) }

func isClosed(namespace string) bool {
	return strings.HasPrefix(namespace, closedPrefix) || slices.Contains(closedNames, namespace)
}

// closedExpression is isClosed in CEL.
func closedExpression() string {
	return fmt.Sprintf("request.namespace.startsWith(%q) || request.namespace in %s", closedPrefix, celList(closedNames))
}

// Covers tells whether a claim is about related objects in a namespace.
func (r Namespaces) Covers(namespace string) bool {
	return slices.Contains(r.named, namespace) || r.others && !isClosed(namespace)
}

// expression is covers in CEL.
func (r Namespaces) expression() string {
	text := "request.namespace in " + celList(r.named)
	if r.others {
		text += " || !(" + closedExpression() + ")"
	}
	return text
}

// celList is a list of strings in CEL.
func celList(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
