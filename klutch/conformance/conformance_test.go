// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch"
	"github.com/klutch-go/sdk/klutch/conformance"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	offered = "postgresqlinstances.anynines.com"
	refused = "keyvalueinstances.anynines.com"
)

// TestBackend runs the suite against our own backend, with the shipped rights, on a
// real API server.
func TestBackend(t *testing.T) {
	control := cluster.ForTest(t, "conformance")
	install(t, control)
	issuer := testissuer.Start(t, testissuer.Options{Users: map[string]testissuer.User{
		"ada":   {Password: "engine", Groups: []string{"developers"}},
		"grace": {Password: "cobol", Groups: []string{"developers"}},
	}, Clients: map[string]testissuer.Client{"klutch": {}, "pipeline": {Secret: "x", Audiences: []string{"klutch-machines"}}}})
	conformance.Run(t, conformance.Options{
		URL:     serve(t, control, issuer),
		Service: offered, Refused: refused,
		Login: person("ada", "engine"), OtherLogin: person("grace", "cobol"), DeviceLogin: elsewhere("ada", "engine"),
		MachineToken: func(context.Context) (string, error) { return issuer.MachineToken("pipeline") },
		Object:       object(`{apiVersion: anynines.com/v1, kind: PostgresqlInstance, spec: {service: a9s-postgresql14, plan: postgresql-single-nano}}`),
		ControlPlane: control.Config(),
	})
}

func install(t *testing.T, control *cluster.Cluster) {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, crd := range v1alpha1.CRDs() {
		objects = append(objects, crd)
	}
	objects = append(objects, deploy.Backend("backend")...)
	objects = append(objects, catalog.CRDs()...)
	objects = append(objects, catalog.Roles()...)
	objects = append(objects, catalog.Templates()...)
	objects = append(objects,
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: developer}, rules: [
			{apiGroups: [klutch.anynines.com], resources: [apiserviceexporttemplates], resourceNames: [postgresqlinstances], verbs: [bind]}]}`),
		object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: developer},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: developer},
			subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:developers"}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: "oidc:pipeline"}]}`))
	if err := stack.Apply(t.Context(), control, objects...); err != nil {
		t.Fatal(err)
	}
}

func object(text string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", "  ")), &u.Object); err != nil {
		panic(err)
	}
	return u
}

// serve runs a backend until the test ends, and returns its URL.
func serve(t *testing.T, control *cluster.Cluster, issuer *testissuer.Issuer) string {
	t.Helper()
	path, err := stack.Account(t.Context(), control, t.TempDir(), "klutch-backend", "backend")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- klutch.Backend{
			Config: config, Login: auth.Config{Issuer: issuer.URL(), ClientID: "klutch"},
			Machines: []auth.Config{{Audiences: []string{"klutch-machines"}}},
			Options:  export.Options{ExternalURL: "http://" + address}, ListenAddress: address,
		}.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	awaitAnswer(t, "http://"+address+"/healthz")
	return "http://" + address
}

func awaitAnswer(t *testing.T, url string) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return false, err
		}
		resp, err := http.DefaultClient.Do(req)
		return err == nil && resp.Body.Close() == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := cluster.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// person returns a login in a browser of its own each time.
func person(name, password string) conformance.Login {
	return func(ctx context.Context, url string) error {
		page, err := testissuer.NewBrowser(testissuer.BrowserOptions{Username: name, Password: password}).Visit(ctx, url)
		if err == nil && page.Status >= http.StatusBadRequest {
			return fmt.Errorf("the journey ends at %s with %d: %s", page.URL.Path, page.Status, page.Body)
		}
		return err
	}
}

// elsewhere returns a login of a person with a browser on another device.
func elsewhere(name, password string) func(ctx context.Context, url, code string) error {
	return func(ctx context.Context, url, code string) error {
		browser := testissuer.NewBrowser(testissuer.BrowserOptions{Username: name, Password: password, Transport: unhurried{}})
		_, err := browser.Visit(ctx, strings.TrimSuffix(url, "/device")+"/authorize?user_code="+code)
		return err
	}
}

// unhurried looks again at the page that waits for a program once a second.
type unhurried struct{}

