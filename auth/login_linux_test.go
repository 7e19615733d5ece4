// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/internal/test/otheruser"
)

// TestP17OtherUsersCannotCompleteALogin: another user of the machine has read all of a login from the
// command line of a browser, and calls back with a code of their own; whether they wait for the answer
// or are gone before it is read, and whatever they do, the login goes on for its own user.
func TestP17OtherUsersCannotCompleteALogin(t *testing.T) {
	const state, issuer = "the-state-of-this-login", "https://klutch.example.com"
	l := listen(t, state, issuer)
	callback := func(code string) string {
		return l.RedirectURL() + "?" + url.Values{"state": {state}, "iss": {issuer}, "code": {code}}.Encode()
	}
	if answer := otheruser.Get(t, callback("of another user")); !strings.Contains(answer, "403 Forbidden") || !strings.Contains(answer, "another user of this machine") {
		t.Errorf("the answer to another user:\n%s", answer)
	}
	for range 100 {
		otheruser.GetAndLeave(t, callback("of another user who is gone"))
	}
	select {
	case outcome := <-l.outcome:
		t.Fatalf("another user has ended the login: %s", outcome)
	default:
	}
	if err := get(t, http.DefaultClient, callback("ours")); err != nil {
		t.Error(err)
	}
	if outcome := <-l.outcome; outcome != "ours <nil>" {
		t.Errorf("outcome = %s", outcome)
	}
}
