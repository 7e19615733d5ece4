// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/exporttemplate"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

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
	// LostInstances is what bindings do about instances that vanished, by default.
	LostInstances v1alpha1.LostInstances
	// Isolation, if Namespaced, has App Clusters see a namespaced API as a cluster-scoped one.
	Isolation v1alpha1.Isolation
	// Adoption says whether App Clusters may take up objects that this side makes.
	Adoption v1alpha1.Adoption
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

var templateResource = exporttemplate.Resource

// templates is the catalogue of the APIServiceExportTemplates of all namespaces,
// joined with the CRDs that they name. It reads live: pages and requests are rare,
// and any number of replicas see the same.
type templates struct{ dyn dynamic.Interface }

// Services returns what the templates offer.
func (t templates) Services(ctx context.Context) ([]Service, error) {
	all, err := exporttemplate.List(ctx, t.dyn, templateResource)
	if err != nil {
		return nil, err
	}
	all = slices.CompactFunc(all, func(a, b unstructured.Unstructured) bool {
		return exporttemplate.Selected(&a) == exporttemplate.Selected(&b)
	})
	services := make([]Service, 0, len(all))
	for i := range all {
		s, err := t.service(ctx, &all[i])
		if errors.Is(err, errUnreadable) { // it offers nothing, and the other templates count
			logr.FromContextOrDiscard(ctx).Info("template is left out", "reason", err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		services = append(services, s)
	}
	return services, nil
}

// errUnreadable says that a template cannot be read. The schemas of those of foreign groups
// are not ours.
var errUnreadable = errors.New("cannot be read")

// preferred returns the version that a template prefers, if any.
func preferred(u *unstructured.Unstructured) string {
	fields := exporttemplate.Selector(u)
	if version, ok, _ := unstructured.NestedString(fields, "version"); ok {
		return version
	}
	versions, _, _ := unstructured.NestedStringSlice(fields, "versions")
	return slices.Concat(versions, []string{""})[0]
}

func (t templates) service(ctx context.Context, u *unstructured.Unstructured) (Service, error) {
	var template v1alpha1.APIServiceExportTemplate
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"spec": u.Object["spec"]}, &template); err != nil {
		return Service{}, fmt.Errorf("template %s %w: %w", cache.MetaObjectToName(u), errUnreadable, err)
	}
	s := Service{
		Template:         cache.MetaObjectToName(u),
		TemplateGroup:    u.GroupVersionKind().Group,
		Resource:         exporttemplate.Selected(u),
		Title:            template.Spec.Title,
		Description:      template.Spec.Description,
		DocumentationURL: template.Spec.DocumentationURL,
		Categories:       template.Spec.Categories,
		PermissionClaims: template.Spec.PermissionClaims,
		BreakingChanges:  cmp.Or(template.Spec.BreakingChanges, v1alpha1.BreakingChanges(u.GetAnnotations()[v1alpha1.BreakingChangesAnnotation])),
		LostInstances:    template.Spec.LostInstances,
		Isolation:        template.Spec.ClusterScopedIsolation,
		Adoption:         template.Spec.Adoption,
	}
	if problems := validation.IsDNS1123Subdomain(s.Name()); len(problems) > 0 {
		return Service{}, fmt.Errorf("template %s %w: %.253q is the name of no API: %s", cache.MetaObjectToName(u), errUnreadable, s.Name(), problems[0])
	}
	if exporttemplate.IsForeign(u) && s.Adoption == "" {
		s.Adoption = v1alpha1.AdoptionOffer // they have no word for it: Klutch's konnector adopts whatever is there
	}
	found, err := offer.GetCRD(ctx, t.dyn, s.Name())
	switch {
	case fates.Is(err, fates.Absent):
		s.Title = cmp.Or(s.Title, s.Name())
		return s, nil
	case err != nil:
		return Service{}, err
	}
	crd, err := crdcompat.Decode(found)
	if err != nil {
		return Service{}, err
	}
	s = completed(s, crd, preferred(u))
	if exporttemplate.IsForeign(u) && s.Scope == v1alpha1.ClusterScope {
		s.Isolation = v1alpha1.IsolationPrefixed // templates of foreign groups have no other
	}
	return s, nil
}

// completed is s with what its CRD says.
func completed(s Service, crd *apiextensionsv1.CustomResourceDefinition, prefer string) Service {
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

// catalogAdapter converts the services of a Catalog to services of package offer.
type catalogAdapter struct{ Catalog }

func (c catalogAdapter) Services(ctx context.Context) ([]offer.Service, error) {
	all, err := c.Catalog.Services(ctx)
	services := make([]offer.Service, len(all))
	for i, s := range all {
		services[i] = offer.Service(s)
	}
	return services, err
}
