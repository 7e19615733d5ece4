// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// Both ends of a login on another device, and the person in between.
func ExampleNewDevices() {
	ctx := context.Background()
	sealer, err := auth.NewSealer(bytes.Repeat([]byte("k"), 32))
	if err != nil {
		fmt.Println(err)
		return
	}
	devices, err := auth.NewDevices(sealer, &memory{}, auth.DevicesOptions{VerificationURL: "https://klutch.example.com/device"})
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier := oauth2.GenerateVerifier()
	begun, _ := devices.Begin(oauth2.S256ChallengeFromVerifier(verifier), []byte("postgresqls.example.com"))
	fmt.Println(len(begun.UserCode), begun.VerificationURI)

	_, err = devices.Claim(ctx, begun.UserCode, "https://issuer.example.com/ada") // signed in, types the code
	fmt.Println("page:", err)
	_, _, err = devices.Poll(ctx, begun.DeviceCode, verifier)
	fmt.Println("program:", err)
	device, err := devices.Claim(ctx, begun.UserCode, "https://issuer.example.com/ada")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("page: bind %s?\n", device.Request)
	_ = devices.Answer(ctx, device, []byte("yes"))
	_, answer, err := devices.Poll(ctx, begun.DeviceCode, verifier)
	fmt.Println("program:", string(answer), err)
	// Output:
	// 11 https://klutch.example.com/device
	// page: device login is pending
	// program: authorization_pending
	// page: bind postgresqls.example.com?
	// program: yes <nil>
}

func ExampleLoginDevice() {
	backend := http.NewServeMux()
	backend.HandleFunc("POST /device", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(oauth2.DeviceAuthResponse{
			DeviceCode: "secret", UserCode: "BCDFG-HJKLM", VerificationURI: "http://" + r.Host + "/device",
			Expiry: time.Now().Add(10 * time.Minute), Interval: 1,
		})
	})
	backend.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "what was asked for") })
	server := httptest.NewServer(backend)
	defer server.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	grant, err := auth.LoginDevice(ctx, auth.DeviceOptions{
		DeviceURL: server.URL + "/device",
		ClientID:  "kubectl-bind",
		Prompt:    func(d *oauth2.DeviceAuthResponse) { fmt.Println("Enter", d.UserCode) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, err := grant.Redeem(ctx, auth.TokenEndpoint(server.URL+"/token", nil))
	fmt.Println(string(response), err)
	// Output:
	// Enter BCDFG-HJKLM
	// what was asked for <nil>
}

func ExampleMachineTokens() {
	ctx := context.Background()
	site := &late{}
	server := httptest.NewServer(site)
	defer server.Close()
	site.Handler = testissuer.New(testissuer.Options{URL: server.URL, Clients: map[string]testissuer.Client{
		"ci": {Secret: "secret", Scopes: []string{"klutch/bind"}, Audiences: []string{"klutch"}},
	}})

	// The machine.
	tokens, err := auth.MachineTokens(ctx, auth.MachineOptions{Issuer: server.URL, ClientID: "ci", ClientSecret: "secret", Scopes: []string{"klutch/bind"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := tokens.Token()
	if err != nil {
		fmt.Println(err)
		return
	}
	// The server.
	provider, err := auth.New(auth.Config{Issuer: server.URL, ClientID: "backend", Audiences: []string{"klutch"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	id, err := auth.Providers{provider}.VerifyMachine(ctx, token.AccessToken, "klutch/bind")
	fmt.Println(id.Subject, err)
	_, err = provider.VerifyMachine(ctx, token.AccessToken, "klutch/all")
	fmt.Println(err, errors.Is(err, auth.ErrScope))
	// Output:
	// ci <nil>
	// token lacks a scope: klutch/all true
}

// late is a handler that is known only when its server is.
type late struct{ http.Handler }

func ExampleBearerChallenge() {
	status, authenticate := auth.BearerChallenge(fmt.Errorf("%w: it is an ID token", auth.ErrToken))
	fmt.Println(status, authenticate)
	// Output: 401 Bearer error="invalid_token"
}

func ExampleNormalizeUserCode() {
	fmt.Println(auth.NormalizeUserCode(" bcdfg hjklm "))
	fmt.Printf("%q\n", auth.NormalizeUserCode("admin"))
	// Output:
	// BCDFG-HJKLM
	// ""
}
