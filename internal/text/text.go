// SPDX-License-Identifier: Apache-2.0

// Package text shortens what others wrote before it ends in conditions, logs or terminals, and takes out
// of it what would turn or hide words there.
package text

import (
	"strings"
	"unicode"
)

const ellipsis = "…"

// Clip returns s without what does not print, on one line, if that has at most so many bytes, and else
// its beginning and its end, whole characters only, with an ellipsis where something is missing, in all
// as many: what others say names at its end what matters most, such as the numbers of a quota.
func Clip(s string, most int) string {
	s = strings.Map(printed, s)
	if len(s) <= most {
		return s
	}
	most = max(most-len(ellipsis), 0)
	tail := most / 3
	return strings.ToValidUTF8(s[:most-tail], "") + ellipsis + strings.ToValidUTF8(s[len(s)-tail:], "")
}

// printed is r, a space for a space or an end of a line of any kind, and -1 for what moves a cursor, turns the
// direction of writing or cannot be seen.
func printed(r rune) rune {
	switch {
	case unicode.IsPrint(r):
		return r
	case unicode.IsSpace(r):
		return ' '
	}
	return -1
}
