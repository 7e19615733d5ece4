// SPDX-License-Identifier: Apache-2.0

package servicebroker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/examples/servicebroker"
	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

var (
	instances = schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: "postgresqlinstances"}
	bindings  = schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: "servicebindings"}
	secrets   = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

const password = "hush-hush"

// A platform is a broker with what it made, and a cluster with the controller's objects.
type platform struct {
	*testing.T
	client *fake.FakeDynamicClient
	broker *httptest.Server

	mu    sync.Mutex
	made  map[string]string // path to plan
	going map[string]string // path to what an asynchronous call will make of it; "" deletes
	age   map[string]int    // calls that came while it was going on
	async bool
	// trouble is the statuses that the next matching calls are answered with; "after"
	// has the call carried out all the same.
	trouble []trouble
	calls   []string

	left int // actions until the process dies; negative: never
}

type trouble struct {
	method, part string
	status       int
	after        bool
	body         string
}

func newPlatform(t *testing.T, async bool) *platform {
	t.Helper()
	p := &platform{T: t, made: map[string]string{}, going: map[string]string{}, age: map[string]int{}, async: async, left: -1}
	p.broker = httptest.NewServer(p)
	t.Cleanup(p.broker.Close)
	p.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		instances: "PostgresqlInstanceList", bindings: "ServiceBindingList", secrets: "SecretList",
	})
	p.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		if p.dies() {
			return true, nil, errors.New("the process is dead")
		}
		return false, nil, nil
	})
	return p
}

func (p *platform) dies() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left > 0 {
		p.left--
	}
	return p.left == 0
}

// RoundTrip fails once the process is dead.
func (p *platform) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.dies() {
		return nil, errors.New("the process is dead")
	}
	return http.DefaultTransport.RoundTrip(r)
}

// ServeHTTP is the broker.
func (p *platform) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	path, last := strings.CutSuffix(r.URL.Path, "/last_operation")
	call := r.Method + " " + r.URL.Path
	p.calls = append(p.calls, call)
	for i, trouble := range p.trouble {
		if r.Method == trouble.method && strings.Contains(r.URL.Path, trouble.part) {
			p.trouble = slices.Delete(p.trouble, i, i+1)
			if trouble.after {
				p.answer(httptest.NewRecorder(), r, path, last)
			}
			w.WriteHeader(trouble.status)
			_, _ = fmt.Fprint(w, trouble.body)
			return
		}
	}
	p.answer(w, r, path, last)
}

func (p *platform) answer(w http.ResponseWriter, r *http.Request, path string, last bool) {
	say := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}
	var order struct {
		Plan string `json:"plan_id"`
	}
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&order)
	}
	credentials := `{"credentials":{"password":"` + password + `","port":5432}}`
	if !strings.Contains(path, "service_bindings") {
		credentials = `{}`
	}
	next, busy := p.going[path]
	if busy && !last { // an operation ends by itself, some time
		if p.age[path]++; p.age[path] > 2 {
			p.end(path)
		}
		_, busy = p.going[path]
	}
	plan, is := p.made[path]
	switch {
	case r.URL.Path == "/v2/catalog":
		say(200, `{"services":[{"id":"s","name":"a9s-postgresql14","plans":[{"id":"p1","name":"postgresql-single-nano"},{"id":"p2","name":"postgresql-single-big"}]}]}`)
	case last && !busy && !is:
		say(410, `{}`)
	case last && busy:
		p.end(path)
		say(200, `{"state":"in progress"}`)
	case last:
		say(200, `{"state":"succeeded"}`)
	case busy && (r.Method != http.MethodPut || next != order.Plan):
		say(422, `{"error":"ConcurrencyError","description":"busy"}`)
	case busy:
		say(202, `{}`)
	case r.Method == http.MethodGet && is:
		say(200, credentials)
	case r.Method == http.MethodPut && is && plan == order.Plan:
		say(200, credentials)
	case r.Method == http.MethodPut && is:
		say(409, `{}`)
	case r.Method == http.MethodDelete && !is, r.Method == http.MethodGet:
		say(410, `{}`)
	case p.async:
		p.going[path] = order.Plan
		say(202, `{"operation":"o"}`)
	case r.Method == http.MethodDelete:
		delete(p.made, path)
		say(200, `{}`)
	default:
		p.made[path] = order.Plan
		say(201, credentials)
	}
}

// end makes what was going on true.
func (p *platform) end(path string) {
	if p.made[path] = p.going[path]; p.going[path] == "" {
		delete(p.made, path)
	}
	delete(p.going, path)
	delete(p.age, path)
}

func (p *platform) order(gvr schema.GroupVersionResource, kind, name string, spec map[string]any) {
	p.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "anynines.com/v1", "kind": kind, "spec": spec}}
	u.SetName(name)
	u.SetNamespace("shop")
	u.SetUID(types.UID(name + "-uid"))
	if err := p.client.Tracker().Create(gvr, u, "shop"); err != nil {
		p.Fatal(err)
	}
}

