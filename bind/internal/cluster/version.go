// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ServedResource returns the first served version of the resource that a CRD defines.
func ServedResource(crd *apiextensionsv1.CustomResourceDefinition) (r schema.GroupVersionResource, served bool) {
	if crd == nil {
		return r, false
	}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			return schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}, true
		}
	}
	return r, false
}
