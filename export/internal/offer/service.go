// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrForbidden is wrapped by the errors of an Authorizer that say no.
var ErrForbidden = errors.New("not allowed")

// A Service is an API of the Control Plane Cluster that is offered to App Clusters.
type Service struct {
	// Template is the APIServiceExportTemplate that offers the API. A catalogue
	// that does not work with templates may use any name that its Authorizer
	// understands.
	Template cache.ObjectName
	// TemplateGroup is the API group of Template. Empty means our own.
	TemplateGroup string
	// Resource is the API. No two services of a catalogue share it.
	Resource schema.GroupResource
	// Kind, Scope, Version and Versions come from the CRD: the kind, its scope, the
	// version to prefer and all that are served. They are empty as long as there
	// is no such CRD; then the service cannot be bound.
	Kind     string
	Scope    v1alpha1.Scope
	Version  string
	Versions []string
	// Title and Description are for people.
	Title, Description string
	// DocumentationURL is where people read more; Categories are words by which
	// they find the service.
	DocumentationURL string
	Categories       []string
	// PermissionClaims are what the service needs of an App Cluster.
	PermissionClaims []v1alpha1.PermissionClaim
	// BreakingChanges of the API that App Clusters have already: empty means as
	// Options says.
	BreakingChanges v1alpha1.BreakingChanges
}

// Name returns "<resource>.<group>": the name of the service everywhere.
func (s Service) Name() string { return s.Resource.String() }

// Available reports whether the API exists.
func (s Service) Available() bool { return len(s.Versions) > 0 }

// Find returns the service of that name.
func Find(services []Service, name string) (Service, bool) {
	i := slices.IndexFunc(services, func(s Service) bool { return s.Name() == name })
	if i < 0 {
		return Service{}, false
	}
	return services[i], true
}

// AdviceUnfit is what to do about an API that is cluster-scoped. RBAC cannot limit
// list and watch to the names of one tenant.
const AdviceUnfit = "Ask the platform team to offer a namespaced API in its place."