func (p *platform) get(gvr schema.GroupVersionResource, name string) *unstructured.Unstructured {
	obj, err := p.client.Tracker().Get(gvr, "shop", name)
	if err != nil {
		return nil
	}
	u, _ := obj.(*unstructured.Unstructured)
	return u
}

func (p *platform) edit(gvr schema.GroupVersionResource, name string, change func(u *unstructured.Unstructured)) {
	p.Helper()
	u := p.get(gvr, name).DeepCopy()
	change(u)
	if err := p.client.Tracker().Update(gvr, u, "shop"); err != nil {
		p.Fatal(err)
	}
}

// work lets one process take all objects to rest; it dies when the platform says so.
func (p *platform) work() {
	p.Helper()
	c := &servicebroker.Controller{
		Broker: osb.Broker{URL: p.broker.URL, HTTP: &http.Client{Transport: p}}, Client: p.client, Pause: time.Millisecond,
	}
	for quiet := 0; quiet < 6; quiet++ {
		for _, o := range []struct {
			gvr  schema.GroupVersionResource
			name string
		}{{instances, "orders"}, {bindings, "api"}} {
			again, err := c.Reconcile(p.Context(), o.gvr, "shop", o.name)
			if p.left == 0 {
				return
			}
			if err != nil && strings.Contains(err.Error(), password) {
				p.Errorf("an error has the credentials: %v", err)
			}
			if u := p.get(o.gvr, o.name); u != nil && u.GetDeletionTimestamp() != nil && len(u.GetFinalizers()) == 0 {
				if err := p.client.Tracker().Delete(o.gvr, "shop", o.name); err != nil {
					p.Fatal(err)
				}
			}
			if err != nil || again > 0 {
				quiet = min(quiet, 2)
			}
		}
		if len(p.calls) > 500 {
			p.Fatalf("there is no rest: %q", p.calls[480:])
		}
	}
}

func (p *platform) orderBoth() {
	p.order(instances, "PostgresqlInstance", "orders", map[string]any{"service": "a9s-postgresql14", "plan": "postgresql-single-nano"})
	p.order(bindings, "ServiceBinding", "api", map[string]any{"instanceRef": "orders", "serviceInstanceType": "postgresql"})
}

func (p *platform) grow() {
	p.edit(instances, "orders", func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "postgresql-single-big", "spec", "plan")
	})
}

func (p *platform) deleteBoth() {
	for gvr, name := range map[schema.GroupVersionResource]string{bindings: "api", instances: "orders"} {
		if p.get(gvr, name) != nil {
			p.edit(gvr, name, func(u *unstructured.Unstructured) {
				now := metav1.Now()
				u.SetDeletionTimestamp(&now)
			})
		}
	}
}

func (p *platform) wantUse(plan string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made["/v2/service_instances/orders-uid"] != plan || len(p.made) != 2 || len(p.going) > 0 {
		p.Errorf("the broker has %v, and does %v", p.made, p.going)
	}
	for gvr, name := range map[schema.GroupVersionResource]string{instances: "orders", bindings: "api"} {
		if got := state(p.get(gvr, name)); got != "Running" && got != "Created" {
			p.Errorf("%s is %s: %v", name, got, p.get(gvr, name).Object["status"])
		}
	}
	secret := p.get(secrets, "api-service-binding")
	if secret == nil || fmt.Sprint(secret.Object["data"]) != "map[password:aHVzaC1odXNo port:NTQzMg==]" {
		p.Errorf("the Secret is %v", secret)
	}
}

func (p *platform) wantNothing() {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, next := range p.going {
		if next == "" { // the broker said that it was gone before it was
			p.end(path)
		}
	}
	if len(p.made)+len(p.going) > 0 {
		p.Errorf("the broker has %v, and does %v", p.made, p.going)
	}
	for gvr, name := range map[schema.GroupVersionResource]string{instances: "orders", bindings: "api", secrets: "api-service-binding"} {
		if u := p.get(gvr, name); u != nil {
			p.Errorf("%s is left: %v", name, u.Object)
		}
	}
}

func state(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	s, _, _ := unstructured.NestedString(u.Object, "status", "managed", "state")
	return s
}

func forBoth(t *testing.T, test func(t *testing.T, async bool)) {
	t.Helper()
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) { test(t, async) })
	}
}

// TestKilled lets the process die before each call and each request, in turn; the state
// after one is that before the next.
func TestKilled(t *testing.T) {
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for stage, act := range []func(p *platform){(*platform).orderBoth, (*platform).grow, (*platform).deleteBoth} {
			for n := 1; ; n++ {
				p := newPlatform(t, async)
				for i, earlier := range []func(p *platform){(*platform).orderBoth, (*platform).grow} {
					if i < stage {
						earlier(p)
						p.work()
					}
				}
				act(p)
				p.left = n
				p.work()
				died := p.left == 0
				p.left = -1
				p.work()
				if stage < 2 {
					p.wantUse([]string{"p1", "p2"}[stage])
					p.deleteBoth()
					p.work()
				}
				if p.wantNothing(); t.Failed() {
					t.Fatalf("stage %d, killed before action %d, calls %q", stage, n, p.calls)
				}
				if !died {
					t.Logf("stage %d: %d points", stage, n-1)
					break
				}
			}
		}
	})
}

