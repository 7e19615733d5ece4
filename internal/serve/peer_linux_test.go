// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/netip"
	"strings"
	"testing"
)

// TestLookUp: of a connection the one who opened it is told, in the tables of both families, and
// a socket that no process holds any more is not ours.
func TestLookUp(t *testing.T) {
	if words([]byte{127, 0, 0, 1}) != "0100007F" {
		t.Skip("the tables below are of a machine with the other order of bytes")
	}
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	const listener = "   0: 0100007F:7347 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 130767 2 0000000059e10678 100 0 0 10 0\n"
	const served = "   1: 0100007F:7347 0100007F:C001 01 00000000:00000000 00:00000000 00000000  1000        0 130801 1 0000000059e10679 20 4 30 10 -1\n"
	four := func(uid, inode string) string {
		return "   2: 0100007F:C001 0100007F:7347 01 00000000:00000000 00:00000000 00000000  " + uid + "        0 " + inode + " 1 000000005be10679 20 4 30 10 -1\n"
	}
	six := func(uid string) string {
		return "   0: 0000000000000000FFFF00000100007F:C001 0000000000000000FFFF00000100007F:7347 01 00000000:00000000 00:00000000 00000000  " + uid + "        0 130802 1 0\n"
	}
	remote, local := netip.MustParseAddrPort("127.0.0.1:49153"), netip.MustParseAddrPort("127.0.0.1:29511")
	for _, c := range []struct {
		name, table          string
		found, ours, listens bool
	}{
		{"ours", head + listener + served + four("1000", "130800"), true, true, true},
		{"another user's", head + listener + served + four("1001", "130800"), true, false, true},
		{"root's", head + listener + served + four("0", "130800"), true, true, true},
		{"closed by who opened it", head + listener + served + four("0", "0"), true, false, true},
		{"closed by one of ours", head + listener + served + four("1000", "0"), true, false, true},
		{"gone", head + listener + served, false, false, true},
		{"a table that tells nothing", head, false, false, false},
		{"lines cut short", head + "   0: 0100007F:7347\n\n", false, false, false},
		{"ours, by IPv6", head + six("1000"), true, true, false},
		{"another user's, by IPv6", head + six("1001"), true, false, false},
	} {
		found, ours, listens := lookUp(strings.NewReader(c.table), remote, local, map[string]bool{"1000": true})
		if found != c.found || ours != c.ours || listens != c.listens {
			t.Errorf("%s: found %t, ours %t, listens %t", c.name, found, ours, listens)
		}
	}
}
