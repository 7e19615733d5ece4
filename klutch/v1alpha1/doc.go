// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the API types of Klutch, group
// klutch.anynines.com/v1alpha1, as its programs exchange them.
//
// In the App Cluster:
//
//   - [APIServiceBinding] makes one API of the Control Plane Cluster usable. Its
//     name is that of the bound CRD, "<resource>.<group>".
//
// In the Control Plane Cluster, in the namespace of a tenant:
//
//   - [APIServiceExportRequest] asks for an API,
//   - [APIServiceExport] is the answer: a snapshot of the API's schema,
//   - [APIServiceNamespace] asks for a service namespace, the mirror of one
//     namespace of the App Cluster,
//   - [ClusterBinding], always named "cluster", carries the konnector's heartbeat.
//
// For the platform operator:
//
//   - [APIServiceExportTemplate] offers an API to tenants,
//   - [AppClusterBinding] binds an App Cluster from the control plane's side; no
//     program of this module acts on it.
//
// [BindingProvider] and [BindingResponse] are never stored: they are the bodies
// of the HTTP handshake between kubectl-bind and the backend.
//
// Conditions are [Condition], with Klutch's severity; [SetCondition] and
// [Summarize] keep them as all programs expect them. [CRDs] returns the
// CustomResourceDefinitions of all stored kinds.
//
// The package imports nothing but apimachinery.
//
// +kubebuilder:object:generate=true
// +kubebuilder:validation:Optional
// +groupName=klutch.anynines.com
package v1alpha1
