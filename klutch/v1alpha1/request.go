// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ConditionExportsReady says that all requested exports are there.
const ConditionExportsReady = "ExportsReady"

// Reasons of ExportsReady.
const (
	ReasonCRDNotFound   = "CRDNotFound"
	ReasonCRDInvalid    = "CRDInvalid"
	ReasonNotOffered    = "NotOffered"
	ReasonNotAuthorized = "NotAuthorized"
	ReasonMissingRights = "MissingRights"
)

// RequestPhase is how far an APIServiceExportRequest is.
//
// +kubebuilder:validation:Enum=Pending;Failed;Succeeded
type RequestPhase string

// The phases. Failed and Succeeded are final.
const (
	RequestPending   RequestPhase = "Pending"
	RequestFailed    RequestPhase = "Failed"
	RequestSucceeded RequestPhase = "Succeeded"
)

// APIServiceExportRequest asks for APIs to be exported to a tenant.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIServiceExportRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the wish.
	// +required
	Spec APIServiceExportRequestSpec `json:"spec"`
	// status is the answer.
	// +default={}
	Status APIServiceExportRequestStatus `json:"status,omitempty"`
}

// APIServiceExportRequestSpec is the desired state of an APIServiceExportRequest.
type APIServiceExportRequestSpec struct {
	// parameters for the backend, unused.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="parameters are immutable"
	// +kubebuilder:validation:MaxProperties=64
	Parameters *runtime.RawExtension `json:"parameters,omitempty"`
	// resources that are asked for.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="resources are immutable"
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Resources []APIServiceExportRequestResource `json:"resources"`
}

// APIServiceExportRequestResource is one resource that is asked for.
type APIServiceExportRequestResource struct {
	GroupResource `json:",inline"`
	// versions that the tenant can work with; empty is all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Versions []string `json:"versions,omitempty"`
	// permissionClaims that the tenant expects.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
}

// APIServiceExportRequestStatus is the observed state of an APIServiceExportRequest.
type APIServiceExportRequestStatus struct {
	// phase is Pending until the request is answered.
	// +default="Pending"
	Phase RequestPhase `json:"phase,omitempty"`
	// terminalMessage says why the request failed.
	// +kubebuilder:validation:MaxLength=32768
	TerminalMessage string `json:"terminalMessage,omitempty"`
	// conditions: ExportsReady, Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// APIServiceExportRequestList is a list of APIServiceExportRequests.
//
// +kubebuilder:object:root=true
type APIServiceExportRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIServiceExportRequest `json:"items"`
}
