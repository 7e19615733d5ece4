// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/discovery"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Judge decides which claims of one bound API are carried out.
type Judge struct {
	spec *v1alpha1.APIServiceExportSpec  // of the bound API
	wide map[v1alpha1.GroupResource]bool // cluster-scoped resources of the App Cluster
}

// NewJudge asks an API server for the scope of what the claims of a binding to an
// export are about.
func NewJudge(ctx context.Context, d func() discovery.DiscoveryInterfaceWithContext, export *v1alpha1.APIServiceExportSpec, claims []v1alpha1.AcceptablePermissionClaim) (Judge, error) {
	a := Judge{spec: export, wide: map[v1alpha1.GroupResource]bool{}}
	for _, c := range claims {
		if !needsScope(c) {
			continue
		}
		wide, err := ClusterScoped(ctx, d(), c.PermissionClaim)
		if err != nil {
			return a, err
		}
		a.wide[c.GroupResource] = wide
	}
	return a, nil
}

// needsScope tells whether a claim can be judged only with the scope of its resource.
func needsScope(c v1alpha1.AcceptablePermissionClaim) bool {
	return c.State == v1alpha1.ClaimAccepted && DependsOnScope(c.GroupResource)
}

// Select returns what the accepted claims among those of a binding select, and
// what keeps a claim from being kept, one sentence each; and whether some were
// accepted that no provider gets.
func (a Judge) Select(claims []v1alpha1.AcceptablePermissionClaim) (selected []klutchsync.Related, problems []string, refused bool) {
	for _, c := range claims {
		if c.State != v1alpha1.ClaimAccepted {
			if c.Required {
				problems = append(problems, "The claim on "+c.String()+" is required and was rejected. kubectl bind claims answers it anew.")
			}
			continue
		}
		if why := a.Refuses(c.PermissionClaim); why != "" {
			refused = true
			problems = append(problems, "The claim on "+c.String()+" was accepted and is refused all the same, since "+why+": no provider gets it. kubectl bind claims rejects it.")
			continue
		}
		if why := unsupported(c.PermissionClaim, a.spec); why != "" {
			problems = append(problems, "The claim on "+c.String()+" is not kept: "+why+".")
			continue
		}
		selected = append(selected, relatedTo(a.spec.Group, c.PermissionClaim)...)
	}
	return selected, problems, refused
}

// Refuses says why no provider gets a claim; empty if one may.
func (a Judge) Refuses(c v1alpha1.PermissionClaim) string {
	if p, why := PolicyOf(c.GroupResource, a.wide[c.GroupResource]); p == Never {
		return why
	}
	return ""
}

// Keeps tells whether a claim is carried out.
func (a Judge) Keeps(c v1alpha1.AcceptablePermissionClaim) bool {
	return c.State == v1alpha1.ClaimAccepted && a.Refuses(c.PermissionClaim) == "" && unsupported(c.PermissionClaim, a.spec) == ""
}

// unsupported says what about a claim would select other objects than those that the
// App Cluster's owner agreed to; empty if nothing does.
func unsupported(c v1alpha1.PermissionClaim, spec *v1alpha1.APIServiceExportSpec) string {
	s := c.Selector
	named := len(s.Names) > 0 && !slices.Contains(s.Names, AnyName)
	switch {
	case len(s.FieldSelectors) > 0:
		return "selector.fieldSelectors is not supported"
	case s.Owner == v1alpha1.OwnerConsumer && slices.ContainsFunc(s.References, func(r v1alpha1.Reference) bool { return pathOf(r)[0] == "status" }):
		return "selector.references of what this cluster hands over cannot be in status, which the provider writes"
	case len(s.References) > 0 && named:
		return "selector.names and selector.references together are not supported"
	case c.AutoAdopt, c.AutoDonate:
		return "autoAdopt and autoDonate are not supported"
	case IsWide(spec) && len(s.References) > 0:
		return "selector.references name objects of the same namespace, and the API is cluster-scoped"
	case spec.Scope == v1alpha1.ClusterScope && !IsWide(spec):
		return "claims of a cluster-scoped API are supported with clusterScopedIsolation Prefixed alone"
	}
	return ""
}

// IsWide tells whether the claims of an API are about each namespace that has a service
// namespace: its objects are cluster-scoped on both sides.
func IsWide(spec *v1alpha1.APIServiceExportSpec) bool {
	return spec.Scope == v1alpha1.ClusterScope && spec.ClusterScopedIsolation == v1alpha1.IsolationPrefixed
}

// Unanswered returns the claims of an export that its binding has no answer to: they
// were made, or changed, after the owner of the App Cluster was asked.
func Unanswered(claims []v1alpha1.PermissionClaim, answers []v1alpha1.AcceptablePermissionClaim) []v1alpha1.PermissionClaim {
	return slices.DeleteFunc(slices.Clone(claims), func(c v1alpha1.PermissionClaim) bool {
		return slices.ContainsFunc(answers, func(a v1alpha1.AcceptablePermissionClaim) bool {
			return equality.Semantic.DeepEqual(a.PermissionClaim, c)
		})
	})
}
