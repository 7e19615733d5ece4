// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/export"
)

func TestBackend(t *testing.T) {
	b := NewBackend("v1.2.3")
	var passed int
	hooks := b.Hooks(export.Hooks{
		Login:   func(export.LoginResult) { passed++ },
		Request: func(string, int, time.Duration) { passed++ },
	})
	hooks.Login(export.LoginSucceeded)
	hooks.Login(export.LoginSucceeded)
	hooks.Login(export.LoginLimited)
	hooks.Request("/bind", 303, time.Second)
	b.Hooks(export.Hooks{}).Request("/token", 200, time.Millisecond)
	b.IssuerSeen("login", true)
	b.IssuerSeen("partners", true)
	b.IssuerSeen("partners", false)
	leads := false
	b.Watch(func() (export.Census, bool) {
		return export.Census{Tenants: export.Count{Ready: 3, NotReady: 1}, Exports: export.Count{Ready: 5}, Templates: export.Count{Ready: 2, NotReady: 1}}, leads
	})
	const counted = `klutch_build_info{commit="",version="v1.2.3"} 1
`
	const requests = `klutch_http_request_duration_seconds_count{code="200",route="/token"} 1
klutch_http_request_duration_seconds_count{code="303",route="/bind"} 1
`
	const logins = `klutch_issuer_up{issuer="login"} 1
klutch_issuer_up{issuer="partners"} 0
klutch_logins_total{result="limited"} 1
klutch_logins_total{result="refused"} 0
klutch_logins_total{result="success"} 2
klutch_logins_total{result="unavailable"} 0
`
	if diff := cmp.Diff(counted+requests+logins, scrape(t, b)); diff != "" {
		t.Errorf("follower (-want +got):\n%s", diff)
	}
	leads = true
	const census = `klutch_exports{ready="false"} 0
klutch_exports{ready="true"} 5
`
	const tenants = `klutch_templates{ready="false"} 1
klutch_templates{ready="true"} 2
klutch_tenants{ready="false"} 1
klutch_tenants{ready="true"} 3
`
	if diff := cmp.Diff(counted+census+requests+logins+tenants, scrape(t, b)); diff != "" {
		t.Errorf("leader (-want +got):\n%s", diff)
	}
	if passed != 4 {
		t.Errorf("%d calls passed on", passed)
	}
}
