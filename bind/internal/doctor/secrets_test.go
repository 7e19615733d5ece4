// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic/fake"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Platforms are asked at once: of two that each answer only when the other was asked, both do, and
// what doctor says of them is in the order of the bindings.
func TestSecretsAreLookedAtAtOnce(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(2)
	var all []v1alpha1.APIServiceBinding
	var secrets []runtime.Object
	for _, name := range []string{"zebra", "aardvark"} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Done()
			asked.Wait()
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterBinding", "metadata": map[string]any{"name": "cluster"}})
		}))
		t.Cleanup(server.Close)
		k := &kubeconfig.Kubeconfig{Server: server.URL, Namespace: "tenant", Token: "t", CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
		data, err := k.Write()
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": name, "namespace": v1alpha1.Namespace}, "data": map[string]any{v1alpha1.KubeconfigKey: base64.StdEncoding.EncodeToString(data)},
		}})
		b := v1alpha1.APIServiceBinding{}
		b.Name, b.Spec.KubeconfigSecretRef = name, v1alpha1.ClusterSecretKeyRef{LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: name}, Namespace: v1alpha1.Namespace}
		all = append(all, b)
	}
	d := newDoctor(time.Now())
	d.app = &cluster.App{Interface: fake.NewSimpleDynamicClient(runtime.NewScheme(), secrets...)}
	d.checkSecrets(t.Context(), all)
	var said []string
	for _, f := range d.found {
		if f.Check == "control-plane" && f.OK {
			said = append(said, f.About)
		}
	}
	if got := strings.Join(said, " "); got != v1alpha1.Namespace+"/zebra "+v1alpha1.Namespace+"/aardvark" {
		t.Errorf("%q answer: %+v", got, d.found)
	}
}
