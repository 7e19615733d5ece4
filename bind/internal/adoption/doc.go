// SPDX-License-Identifier: Apache-2.0

// Package adoption has objects that a provider makes in a service namespace become claims
// in the App Cluster, where both sides have agreed to that.
//
// The Sync of the binding finds them (its watches are there already, so that adoption costs no
// second one) and takes over what a claim names by its UID; this package makes the claim. The
// objects are an enemy's: only so many become claims, and only so fast; they are read live,
// must be of a sane size, and give away nothing of their metadata but the name, which the
// App Cluster's API server judges like the rest.
package adoption
