// SPDX-License-Identifier: Apache-2.0

// Package export is the control plane's half of Klutch: it shows people which
// APIs they may bind, gives each bound App Cluster a tenant, and publishes schemas
// to it.
//
//	provider, err := auth.New(auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", …})
//	sealer, err := auth.NewSealer(key)
//	exporter, err := export.New(config, export.Options{
//		Name:        "Data services",
//		ExternalURL: "https://bind.example.com",
//		APIServer:   export.APIServer{URL: "https://api.example.com", CAData: ca},
//		Provider:    provider,
//		Sealer:      sealer,
//	})
//	go http.ListenAndServeTLS(":8443", "tls.crt", "tls.key", exporter.Handler())
//	err = exporter.Run(ctx)
//
// [klutch.Backend] is this with TLS, health, leader election and shutdown.
//
// # Nouns
//
//   - A [Service] is an API on offer. A [Catalog] lists them; the default reads
//     the APIServiceExportTemplates of all namespaces.
//   - An [Authorizer] decides who may bind which. The default asks the Control
//     Plane Cluster, see below.
//   - A tenant is one App Cluster of one identity: a namespace whose name is a
//     hash of issuer, subject and cluster, with a ServiceAccount, a RoleBinding, a
//     ClusterBinding and a kubeconfig with a token of an hour, renewed in time.
//   - A service namespace mirrors one namespace of the App Cluster. The tenant gets
//     rights there for its exports, and nowhere else.
//
// # Who may bind what
//
// A person may bind a service who has the verb "bind" on its template:
//
//	kind: ClusterRole
//	rules:
//	- apiGroups: [klutch.anynines.com]
//	  resources: [apiserviceexporttemplates]
//	  resourceNames: [postgresqlinstances]
//	  verbs: [bind]
//
// bound by a RoleBinding in the namespace of the template, or a ClusterRoleBinding,
// to the user "oidc:<subject>" or to one of the person's groups "oidc:<group>";
// [Users] changes these names. Machines of an issuer of their own are
// "<URL of the issuer>#<subject>". Everyone who can log in is in [EveryoneGroup]. The
// right is checked again when the request for the export arrives, and a tenant can
// request only what was chosen at a login.
//
// # Rights of the backend
//
// In the whole cluster the backend can read no Secret and no object of a service. In
// each namespace that it makes for a tenant it binds a shipped ClusterRole to itself:
// klutch-backend-tenant in a tenant namespace, for the credential of the tenant, and
// klutch-backend-offer in a service namespace. The latter is the sum of what tenants
// may get. An operator who offers an API adds to it with a ClusterRole labelled
// klutch.anynines.com/aggregate-to-backend: "true" that has the verbs get, list,
// watch, create, update, patch and delete on the API, and what the service claims.
// There is no wildcard and no "escalate", so the API server lets the backend write
// into the Role of a tenant what the exports of this tenant say, and nothing that is
// not on offer. A request for an API that is not part of the sum fails with a message
// that names the rule. The shipped admission policy says in which namespaces, to whom
// and by which roles the backend may give rights, and which tokens it may have made.
//
// # Rights of a tenant
//
// A tenant has a Role in its tenant namespace, by which it gets its own Secret and makes
// requests, and a generated Role in each service namespace, which goes with the
// namespace. Where an export claims Secrets, the Role is about all Secrets of the service
// namespaces, without resourceNames: RBAC holds a watch to one name, and Klutch's
// konnector lists and watches whole namespaces. Like every service account, a tenant
// reads the discovery document and the schemas of all APIs; it reads no object of
// another tenant. No annotation or status that a tenant can write decides about a right.
//
// Inside there are three packages: tenant (its namespaces, rights and credential), offer
// (the catalogue, and the exports that a tenant has) and handshake (the pages and endpoints
// for browsers and terminals). wiring.go makes them of Options.
//
// # Caveats
//
// [Exporter.Handler] keeps no state: transactions are sealed in cookies, and any
// number of replicas can answer one login. [Exporter.Run] must be run once at a time.
// The right to what was exported is checked again when templates change and every
// [Options.ReviewInterval]: roles change without telling the backend. When the right
// ends, objects in service namespaces can no longer be made or changed; they can be read
// and deleted, since App Clusters have to see the end of them.
//
// A change of an API that takes something away is held, see [Options.BreakingChanges].
// When a CRD vanishes its exports stay, with a condition: an absence is never taken
// for a wish to delete. A service namespace is deleted only when no object of an
// exported API is left in it. A request for a cluster-scoped API is refused, unless
// [Options.PrefixedAPIs] names the API: no rule of RBAC ends at a prefix, so that each
// tenant would see the objects of all.
//
// Rate limits and connection limits are those of one replica; behind a gateway
// [Handshake].TrustedProxies has to name it. The renewal of a credential costs about
// ten requests a tenant each 40 minutes.
//
// A tenant may have its tokens refused, and delete its own ClusterBinding unless the
// platform team has set a policy there: it is removed as soon as it is empty, without
// the grace and the breaker of removals that take objects.
//
// [klutch.Backend]: https://pkg.go.dev/github.com/klutch-go/sdk/klutch#Backend
package export
