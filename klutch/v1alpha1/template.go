// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Reasons of Ready on a template, besides [ReasonMissingRights] and [ReasonStepFailed].
const (
	ReasonShadowed       = "Shadowed"       // an older template offers the API
	ReasonSchemaMissing  = "SchemaMissing"  // there is no CRD of the API, or it serves no version
	ReasonNotEstablished = "NotEstablished" // there is one that does not work yet
	ReasonClusterScoped  = "ClusterScoped"  // App Clusters can have namespaced APIs alone
)

// APIServiceExportTemplate offers an API of the Control Plane Cluster to tenants.
// Who may bind it is a matter of RBAC: the verb "bind" on this object.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Group",type=string,JSONPath=`.spec.apiServiceSelector.group`
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=`.spec.apiServiceSelector.resource`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIServiceExportTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the offer.
	// +required
	Spec APIServiceExportTemplateSpec `json:"spec"`
	// status is what the backend last saw.
	Status APIServiceExportTemplateStatus `json:"status,omitempty"`
}

// APIServiceExportTemplateSpec is the desired state of an APIServiceExportTemplate.
type APIServiceExportTemplateSpec struct {
	// apiServiceSelector names the API.
	// +required
	APIServiceSelector APIServiceSelector `json:"apiServiceSelector"`
	// title is the name on the service page; default is the kind.
	// +kubebuilder:validation:MaxLength=64
	Title string `json:"title,omitempty"`
	// description is a sentence or two on the service page.
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
	// documentationURL is where people read more.
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^https?://`
	DocumentationURL string `json:"documentationURL,omitempty"`
	// categories are words by which people find the service on the page.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=32
	// +listType=atomic
	Categories []string `json:"categories,omitempty"`
	// permissionClaims are what the service needs of the App Cluster.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
	// breakingChanges says what happens when the API changes such that App Clusters
	// might not get along with it: Hold keeps the schema that they have, until the
	// change is taken back or allowed. Empty is Hold, unless a program that embeds
	// the backend says otherwise.
	BreakingChanges BreakingChanges `json:"breakingChanges,omitempty"`
	// adoption says what becomes of objects of the API that are made here, in a service
	// namespace: Offer has them become claims in App Clusters that agree to that. Empty
	// leaves them alone.
	Adoption Adoption `json:"adoption,omitempty"`
	// clusterScopedIsolation Namespaced has App Clusters see this namespaced API as a
	// cluster-scoped one: all its objects of a tenant are in one service namespace. It holds
	// for new bindings, without permission claims. Prefixed offers a cluster-scoped API, where
	// the platform team has switched it on by its name: objects are named after their tenant,
	// which writes no others, but reads those of all tenants of the API. Empty leaves a
	// namespaced API as it is; None is not served.
	ClusterScopedIsolation Isolation `json:"clusterScopedIsolation,omitempty"`
	// lostInstances is what bindings do about objects that vanished here, unless they
	// say otherwise. Report is the safe one for what holds data; default is Recreate.
	LostInstances LostInstances `json:"lostInstances,omitempty"`
}

// BreakingChanges is a policy for changes of an API that take something away.
//
// +kubebuilder:validation:Enum=Allow;Hold
type BreakingChanges string

// The policies.
const (
	BreakingChangesAllow BreakingChanges = "Allow"
	BreakingChangesHold  BreakingChanges = "Hold"
)

// APIServiceSelector names an API of the Control Plane Cluster.
type APIServiceSelector struct {
	GroupResource `json:",inline"`
	// version to prefer; empty is the first that is served.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
}

// APIServiceExportTemplateStatus is the observed state of an APIServiceExportTemplate.
type APIServiceExportTemplateStatus struct {
	// conditions: Ready says whether tenants can have the API; if not, why, and what to do.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// APIServiceExportTemplateList is a list of APIServiceExportTemplates.
//
// +kubebuilder:object:root=true
type APIServiceExportTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIServiceExportTemplate `json:"items"`
}
