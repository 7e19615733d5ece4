// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/bench/gate"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// machine is the audience of the accounts that tenants belong to: one for each.
const machine = "bench"

const newcomers = 50 // that come when all tenants are there

// A crowd is the backend as a process, the tenants that it has to look after, and a
// handshake of its own through which they are made: that of the backend, with the same
// rights, without the issuer and without HTTP.
type crowd struct {
	*bench
	gate    *gate.Gate
	control *api
	backend *stack.Process
	door    http.Handler
	issuer  *testissuer.Issuer
	body    string // of a bind, with the cluster left out
	mu      sync.Mutex
	tenants map[string]bool
}

// tenants measures the backend: what many tenants cost it at rest, and what they cost
// the next one that binds.
func tenants(ctx context.Context, b *bench) (figures []figure, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newCrowd(ctx, b)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.backend.Stop()) }()
	for _, step := range []func(context.Context) ([]figure, error){c.fill, c.binds, c.oneIdentity, c.restartBackend, c.rest} {
		more, err := step(ctx)
		figures = append(figures, more...)
		if err != nil {
			return figures, fmt.Errorf("%w\n%s", err, c.backend.LastWords())
		}
	}
	return figures, nil
}

func newCrowd(ctx context.Context, b *bench) (*crowd, error) {
	c := &crowd{bench: b, control: b.driver.control, tenants: map[string]bool{}}
	if err := stack.Apply(ctx, b.Control, admitEveryone()); err != nil {
		return nil, err
	}
	path, err := stack.Account(ctx, b.Control, b.Dir, "klutch-backend", "backend")
	if err != nil {
		return nil, err
	}
	if err := c.open(ctx, path); err != nil {
		return nil, err
	}
	return c, c.restartThroughGate(ctx, path)
}

// admitEveryone lets every account bind the data services.
func admitEveryone() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": machine, "namespace": catalog.Namespace},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bind-data-services"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": export.EveryoneGroup}},
	}}
}

// open makes the handshake.
func (c *crowd) open(ctx context.Context, path string) error {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return err
	}
	if c.issuer, err = c.serveIssuer(ctx); err != nil {
		return err
	}
	people, err := auth.New(auth.Config{Issuer: c.issuer.URL(), ClientID: "klutch", RedirectURL: "http://127.0.0.1:1/callback"})
	if err != nil {
		return err
	}
	machines, err := auth.New(auth.Config{Issuer: c.issuer.URL(), ClientID: "klutch", Audiences: []string{machine}})
	if err != nil {
		return err
	}
	sealer, err := auth.NewSealer([]byte(rand.Text() + rand.Text()))
	if err != nil {
		return err
	}
	exporter, err := export.New(config, export.Options{
		ExternalURL: c.BackendURL, APIServer: export.APIServer{URL: c.Control.URL()}, Provider: people, Sealer: sealer,
		Handshake: export.Handshake{Machines: auth.Providers{machines}, Limits: export.Limits{PerAddress: -1, PerSubject: -1}},
	})
	if err != nil {
		return err
	}
	c.door = exporter.Handler()
	return c.ask()
}

func (c *crowd) serveIssuer(ctx context.Context) (*testissuer.Issuer, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	clients := map[string]testissuer.Client{}
	for i := range c.crowdSize + newcomers + 1 {
		clients[account(i)] = testissuer.Client{Secret: rand.Text(), Audiences: []string{machine}}
	}
	issuer := testissuer.New(testissuer.Options{URL: "http://" + listener.Addr().String(), Clients: clients, TokenTTL: 24 * time.Hour})
	go func() { _ = issuer.Serve(ctx, listener, nil) }()
	return issuer, nil
}

func account(i int) string { return fmt.Sprintf("%s-%d", machine, i) }

// services are as many of the catalogue as a tenant gets.
func (c *crowd) services() (services []v1alpha1.GroupResource) {
	for _, crd := range c.offer() {
		resource, group, _ := strings.Cut(crd.GetName(), ".")
		services = append(services, v1alpha1.GroupResource{Group: group, Resource: resource})
	}
	return services
}

func (c *crowd) offer() []*unstructured.Unstructured {
	all := catalog.CRDs()
	return all[:min(c.exports, len(all))]
}

