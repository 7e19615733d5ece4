// SPDX-License-Identifier: Apache-2.0

// Command bench measures the konnector from outside, through nothing but the two
// API servers, and beside a yardstick on the same clusters in the same run.
//
//	go run ./internal/test/bench                                  # all of it
//	go run ./internal/test/bench -parts latency,noise -singles 50 # some of it
//	go run ./internal/test/bench -parts settled -settled 50000 -idle 10m
//
// # Parts
//
//   - throughput: how many creations, statuses, updates and deletions a second go
//     through, with all objects in one namespace and spread over many,
//     and the CPU time of the contestant for one object's life
//   - latency: how long one takes when nothing else happens
//   - namespaces: how long the first objects take of namespaces that are new to everybody
//   - writes: how many writes each costs, as the API servers count them
//   - noise: how long one takes while another tenant writes as fast as it can
//   - silence: how long one takes while another control plane, with ten kinds bound from
//     it, accepts connections and answers nothing
//   - large: how much memory objects with long lists take, by their bytes
//   - refused: what many objects cost that the control plane refuses, and how long one of
//     another binding takes beside them
//   - settled: with many objects at rest, how long a restart takes, what it and
//     idleness write, and how much memory an object needs
//   - tenants: with many tenants of one backend, how much memory and how many watches
//     and requests it needs at rest, and how long the next bind takes at the backend,
//     without the issuer; an export is reviewed every ten to twelve minutes, so that
//     -idle 12m sees each once
//
// # Contestants
//
//   - klutch is the konnector, as a process with the shipped rights.
//   - sync is package sync alone, as a process with the rights of an administrator: without
//     a backend, tenants, bindings and the admission policies that come with them. What
//     klutch needs beyond it, those cost.
//   - rights is ideal with the identities of klutch: the konnector's account in the App
//     Cluster and the credential of its tenant in the Control Plane Cluster. It works in the
//     service namespaces that klutch has had made in the turn before, and watches each by
//     itself, as a tenant must. The API servers evaluate the shipped roles and admission
//     policies at its writes, and give its requests the share of service accounts, while
//     those of an administrator never wait. So "rights ÷ ideal" is what rights cost, and
//     "klutch ÷ rights" what klutch does beyond them. The policies let pass what ideal writes
//     as it is: what they take to read klutch's labels and annotations counts as klutch's.
//   - ideal does the least work that moves a spec up, a status down and a deletion
//     through. It is not safe in any way, so it is the practical ceiling.
//   - limited is ideal behind client-go's default rate limit of 5 requests a
//     second, as a konnector is that takes the defaults.
//
// They take turns, one at a time. What is reported of several rounds is the median. As a part
// ends, bench says of each goal whether it was met or missed; a run that is ended early reports
// what it has.
// Figures of different machines or runs do not compare; ratios within a run do.
package main
