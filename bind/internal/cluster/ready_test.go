// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestIsReady(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions []v1alpha1.Condition
		want       bool
		waitingFor string
	}{
		{"no konnector", nil, false, ": no konnector has taken it up yet"},
		{"ready", []v1alpha1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 2}, v1alpha1.True("Connected")}, true, ""},
		{"ready, of a konnector that counts nothing", []v1alpha1.Condition{{Type: "Ready", Status: "True"}, v1alpha1.True("Connected")}, true, ""},
		{"ready by the Secret alone, as Klutch's konnector says", []v1alpha1.Condition{{Type: "Ready", Status: "True"}, v1alpha1.True("SecretValid")}, false, notConnected},
		{"ready before the change", []v1alpha1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 1}, v1alpha1.True("Connected")}, false, ""},
		{"two reasons", []v1alpha1.Condition{
			v1alpha1.False("Ready", "Error", "A", "a"), v1alpha1.False("Connected", "Error", "A", "a."), v1alpha1.True("SecretValid"), v1alpha1.Unknown("Synced", "", ""),
		}, false, ": Connected is False: A: a; Synced is Unknown"},
		{"what is no reason", []v1alpha1.Condition{
			v1alpha1.False("Connected", "Error", "A", "a"), v1alpha1.False("ObjectsSynced", "Info", "B", "b"), v1alpha1.False("ObjectsAdopted", "Info", "C", "c"),
		}, false, ": Connected is False: A: a"},
		{"one waits for another", []v1alpha1.Condition{
			v1alpha1.False("Connected", "Error", "A", "a"), v1alpha1.False("InformersSynced", "Info", "Pending", "x"), v1alpha1.False("SchemaInSync", "Info", "Pending", "x"),
		}, false, ": Connected is False: A: a; InformersSynced, SchemaInSync pending"},
	} {
		b := &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: v1alpha1.APIServiceBindingStatus{Conditions: c.conditions}}
		if got := IsReady(b); got != c.want {
			t.Errorf("%s: isReady = %v", c.name, got)
		}
		if got := WaitingFor(b); got != c.waitingFor {
			t.Errorf("%s: waitingFor = %q, want %q", c.name, got, c.waitingFor)
		}
	}
}
