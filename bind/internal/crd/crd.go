// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// NewCRD returns the CRD of an export that passes checkExport: the same schema to the
// letter, the same names and columns, and no conversion.
func NewCRD(name string, spec *v1alpha1.APIServiceExportSpec) (*unstructured.Unstructured, error) {
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
	if spec.Scope == v1alpha1.ClusterScope {
		PutIsolation(crd, spec.ClusterScopedIsolation)
	}
	return crd, nil
}

// Isolation is the clusterScopedIsolation that a CRD records; empty if it records none that is supported.
func Isolation(crd *unstructured.Unstructured) v1alpha1.Isolation {
	if recorded := v1alpha1.Isolation(crd.GetAnnotations()[v1alpha1.IsolationAnnotation]); isolates(recorded) {
		return recorded
	}
	return ""
}

// PutIsolation has a CRD record a clusterScopedIsolation, or none if it is empty.
func PutIsolation(crd *unstructured.Unstructured, isolation v1alpha1.Isolation) {
	annotations := crd.GetAnnotations() // a copy
	if annotations == nil {
		annotations = map[string]string{}
	}
	if delete(annotations, v1alpha1.IsolationAnnotation); isolation != "" {
		annotations[v1alpha1.IsolationAnnotation] = string(isolation)
	}
	crd.SetAnnotations(annotations)
}

// SameSpec tells whether two CRDs say the same once defaults are filled in, and record the same.
func SameSpec(a, b *unstructured.Unstructured) (bool, error) {
	x, err := defaulted(a)
	if err != nil {
		return false, err
	}
	y, err := defaulted(b)
	if err != nil {
		return false, err
	}
	return equality.Semantic.DeepEqual(x, y) && Isolation(a) == Isolation(b), nil
}

func defaulted(crd *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinitionSpec, error) {
	typed, err := cluster.Decode[apiextensionsv1.CustomResourceDefinition](crd)
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

// SpecOf is that of a CRD as an export would have it.
func SpecOf(crd *unstructured.Unstructured) (*v1alpha1.APIServiceExportCRDSpec, error) {
	data, err := json.Marshal(crd.Object["spec"])
	if err != nil {
		return nil, fmt.Errorf("encode CRD %s: %w", crd.GetName(), err)
	}
	spec := &v1alpha1.APIServiceExportCRDSpec{}
	if err := utiljson.Unmarshal(data, spec); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", crd.GetName(), err)
	}
	return spec, nil
}

// ChangeHash names a change of schema in the consent to it. The same schema can take away
// something else later, and a provider must not find two schemas that share a name.
func ChangeHash(live, wanted *unstructured.Unstructured) (string, error) {
	change := []any{live.Object["spec"], wanted.Object["spec"]}
	if from, to := Isolation(live), Isolation(wanted); from != to {
		change = append(change, from, to)
	}
	data, err := json.Marshal(change) // keys are in order
	if err != nil {
		return "", fmt.Errorf("encode CRD %s: %w", wanted.GetName(), err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]), nil
}

// SyncVersion returns the version in which objects are synced: the running version as long as it is served, else the
// first served version. A change of version writes each object anew.
func SyncVersion(spec *v1alpha1.APIServiceExportSpec, running string) schema.GroupVersionResource {
	gvr := schema.GroupVersionResource{Group: spec.Group, Resource: spec.Names.Plural}
	for _, v := range spec.Versions {
		if v.Served && (gvr.Version == "" || v.Name == running) {
			gvr.Version = v.Name
		}
	}
	return gvr
}
