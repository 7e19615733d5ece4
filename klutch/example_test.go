// SPDX-License-Identifier: Apache-2.0

package klutch_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/klutch"
)

// The konnector inside another program: it waits for its cluster, elects a leader, works,
// and ends with its context.
func ExampleKonnector() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := klutch.Konnector{
		Config:   &rest.Config{Host: "https://127.0.0.1:1"}, // usually rest.InClusterConfig()
		Identity: "replica-1",
		Options:  bind.Options{Version: "v1.2.0"},
	}.Run(ctx)
	fmt.Println(err)
	// Output: <nil>
}

// A whole backend is one value. This one offers what its templates say.
func ExampleBackend() {
	backend := klutch.Backend{
		Config:        &rest.Config{Host: "https://api.example.com"}, // usually rest.InClusterConfig()
		Login:         auth.Config{Issuer: "https://login.example.com", ClientID: "klutch"},
		Options:       export.Options{Name: "Data services", ExternalURL: "https://bind.example.com"},
		ListenAddress: ":8443", TLSCertFile: "tls.crt", TLSKeyFile: "tls.key",
		HealthAddress: ":8081",
	}
	_ = backend.Run // until its context ends
	fmt.Println(backend.Options.Name, "at", backend.Options.ExternalURL)
	// Output: Data services at https://bind.example.com
}

// A backend that would answer in plain text on an address that others reach does not begin.
func ExampleBackend_Run() {
	err := klutch.Backend{
		Config:        &rest.Config{Host: "https://api.example.com"},
		Login:         auth.Config{Issuer: "https://login.example.com", ClientID: "klutch"},
		Options:       export.Options{ExternalURL: "https://bind.example.com"},
		ListenAddress: ":8443",
	}.Run(context.Background())
	fmt.Println(err)
	// Output: listen on :8443: needs a certificate, because it is not a loopback address
}

// The version is that of this module in the program's build information.
func ExampleVersion() {
	fmt.Println(klutch.Version() != "")
	// Output: true
}
