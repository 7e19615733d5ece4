// SPDX-License-Identifier: Apache-2.0

package servicebroker_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
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
	backups   = schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: "backups"}
	restores  = schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: "restores"}
	secrets   = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

const password = "hush-hush"

// claims is one of each kind, by the name it has in the tests.
var claims = []struct {
	gvr        schema.GroupVersionResource
	kind, name string
	spec       map[string]any
	state      string
}{
	{instances, "PostgresqlInstance", "orders", map[string]any{"service": "a9s-postgresql14", "plan": "postgresql-single-nano"}, "Running"},
	{bindings, "ServiceBinding", "api", map[string]any{"instanceRef": "orders", "serviceInstanceType": "postgresql"}, "Created"},
	{backups, "Backup", "nightly", map[string]any{"instanceRef": "orders", "serviceInstanceType": "postgresql"}, "Completed"},
	{restores, "Restore", "undo", map[string]any{"backupRef": "nightly", "serviceInstanceType": "postgresql"}, "Completed"},
}

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
	// restored counts what was overwritten; actions is what the catalogue says of them.
	restored map[string]int
	actions  string
	more     string // services of the catalogue
	plans    string // what the catalogue says of the service and its plans beside their names
	once     bool   // credentials are said once, in the first answer that could have them
	mute     bool   // they are never said
	said     map[string]bool
	expires  string // when credentials end
	patched  []string
	secret   string // if set, the password that each call has
	// namespaces is how those begin that calls are made for.
	namespaces string
	// trouble is the statuses that the next matching calls are answered with, 0 for no answer;
	// "after" has the call carried out all the same.
	trouble []trouble
	calls   []string
	refused [2]string

	left int // actions until the process dies; negative: never
}

type trouble struct {
	method, part string
	status       int
	after        bool
	body         string
}

// refuse has the broker answer 422 to calls of this method with the text in their path; none
// when it is empty.
func (p *platform) refuse(method, part string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = [2]string{method, part}
}

func newPlatform(t *testing.T, async bool) *platform {
	t.Helper()
	p := newCluster(t)
	p.async = async
	p.broker = httptest.NewServer(p)
	t.Cleanup(p.broker.Close)
	return p
}

// newCluster is a platform without a broker.
func newCluster(t *testing.T) *platform {
	t.Helper()
	p := &platform{T: t, made: map[string]string{}, going: map[string]string{}, age: map[string]int{}, restored: map[string]int{}, said: map[string]bool{}, plans: `"plan_updateable":true`, actions: `["backups","restores"]`, namespaces: "shop", left: -1}
	p.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		instances: "PostgresqlInstanceList", bindings: "ServiceBindingList", backups: "BackupList", restores: "RestoreList", secrets: "SecretList",
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
	if who := identityOf(r); !strings.HasPrefix(who, "klutch:"+p.namespaces) && r.URL.Path != "/v2/catalog" {
		p.Errorf("%s for %q", call, who)
	}
	if _, password, _ := r.BasicAuth(); p.secret != "" && password != p.secret {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	for i, trouble := range p.trouble {
		if r.Method == trouble.method && strings.Contains(r.URL.Path, trouble.part) {
			p.trouble = slices.Delete(p.trouble, i, i+1)
			if trouble.after {
				p.answer(httptest.NewRecorder(), r, path, last)
			}
			if trouble.status == 0 {
				panic(http.ErrAbortHandler) // the connection ends without an answer
			}
			w.WriteHeader(trouble.status)
			_, _ = fmt.Fprint(w, trouble.body)
			return
		}
	}
	if p.refused[1] != "" && r.Method == p.refused[0] && strings.Contains(path, p.refused[1]) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = fmt.Fprint(w, `{"error":"ConcurrencyError","description":"a backup runs"}`)
		return
	}
	p.answer(w, r, path, last)
}

// identityOf is the name in the header by which a broker knows who a call is for.
func identityOf(r *http.Request) string {
	platform, encoded, _ := strings.Cut(r.Header.Get("X-Broker-API-Originating-Identity"), " ")
	text, _ := base64.StdEncoding.DecodeString(encoded)
	var identity struct{ Username string }
	if err := json.Unmarshal(text, &identity); err != nil || platform != "kubernetes" {
		return ""
	}
	return identity.Username
}

