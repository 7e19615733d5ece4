// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/internal/test/otheruser"
)

// TestP17OtherUsersCannotCompleteALegacyLogin: at a backend without a token endpoint the session of a login is in the URL that
// a browser is started with, too. Another user who answers with it, and with a credential of their own, ends nothing.
func TestP17OtherUsersCannotCompleteALegacyLogin(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	r, err := c.Login(t.Context(), withoutTokenEndpoint(b.URL), LoginOptions{ClusterID: "abc123", Open: func(target string) error {
		u, err := url.Parse(target)
		if err != nil {
			return err
		}
		callback := func(kubeconfig string) string {
			response := bindingResponse(u.Query().Get("s"))
			response["kubeconfig"] = []byte(kubeconfig)
			answer, err := json.Marshal(response)
			if err != nil {
				t.Error(err)
			}
			return "http://127.0.0.1:" + u.Query().Get("p") + "/callback?response=" + base64.RawURLEncoding.EncodeToString(answer)
		}
		if answer := otheruser.Get(t, callback("another user's")); !strings.Contains(answer, "403 Forbidden") || !strings.Contains(answer, "another user of this machine") {
			t.Errorf("the answer to another user:\n%s", answer)
		}
		otheruser.GetAndLeave(t, callback("another user's"))
		return visit(t)(callback("ours"))
	}})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Kubeconfig) != "ours" {
		t.Errorf("the login was completed with %q", r.Kubeconfig)
	}
}
