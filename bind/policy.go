// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrPolicy says that a backend asks for what no backend may have.
var ErrPolicy = errors.New("refused")

var (
	groupPattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9]$`)
	namePattern     = regexp.MustCompile(`^[a-z0-9A-Z]([-.:a-z0-9A-Z]*[a-z0-9A-Z])?$`)
)

// checkService keeps a backend from being given rights on what was here before it:
// Kubernetes' own groups and ours.
func checkService(r v1alpha1.GroupResource) error {
	if !groupPattern.MatchString(r.Group) || !resourcePattern.MatchString(r.Resource) {
		return fmt.Errorf("service %q: not <resource>.<group>: %w", r.String(), ErrPolicy)
	}
	if err := checkGroup(r.Group); err != nil {
		return fmt.Errorf("service %s: %w: %w", r, err, ErrPolicy)
	}
	return nil
}

// reserved are groups that no provider may define kinds of, nor in their subdomains.
var reserved = [...]string{"k8s.io", "kubernetes.io", v1alpha1.GroupVersion.Group}

func checkGroup(group string) error {
	if !strings.Contains(group, ".") {
		return fmt.Errorf("group %q is one of Kubernetes itself", group)
	}
	for _, r := range reserved {
		if group == r || strings.HasSuffix(group, "."+r) {
			return fmt.Errorf("group %q is reserved", group)
		}
	}
	return nil
}

// A Standing says how a claim can be accepted.
type Standing string

// The standings.
const (
	StandingOrdinary Standing = "Ordinary" // also along with others, unnamed
	StandingByName   Standing = "ByName"   // by an answer that names it
	StandingNever    Standing = "Never"    // not at all
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

// standing judges a claim on a resource, and says why it is not ordinary. That a
// resource is cluster-scoped only the App Cluster knows; see clusterScoped.
func standing(r v1alpha1.GroupResource, clusterScoped bool) (s Standing, why string) {
	if r.Group != "" && !groupPattern.MatchString(r.Group) || !resourcePattern.MatchString(r.Resource) {
		return StandingNever, "it is not a resource"
	}
	for n, why := range never {
		inGroup := n.Group != "" && (r.Group == n.Group || strings.HasSuffix(r.Group, "."+n.Group))
		if inGroup || n == r {
			return StandingNever, why
		}
	}
	resources, runs := programs[r.Group]
	switch {
	case clusterScoped:
		return StandingNever, "it is cluster-scoped"
	case r.Group == "" && (r.Resource == "secrets" || r.Resource == "configmaps"):
		return StandingOrdinary, ""
	case runs && (resources == nil || slices.Contains(resources, r.Resource)):
		return StandingByName, "they are programs, which run in this cluster with the rights that their namespace has"
	}
	return StandingByName, "what they say is carried out by programs of this cluster"
}

// dependsOnScope tells whether a resource may be claimed unless it is cluster-scoped.
func dependsOnScope(r v1alpha1.GroupResource) bool {
	s, _ := standing(r, false)
	return s == StandingByName
}

// clusterScoped tells whether an API server serves the resource of a claim as a
// cluster-scoped one. What it does not serve is not.
func clusterScoped(d discovery.ServerResourcesInterface, c v1alpha1.PermissionClaim) (bool, error) {
	gv := schema.GroupVersion{Group: c.Group, Version: c.Version}
	list, err := d.ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("scope of %s: %w", c.String(), err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == c.Resource && !r.Namespaced }), nil
}

// mostParts is how many names, paths, labels and the like a claim may have: as many as a
// person reads before they agree to it.
const mostParts = 100

// checkClaim keeps wildcards and the like out of the konnector's rights, and what no person
// reads out of what they are asked.
func checkClaim(c Claim) error {
	good := func(name string) bool { return name == anyName || namePattern.MatchString(name) }
	if c.Group != "" && !groupPattern.MatchString(c.Group) || !resourcePattern.MatchString(c.Resource) ||
		!every(slices.Concat(c.Selector.Names, c.Selector.Namespaces), good) {
		return fmt.Errorf("service %s claims %q: not a resource: %w", c.Service, c.String(), ErrPolicy)
	}
	if n := parts(c); n > mostParts {
		return fmt.Errorf("service %s claims %s with %d names, paths and labels, more than %d: %w", c.Service, c.String(), n, mostParts, ErrPolicy)
	}
	return nil
}

func every(names []string, good func(string) bool) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return !good(name) })
}

// parts counts what is said of a claim.
func parts(c Claim) int {
	labels, annotations := c.Metadata()
	n := len(c.Selector.Names) + len(c.Selector.Namespaces) + len(c.Selector.References) + len(labels) + len(annotations)
	for _, match := range c.Selector.LabelSelectors {
		n += max(1, len(match))
	}
	if c.Update != nil {
		n += len(c.Update.Fields) + len(c.Update.Preserving)
	}
	return n
}
