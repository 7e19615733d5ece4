// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// APIServiceNamespace asks for a service namespace: the mirror, in the Control
// Plane Cluster, of the App Cluster's namespace of the same name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.status.namespace`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIServiceNamespace struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is empty.
	Spec APIServiceNamespaceSpec `json:"spec,omitempty"`
	// status names the service namespace once it is ready for use.
	Status APIServiceNamespaceStatus `json:"status,omitempty"`
}

// APIServiceNamespaceSpec is empty.
type APIServiceNamespaceSpec struct{}

// APIServiceNamespaceStatus is the observed state of an APIServiceNamespace.
type APIServiceNamespaceStatus struct {
	// namespace is the service namespace.
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace,omitempty"`
	// conditions: Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// APIServiceNamespaceList is a list of APIServiceNamespaces.
//
// +kubebuilder:object:root=true
type APIServiceNamespaceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIServiceNamespace `json:"items"`
}
