// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A tenant is made anew under its name, and its credential comes into the App Cluster by itself, as
// from a store of Secrets. The binding says so, and nothing is written on either side until
// its owner runs kubectl bind again. Then ten of the instances are made anew, which are empty, and the
// others once the owner releases them.
func TestControlPlaneReplaced(t *testing.T) {
	const n, limit = 12, 10
	w := newWorld(t)
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	w.offer(t, export)
	plugin, backend := buildPlugin(t), w.handshake(t)
	w.run(t, bind.Options{HeartbeatInterval: 2 * time.Second})
	eventually(t, func() error { // bindings are served
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.granted(t, func() error { return plugin.bind(t, w.app, backend) })
	w.ready(t, widgets)
	name := func(i int) string { return fmt.Sprint("db-", i) }
	w.app.apply(t, object("v1", "Namespace", "", "team", nil))
	for i := range n {
		w.app.apply(t, widget("team", name(i), written("as ordered")))
	}
	service := w.serveNamespace(t, "team", widgetRights)
	up := func(state string) {
		t.Helper()
		for i := range n {
			w.travelled(t, service, name(i))
			w.controlPlane.patchStatus(t, widgetsGVR, service, name(i), map[string]any{"secret": state})
		}
		for i := range n {
			eventually(t, func() error {
				claim := get[unstructured.Unstructured](t, w.app, widgetsGVR, "team", name(i))
				if diff := cmp.Diff(map[string]any{"secret": state}, claim.Object["status"]); diff != "" {
					return fmt.Errorf("status of %s (-want +got):\n%s", name(i), diff)
				}
				return nil
			})
		}
	}
	up("first")
	uid := func() string {
		return string(get[unstructured.Unstructured](t, w.controlPlane, namespacesGVR, "", tenant).GetUID())
	}

	former := uid()
	w.removeTenant(t, service)
	w.controlPlane.apply(t, read(t, filepath.Join("testdata", "tenant.yaml"))...)
	w.controlPlane.apply(t, export)
	before := w.app.versionsOf(t, widgetsGVR)
	used := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets).Spec.KubeconfigSecretRef.Name
	w.app.apply(t, secret(v1alpha1.Namespace, used, w.kubeconfig(t)))
	w.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneReplaced, former, uid(), "run kubectl bind again")
	<-time.After(5 * time.Second) // in which it would have beaten and synced
	cb := get[v1alpha1.ClusterBinding](t, w.controlPlane, clustersGVR, tenant, v1alpha1.ClusterBindingName)
	if asked, err := w.controlPlane.dyn.Resource(requestedGVR).List(t.Context(), metav1.ListOptions{}); err != nil || len(asked.Items) > 0 || cb.Status.ClusterUID != "" || !cb.Status.LastHeartbeatTime.IsZero() {
		t.Errorf("written to the new tenant: %+v, %+v, %v", cb.Status, asked, err)
	}
	if diff := cmp.Diff(before, w.app.versionsOf(t, widgetsGVR)); diff != "" {
		t.Errorf("claims were written (-before +after):\n%s", diff)
	}

	w.granted(t, func() error { return plugin.bind(t, w.app, backend) })
	w.ready(t, widgets)
	w.serveNamespace(t, "team", widgetRights)
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, fmt.Sprint(n-limit), "not made anew",
		"kubectl bind status "+widgets, fmt.Sprintf("annotate --overwrite apiservicebinding %s %s=", widgets, klutchsync.ReleaseAnnotation))
	eventually(t, func() error {
		made := 0
		for i := range n {
			if w.controlPlane.parameter(t, service, name(i)) == "as ordered" {
				made++
			} else if err := w.lacksWords(t, name(i), string(klutchsync.ReasonVanished), "it is not made anew", klutchsync.ReleaseAnnotation); err != nil {
				return err // its pause goes on
			}
		}
		if made != limit {
			return fmt.Errorf("%d instances were made anew", made)
		}
		return nil
	})
	held := v1alpha1.FindCondition(get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets).Status.Conditions, v1alpha1.ConditionDeletionsInSync)
	_, command, _ := strings.Cut(held.Message, "If all are meant, run: ")
	w.app.types(t, command)
	up("second")
	w.condition(t, widgets, v1alpha1.ConditionDeletionsInSync, "")
	w.condition(t, widgets, v1alpha1.ConditionObjectsSynced, "")
}

