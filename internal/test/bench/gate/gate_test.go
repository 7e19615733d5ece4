// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

func TestKindOf(t *testing.T) {
	for target, want := range map[string]string{
		"GET /api/v1/namespaces?watch=1":                                                      "watch",
		"GET /api/v1/namespaces":                                                              "read",
		"GET /api/v1/namespaces/a/secrets/b":                                                  "read of a Secret",
		"PUT /api/v1/namespaces/a/secrets/b":                                                  "write",
		"PUT /apis/coordination.k8s.io/v1/namespaces/a/leases/b":                              "lease",
		"POST /apis/authorization.k8s.io/v1/subjectaccessreviews":                             "access review",
		"PATCH /apis/klutch.anynines.com/v1alpha1/namespaces/a/apiserviceexports/b/status?x=": "write",
	} {
		method, url, _ := strings.Cut(target, " ")
		if got := kindOf(httptest.NewRequestWithContext(t.Context(), method, url, http.NoBody)); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}

// TestGate sends a client through: the gate sees what is asked for, also what does not
// end, and passes the credential on.
func TestGate(t *testing.T) {
	watching := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Has("watch") {
			w.(http.Flusher).Flush()
			close(watching)
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`))
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	g, err := New(ctx, &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer g.server.Close()
	defer cancel()
	client := through(t, g)
	if _, err := client.CoreV1().Namespaces().Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	<-watching
	requests, watches := g.Seen()
	if diff := cmp.Diff(map[string]int{"read": 1, "watch": 1}, requests); diff != "" || watches != 1 {
		t.Errorf("%d watches, requests (-want +got):\n%s", watches, diff)
	}
	w.Stop()
}

// through returns a client with the kubeconfig that the gate makes of another one.
func through(t *testing.T, g *Gate) kubernetes.Interface {
	t.Helper()
	dir := t.TempDir()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://api.example.com"}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*config, dir+"/config"); err != nil {
		t.Fatal(err)
	}
	path, err := g.Kubeconfig(dir+"/config", dir)
	if err != nil {
		t.Fatal(err)
	}
	rc, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return client
}
