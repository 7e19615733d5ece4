// SPDX-License-Identifier: Apache-2.0

// Package konnector is the engine of a bind.Konnector: it carries out the
// APIServiceBindings of one App Cluster.
//
// A [Konnector] has one connection for each kubeconfig Secret, shared by all bindings that
// name it. While the Secret is of use the connection has a session: the tenant namespace
// of one Control Plane Cluster, with a heartbeat that is at once the probe of the control
// plane and fetches rotated credentials, and with the service namespaces of the tenant. A
// pass is one look at a binding: a list of steps, each a thing that has to be true before
// the next can be (connection, export, schema, rights, CRD, claims, Sync); what a step
// finds becomes a condition, and the first that fails is what the others wait for.
//
// Passes are level-triggered and repeat everything: a state machine that remembers how far
// a binding has come would have to be right about what others did meanwhile. What is
// remembered is only what saves a request or keeps a promise over time, one record a
// binding. A platform that changes its mind all the time costs two passes a second of its
// own bindings, and no more than two of the workers.
//
// No part has a pointer to the Konnector: each is given the few things that it uses, so that
// a file can be read without the files that use it.
package konnector
