// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConditionKonnectorDeployed says that the konnector of an AppClusterBinding is
// as it should be; also True when none is asked for.
const ConditionKonnectorDeployed = "KonnectorDeployed"

// ReasonKonnectorDeploymentFailed is the reason of KonnectorDeployed.
const ReasonKonnectorDeploymentFailed = "KonnectorDeploymentFailed"

// AppClusterBinding binds an App Cluster from the control plane's side: with a
// kubeconfig of the App Cluster and a konnector that runs in the Control Plane Cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type AppClusterBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the platform operator wants.
	// +required
	Spec AppClusterBindingSpec `json:"spec"`
	// status is what the backend last saw.
	Status AppClusterBindingStatus `json:"status,omitempty"`
}

// AppClusterBindingSpec is the desired state of an AppClusterBinding.
type AppClusterBindingSpec struct {
	// kubeconfigSecretRef names the credential for the App Cluster.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="kubeconfigSecretRef is immutable"
	KubeconfigSecretRef ClusterSecretKeyRef `json:"kubeconfigSecretRef"`
	// apiExports are the APIs to bind.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	APIExports []GroupResource `json:"apiExports,omitempty"`
	// konnector says whether and how to run a konnector.
	Konnector *AppClusterKonnector `json:"konnector,omitempty"`
}

// AppClusterKonnector says whether and how to run a konnector.
type AppClusterKonnector struct {
	// deploy a konnector.
	Deploy bool `json:"deploy,omitempty"`
	// overrides are fields of a core/v1 Container that replace those of the
	// konnector's container by strategic merge.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Overrides *runtime.RawExtension `json:"overrides,omitempty"`
}

// AppClusterBindingStatus is the observed state of an AppClusterBinding.
type AppClusterBindingStatus struct {
	// conditions: SecretValid, KonnectorDeployed, Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// AppClusterBindingList is a list of AppClusterBindings.
//
// +kubebuilder:object:root=true
type AppClusterBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []AppClusterBinding `json:"items"`
}
