// SPDX-License-Identifier: Apache-2.0

// Package adoption makes claims in the App Cluster for objects that the provider has made by
// itself in a service namespace. Both sides have to agree: the provider by its export, the
// App Cluster by a limit in its binding.
//
// The Sync of the binding finds these objects, since it watches their kind already, and tells
// [Tracker.Found]. [Tracker.Look] makes a claim for each, with the UID of the object on it, and
// the Sync takes over the object that the claim names. A hostile provider gains little: claims
// are limited in number and pace; each object is read live and must not be large; and of its
// metadata the claim gets the name alone, which the App Cluster's API server validates.
package adoption
