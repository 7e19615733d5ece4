// SPDX-License-Identifier: Apache-2.0

// Package pairings plays a claim's life with each pairing of a backend and a konnector: ours as
// they are shipped, and doubles that do on the wire what Klutch's programs do.
package pairings
