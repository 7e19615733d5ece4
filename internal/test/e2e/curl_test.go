// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os/exec"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestCurl binds with testdata/curl.sh: the handshake needs no program of ours.
func TestCurl(t *testing.T) {
	for _, program := range []string{"curl", "openssl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%[1]s is not installed: the login with curl alone is not tested. On Debian: apt-get install %[1]s", program)
		}
	}
	testenv.Test(t, features.New("services are bound with curl alone").Assess("the kubeconfig works", step("curl", boundWithCurl)).Feature())
}

func boundWithCurl(w world) {
	id, err := bind.ClusterID(w.ctx, w.s.App.Config())
	w.must(err)
	args := append([]string{"testdata/curl.sh", w.s.BackendURL, w.s.BackendCA, stack.Developer, stack.Password, id}, services[:2]...)
	var out, said bytes.Buffer
	cmd := exec.CommandContext(w.ctx, "sh", args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		w.Fatalf("%v\n%s", err, &said)
	}
	w.handOver(out.Bytes())
	config, err := kubeconfig.Read(out.Bytes())
	w.must(err)
	client, err := dynamic.NewForConfig(config.RESTConfig())
	w.must(err)
	exports, err := client.Resource(v1alpha1.Resource("apiserviceexports")).Namespace(config.Namespace).List(w.ctx, metav1.ListOptions{})
	w.must(err)
	if !slices.ContainsFunc(exports.Items, func(u unstructured.Unstructured) bool { return u.GetName() == services[0] }) {
		w.Errorf("%d exports, and none is %s", len(exports.Items), services[0])
	}
	if _, err := client.Resource(secrets).Namespace("kube-system").List(w.ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		w.Errorf("Secrets of kube-system: %v", err)
	}
}