func (p *platform) answer(w http.ResponseWriter, r *http.Request, path string, last bool) {
	say := func(status int, body string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprint(w, body)
	}
	var order struct {
		Plan   string `json:"plan_id"`
		Backup string `json:"backup_id"`
		Of     string `json:"backup_instance_id"`
	}
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(text, &order)
		if r.Method == http.MethodPatch {
			p.patched = append(p.patched, string(text))
		}
	}
	credentials := func() string {
		instance, _, ok := strings.Cut(strings.TrimPrefix(path, "/v2/service_instances/"), "/service_bindings/")
		if !ok || p.mute || p.once && p.said[path] {
			return `{}`
		}
		p.said[path] = true
		return `{"credentials":{"password":"` + password + `","port":5432,"instance":"` + instance + `"},"metadata":{"expires_at":"` + p.expires + `"}}`
	}
	next, busy := p.going[path]
	if busy && !last { // an operation ends by itself, some time
		if p.age[path]++; p.age[path] > 2 {
			p.end(path)
		}
		_, busy = p.going[path]
	}
	if r.Method == http.MethodDelete { // a platform must delete an instance's bindings first
		for bound := range p.made {
			if next, going := p.going[bound]; strings.HasPrefix(bound, path+"/service_bindings/") && (!going || next != "") {
				p.Errorf("%s is to be deleted before %s", path, bound)
			}
		}
	}
	plan, is := p.made[path]
	restore := strings.Contains(path, "/restores/") && r.Method == http.MethodPut
	switch {
	case r.URL.Path == "/v2/catalog":
		say(200, `{"services":[{"id":"s","name":"a9s-postgresql14","plans":[{"id":"p1","name":"postgresql-single-nano","maximum_polling_duration":3600},{"id":"p2","name":"postgresql-single-big"}],`+p.plans+`,"metadata":{"actions":`+p.actions+`}}`+p.more+`]}`)
	case restore && p.made["/v2/service_instances/"+order.Of+"/backups/"+order.Backup] == "":
		say(404, `{"description":"no such backup"}`)
	case last && !busy && !is:
		say(410, `{}`)
	case last && busy:
		p.end(path)
		w.Header().Set("Retry-After", "1")
		say(200, `{"state":"in progress"}`)
	case last:
		say(200, `{"state":"succeeded"}`)
	case busy && (r.Method != http.MethodPut || next != order.Plan):
		say(422, `{"error":"ConcurrencyError","description":"busy"}`)
	case busy:
		say(202, `{}`)
	case r.Method == http.MethodGet && is && p.once && p.said[path]:
		say(404, `{}`)
	case (r.Method == http.MethodGet || r.Method == http.MethodPut && plan == order.Plan) && is:
		say(200, credentials())
	case r.Method == http.MethodPut && is:
		say(409, `{}`)
	case r.Method == http.MethodDelete && !is, r.Method == http.MethodGet:
		say(410, `{}`)
	case p.async:
		p.going[path] = order.Plan
		say(202, `{"operation":"o"}`)
	case r.Method == http.MethodDelete:
		p.going[path] = ""
		p.end(path)
		say(200, `{}`)
	default:
		p.going[path] = order.Plan
		p.end(path)
		say(201, credentials())
	}
}

// end makes what was going on true.
func (p *platform) end(path string) {
	if strings.Contains(path, "/restores/") {
		p.restored[path]++
	}
	if p.made[path] = p.going[path]; p.going[path] == "" {
		delete(p.made, path)
		delete(p.said, path)
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
		Broker: osb.Broker{URL: p.broker.URL, HTTP: &http.Client{Transport: p}}, Types: []string{"postgresql"}, Client: p.client, Pause: time.Millisecond,
	}
	for quiet := 0; quiet < 6; quiet++ {
		for _, o := range claims {
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
		if len(p.calls) > 800 {
			p.Fatalf("there is no rest: %q", p.calls[780:])
		}
	}
}

func (p *platform) orderAll() {
	for _, o := range claims {
		p.order(o.gvr, o.kind, o.name, runtime.DeepCopyJSON(o.spec))
	}
}

func (p *platform) grow() {
	p.edit(instances, "orders", func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "postgresql-single-big", "spec", "plan")
	})
}

