// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A fakeBackend logs every client in and grants the services that it lists.
type fakeBackend struct {
	*httptest.Server
	recorder
	kubeconfig []byte
	grants     []string       // names of services, "<resource>.<group>"
	denies     string         // an OAuth error instead
	offers     map[string]any // what a login with the scope offer ends with; nil: it knows none
	asked      url.Values     // of the last authorize request
}

func newFakeBackend(t *testing.T) *fakeBackend {
	t.Helper()
	b := &fakeBackend{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) {
		grant := map[string]any{"authenticatedURL": b.URL + "/authorize", "tokenURL": b.URL + "/token", "issuer": b.URL}
		if b.offers != nil {
			grant["scopesSupported"] = []any{"offer"}
		}
		reply(w, map[string]any{
			"apiVersion": "v1alpha1", "kind": "BindingProvider", "version": "v1.0.0", "providerPrettyName": "Fake\x1b[31m Services",
			"authenticationMethods": []any{map[string]any{"method": "OAuth2CodeGrant", "oauth2CodeGrant": grant}},
		})
	})
	mux.HandleFunc("GET /authorize", b.authorize)
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, _ *http.Request) { reply(w, b.response()) })
	b.Server = httptest.NewTLSServer(b.wrap(mux))
	t.Cleanup(b.Close)
	return b
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (b *fakeBackend) authorize(w http.ResponseWriter, r *http.Request) {
	b.asked = r.URL.Query()
	answer := url.Values{"code": {"one-time"}, "state": {b.asked.Get("state")}, "iss": {b.URL}}
	if b.denies != "" {
		answer = url.Values{"error": {b.denies}, "error_description": {"no, you may not"}, "state": {b.asked.Get("state")}, "iss": {b.URL}}
	}
	http.Redirect(w, r, b.asked.Get("redirect_uri")+"?"+answer.Encode(), http.StatusSeeOther)
}

func (b *fakeBackend) response() map[string]any {
	if b.offers != nil {
		b.offers["authentication"] = map[string]any{"oauth2CodeGrant": map[string]any{"sid": b.asked.Get("state"), "id": "https://issuer.example.com/ada"}}
		return b.offers
	}
	var requests []any
	for _, name := range b.grants {
		requests = append(requests, request(name))
	}
	return map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "BindingResponse", "kubeconfig": b.kubeconfig, "requests": requests,
		"authentication": map[string]any{"oauth2CodeGrant": map[string]any{"sid": b.asked.Get("state"), "id": "https://issuer.example.com/ada"}},
	}
}

func request(name string, claims ...any) map[string]any {
	resource, group, _ := strings.Cut(name, ".")
	return map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceExportRequest", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"resources": []any{map[string]any{"group": group, "resource": resource, "permissionClaims": claims}}},
	}
}

