// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The resources of Kubernetes and of Klutch that bind reads and writes.
var (
	Secrets                  = corev1.SchemeGroupVersion.WithResource("secrets")
	ClusterRoles             = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	RoleBindings             = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	Policies                 = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicies")
	PolicyBindings           = admissionregistrationv1.SchemeGroupVersion.WithResource("validatingadmissionpolicybindings")
	CRDs                     = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	NamespacesResource       = corev1.SchemeGroupVersion.WithResource("namespaces")
	APIServiceBindings       = v1alpha1.Resource("apiservicebindings")
	APIServiceExportRequests = v1alpha1.Resource("apiserviceexportrequests")
	APIServiceExports        = v1alpha1.Resource("apiserviceexports")
)

// What a konnector keeps in its tenant namespace.
var (
	APIServiceNamespaces = v1alpha1.Resource("apiservicenamespaces")
	ClusterBindings      = v1alpha1.Resource("clusterbindings")
)
