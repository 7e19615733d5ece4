// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// ReadSchemas makes schemas be read through raw.
func (c *Cluster) ReadSchemas(raw rest.Interface) { c.raw = raw }

// An API server goes on for a moment to serve lists and watches under the former schema of a
// CRD, without the new fields of objects that have them, and lets a watch go on from there
// under the new one: no event says that there are more fields. A Sync lists anew when it
// reads another schema than before. So it has to read one before it lists for the first time.
func TestSchemaIsReadFirst(t *testing.T) {
	for _, side := range []string{"source", "target"} {
		t.Run(side, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				end, c := w.from, w.fakeSource
				if side == "target" {
					end, c = w.to, w.fakeTarget
				}
				end.ReadSchemas(c.View(nil).Schemas())
				answer := make(chan struct{})
				var listed atomic.Bool
				c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource.Resource == "openapi" {
						<-answer
					}
					if r.Resource == widgets {
						listed.Store(true)
					}
					return do()
				})
				s, err := New(w.from, w.to, widgets, Options{Mapper: Prefix("svc-")})
				if err != nil {
					t.Fatal(err)
				}
				go s.Run(t.Context()) //nolint:errcheck // it ends with the test
				synctest.Wait()
				if listed.Load() || s.Status().Synced {
					t.Errorf("listed: %v, synced: %v, before the schema was read", listed.Load(), s.Status().Synced)
				}
				close(answer)
				w.until("both sides are listed", func() bool { return listed.Load() && s.Status().Synced })
			})
		})
	}
}
