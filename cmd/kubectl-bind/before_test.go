// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// What can be seen to be wrong is said before a person logs in, and no person is asked.
func TestBeforeTheBrowser(t *testing.T) {
	backend := newFakeAPI(t, nil)
	empty := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", empty)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	noContext := clientcmdapi.NewConfig()
	noContext.Clusters["one"] = &clientcmdapi.Cluster{Server: "https://203.0.113.1"}
	headless := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*noContext, headless); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"accepted and rejected":       {[]string{backend.URL, "--accept-claim", "secrets", "--reject-claim", "secrets"}, exitUsage, "secrets is both accepted and rejected"},
		"one accepted, all rejected":  {[]string{backend.URL, "--accept-claim", "things.example.com/secrets", "--reject-claim", "secrets"}, exitUsage, "things.example.com/secrets is both accepted and rejected"},
		"no claim":                    {[]string{backend.URL, "--accept-claim", "Secrets please"}, exitUsage, "is no claim"},
		"of no service":               {[]string{backend.URL, "--service", "things.example.com", "--accept-claim", "thinks.example.com/secrets"}, exitUsage, "--service does not name thinks.example.com"},
		"a slip in a command":         {[]string{"statu"}, exitUsage, "Did you mean: status?"},
		"and in one of konnector":     {[]string{"konnector", "upgrad"}, exitUsage, `unknown command "upgrad". Did you mean: upgrade?`},
		"bind twice":                  {[]string{"bind", backend.URL}, exitUsage, "did you mean kubectl bind URL?"},
		"a slip in a flag":            {[]string{"status", "--nmaespace", "team"}, exitUsage, "unknown flag: --nmaespace. Did you mean: --namespace?"},
		"no name of a service":        {[]string{backend.URL, "--service", "Things.example.com"}, exitUsage, "RESOURCE.GROUP"},
		"a service of Kubernetes":     {[]string{backend.URL, "--service", "clusterroles.rbac.authorization.k8s.io"}, exitUsage, "clusterroles.rbac.authorization.k8s.io"},
		"a dry run that only looks":   {[]string{backend.URL, "--service", "things.example.com", "--dry-run=server"}, exitUsage, "--dry-run=client"},
		"http to anywhere":            {[]string{"http://klutch.example.com"}, exitUsage, "https://klutch.example.com"},
		"no host":                     {[]string{"https://"}, exitUsage, "not an http or https URL"},
		"no kubeconfig":               {[]string{"status"}, exitError, "no cluster is named"},
		"none for a bind":             {[]string{backend.URL}, exitError, "--kubeconfig or KUBECONFIG"},
		"none for a repair":           {[]string{"repair"}, exitError, "--kubeconfig or KUBECONFIG"},
		"none for services":           {[]string{"services"}, exitError, "--kubeconfig or KUBECONFIG"},
		"none for the konnector":      {[]string{"konnector", "install", "--image", "a"}, exitError, "--kubeconfig or KUBECONFIG"},
		"no context is chosen":        {[]string{"status", "--kubeconfig", headless}, exitError, "--kubeconfig or KUBECONFIG"},
		"a URL without its scheme":    {[]string{"klutch.example.org"}, exitUsage, `"klutch.example.org" is neither a command nor the URL of a backend; did you mean https://klutch.example.org, or kubectl bind URL --service klutch.example.org?`},
		"and with a port and a path":  {[]string{"localhost:8443/export"}, exitUsage, "did you mean https://localhost:8443/export?"},
		"and of services":             {[]string{"services", "klutch.example.org"}, exitUsage, "did you mean https://klutch.example.org, or kubectl bind URL --service klutch.example.org?"},
		"a context that is not there": {[]string{"status", "--kubeconfig", headless, "--context", "two"}, exitError, "kubectl config get-contexts"},
	} {
		r := terminal{}.run(t.Context(), c.args...)
		if r.code != c.code || !strings.Contains(r.errOut, c.says) {
			t.Errorf("%s: %s", name, r)
		}
	}
	if len(backend.requests) > 0 {
		t.Errorf("asked %v", backend.requests)
	}
}

// What the App Cluster knows better is said before a person logs in, too.
func TestBeforeTheBrowserOfACluster(t *testing.T) {
	backend := newFakeBackend(t)
	core := map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": []any{
		map[string]any{"name": "secrets", "singularName": "secret", "namespaced": true, "kind": "Secret", "verbs": []any{"get"}},
	}}
	foreign := map[string]any{"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": map[string]any{"name": "things.example.com"}}
	app := newFakeAPI(t, map[string]any{"/api/v1": core, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com": foreign})
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a slip in a claim":   {[]string{"--service", "others.example.com", "--accept-claim", "secret"}, exitUsage, "--accept-claim secret: this cluster has no such resource. Did you mean: secrets?"},
		"a slip in a refusal": {[]string{"--service", "others.example.com", "--reject-claim", "others.example.com/secret"}, exitUsage, "--reject-claim others.example.com/secret"},
		"a kind that is here": {[]string{"--service", "things.example.com"}, exitConflict, "no binding made it"},
	} {
		args := append([]string{backend.URL, "--backend-certificate-authority", backend.authority(t), "--kubeconfig", app.kubeconfig(t), "--skip-konnector"}, c.args...)
		r := backend.browser(t, "").run(t.Context(), args...)
		if r.code != c.code || !strings.Contains(r.errOut, c.says) {
			t.Errorf("%s: %s", name, r)
		}
	}
	if len(backend.requests) > 0 {
		t.Errorf("the platform was asked %v", backend.requests)
	}
}

// An https port that is spoken to in http says so, and the URL is named that works.
func TestHTTPToAnHTTPSBackend(t *testing.T) {
	backend := newFakeBackend(t)
	url := strings.Replace(backend.URL, "https://", "http://", 1)
	app := newFakeAPI(t, nil)
	r := terminal{}.run(t.Context(), url, "--skip-konnector", "--kubeconfig", app.kubeconfig(t))
	if r.code != exitUsage || !strings.Contains(r.errOut, "https://") || !strings.Contains(r.errOut, "speaks https") {
		t.Errorf("got %s", r)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	r = terminal{}.run(t.Context(), strings.Replace(plain.URL, "http://", "https://", 1), "--skip-konnector", "--kubeconfig", app.kubeconfig(t))
	if r.code != exitUsage || !strings.Contains(r.errOut, "speaks http") {
		t.Errorf("got %s", r)
	}
}

// What answers and is no API server, such as the health port of a program, holds nothing that
// could be listed.
func TestNoAPIServer(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"knows nothing": http.NotFound,
		"is well":       func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) },
	} {
		app := newFakeAPI(t, nil)
		app.Config.Handler = answer
		r := terminal{}.run(t.Context(), "status", "--kubeconfig", app.kubeconfig(t))
		if r.code != exitError || !strings.Contains(r.errOut, "is no Kubernetes API server") || !strings.Contains(r.errOut, "--kubeconfig or KUBECONFIG") {
			t.Errorf("%s: %s", name, r)
		}
	}
}
