// SPDX-License-Identifier: Apache-2.0

// Package permission is all that there is to permission claims in an App Cluster: which
// resources a provider may claim at all ([Policy]), what an accepted claim selects
// ([Judge]), the rights that the konnector needs for it and where it may take them
// ([Rights], [Namespaces], [Grant]), and how copies are found and removed again
// ([Copies], [UnusedNamespaces]).
//
// A claim is never a standing right on a kind in all namespaces. The konnector holds only
// the right to bind one ClusterRole, and takes it with a RoleBinding in each namespace
// that has an object of the bound API; a ValidatingAdmissionPolicy has the API server
// refuse it everywhere else, so that a thief of the konnector's credential is refused too.
// The alternatives were rights in all namespaces, which made that credential worth every
// Secret of the cluster, and a second component that hands out rights, which would be one
// more thing to run and to trust. It costs one request for each new namespace and binding.
//
// Whose a copy is follows from the field manager that our own Sync wrote, never from
// labels, which the other side can write: [Copies] deletes only what it can prove.
package permission
