// SPDX-License-Identifier: Apache-2.0

// Package sdk is the map of Klutch: application developers order data services
// from their own cluster, platform teams run them in another one.
//
// In an App Cluster people apply proxy claims, such as a PostgresqlInstance, a
// ServiceBinding, a Backup or a Restore. The konnector carries their specs to the
// Control Plane Cluster, where operators, Crossplane or service brokers do the
// work, and brings status and credentials back. An API is bound once, with
// kubectl bind, through an OIDC login that the backend verifies before it hands
// out a tenant.
//
// The packages, from the outside in:
//
//   - [github.com/klutch-go/sdk/klutch] is the front door: a Backend and a
//     Konnector, each a struct with a Run method.
//   - [github.com/klutch-go/sdk/export] is the control plane's half: catalogue,
//     tenants, rights, credentials, schemas and the HTTP handshake.
//   - [github.com/klutch-go/sdk/bind] is the App Cluster's half: connections,
//     CRDs, permission claims, and the client of the handshake.
//   - [github.com/klutch-go/sdk/sync] keeps one resource in step between two API
//     servers. It knows nothing of bindings and is useful alone.
//   - [github.com/klutch-go/sdk/auth] is OIDC on both ends of a login.
//   - [github.com/klutch-go/sdk/klutch/v1alpha1] holds the API types, which are
//     those of the Klutch that people already run.
//   - [github.com/klutch-go/sdk/klutch/conformance] tests any backend from outside,
//     by its URL.
//
// The programs in cmd are flags, signals and one call each. examples holds one
// idea each, the data services of the demo among them.
//
// Where something happens is in DESIGN.md, under "Ways through the tree".
//
// # Words
//
// Each word means one thing in the whole tree, and each thing has one word.
//
// People and clusters:
//
//   - App Cluster: where application developers apply proxy claims. It says what
//     should exist.
//   - Control Plane Cluster: where the platform team offers APIs and runs what the
//     claims ask for.
//   - platform team: the people who offer APIs; platform is all that they run.
//   - automation: the programs that do the work, such as operators, Crossplane or service
//     brokers.
//   - person, machine: who logs in; a machine has an account of its own at an issuer.
//   - issuer: an OpenID provider that people or machines log in at.
//   - identity: (issuer, subject) of a verified token.
//   - backend: the program in the Control Plane Cluster that makes tenants.
//   - konnector: the program, usually in the App Cluster, that keeps objects in step.
//   - legacy: of Klutch's own programs, which people already run: legacy konnector, legacy
//     backend, legacy CLI.
//
// The binding:
//
//   - template: an APIServiceExportTemplate; it puts one API on offer.
//   - service: an API on offer, as the catalogue lists it.
//   - catalogue: all services, and authorizer: the judge of who may bind which.
//   - request, export: an APIServiceExportRequest of a tenant, and the APIServiceExport
//     that answers it, with a snapshot of the schema.
//   - binding: an APIServiceBinding; it makes one API usable in an App Cluster.
//   - bound object, proxy claim: an object of a bound API in the App Cluster.
//   - connection: one kubeconfig Secret and all that goes over it, for one or many
//     bindings. Its session: the time in which that kubeconfig leads to one tenant namespace.
//     In the handshake a session is a person who has signed in to answer one login.
//   - verdict: the conditions that one pass found for a binding. Recipe: the parameters of a
//     binding's Sync.
//   - change of a schema: one difference between two snapshots of an API. Breaking change: one
//     after which an App Cluster may have to act, since something is gone, less is valid or a
//     rule is new.
//   - permission claim: what a service asks to read or write in an App Cluster beside its
//     own objects. It is accepted or rejected by a person, and refused by a claim policy.
//   - related object: an object that a permission claim selects; copy: its image on the
//     other side.
//   - handshake: discovery, login and redemption over HTTP.
//   - one-time code: the answer of a login; to redeem is to trade it for the kubeconfig.
//   - device authorization: a login on another device (RFC 8628).
//
// The engine:
//
//   - source, target: the side whose user decides what should exist, and the other one;
//     also the two objects.
//   - pair: one source, its target, and the state that they are in; or an original and its copy.
//   - incarnation: one of the objects that bear a name one after another, by its UID.
//   - instance: the object on the control plane that a claim asks for; in the engine, its
//     target.
//   - mapper: the rule from the name of a source to that of its target.
//   - to observe, plan, require, act: to read both sides; to name a step; to list the
//     evidence that the step needs; to do it.
//   - pass: one run over an object, a binding or a tenant from a queue, in steps. In the
//     engine a step is one turn of observe, plan, require, act, with at most one write, and
//     a pass has up to eight.
//   - freshness: how an object was read: unknown, cached or live. Evidence: what a step
//     builds on: source or target live, source proven, clusters confirmed, kind offered.
//   - relation: what a target is to a source: absent, vanished (absent, and it was there), ours,
//     legacy wrote (ours, and a legacy konnector has written to it since), legacy (made from the
//     source by a legacy konnector), predecessor (an earlier incarnation of the source owns
//     fields of it), orphan, foreign, of another source, of another cluster. The predecessor of
//     a copy is the original of its name in a target cluster that another one has replaced.
//   - obstacle: what keeps an object from being in step, by its Reason. It passes if it may end
//     by itself.
//   - content: whether a target holds what its source intends: in sync, stale, drifted.
//   - intent: what the target should say, made from the source. Wish: the hash of what is
//     asked for: an intent, a status, or what people wrote on the source; a pause belongs to a
//     wish, so that another one goes at once.
//   - conflict, drift, loss: a foreign object has the target's name; a foreign writer
//     changed a field of ours; a target is gone while its source lives.
//   - to own: an object is ours by our annotations, a field by our field manager. To take
//     ownership: to make ours the fields that a legacy konnector wrote. Contest: a field that
//     others, the rivals, write again and again.
//   - to adopt: to take over by consent what others have made: a foreign target, an object
//     of the provider by a claim for it, a tenant of the legacy backend.
//   - to let go: to take our annotations and our ownership of fields off a target and leave
//     it to its cluster; no Sync deletes it later. It is no orphan, though its annotation is
//     orphaned-from.
//   - deletion policy: Delete or Orphan. In package sync whether the target of a deleted
//     source is deleted or let go; in v1alpha1 whether a removed tenant's objects go or stay.
//   - orphan: a target that still says whose it is, and whose source is gone; to collect it
//     is to delete it once its grace period has elapsed, or at once if the watch showed the
//     end of its source (its tombstone: gone with our finalizer on and without a
//     deletionTimestamp).
//   - to add, to remove the finalizer: the mark on a source that a target may exist.
//   - message: the annotation on a source that says what keeps it from being in step.
//   - store, watch: the cache of a resource, and the stream of events that feeds it.
//   - compact record: what a store keeps of an object. Transform drops the rest before; in
//     the engine that is package slim.
//   - to travel: to be written to the other cluster, of a field or an object.
//   - queue, item, class: keys that wait for a worker; one of them; its priority.
//   - in-flight limit: how many requests to one API server may be under way.
//   - fate: what becomes of a request that met an error: it is done with, looked at again,
//     repeated later, refused, or waits for an event.
//   - to retry: to try again after a pause.
//   - ledger: which objects are behind, that is not in step, or which were refused, with the
//     time to tell of it or to ask again.
//   - resync: a pass over all objects, without an event.
//   - schema cache: which fields a side knows. Pruning leaves out the others.
//   - status digest: the hash of a status, by which a change is seen.
//   - empty map: a map that an intent empties.
//
// The control plane:
//
//   - tenant: one App Cluster of one identity, which is its holder.
//   - tenant identity: the UID of the tenant namespace, which the kubeconfig Secret records
//     at the bind; another control plane in its place has another one.
//   - tenant namespace, service namespace: where requests, exports and credential of a
//     tenant are; the mirror of one namespace of the App Cluster.
//   - offer: what one identity may bind, of the catalogue.
//   - review: a question to RBAC whether an identity may still bind a service; the
//     authorization cache holds the answers.
//   - cap, limit: how much there may be of something; how often it may be asked for.
//   - gate: a condition of the platform team between a tenant and its service namespaces.
//   - heartbeat: the konnector's sign of life on the ClusterBinding.
//   - tenant reconcile: one pass over a tenant.
//   - withdrawal: the end of a right to make and change objects; they stay.
//   - removal: the end of a tenant, by deletion policy: wait, Delete or Orphan.
//   - credential: a kubeconfig with the token of a tenant. Token anchor: the Secret that a
//     token is bound to and dies with. Kept Secret: where the backend stores the credential
//     that it renews, and the konnector fetches it.
//   - revocation: the end of a token before its time; rotation: its replacement.
//
// Safety:
//
//   - cluster identity: the UID of kube-system, by which a cluster is told from another.
//   - high-water mark: the highest resourceVersion that was seen of a cluster; an API
//     server below it was restored from a backup.
//   - to confirm: to read cluster identities again before a destructive step. The fence does
//     so. The guard acts on the answer: where a cluster is another one it has the Sync begin
//     anew; where one may have been restored the Sync is suspect, and deletes no orphan until
//     a person releases that.
//   - breaker: it holds a mass deletion until a person releases it, of a binding's objects in
//     sync/internal/breaker, of tenants in export/internal/tenant. Journal: what it counted,
//     kept over restarts.
//   - invariant: what holds of the engine at every instant (I1 to I20, DESIGN.md).
//   - promise: what SECURITY.md says to users (P1 to P36).
//   - consent: a person's named agreement, to a claim, a schema change or an adoption.
//   - audit record: the line that a grant, refusal or end of a right leaves.
//   - held, refused: waiting for a person, to release a deletion or to consent to a schema
//     change; answered no, with a message. To release: to let pass what a breaker holds.
package sdk