func (unhurried) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet && r.URL.Path == "/device" && r.URL.RawQuery == "" && r.Header.Get("Sec-Fetch-Site") == "same-origin" {
		select {
		case <-time.After(time.Second):
		case <-r.Context().Done():
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// wrong are backends that break a fact each, and what the suite says of them.
var wrong = map[string]struct {
	serve http.HandlerFunc
	says  []string
}{
	"another apiVersion": {document("klutch.anynines.com/v1alpha1", "v1.0.0", ""), []string{"document: ", "WIRE 1.10: apiVersion"}},
	"another origin":     {document("v1alpha1", "v1.0.0", "https://evil.example"), []string{"WIRE 1.10"}},
	"no version":         {document("v1alpha1", "latest", ""), []string{`WIRE 1.10: version "latest"`}},
	"open redirect": {func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/authorize" {
			http.Redirect(w, r, r.URL.Query().Get("redirect_uri"), http.StatusFound)
			return
		}
		document("v1alpha1", "v1.0.0", "")(w, r)
	}, []string{"P1: redirect_uri=\"http://evil.example/callback\"", "P6: POST /bind", "P11: Content-Security-Policy"}},
	"open catalogue": {func(w http.ResponseWriter, r *http.Request) {
		document("v1alpha1", "v1.0.0", "")(w, r)
		if r.URL.Path == "/resources" {
			_, _ = w.Write([]byte("<a class=postgresqlinstances>"))
		}
	}, []string{"P7: GET /resources shows " + offered}},
	"trusts everybody": {trust, []string{
		"WIRE 1.10: POST of nothing at the tokenURL", "WIRE 1.10: the document depends on who asks",
		"RFC 8628 3.5: no person has confirmed the code", "RFC 8628: the login leads to tenant-",
		`RFC 6750 3: Authorization "Bearer x" is answered with 200`, "SECURITY 2: a machine and a person share tenant-",
		"P13: the token is good",
	}},
}

// trust hands the one tenant out to every client, and the tenant of another person to
// clients on another device.
func trust(w http.ResponseWriter, r *http.Request) {
	base, query := "http://"+r.Host, r.URL.Query()
	_ = r.ParseForm()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/authorize":
		http.Redirect(w, r, query.Get("redirect_uri")+"?code="+query.Get("state")+"&state="+query.Get("state"), http.StatusFound)
	case "/device":
		_, _ = fmt.Fprintf(w, `{"device_code": "d", "user_code": "U", "verification_uri": "%s/device", "expires_in": 60, "interval": 1}`, base)
	case "/token", "/bind-noninteractive":
		_, _ = fmt.Fprintf(w, `{"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "BindingResponse", "kubeconfig": %q, "requests": [{}],
			"authentication": {"oauth2CodeGrant": {"sid": %q, "id": "i/s"}}}`, base64.StdEncoding.EncodeToString(written(access("tenant-"+r.Form.Get("device_code")+"0"))), r.Form.Get("code"))
	default:
		_, _ = fmt.Fprintf(w, `{"apiVersion": "v1alpha1", "kind": "BindingProvider", "version": "v1.0.0", "providerPrettyName": "For %[2]s", "authenticationMethods":
			[{"method": "OAuth2CodeGrant", "oauth2CodeGrant": {"authenticatedURL": "%[1]s/authorize", "tokenURL": "%[1]s/token", "deviceURL": "%[1]s/device"}}]}`, base, r.Header.Get("X-Forwarded-Host"))
	}
}

// yes is an API server for which every token is good, and nothing ever goes.
var yes = sync.OnceValue(func() *httptest.Server {
	return httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "cluster"}}`)
	}))
})

func access(tenant string) *kubeconfig.Kubeconfig {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: yes().Certificate().Raw})
	return &kubeconfig.Kubeconfig{Server: yes().URL, CAData: ca, Namespace: tenant, Token: "x"}
}

func written(k *kubeconfig.Kubeconfig) []byte {
	data, err := k.Write()
	if err != nil {
		panic(err)
	}
	return data
}

// document answers everything with a discovery document.
func document(apiVersion, version, origin string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if origin == "" {
			origin = "http://" + r.Host
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"apiVersion": %q, "kind": "BindingProvider", "version": %q, "providerPrettyName": "Wrong", "authenticationMethods":
			[{"method": "OAuth2CodeGrant", "oauth2CodeGrant": {"authenticatedURL": "%[3]s/authorize", "tokenURL": "%[3]s/token"}}]}`, apiVersion, version, origin)
	}
}

const victim = "KLUTCH_CONFORMANCE_VICTIM"

// TestWrongBackends shows that the suite finds mistakes of a backend, in a process of its own,
// since a subtest that fails is a test that fails.
func TestWrongBackends(t *testing.T) {
	if name := os.Getenv(victim); name != "" {
		server := httptest.NewServer(wrong[name].serve)
		defer server.Close()
		conformance.Run(t, conformance.Options{
			URL: server.URL, Service: offered, Login: person("", ""), ControlPlane: access("").RESTConfig(), Patience: time.Second,
			DeviceLogin:  func(context.Context, string, string) error { return nil },
			MachineToken: func(context.Context) (string, error) { return "x", nil },
		})
		return
	}
	if testing.Short() {
		t.Skip("starts a process for each mistake of a backend")
	}
	for name, backend := range wrong {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestWrongBackends/(discovery|refusal|device|machine|revocation)")
			cmd.Env = append(os.Environ(), victim+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite is content:\n%s", out)
			}
			for _, words := range backend.says {
				if !bytes.Contains(out, []byte(words)) {
					t.Errorf("the suite does not say %q:\n%s", words, out)
				}
			}
		})
	}
}
