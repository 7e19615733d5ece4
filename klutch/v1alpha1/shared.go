// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/runtime/schema"

// GroupResource names a resource of an API group.
type GroupResource struct {
	// group is the API group; empty is the core group.
	// +default=""
	// +kubebuilder:validation:Pattern=`^(|[a-z0-9]([-a-z0-9]*[a-z0-9](\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// resource is the plural name in lower case.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z][-a-z0-9]*[a-z0-9]$`
	// +kubebuilder:validation:MaxLength=253
	Resource string `json:"resource"`
}

// String returns "<resource>.<group>", the name of the CRD, the export and the
// binding of r; for the core group just the resource.
func (r GroupResource) String() string {
	return schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()
}

// LocalSecretKeyRef names a kubeconfig in a Secret of the same namespace.
type LocalSecretKeyRef struct {
	// name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key of the Secret's data.
	// +required
	// +kubebuilder:validation:Enum=kubeconfig
	Key string `json:"key"`
}

// ClusterSecretKeyRef names a kubeconfig in a Secret of any namespace.
type ClusterSecretKeyRef struct {
	LocalSecretKeyRef `json:",inline"`
	// namespace of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Namespace string `json:"namespace"`
}

// Scope says whether objects live in namespaces.
//
// +kubebuilder:validation:Enum=Cluster;Namespaced
type Scope string

// The scopes.
const (
	ClusterScope    Scope = "Cluster"
	NamespacedScope Scope = "Namespaced"
)

// LostInstances is a policy for objects whose counterpart vanished from the Control Plane
// Cluster while they live: Recreate makes a new counterpart, which has none of the old one's
// data; Report leaves that to the owner of the object, who is told how.
//
// +kubebuilder:validation:Enum=Recreate;Report
type LostInstances string

// The policies for lost instances.
const (
	LostInstancesRecreate LostInstances = "Recreate"
	LostInstancesReport   LostInstances = "Report"
)

// Adoption is a provider's word on objects of an API that the provider's side makes.
//
// +kubebuilder:validation:Enum=Offer
type Adoption string

// AdoptionOffer has them become claims in App Clusters that agree to it.
const AdoptionOffer Adoption = "Offer"

// Isolation says how cluster-scoped objects of different tenants are kept apart.
//
// +kubebuilder:validation:Enum=Prefixed;Namespaced;None
type Isolation string

// The isolations.
const (
	// IsolationPrefixed puts the tenant namespace before the object's name.
	IsolationPrefixed Isolation = "Prefixed"
	// IsolationNamespaced puts the object into the tenant's namespace.
	IsolationNamespaced Isolation = "Namespaced"
	// IsolationNone keeps names as they are.
	IsolationNone Isolation = "None"
)

// PermissionClaim asks the owner of an App Cluster for access to objects besides
// those of the exported API.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.autoDonate) && self.autoDonate && has(self.autoAdopt) && self.autoAdopt)",message="donate and adopt are mutually exclusive"
type PermissionClaim struct {
	GroupResource `json:",inline"`
	// version of the API with which the objects are read and written.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
	// selector says which objects are claimed, and who owns them.
	// +default={}
	Selector ResourceSelector `json:"selector,omitempty"`
	// required says that the API is of no use without the claim.
	Required bool `json:"required"`
	// read says which labels and annotations of the consumer's objects the provider may read.
	// +default={}
	Read ReadOptions `json:"read,omitempty"`
	// create says what happens to an object of the same name that is there already.
	Create *CreateOptions `json:"create,omitempty"`
	// autoAdopt makes the consumer the owner of what the provider created.
	AutoAdopt bool `json:"autoAdopt,omitempty"`
	// autoDonate makes the provider the owner of what the consumer created.
	AutoDonate bool `json:"autoDonate,omitempty"`
	// onConflict says what happens to an object that one side deleted.
	// +default={}
	OnConflict OnConflictOptions `json:"onConflict,omitempty"`
	// update says which fields travel.
	Update *UpdateOptions `json:"update,omitempty"`
}

// Owner is a side of a binding.
//
// +kubebuilder:validation:Enum=Provider;Consumer
type Owner string

// The owners.
const (
	OwnerProvider Owner = "Provider"
	OwnerConsumer Owner = "Consumer"
)

