// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// maxTable bounds the part of the table of sockets that is read: some hundred thousand of them.
const maxTable = 16 << 20

func otherUser(r *http.Request) bool {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if err != nil || !ok || !remote.Addr().IsLoopback() {
		return false
	}
	// A browser of Windows reaches a program in its Linux without a socket here.
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil && bytes.Contains(bytes.ToLower(release), []byte("microsoft")) {
		return false
	}
	known := false // whether this system tells
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		file, err := os.Open(name)
		if err != nil {
			continue
		}
		found, ours, listens := lookUp(io.LimitReader(file, maxTable), remote, local.AddrPort(), ourUsers())
		_ = file.Close()
		if found {
			return !ours
		}
		known = known || listens
	}
	return known // the socket is gone, which says nothing of whose it was
}

// ourUsers are the users whose browser this program may have opened.
func ourUsers() map[string]bool {
	users := map[string]bool{strconv.Itoa(os.Getuid()): true}
	if os.Getuid() == 0 && os.Getenv("SUDO_UID") != "" {
		users[os.Getenv("SUDO_UID")] = true
	}
	return users
}

// lookUp finds the socket with which remote talks to local in a table as proc_net(5) has it, and
// tells whose it is, and whether the table has the listener. A socket that nothing holds any more
// bears root's number and no inode: it is not ours.
func lookUp(table io.Reader, remote, local netip.AddrPort, users map[string]bool) (found, ours, listens bool) {
	const address, peer, state, uid, inode, listening = 1, 2, 3, 7, 9, "0A"
	theirs, own := names(remote), names(local)
	for lines := bufio.NewScanner(table); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode {
			continue
		}
		switch {
		case theirs[fields[address]] && own[fields[peer]]:
			return true, fields[inode] != "0" && (users[fields[uid]] || fields[uid] == "0"), listens
		case own[fields[address]] && fields[state] == listening:
			listens = true
		}
	}
	return false, false, listens
}

// names are the ways in which the tables of IPv4 and of IPv6 write an address and its port.
func names(a netip.AddrPort) map[string]bool {
	four, sixteen := a.Addr().Unmap(), a.Addr().As16()
	all := map[string]bool{fmt.Sprintf("%s:%04X", words(sixteen[:]), a.Port()): true}
	if four.Is4() {
		bytes := four.As4()
		all[fmt.Sprintf("%s:%04X", words(bytes[:]), a.Port())] = true
	}
	return all
}

// words writes an address as the kernel does: in words of 32 bits of this machine's order.
func words(address []byte) (text string) {
	for ; len(address) > 0; address = address[4:] {
		text += fmt.Sprintf("%08X", binary.NativeEndian.Uint32(address))
	}
	return text
}
