// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestNewCredential: with a new token nothing is asked of a tenant before a look has shown whose it is,
// however long that takes; of another tenant nothing is asked at all.
func TestNewCredential(t *testing.T) {
	for name, replaced := range map[string]bool{"of the same tenant": false, "of another one of that name": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				w.keep(false)
				w.run()
				time.Sleep(10 * time.Second)
				if now := w.heartbeat.snapshot(); !w.heartbeat.isWell() || now.tenant == "" {
					t.Fatalf("before: %+v", now)
				}
				if replaced {
					namespaces := w.controlPlane.Client().Resource(cluster.NamespacesResource)
					if err := namespaces.Delete(t.Context(), "tenant", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
					w.put(namespaces.Create(t.Context(), object("v1", "Namespace", "tenant"), metav1.CreateOptions{}))
				}
				var looks, asks atomic.Int64
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					switch {
					case r.Resource == cluster.NamespacesResource:
						time.Sleep(5 * time.Second)
						defer looks.Add(1)
					case r.Verb == "create":
						if asks.Add(1); looks.Load() == 0 {
							t.Error("asks before it has looked")
						}
					}
					return do()
				})
				(&session{heartbeat: w.heartbeat, token: w.heartbeat.token}).use("t2")
				w.meet("team")
				time.Sleep(6 * time.Second)
				synctest.Wait()
				reason := w.heartbeat.snapshot().refused.Reason
				if want := (map[bool]string{true: v1alpha1.ReasonControlPlaneReplaced}[replaced]); reason != want || replaced == (asks.Load() > 0) {
					t.Errorf("refused: %q, and asked %d times", reason, asks.Load())
				}
			})
		})
	}
}
