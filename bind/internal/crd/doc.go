// SPDX-License-Identifier: Apache-2.0

// Package crd makes the CRD of a bound API from what its provider publishes, and says
// what of it an App Cluster does not take.
//
// The schema comes from the other side, and a CRD is cluster-wide. So one is made by [NewCRD]
// only of an export that is about the very API that was bound, in a group that is not
// Kubernetes' own, with one storage version and a size that etcd takes; conversion
// webhooks cannot be said at all. Defaults that would fill in which Secrets of the App
// Cluster a provider gets are left out ([DropDefaults]), and so are short names and
// categories by which people here reach something else ([ServedNames]).
//
// The spec travels as JSON, not by way of apiextensions' types, which would drop fields
// that they do not know. Two CRDs are compared with their defaults filled in ([SameSpec]):
// comparing what was sent with what the API server stored would write at every look.
package crd
