// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Service is an API of the Control Plane Cluster that is offered to App Clusters.
type Service struct {
	// Template is the APIServiceExportTemplate that offers the API. A catalogue
	// that does not work with templates may use any name that its Authorizer
	// understands.
	Template cache.ObjectName
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
	// PermissionClaims are what the service needs of an App Cluster.
	PermissionClaims []v1alpha1.PermissionClaim
}

// Name returns "<resource>.<group>": the name of the service everywhere.
func (s Service) Name() string { return s.Resource.String() }

// Available reports whether the API exists.
func (s Service) Available() bool { return len(s.Versions) > 0 }

// A Catalog says what is offered. Replace the default by your own to take the
// offer from elsewhere than APIServiceExportTemplates.
type Catalog interface {
	// Services returns all services, in the order in which people should see
	// them. It is called for each page and each request.
	Services(ctx context.Context) ([]Service, error)
}

// find returns the service of that name.
func find(services []Service, name string) (Service, bool) {
	i := slices.IndexFunc(services, func(s Service) bool { return s.Name() == name })
	if i < 0 {
		return Service{}, false
	}
	return services[i], true
}

var (
	crdResource            = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	templateResource       = v1alpha1.Resource("apiserviceexporttemplates")
	exportResource         = v1alpha1.Resource("apiserviceexports")
	requestResource        = v1alpha1.Resource("apiserviceexportrequests")
	namespaceResource      = v1alpha1.Resource("apiservicenamespaces")
	clusterBindingResource = v1alpha1.Resource("clusterbindings")
)

// templates is the catalogue of the APIServiceExportTemplates of all namespaces,
// joined with the CRDs that they name. It reads live: pages and requests are rare,
// and any number of replicas see the same.
type templates struct{ dyn dynamic.Interface }

func (t templates) Services(ctx context.Context) ([]Service, error) {
	list, err := t.dyn.Resource(templateResource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list templates: %w", err)
	}
	var services []Service
	for _, u := range list.Items {
		s, err := t.service(ctx, &u)
		if err != nil {
			return nil, err
		}
		services = append(services, s)
	}
	// The first template in order of namespace and name offers the API.
	slices.SortStableFunc(services, func(a, b Service) int { return strings.Compare(a.Template.String(), b.Template.String()) })
	slices.SortStableFunc(services, func(a, b Service) int { return strings.Compare(a.Name(), b.Name()) })
	return slices.CompactFunc(services, func(a, b Service) bool { return a.Resource == b.Resource }), nil
}

func (t templates) service(ctx context.Context, u *unstructured.Unstructured) (Service, error) {
	var template v1alpha1.APIServiceExportTemplate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &template); err != nil {
		return Service{}, fmt.Errorf("decode template %s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	sel := template.Spec.APIServiceSelector
	s := Service{
		Template:         cache.MetaObjectToName(&template),
		Resource:         schema.GroupResource{Group: sel.Group, Resource: sel.Resource},
		Title:            template.Spec.Title,
		Description:      template.Spec.Description,
		PermissionClaims: template.Spec.PermissionClaims,
	}
	found, err := getCRD(ctx, t.dyn, s.Name())
	switch {
	case apierrors.IsNotFound(err):
		s.Title = cmp.Or(s.Title, s.Name())
		return s, nil
	case err != nil:
		return Service{}, err
	}
	crd, err := decodeCRD(found)
	if err != nil {
		return Service{}, err
	}
	return s.of(crd, sel.Version), nil
}

// of completes s with what its CRD says.
func (s Service) of(crd *apiextensionsv1.CustomResourceDefinition, prefer string) Service {
	s.Kind = crd.Spec.Names.Kind
	s.Scope = v1alpha1.Scope(crd.Spec.Scope)
	s.Title = cmp.Or(s.Title, s.Kind)
	for _, v := range crd.Spec.Versions {
		if v.Served {
			s.Versions = append(s.Versions, v.Name)
		}
	}
	if len(s.Versions) > 0 {
		s.Version = s.Versions[max(0, slices.Index(s.Versions, prefer))]
	}
	return s
}

func getCRD(ctx context.Context, dyn dynamic.Interface, name string) (*unstructured.Unstructured, error) {
	u, err := dyn.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get CRD %s: %w", name, err)
	}
	return u, nil
}
