// SPDX-License-Identifier: Apache-2.0

// Package doctor checks what the bindings of an App Cluster need, and whether the templates
// of a Control Plane Cluster work, and changes nothing.
//
// Each check is a method that notes one finding, good or bad, with what to do about it; a
// check that makes no sense because of an earlier finding is left out, so that the first
// bad one is the cause. Checks read the same objects as the konnector, by the same
// functions, so that both judge a kubeconfig or a token alike.
package doctor
