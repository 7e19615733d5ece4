// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// never are the resources that decide over a cluster: of a whole group and its
// subdomains, or of the core group. A provider that may write them, or read some of them,
// owns more than what was bound.
var never = map[v1alpha1.GroupResource]string{
	{Group: "authorization.k8s.io"}:         "it gives rights", // rbac.authorization.k8s.io too
	{Group: "authentication.k8s.io"}:        "it makes and judges credentials",
	{Group: "certificates.k8s.io"}:          "it makes credentials",
	{Group: "admissionregistration.k8s.io"}: "it judges and changes what others write",
	{Group: "apiextensions.k8s.io"}:         "it decides which APIs there are",
	{Group: "apiregistration.k8s.io"}:       "it decides which APIs there are",
	{Group: "coordination.k8s.io"}:          "it decides which programs lead",
	{Group: "policy"}:                       "it decides which pods run",
	{Group: v1alpha1.GroupVersion.Group}:    "it decides what is bound",
	{Resource: "bindings"}:                  "it decides where pods run",
	{Resource: "componentstatuses"}:         "it is cluster-scoped",
	{Resource: "namespaces"}:                "it is cluster-scoped",
	{Resource: "nodes"}:                     "it is cluster-scoped",
	{Resource: "persistentvolumes"}:         "it is cluster-scoped",
	{Resource: "serviceaccounts"}:           "it makes credentials",
}

// programs are the groups of resources that are run; of the core group these.
var programs = map[string][]string{"": {"pods", "podtemplates", "replicationcontrollers"}, "apps": nil, "batch": nil}

// IsResource tells whether a name can be one of a resource: no wildcards, no subresources.
func IsResource(r v1alpha1.GroupResource) bool {
	return (r.Group == "" || groupPattern.MatchString(r.Group)) && resourcePattern.MatchString(r.Resource)
}

// A Policy says how a claim on a resource can be accepted.
type Policy string

// The policies.
const (
	Ordinary Policy = "Ordinary" // also along with others, unnamed
	ByName   Policy = "ByName"   // by an answer that names it
	Never    Policy = "Never"    // not at all
)

// PolicyOf judges a claim on a resource, and says why it is not ordinary. That a
// resource is cluster-scoped only the App Cluster knows; see clusterScoped.
func PolicyOf(r v1alpha1.GroupResource, clusterScoped bool) (p Policy, why string) {
	if !IsResource(r) {
		return Never, "it is not a resource"
	}
	for n, why := range never {
		inGroup := n.Group != "" && (r.Group == n.Group || strings.HasSuffix(r.Group, "."+n.Group))
		if inGroup || n == r {
			return Never, why
		}
	}
	resources, runs := programs[r.Group]
	switch {
	case clusterScoped:
		return Never, "it is cluster-scoped"
	case r.Group == "" && (r.Resource == "secrets" || r.Resource == "configmaps"):
		return Ordinary, ""
	case runs && (resources == nil || slices.Contains(resources, r.Resource)):
		return ByName, "they are programs, which run in this cluster with the rights that their namespace has"
	}
	return ByName, "what they say is carried out by programs of this cluster"
}

// DependsOnScope tells whether a resource may be claimed unless it is cluster-scoped.
func DependsOnScope(r v1alpha1.GroupResource) bool {
	p, _ := PolicyOf(r, false)
	return p == ByName
}

// ClusterScoped tells whether an API server serves the resource of a claim as a
// cluster-scoped one. What it does not serve is not.
func ClusterScoped(ctx context.Context, d discovery.ServerResourcesInterfaceWithContext, c v1alpha1.PermissionClaim) (bool, error) {
	gv := schema.GroupVersion{Group: c.Group, Version: c.Version}
	list, err := d.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("scope of %s: %w", c.String(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == c.Resource && !r.Namespaced }), nil
}

var (
	groupPattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9]$`)
)
