// SPDX-License-Identifier: Apache-2.0

// Package cluster is what both halves of bind, kubectl bind and the konnector, know of
// the clusters that a binding connects: the names of the kinds, how an object of one is
// read as a Go type, what a kubeconfig Secret and its token say, which cluster or tenant
// this is, and what an error of an API server means to a person.
//
// Clients are dynamic. Typed clients for a dozen kinds, of which half are Klutch's own,
// would be generated code that only reads names and specs; [Get] and [Listed] decode into
// the type that the caller names, and absence is a nil, not an error.
//
// A kubeconfig Secret is refused where it is a copy ([IsCopy]): a platform that can have
// Secrets copied into the App Cluster could otherwise decide where the bindings to another
// platform lead. [Explain] words an error so that the same trouble always gives the same
// text, since that text ends in conditions: no port numbers, times or URLs with queries.
package cluster
