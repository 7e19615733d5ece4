// SPDX-License-Identifier: Apache-2.0

// Package offer answers the requests of tenants for services, and keeps their exports
// current. A [Service] is an API that the catalogue offers. [Requests] answers an APIServiceExportRequest with exports,
// if the service was chosen at a login and its holder may still bind it; [Exports] keeps
// each APIServiceExport what its CRD and its service say, holds changes that would break
// App Clusters, and withdraws exports that are not on offer any more.
//
// Whether a holder may still bind a service is asked often, though it changes seldom and has
// no events: answers are kept from one review to the next, or until the template changes
// (tenant.Authorizations). What App Clusters get of a CRD is computed once for all
// exports of it ([Schemas]). Whether an export is withdrawn stands in an annotation of it
// and not in its status, which its tenant may write.
package offer
