// SPDX-License-Identifier: Apache-2.0

// Package text shortens what others wrote before it ends in conditions, logs or terminals.
package text

import "strings"

const ellipsis = "…"

// Clip returns s if it has at most so many bytes, and else its beginning and its end, whole
// characters only, with an ellipsis where something is missing, in all as many: what others say
// names at its end what matters most, such as the numbers of a quota.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	most = max(most-len(ellipsis), 0)
	tail := most / 3
	return strings.ToValidUTF8(s[:most-tail], "") + ellipsis + strings.ToValidUTF8(s[len(s)-tail:], "")
}
