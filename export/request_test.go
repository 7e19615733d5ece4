// SPDX-License-Identifier: Apache-2.0

package export

import (
	"testing"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestAnswer(t *testing.T) {
	refused := &refusal{v1alpha1.ReasonCRDNotFound, "no CRD", true}
	for name, test := range map[string]struct {
		refused *refusal
		wait    bool
		phase   v1alpha1.RequestPhase
		message string
	}{
		"granted": {nil, false, v1alpha1.RequestSucceeded, ""},
		"waiting": {refused, true, v1alpha1.RequestPending, ""},
		"failed":  {refused, false, v1alpha1.RequestFailed, "no CRD"},
	} {
		o := &v1alpha1.APIServiceExportRequest{Status: v1alpha1.APIServiceExportRequestStatus{Phase: v1alpha1.RequestPending}}
		answer(o, test.refused, test.wait)
		ready := v1alpha1.IsTrue(o.Status.Conditions, v1alpha1.ConditionReady)
		if o.Status.Phase != test.phase || o.Status.TerminalMessage != test.message || ready != (test.refused == nil) {
			t.Errorf("%s: %+v", name, o.Status)
		}
	}
}
