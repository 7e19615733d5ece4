// SPDX-License-Identifier: Apache-2.0

// Package testplatform is a hostile platform for tests: the other side of a binding
// as an enemy runs it.
//
// A [Platform] is an HTTPS server in front of a real API server, whose administrator
// it is, until it is told a [Fault] for the requests that a [Match] names:
//
//	platform := testplatform.Start(t, controlPlane.Config())
//	k := platform.Kubeconfig("cluster-abc", token) // what a backend would hand out
//	// … bind with k …
//	mend := platform.Fault(testplatform.List("apiserviceexports"), testplatform.GzipBomb())
//	// … see what becomes of the konnector …
//	mend()
//
// Tokens are passed on as they come, so that roles hold as they do without it. Without
// an API server ([Start] with nil) the platform keeps its objects by itself: it creates,
// reads, patches and deletes what it is asked for and what [Platform.Put] put there, and
// checks no token. [Front] is the same in front of any [http.Handler], such as a
// backend's.
//
// Faults flood ([GzipBomb], [Endless], [EndlessList], [EndlessPages], [EndlessEvents],
// [Headers]), hold ([Trickle], [Hang], [Slow]), lie ([Rewrite], [Answer], [Refuse],
// [Elsewhere]) and send away ([Redirect]); any function of the type is one. They go on until the client
// has had enough. [Platform.Plant] writes objects with the rights of the platform's
// administrator, whatever a tenant's may be. [Platform.Asked] counts requests, so that
// a test can wait until the enemy was heard.
package testplatform
