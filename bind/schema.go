// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"encoding/json"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// maxSchema is the size of all versions together: what etcd takes, with room for
// the rest.
const maxSchema = 1 << 20

// checkExport holds what comes from the other side against the binding that the
// App Cluster's owner agreed to.
func checkExport(binding string, spec *v1alpha1.APIServiceExportSpec) error {
	resource := schema.GroupResource{Group: spec.Group, Resource: spec.Names.Plural}
	switch {
	case resource.String() != binding:
		return fmt.Errorf("it is about %s, the binding about %s", resource, binding)
	case spec.Names.Kind == "":
		return errors.New("it names no kind")
	case spec.Scope != v1alpha1.NamespacedScope && spec.Scope != v1alpha1.ClusterScope:
		return fmt.Errorf("scope %q is neither Namespaced nor Cluster", spec.Scope)
	case spec.Scope == v1alpha1.ClusterScope && spec.ClusterScopedIsolation != v1alpha1.IsolationPrefixed:
		return fmt.Errorf("clusterScopedIsolation %q is not supported, only Prefixed is", spec.ClusterScopedIsolation)
	}
	if err := checkGroup(spec.Group); err != nil {
		return err
	}
	return checkVersions(spec.Versions)
}

func checkVersions(versions []v1alpha1.APIServiceExportVersion) error {
	served, stored, size := 0, 0, 0
	names := map[string]bool{}
	for _, v := range versions {
		if names[v.Name] {
			return fmt.Errorf("version %q is there twice", v.Name)
		}
		names[v.Name] = true
		size += len(v.Schema.OpenAPIV3Schema.Raw)
		if v.Served {
			served++
		}
		if v.Storage {
			stored++
		}
	}
	switch {
	case served == 0:
		return errors.New("no version is served")
	case stored != 1:
		return fmt.Errorf("%d versions are the storage version, not one", stored)
	case size > maxSchema:
		return fmt.Errorf("its schemas have %d bytes, more than %d", size, maxSchema)
	}
	return nil
}

// newCRD returns the CRD of an export that passes checkExport: the same schema to the
// letter, the same names and columns, and no conversion.
func newCRD(name string, spec *v1alpha1.APIServiceExportSpec) (*unstructured.Unstructured, error) {
	if err := checkExport(name, spec); err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec.APIServiceExportCRDSpec)
	if err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	// Not by way of apiextensions' types, which would drop what they do not know.
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("decode the schema: %w", err)
	}
	crd := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	crd.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	crd.SetKind("CustomResourceDefinition")
	crd.SetName(name)
	return crd, nil
}

// sameSpec tells whether two CRDs say the same once defaults are filled in.
func sameSpec(a, b *unstructured.Unstructured) (bool, error) {
	x, err := defaulted(a)
	if err != nil {
		return false, err
	}
	y, err := defaulted(b)
	if err != nil {
		return false, err
	}
	return equality.Semantic.DeepEqual(x, y), nil
}

func defaulted(crd *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinitionSpec, error) {
	typed, err := decode[apiextensionsv1.CustomResourceDefinition](crd)
	if err != nil {
		return nil, err
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&typed.Spec)
	for i := range typed.Spec.Versions {
		v := &typed.Spec.Versions[i]
		if v.Subresources == nil {
			v.Subresources = &apiextensionsv1.CustomResourceSubresources{}
		}
	}
	return &typed.Spec, nil
}

// syncVersion returns the version in which objects are synced: the one that they are
// in already, as long as it is served, or else the first that is. Another version
// would write each object anew.
func syncVersion(spec *v1alpha1.APIServiceExportSpec, running string) schema.GroupVersionResource {
	gvr := schema.GroupVersionResource{Group: spec.Group, Resource: spec.Names.Plural}
	for _, v := range spec.Versions {
		if v.Served && (gvr.Version == "" || v.Name == running) {
			gvr.Version = v.Name
		}
	}
	return gvr
}
