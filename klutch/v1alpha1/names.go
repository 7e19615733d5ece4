// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "klutch.anynines.com", Version: "v1alpha1"}

// Names that programs of different make rely on.
const (
	// Namespace is the namespace of the App Cluster in which bindings, their
	// kubeconfig Secrets and the konnector live.
	Namespace = "klutch-bind"
	// KubeconfigKey is the key of a kubeconfig in its Secret.
	KubeconfigKey = "kubeconfig"
	// KubeconfigSecretName is the Secret of a tenant namespace that holds the
	// kubeconfig for the tenant's konnector.
	KubeconfigSecretName = "kubeconfig"
	// ClusterBindingName is the name of every ClusterBinding.
	ClusterBindingName = "cluster"
	// TenantServiceAccount is the account of a tenant in its tenant namespace. Objects of
	// other kinds have the same name: see TokenAnchorSecret.
	TenantServiceAccount = "klutch-binder"
	// LeaseName is the konnector's leader election Lease.
	LeaseName = "klutch-bind"
	// FieldManager is the field manager, and the prefix of field managers, of
	// everything that Klutch applies.
	FieldManager = "klutch.anynines.com"
)

// Finalizers.
const (
	// SyncerFinalizer stands on an object of the App Cluster for as long as its
	// counterpart in the Control Plane Cluster may exist.
	SyncerFinalizer = "klutch.anynines.com/syncer"
	// AppClusterBindingFinalizer stands on an AppClusterBinding for as long as what
	// was made for it may exist.
	AppClusterBindingFinalizer = "klutch.anynines.com/appclusterbinding-cleanup"
	// TenantFinalizer stands on a ClusterBinding for as long as what the tenant has
	// may exist.
	TenantFinalizer = "klutch.anynines.com/tenant"
)

// Annotations.
const (
	// SourceSpecHashAnnotation stands on an APIServiceExport: the hash of the CRD
	// that its snapshot was taken of.
	SourceSpecHashAnnotation = "klutch.anynines.com/source-spec-hash"
	// ServiceNamespaceAnnotation stands on a service namespace:
	// "<tenant namespace>/<namespace of the App Cluster>".
	ServiceNamespaceAnnotation = "klutch.anynines.com/api-service-namespace"
	// BoundAnnotation is "true" on objects that are kept in step.
	BoundAnnotation = "klutch.anynines.com/bound"
	// ResourceOwnerAnnotation stands on claimed objects: "Provider" or "Consumer".
	ResourceOwnerAnnotation = "klutch.anynines.com/resource-owner"
	// ClusterNamespaceAnnotation stands on the Control Plane Cluster's copy of a
	// cluster-scoped object: the tenant namespace.
	ClusterNamespaceAnnotation = "klutch.anynines.com/cluster-namespace"
	// GateAnnotationPrefix begins annotations of a tenant namespace, each a gate that
	// is open when the value is GateOpen. Tenants cannot write them.
	GateAnnotationPrefix = "gate.klutch.anynines.com/"
	GateOpen             = "open"
	// ReleaseAnnotation lets pass what a breaker holds: on a claim with the word that its message spells,
	// on an APIServiceBinding with any value that is new, on a ClusterBinding with any.
	ReleaseAnnotation = "klutch.anynines.com/release-deletion"
	// DeletionsAnnotationPrefix begins annotations of a kubeconfig Secret of the App Cluster,
	// one for each binding: what the konnector has deleted of late, so that a mass deletion
	// is one over a restart.
	DeletionsAnnotationPrefix = "deletions.klutch.anynines.com/"
	// RecoverAnnotation stands on an APIServiceBinding: the UID of namespace kube-system of
	// an App Cluster that is gone for good, whose objects in the Control Plane Cluster the
	// App Cluster's owner takes up with those of the same namespace and name.
	RecoverAnnotation = "klutch.anynines.com/recover-from"
	// AcceptSchemaAnnotation stands on an APIServiceBinding: the hash of the change, the CRD
	// that is there and the provider's, that the App Cluster's owner accepts although it
	// breaks what is there.
	AcceptSchemaAnnotation = "klutch.anynines.com/accept-schema"
	// BreakingChangesAnnotation on a template of a foreign group, which has no such field,
	// is what spec.breakingChanges is on one of ours.
	BreakingChangesAnnotation = "klutch.anynines.com/breaking-changes"
	// ResourceAnnotation stands on an Event of the konnector about an object of a bound API:
	// the API's name, "<resource>.<group>".
	ResourceAnnotation = "klutch.anynines.com/resource"
	// IdentityAnnotation stands on a tenant namespace: the subject and the cluster
	// that it belongs to.
	IdentityAnnotation = "example-backend.klutch.anynines.com/identity"
)