// authority writes the file for --backend-certificate-authority.
func (b *fakeBackend) authority(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf(b.Server), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// browser is a terminal of which $BROWSER is a program that goes where it is sent.
func (b *fakeBackend) browser(t *testing.T, stdin string) terminal {
	t.Helper()
	return terminal{stdin: stdin, env: map[string]string{"BROWSER": "missing:surf --to %s"}, start: func(program string, args ...string) error {
		if program != "surf" || len(args) != 2 || args[0] != "--to" {
			return fs.ErrNotExist
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, args[1], http.NoBody)
		if err != nil {
			return err
		}
		resp, err := b.Client().Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}}
}

func tenantKubeconfig(t *testing.T, server *httptest.Server, namespace string) []byte {
	t.Helper()
	k := &kubeconfig.Kubeconfig{Server: server.URL, CAData: pemOf(server), Namespace: namespace, Token: "tenant"}
	data, err := k.Write()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A dry run of a binding by URL is one look at the backend, and none at the cluster.
func TestP18DryRunOfURL(t *testing.T) {
	for _, mode := range []string{"client"} {
		backend, app := newFakeBackend(t), newFakeAPI(t, nil)
		r := backend.browser(t, "").run(t.Context(), backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", app.kubeconfig(t),
			"--dry-run="+mode, "--service", "things.example.com", "--service", "others.example.com")
		golden(t, "dry-run-url.txt", r.String())
		if diff := cmp.Diff([]string{"GET /export"}, backend.requests); diff != "" {
			t.Errorf("backend got (-want +got):\n%s", diff)
		}
		if len(app.requests) > 0 {
			t.Errorf("App Cluster got %v", app.requests)
		}
	}
}

// Dry runs of a binding with a credential read, and write as dry runs at the most.
func TestP18DryRunOfRequests(t *testing.T) {
	secret := map[string]any{"resource": "secrets", "version": "v1", "selector": map[string]any{"owner": "Provider"}, "required": true}
	manifest, _ := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{request("things.example.com", secret), request("others.example.com")}})
	for _, mode := range []string{"client", "server"} {
		t.Run(mode, func(t *testing.T) {
			app := newFakeAPI(t, map[string]any{"/api/v1/namespaces/klutch-bind/secrets": list("SecretList", "v1")})
			tenant := newFakeAPI(t, nil)
			app.warning, tenant.warning = "the App Cluster warns", "a stranger warns"
			r := terminal{stdin: string(manifest)}.run(t.Context(), "apiservice", "-f", "-", "--remote-kubeconfig", write(t, tenantKubeconfig(t, tenant.Server, "cluster-a")),
				"--kubeconfig", app.kubeconfig(t), "--skip-konnector", "--dry-run="+mode, "--accept-claim", "secrets")
			name := regexpSecret.FindString(r.out)
			golden(t, "dry-run-"+mode+".txt", r.replaced(tenant.URL, "SERVER", name, "kubeconfig-xxxxx").String())
			if w := append(app.writes(), tenant.writes()...); len(w) > 0 {
				t.Errorf("wrote %v", w)
			}
			if mode == "client" && strings.Contains(strings.Join(append(app.requests, tenant.requests...), " "), "dryRun") {
				t.Errorf("a client's dry run sent writes: %v, %v", app.requests, tenant.requests)
			}
		})
	}
}

