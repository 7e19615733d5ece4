// SPDX-License-Identifier: Apache-2.0

// Package otheruser sends requests as another user of this machine.
package otheruser

import (
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

const otherID = 65534 // the user and the group that own nothing, on all distributions

// Get sends a GET over plain HTTP to a URL with an IP address and a port, and returns the answer with its headers. A test
// that is not run as root is skipped.
func Get(t *testing.T, target string) string {
	t.Helper()
	return send(t, target, "cat <&3")
}

// GetAndLeave is [Get] that ends the connection before the answer.
func GetAndLeave(t *testing.T, target string) {
	t.Helper()
	send(t, target, "exec 3>&-")
}

func send(t *testing.T, target, then string) string {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs bash, and root to act as another user")
	}
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), bash, "-c", `exec 3<>"/dev/tcp/$1/$2"; printf 'GET %s HTTP/1.1\r\nHost: %s:%s\r\n\r\n' "$3" "$1" "$2" >&3; `+then,
		"caller", to.Hostname(), to.Port(), to.RequestURI())
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: otherID, Gid: otherID}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, strings.TrimSpace(string(out)))
	}
	return string(out)
}