// Labels.
const (
	// AggregateToBackendLabel is "true" on ClusterRoles whose rules the backend may
	// pass on to tenants. The backend has them in service namespaces alone.
	AggregateToBackendLabel = "klutch.anynines.com/aggregate-to-backend"
	// AggregateToKonnectorLabel is "true" on ClusterRoles whose rules the konnector
	// needs in its App Cluster: one for each bound API.
	AggregateToKonnectorLabel = "klutch.anynines.com/aggregate-to-konnector"
	// AppClusterBindingNameLabel and AppClusterBindingNamespaceLabel stand on what
	// was made for an AppClusterBinding.
	AppClusterBindingNameLabel      = "klutch.anynines.com/appclusterbinding-name"
	AppClusterBindingNamespaceLabel = "klutch.anynines.com/appclusterbinding-namespace"
)

// The names below are the backend's own, in the Control Plane Cluster. They are listed
// here so that every name has one place; App Clusters and other backends need none.

// Finalizers of the backend.
const (
	// ServiceNamespaceFinalizer stands on an APIServiceNamespace for as long as its
	// service namespace may exist.
	ServiceNamespaceFinalizer = "klutch.anynines.com/service-namespace"
)

// Annotations of the backend.
const (
	// HolderAnnotation stands on a tenant namespace: its holder (issuer, subject,
	// cluster) in JSON.
	HolderAnnotation = "klutch.anynines.com/holder"
	// AdoptedAnnotation takes its place on the namespace of a tenant that was adopted from
	// Klutch's backend. The shipped policy lets only who has the verb adopt write it.
	AdoptedAnnotation = "klutch.anynines.com/adopted-tenant"
	// ExportedAnnotation stands on a service namespace: the names of all APIs that its
	// tenant ever had rights to there, separated by commas. On a tenant namespace they are
	// those of cluster-scoped APIs.
	ExportedAnnotation = "klutch.anynines.com/exported"
	// RenewAfterAnnotation stands on a kubeconfig Secret: when its token is to be
	// renewed, in RFC 3339.
	RenewAfterAnnotation = "klutch.anynines.com/renew-after"
	// LongTokensEndAnnotation on that Secret is when the last token ends that was issued for
	// Klutch's own konnector, for longer than others; see KlutchKonnectorLabel.
	LongTokensEndAnnotation = "klutch.anynines.com/long-tokens-end"
	// IssuedForAnnotation stands on a kubeconfig Secret: a hash of what it was made from,
	// beside the token.
	IssuedForAnnotation = "klutch.anynines.com/issued-for"
	// MadeAtAnnotation stands on a token anchor and on the ServiceAccount of a tenant: when
	// it was made by the clock of the backend, in RFC 3339. The API server's clock may
	// differ.
	MadeAtAnnotation = "klutch.anynines.com/made-at"
	// AnchorAnnotation stands on a ClusterBinding: the UID of the token anchor that the
	// last login made. The replica that renews credentials learns from it that there is one
	// to be made.
	AnchorAnnotation = "klutch.anynines.com/anchor"
	// DrainingAnnotation stands on a deleted ClusterBinding without a deletion policy once
	// nothing of its tenant is left.
	DrainingAnnotation = "klutch.anynines.com/draining"
	// SourceClaimsHashAnnotation stands on an APIServiceExport: a hash of the permission
	// claims that were last taken over from the service.
	SourceClaimsHashAnnotation = "klutch.anynines.com/source-claims-hash"
	// WithdrawnAnnotation stands on an APIServiceExport that may not be used at this
	// moment: the reason.
	WithdrawnAnnotation = "klutch.anynines.com/withdrawn"
	// CreateOnlyAnnotation on a ResourceQuota that the backend made, with whatever value,
	// has the backend leave it alone from then on.
	CreateOnlyAnnotation = "bootstrap.klutch.anynines.com/create-only"
	// ExpiresAnnotation stands on the ConfigMap of a device login: when it may be removed,
	// in RFC 3339.
	ExpiresAnnotation = "klutch.anynines.com/expires"
)

// Labels of the backend.
const (
	// TenantLabel stands on tenant and service namespaces: the tenant namespace.
	TenantLabel = "klutch.anynines.com/tenant"
	// SubjectLabel, AppClusterLabel and AppNamespaceLabel are for operators to select by.
	// The first two stand on tenant and service namespaces: a hash of issuer and subject,
	// and the cluster as the client named it. The third stands on service namespaces: the
	// App Cluster's namespace.
	SubjectLabel      = "klutch.anynines.com/subject"
	AppClusterLabel   = "klutch.anynines.com/app-cluster"
	AppNamespaceLabel = "klutch.anynines.com/app-namespace"
	// KlutchKonnectorLabel is "true" on the namespace of a tenant that may use Klutch's own
	// konnector, which needs more rights on Secrets. The platform team sets it, no program.
	KlutchKonnectorLabel = "klutch.anynines.com/klutch-konnector"
	// DeviceLoginLabel is "true" on the ConfigMaps of device logins.
	DeviceLoginLabel = "klutch.anynines.com/device-login"
)

