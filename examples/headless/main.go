// SPDX-License-Identifier: Apache-2.0

// Headless logs in to a Klutch backend from a machine without a browser: a person
// confirms on any other device, or the machine uses an account of its own. It prints the
// answer of the backend, which is a secret.
//
//	go run ./examples/headless https://klutch.example.com CLUSTER-ID postgresqls.example.com
//	ISSUER=… CLIENT_ID=ci CLIENT_SECRET=… go run ./examples/headless https://klutch.example.com …
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
)

func main() {
	machine := auth.MachineOptions{Issuer: os.Getenv("ISSUER"), ClientID: os.Getenv("CLIENT_ID"), ClientSecret: os.Getenv("CLIENT_SECRET")}
	response, err := run(context.Background(), os.Args[1:], machine, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(response)
}

func run(ctx context.Context, args []string, machine auth.MachineOptions, talk io.Writer) ([]byte, error) {
	if len(args) < 3 {
		return nil, errors.New("usage: headless BACKEND-URL CLUSTER-ID SERVICE [SERVICE]")
	}
	if machine.ClientID != "" {
		return asMachine(ctx, machine, args[0], args[1], args[2:])
	}
	grant, err := auth.LoginDevice(ctx, auth.DeviceOptions{
		DeviceURL: args[0] + "/device",
		ClientID:  "kubectl-bind",
		Params:    url.Values{"c": {args[1]}, "service": args[2:]},
		Prompt: func(d *oauth2.DeviceAuthResponse) {
			_, _ = fmt.Fprintf(talk, "Go to %s and enter %s\n", d.VerificationURI, d.UserCode)
		},
	})
	if err != nil {
		return nil, err
	}
	return grant.Redeem(ctx, auth.TokenEndpoint(args[0]+"/token", nil)) // waits for the person
}

func asMachine(ctx context.Context, machine auth.MachineOptions, backend, cluster string, services []string) ([]byte, error) {
	machine.Scopes = []string{"klutch/bind"}
	tokens, err := auth.MachineTokens(ctx, machine)
	if err != nil {
		return nil, err
	}
	apis := make([]map[string]string, len(services))
	for i, service := range services {
		resource, group, _ := strings.Cut(service, ".")
		apis[i] = map[string]string{"resource": resource, "group": group}
	}
	body, _ := json.Marshal(map[string]any{"clusterID": cluster, "apis": apis})                                                              // strings alone
	resp, err := auth.Bounded(oauth2.NewClient(ctx, tokens)).Post(backend+"/bind-noninteractive", "application/json", bytes.NewReader(body)) //nolint:noctx // ends with the client's timeout
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the backend says %s", resp.Status)
	}
	return io.ReadAll(resp.Body)
}
