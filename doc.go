// SPDX-License-Identifier: Apache-2.0

// Package sdk is the map of Klutch: application developers order data services
// from their own cluster, platform teams run them in another one.
//
// In an App Cluster people apply proxy claims, such as an Instance, a
// ServiceBinding, a Backup or a Restore. The konnector carries their specs to the
// Control Plane Cluster, where operators, Crossplane or service brokers do the
// work, and brings status and credentials back. An API is bound once, with
// kubectl bind, through an OIDC login that the backend verifies before it hands
// out a tenant.
//
// The packages, from the outside in:
//
//   - [github.com/klutch-go/sdk/klutch] is the front door: a Backend and a
//     Konnector, each a struct with a Run method.
//   - [github.com/klutch-go/sdk/export] is the control plane's half: catalogue,
//     tenants, rights, credentials, schemas and the HTTP handshake.
//   - [github.com/klutch-go/sdk/bind] is the App Cluster's half: connections,
//     CRDs, permission claims, and the client of the handshake.
//   - [github.com/klutch-go/sdk/sync] keeps one resource in step between two API
//     servers. It knows nothing of bindings and is useful alone.
//   - [github.com/klutch-go/sdk/auth] is OIDC on both ends of a login.
//   - [github.com/klutch-go/sdk/klutch/v1alpha1] holds the API types, which are
//     those of the Klutch that people already run.
//   - [github.com/klutch-go/sdk/klutch/conformance] tests any backend from outside,
//     by its URL.
//
// The programs in cmd are flags, signals and one call each. examples holds one
// idea each, the data services of the demo among them.
package sdk
