// SPDX-License-Identifier: Apache-2.0

// Package bind is the App Cluster's half of Klutch: it makes APIs of a Control
// Plane Cluster usable in the cluster of application developers.
//
// An APIServiceBinding in the App Cluster names an API and a kubeconfig Secret. A
// [Konnector] turns it into a CRD with the provider's schema, and keeps the objects
// of that kind in step for as long as the binding lives: specs up, statuses and
// credentials down.
//
//	k, err := bind.New(config, bind.Options{Version: "v1.2.0"})
//	…
//	err = k.Run(ctx) // blocks until ctx is done
//
// # How bindings come about
//
// A [Client] speaks the handshake of a backend: it finds out what the backend is,
// lets a person log in, and redeems the answer, a kubeconfig and requests for
// exports. Anything else that writes the Secret and the APIServiceBinding does as
// well, since both are plain objects.
//
// # What a Konnector does
//
// Each kubeconfig Secret is one connection, however many bindings share it. The
// kubeconfig comes from the other side, so five fields are read and anything else
// is refused. Over a connection the konnector
//
//   - sends a heartbeat to the ClusterBinding of its tenant namespace, and fetches
//     the credential that the backend rotated; a new token is taken up without
//     stopping anything,
//   - installs the CRD of each APIServiceExport that a binding is named after, and
//     changes it when the export changes; never a foreign CRD, and never one that
//     the binding is not about,
//   - asks for a service namespace for each namespace in which bound objects
//     appear, and gives it up when the namespace has really gone. Namespaces that the
//     provider requests by itself are reported, and not used,
//   - runs one [github.com/klutch-go/sdk/sync.Sync] for each binding, with the
//     objects that the accepted permission claims select.
//
// Conditions of the binding say how far this has come, and what to do where it
// cannot go on. Waiting is not an error: rights that are missing, a control plane
// that is away, an export that is not there yet are looked for again.
//
// # How they go
//
// [Remove] takes back what a binding needed. With the last one of a connection it
// deletes, with the tenant's own credential, its ClusterBinding, for which the backend
// removes the tenant, and the Secret that its tokens are bound to: after that API
// servers refuse them, whether a backend runs or not. Neither happens to a tenant that
// is used through another Secret, or that another App Cluster holds; and a tenant that
// has objects left is not given up, so that one can bind again to get at them.
//
// # Rights
//
// A konnector has no rights on bound kinds of its own. For each binding the person who
// binds passes theirs on with what [Rights] returns: on the bound kind in all
// namespaces, and on claimed kinds in the namespaces where API servers find an object of
// the bound kind. In each of these the konnector makes itself a RoleBinding.
//
// # Why it is so
//
//   - [Install] looks for conflicts first and writes to the App Cluster last: a bind that
//     is refused, or not consented to, leaves nothing behind there.
//   - A dry run does not log in, because a login already makes a tenant. It prints the
//     requests for the services that are named.
//   - The answer to a permission claim is that of a flag, else the answer that the binding
//     has, else --yes for Secrets and ConfigMaps, else that of the person. An answer that
//     matches no claim is an error.
//   - [Install] and [WaitReady] poll, so that no right to watch is needed. A [Client] lists
//     no services without a login (P7), and keeps nothing on disk for a logout to remove
//     (P28).
//   - [Doctor] reads the objects that the konnector reads, with the konnector's own
//     credential, and changes nothing.
//   - An unbind revokes by the deletion of the Secret that tokens are bound to, because
//     that needs neither a backend, nor the release of a breaker, nor the end of an object
//     that a thief keeps.
//
// # Caveats
//
// Run owns all goroutines and has ended them when it returns. Deleting a binding
// stops its objects from being kept in step and deletes nothing: not the CRD, not
// the objects, nothing in the Control Plane Cluster. Where Klutch's
// APIServiceBindings are cluster-scoped, the garbage collector deletes the CRD with
// its binding, as it does there.
package bind