func (p *platform) deleteAll() {
	for _, o := range claims {
		if p.get(o.gvr, o.name) != nil {
			p.edit(o.gvr, o.name, func(u *unstructured.Unstructured) {
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
	if p.made["/v2/service_instances/orders-uid"] != plan || len(p.made) != len(claims) || len(p.going) > 0 {
		p.Errorf("the broker has %v, and does %v", p.made, p.going)
	}
	if n := p.restored["/v2/service_instances/orders-uid/restores/undo-uid"]; n != 1 {
		p.Errorf("restored %d times", n)
	}
	for _, o := range claims {
		if got := state(p.get(o.gvr, o.name)); got != o.state {
			p.Errorf("%s is %s: %v", o.name, got, p.get(o.gvr, o.name).Object["status"])
		}
	}
	secret := p.get(secrets, "api-service-binding")
	if secret == nil || fmt.Sprint(secret.Object["data"]) != "map[instance:b3JkZXJzLXVpZA== password:aHVzaC1odXNo port:NTQzMg==]" {
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
	isRestore := func(path, _ string) bool { return strings.Contains(path, "/restores/") } // an act, of which nothing is kept
	maps.DeleteFunc(p.made, isRestore)
	maps.DeleteFunc(p.going, isRestore)
	if len(p.made)+len(p.going) > 0 {
		p.Errorf("the broker has %v, and does %v", p.made, p.going)
	}
	for _, n := range p.restored {
		if n > 1 {
			p.Errorf("restored %d times", n)
		}
	}
	for _, o := range claims {
		if u := p.get(o.gvr, o.name); u != nil {
			p.Errorf("%s is left: %v", o.name, u.Object)
		}
	}
	for _, name := range []string{"api-service-binding", "another"} {
		if u := p.get(secrets, name); u != nil {
			p.Errorf("the Secret is left: %v", u.Object)
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

// A stage is what people do to claims at rest, what the broker answers meanwhile, and what
// must be there when all is done.
type stage struct {
	name    string
	earlier []func(p *platform)
	act     func(p *platform)
	trouble []trouble
	want    func(p *platform)
}

func plan(name string) func(p *platform) { return func(p *platform) { p.wantUse(name) } }

// kill lets the process die before each call and each request of a stage, in turn, or before every
// so many-th; the state after one is that before the next. All is deleted in the end, and nothing is left.
func (s stage) kill(t *testing.T, every int) {
	t.Helper()
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for n := 1; ; n += every {
			p := newPlatform(t, async)
			for _, act := range s.earlier {
				act(p)
				p.work()
			}
			s.act(p)
			p.trouble = slices.Clone(s.trouble)
			p.left = n
			p.work()
			died := p.left == 0
			p.left = -1
			p.work()
			s.want(p)
			p.deleteAll()
			p.work()
			if p.wantNothing(); t.Failed() {
				t.Fatalf("%s, killed before action %d, calls %q", s.name, n, p.calls)
			}
			if !died {
				t.Logf("%s: %d points", s.name, n-1)
				break
			}
		}
	})
}

func TestKilled(t *testing.T) {
	made := []func(p *platform){(*platform).orderAll}
	for _, s := range []stage{
		{"ordered", nil, (*platform).orderAll, nil, plan("p1")},
		{"changed", made, (*platform).grow, nil, plan("p2")},
		{"deleted", append(made, (*platform).grow), (*platform).deleteAll, nil, (*platform).wantNothing},
		{"ordered in silence", nil, (*platform).orderAll, silence, plan("p1")},
		{"deleted in silence", made, (*platform).deleteAll, silence, (*platform).wantNothing},
		{"a Secret that is lost", made, (*platform).loseSecret, nil, plan("p1")},
		{"ordered, credentials said once", nil, (*platform).orderOnce, nil, plan("p1")},
		{"a Secret that is lost, credentials said once", []func(p *platform){(*platform).orderOnce}, (*platform).loseSecret, nil, plan("p1")},
		{"a Secret of another name", made, (*platform).renameSecret, nil, (*platform).wantRenamed},
		{"a name that is taken", nil, (*platform).takeName, nil, (*platform).wantTaken},
	} {
		t.Run(s.name, func(t *testing.T) { s.kill(t, 1) })
	}
}

func (p *platform) loseSecret() {
	if err := p.client.Tracker().Delete(secrets, "shop", "api-service-binding"); err != nil {
		p.Fatal(err)
	}
}

func (p *platform) orderOnce() {
	p.once = true
	p.orderAll()
}

func (p *platform) renameSecret() {
	p.edit(bindings, "api", func(u *unstructured.Unstructured) {
		_ = unstructured.SetNestedField(u.Object, "another", "spec", "writeConnectionSecretToRef", "name")
	})
}

// wantRenamed: the credentials stand where the claim wants them, and nowhere else.
func (p *platform) wantRenamed() {
	p.Helper()
	if p.get(secrets, "another") == nil || p.get(secrets, "api-service-binding") != nil {
		p.Errorf("the Secret is %v, and the one before %v", p.get(secrets, "another"), p.get(secrets, "api-service-binding"))
	}
	if name, _, _ := unstructured.NestedString(p.get(bindings, "api").Object, "status", "managed", "secret", "name"); name != "another" {
		p.Errorf("the status names %q", name)
	}
}

// takeName has a Secret of another owner stand where the credentials should.
func (p *platform) takeName() {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"theirs": "YQ=="}}}
	u.SetName("api-service-binding")
	u.SetNamespace("shop")
	if err := p.client.Tracker().Create(secrets, u, "shop"); err != nil {
		p.Fatal(err)
	}
	p.orderAll()
}

// wantTaken: the Secret is left as it is, and the claim heals once it has gone.
func (p *platform) wantTaken() {
	p.Helper()
	status := fmt.Sprint(p.get(bindings, "api").Object["status"])
	if !strings.Contains(status, "message:the name api-service-binding is taken by another Secret") || !strings.Contains(status, "reason:NameTaken status:False type:Ready") {
		p.Error(status)
	}
	if theirs := p.get(secrets, "api-service-binding"); theirs == nil || fmt.Sprint(theirs.Object["data"]) != "map[theirs:YQ==]" {
		p.Errorf("another's Secret is %v", theirs)
	}
	p.loseSecret()
	p.work()
	p.wantUse("p1")
}

// TestInstanceMadeAnew: credentials for an instance that is gone, or is another one of its
// name, are deleted at the broker and in their Secret, and made anew for the one that is there.
func TestInstanceMadeAnew(t *testing.T) {
	made := []func(p *platform){(*platform).orderAll}
	for _, s := range []stage{
		{"gone", made, (*platform).deleteInstance, nil, (*platform).wantUnbound},
		{"ordered again", append(made, (*platform).deleteInstance), (*platform).orderAgain, nil, (*platform).wantRebound},
		{"another at once", made, (*platform).replaceInstance, nil, (*platform).wantRebound},
	} {
		t.Run(s.name, func(t *testing.T) { s.kill(t, 1) })
	}
}

func (p *platform) deleteInstance() {
	p.edit(instances, "orders", func(u *unstructured.Unstructured) {
		now := metav1.Now()
		u.SetDeletionTimestamp(&now)
	})
}

// orderAgain orders an instance of the same name. The tracker does not mind that the UID changes.
func (p *platform) orderAgain() {
	p.order(instances, "PostgresqlInstance", "orders", runtime.DeepCopyJSON(claims[0].spec))
	p.edit(instances, "orders", func(u *unstructured.Unstructured) { u.SetUID("again-uid") })
}

// replaceInstance is what is seen of an instance that was lost and made anew between two looks.
func (p *platform) replaceInstance() {
	p.edit(instances, "orders", func(u *unstructured.Unstructured) {
		u.SetUID("again-uid")
		u.SetFinalizers(nil)
		delete(u.Object, "status")
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.made, "/v2/service_instances/orders-uid") // as it was lost
}

// wantUnbound: the binding waits for an instance, and nothing is left of its credentials.
func (p *platform) wantUnbound() {
	p.Helper()
	status := fmt.Sprint(p.get(bindings, "api").Object["status"])
	if !strings.Contains(status, "message:the instance orders is not running") || !strings.Contains(status, "reason:InstanceNotReady status:False type:Ready") {
		p.Error(status)
	}
	p.wantBoundTo("")
}

func (p *platform) wantRebound() {
	p.Helper()
	if got := state(p.get(bindings, "api")); got != "Created" {
		p.Errorf("the binding is %s: %v", got, p.get(bindings, "api").Object["status"])
	}
	p.wantBoundTo("again-uid")
}

// wantBoundTo: the broker and the Secret have credentials for this instance and for no other.
func (p *platform) wantBoundTo(instance string) {
	p.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	var bound []string
	for path := range p.made {
		if of, id, ok := strings.Cut(path, "/service_bindings/"); ok {
			bound = append(bound, path[strings.LastIndex(of, "/")+1:len(of)]+"/"+id)
		}
	}
	data := ""
	if secret := p.get(secrets, "api-service-binding"); secret != nil {
		of, _, _ := unstructured.NestedString(secret.Object, "data", "instance")
		text, _ := base64.StdEncoding.DecodeString(of)
		data = string(text) + "/api-uid"
	}
	var want []string
	if instance != "" {
		want = []string{instance + "/api-uid"}
	}
	if !slices.Equal(bound, want) || data != strings.Join(want, "") {
		p.Errorf("the broker has credentials %q, and the Secret those of %q; want %q", bound, data, want)
	}
}

// TestDeletedAnywhere: all are deleted after each action of their creation.
func TestDeletedAnywhere(t *testing.T) {
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for n, died := 1, true; died; n++ {
			p := newPlatform(t, async)
			p.orderAll()
			p.left = n
			p.work()
			died = p.left == 0
			p.left = -1
			p.deleteAll()
			p.work()
			if p.wantNothing(); t.Failed() {
				t.Fatalf("deleted before action %d, calls %q", n, p.calls)
			}
		}
	})
}

// silence is a broker that carries out all, and never answers the first time.
var silence = []trouble{
	{"PUT", "orders-uid", 0, true, ""},
	{"PUT", "api-uid", 0, true, ""},
	{"PUT", "nightly-uid", 0, true, ""},
	{"PUT", "undo-uid", 0, true, ""},
	{"PATCH", "orders-uid", 0, true, ""},
	{"DELETE", "api-uid", 0, true, ""},
	{"DELETE", "nightly-uid", 0, true, ""},
	{"DELETE", "orders-uid", 0, true, ""},
}

const concurrency = `{"error":"ConcurrencyError","description":"busy"}`

// troubles are what the broker does wrong, by name.
var troubles = map[string][]trouble{
	"408, made":               {{"PUT", "orders-uid", 408, true, ""}},
	"500, made":               {{"PUT", "orders-uid", 500, true, ""}, {"DELETE", "orders-uid", 500, false, ""}},
	"500, binding made":       {{"PUT", "api-uid", 500, true, ""}},
	"500, backup made":        {{"PUT", "nightly-uid", 500, true, ""}, {"DELETE", "nightly-uid", 503, true, ""}},
	"500, restored":           {{"PUT", "undo-uid", 500, true, ""}, {"PUT", "undo-uid", 408, true, ""}},
	"201 malformed":           {{"PUT", "api-uid", 201, true, "nonsense"}},
	"silence, all done":       silence,
	"422 at each":             {{"PUT", "orders-uid", 422, false, concurrency}, {"PATCH", "", 422, false, concurrency}, {"DELETE", "orders-uid", 422, false, concurrency}, {"DELETE", "api-uid", 422, false, concurrency}, {"PUT", "nightly-uid", 422, false, concurrency}, {"PUT", "undo-uid", 422, false, concurrency}, {"DELETE", "nightly-uid", 422, false, concurrency}},
	"400 once":                {{"PUT", "orders-uid", 400, false, `{"description":"quota"}`}, {"PATCH", "", 400, false, ""}},
	"410 on deletions":        {{"DELETE", "api-uid", 410, true, "{}"}, {"DELETE", "orders-uid", 410, true, "{}"}},
	"500 on deletions, done":  {{"DELETE", "api-uid", 500, true, ""}, {"DELETE", "orders-uid", 500, true, ""}},
	"500 on an update, done":  {{"PATCH", "", 500, true, ""}},
	"the catalogue is away":   {{"GET", "catalog", 503, false, ""}, {"GET", "catalog", 503, false, ""}},
	"operations fail":         {{"GET", "last_operation", 200, false, `{"state":"failed","description":"no disk"}`}},
	"last_operation is 500":   {{"GET", "last_operation", 500, false, ""}, {"GET", "last_operation", 404, false, ""}},
	"a binding's fetch fails": {{"GET", "service_bindings/api-uid", 500, false, ""}},
}

// TestTrouble has the broker fail on purpose: nothing is leaked, and all heals.
func TestTrouble(t *testing.T) {
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		for name, trouble := range troubles {
			t.Run(name, func(t *testing.T) {
				p := newPlatform(t, async)
				p.trouble = slices.Clone(trouble)
				p.orderAll()
				p.work()
				p.wantUse("p1")
				p.grow()
				p.work()
				p.wantUse("p2")
				p.deleteAll()
				p.work()
				if p.wantNothing(); t.Failed() {
					t.Errorf("calls %q", p.calls)
				}
			})
		}
	})
}

