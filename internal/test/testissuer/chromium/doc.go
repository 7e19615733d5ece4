// SPDX-License-Identifier: Apache-2.0

// Package chromium opens pages in a real browser that has no window, as a person
// would who has only a keyboard and forbids scripts:
//
//	page := chromium.Start(t, chromium.Options{Trust: certificate})
//	page.Open(loginURL)
//	page.Type("ada")
//	page.Press("Tab", "Enter")
//	page.Await(`document.title.startsWith("Choose services")`)
//
// What [Page.Complaints] returns is what the browser objected to: refused content,
// failed loads, invalid forms. [Page.Flaws] measures the page as it is laid out.
//
// It needs Chromium, which Debian has in the package chromium, and skips the test
// without. Nothing of it is left when the test ends.
package chromium
