// SPDX-License-Identifier: Apache-2.0

// Package tenant makes, keeps and removes tenants. A tenant is one App
// Cluster of one identity: a namespace of the Control Plane Cluster whose name is a hash
// of issuer, subject and cluster, with a record of who holds it and what was chosen, a
// ServiceAccount, a ClusterBinding and a kubeconfig with a short token. A service
// namespace mirrors one namespace of the App Cluster; the tenant has rights there to what
// is exported to it, and nowhere else.
//
// [Tenants] makes tenants and hands out credentials at any replica, during a
// login. [Controllers] keep and remove them, at one replica: one function each for tenant
// namespaces, ClusterBindings and APIServiceNamespaces. Both are made of small types with
// one task each: [Rights], records, credentials, caps, gates, the breaker of removals.
//
// # What ends what
//
//	what happens           who does it             the credential            rights                  exports and objects
//	kubectl bind unbind    the tenant deletes      dies in 20 s              stay until nothing is   wait until the App Cluster has
//	                       its ClusterBinding, and                           left, then they go      deleted them, then exports go too
//	                       last its token anchor
//	a ClusterBinding goes, the tenant, or the      lives until nothing is    as above                as above
//	no policy              platform team           left, then it is deleted
//	a token anchor goes    the tenant, or an       dies in 20 s; a new one   stay                    stay
//	                       operator                is made at the next login
//	                                               or when one is due
//	kubectl bind rotate,   a login                 the old one dies, a new   stay                    stay
//	or bind again                                  one is handed out
//	removal, Delete        the platform team, by   deleted at once           taken at once           deleted; the breaker holds many
//	                       spec.deletionPolicy                                                       removals that come together
//	removal, Orphan        the same                deleted at once           taken at once           exports go, objects and their
//	                                                                                                 service namespaces stay
//	withdrawal             a template or a right   stays                     to read and delete      stay; the export says why
//	                       of the holder goes
//	a login too old        the clock               is not renewed, and ends  stay                    stay
//	a closed gate          the platform team       stays                     to read and delete      stay; no new service namespaces
//	a bind that failed     the clock, Pauses.Bind  there is none             there are none          the empty namespace is deleted
//
// In each row the backend takes first what the tenant could act with, and looks at what
// is left afterwards. An absence is never taken for a wish to delete: what is deleted was
// deleted by its owner, or named in a policy. All steps can be done again, so that a crash
// between two of them costs nothing but time.
//
// # Why tokens are bound to a Secret
//
// Tokens are signed and stay good until they expire. Bound to a Secret, the token anchor,
// they die with it: an API server remembers for ten seconds that a token was good, and P13
// promises 20 s, with a margin. A tenant may delete that one Secret, so it can revoke
// what was stolen from it without the platform team. A login that replaces the anchor
// does not store the new token at once: the holder of the old one could read it. The tenant
// reconcile makes the kept one after Pauses.Settle, 15 s.
package tenant
