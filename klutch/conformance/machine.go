// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"net/http"
	"strings"
)

func machineChecks() []check {
	return []check{
		{"no token, no binding", "RFC 6750 3", checkNoMachine},
		{"binding", "SECURITY 2", checkMachine},
	}
}

// machine sends what a machine asks for, with a token.
func (c checker) machine(authorization string) answer {
	c.Helper()
	body := fmt.Sprintf(`{"clusterID": "conformance-1", "apis": [{"group": %q, "resource": %q}]}`, c.service.Group, c.service.Resource)
	got, err := c.http.send(c.Context(), http.MethodPost, c.URL+"/bind-noninteractive", strings.NewReader(body),
		map[string]string{"Content-Type": "application/json", "Authorization": authorization})
	c.must("POST /bind-noninteractive", err)
	if got.status == http.StatusNotFound {
		c.Skip("the backend lets no machines in")
	}
	return got
}

func checkNoMachine(c checker) {
	for _, authorization := range []string{"", "Bearer x", "Basic Y29uZm9ybWFuY2U6eA==", "Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZG1pbiJ9."} {
		got := c.machine(authorization)
		if got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("Www-Authenticate"), "Bearer") {
			c.violated("Authorization %q is answered with %d, not with 401 and a challenge", authorization, got.status)
		}
	}
}

// checkMachine: a machine gets a tenant of its own.
func checkMachine(c checker) {
	if c.MachineToken == nil {
		c.Skip("Options.MachineToken is nil")
	}
	token, err := c.MachineToken(c.Context())
	c.must("the issuer gives a token", err)
	got := c.machine("Bearer " + token)
	if got.status != http.StatusOK {
		c.Fatalf("%s: the token is answered with %d %s", c.basis, got.status, got.body)
	}
	if access := c.access([]byte(got.body)); access.Namespace == c.tenant(c.one).namespace {
		c.violated("a machine and a person share %s", access.Namespace)
	}
}
