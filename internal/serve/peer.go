// SPDX-License-Identifier: Apache-2.0

package serve

import "net/http"

// OtherUser reports whether a request to a loopback address comes from another user of this
// machine than the one who runs this program. What a browser is given on its command line every
// user of a machine can read, so a secret in a URL does not tell them apart; Linux knows whose
// a connection is. Root's are not another user's: a relay into a virtual machine has these. Nor is
// anything where the system does not tell.
func OtherUser(r *http.Request) bool { return otherUser(r) }