// A cached credential could leak: none is cached.
func TestP28NothingIsCached(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	app := newFakeAPI(t, map[string]any{group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1")})
	backend := newFakeBackend(t)
	backend.denies = "access_denied"
	app.objects["/api/v1/namespaces/klutch-bind"] = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}}
	config := app.kubeconfig(t)
	terminal{}.run(t.Context(), "status", "--kubeconfig", config)
	backend.browser(t, "").run(t.Context(), backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", config, "--skip-konnector")
	err := filepath.WalkDir(home, func(path string, _ fs.DirEntry, err error) error {
		if path != home {
			t.Errorf("left %s behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Logins that end badly leave the App Cluster as it was, but for the namespace that
// names it.
func TestLoginEndsBadly(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*fakeBackend)
		args []string
		code int
	}{
		{"denied", func(b *fakeBackend) { b.denies = "access_denied" }, nil, exitDenied},
		{"unknown-service", func(b *fakeBackend) { b.denies = "invalid_scope" }, nil, exitError},
		{"nothing-chosen", func(*fakeBackend) {}, nil, exitError},
		{"not-granted", func(b *fakeBackend) { b.grants = []string{"others.example.com"} }, []string{"--service", "things.example.com"}, exitError},
		{"abandoned", func(*fakeBackend) {}, []string{"--no-browser"}, exitNotReady},
		{"bad-kubeconfig", func(b *fakeBackend) {
			b.grants, b.kubeconfig = []string{"things.example.com"}, []byte("apiVersion: v1\nkind: Config\nclusters: []\n")
		}, nil, exitError},
		{"reserved-group", func(b *fakeBackend) { b.grants = []string{"clusterroles.rbac.authorization.k8s.io"} }, nil, exitError},
	} {
		t.Run(c.name, func(t *testing.T) {
			app, tenant, backend := newFakeAPI(t, map[string]any{}), newFakeAPI(t, nil), newFakeBackend(t)
			app.objects["/api/v1/namespaces/klutch-bind"] = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}}
			backend.kubeconfig = tenantKubeconfig(t, tenant.Server, "cluster-a")
			c.set(backend)
			args := append([]string{backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", app.kubeconfig(t), "--skip-konnector"}, c.args...)
			person := backend.browser(t, "")
			if c.code == exitNotReady {
				person.until = "Waiting for the browser"
			}
			r := person.run(t.Context(), args...)
			if r.code != c.code {
				t.Errorf("exit code %d, want %d", r.code, c.code)
			}
			r.errOut = regexpLogin.ReplaceAllString(r.errOut, "LOGIN-URL")
			r.errOut = regexpCode.ReplaceAllString(r.errOut, "CODE")
			u, _ := url.Parse(backend.URL)
			golden(t, "login-"+c.name+".txt", r.replaced(u.Host, "HOST").String())
			if w := append(app.writes(), tenant.writes()...); len(w) > 0 {
				t.Errorf("wrote %v", w)
			}
		})
	}
}

// A bind that is refused after the login says what it has done until then, and no more.
func TestRefusedAfterTheNamespace(t *testing.T) {
	namespace := map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}}
	foreign := map[string]any{"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": map[string]any{"name": "things.example.com"}}
	for path, says := range map[string]string{
		"POST /api/v1/namespaces":        "In the App Cluster this command has only created namespace klutch-bind. ",
		"/api/v1/namespaces/klutch-bind": "Nothing was changed in the App Cluster. ",
	} {
		app := newFakeAPI(t, map[string]any{path: namespace, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com": foreign})
		tenant, backend := newFakeAPI(t, nil), newFakeBackend(t)
		backend.kubeconfig, backend.grants = tenantKubeconfig(t, tenant.Server, "cluster-a"), []string{"things.example.com"}
		r := backend.browser(t, "").run(t.Context(), backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", app.kubeconfig(t), "--skip-konnector")
		if r.code != exitConflict || !strings.Contains(r.errOut, says) || strings.Contains(r.errOut, "Nothing was changed") != (len(app.writes()) == 0) {
			t.Errorf("%s, wrote %v: %s", path, app.writes(), r)
		}
	}
}

// What a backend refuses ends the command at once, with the backend's words, and
// nothing is changed.
func TestRefusedRequest(t *testing.T) {
	for reason, message := range map[string]string{
		"ClusterScoped": "continents.example.com is cluster-scoped, and App Clusters can have namespaced APIs alone", "NotAuthorized": "not for you",
		"NotChosen": "it was not chosen: run kubectl bind https://klutch.example.com --service continents.example.com",
	} {
		t.Run(reason, func(t *testing.T) {
			app := newFakeAPI(t, map[string]any{"/api/v1/namespaces/klutch-bind/secrets": list("SecretList", "v1")})
			answered := request("continents.example.com")
			answered["status"] = map[string]any{"phase": "Failed", "terminalMessage": message, "conditions": []any{condition("ExportsReady", "False", strings.Replace(reason, "NotChosen", "NotAuthorized", 1), message)}}
			tenant := newFakeAPI(t, map[string]any{group + "/namespaces/cluster-a/apiserviceexportrequests/continents.example.com": answered})
			manifest, _ := json.Marshal(request("continents.example.com"))
			r := terminal{stdin: string(manifest)}.run(t.Context(), "apiservice", "-f", "-", "--yes", "--skip-konnector",
				"--remote-kubeconfig", write(t, tenantKubeconfig(t, tenant.Server, "cluster-a")), "--kubeconfig", app.kubeconfig(t), "--timeout", "30s")
			golden(t, "refused-"+reason+".txt", r.String())
			if w := app.writes(); len(w) > 0 {
				t.Errorf("wrote %v", w)
			}
		})
	}
}

// What a backend says while it cannot answer is said when the time is up, and what to do.
func TestUnansweredRequest(t *testing.T) {
	asked := request("things.example.com")
	asked["status"] = map[string]any{"phase": "Pending", "conditions": []any{condition("ExportsReady", "False", "MissingRights", "the backend lacks a rule: {apiGroups: [example.com]}")}}
	app := newFakeAPI(t, map[string]any{"/api/v1/namespaces/klutch-bind/secrets": list("SecretList", "v1")})
	tenant := newFakeAPI(t, map[string]any{group + "/namespaces/cluster-a/apiserviceexportrequests/things.example.com": asked})
	r := terminal{stdin: mustEncode(t, request("things.example.com"))}.run(t.Context(), "apiservice", "-f", "-", "--yes", "--skip-konnector",
		"--remote-kubeconfig", write(t, tenantKubeconfig(t, tenant.Server, "cluster-a")), "--kubeconfig", app.kubeconfig(t), "--timeout", "2s")
	golden(t, "unanswered.txt", r.String())
	if w := app.writes(); len(w) > 0 {
		t.Errorf("wrote %v", w)
	}
}

// What a platform offers can be asked without an App Cluster; one of another make does not tell.
func TestServicesWithoutACluster(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	backend := newFakeBackend(t)
	for _, command := range []string{"services", "whoami"} {
		r := backend.browser(t, "").run(t.Context(), command, backend.URL, "--backend-certificate-authority", backend.authority(t))
		if r.code != exitError || !strings.Contains(r.errOut, "does not tell programs what it offers") || !strings.Contains(r.errOut, "kubectl bind URL") {
			t.Errorf("an older backend: %s", r)
		}
	}
	backend.offers = map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "OfferResponse", "person": map[string]any{"issuer": "https://issuer.example.com", "subject": "ada"},
		"services": []any{map[string]any{"name": "things.example.com", "title": "Things\x1b[31m", "versions": []any{"v1"}}},
	}
	r := backend.browser(t, "").run(t.Context(), "services", backend.URL, "--backend-certificate-authority", backend.authority(t))
	if r.code != exitOK || !strings.Contains(r.out, "things.example.com   Things\\x1b[31m   v1         false") || backend.asked.Get("scope") != "offer" || backend.asked.Has("c") {
		t.Errorf("asked %v: %s", backend.asked, r)
	}
	backend.offers["kind"] = "BindingResponse"
	r = backend.browser(t, "").run(t.Context(), "whoami", backend.URL, "--backend-certificate-authority", backend.authority(t))
	if r.code != exitError || !strings.Contains(r.errOut, "is no OfferResponse") {
		t.Errorf("another answer: %s", r)
	}
}

// Without a konnector no person is sent to a browser in vain.
func TestNoKonnector(t *testing.T) {
	app, backend := newFakeAPI(t, nil), newFakeBackend(t)
	r := backend.browser(t, "").run(t.Context(), backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", app.kubeconfig(t))
	if r.code != exitUsage || !strings.Contains(r.errOut, "--konnector-image") || len(backend.requests) > 0 {
		t.Errorf("got %v after %v", r, backend.requests)
	}
}

func hostileClaim() bind.Claim {
	yes := true
	return bind.Claim{
		Service: v1alpha1.GroupResource{Group: "example.com", Resource: "things"},
		AcceptablePermissionClaim: v1alpha1.AcceptablePermissionClaim{PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1\x1b[8m",
			Selector: v1alpha1.ResourceSelector{
				Owner: v1alpha1.OwnerProvider, Names: []string{"a\rThe provider wants to read nothing", "b\u202etxt", strings.Repeat("n", 10<<10)},
				Namespaces: []string{"*"}, References: []v1alpha1.Reference{{Path: "status.\x1b[1Asecret"}},
			},
			Required: true, Create: &v1alpha1.CreateOptions{ReplaceExisting: true}, OnConflict: v1alpha1.OnConflictOptions{RecreateWhenConsumerSideDeleted: &yes},
			Update: &v1alpha1.UpdateOptions{Fields: []string{"spec.x"}, Preserving: []string{"spec.y"}, AlwaysRecreate: true},
		}},
	}
}

func claim(resource string, owner v1alpha1.Owner) bind.Claim {
	return bind.Claim{
		Standing: bind.StandingOrdinary,
		Service:  v1alpha1.GroupResource{Group: "example.com", Resource: "things"},
		AcceptablePermissionClaim: v1alpha1.AcceptablePermissionClaim{PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Resource: resource}, Version: "v1",
			Selector: v1alpha1.ResourceSelector{Names: []string{"*"}, Namespaces: []string{"*"}, Owner: owner},
		}},
	}
}

func TestP19Prompt(t *testing.T) {
	text := describeClaim(claim("secrets", v1alpha1.OwnerProvider)) + describeClaim(claim("configmaps", v1alpha1.OwnerConsumer)) +
		describeClaim(claim("configmaps", "")) + describeClaim(hostileClaim())
	golden(t, "claims.txt", text)
}

func TestAnswer(t *testing.T) {
	secrets, maps := claim("secrets", v1alpha1.OwnerProvider), claim("configmaps", "")
	for _, c := range []struct {
		name   string
		flags  claimAnswers
		stdin  string
		want   []v1alpha1.ClaimState // for secrets, then configmaps
		before []v1alpha1.ClaimState // as well
	}{
		{"no person at the prompt", claimAnswers{}, "", []v1alpha1.ClaimState{"", ""}, nil},
		{"both piped at once", claimAnswers{}, "y\nno\n", []v1alpha1.ClaimState{"Accepted", "Rejected"}, nil},
		{"the last without a line end", claimAnswers{}, "YES\nn", []v1alpha1.ClaimState{"Accepted", "Rejected"}, nil},
		{"asked again", claimAnswers{}, "maybe\n\nYes\nN\n", []v1alpha1.ClaimState{"Accepted", "Rejected"}, nil},
		{"one answer for two", claimAnswers{}, "y\n", []v1alpha1.ClaimState{"Accepted", ""}, nil},
		{"--yes", claimAnswers{yes: true}, "", []v1alpha1.ClaimState{"Accepted", "Accepted"}, nil},
		{"--yes but", claimAnswers{yes: true, reject: []string{"configmaps"}}, "", []v1alpha1.ClaimState{"Accepted", "Rejected"}, nil},
		{"of this service", claimAnswers{accept: []string{"things.example.com/secrets"}}, "n\n", []v1alpha1.ClaimState{"Accepted", "Rejected"}, nil},
		{"of another service", claimAnswers{accept: []string{"others.example.com/secrets"}}, "n\nn\n", []v1alpha1.ClaimState{"Rejected", "Rejected"}, nil},
		{"answered before", claimAnswers{yes: true}, "y\n", []v1alpha1.ClaimState{"Rejected", "Accepted"}, []v1alpha1.ClaimState{"Rejected", ""}},
		{"another answer now", claimAnswers{accept: []string{"secrets"}, reject: []string{"configmaps"}}, "", []v1alpha1.ClaimState{"Accepted", "Rejected"}, []v1alpha1.ClaimState{"Rejected", "Accepted"}},
		{"refusal wins", claimAnswers{accept: []string{"secrets"}, reject: []string{"secrets"}}, "y\n", []v1alpha1.ClaimState{"Rejected", "Accepted"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newTestPlugin(c.stdin)
			claims := []bind.Claim{secrets, maps}
			for i, state := range c.before {
				claims[i].State = state
			}
			if err := p.answer(c.flags)(t.Context(), claims); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, []v1alpha1.ClaimState{claims[0].State, claims[1].State}); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

// P20: what a claim is about is said in whole, in words that the provider does not choose.
func TestP20ClaimText(t *testing.T) {
	many := slices.Repeat([]string{"team"}, 30)
	for want, s := range map[string]v1alpha1.ResourceSelector{
		"all of them, in all namespaces":                                {LabelSelectors: []map[string]string{{"share": "yes"}, {}}},
		`namespace: "kube-system"`:                                      {Namespaces: append(many, "kube-system")},
		`name: "a\", and no other"`:                                     {Names: []string{`a", and no other`}},
		`stands in "spec.a" of one of its objects` + "\n":               {References: []v1alpha1.Reference{{Path: "spec.a"}}},
		`stands in "spec.a of one, none else\"" of one of its objects`:  {References: []v1alpha1.Reference{{Path: `spec.a of one, none else"`}}},
		`"status.a" of one of its objects, where the provider writes`:   {References: []v1alpha1.Reference{{Path: "status.a"}}},
		`"$.status.a" of one of its objects, where the provider writes`: {References: []v1alpha1.Reference{{Path: "$.status.a"}}},
	} {
		c := claim("secrets", v1alpha1.OwnerConsumer)
		s.Owner = v1alpha1.OwnerConsumer
		c.Selector = s
		if text := describeClaim(c); !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

// mixed are claims of each standing, as Install gives them to be answered.
func mixed() []bind.Claim {
	secrets, maps, pods, nodes := claim("secrets", v1alpha1.OwnerProvider), claim("configmaps", v1alpha1.OwnerConsumer), claim("pods", v1alpha1.OwnerProvider), claim("nodes", v1alpha1.OwnerConsumer)
	secrets.Selector.References = []v1alpha1.Reference{{Path: "status.secret"}}
	secrets.Update = &v1alpha1.UpdateOptions{Labels: []v1alpha1.Pattern{{Pattern: "tier"}, {Pattern: "sidecar.istio.io/inject"}}, Annotations: []v1alpha1.Pattern{{Pattern: "example.com/*"}}}
	maps.Selector.Names, maps.Selector.LabelSelectors = []string{"ca"}, []map[string]string{{"share": "yes"}}
	pods.Standing, pods.Why = bind.StandingByName, "they are programs, which run in this cluster with the rights that their namespace has"
	nodes.Standing, nodes.Why, nodes.State = bind.StandingNever, "it is cluster-scoped", v1alpha1.ClaimRejected
	return []bind.Claim{secrets, maps, pods, nodes}
}

// P20: --yes stands for ordinary claims, and says what it has accepted; the others are
// accepted by name, with a flag or at the prompt, or not at all.
func TestP20Yes(t *testing.T) {
	const accepted, rejected, open = v1alpha1.ClaimAccepted, v1alpha1.ClaimRejected, v1alpha1.ClaimState("")
	for _, c := range []struct {
		name, stdin string
		flags       claimAnswers
		want        []v1alpha1.ClaimState
		usage       bool
	}{
		{"yes", "", claimAnswers{yes: true}, []v1alpha1.ClaimState{accepted, accepted, open, rejected}, false},
		{"yes-piped", "y\nyes\n", claimAnswers{yes: true}, []v1alpha1.ClaimState{accepted, accepted, open, rejected}, false},
		{"yes-typed", "y\npods\n", claimAnswers{yes: true}, []v1alpha1.ClaimState{accepted, accepted, accepted, rejected}, false},
		{"yes-no", "no\n", claimAnswers{yes: true}, []v1alpha1.ClaimState{accepted, accepted, rejected, rejected}, false},
		{"by-name", "", claimAnswers{yes: true, accept: []string{"pods"}}, []v1alpha1.ClaimState{accepted, accepted, accepted, rejected}, false},
		{"never", "", claimAnswers{yes: true, accept: []string{"nodes"}}, nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, talk := newTestPlugin(c.stdin), &strings.Builder{}
			p.talk = talk
			claims := mixed()
			err := p.answer(c.flags)(t.Context(), claims)
			if (err != nil) != c.usage || err != nil && !isUsage(err) {
				t.Fatal(err)
			}
			if err != nil {
				talk.WriteString(err.Error() + "\n")
			}
			golden(t, "answer-"+c.name+".txt", talk.String())
			for i, want := range c.want {
				if claims[i].State != want {
					t.Errorf("%s is %q, want %q", claims[i].Resource, claims[i].State, want)
				}
			}
		})
	}
}

// The exit code for each kind of error, and that those in the middle of a chain count.
func TestVerdict(t *testing.T) {
	consent := &bind.ConsentError{Unanswered: []bind.Claim{claim("secrets", "")}, Refused: []bind.Claim{hostileClaim()}}
	for _, c := range []struct {
		err  error
		code int
		hint string
	}{
		{errors.New("whatever"), exitError, ""},
		{errors.New(`Get "http://localhost:8080/apis": dial tcp: connect: connection refused`), exitError, "--kubeconfig"},
		{errors.Join(errors.New("x"), bind.ErrNotReady), exitNotReady, "kubectl bind doctor"},
		{fmt.Errorf("%w: 0 of 2 replicas run it", bind.ErrKonnectorNotReady), exitNotReady, "kubectl -n klutch-bind get pods"},
		{fmt.Errorf("look in %w: %w", bind.ErrAppCluster, x509.UnknownAuthorityError{}), exitError, "The CA of the kubeconfig"},
		{fmt.Errorf("look in %w: %w", bind.ErrAppCluster, context.DeadlineExceeded), exitNotReady, "The App Cluster does not answer"},
		{fmt.Errorf("x is %w: it %w", bind.ErrInUse, bind.ErrDeleting), exitConflict, "kubectl bind unbind NAME --force"},
		{&bind.ConsentError{Refused: []bind.Claim{claim("secrets", "")}}, exitConsent, "leave --reject-claim out and add --accept-claim things.example.com/secrets"},
		{bind.ErrConflict, exitConflict, "status"},
		{bind.ErrInUse, exitConflict, "Delete the objects"},
		{consent, exitConsent, "--accept-claim things.example.com/secrets"},
		{&bind.RequestError{Reason: "NotAuthorized"}, exitDenied, "operator"},
		{&bind.RequestError{Reason: "CRDNotFound"}, exitNotReady, "kubectl bind doctor"},
		{&bind.RequestError{Reason: "CRDInvalid"}, exitNotReady, "Show this to the platform's operators"},
		{&bind.RequestError{Reason: "NotOffered"}, exitError, "kubectl bind services URL"},
		{&bind.RequestError{Reason: "MissingRights"}, exitNotReady, "Show this to the platform's operators"},
		{fmt.Errorf("bind: %w", &bind.RequestError{Waits: true}), exitNotReady, "Nothing is bound yet"},
		{&auth.Error{Code: "access_denied", Description: "The platform team has not allowed you to bind things.example.com"}, exitDenied, "operator"},
		{&auth.Error{Code: "access_denied", Description: "The issuer with which people sign in here refused: access_denied: The user said no"}, exitDenied, "cancelled"},
		{&auth.Error{Code: "access_denied", Description: "the person signed out"}, exitDenied, "cancelled"},
		{fmt.Errorf("log in: %w", &auth.Error{Code: "expired_token"}), exitNotReady, "it prints a new one. --timeout makes none last longer"},
		{fmt.Errorf("log in: wait for the person: %w", context.DeadlineExceeded), exitNotReady, "--timeout gives more time"},
		{fmt.Errorf("kubeconfig: %w", &kubeconfig.FieldError{Field: "users[0].user.exec", Reason: "is not allowed"}), exitError, "kubectl bind URL"},
		{&net.DNSError{Err: "no such host", Name: "klutch.example.com"}, exitError, "name in the URL"},
		{errNoCluster, exitError, "--kubeconfig"},
		{errors.New(`context "x" does not exist`), exitError, "get-contexts"},
		{fmt.Errorf("%w: %w", apierrors.NewUnauthorized("x"), context.DeadlineExceeded), exitDenied, "Log in"},
	} {
		code, hint := newTestPlugin("").verdict(c.err)
		if code != c.code || !strings.Contains(hint, c.hint) {
			t.Errorf("verdict(%v) = %d, %q", c.err, code, hint)
		}
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		env      map[string]string
		want     []string
	}{
		{"nothing", false, nil, nil},
		{"a terminal without a desktop", true, nil, nil},
		{"a desktop without a terminal", false, map[string]string{"DISPLAY": ":0"}, nil},
		{"a desktop", true, map[string]string{"DISPLAY": ":0"}, []string{"xdg-open", "URL"}},
		{"a desktop far away", true, map[string]string{"DISPLAY": ":0", "SSH_CONNECTION": "x"}, nil},
		{"$BROWSER", false, map[string]string{"BROWSER": "surf"}, []string{"surf", "URL"}},
		{"$BROWSER with a place", false, map[string]string{"BROWSER": "surf --to=%s"}, []string{"surf", "--to=URL"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newTestPlugin("")
			p.terminal, p.getenv = c.terminal, func(k string) string { return c.env[k] }
			var got []string
			p.start = func(program string, args ...string) error {
				got = append([]string{program}, args...)
				return nil
			}
			err := openBrowser(p, "URL")
			if diff := cmp.Diff(c.want, got); diff != "" || (err == nil) != (c.want != nil) {
				t.Errorf("error %v, started (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A binding that lost its Secret gets it back under the name that it knows; where
// bindings are cluster-scoped, that is how they are written.
func TestRepair(t *testing.T) {
	for _, c := range []struct {
		name       string
		namespaced bool
		path       string
	}{
		{"namespaced", true, bindingsPath}, {"cluster-scoped", false, group + "/apiservicebindings"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tenant := newFakeAPI(t, nil)
			app := newFakeAPI(t, map[string]any{
				"/api/v1/namespaces/klutch-bind/secrets": list("SecretList", "v1"),
				group:                                    served(c.namespaced),
				c.path:                                   list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", binding("things.example.com", "Fake")),
				c.path + "/things.example.com":           binding("things.example.com", "Fake"),
			})
			manifest := write(t, []byte(mustEncode(t, request("things.example.com"))))
			r := terminal{}.run(t.Context(), "apiservice", "-f", manifest, "--remote-kubeconfig", write(t, tenantKubeconfig(t, tenant.Server, "cluster-a")),
				"--kubeconfig", app.kubeconfig(t), "--skip-konnector", "--dry-run=server", "-o", `jsonpath={.items[-1:].spec.kubeconfigSecretRef.name} {.items[-1:].metadata.namespace}`)
			want := "kubeconfig-abcde "
			if c.namespaced {
				want += "klutch-bind"
			}
			if r.code != exitOK || r.out != want {
				t.Errorf("got %v, want %q", r, want)
			}
			if last := app.requests[len(app.requests)-1]; last != "PATCH "+c.path+"/things.example.com?dryRun=All" {
				t.Errorf("last request was %s", last)
			}
		})
	}
}

func mustEncode(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Whether objects that a provider makes become claims is asked where that is on offer and the
// API is new here; else it is the flag's word, or the binding's.
func TestAdoption(t *testing.T) {
	const path = bindingsPath + "/things.example.com"
	bound := binding("things.example.com", "Fake")
	spec := bound["spec"].(map[string]any)
	spec["maxAdoptedObjects"] = 3
	delete(spec, "permissionClaims") // the rights on claims that ended stay for a while
	for _, c := range []struct {
		name, stdin, offer string
		bound              bool
		args               []string
		want               string // maxAdoptedObjects
		says, asks         string
	}{
		{name: "a number", stdin: "7\n", offer: "Offer", want: "7", asks: "How many at most?", says: "up to 7 of its own objects"},
		{name: "no", stdin: "no\n", offer: "Offer", asks: "How many at most?"},
		{name: "nobody", offer: "Offer", asks: "How many at most?"},
		{name: "yes for all", stdin: "y\ny\ny\ny\n", offer: "Offer", asks: "How many at most? [No,1-1000] How many"},
		{name: "too many, then a number", stdin: "5000\n12\n", offer: "Offer", want: "12", asks: "How many at most?"},
		{name: "not on offer", stdin: "7\n"},
		{name: "--yes", stdin: "7\n", offer: "Offer", args: []string{"--yes"}, says: "--adopt N agrees to N of them"},
		{name: "--adopt", offer: "Offer", args: []string{"--adopt", "5"}, want: "5", says: "up to 5 of its own objects"},
		{name: "--adopt, not on offer", args: []string{"--adopt", "5"}, want: "5", says: "does not offer that its own objects become claims"},
		{name: "--adopt 0", offer: "Offer", args: []string{"--adopt", "0"}},
		{name: "bound before", stdin: "7\n", offer: "Offer", bound: true, want: "3"},
		{name: "bound before, --adopt 0", offer: "Offer", bound: true, args: []string{"--adopt", "0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			export := map[string]any{
				"kind": "APIServiceExport", "apiVersion": "klutch.anynines.com/v1alpha1",
				"metadata": map[string]any{"name": "things.example.com", "namespace": "cluster-a", "annotations": map[string]any{v1alpha1.SourceClaimsHashAnnotation: "x"}},
				"spec":     map[string]any{"group": "example.com", "names": map[string]any{"plural": "things", "kind": "Thing"}, "scope": "Namespaced", "adoption": c.offer},
			}
			tenant := newFakeAPI(t, map[string]any{group + "/namespaces/cluster-a/apiserviceexports/things.example.com": export})
			objects := map[string]any{"/api/v1/namespaces/klutch-bind/secrets": list("SecretList", "v1")}
			if c.bound {
				objects[group], objects[bindingsPath], objects[path] = served(true), list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", bound), bound
			}
			args := append([]string{
				"apiservice", "-f", write(t, []byte(mustEncode(t, request("things.example.com")))), "--remote-kubeconfig", write(t, tenantKubeconfig(t, tenant.Server, "cluster-a")),
				"--kubeconfig", newFakeAPI(t, objects).kubeconfig(t), "--skip-konnector", "--dry-run",
				"-o", `jsonpath={range .items[*]}{.kind}={.spec.maxAdoptedObjects}{"\n"}{end}`,
			}, c.args...)
			r := terminal{stdin: c.stdin}.run(t.Context(), args...)
			if r.code != exitOK || !strings.Contains(r.out, "APIServiceBinding="+c.want+"\n") || !strings.Contains(r.errOut, c.says) {
				t.Errorf("want %q and %q: %v", c.want, c.says, r)
			}
			if asked := strings.Contains(r.errOut, "How many at most?"); asked != (c.asks != "") || !strings.Contains(r.errOut, c.asks) {
				t.Errorf("asked: %t: %v", asked, r)
			}
			if roles := strings.Count(r.out, "ClusterRole="); roles != 1 && c.want == "" || roles != 2 && c.want != "" {
				t.Errorf("%d ClusterRoles: %v", roles, r)
			}
		})
	}
}
