// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of an APIServiceBinding.
const (
	ConditionSecretValid     = "SecretValid"
	ConditionInformersSynced = "InformersSynced"
	ConditionHeartbeating    = "Heartbeating"
	ConditionConnected       = "Connected"
	ConditionSchemaInSync    = "SchemaInSync"
	// ConditionClaimsInSync says whether the objects of the accepted permission claims are kept in
	// step, and no others. Klutch's own konnector does not have it. It is set once there are claims.
	ConditionClaimsInSync = "ClaimsInSync"
	// ConditionNamespacesReady says whether the provider gives every namespace with
	// bound objects its service namespace. It is ours alone, and there once it refused.
	ConditionNamespacesReady = "NamespacesReady"
	// ConditionDeletionsInSync says whether deletions are carried out. It is ours
	// alone, and there once some were held because there were too many at once.
	ConditionDeletionsInSync = "DeletionsInSync"
	// ConditionObjectsAdopted says whether the objects that the provider has made are claims
	// here, where that was agreed to. It is ours alone, does not decide about Ready, and
	// is there once some are not.
	ConditionObjectsAdopted = "ObjectsAdopted"
	// ConditionObjectsSynced says whether all objects are in step; if not, how many are not,
	// by reason. It is ours alone, and does not decide about Ready: see [Summarize].
	ConditionObjectsSynced = "ObjectsSynced"
)

// Reasons of an APIServiceBinding's conditions.
const (
	ReasonDeletionsHeld                        = "DeletionsHeld"
	ReasonKubeconfigSecretNotFound             = "KubeconfigSecretNotFound"
	ReasonKubeconfigSecretInvalid              = "KubeconfigSecretInvalid"
	ReasonInformerSyncTimeout                  = "InformerSyncTimeout"
	ReasonClusterBindingUpdateFailed           = "ClusterBindingUpdateFailed"
	ReasonAPIServiceExportNotFound             = "APIServiceExportNotFound"
	ReasonAPIServiceExportInvalid              = "APIServiceExportInvalid"
	ReasonCustomResourceDefinitionCreateFailed = "CustomResourceDefinitionCreateFailed"
	ReasonCustomResourceDefinitionUpdateFailed = "CustomResourceDefinitionUpdateFailed"
	ReasonForeignCustomResourceDefinition      = "ForeignCustomResourceDefinition"
	ReasonPending                              = "Pending"
)

// Reasons of an APIServiceBinding's conditions that are ours alone, besides
// [ReasonMissingRights].
const (
	ReasonControlPlaneUnreachable              = "ControlPlaneUnreachable"
	ReasonControlPlaneAnswerTooLarge           = "ControlPlaneAnswerTooLarge"
	ReasonControlPlaneUnauthorized             = "ControlPlaneUnauthorized"     // the token has ended
	ReasonKubeconfigSecretUpdateFailed         = "KubeconfigSecretUpdateFailed" // the App Cluster refused a write to it
	ReasonTokenRevoked                         = "TokenRevoked"
	ReasonTenantGone                           = "TenantGone"
	ReasonControlPlaneReplaced                 = "ControlPlaneReplaced"
	ReasonTenantHeldByAnotherCluster           = "TenantHeldByAnotherCluster"
	ReasonCustomResourceDefinitionTerminating  = "CustomResourceDefinitionTerminating"
	ReasonCustomResourceDefinitionNamesRefused = "CustomResourceDefinitionNamesRefused"
	ReasonStepFailed                           = "StepFailed" // an API server refused a request of a pass over the binding
	ReasonUnsupportedClaim                     = "UnsupportedClaim"
	ReasonInvalidClaim                         = "InvalidClaim"
	ReasonNewClaims                            = "NewClaims"
	ReasonCopiesLeftAlone                      = "CopiesLeftAlone"
	ReasonCopiesRefused                        = "CopiesRefused"
	ReasonRevokedCopiesRemain                  = "RevokedCopiesRemain"
	ReasonRefusedClaim                         = "RefusedClaim"
	ReasonSchemaChangeHeld                     = "SchemaChangeHeld"
	ReasonSchemaChangeWaits                    = "SchemaChangeWaits"
	ReasonServiceNamespaceRefused              = "ServiceNamespaceRefused"
	ReasonUninvitedNamespace                   = "UninvitedNamespace"
	ReasonServiceNamespaceKept                 = "ServiceNamespaceKept"
	ReasonAdoptionNotAgreed                    = "AdoptionNotAgreed"
	ReasonAdoptionLimit                        = "AdoptionLimit"
	ReasonAdoptionRefused                      = "AdoptionRefused"
	ReasonObjectsNotSynced                     = "ObjectsNotSynced"
)

// APIServiceBinding makes an API of the Control Plane Cluster usable in this App
// Cluster. Its name is "<resource>.<group>" of the API.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch,shortName=sb
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.status.providerPrettyName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIServiceBinding struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the owner of the App Cluster agreed to.
	Spec APIServiceBindingSpec `json:"spec,omitempty"`
	// status is what the konnector last saw.
	Status APIServiceBindingStatus `json:"status,omitempty"`
}

// APIServiceBindingSpec is the desired state of an APIServiceBinding.
type APIServiceBindingSpec struct {
	// kubeconfigSecretRef names the credential for the Control Plane Cluster.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="kubeconfigSecretRef is immutable"
	KubeconfigSecretRef ClusterSecretKeyRef `json:"kubeconfigSecretRef"`
	// permissionClaims are the answers to the claims of the export.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PermissionClaims []AcceptablePermissionClaim `json:"permissionClaims,omitempty"`
	// maxAdoptedObjects is how many objects that the provider makes may become claims in
	// this cluster, in namespaces that have claims already. 0, the default, is none.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxAdoptedObjects int32 `json:"maxAdoptedObjects,omitempty"`
	// lostInstances says what happens to an object whose counterpart vanished from the
	// Control Plane Cluster: Recreate or Report. Default is what the provider advises.
	LostInstances LostInstances `json:"lostInstances,omitempty"`
}

// APIServiceBindingStatus is the observed state of an APIServiceBinding.
type APIServiceBindingStatus struct {
	// providerPrettyName is how the backend calls itself.
	// +kubebuilder:validation:MaxLength=1024
	ProviderPrettyName string `json:"providerPrettyName,omitempty"`
	// conditions: SecretValid, InformersSynced, Heartbeating, Connected,
	// SchemaInSync, Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// APIServiceBindingList is a list of APIServiceBindings.
//
// +kubebuilder:object:root=true
type APIServiceBindingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIServiceBinding `json:"items"`
}
