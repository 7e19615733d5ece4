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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Login stands for a person with a browser: it begins at url, logs in, accepts the
// services that are preselected, and follows each redirect, the last one to the loopback
// address too. It returns when the browser is done.
type Login func(ctx context.Context, url string) error

// Options say what to test. URL, Service and Login are required.
type Options struct {
	// URL of the backend, scheme and host.
	URL string
	// CAData are PEM certificates that vouch for the backend, in place of those of
	// the system.
	CAData []byte
	// Service is a namespaced API that the people who log in may bind,
	// "<resource>.<group>".
	Service string
	// Login is that of a first person.
	Login Login
	// OtherLogin is that of a second person. Nil means the same person with another
	// App Cluster, which shows less.
	OtherLogin Login
	// DeviceLogin is a login of the same person as Login on another device: they type
	// code at url, log in, and accept the preselected services. Nil leaves that out.
	DeviceLogin func(ctx context.Context, url, code string) error
	// MachineToken is an access token of the issuer, for a machine that may bind
	// Service. Nil leaves that out.
	MachineToken func(ctx context.Context) (string, error)
	// Refused is a service on offer that neither may bind. Empty leaves that out.
	Refused string
	// Object is one of Service that the API accepts; its name and namespace are the
	// suite's. Nil leaves out what needs one.
	Object *unstructured.Unstructured
	// ControlPlane reads the Control Plane Cluster as its administrator. Nil leaves
	// out what only they can see.
	ControlPlane *rest.Config
	// Patience is how long anything may take. Default 90 seconds, since a backend
	// may give a request a minute before it fails.
	Patience time.Duration
}

// A check is one fact about a backend.
type check struct {
	name  string // group/words
	basis string // the section or promise that it checks
	run   func(checker)
}

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

// A suite is what the checks share: each tenant is made once, when first needed.
type suite struct {
	Options
	client   *bind.Client
	http     *browser
	service  schema.GroupResource
	provider func() (*v1alpha1.BindingProvider, error)
	one, two func() (*tenant, error)

	mu   sync.Mutex
	made []func() // to be undone
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

// later has something undone when all checks are through.
func (s *suite) later(undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, undo)
}

func (s *suite) tidy() {
	for _, undo := range s.made {
		undo()
	}
}

// A checker is the suite within one check.
type checker struct {
	*testing.T
	*suite
	basis string
}

// violated says that the backend does not keep the fact that is checked.
func (c checker) violated(format string, args ...any) {
	c.Helper()
	c.Errorf("%s: %s", c.basis, fmt.Sprintf(format, args...))
}

// must ends the check where the rest of it makes no sense.
func (c checker) must(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %s: %v", c.basis, what, err)
	}
}

// tenant returns a tenant with an export and a service namespace.
func (c checker) tenant(get func() (*tenant, error)) *tenant {
	c.Helper()
	t, err := get()
	c.must("a login has to give a tenant", err)
	return t
}

// eventually waits until done, and reports whether that came to pass.
func (s *suite) eventually(ctx context.Context, done func(context.Context) bool) bool {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, s.Patience, true, func(ctx context.Context) (bool, error) {
		return done(ctx), nil
	}) == nil
}
