// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
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
	"github.com/klutch-go/sdk/internal/cluster"
	"github.com/klutch-go/sdk/internal/stack"
	"github.com/klutch-go/sdk/internal/testissuer"
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
	}})
	conformance.Run(t, conformance.Options{
		URL:     serve(t, control, issuer),
		Service: offered, Refused: refused,
		Login: person("ada", "engine"), OtherLogin: person("grace", "cobol"),
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
			subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:developers"}]}`))
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
			Options: export.Options{ExternalURL: "http://" + address}, ListenAddress: address,
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
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
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
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // nothing was written
	return l.Addr().String()
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

// TestWrongBackends shows that the suite finds what is wrong, in a process of its own
// since a subtest that fails is a test that fails.
func TestWrongBackends(t *testing.T) {
	if name := os.Getenv(victim); name != "" {
		server := httptest.NewServer(wrong[name].serve)
		defer server.Close()
		nobody := func(context.Context, string) error { return nil }
		conformance.Run(t, conformance.Options{URL: server.URL, Service: offered, Login: nobody})
		return
	}
	for name, backend := range wrong {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=TestWrongBackends/(discovery|refusal)")
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
