// SPDX-License-Identifier: Apache-2.0

package bind

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var (
	secretsResource        = corev1.SchemeGroupVersion.WithResource("secrets")
	rolesResource          = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	roleBindingsResource   = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	policiesResource       = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	policyBindingsResource = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	crdsResource           = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	spacesResource         = corev1.SchemeGroupVersion.WithResource("namespaces")
	bindingsResource       = v1alpha1.Resource("apiservicebindings")
	requestsResource       = v1alpha1.Resource("apiserviceexportrequests")
	exportsResource        = v1alpha1.Resource("apiserviceexports")
)

var (
	requestedNamespaces = v1alpha1.Resource("apiservicenamespaces")
	clusterBindings     = v1alpha1.Resource("clusterbindings")
)
