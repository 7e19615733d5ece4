// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Conditions of an APIServiceExport, besides Connected and those of the App
// Cluster's CRD.
const (
	ConditionProviderInSync = "ProviderInSync"
	ConditionConsumerInSync = "ConsumerInSync"
	// ConditionOffered says that the tenant may have the API. It is ours alone.
	ConditionOffered = "Offered"
)

// ReasonBreakingChangeHeld is the reason of ProviderInSync when the API changed such
// that App Clusters might not get along with it.
const ReasonBreakingChangeHeld = "BreakingChangeHeld"

// ReasonAPIServiceBindingNotFound is the reason of Connected on an export that
// no binding uses.
const ReasonAPIServiceBindingNotFound = "APIServiceBindingNotFound"

// APIServiceExport is a snapshot of an API of the Control Plane Cluster, made for
// one tenant. Its name is that of the CRD.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=kube-bindings;klutch
// +kubebuilder:subresource:status
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.names.plural + '.' + self.spec.group",message="the name must be <spec.names.plural>.<spec.group>"
// +kubebuilder:printcolumn:name="Established",type=string,JSONPath=`.status.conditions[?(@.type=="Established")].status`,priority=5
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type APIServiceExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the snapshot.
	// +required
	Spec APIServiceExportSpec `json:"spec"`
	// status is what backend and konnector last saw.
	Status APIServiceExportStatus `json:"status,omitempty"`
}

// APIServiceExportSpec is the desired state of an APIServiceExport.
//
// +kubebuilder:validation:XValidation:rule="self.scope == 'Namespaced' || self.informerScope == 'Cluster'",message="informerScope must be Cluster for cluster-scoped resources"
// +kubebuilder:validation:XValidation:rule="self.scope == 'Namespaced' || has(self.clusterScopedIsolation)",message="clusterScopedIsolation must be defined for cluster-scoped resources"
// +kubebuilder:validation:XValidation:rule="self.scope == 'Cluster' || !has(self.clusterScopedIsolation)",message="clusterScopedIsolation is not relevant for namespaced resources"
type APIServiceExportSpec struct {
	APIServiceExportCRDSpec `json:",inline"`
	// informerScope says whether the tenant may watch the whole Control Plane
	// Cluster or only its service namespaces.
	// +required
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="informerScope is immutable"
	InformerScope Scope `json:"informerScope"`
	// clusterScopedIsolation keeps the cluster-scoped objects of tenants apart.
	ClusterScopedIsolation Isolation `json:"clusterScopedIsolation,omitempty"`
	// permissionClaims are what the provider asks of the App Cluster.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	PermissionClaims []PermissionClaim `json:"permissionClaims,omitempty"`
	// adoption is the provider's word on objects that it makes itself: Offer has them
	// become claims in the App Cluster, if that agrees.
	Adoption Adoption `json:"adoption,omitempty"`
	// lostInstances is the provider's advice to bindings that do not say themselves.
	LostInstances LostInstances `json:"lostInstances,omitempty"`
}

// APIServiceExportCRDSpec is the part of a CustomResourceDefinition that travels.
type APIServiceExportCRDSpec struct {
	// group is the API group.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group"`
	// names of the resource.
	// +required
	Names CRDNames `json:"names"`
	// scope of the objects.
	// +required
	Scope Scope `json:"scope"`
	// versions that are served, the preferred first.
	// +required
	// +kubebuilder:validation:MinItems=1
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Versions []APIServiceExportVersion `json:"versions"`
}

// CRDNames are the names of a custom resource, as in apiextensions/v1.
type CRDNames struct {
	// +required
	// +kubebuilder:validation:MaxLength=253
	Plural string `json:"plural"`
	// +kubebuilder:validation:MaxLength=253
	Singular string `json:"singular,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	ShortNames []string `json:"shortNames,omitempty"`
	// +required
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind"`
	// +kubebuilder:validation:MaxLength=253
	ListKind string `json:"listKind,omitempty"`
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Categories []string `json:"categories,omitempty"`
}

// APIServiceExportVersion is one version of the API.
type APIServiceExportVersion struct {
	// name, such as v1 or v1beta1.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:Pattern=`^v[1-9][0-9]*([a-z]+[1-9][0-9]*)?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// served says that clients may use the version.
	// +required
	// +default=true
	Served bool `json:"served"`
	// storage says that objects are stored in this version.
	// +required
	Storage bool `json:"storage"`
	// deprecated makes the API server warn.
	Deprecated bool `json:"deprecated,omitempty"`
	// deprecationWarning replaces the default warning.
	// +kubebuilder:validation:MaxLength=4096
	DeprecationWarning *string `json:"deprecationWarning,omitempty"`
	// schema of the objects.
	// +required
	Schema APIServiceExportSchema `json:"schema"`
	// subresources that are served.
	Subresources CRDSubresources `json:"subresources,omitempty"`
	// additionalPrinterColumns of kubectl get.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	AdditionalPrinterColumns []CRDColumn `json:"additionalPrinterColumns,omitempty"`
}

// APIServiceExportSchema wraps the schema.
type APIServiceExportSchema struct {
	// openAPIV3Schema as in apiextensions/v1, to the letter.
	// +required
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +structType=atomic
	OpenAPIV3Schema runtime.RawExtension `json:"openAPIV3Schema"`
}

// CRDSubresources are the subresources of a custom resource, as in apiextensions/v1.
type CRDSubresources struct {
	// status is served when present.
	Status *CRDStatusSubresource `json:"status,omitempty"`
	// scale is served when present.
	Scale *CRDScaleSubresource `json:"scale,omitempty"`
}

// CRDStatusSubresource has no settings.
type CRDStatusSubresource struct{}

// CRDScaleSubresource says where the fields of scale are, as in apiextensions/v1.
type CRDScaleSubresource struct {
	// +required
	// +kubebuilder:validation:MaxLength=4096
	SpecReplicasPath string `json:"specReplicasPath"`
	// +required
	// +kubebuilder:validation:MaxLength=4096
	StatusReplicasPath string `json:"statusReplicasPath"`
	// +kubebuilder:validation:MaxLength=4096
	LabelSelectorPath *string `json:"labelSelectorPath,omitempty"`
}

// CRDColumn is a column of kubectl get, as in apiextensions/v1.
type CRDColumn struct {
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// +kubebuilder:validation:MaxLength=63
	Format string `json:"format,omitempty"`
	// +kubebuilder:validation:MaxLength=32768
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"`
	// +required
	// +kubebuilder:validation:MaxLength=4096
	JSONPath string `json:"jsonPath"`
}

// APIServiceExportStatus is the observed state of an APIServiceExport.
type APIServiceExportStatus struct {
	// acceptedNames of the App Cluster's CRD.
	AcceptedNames *CRDNames `json:"acceptedNames,omitempty"`
	// storedVersions of the App Cluster's CRD.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	StoredVersions []string `json:"storedVersions,omitempty"`
	// conditions: ProviderInSync, Offered (backend), Connected, ConsumerInSync (konnector),
	// those of the App Cluster's CRD, Ready.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=64
	Conditions []Condition `json:"conditions,omitempty"`
}

// APIServiceExportList is a list of APIServiceExports.
//
// +kubebuilder:object:root=true
type APIServiceExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []APIServiceExport `json:"items"`
}
