// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Conditions of a ClusterBinding, besides SecretValid.
const (
	ConditionHealthy      = "Healthy"
	ConditionValidVersion = "ValidVersion"
	// ConditionAdmitted says that no gate of the platform team keeps the tenant from
	// syncing. It is ours alone.
	ConditionAdmitted = "Admitted"
	// ConditionLoginCurrent, here and on exports, says that the last login is young
	// enough for the credential to be renewed. It is ours alone.
	ConditionLoginCurrent = "LoginCurrent"
	// ConditionKept says that the backend can keep the tenant's rights and renew its credential; it is
	// there once it could not. It is ours alone.
	ConditionKept = "Kept"
	// ConditionRemoved says what the removal of the tenant waits for. It is ours alone.
	ConditionRemoved = "Removed"
)

// Reasons of a ClusterBinding's conditions.
const (
	ReasonFirstHeartbeatPending    = "FirstHeartbeatPending"
	ReasonHeartbeatIntervalMissing = "HeartbeatIntervalMissing"
	ReasonHeartbeatTimeout         = "HeartbeatTimeout"
	ReasonHeartbeatTimeDrift       = "HeartbeatTimeDrift"
	ReasonCredentialEnded          = "CredentialEnded" // so that the konnector cannot come back; ours alone
	ReasonProviderSecretNotFound   = "ProviderSecretNotFound"
	ReasonProviderSecretInvalid    = "ProviderSecretInvalid"
	ReasonParseError               = "ParseError"
	ReasonGateClosed               = "GateClosed"
	ReasonLoginEnding              = "LoginEnding"
	ReasonLoginTooOld              = "LoginTooOld"
	ReasonDraining                 = "Draining"
	ReasonRemovalHeld              = "RemovalHeld"
	ReasonRemovalPending           = "RemovalPending"
)

// ClusterBinding stands for the App Cluster of a tenant, in the tenant namespace.
// Its name is "cluster".
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="cluster binding name should be cluster"
// +kubebuilder:printcolumn:name="Konnector Version",type=string,JSONPath=`.status.konnectorVersion`
// +kubebuilder:printcolumn:name="Last Heartbeat",type=date,JSONPath=`.status.lastHeartbeatTime`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is written by the backend.
	// +required
	Spec ClusterBindingSpec `json:"spec"`
	// status is written by the konnector, and by the backend as to health.
	Status ClusterBindingStatus `json:"status,omitempty"`
}

// ClusterBindingSpec is the desired state of a ClusterBinding.
type ClusterBindingSpec struct {
	// kubeconfigSecretRef names the tenant's credential in this namespace.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="kubeconfigSecretRef is immutable"
	KubeconfigSecretRef LocalSecretKeyRef `json:"kubeconfigSecretRef"`
	// providerPrettyName is how the backend calls itself.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	ProviderPrettyName string `json:"providerPrettyName"`
	// deletionPolicy says what becomes of the tenant's objects in the Control Plane
	// Cluster when this object, and so the tenant, is deleted: Delete deletes them,
	// Orphan leaves them where they are. Without it the deletion waits until the App
	// Cluster has deleted them. It is ours alone.
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`
	// serviceProviderSpec is unused.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:MaxProperties=64
	ServiceProviderSpec *runtime.RawExtension `json:"serviceProviderSpec,omitempty"`
}

// DeletionPolicy says what becomes of a tenant's objects when the tenant is removed; that of one
// deleted claim is sync.DeletionPolicy.
//
// +kubebuilder:validation:Enum=Delete;Orphan
type DeletionPolicy string

// The policies.
const (
	DeletionPolicyDelete DeletionPolicy = "Delete"
	DeletionPolicyOrphan DeletionPolicy = "Orphan"
)

// ClusterBindingStatus is the observed state of a ClusterBinding.
type ClusterBindingStatus struct {
	// lastHeartbeatTime is when the konnector last said that it is there.
	LastHeartbeatTime *metav1.Time `json:"lastHeartbeatTime,omitempty"`
	// heartbeatInterval is how often the konnector means to say so, as a Go
	// duration such as "5m0s".
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Type=string
	HeartbeatInterval *metav1.Duration `json:"heartbeatInterval,omitempty"`
	// konnectorVersion is a semantic version.
	// +kubebuilder:validation:MaxLength=256
	KonnectorVersion string `json:"konnectorVersion,omitempty"`
	// clusterUID is that of the namespace kube-system of the App Cluster that holds
	// the tenant: the first one that reported. Another App Cluster that comes with
	// the same credential stays out. Clear it to let another one in. It is ours alone.
	// +kubebuilder:validation:MaxLength=256
	ClusterUID string `json:"clusterUID,omitempty"`
	// conditions: Healthy, Admitted, Removed (backend), SecretValid, ValidVersion (konnector), Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// ClusterBindingList is a list of ClusterBindings.
//
// +kubebuilder:object:root=true
type ClusterBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterBinding `json:"items"`
}
