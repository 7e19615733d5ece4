// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrNoVersion says that a CRD has nothing that can be exported.
var ErrNoVersion = errors.New("no version of the CRD can be exported")

// Snapshot takes from a CRD what travels to App Clusters: names, scope, and the
// versions that are served. Versions that only a conversion webhook can serve stay
// behind, since the webhook does. The schema is copied to the letter.
func Snapshot(u *unstructured.Unstructured) (*v1alpha1.APIServiceExportCRDSpec, error) {
	crd, err := Decode(u)
	if err != nil {
		return nil, err
	}
	schemas, err := rawSchemas(u)
	if err != nil {
		return nil, fmt.Errorf("CRD %s: %w", u.GetName(), err)
	}
	spec := &v1alpha1.APIServiceExportCRDSpec{
		Group: crd.Spec.Group,
		Names: v1alpha1.CRDNames(crd.Spec.Names),
		Scope: v1alpha1.Scope(crd.Spec.Scope),
	}
	webhook := crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
	for _, v := range crd.Spec.Versions {
		if v.Served && (v.Storage || !webhook) && schemas[v.Name] != nil {
			spec.Versions = append(spec.Versions, exportVersion(v, schemas[v.Name]))
		}
	}
	if len(spec.Versions) == 0 {
		return nil, fmt.Errorf("CRD %s: %w", u.GetName(), ErrNoVersion)
	}
	ensureStorage(spec.Versions)
	return spec, nil
}

// ensureStorage makes one of versions the one to store: the version that the
// Control Plane Cluster stores may not be served.
func ensureStorage(versions []v1alpha1.APIServiceExportVersion) {
	for _, v := range versions {
		if v.Storage {
			return
		}
	}
	versions[0].Storage = true
}

func exportVersion(v apiextensionsv1.CustomResourceDefinitionVersion, schema []byte) v1alpha1.APIServiceExportVersion {
	out := v1alpha1.APIServiceExportVersion{
		Name:               v.Name,
		Served:             v.Served,
		Storage:            v.Storage,
		Deprecated:         v.Deprecated,
		DeprecationWarning: v.DeprecationWarning,
		Schema:             v1alpha1.APIServiceExportSchema{OpenAPIV3Schema: runtime.RawExtension{Raw: schema}},
	}
	if s := v.Subresources; s != nil && s.Status != nil {
		out.Subresources.Status = &v1alpha1.CRDStatusSubresource{}
	}
	if s := v.Subresources; s != nil && s.Scale != nil {
		out.Subresources.Scale = new(v1alpha1.CRDScaleSubresource(*s.Scale))
	}
	for _, c := range v.AdditionalPrinterColumns {
		out.AdditionalPrinterColumns = append(out.AdditionalPrinterColumns, v1alpha1.CRDColumn(c))
	}
	return out
}

// rawSchemas returns the schema of each version in JSON, with whatever fields the
// API server knows and we do not.
func rawSchemas(u *unstructured.Unstructured) (map[string][]byte, error) {
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	if err != nil {
		return nil, err
	}
	schemas := map[string][]byte{}
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok {
			return nil, errors.New("spec.versions holds something else than versions")
		}
		schema, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema")
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		name, _, _ := unstructured.NestedString(version, "name")
		if schemas[name], err = json.Marshal(schema); err != nil {
			return nil, err
		}
	}
	return schemas, nil
}

// Decode reads a CRD.
func Decode(u *unstructured.Unstructured) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		return nil, fmt.Errorf("decode CRD %s: %w", u.GetName(), err)
	}
	return crd, nil
}

// Hash identifies a snapshot: base62 of the SHA-224 of its JSON.
func Hash(spec *v1alpha1.APIServiceExportCRDSpec) (string, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return "", fmt.Errorf("encode snapshot: %w", err)
	}
	sum := sha256.Sum224(data)
	const base = 62
	return new(big.Int).SetBytes(sum[:]).Text(base), nil
}