// ask writes what is asked for in each bind.
func (c *crowd) ask() error {
	body, err := json.Marshal(map[string]any{"clusterID": "cluster", "apis": c.services()})
	c.body = string(body)
	return err
}

// restartThroughGate has the backend start anew, with nothing changed but the gate and
// the machines, which it would not know.
func (c *crowd) restartThroughGate(ctx context.Context, path string) (err error) {
	if c.gate, err = gate.New(ctx, c.Control.Config()); err != nil {
		return err
	}
	through, err := c.gate.Kubeconfig(path, c.Dir)
	if err != nil {
		return err
	}
	ca, err := gate.CAFile(c.Control.Config(), c.Dir)
	if err != nil {
		return err
	}
	if err := c.Backend.Stop(); err != nil {
		return err
	}
	c.backend = c.Backend
	i := slices.Index(c.backend.Args, "--kubeconfig")
	c.backend.Args[i+1] = through
	c.backend.Args = append(c.backend.Args, "--external-ca-file", ca, "--machine-issuer-url", c.issuer.URL(), "--machine-audience", machine)
	c.backend.Env = append(c.backend.Env, traceHeap)
	if err := c.backend.Start(ctx); err != nil {
		return err
	}
	wait(ctx, 20*time.Second) // for the lease of the one before
	return c.gate.Quiet(ctx, 2*time.Second)
}

// bind is a whole bind of an account's one cluster, and how long it took.
func (c *crowd) bind(ctx context.Context, i int) (took time.Duration, err error) {
	token, err := c.issuer.MachineToken(account(i))
	if err != nil {
		return 0, err
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/bind-noninteractive", strings.NewReader(c.body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	begin := time.Now()
	c.door.ServeHTTP(w, r)
	took = time.Since(begin)
	if w.Code != http.StatusOK {
		return took, fmt.Errorf("bind %s: %d %s", account(i), w.Code, w.Body)
	}
	return took, c.keep(w.Body.Bytes())
}

// keep remembers the tenant of a response.
func (c *crowd) keep(body []byte) error {
	var response v1alpha1.BindingResponse
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&response); err != nil {
		return err
	}
	k, err := kubeconfig.Read(response.Kubeconfig)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tenants[k.Namespace] = true
	return nil
}

// atOnce does the same n times, a few at once, and returns how long each took.
func atOnce(n, parallel int, do func(i int) (time.Duration, error)) ([]float64, error) {
	took, errs := make([]float64, n), make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range parallel {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				d, err := do(i)
				took[i], errs[i] = milliseconds(d), err
			}
		})
	}
	wg.Wait()
	return took, errors.Join(errs...)
}

// fill makes all tenants and their exports, and tells what they cost.
func (c *crowd) fill(ctx context.Context) ([]figure, error) {
	const parallel = 8
	empty, begin := memoryOf(c.backend), time.Now()
	if _, err := atOnce(c.crowdSize, parallel, func(i int) (time.Duration, error) { return c.bind(ctx, i) }); err != nil {
		return nil, err
	}
	bound := time.Since(begin)
	names := slices.Sorted(maps.Keys(c.tenants))
	if _, err := atOnce(len(names), parallel, func(i int) (time.Duration, error) { return 0, c.request(ctx, names[i]) }); err != nil {
		return nil, err
	}
	if err := c.awaitExports(ctx, len(names)*len(c.offer())); err != nil {
		return nil, err
	}
	served := time.Since(begin)
	if err := c.gate.Quiet(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	_, watches := c.gate.Seen()
	full := memoryOf(c.backend)
	return []figure{
		{"tenants", float64(len(c.tenants)), exactly(float64(c.crowdSize))},
		{"exports", float64(len(names) * c.exports), goal{}},
		{fmt.Sprintf("until all are bound, %d at a time, s", parallel), bound.Seconds(), goal{}},
		{"until all have their exports, s", served.Seconds(), goal{}},
		{"backend without tenants, resident MB", empty.resident / 1024, goal{}},
		{"backend with all of them made, resident MB", full.resident / 1024, goal{}},
		{"watches of the backend", float64(watches), goal{}},
	}, nil
}

// request asks for the exports of a tenant, as kubectl bind does.
func (c *crowd) request(ctx context.Context, tenant string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExportRequest",
		"metadata": map[string]any{"name": machine}, "spec": map[string]any{"resources": c.services()},
	})
	if err != nil {
		return err
	}
	return c.control.create(ctx, ours("apiserviceexportrequests", tenant), body)
}

