// SPDX-License-Identifier: Apache-2.0

// Package crd makes the CRD of a bound API from the APIServiceExport of its provider, and
// refuses or leaves out what could harm an App Cluster.
//
// The schema comes from the other side, and a CRD is cluster-wide. So [NewCRD] makes one
// only of an export of the very API that was bound, in a group that is not Kubernetes' own,
// with one storage version and a size that etcd takes; an export has no field for a
// conversion webhook. Defaults that would fill in which Secrets of the App
// Cluster a provider gets are left out ([DropDefaults]), and so are short names and
// categories by which people here reach something else ([ServedNames]).
//
// The spec travels as JSON, not by way of apiextensions' types, which would drop fields
// that they do not know. Two CRDs are compared with their defaults filled in ([SameSpec]):
// comparing what was sent with what the API server stored would write in every pass.
package crd
