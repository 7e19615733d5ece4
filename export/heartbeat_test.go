// SPDX-License-Identifier: Apache-2.0

package export

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestHealthy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minute := &metav1.Duration{Duration: time.Minute}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	for name, test := range map[string]struct {
		status v1alpha1.ClusterBindingStatus
		reason string
		again  time.Duration
	}{
		"never":       {v1alpha1.ClusterBindingStatus{}, v1alpha1.ReasonFirstHeartbeatPending, 0},
		"no interval": {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(0)}, v1alpha1.ReasonHeartbeatIntervalMissing, 0},
		"now":         {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(0), HeartbeatInterval: minute}, "", 121 * time.Second},
		"one missed":  {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(-119 * time.Second), HeartbeatInterval: minute}, "", 2 * time.Second},
		"two missed":  {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(-120 * time.Second), HeartbeatInterval: minute}, v1alpha1.ReasonHeartbeatTimeout, 0},
		"ahead":       {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(10 * time.Second), HeartbeatInterval: minute}, "", 131 * time.Second},
		"too far":     {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(11 * time.Second), HeartbeatInterval: minute}, v1alpha1.ReasonHeartbeatTimeDrift, 2 * time.Second},
	} {
		c, again := healthy(now, test.status)
		if c.Reason != test.reason || again != test.again || (c.Status == metav1.ConditionTrue) != (test.reason == "") {
			t.Errorf("%s: %+v again %s", name, c, again)
		}
	}
}
