// SPDX-License-Identifier: Apache-2.0

package chromium

import _ "embed"

// measure returns the flaws of a page as sentences.
//
//go:embed measure.js
var measure string

// Flaws are what keeps people from reading or using the page as it is laid out now,
// by the rules of WCAG 2.2 AA that can be measured: text with less contrast than 4.5
// to 1 (1.4.3), the border of a field with less than 3 to 1 (1.4.11), content wider
// than the window (1.4.10), and buttons and boxes smaller than 24 by 24 (2.5.8).
func (p *Page) Flaws() (flaws []string) {
	p.Helper()
	p.Eval(measure, &flaws)
	return flaws
}
