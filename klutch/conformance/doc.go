// SPDX-License-Identifier: Apache-2.0

// Package conformance tests any backend from outside, as browsers, kubectl bind and
// konnectors meet it: through its URL and the credentials that it hands out.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Options{
//			URL:     "https://bind.example.com",
//			Service: "postgresqlinstances.example.com",
//			Login: func(ctx context.Context, url string) error {
//				return person.Visit(ctx, url) // log in, accept the preselected services
//			},
//		})
//	}
//
// # Checks
//
// Each check is a subtest, and its message begins with the rule that it checks: a section
// of the description of the wire, such as WIRE 1.10, or a promise of SECURITY.md, such
// as P12. They come in groups, so that -run 'TestConformance/discovery' works alone:
//
//   - discovery: the document with which everything begins
//   - refusal: what a backend must not do for strangers
//   - login: the one-time code and the response that it is traded for
//   - tenant: what a credential is, and where it leads
//   - export: requests, snapshots, schemas
//   - rights: what a tenant may do, and what not
//   - isolation: what two tenants see of each other
//   - device: logins of programs on machines without a browser
//   - machine: bindings without a person
//   - revocation: the end of a credential
//
// Other implementations promise less: leave out a check that they do not promise with
// -skip. The suite itself skips a check that the wire leaves open, and says why.
//
// # Caveats
//
// The suite sees a backend only through its URL and the credentials that it hands out;
// checks that need an administrator are skipped without [Options].ControlPlane.
//
// A backend keeps what the suite makes: tenants of the clusters conformance-1 to
// conformance-3, two of which have an export. Their service namespaces, which the
// suite empties, are asked to go.
package conformance
