// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func deviceChecks() []check {
	return []check{
		{"nothing before a person has confirmed it", "RFC 8628 3.5", checkPending},
		{"login", "RFC 8628", checkDevice},
	}
}

// device begins a login on another device.
func (c checker) device() auth.Grant {
	c.Helper()
	begin := c.grant().DeviceURL
	if begin == "" {
		c.Skip("the backend knows no login on another device")
	}
	grant, err := auth.LoginDevice(c.Context(), auth.DeviceOptions{
		DeviceURL: begin, ClientID: bind.ClientID, HTTPClient: c.http.client,
		Params: url.Values{"c": {"conformance-1"}, "service": {c.Service}},
	})
	c.must("begin a login on another device", err)
	return grant
}

func checkPending(c checker) {
	grant := c.device()
	for verifier, want := range map[string]string{grant.Verifier: `"authorization_pending"`, strings.Repeat("x", 43): `"error"`} {
		got, err := c.http.post(c.Context(), c.tokenGrant().TokenURL, url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "client_id": {bind.ClientID},
			"device_code": {grant.Device.DeviceCode}, "code_verifier": {verifier},
		}, nil)
		c.must("ask for the answer", err)
		if got.status < 400 || !strings.Contains(got.body, want) {
			c.violated("no person has confirmed the code, and the token endpoint answers %d without the error %s", got.status, want)
		}
	}
}

// checkDevice: on another device a person gets the tenant that they get here.
func checkDevice(c checker) {
	if c.DeviceLogin == nil {
		c.Skip("Options.DeviceLogin is nil")
	}
	grant := c.device()
	visited := make(chan error, 1)
	go func() { visited <- c.DeviceLogin(c.Context(), grant.Device.VerificationURI, grant.Device.UserCode) }()
	body, err := grant.Redeem(c.Context(), auth.TokenEndpoint(c.tokenGrant().TokenURL, c.http.client))
	c.must("the program that waits", err)
	c.must("the person at the other device", <-visited)
	if got, want := c.access(body).Namespace, c.tenant(c.one).namespace; got != want {
		c.violated("the login leads to %s, one in a browser to %s", got, want)
	}
}

// access is the kubeconfig of a BindingResponse.
func (c checker) access(body []byte) *kubeconfig.Kubeconfig {
	c.Helper()
	var response v1alpha1.BindingResponse
	c.must("the response is JSON", json.Unmarshal(body, &response))
	if response.Kind != "BindingResponse" || len(response.Requests) != 1 {
		c.violated("the response is of kind %q with %d requests for one service", response.Kind, len(response.Requests))
	}
	access, err := kubeconfig.Read(response.Kubeconfig)
	c.must("the kubeconfig of the response", err)
	return access
}
