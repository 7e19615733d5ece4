// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A world is a Control Plane Cluster with services on offer, an issuer, and a
// backend that has exactly the shipped rights.
type world struct {
	t       *testing.T
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	dyn     dynamic.Interface
	config  *rest.Config // of the backend
	issuer  *testissuer.Issuer
	sealer  *auth.Sealer
	log     *logs

	tune     func(*Exporter) // before it runs; may be nil
	exporter *Exporter
	url      string
}

// logs is what the backend says.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) add(prefix, args string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.WriteString(prefix + " " + args + "\n")
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// patience is how long something may take that takes milliseconds on an idle machine,
// or half a minute if Kubernetes has to delete a namespace.
const patience = 3 * time.Minute

var users = map[string]testissuer.User{
	"ada":   {Password: "engine", Name: "Ada", Email: "ada@example.org", Groups: []string{"developers"}},
	"grace": {Password: "cobol", Name: "Grace", Groups: []string{"developers"}},
	"eve":   {Password: "apple", Name: "Eve"},
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := newStillWorld(t)
	w.tune = func(e *Exporter) { // no quota and no rotation is due in the midst of a step
		e.tenants.Opts.Pauses.NewKind, e.tenants.Opts.Pauses.Rotation = time.Hour, time.Hour
	}
	w.serve(Options{ReviewInterval: 2 * time.Second})
	return w
}

// newStillWorld is one in which no backend runs yet. The test runs beside others that
// have a world of their own.
func newStillWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel() // most of what a test does with it is to wait
	w := &world{t: t, cluster: cluster.Reused(t, "export"), issuer: testissuer.Start(t, testissuer.Options{Users: users}), log: &logs{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the backend says:\n%s", w.log)
		}
	})
	w.admin = must(kubernetes.NewForConfig(w.cluster.Config()))
	w.dyn = must(dynamic.NewForConfig(w.cluster.Config()))
	for _, crd := range slices.Collect(maps.Values(v1alpha1.CRDs())) {
		w.apply(crd)
	}
	w.apply(deploy.Backend("backend")...)
	for _, name := range []string{"widgets", "gadgets", "gizmos"} {
		w.offer(name, v1alpha1.NamespacedScope)
	}
	w.offer("continents", v1alpha1.ClusterScope)
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: developer}, rules: [
		{apiGroups: [klutch.anynines.com], resources: [apiserviceexporttemplates], resourceNames: [widgets, gadgets, ghosts, continents, cogs], verbs: [bind]}]}`),
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: developer},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: developer},
		subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:developers"}]}`))
	w.config = w.account("klutch-backend", "backend")
	w.eventually("the rights of the backend", func(ctx context.Context) (bool, error) { // which a controller sums up
		_, err := must(New(w.config, Options{})).tenants.Rights.Check(ctx, tenant.Rules([]*v1alpha1.APIServiceExport{exportOf("example.org", "continents")}))
		return err == nil, nil
	})
	w.sealer = must(auth.NewSealer(bytes.Repeat([]byte("k"), 32)))
	return w
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func object(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", "  ")), &u.Object); err != nil {
		panic(err)
	}
	return u
}

