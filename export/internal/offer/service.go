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

// A Service is an API that is offered to App Clusters, field by field as in package export.
type Service struct {
	Template           cache.ObjectName
	TemplateGroup      string
	Resource           schema.GroupResource
	Kind               string
	Scope              v1alpha1.Scope
	Version            string
	Versions           []string
	Title, Description string
	DocumentationURL   string
	Categories         []string
	PermissionClaims   []v1alpha1.PermissionClaim
	BreakingChanges    v1alpha1.BreakingChanges
	LostInstances      v1alpha1.LostInstances
	Isolation          v1alpha1.Isolation
	Adoption           v1alpha1.Adoption
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
