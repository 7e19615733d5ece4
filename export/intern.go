// SPDX-License-Identifier: Apache-2.0

package export

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// internedPerAPI is how many specs of one API are remembered: that of its CRD, and
// those of exports that lag behind.
const internedPerAPI = 4

// An interner lets equal specs of many exports be one in memory. Most exports of an API
// have the same spec, which is by far the largest part of them.
type interner struct {
	mu    sync.Mutex
	specs map[string][]*v1alpha1.APIServiceExportSpec // by API, the last ones first
}

// intern gives a new export the spec of another one, if there is an equal one.
func (p *interner) intern(o *v1alpha1.APIServiceExport) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.specs[o.Name]
	i := slices.IndexFunc(known, func(s *v1alpha1.APIServiceExportSpec) bool { return equality.Semantic.DeepEqual(*s, o.Spec) })
	if i >= 0 {
		o.Spec = *known[i]
		return
	}
	if p.specs == nil {
		p.specs = map[string][]*v1alpha1.APIServiceExportSpec{}
	}
	spec := o.Spec
	p.specs[o.Name] = append([]*v1alpha1.APIServiceExportSpec{&spec}, known[:min(len(known), internedPerAPI-1)]...)
}

// What tenants write is kept only as far as it is of use here, however much it is.

func transformRequest(o *v1alpha1.APIServiceExportRequest) {
	o.Labels, o.Annotations, o.Spec.Parameters = nil, nil, nil
	o.Spec.Resources = slices.Clone(o.Spec.Resources[:min(len(o.Spec.Resources), offer.MaxAsked+1)])
	for i := range o.Spec.Resources {
		o.Spec.Resources[i].Versions, o.Spec.Resources[i].PermissionClaims = nil, nil
	}
}

func transformNamespace(o *v1alpha1.APIServiceNamespace) { o.Labels, o.Annotations = nil, nil }

func transformBinding(o *v1alpha1.ClusterBinding) {
	o.Status.KonnectorVersion, o.Status.Conditions = "", sound(o.Status.Conditions)
}

func (p *interner) transform(o *v1alpha1.APIServiceExport) {
	o.Status.AcceptedNames, o.Status.StoredVersions, o.Status.Conditions = nil, nil, sound(o.Status.Conditions)
	p.intern(o)
}

const (
	maxConditions = 32
	maxMessage    = 4 << 10 // with type and reason
)

// sound leaves out conditions of a size or number that no konnector writes; the next write
// of a status removes them.
func sound(all []v1alpha1.Condition) []v1alpha1.Condition {
	if len(all) > maxConditions {
		return nil
	}
	return slices.DeleteFunc(all, func(c v1alpha1.Condition) bool { return len(c.Type)+len(c.Reason)+len(c.Message) > maxMessage })
}

// transformMetadata leaves out what is in the metadata of an object for others.
func transformMetadata(obj any) (any, error) {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.ManagedFields, o.OwnerReferences = nil, nil
		delete(o.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
	return obj, nil
}
