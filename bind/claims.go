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

// A claimant is an API whose claims are judged.
type claimant struct {
	group string // of the bound API
	scope v1alpha1.Scope
	wide  map[v1alpha1.GroupResource]bool // cluster-scoped resources of the App Cluster
}

// related returns what the accepted claims among those of a binding select, and
// what keeps a claim from being kept, one sentence each; and whether some were
// accepted that no provider gets.
func (a claimant) related(claims []v1alpha1.AcceptablePermissionClaim) (selected []klutchsync.Related, problems []string, refused bool) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			if c.Required {
				problems = append(problems, "The claim on "+c.String()+" is required and was rejected.")
			}
			continue
		}
		if why := a.refuses(c.PermissionClaim); why != "" {
			refused = true
			problems = append(problems, "The claim on "+c.String()+" was accepted and is refused all the same, since "+why+": no provider gets it. kubectl bind claims rejects it.")
			continue
		}
		if why := unsupported(c.PermissionClaim, a.scope); why != "" {
			problems = append(problems, "The claim on "+c.String()+" is not kept: "+why+".")
			continue
		}
		selected = append(selected, relatedTo(a.group, c.PermissionClaim)...)
	}
	return selected, problems, refused
}

// refuses says why no provider gets a claim; empty if one may.
func (a claimant) refuses(c v1alpha1.PermissionClaim) string {
	if s, why := standing(c.GroupResource, a.wide[c.GroupResource]); s == StandingNever {
		return why
	}
	return ""
}

// keeps tells whether a claim is carried out.
func (a claimant) keeps(c v1alpha1.AcceptablePermissionClaim) bool {
	return c.State == v1alpha1.ClaimAccepted && a.refuses(c.PermissionClaim) == "" && unsupported(c.PermissionClaim, a.scope) == ""
}

// metadataKeys are the keys of labels and annotations that a claim names, as patterns:
// those without a prefix, which are nobody's, and those of the bound API's own group. The
// others may be switches of programs that have nothing to do with it.
func metadataKeys(group string, c v1alpha1.PermissionClaim) (labels, annotations []string) {
	named := [2][]v1alpha1.Pattern{c.Read.Labels, c.Read.Annotations}
	if c.Selector.Owner != v1alpha1.OwnerConsumer {
		named = [2][]v1alpha1.Pattern{}
		if c.Update != nil {
			named = [2][]v1alpha1.Pattern{c.Update.Labels, c.Update.Annotations}
		}
	}
	for _, match := range c.Selector.LabelSelectors {
		for key := range match {
			named[0] = append(slices.Clip(named[0]), v1alpha1.Pattern{Pattern: key})
		}
	}
	return ownKeys(group, named[0]), ownKeys(group, named[1])
}

func ownKeys(group string, patterns []v1alpha1.Pattern) (own []string) {
	for _, p := range patterns {
		prefix, name, prefixed := strings.Cut(p.Pattern, "/")
		ours := prefix == group || strings.HasSuffix(prefix, "."+group)
		if prefixed && ours && name != "" && !strings.Contains(strings.TrimSuffix(p.Pattern, anyName), anyName) ||
			!prefixed && p.Pattern != "" && !strings.Contains(p.Pattern, anyName) {
			own = append(own, p.Pattern)
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// relatedTo returns what selects the objects of a claim: any one of its maps of
// labels is enough.
func relatedTo(group string, c v1alpha1.PermissionClaim) []klutchsync.Related {
	r := klutchsync.Related{
		Resource: schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource},
		From:     klutchsync.TargetSide, // the provider owns what it hands out
	}
	r.KeepLabels, r.KeepAnnotations = metadataKeys(group, c)
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
	case s.Owner == v1alpha1.OwnerConsumer && slices.ContainsFunc(s.References, func(r v1alpha1.Reference) bool { return pathOf(r)[0] == "status" }):
		return "selector.references of what this cluster hands over cannot be in status, which the provider writes"
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

// claimsInSync sums up problems with claims, of which reason is what they have in
// common, and claims that are not answered yet: nothing is done for them until they
// are, and that matters if they are required.
func claimsInSync(reason string, problems []string, asked []v1alpha1.PermissionClaim) v1alpha1.Condition {
	required := len(problems) > 0
	if len(asked) > 0 {
		if reason != v1alpha1.ReasonRefusedClaim {
			reason = v1alpha1.ReasonNewClaims
		}
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