// Objects of the backend.
const (
	// TenantRecordSecret of a tenant namespace says who holds the tenant and which services
	// were chosen. Tenants can neither read nor write it.
	TenantRecordSecret = "klutch-tenant"
	// Objects of seven kinds are named klutch-binder: the ServiceAccount TenantServiceAccount,
	// those of the next five constants, and in deploy/backend the admission policy on what
	// tenants write.

	// TokenAnchorSecret of a tenant namespace is what tokens are bound to: they die when it
	// is deleted.
	TokenAnchorSecret = "klutch-binder"
	// TenantRoleBinding gives the account of a tenant its rights in one namespace: TenantRole
	// in its tenant namespace, ServiceNamespaceRole in a service namespace.
	TenantRoleBinding = "klutch-binder"
	// ServiceNamespaceRole is the Role of a tenant in one service namespace.
	ServiceNamespaceRole = "klutch-binder"
	// CapsQuota is the ResourceQuota that caps a tenant in one namespace.
	CapsQuota = "klutch-binder"
	// LegacyTenantRole is the ClusterRole that Klutch's backend gives tenants in place of
	// TenantRole. With a hyphen and the tenant namespace behind it, it is the ClusterRole, and
	// ClusterRoleBinding, of one tenant in the whole cluster.
	LegacyTenantRole = "klutch-binder"
	// BackendRoleBinding is the RoleBinding by which the backend has rights in a namespace
	// of a tenant: BackendTenantRole in a tenant namespace, BackendOfferRole in a service
	// namespace.
	BackendRoleBinding = "klutch-backend"
	// TenantRole is the ClusterRole of a tenant in its tenant namespace.
	TenantRole = "klutch-tenant"
	// KlutchKonnectorRole takes its place where KlutchKonnectorLabel says so.
	KlutchKonnectorRole = "klutch-tenant-klutch-konnector"
	BackendTenantRole   = "klutch-backend-tenant"
	// BackendOfferRole is the sum of the rights that tenants may get.
	BackendOfferRole = "klutch-backend-offer"
	// PrefixedReadRole and PrefixedWriteRole begin the names of the two ClusterRoles of a
	// cluster-scoped API that is switched on, which end with its name. Each ClusterRoleBinding
	// of a tenant is named after its role and the tenant, with a colon between them.
	PrefixedReadRole  = "klutch-prefixed:read:"
	PrefixedWriteRole = "klutch-prefixed:write:"
)

// Resource returns resource of this group and version, e.g. "apiservicebindings".
func Resource(resource string) schema.GroupVersionResource {
	return GroupVersion.WithResource(resource)
}

// AddToScheme registers the kinds of this package.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&APIServiceBinding{}, &APIServiceBindingList{},
		&APIServiceExport{}, &APIServiceExportList{},
		&APIServiceExportRequest{}, &APIServiceExportRequestList{},
		&APIServiceExportTemplate{}, &APIServiceExportTemplateList{},
		&APIServiceNamespace{}, &APIServiceNamespaceList{},
		&AppClusterBinding{}, &AppClusterBindingList{},
		&ClusterBinding{}, &ClusterBindingList{},
		&BindingProvider{}, &BindingResponse{},
	)
	return nil
}

// Annotations of the App Cluster's own objects, by which kubectl bind and the konnector
// find again what they made.
const (
	// BackendAnnotation stands on a kubeconfig Secret: the URL of the backend at which a
	// login got it.
	BackendAnnotation = "klutch.anynines.com/backend"
	// TenantUIDAnnotation stands on a kubeconfig Secret: the UID of the tenant namespace
	// that it was bound to. A Control Plane Cluster that took the place of the old one has no
	// namespace with this UID, whatever its name; an object that is not found there is not gone.
	TenantUIDAnnotation = "klutch.anynines.com/tenant-uid"
	// UnboundAnnotation stands on a kubeconfig Secret while it is being removed: the name
	// of the binding that was the last one to use it. A removal that was interrupted goes
	// on from there.
	UnboundAnnotation = "klutch.anynines.com/unbound"
	// BindingAnnotation stands on a CRD: "<namespace>/<name>/<uid>" of the binding that it
	// was made for; the namespace of a cluster-scoped binding is empty.
	BindingAnnotation = "klutch.anynines.com/binding"
	// IsolationAnnotation stands on a CRD of a cluster-scoped API: the clusterScopedIsolation of the
	// export that its objects are synced under. Under another one each would have another target.
	IsolationAnnotation = "klutch.anynines.com/isolation"
)
