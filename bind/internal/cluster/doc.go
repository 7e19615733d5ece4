// SPDX-License-Identifier: Apache-2.0

// Package cluster reads the two clusters of a binding, for kubectl bind and the konnector
// alike. It has the names of the kinds, decodes objects into Go types, reads kubeconfig
// Secrets and their tokens, tells which cluster or tenant answers, and explains errors of
// API servers to people.
//
// Clients are dynamic. Typed clients for a dozen kinds, of which half are Klutch's own,
// would be generated code that only reads names and specs; [Get] and [Listed] decode into
// the type that the caller names, and absence is a nil, not an error.
//
// A kubeconfig Secret is refused where it is a copy ([IsCopy]): a platform that can have
// Secrets copied into the App Cluster could otherwise decide where the bindings to another
// platform lead. [Explain] gives the same error always the same text, without port
// numbers, times or URLs with queries, since that text ends in conditions.
package cluster