// types has a shell do what a command says, with kubectl.
func (s *side) types(t *testing.T, command string) {
	t.Helper()
	bin := tempdir.ForTest(t, "kubectl")
	if err := cluster.Kubectl(t.Context(), bin); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command) //nolint:gosec // of a message of ours
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(), "PATH="+bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || command == "" {
		t.Fatalf("%q: %v\n%s", command, err, out)
	}
}

// removeTenant removes the tenant and one service namespace, with all that is in them, and waits until the
// API server takes no token of the tenant any more: it remembers for ten seconds that it took one, and
// another cluster never did. The rights go first, so that the konnector counts no instance of this tenant
// as one that it makes anew.
func (w *world) removeTenant(t *testing.T, service string) {
	t.Helper()
	clients := w.tenantClients(t)
	w.controlPlane.delete(t, roleBindingsGVR, service, "klutch-binder")
	for name, client := range clients {
		eventually(t, func() error {
			if _, err := client.Resource(widgetsGVR).Namespace(service).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				return fmt.Errorf("the token of %s has rights: %w", name, err)
			}
			return nil
		})
	}
	for _, namespace := range []string{service, tenant} {
		w.controlPlane.delete(t, namespacesGVR, "", namespace)
		w.absent(t, namespacesGVR, "", namespace)
	}
	for name, client := range clients {
		eventually(t, func() error {
			if _, err := client.Resource(clustersGVR).Namespace(tenant).List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("the token of %s is taken: %w", name, err)
			}
			return nil
		})
	}
}

// tenantClients are clients with each kubeconfig that the App Cluster holds, by the Secret's name.
func (w *world) tenantClients(t *testing.T) map[string]dynamic.Interface {
	t.Helper()
	secrets, err := w.app.dyn.Resource(secretsGVR).Namespace(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	clients := map[string]dynamic.Interface{}
	for _, s := range secrets.Items {
		held, _, _ := unstructured.NestedString(s.Object, "data", v1alpha1.KubeconfigKey)
		data, err := base64.StdEncoding.DecodeString(held)
		if err != nil || len(data) == 0 {
			continue
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(data)
		if err != nil {
			t.Fatal(err)
		}
		clients[s.GetName()] = dynamic.NewForConfigOrDie(config)
	}
	return clients
}

// handshake is the URL of a backend that lets all in, without an issuer, and grants widgets with the
// access that the tenant has then.
func (w *world) handshake(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	sessions := make(chan string, 1)
	mux.HandleFunc("GET /export", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{
			"apiVersion": "v1alpha1", "kind": "BindingProvider", "version": "v1.0.0", "providerPrettyName": "Test backend",
			"authenticationMethods": []any{map[string]any{"method": "OAuth2CodeGrant", "oauth2CodeGrant": map[string]any{
				"authenticatedURL": server.URL + "/authorize", "tokenURL": server.URL + "/token", "issuer": server.URL,
			}}},
		})
	})
	mux.HandleFunc("GET /authorize", func(w http.ResponseWriter, r *http.Request) {
		asked := r.URL.Query()
		sessions <- asked.Get("state")
		code := url.Values{"code": {"one-time"}, "state": {asked.Get("state")}, "iss": {server.URL}}
		http.Redirect(w, r, asked.Get("redirect_uri")+"?"+code.Encode(), http.StatusSeeOther)
	})
	mux.HandleFunc("POST /token", func(rw http.ResponseWriter, _ *http.Request) {
		answer(rw, map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "BindingResponse", "kubeconfig": w.kubeconfig(t), "requests": installOptions("widgets", nil, "").Requests, //nolint:contextcheck // the world has one
			"authentication": map[string]any{"oauth2CodeGrant": map[string]any{"sid": <-sessions, "id": "https://issuer.example.com/ada"}},
		})
	})
	return server.URL + "/export"
}

// bind runs kubectl bind URL and follows the URL that it prints, as a browser does.
func (p plugin) bind(t *testing.T, s *side, backend string) error {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), string(p), backend, "--no-browser", "--skip-konnector", "--yes", "--kubeconfig", s.Kubeconfig())
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	var all strings.Builder
	for lines := bufio.NewScanner(said); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		_, _ = fmt.Fprintln(&all, line)
		if strings.HasPrefix(line, "http://") {
			go func() {
				if resp, err := http.Get(line); err == nil { //nolint:gosec // of the test's own server
					_ = resp.Body.Close()
				}
			}()
		}
	}
	if err := cmd.Wait(); err != nil {
		return errors.New(err.Error() + "\n" + all.String())
	}
	return nil
}
