// SPDX-License-Identifier: Apache-2.0

package bind_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A konnector inside another program runs for as long as its context, whether or not
// its cluster can be reached.
func ExampleNew() {
	config := &rest.Config{Host: "https://127.0.0.1:1"} // usually rest.InClusterConfig()
	k, err := bind.New(config, bind.Options{Version: "v1.2.0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(k.Run(ctx))
	// Output: <nil>
}

// A Client finds out what a backend is, then logs in. A URL without a path means the
// discovery document at /export.
func ExampleNewClient() {
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/export" {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, `{
			"apiVersion": "%[2]s", "kind": "BindingProvider", "version": "v1.2.0",
			"providerPrettyName": "Data services",
			"authenticationMethods": [{"method": "OAuth2CodeGrant", "oauth2CodeGrant": {
				"authenticatedURL": "http://%[1]s/authorize", "tokenURL": "http://%[1]s/token"}}]}`, r.Host, v1alpha1.BindingProviderAPIVersion)
	}))
	defer backend.Close()

	client, err := bind.NewClient(backend.URL, bind.ClientOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := client.Discover(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(provider.ProviderPrettyName, provider.Version)
	_ = client.Login // with provider; its answer goes into InstallOptions
	// Output: Data services v1.2.0
}

// A URL that cannot be that of a backend, or an answer that is not one, is told apart
// from a backend that is away.
func ExampleNewClient_mistake() {
	_, err := bind.NewClient("bind.example.com", bind.ClientOptions{})
	fmt.Println(err)

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	client, err := bind.NewClient(other.URL, bind.ClientOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.Discover(context.Background())
	fmt.Println(errors.Is(err, bind.ErrNotBackend))
	// Output:
	// backend "bind.example.com": not an http or https URL
	// true
}

// Requests are plain objects, which a platform team may hand out as YAML.
func ExampleReadRequests() {
	requests, err := bind.ReadRequests([]byte(`
apiVersion: klutch.anynines.com/v1alpha1
kind: APIServiceExportRequest
metadata: {name: databases}
spec:
  resources:
  - {group: anynines.com, resource: postgresqlinstances}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, r := range requests {
		fmt.Println(r.Name, r.Spec.Resources[0].Resource)
	}
	// Output: databases postgresqlinstances
}

// An answer accepts permission claims on Secrets, and rejects all others.
func ExampleInstallOptions() {
	options := bind.InstallOptions{Answer: func(_ context.Context, claims []bind.Claim) error {
		for i := range claims {
			claims[i].State = v1alpha1.ClaimRejected
			if claims[i].Resource == "secrets" {
				claims[i].State = v1alpha1.ClaimAccepted
			}
		}
		return nil
	}}
	claims := make([]bind.Claim, 2)
	claims[0].Resource, claims[1].Resource = "secrets", "pods"
	if err := options.Answer(context.Background(), claims); err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range claims {
		fmt.Println(c.Resource, c.State)
	}
	// Output:
	// secrets Accepted
	// pods Rejected
}

// The person who binds an API passes the rights on its objects on to the konnector.
func ExampleRights() {
	spec := v1alpha1.APIServiceExportSpec{}
	spec.Group, spec.Names.Plural = "example.org", "widgets"
	for _, object := range bind.Rights(spec, nil) {
		fmt.Println(object.GetKind(), object.GetName())
	}
	// Output:
	// ClusterRole klutch-bind-konnector-widgets.example.org
}
