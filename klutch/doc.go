// SPDX-License-Identifier: Apache-2.0

// Package klutch is the front door: the two programs of Klutch as values. A struct
// holds the configuration, and its Run method is the program:
//
//	err := klutch.Konnector{Config: appCluster, HealthAddress: ":8080"}.Run(ctx)
//
//	err := klutch.Backend{
//		Config:        controlPlane,
//		Login:         auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", ClientSecret: secret},
//		Options:       export.Options{ExternalURL: "https://bind.example.com"},
//		ListenAddress: ":8443", TLSCertFile: "tls.crt", TLSKeyFile: "tls.key",
//	}.Run(ctx)
//
// Both work beside each other in one process, and inside an operator of your own.
// They elect a leader by Lease, answer health probes and log with the
// [github.com/go-logr/logr.Logger] of the context. Neither reads flags, environment
// variables or signals: that is left to the programs in cmd.
//
// # Why it is so
//
//   - A certificate that does not match its key leaves the pair before it in force: files
//     are replaced one after the other.
//   - Metrics are read from a census at each scrape, or counted by hooks, so that the public
//     packages import no Prometheus.
//   - The log level of the programs in cmd ends at 5: above it client-go writes bodies, and
//     with them tokens.
//
// Programs that need another shape build on packages bind, export, sync and auth. Names
// and types that all of them share are in [github.com/klutch-go/sdk/klutch/v1alpha1].
package klutch
