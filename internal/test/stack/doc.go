// SPDX-License-Identifier: Apache-2.0

// Package stack brings the whole of Klutch up on one machine, as it is in
// production: two real Kubernetes control planes, an OIDC issuer, and the programs
// as processes of their own, each with a service account of exactly the shipped
// rights. The demo, the benchmark and the end-to-end tests stand on it.
//
//	s, err := stack.Start(ctx, stack.Options{Step: fmt.Println})
//	…
//	defer s.Stop()
//	out := s.Bind(ctx, "--service", "postgresqlinstances.anynines.com")
//
// What runs: the App Cluster with the konnector; the Control Plane Cluster with the
// backend, the data services of examples/catalog and their automation. There are no
// nodes, so the Deployments that the manifests make never run; the processes stand
// in for them.
package stack