// TestDeletedAnywhere: both are deleted after each action of their creation.
func TestDeletedAnywhere(t *testing.T) {
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for n, died := 1, true; died; n++ {
			p := newPlatform(t, async)
			p.orderBoth()
			p.left = n
			p.work()
			died = p.left == 0
			p.left = -1
			p.deleteBoth()
			p.work()
			if p.wantNothing(); t.Failed() {
				t.Fatalf("deleted before action %d, calls %q", n, p.calls)
			}
		}
	})
}

// TestTrouble has the broker fail on purpose: nothing is leaked, and all heals.
func TestTrouble(t *testing.T) {
	concurrency := `{"error":"ConcurrencyError","description":"busy"}`
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for name, trouble := range map[string][]trouble{
			"408, made":               {{"PUT", "orders-uid", 408, true, ""}},
			"500, made":               {{"PUT", "orders-uid", 500, true, ""}, {"DELETE", "orders-uid", 500, false, ""}},
			"500, binding made":       {{"PUT", "api-uid", 500, true, ""}},
			"201 malformed":           {{"PUT", "api-uid", 201, true, "nonsense"}},
			"422 at each":             {{"PUT", "orders-uid", 422, false, concurrency}, {"PATCH", "", 422, false, concurrency}, {"DELETE", "orders-uid", 422, false, concurrency}, {"DELETE", "api-uid", 422, false, concurrency}},
			"400 once":                {{"PUT", "orders-uid", 400, false, `{"description":"quota"}`}, {"PATCH", "", 400, false, ""}},
			"410 on deletions":        {{"DELETE", "api-uid", 410, true, "{}"}, {"DELETE", "orders-uid", 410, true, "{}"}},
			"500 on deletions, done":  {{"DELETE", "api-uid", 500, true, ""}, {"DELETE", "orders-uid", 500, true, ""}},
			"500 on an update, done":  {{"PATCH", "", 500, true, ""}},
			"the catalogue is away":   {{"GET", "catalog", 503, false, ""}, {"GET", "catalog", 503, false, ""}},
			"operations fail":         {{"GET", "last_operation", 200, false, `{"state":"failed","description":"no disk"}`}},
			"last_operation is 500":   {{"GET", "last_operation", 500, false, ""}, {"GET", "last_operation", 404, false, ""}},
			"a binding's fetch fails": {{"GET", "service_bindings/api-uid", 500, false, ""}},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPlatform(t, async)
				p.trouble = trouble
				p.orderBoth()
				p.work()
				p.wantUse("p1")
				p.grow()
				p.work()
				p.wantUse("p2")
				p.deleteBoth()
				p.work()
				if p.wantNothing(); t.Failed() {
					t.Errorf("calls %q", p.calls)
				}
			})
		}
	})
}

// TestOrphans: what may have been made is deleted before it is asked for again, and
// what was refused is not.
func TestOrphans(t *testing.T) {
	for status, want := range map[int]string{408: "PUT DELETE PUT", 500: "PUT DELETE PUT", 201: "PUT DELETE PUT", 400: "PUT PUT", 422: "PUT PUT"} {
		for _, id := range []string{"orders-uid", "api-uid"} {
			p := newPlatform(t, false)
			p.trouble = []trouble{{"PUT", id, status, true, ""}}
			p.orderBoth()
			p.work()
			p.wantUse("p1")
			var got []string
			for _, call := range p.calls {
				if method, path, _ := strings.Cut(call, " "); strings.HasSuffix(path, id) {
					got = append(got, method)
				}
			}
			if have := strings.Join(got, " "); have != want {
				t.Errorf("%s, %d: %s, want %s", id, status, have, want)
			}
		}
	}
}

// TestReason: what the broker said stands on the object, also while it is being deleted.
func TestReason(t *testing.T) {
	p := newPlatform(t, false)
	p.orderBoth()
	p.work()
	p.deleteBoth()
	p.trouble = []trouble{{"DELETE", "orders-uid", 422, false, `{"error":"ConcurrencyError","description":"a backup runs"}`}}
	c := &servicebroker.Controller{Broker: osb.Broker{URL: p.broker.URL}, Client: p.client}
	if _, err := c.Reconcile(t.Context(), instances, "shop", "orders"); err == nil {
		t.Error("no error to try again with")
	}
	status := fmt.Sprint(p.get(instances, "orders").Object["status"])
	if !strings.Contains(status, "message:422: ConcurrencyError a backup runs") || !strings.Contains(status, "state:Deleting") {
		t.Error(status)
	}
}

// TestRest: at rest, and with a broker that goes on refusing, nothing is written.
func TestRest(t *testing.T) {
	p := newPlatform(t, false)
	p.orderBoth()
	p.work()
	p.client.ClearActions()
	p.work()
	for _, a := range p.client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}
