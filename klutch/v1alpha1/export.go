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
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
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
	// plural is the name in URLs, such as widgets.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Plural string `json:"plural"`
	// singular is the name of one object; empty means the kind in small letters.
	// +kubebuilder:validation:MaxLength=253
	Singular string `json:"singular,omitempty"`
	// shortNames are what people may type in place of the plural.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	ShortNames []string `json:"shortNames,omitempty"`
	// kind, such as Widget.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Kind string `json:"kind"`
	// listKind is the kind of lists; empty means the kind with List behind it.
	// +kubebuilder:validation:MaxLength=253
	ListKind string `json:"listKind,omitempty"`
	// categories are groups of resources that kubectl get takes, such as all.
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
	// specReplicasPath leads to the number of replicas that is asked for, as .spec.replicas.
	// +required
	// +kubebuilder:validation:MaxLength=4096
	SpecReplicasPath string `json:"specReplicasPath"`
	// statusReplicasPath leads to the number of replicas that there are.
	// +required
	// +kubebuilder:validation:MaxLength=4096
	StatusReplicasPath string `json:"statusReplicasPath"`
	// labelSelectorPath leads to a label selector of the replicas, in a string.
	// +kubebuilder:validation:MaxLength=4096
	LabelSelectorPath *string `json:"labelSelectorPath,omitempty"`
}

// CRDColumn is a column of kubectl get, as in apiextensions/v1.
type CRDColumn struct {
	// name is the head of the column.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// type of the values: integer, number, string, boolean or date.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Type string `json:"type"`
	// format of the values, as in OpenAPI: int32, date-time.
	// +kubebuilder:validation:MaxLength=63
	Format string `json:"format,omitempty"`
	// description of the column.
	// +kubebuilder:validation:MaxLength=32768
	Description string `json:"description,omitempty"`
	// priority above 0 leaves the column to kubectl get -o wide.
	Priority int32 `json:"priority,omitempty"`
	// jsonPath leads to the value, as .spec.size.
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
