// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP25HostileOffer: a platform that says something else of its export all the time,
// and claims something else, neither has the binding written each time, nor leaves audit
// records of answers that no person gave.
func TestP25HostileOffer(t *testing.T) {
	w, said := newWorld(t), &record{}
	export := read(t, "testdata/widgets.yaml")[0]
	w.offer(t, export)
	w.app.apply(t, v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"], secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.bind(t, widgets, allSecrets("Provider"))
	w.allow(t, widgets)
	w.run(t, bind.Options{}, said.logger())
	w.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	watch, err := w.app.dyn.Resource(bindingsGVR).Namespace(w.bindings).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	writes := 0
	deadline := time.Now().Add(5 * time.Second)
	for n := 0; time.Now().Before(deadline); n++ {
		w.controlPlane.edit(t, exportsGVR, cache.NewObjectName(tenant, widgets), func(e *v1alpha1.APIServiceExport) {
			e.Status.Conditions = v1alpha1.SetCondition(e.Status.Conditions, v1alpha1.Condition{
				Type: v1alpha1.ConditionOffered, Status: "False", Severity: "Error", Reason: fmt.Sprint("Reason", n), Message: fmt.Sprint("message ", n),
			})
		})
		w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{
			"permissionClaims": []any{map[string]any{"resource": fmt.Sprintf("things%d", n), "group": "example.org", "version": "v1"}},
		}})
		for drained := false; !drained; {
			select {
			case <-watch.ResultChan():
				writes++
			default:
				drained = true
			}
		}
	}
	if writes > 45 {
		t.Errorf("the binding was written %d times in five seconds", writes)
	}
	said.mu.Lock()
	defer said.mu.Unlock()
	if n := strings.Count(said.text.String(), `"msg":"claims answered"`); n != 1 {
		t.Errorf("%d audit records of answers", n)
	}
}
