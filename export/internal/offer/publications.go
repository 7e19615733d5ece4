// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/export/internal/expiring"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Schemas cache what App Clusters get of each CRD, which many exports share.
type Schemas struct {
	Dyn   dynamic.Interface
	known expiring.Cache[publication] // by CRD
}

// schemasFor is as good as for ever: events tell of changes.
const schemasFor = 365 * 24 * time.Hour

// CRDResource are the CustomResourceDefinitions.
var CRDResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// A publication is what App Clusters get of a CRD.
type publication struct {
	spec *v1alpha1.APIServiceExportCRDSpec // must not be changed
	hash string
}

// ResourceOf returns the resource of a CRD in a version that is served.
func (s *Schemas) ResourceOf(ctx context.Context, crd string) (schema.GroupVersionResource, error) {
	p, err := s.get(ctx, crd)
	if err != nil {
		return schema.GroupVersionResource{}, err
	}
	return schema.GroupVersionResource{Group: p.spec.Group, Version: p.spec.Versions[0].Name, Resource: p.spec.Names.Plural}, nil
}

// get returns that of a CRD, which many exports share until it changes.
func (s *Schemas) get(ctx context.Context, crd string) (publication, error) {
	return s.known.Get(crd, time.Now().Add(schemasFor), func() (p publication, err error) {
		u, err := GetCRD(ctx, s.Dyn, crd)
		if err != nil {
			return p, err
		}
		if p.spec, err = crdcompat.Snapshot(u); err != nil {
			return p, err
		}
		p.hash, err = crdcompat.Hash(p.spec)
		return p, err
	})
}

// GetCRD reads a CRD that is there now.
func GetCRD(ctx context.Context, dyn dynamic.Interface, name string) (*unstructured.Unstructured, error) {
	u, err := dyn.Resource(CRDResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get CRD %s: %w", name, err)
	}
	return u, nil
}
