// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/e2e-framework/pkg/features"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// TestOperatorExample runs the commands of examples/operator/README.md, and plays the
// operators: the CRDs of others, offered as they are, work in the App Cluster.
func TestOperatorExample(t *testing.T) {
	const (
		ns     = "operator"
		folder = "../../../examples/operator/"
	)
	certificates := schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	clusters := schema.GroupVersionResource{Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"}
	f := features.New("an operator's CRD is offered as it is").
		Assess("the commands of the README", step(ns, func(w world) {
			offers := w.readme(folder, "kubectl --context control-plane apply", nil) + w.readme(folder, "kubectl bind offer ", func(line string) {
				words := strings.Fields(line)[1:]
				w.apply(w.s.Control, w.offered(words[:slices.Index(words, "|")])...)
			})
			if n := offers + w.readme(folder, "kubectl bind https://", nil) + w.readme(folder, "kubectl --context app apply", nil); n != 5 {
				w.Errorf("%d commands were run, want CRDs, two offers, a bind and an apply", n)
			}
			w.noOther(folder, "kubectl --context control-plane apply", "kubectl bind offer ", "kubectl bind https://", "kubectl --context app apply", "kubectl --context app get")
		})).
		Assess("status and Secrets of the operators arrive", step(ns, func(w world) {
			for gvr, made := range map[schema.GroupVersionResource][2]string{certificates: {"shop", "shop-tls"}, clusters: {"orders", "orders-app"}} {
				theirs := w.mirror(gvr, made[0])
				w.await(theirs, stack.There)
				secret := object("v1", "Secret", theirs.Namespace, made[1], map[string]any{"stringData": map[string]any{"of": made[0]}})
				if gvr == clusters { // no field of which names it
					secret.SetLabels(map[string]string{"cnpg.io/userType": "app"})
				}
				w.apply(w.s.Control, secret, object("v1", "Secret", theirs.Namespace, "other-"+made[1], nil))
				w.status(theirs, map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}})
				w.await(w.app(gvr, made[0]), stack.True("Ready"))
				w.await(w.app(secrets, made[1]), stack.There)
				if _, err := w.app(secrets, "other-"+made[1]).Get(w.ctx); err == nil {
					w.Errorf("a Secret that no object names came too")
				}
			}
			if n := w.readme(folder, "kubectl --context app get", nil); n != 1 {
				w.Errorf("%d commands were run, want a get", n)
			}
			w.silent(certificates, clusters, secrets, configMaps)
		})).
		Assess("what is deleted is gone on both sides", step(ns, func(w world) {
			for gvr, made := range map[schema.GroupVersionResource][2]string{certificates: {"shop", "shop-tls"}, clusters: {"orders", "orders-app"}} {
				w.remove(w.app(gvr, made[0]))
				w.await(w.app(gvr, made[0]), stack.Gone)
				w.await(w.mirror(gvr, made[0]), stack.Gone)
				w.await(w.app(secrets, made[1]), stack.Gone)
			}
		})).
		Feature()
	testenv.Test(t, f)
}

// offered is what kubectl bind offer prints.
func (w world) offered(words []string) []*unstructured.Unstructured {
	w.Helper()
	cmd := exec.CommandContext(w.ctx, filepath.Join(w.s.Dir, "bin", "kubectl-bind"), words[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+w.s.Control.Kubeconfig())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		w.Fatalf("%v: %v\n%s", words, err, &stderr)
	}
	if !strings.Contains(stderr.String(), "note: ") {
		w.Errorf("%v says nothing about the CRD:\n%s", words, &stderr)
	}
	return decode(w.T, out)
}

// status is written as an operator would.
func (w world) status(o stack.Object, status map[string]any) {
	w.Helper()
	c, err := o.Client()
	if err == nil {
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			u := w.get(o)
			u.Object["status"] = status
			_, err := c.UpdateStatus(w.ctx, u, metav1.UpdateOptions{})
			return err
		})
	}
	if err != nil {
		w.Fatal(err)
	}
}

func decode(t *testing.T, data []byte) (all []*unstructured.Unstructured) {
	t.Helper()
	for document := range bytes.SplitSeq(data, []byte("---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.Object != nil {
			all = append(all, u)
		}
	}
	return all
}
