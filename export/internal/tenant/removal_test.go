// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP12StatusIsNoEvidence: a tenant that leaves with objects, and says in the status that
// nothing is left, is still one whose rights are looked after: those to what is not on
// offer any more are taken.
func TestP12StatusIsNoEvidence(t *testing.T) {
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: new(metav1.Now())}}
	binding.Status.Conditions = []v1alpha1.Condition{v1alpha1.False(v1alpha1.ConditionRemoved, v1alpha1.SeverityInfo, v1alpha1.ReasonDraining, "")}
	if terminating(binding) {
		t.Error("the status of a tenant has its rights left alone")
	}
}

// TestP10LeavingIsNoLever: a tenant that leaves with objects has the backend look at what is
// left seldom, however often it writes.
func TestP10LeavingIsNoLever(t *testing.T) {
	r := &removals{}
	binding := &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{UID: "x", DeletionTimestamp: new(metav1.Now())}}
	if left := r.resting(binding); left != 0 {
		t.Errorf("the first look is in %s", left)
	}
	if left := r.resting(binding); left <= 0 || left > removalRetry {
		t.Errorf("the next look is in %s", left)
	}
	binding.Annotations = map[string]string{v1alpha1.DrainingAnnotation: "true"}
	if left := r.resting(binding); left != 0 {
		t.Errorf("a step of a removal is in %s", left)
	}
}