func ours(resource, namespace string) string {
	p := "/apis/" + v1alpha1.GroupVersion.String()
	if namespace != "" {
		p += "/namespaces/" + namespace
	}
	return p + "/" + resource
}

// boundBefore is how many exports bindAll has brought about.
const boundBefore = 2

// awaitExports waits until there are so many more than bindAll has made, then takes
// away the requests, which go by themselves later.
func (c *crowd) awaitExports(ctx context.Context, n int) error {
	for {
		got, _, err := c.control.count(ctx, ours("apiserviceexports", ""))
		if err != nil {
			return err
		}
		if int(got) >= n+boundBefore {
			break
		}
		if wait(ctx, time.Second); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	for tenant := range c.tenants {
		if err := c.control.remove(ctx, ours("apiserviceexportrequests", tenant)+"/"+machine); err != nil {
			return err
		}
	}
	return nil
}

// binds measures those that come when all tenants are there.
func (c *crowd) binds(ctx context.Context) ([]figure, error) {
	next := func(i int) (time.Duration, error) { return c.bind(ctx, c.crowdSize+i) }
	first, err := atOnce(newcomers, 1, next)
	if err != nil {
		return nil, err
	}
	again, err := atOnce(newcomers, 1, next)
	const limit = 500
	return []figure{
		{"first bind of a cluster, median ms", percentile(first, 50), atMost(limit)},
		{"first bind of a cluster, p99 ms", percentile(first, 99), atMost(limit)},
		{"another bind of it, median ms", percentile(again, 50), atMost(limit)},
		{"another bind of it, p99 ms", percentile(again, 99), atMost(limit)},
	}, err
}

// oneIdentity has one cluster bind many times at once.
func (c *crowd) oneIdentity(ctx context.Context) ([]figure, error) {
	const n = 50
	before := len(c.tenants)
	took, err := atOnce(n, n, func(int) (time.Duration, error) { return c.bind(ctx, c.crowdSize+newcomers) })
	return []figure{
		{fmt.Sprintf("tenants of %d binds of one cluster at once", n), float64(len(c.tenants) - before), exactly(1)},
		{"the slowest of them, ms", percentile(took, 100), goal{}},
	}, err
}

// restartBackend tells what a start costs with all tenants there.
func (c *crowd) restartBackend(ctx context.Context) ([]figure, error) {
	if err := c.gate.Quiet(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	before, _ := c.gate.Seen()
	if err := c.backend.Stop(); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := c.backend.Start(ctx); err != nil {
		return nil, err
	}
	wait(ctx, 2*time.Second)
	if err := c.gate.Quiet(ctx, 3*time.Second); err != nil {
		return nil, err
	}
	const still = 3
	took := time.Since(begin).Seconds() - still
	after, watches := c.gate.Seen()
	return []figure{
		{"restart until all are looked at, s", took, goal{}},
		{"requests of a restart, a tenant", float64(gate.Total(after)-gate.Total(before)) / float64(len(c.tenants)), goal{}},
		{"writes of a restart", float64(after["write"] - before["write"]), exactly(0)},
		{"watches after it", float64(watches), goal{}},
	}, nil
}

// rest measures the backend while nothing is asked of it.
func (c *crowd) rest(ctx context.Context) ([]figure, error) {
	before, _ := c.gate.Seen()
	if wait(ctx, c.idle); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	after, _ := c.gate.Seen()
	memory := memoryOf(c.backend)
	figures := []figure{
		{"at rest, resident MB", memory.resident / 1024, goal{}},
		{"at rest, live heap MB", memory.live / 1024, goal{}},
		{fmt.Sprintf("requests a minute in %s of idleness", c.idle), float64(gate.Total(after)-gate.Total(before)) / c.idle.Minutes(), goal{}},
	}
	for _, kind := range slices.Sorted(maps.Keys(after)) {
		figures = append(figures, figure{"of them: " + kind, float64(after[kind]-before[kind]) / c.idle.Minutes(), goal{}})
	}
	return figures, nil
}