var killsEvery = flag.Int("every", 7, "TestKilledInTrouble kills before every so many-th action; 1 takes minutes")

// TestKilledInTrouble: the broker fails on purpose, and the process dies meanwhile.
func TestKilledInTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("goes through some thousand lives")
	}
	made := []func(p *platform){(*platform).orderAll}
	for name, trouble := range troubles {
		for _, s := range []stage{
			{"ordered", nil, (*platform).orderAll, trouble, plan("p1")},
			{"changed", made, (*platform).grow, trouble, plan("p2")},
			{"deleted", made, (*platform).deleteAll, trouble, (*platform).wantNothing},
		} {
			t.Run(name+"/"+s.name, func(t *testing.T) { s.kill(t, *killsEvery) })
		}
	}
}

// TestOrphans: what may have been made is deleted before it is asked for again, and
// what was refused is not.
func TestOrphans(t *testing.T) {
	for status, want := range map[int]string{0: "PUT DELETE PUT", 408: "PUT PUT", 500: "PUT DELETE PUT", 201: "PUT DELETE PUT", 400: "PUT PUT", 422: "PUT PUT"} {
		for _, id := range []string{"orders-uid", "api-uid", "nightly-uid"} {
			p := newPlatform(t, false)
			p.trouble = []trouble{{"PUT", id, status, true, ""}}
			p.orderAll()
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
	p.orderAll()
	p.work()
	p.deleteAll()
	c := p.controller()
	reconcile := func(i int) (string, error) {
		_, err := c.Reconcile(t.Context(), claims[i].gvr, "shop", claims[i].name)
		return fmt.Sprint(p.get(claims[i].gvr, claims[i].name).Object["status"]), err
	}
	if status, err := reconcile(0); err != nil || !strings.Contains(status, "message:waits until the credentials of the ServiceBinding api are deleted at the broker") {
		t.Errorf("%v: %s", err, status)
	}
	for _, i := range []int{1, 2, 0} { // a Restore has nothing to delete
		p.trouble = []trouble{{"DELETE", claims[i].name + "-uid", 422, false, `{"error":"ConcurrencyError","description":"a restore runs"}`}}
		status, err := reconcile(i)
		if err == nil {
			t.Error("no error to try again with")
		}
		if !strings.Contains(status, "message:422: ConcurrencyError a restore runs") || !strings.Contains(status, "state:Deleting") {
			t.Error(status)
		}
		if _, err := reconcile(i); err != nil {
			t.Error(err)
		}
	}
}

// TestRest: at rest, and with a broker that goes on refusing, nothing is written.
func TestRest(t *testing.T) {
	p := newPlatform(t, false)
	p.orderAll()
	p.work()
	p.client.ClearActions()
	p.work()
	for _, a := range p.client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}

// TestUnsupported: a service without backups is told on the claim, with the next step, and
// the broker is not asked for any; the claim heals when the service has them.
func TestUnsupported(t *testing.T) {
	p := newPlatform(t, false)
	p.actions = `{"of": "another meaning"}`
	p.order(instances, claims[0].kind, "orders", runtime.DeepCopyJSON(claims[0].spec))
	p.work()
	p.order(backups, claims[2].kind, "nightly", runtime.DeepCopyJSON(claims[2].spec))
	c := p.controller()
	for range 2 { // the finalizer is a write of its own
		if _, err := c.Reconcile(t.Context(), backups, "shop", "nightly"); err != nil {
			t.Error(err)
		}
	}
	status := fmt.Sprint(p.get(backups, "nightly").Object["status"])
	for _, want := range []string{"the broker makes no backups of a9s-postgresql14: delete this Backup, and ask the platform team", "reason:ActionNotOffered status:False type:Synced", "state:Failed"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if slices.ContainsFunc(p.calls, func(call string) bool { return strings.Contains(call, "nightly") }) {
		t.Errorf("asked all the same: %q", p.calls)
	}
	c.Actions = []string{osb.Backups}
	if _, err := c.Reconcile(t.Context(), backups, "shop", "nightly"); err != nil || state(p.get(backups, "nightly")) != "Completed" {
		t.Errorf("%v: %v", err, p.get(backups, "nightly").Object["status"])
	}
	p.deleteAll()
	p.work()
	p.wantNothing()
}

// TestPolling: an operation that goes on for longer than its plan allows has failed, and what
// may have been made is deleted; what does not say how it goes is no end of it.
func TestPolling(t *testing.T) {
	const path = "/v2/service_instances/orders-uid"
	p := newPlatform(t, true)
	p.order(instances, claims[0].kind, "orders", runtime.DeepCopyJSON(claims[0].spec))
	c := p.controller()
	if _, err := c.Reconcile(t.Context(), instances, "shop", "orders"); err != nil { // the finalizer is a write of its own
		t.Error(err)
	}
	for _, status := range []int{400, 404, 410, 500} {
		p.trouble = []trouble{{"GET", "last_operation", status, false, `{}`}}
		if _, err := c.Reconcile(t.Context(), instances, "shop", "orders"); err == nil {
			t.Error("no error to try again with")
		}
		if said := fmt.Sprint(p.get(instances, "orders").Object["status"]); !strings.Contains(said, fmt.Sprintf("message:%d: ", status)) {
			t.Error(said)
		}
	}
	if n := len(p.called("DELETE " + path)); n > 0 {
		t.Errorf("deleted %d times before its end", n)
	}
	until, _, _ := unstructured.NestedString(p.get(instances, "orders").Object, "status", "managed", "until")
	end, err := time.Parse(time.RFC3339, until)
	if left := time.Until(end); err != nil || left < 50*time.Minute || left > time.Hour {
		t.Errorf("the plan allows an hour, of which %s are left: %v", left, err)
	}
	p.edit(instances, "orders", func(u *unstructured.Unstructured) { // an hour passes
		_ = unstructured.SetNestedField(u.Object, time.Now().Add(-time.Second).Format(time.RFC3339), "status", "managed", "until")
	})
	p.trouble = []trouble{{"GET", "last_operation", 200, false, `{"state":"in progress"}`}}
	if _, err := c.Reconcile(t.Context(), instances, "shop", "orders"); err == nil || !strings.Contains(err.Error(), "longer than its plan allows") {
		t.Error(err)
	}
	p.work()
	if puts, deletes := p.called("PUT "+path), p.called("DELETE "+path); len(puts) != 2 || len(deletes) == 0 || state(p.get(instances, "orders")) != "Running" {
		t.Errorf("%d PUT, %d DELETE: %v", len(puts), len(deletes), p.get(instances, "orders").Object["status"])
	}
	p.deleteAll()
	p.work()
	p.wantNothing()
}

// called returns the calls that were so.
func (p *platform) called(call string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.calls), func(c string) bool { return c != call })
}

// TestRestoreFails: a restore that failed is not tried again by itself, since it overwrites.
func TestRestoreFails(t *testing.T) {
	p := newPlatform(t, true)
	p.trouble = []trouble{{"GET", "undo-uid", 200, false, `{"state":"failed","description":"checksum"}`}}
	p.orderAll()
	p.work()
	p.work()
	status := fmt.Sprint(p.get(restores, "undo").Object["status"])
	if !strings.Contains(status, "state:Failed") || !strings.Contains(status, "make another Restore to try again: checksum") {
		t.Error(status)
	}
	if puts := p.called("PUT /v2/service_instances/orders-uid/restores/undo-uid"); len(puts) != 1 {
		t.Errorf("asked %d times", len(puts))
	}
}

// controller is one that looks at a claim when it is told to.
func (p *platform) controller() *servicebroker.Controller {
	return &servicebroker.Controller{Broker: osb.Broker{URL: p.broker.URL}, Types: []string{"postgresql"}, Client: p.client, Pause: time.Millisecond}
}

// wantSaid: the status of a claim says all of this.
func (p *platform) wantSaid(gvr schema.GroupVersionResource, name string, words ...string) {
	p.Helper()
	status := fmt.Sprint(p.get(gvr, name).Object["status"])
	for _, want := range words {
		if !strings.Contains(status, want) {
			p.Errorf("%s: no %q in %s", name, want, status)
		}
	}
}

// TestNoCredentials: a broker that gives no credentials at all is asked for others once, and then
// rarely; there is no Secret, and the claim is not ready.
func TestNoCredentials(t *testing.T) {
	p := newPlatform(t, false)
	p.mute = true
	p.order(instances, claims[0].kind, "orders", runtime.DeepCopyJSON(claims[0].spec))
	p.work()
	p.order(bindings, claims[1].kind, "api", runtime.DeepCopyJSON(claims[1].spec))
	var again time.Duration
	var err error
	for i := 0; i < 9 && err == nil; i++ { // a look is some steps
		again, err = p.controller().Reconcile(t.Context(), bindings, "shop", "api")
	}
	if err == nil || again < time.Minute {
		t.Errorf("again in %s, %v", again, err)
	}
	p.wantSaid(bindings, "api", "the broker gives no credentials: ask the platform team", "status:False type:Ready", "state:Failed")
	if secret := p.get(secrets, "api-service-binding"); secret != nil {
		t.Errorf("the Secret is %v", secret)
	}
	if puts := p.called("PUT /v2/service_instances/orders-uid/service_bindings/api-uid"); len(puts) != 2 {
		t.Errorf("bound %d times", len(puts))
	}
	p.mute = false
	p.work()
	p.wantSaid(bindings, "api", "state:Created")
	p.deleteAll()
	p.work()
	p.wantNothing()
}

// TestExpires: the claim says when its credentials end.
func TestExpires(t *testing.T) {
	forBoth(t, func(t *testing.T, async bool) {
		t.Helper()
		p := newPlatform(t, async)
		p.expires = "2030-01-01T00:00:00Z"
		p.orderAll()
		p.work()
		p.wantUse("p1")
		p.wantSaid(bindings, "api", "message:the credentials end at 2030-01-01T00:00:00Z")
	})
}

// TestNotBindable: no credentials are asked for where the catalogue says that there are none.
func TestNotBindable(t *testing.T) {
	for name, says := range map[string]string{
		"the service": `"bindable":false`,
		"the plan":    `"bindable":true,"plans":[{"id":"p1","name":"postgresql-single-nano","bindable":false}]`,
	} {
		p := newPlatform(t, false)
		p.plans = says
		p.order(instances, claims[0].kind, "orders", runtime.DeepCopyJSON(claims[0].spec))
		p.work()
		p.order(bindings, claims[1].kind, "api", runtime.DeepCopyJSON(claims[1].spec))
		for look := range 2 { // the finalizer is a write of its own
			if again, err := p.controller().Reconcile(t.Context(), bindings, "shop", "api"); err != nil || look == 1 && again == 0 {
				t.Errorf("%s: again in %s, %v", name, again, err)
			}
		}
		p.wantSaid(bindings, "api", "the broker makes no bindings of a9s-postgresql14: delete this ServiceBinding", "reason:ActionNotOffered", "status:False type:Ready")
		if slices.ContainsFunc(p.calls, func(call string) bool { return strings.Contains(call, "api-uid") }) {
			t.Errorf("%s: asked all the same: %q", name, p.calls)
		}
	}
}

// TestPlanNotUpdateable: the plan stays where the catalogue does not say that it can change, and the
// claim says so until it is taken back; parameters change all the same.
func TestPlanNotUpdateable(t *testing.T) {
	for name, says := range map[string]string{
		"nothing is said": `"bindable":true`,
		"the service":     `"plan_updateable":false`,
		"the plan":        `"plan_updateable":true,"plans":[{"id":"p1","name":"postgresql-single-nano","plan_updateable":false},{"id":"p2","name":"postgresql-single-big"}]`,
	} {
		p := newPlatform(t, false)
		p.plans = says
		p.orderAll()
		p.work()
		p.grow()
		p.work()
		p.wantUse("p1")
		p.wantSaid(instances, "orders", "message:the broker changes no plans of this service", "reason:PlanNotUpdateable status:False type:Synced", "status:True type:Ready")
		p.edit(instances, "orders", func(u *unstructured.Unstructured) {
			u.Object["spec"] = map[string]any{"service": "a9s-postgresql14", "plan": "postgresql-single-nano", "parameters": map[string]any{"size": int64(2)}}
		})
		p.work()
		p.wantSaid(instances, "orders", "reason:Available status:True type:Synced")
		if len(p.patched) != 1 || !strings.Contains(p.patched[0], `"parameters":{"size":2}`) {
			t.Errorf("%s: patched %q", name, p.patched)
		}
	}
}

// TestNoParameters: that an order has none any more is said to the broker, which keeps those before
// if it is not.
func TestNoParameters(t *testing.T) {
	p := newPlatform(t, false)
	p.orderAll()
	p.work()
	for _, parameters := range []any{map[string]any{"size": int64(2)}, nil} {
		p.edit(instances, "orders", func(u *unstructured.Unstructured) {
			if spec := u.Object["spec"].(map[string]any); parameters == nil {
				delete(spec, "parameters")
			} else {
				spec["parameters"] = parameters
			}
		})
		p.work()
	}
	if len(p.patched) != 2 || !strings.Contains(p.patched[1], `"parameters":{}`) {
		t.Errorf("patched %q", p.patched)
	}
}

// TestFailedUpdate: an update that the broker says fails again is not asked for again until the order
// changes, and an instance that it says cannot be used is not ready until an update succeeds.
func TestFailedUpdate(t *testing.T) {
	for _, c := range []struct {
		name, says string
		async      bool
		again      bool // the order is sent again as it is
		ready      string
	}{
		{"nothing", `{"description":"no disk"}`, false, true, "True"},
		{"final", `{"description":"no disk","update_repeatable":false}`, false, false, "True"},
		{"unusable", `{"description":"no disk","instance_usable":false}`, false, true, "False"},
		{"both", `{"description":"no disk","update_repeatable":false,"instance_usable":false}`, false, false, "False"},
		{"neither", `{"description":"no disk","update_repeatable":true,"instance_usable":true}`, false, true, "True"},
		{"final, later", `{"state":"failed","description":"no disk","update_repeatable":false}`, true, false, "True"},
		{"both, later", `{"state":"failed","description":"no disk","update_repeatable":false,"instance_usable":false}`, true, false, "False"},
		{"nothing, later", `{"state":"failed","description":"no disk"}`, true, true, "True"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPlatform(t, c.async)
			p.orderAll()
			p.work()
			p.trouble = []trouble{{"PATCH", "orders-uid", 422, false, c.says}}
			if c.async {
				p.trouble = []trouble{{"GET", "orders-uid/last_operation", 200, false, c.says}}
			}
			p.grow()
			_, err := p.controller().Reconcile(t.Context(), instances, "shop", "orders")
			if (err != nil) != c.again {
				t.Errorf("the error to try again with is %v", err)
			}
			p.wantSaid(instances, "orders", "no disk", "reason:BrokerError status:False type:Synced", "reason:BrokerError status:"+c.ready+" type:Ready")
			if c.async {
				p.mu.Lock()
				delete(p.going, "/v2/service_instances/orders-uid") // it failed
				p.mu.Unlock()
			}
			before := len(p.patched)
			p.work()
			if more := len(p.patched) - before; (more > 0) != c.again {
				t.Errorf("asked %d times more", more)
			}
			p.edit(instances, "orders", func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, claims[0].spec["plan"], "spec", "plan")
			})
			p.work()
			p.wantUse("p1")
			p.wantSaid(instances, "orders", "reason:Available status:True type:Synced", "reason:Available status:True type:Ready")
			if c.ready == "False" && len(p.patched) == before {
				t.Error("taken for usable without an update that succeeded")
			}
		})
	}
}