// ResourceSelector selects claimed objects.
type ResourceSelector struct {
	// names of objects; "*" is any.
	// +default=["*"]
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	Names []string `json:"names,omitempty"`
	// namespaces of the App Cluster; "*" is any.
	// +default=["*"]
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MaxLength=253
	Namespaces []string `json:"namespaces,omitempty"`
	// labelSelectors: labels that an object must have; any one of the maps is enough.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxProperties=64
	LabelSelectors []map[string]string `json:"labelSelectors,omitempty"`
	// fieldSelectors in the syntax of kubectl --field-selector.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	FieldSelectors []string `json:"fieldSelectors,omitempty"`
	// owner is the side whose object counts; the other side holds a copy. Empty
	// means Provider here, while other programs take the side that had it first.
	Owner Owner `json:"owner,omitempty"`
	// references narrow the selection to objects that a bound object names. They
	// are ours alone; a program that does not know them goes by names.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	References []Reference `json:"references,omitempty"`
}

// Reference selects the object whose name stands at a path of a bound object, in
// the bound object's namespace.
type Reference struct {
	// path to a field of the bound object, fields joined by dots:
	// "status.managed.secret.name".
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Za-z_][-A-Za-z0-9_]*(\.[A-Za-z_][-A-Za-z0-9_]*)*$`
	// +kubebuilder:validation:MaxLength=1024
	Path string `json:"path"`
}

// Pattern matches names of labels, annotations or fields.
type Pattern struct {
	// pattern, in which "*" stands for any text.
	// +kubebuilder:validation:MaxLength=512
	Pattern string `json:"pattern,omitempty"`
}

// ReadOptions say which metadata travels from consumer to provider.
type ReadOptions struct {
	// labels of the consumer's objects.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Labels []Pattern `json:"labels,omitempty"`
	// labelsOnProviderOwnedObjects that the consumer set on the provider's objects.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	LabelsOnProviderOwnedObjects []Pattern `json:"labelsOnProviderOwnedObjects,omitempty"`
	// annotations of the consumer's objects.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Annotations []Pattern `json:"annotations,omitempty"`
	// overrideAnnotations of the provider's objects that the consumer may change.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	OverrideAnnotations []Pattern `json:"overrideAnnotations,omitempty"`
}

// CreateOptions say what creation may do.
type CreateOptions struct {
	// replaceExisting lets the provider overwrite an object of the same name.
	ReplaceExisting bool `json:"replaceExisting,omitempty"`
}

// OnConflictOptions say what happens when the sides disagree.
type OnConflictOptions struct {
	// recreateWhenConsumerSideDeleted makes the copy anew when the consumer deleted it.
	// +default=true
	RecreateWhenConsumerSideDeleted *bool `json:"recreateWhenConsumerSideDeleted,omitempty"`
}

// UpdateOptions say which changes travel.
type UpdateOptions struct {
	// fields that the provider may change on consumer-owned objects, as JSON paths.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Fields []string `json:"fields,omitempty"`
	// preserving: fields that the provider keeps as they are, as JSON paths.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=1024
	Preserving []string `json:"preserving,omitempty"`
	// alwaysRecreate replaces objects instead of changing them.
	AlwaysRecreate bool `json:"alwaysRecreate,omitempty"`
	// labels that travel.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Labels []Pattern `json:"labels,omitempty"`
	// labelsOnConsumerOwnedObjects that the provider may set.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	LabelsOnConsumerOwnedObjects []Pattern `json:"labelsOnConsumerOwnedObjects,omitempty"`
	// annotations that travel.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Annotations []Pattern `json:"annotations,omitempty"`
	// annotationsOnConsumerOwnedObjects that the provider may set.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	AnnotationsOnConsumerOwnedObjects []Pattern `json:"annotationsOnConsumerOwnedObjects,omitempty"`
}

// ClaimState is the answer to a permission claim.
//
// +kubebuilder:validation:Enum=Accepted;Rejected
type ClaimState string

// The answers.
const (
	ClaimAccepted ClaimState = "Accepted"
	ClaimRejected ClaimState = "Rejected"
)

// AcceptablePermissionClaim is a claim and its answer.
type AcceptablePermissionClaim struct {
	PermissionClaim `json:",inline"`
	// state is the answer of the App Cluster's owner.
	// +required
	State ClaimState `json:"state"`
}