// crdOf returns a CRD of group example.org.
func crdOf(plural string, scope v1alpha1.Scope) *unstructured.Unstructured {
	singular := strings.TrimSuffix(plural, "s")
	return object(fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.org}
spec:
  group: example.org
  scope: %[3]s
  names: {plural: %[1]s, singular: %[2]s, kind: %[4]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {
            size: {type: integer, default: 1, x-kubernetes-validations: [{rule: "self < 9"}]},
            compositionRef: {type: object, x-kubernetes-preserve-unknown-fields: true},
            crossplane: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {compositionRef: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`, plural, singular, scope, strings.ToUpper(singular[:1])+singular[1:]))
}

// offer makes a CRD, its template and the right to pass it on.
func (w *world) offer(plural string, scope v1alpha1.Scope) {
	w.t.Helper()
	w.apply(crdOf(plural, scope), templateOf(plural), rightsOf(plural))
}

func templateOf(plural string) *unstructured.Unstructured {
	return object(fmt.Sprintf(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportTemplate, metadata: {name: %[1]s, namespace: default},
		spec: {apiServiceSelector: {group: example.org, resource: %[1]s}, description: "Makes <%[1]s>.",
		permissionClaims: [{resource: secrets, version: v1, required: true, selector: {owner: Provider, references: [{path: status.secret}]}}]}}`, plural))
}

func rightsOf(plural string) *unstructured.Unstructured {
	return object(fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole,
		metadata: {name: offer-%[1]s, labels: {klutch.anynines.com/aggregate-to-backend: "true"}}, rules: [
		{apiGroups: [example.org], resources: [%[1]s], verbs: [get, list, watch, create, update, patch, delete]},
		{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}]}`, plural))
}

func (w *world) apply(objects ...*unstructured.Unstructured) {
	w.t.Helper()
	disco := must(discovery.NewDiscoveryClientForConfig(w.cluster.Config()))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(disco))
	for _, u := range objects {
		var m *meta.RESTMapping
		w.eventually("kind "+u.GetKind(), func(context.Context) (bool, error) {
			var err error
			if m, err = mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version); err != nil {
				mapper.Reset()
			}
			return err == nil, nil
		})
		var client dynamic.ResourceInterface = w.dyn.Resource(m.Resource)
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			client = w.dyn.Resource(m.Resource).Namespace(u.GetNamespace())
		}
		w.eventually("apply "+u.GetName(), func(ctx context.Context) (bool, error) {
			_, err := client.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
			return err == nil, nil
		})
	}
}

// eventually waits for a state of the world. What takes long to find out is asked for
// less often: it leaves three quarters of the time to those who bring it about.
func (w *world) eventually(what string, done wait.ConditionWithContextFunc) {
	w.t.Helper()
	var next time.Time
	if err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		begin := time.Now()
		if begin.Before(next) {
			return false, nil
		}
		ok, err := done(ctx)
		next = time.Now().Add(3 * time.Since(begin))
		return ok, err
	}); err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// account returns a config with a token of a service account.
func (w *world) account(namespace, name string) *rest.Config {
	w.t.Helper()
	token, err := w.admin.CoreV1().ServiceAccounts(namespace).CreateToken(w.t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.cluster.Config())
	config.BearerToken = token.Status.Token
	config.QPS = -1
	return config
}

// serve starts a backend that ends with the test.
func (w *world) serve(opts Options) {
	w.t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.url = "http://" + listener.Addr().String()
	opts.Name, opts.ExternalURL, opts.Sealer = "Test platform", w.url, w.sealer
	opts.Provider = must(auth.New(auth.Config{Issuer: w.issuer.URL(), ClientID: "klutch", RedirectURL: w.url + "/callback"}))
	exporter := must(New(w.config, opts))
	if w.tune != nil {
		w.tune(exporter)
	}
	w.exporter = exporter
	ctx, stop := context.WithCancel(logr.NewContext(context.WithoutCancel(w.t.Context()), funcr.New(w.log.add, funcr.Options{Verbosity: 5})))
	server := httptest.NewUnstartedServer(exporter.Handler())
	server.Listener = listener
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	done := make(chan error, 1)
	go func() { done <- exporter.Run(ctx) }()
	w.t.Cleanup(func() {
		stop()
		server.Close()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
}

// login does what kubectl bind and a person do, as far as the one-time code.
func (w *world) login(user, clusterID string, services ...string) (auth.Grant, *testissuer.Browser, error) {
	browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: user, Password: users[user].Password})
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var last *testissuer.Page
	g, err := auth.Login(ctx, auth.LoginOptions{
		AuthorizeURL: w.url + "/authorize", Issuer: w.url, ClientID: handshake.ClientID,
		Params: url.Values{"c": {clusterID}, "service": services},
		Open: func(target string) (err error) {
			if last, err = browser.Visit(ctx, target); err == nil && last.URL.Host == strings.TrimPrefix(w.url, "http://") {
				cancel() // the journey ended on a page of the backend
			}
			return err
		},
	})
	if err != nil && last != nil {
		err = fmt.Errorf("%w; page %d %s", err, last.Status, last.Body)
	}
	return g, browser, err
}

// redeem does what the program that waits for the code does.
func (w *world) redeem(g auth.Grant, change func(url.Values)) reply {
	w.t.Helper()
	form := url.Values{
		"grant_type": {"authorization_code"}, "client_id": {handshake.ClientID},
		"code": {g.Code}, "code_verifier": {g.Verifier}, "redirect_uri": {g.RedirectURL},
	}
	if change != nil {
		change(form)
	}
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/token", strings.NewReader(form.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return send(w.t, req)
}

// A reply is an answer, read to its end.
type reply struct {
	Status  int
	Header  http.Header
	Cookies []*http.Cookie
	Body    string
}

// send does not follow redirects.
func send(t *testing.T, req *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, resp.Cookies(), string(body)}
}

// A tenantClient is what a konnector can do with its credential.
type tenantClient struct {
	w         *world
	namespace string
	config    *rest.Config
	kube      kubernetes.Interface
	dyn       dynamic.Interface
	response  *v1alpha1.BindingResponse
}

// tenant logs a person in and returns what they get.
func (w *world) tenant(user, clusterID string, services ...string) *tenantClient {
	w.t.Helper()
	g, _, err := w.login(user, clusterID, services...)
	if err != nil {
		w.t.Fatalf("login: %v\n%s", err, w.log)
	}
	got := w.redeem(g, nil)
	if got.Status != http.StatusOK {
		w.t.Fatalf("redeem: %d %s\n%s", got.Status, got.Body, w.log)
	}
	response := &v1alpha1.BindingResponse{}
	if err := json.Unmarshal([]byte(got.Body), response); err != nil {
		w.t.Fatal(err)
	}
	k, err := kubeconfig.Read(response.Kubeconfig)
	if err != nil {
		w.t.Fatal(err)
	}
	config := k.RESTConfig()
	config.QPS = -1
	return &tenantClient{
		w: w, namespace: k.Namespace, config: config, response: response,
		kube: must(kubernetes.NewForConfig(config)), dyn: must(dynamic.NewForConfig(config)),
	}
}

func (c *tenantClient) create(gvrName string, u *unstructured.Unstructured) {
	c.w.t.Helper()
	if _, err := c.dyn.Resource(v1alpha1.Resource(gvrName)).Namespace(c.namespace).Create(c.w.t.Context(), u, metav1.CreateOptions{}); err != nil {
		c.w.t.Fatal(err)
	}
}

// request asks for an API and returns the answered request.
func (c *tenantClient) request(name string, services ...string) *v1alpha1.APIServiceExportRequest {
	c.w.t.Helper()
	c.create("apiserviceexportrequests", requestOf(name, services...))
	return c.answered(name)
}

func requestOf(name string, services ...string) *unstructured.Unstructured {
	var resources []any
	for _, s := range services {
		resource, group, _ := strings.Cut(s, ".")
		resources = append(resources, map[string]any{"group": group, "resource": resource})
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceExportRequest",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"resources": resources},
	}}
}

func (c *tenantClient) answered(name string) *v1alpha1.APIServiceExportRequest {
	c.w.t.Helper()
	return until(c.w, "apiserviceexportrequests", c.namespace, name, offer.Answered)
}

// mirror asks for a service namespace and returns its name.
func (c *tenantClient) mirror(namespace string) string {
	c.w.t.Helper()
	asked := object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: " + namespace + "}}")
	c.w.eventually("ask for "+namespace, func(ctx context.Context) (bool, error) { // which may be on its way out
		_, err := c.dyn.Resource(tenant.NamespaceResource).Namespace(c.namespace).Create(ctx, asked, metav1.CreateOptions{})
		return err == nil, ignoreExists(err)
	})
	return until(c.w, "apiservicenamespaces", c.namespace, namespace, func(asked *v1alpha1.APIServiceNamespace) bool {
		return asked.Status.Namespace != ""
	}).Status.Namespace
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// until waits for a state of an object of ours and returns the object.
func until[T any](w *world, resource, namespace, name string, done func(*T) bool) *T {
	w.t.Helper()
	var last []byte
	var got *T
	err := wait.PollUntilContextTimeout(w.t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		u, err := w.dyn.Resource(v1alpha1.Resource(resource)).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, nil //nolint:nilerr // it may come yet
		}
		if last, err = json.Marshal(u); err != nil {
			return false, err
		}
		got = new(T)
		return json.Unmarshal(last, got) == nil && done(got), nil
	})
	if err != nil {
		w.t.Fatalf("%s %s/%s: %v\n%s", resource, namespace, name, err, last)
	}
	return got
}

// A writeCounter notes what a client writes, and what it reads if it should.
type writeCounter struct {
	reads  bool
	mu     sync.Mutex
	writes []string
	last   time.Time
}

func (c *writeCounter) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			c.note(r)
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (c *writeCounter) note(r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = time.Now()
	if c.reads && r.URL.Query().Get("watch") == "" || r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "reviews") {
		c.writes = append(c.writes, r.Method+" "+r.URL.Path)
	}
}

// idle reports whether nothing has been asked for a while.
func (c *writeCounter) idle(context.Context) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.last.IsZero() && time.Since(c.last) > time.Second, nil
}

func (c *writeCounter) seen() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.writes)
}

func exportOf(group, plural string, claims ...v1alpha1.PermissionClaim) *v1alpha1.APIServiceExport {
	e := &v1alpha1.APIServiceExport{}
	e.Spec.Group, e.Spec.Names.Plural, e.Spec.PermissionClaims = group, plural, claims
	return e
}

func claim(resource string, owner v1alpha1.Owner) v1alpha1.PermissionClaim {
	return v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: resource}, Version: "v1", Selector: v1alpha1.ResourceSelector{Owner: owner}}
}
