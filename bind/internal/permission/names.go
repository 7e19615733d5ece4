// SPDX-License-Identifier: Apache-2.0

package permission

// RoleName is the name of a binding's ClusterRole.
func RoleName(binding string) string { return "klutch-bind-konnector-" + binding }

// AdoptionName is the name of the ClusterRole by which a binding's provider may have objects
// adopted.
func AdoptionName(binding string) string { return "klutch-bind-adoption-" + binding }

// ClaimsName is the name of the ClusterRole of a binding's claims, of the RoleBindings
// to it, and of the policy that says where these may stand.
func ClaimsName(binding string) string { return "klutch-bind-claims-" + binding }
