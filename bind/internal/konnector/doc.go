// SPDX-License-Identifier: Apache-2.0

// Package konnector does the work of a bind.Konnector: it carries out the
// APIServiceBindings of one App Cluster.
//
// A [Konnector] opens one connection for each kubeconfig Secret; the bindings that name the
// Secret share it. While the Secret is valid, the connection has a session with one tenant
// namespace: it sends heartbeats, which show too whether the control plane works, fetches
// rotated credentials, and asks for service namespaces. A pass takes one binding through a
// list of steps: connection, export, schema, rights, CRD, claims, Sync. Each needs the ones
// before it. What a step finds becomes a condition of the binding, and the first step that
// fails ends the pass.
//
// Each pass begins anew: a konnector that remembered how far a binding has come would have
// to know what others did meanwhile. A bindingRecord remembers only what saves a request,
// or when something was last done. A platform that changes its objects all the time causes
// two passes a second of each of its bindings, and takes two of the workers at most.
//
// A pass that fails is repeated after a pause that doubles, up to ten minutes: an API server refuses, or
// a webhook is down. Where a cluster cannot be reached at all, or is not ready, each binding goes on with
// one request every few seconds, so that the return of its API server is noticed within seconds. In a
// pause the Events of objects, and their number, are told at their own time.
//
// No part has a pointer to the Konnector: each is given the few things that it uses, so that
// a file can be read without the files that use it.
package konnector
