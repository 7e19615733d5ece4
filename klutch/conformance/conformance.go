// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Run runs all checks as subtests of t.
func Run(t *testing.T, opts Options) {
	t.Helper()
	s, err := newSuite(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.tidy)
	for _, group := range []struct {
		name   string
		checks []check
	}{
		{"discovery", discoveryChecks()},
		{"refusal", refusalChecks()},
		{"login", loginChecks()},
		{"tenant", tenantChecks()},
		{"export", exportChecks()},
		{"rights", rightChecks()},
		{"isolation", isolationChecks()},
		{"device", deviceChecks()},
		{"machine", machineChecks()},
		{"revocation", revocationChecks()},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.checks {
				t.Run(c.name, func(t *testing.T) { c.run(checker{t, s, c.basis}) })
			}
		})
	}
}

func newSuite(ctx context.Context, opts Options) (*suite, error) {
	if opts.URL == "" || opts.Login == nil || !strings.Contains(opts.Service, ".") {
		return nil, fmt.Errorf("conformance: URL %q, Service %q and Login are required", opts.URL, opts.Service)
	}
	opts.URL = strings.TrimSuffix(opts.URL, "/")
	opts.Patience = cmp.Or(opts.Patience, 90*time.Second)
	s := &suite{Options: opts, service: schema.ParseGroupResource(opts.Service)}
	var err error
	if s.client, err = bind.NewClient(opts.URL, bind.ClientOptions{CAData: opts.CAData}); err != nil {
		return nil, err
	}
	if s.http, err = newBrowser(opts.CAData); err != nil {
		return nil, err
	}
	other, name := opts.OtherLogin, "conformance-1"
	if other == nil {
		other, name = opts.Login, "conformance-2"
	}
	s.provider = sync.OnceValues(func() (*v1alpha1.BindingProvider, error) { return s.client.Discover(ctx) })
	s.one = sync.OnceValues(func() (*tenant, error) { return s.newTenant(ctx, opts.Login, "conformance-1") })
	s.two = sync.OnceValues(func() (*tenant, error) { return s.newTenant(ctx, other, name) })
	return s, nil
}
