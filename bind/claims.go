// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// anyName is the name that selects all names, and all namespaces.
const anyName = "*"

// related returns what the accepted claims among those of a binding select, and
// what keeps a claim from being kept, one sentence each.
func related(claims []v1alpha1.AcceptablePermissionClaim, scope v1alpha1.Scope) (selected []klutchsync.Related, problems []string) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			if c.Required {
				problems = append(problems, "The claim on "+c.String()+" is required and was rejected.")
			}
			continue
		}
		if why := unsupported(c.PermissionClaim, scope); why != "" {
			problems = append(problems, "The claim on "+c.String()+" is not kept: "+why+".")
			continue
		}
		selected = append(selected, relatedTo(c.PermissionClaim)...)
	}
	return selected, problems
}

// relatedTo returns what selects the objects of a claim: any one of its maps of
// labels is enough.
func relatedTo(c v1alpha1.PermissionClaim) []klutchsync.Related {
	r := klutchsync.Related{
		Resource: schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource},
		From:     klutchsync.TargetSide, // the provider owns what it hands out
	}
	if c.Selector.Owner == v1alpha1.OwnerConsumer {
		r.From = klutchsync.SourceSide
	}
	for _, ref := range c.Selector.References {
		r.References = append(r.References, ref.Path)
	}
	if len(r.References) == 0 {
		r.Names = c.Selector.Names
	}
	if !slices.Contains(c.Selector.Namespaces, anyName) {
		r.Namespaces = c.Selector.Namespaces
	}
	if len(c.Selector.LabelSelectors) == 0 {
		return []klutchsync.Related{r}
	}
	var each []klutchsync.Related
	for _, match := range c.Selector.LabelSelectors {
		r.Labels = labels.SelectorFromSet(match).String()
		each = append(each, r)
	}
	return each
}

// unsupported says what about a claim would select other objects than those that the
// App Cluster's owner agreed to; empty if nothing does.
func unsupported(c v1alpha1.PermissionClaim, scope v1alpha1.Scope) string {
	s := c.Selector
	named := len(s.Names) > 0 && !slices.Contains(s.Names, anyName)
	switch {
	case len(s.FieldSelectors) > 0:
		return "selector.fieldSelectors is not supported"
	case len(s.References) > 0 && named:
		return "selector.names and selector.references together are not supported"
	case c.AutoAdopt, c.AutoDonate:
		return "autoAdopt and autoDonate are not supported"
	case scope == v1alpha1.ClusterScope:
		return "claims of a cluster-scoped API are not supported"
	}
	return ""
}

// unanswered returns the claims of an export that its binding has no answer to: they
// were made, or changed, after the owner of the App Cluster was asked.
func unanswered(claims []v1alpha1.PermissionClaim, answers []v1alpha1.AcceptablePermissionClaim) []v1alpha1.PermissionClaim {
	return slices.DeleteFunc(slices.Clone(claims), func(c v1alpha1.PermissionClaim) bool {
		return slices.ContainsFunc(answers, func(a v1alpha1.AcceptablePermissionClaim) bool {
			return equality.Semantic.DeepEqual(a.PermissionClaim, c)
		})
	})
}

// claimsInSync sums up problems with claims, and claims that nobody answered yet:
// nothing is done for them until somebody does, and that matters if they are
// required.
func claimsInSync(problems []string, asked []v1alpha1.PermissionClaim) v1alpha1.Condition {
	reason, required := v1alpha1.ReasonUnsupportedClaim, len(problems) > 0
	if len(asked) > 0 {
		reason = v1alpha1.ReasonNewClaims
		names := make([]string, 0, len(asked))
		for _, c := range asked {
			names = append(names, c.String())
			required = required || c.Required
		}
		problems = append(problems, "The provider makes claims that were not answered: "+strings.Join(names, ", ")+". kubectl bind claims answers them; what was agreed to goes on.")
	}
	c := v1alpha1.True(v1alpha1.ConditionClaimsInSync)
	if required {
		c = warned(v1alpha1.ConditionClaimsInSync, reason, "")
	}
	if len(problems) > 0 {
		c.Reason, c.Message = reason, strings.Join(problems, " ")
	}
	return c
}
