// SPDX-License-Identifier: Apache-2.0

// Package text shortens what others wrote before it ends in conditions, logs or terminals.
package text

import "strings"

// Clip returns at most the first most bytes of s, whole characters only, and says with an
// ellipsis where something is missing.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
