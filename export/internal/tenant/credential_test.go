// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

const clusterInfo = `{apiVersion: v1, kind: Config, clusters: [{name: "", cluster: {server: "https://public.example.com:6443", certificate-authority-data: Y2E=}}]}`

// TestReachable: what the operator says goes before what the cluster says, and that
// before what the backend itself uses.
func TestReachable(t *testing.T) {
	own := &rest.Config{Host: "https://10.0.0.1:443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("own")}}
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "cluster-info", errors.New("no"))
	for name, test := range map[string]struct {
		said APIServer
		info string
		err  error
		want *kubeconfig.Kubeconfig // nil means an error
	}{
		"said":            {said: APIServer{URL: "https://said.example.com", CAData: []byte("said")}, info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://said.example.com", CAData: []byte("said")}},
		"public":          {info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://public.example.com:6443", CAData: []byte("ca")}},
		"CA said":         {said: APIServer{CAData: []byte("said")}, info: clusterInfo, want: &kubeconfig.Kubeconfig{Server: "https://public.example.com:6443", CAData: []byte("said")}},
		"nothing public":  {want: &kubeconfig.Kubeconfig{Server: "https://10.0.0.1:443", CAData: []byte("own")}},
		"may not read it": {info: clusterInfo, err: forbidden, want: &kubeconfig.Kubeconfig{Server: "https://10.0.0.1:443", CAData: []byte("own")}},
		"outage":          {info: clusterInfo, err: errors.New("outage")},
		"plain http":      {info: `{clusters: [{name: "", cluster: {server: "http://public.example.com"}}]}`},
		"no cluster":      {info: `{apiVersion: v1}`},
		"no YAML":         {info: `{`},
	} {
		client := fake.NewClientset()
		if test.info != "" {
			client = fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "cluster-info", Namespace: "kube-public"}, Data: map[string]string{"kubeconfig": test.info}})
		}
		if test.err != nil {
			client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.err })
		}
		c := &credentials{Clients: Clients{Kube: client}, opts: &Options{APIServer: test.said, Backend: own}}
		got, err := c.reachable(t.Context())
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.want != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
}
