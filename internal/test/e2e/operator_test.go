// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
)

var atRest = flag.Duration("rest", 5*time.Second, "how long nothing may be written beside an example's claims at rest")

// TestOperatorExample runs the commands of examples/operator/README.md, and plays the
// operators: the CRDs of others, offered as they are, work in the App Cluster.
func TestOperatorExample(t *testing.T) {
	const (
		ns     = "operator"
		folder = "../../../examples/operator/"
		get    = "kubectl --context app get secret shop-tls"
	)
	certificates := schema.GroupVersionResource{Group: "cert-manager.io", Version: "v1", Resource: "certificates"}
	clusters := schema.GroupVersionResource{Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"}
	f := features.New("an operator's CRD is offered as it is").
		Assess("the commands of the README", step(ns, func(w world) {
			commands, err := w.reader(folder).Others(get) // which is typed later, when there is something
			w.must(err)
			for _, command := range commands {
				out, err := w.reader(folder).Type(w.ctx, command)
				w.must(err)
				if strings.HasPrefix(command, "kubectl bind offer ") && !strings.Contains(out.Stderr, "note: ") {
					w.Errorf("%s says nothing about the CRD:\n%s", command, out.Stderr)
				}
			}
			if len(commands) != 5 {
				w.Errorf("%q, want CRDs, two offers, a bind and an apply", commands)
			}
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
			_, err := w.reader(folder).Type(w.ctx, get)
			w.must(err)
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

func (w world) reader(folder string) stack.Reader {
	return stack.Reader{Stack: w.s, Folder: folder, Namespace: w.namespace}
}

// silent fails the test if an object of the world's namespace is written on either side
// while no user changes anything.
func (w world) silent(resources ...schema.GroupVersionResource) {
	w.Helper()
	written, err := w.reader("").Silent(w.ctx, *atRest, resources...)
	if err != nil || len(written) > 0 {
		w.Errorf("written at rest: %q, %v", written, err)
	}
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
