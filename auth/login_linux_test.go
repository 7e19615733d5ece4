// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestP17OtherUsersCannotCompleteALogin: another user of the machine has read all of a login from the
// command line of a browser, and calls back with a code of their own; whether they wait for the answer
// or are gone before it is read, and whatever they do, the login goes on for its own user.
func TestP17OtherUsersCannotCompleteALogin(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil || os.Getuid() != 0 {
		t.Skip("needs bash, and root to act as another user")
	}
	const state, issuer = "the-state-of-this-login", "https://klutch.example.com"
	l := listen(t, state, issuer)
	target, err := url.Parse(l.RedirectURL())
	if err != nil {
		t.Fatal(err)
	}
	call := func(code, then string) string {
		t.Helper()
		query := url.Values{"state": {state}, "iss": {issuer}, "code": {code}}
		cmd := exec.CommandContext(t.Context(), bash, "-c", `exec 3<>"/dev/tcp/$1/$2"; printf 'GET /callback?%s HTTP/1.1\r\nHost: %s:%s\r\n\r\n' "$3" "$1" "$2" >&3; `+then,
			"caller", target.Hostname(), target.Port(), query.Encode())
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	if answer := call("of another user", "cat <&3"); !strings.Contains(answer, "403 Forbidden") || !strings.Contains(answer, "another user of this machine") {
		t.Errorf("the answer to another user:\n%s", answer)
	}
	for range 100 {
		call("of another user who is gone", "exec 3>&-")
	}
	select {
	case outcome := <-l.outcome:
		t.Fatalf("another user has ended the login: %s", outcome)
	default:
	}
	if err := get(t, http.DefaultClient, l.RedirectURL()+"?"+url.Values{"state": {state}, "iss": {issuer}, "code": {"ours"}}.Encode()); err != nil {
		t.Error(err)
	}
	if outcome := <-l.outcome; outcome != "ours <nil>" {
		t.Errorf("outcome = %s", outcome)
	}
}
