// SPDX-License-Identifier: Apache-2.0

// Package permission carries out permission claims in an App Cluster. It decides which
// resources a provider may claim at all ([Policy]) and what an accepted claim selects
// ([Judge]), gives the konnector the rights for it, one namespace at a time ([Rights],
// [Namespaces], [Grant]), and finds and removes copies ([Copies], [UnusedNamespaces]).
//
// A claim is never a standing right on a kind in all namespaces. The konnector holds only
// the right to bind one ClusterRole, and takes it with a RoleBinding in each namespace
// that has an object of the bound API; a ValidatingAdmissionPolicy has the API server
// refuse it everywhere else, so that a thief of the konnector's credential is refused too.
// The alternatives were rights in all namespaces, which made that credential worth every
// Secret of the cluster, and a second component that hands out rights, which would be one
// more thing to run and to trust. It costs one request for each new namespace and binding.
//
// [Copies] deletes a copy only if the field manager of our own Sync is on it: labels prove
// nothing, since the other side can write them.
package permission
