// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestGates: a tenant waits for what the platform team wants to be there first, is
// told for what, and has no rights meanwhile.
func TestGates(t *testing.T) {
	w := newStillWorld(t)
	var locked atomic.Bool
	locked.Store(true)
	w.serve(Options{Gates: []string{"quota"}, Gate: GateFunc(func(_ context.Context, tenant Tenant) error {
		switch {
		case tenant.Subject != "ada" || tenant.Cluster != "c1":
			return errors.New("asked for another tenant")
		case locked.Load():
			return fmt.Errorf("the account of %s is %w", tenant.Subject, ErrGateClosed)
		}
		return nil
	})})
	ada := w.tenant("ada", "c1", "widgets.example.org")
	if got := ada.request("first", "widgets.example.org"); got.Status.Phase != v1alpha1.RequestSucceeded {
		t.Fatalf("request: %+v", got.Status)
	}
	awaits := func(status metav1.ConditionStatus, text string) {
		t.Helper()
		until(w, "clusterbindings", ada.namespace, "cluster", func(o *v1alpha1.ClusterBinding) bool {
			c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionAdmitted)
			return c != nil && c.Status == status && strings.Contains(c.Message, text)
		})
	}
	gate := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"gate.klutch.anynines.com/quota":%q}}}`, value)
		if _, err := w.admin.CoreV1().Namespaces().Patch(t.Context(), ada.namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	may := func(want bool) {
		t.Helper()
		w.eventually(fmt.Sprintf("rights: %t", want), func(ctx context.Context) (bool, error) {
			got, err := ada.allowed(ctx, ada.namespace+"-team-a", "create", "example.org", "widgets", "")
			return err == nil && got == want, nil
		})
	}
	awaits(metav1.ConditionFalse, "gate.klutch.anynines.com/quota=open on namespace "+ada.namespace)
	ada.create("apiservicenamespaces", object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-a}}"))
	waiting := until(w, "apiservicenamespaces", ada.namespace, "team-a", func(o *v1alpha1.APIServiceNamespace) bool { return len(o.Status.Conditions) > 0 })
	if c := waiting.Status.Conditions[0]; c.Reason != v1alpha1.ReasonGateClosed || waiting.Status.Namespace != "" {
		t.Errorf("service namespace: %+v", waiting.Status)
	}
	if _, err := w.admin.CoreV1().Namespaces().Get(t.Context(), ada.namespace+"-team-a", metav1.GetOptions{}); err == nil {
		t.Error("there is a service namespace before the gate is open")
	}
	gate("open")
	awaits(metav1.ConditionFalse, "the account of ada is closed")
	may(false)
	locked.Store(false)
	awaits(metav1.ConditionTrue, "")
	may(true)
	gate("closed") // again
	awaits(metav1.ConditionFalse, "gate quota is closed")
	may(false)
	gate("open")
	may(true)
}
