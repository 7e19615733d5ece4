// SPDX-License-Identifier: Apache-2.0

// Package testissuer is an OpenID Connect issuer for tests and the demo, and the
// browser of a person who uses it.
//
// An [Issuer] is a well-behaved issuer with users, a login form and PKCE until it
// is told to [Issuer.Misbehave]; [Faults] names the ways. A [Browser] keeps
// cookies, follows redirects, fills and submits forms, and remembers every URL it
// has been to:
//
//	issuer := testissuer.Start(t, testissuer.Options{
//		Users: map[string]testissuer.User{"ada": {Password: "engine", Groups: []string{"developers"}}},
//	})
//	// … point the program under test at issuer.URL() …
//	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: "engine"})
//	page, err := browser.Visit(ctx, loginURL)
//
// It forgets everything when it ends and must never guard anything.
package testissuer
