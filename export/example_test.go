// SPDX-License-Identifier: Apache-2.0

package export_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// New does no I/O: mistakes in the options are found before anything runs.
func ExampleNew() {
	config := &rest.Config{Host: "https://api.example.com"} // usually rest.InClusterConfig
	exporter, err := export.New(config, export.Options{NamespacePrefix: "tenant"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = exporter.Run // runs the controllers until its context ends
	_, err = export.New(config, export.Options{NamespacePrefix: "Tenants!"})
	fmt.Println(err != nil)
	// Output: true
}

// A backend that people can log in at needs an issuer, keys to seal with, and its own URL.
func ExampleExporter_Handler() {
	const external = "https://bind.example.com"
	callback, err := export.CallbackURL(external, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	provider, err := auth.New(auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", RedirectURL: callback})
	if err != nil {
		fmt.Println(err)
		return
	}
	sealer, err := auth.NewSealer(make([]byte, 32)) // 32 random bytes, the same in all replicas
	if err != nil {
		fmt.Println(err)
		return
	}
	exporter, err := export.New(&rest.Config{Host: "https://api.example.com"}, export.Options{
		Name: "Data services", ExternalURL: external, Provider: provider, Sealer: sealer,
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The discovery document says where a login begins. It needs no login itself.
	answer := httptest.NewRecorder()
	exporter.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, external+"/export", nil))
	var document v1alpha1.BindingProvider
	if err := json.NewDecoder(answer.Body).Decode(&document); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(document.ProviderPrettyName)
	fmt.Println(document.AuthenticationMethods[0].OAuth2CodeGrant.AuthenticatedURL)
	// Output:
	// Data services
	// https://bind.example.com/authorize
}

// A fixed is a [export.Catalog] of its own: an offer that does not change.
type fixed []export.Service

func (f fixed) Services(context.Context) ([]export.Service, error) { return f, nil }

// A members is an [export.Authorizer] of its own: a service is for one group of the issuer.
type members string

func (m members) Authorize(_ context.Context, id *auth.Identity, s export.Service) error {
	if slices.Contains(id.Groups, string(m)) {
		return nil
	}
	return fmt.Errorf("%w: %s is for members of %s", export.ErrForbidden, s.Name(), m)
}

// A platform team replaces the catalogue and the authorizer by its own.
func ExampleOptions() {
	widgets := export.Service{Resource: schema.GroupResource{Group: "example.com", Resource: "widgets"}, Kind: "Widget", Version: "v1"}
	options := export.Options{Catalog: fixed{widgets}, Authorizer: members("builders")}
	services, err := options.Catalog.Services(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, groups := range [][]string{{"builders"}, {"guests"}} {
		fmt.Println(options.Authorizer.Authorize(context.Background(), &auth.Identity{Groups: groups}, services[0]))
	}
	// Output:
	// <nil>
	// not allowed: widgets.example.com is for members of builders
}

// A gate lets a tenant wait, and tells people for what.
func ExampleGateFunc() {
	var gate export.Gate = export.GateFunc(func(context.Context, export.Tenant) error {
		return fmt.Errorf("%w: the cost centre is not approved yet", export.ErrGateClosed)
	})
	fmt.Println(gate.Open(context.Background(), export.Tenant{}))
	// Output: closed: the cost centre is not approved yet
}

// Each issuer has a callback of its own.
func ExampleCallbackURL() {
	for _, name := range []string{"", "partners"} {
		callback, err := export.CallbackURL("https://bind.example.com", name)
		fmt.Println(callback, err)
	}
	// Output:
	// https://bind.example.com/callback <nil>
	// https://bind.example.com/callback/partners <nil>
}
