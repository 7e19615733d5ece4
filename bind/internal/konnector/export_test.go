// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestExportStatusRefused: statuses that an API server refuses, of many exports, are written ever more rarely,
// with one line in the log for each export; once the API server takes one, all are written.
func TestExportStatusRefused(t *testing.T) {
	const exports = 25
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "patch", Resource: cluster.APIServiceExports, Subresource: "status", Object: cache.NewObjectName("tenant", "widgets")})
		if fates.Of(err).Longest() < fates.Forbidden.Longest() {
			continue // it may be over any time
		}
		t.Run(strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				var asked, taken, failures atomic.Int64
				var refused atomic.Bool
				refused.Store(true)
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					switch {
					case r.Resource != cluster.APIServiceExports || r.Verb != "patch":
						return do()
					case refused.Load():
						asked.Add(1)
						return err
					}
					taken.Add(1)
					return do()
				})
				e := w.export(exports)
				log := funcr.New(func(_, line string) {
					if strings.Contains(line, `"msg"="reconcile failed`) || strings.Contains(line, `"msg"="reconciled again"`) {
						failures.Add(1)
					}
				}, funcr.Options{})
				defer (&claimWorld{T: t}).start(group.Informer(e.informer), func(ctx context.Context) error { return e.queue.Run(logr.NewContext(ctx, log)) })()
				w.run()
				time.Sleep(time.Hour)
				synctest.Wait()
				asked.Store(0)
				failures.Store(0)
				time.Sleep(time.Hour)
				synctest.Wait()
				if n := asked.Load(); n == 0 || n > 12*exports { // with pauses of five to ten minutes
					t.Errorf("asked %d times in an hour for %d exports", n, exports)
				}
				if n := failures.Load(); n > 0 {
					t.Errorf("%d lines in the log in an hour of what had been told", n)
				}
				refused.Store(false)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := taken.Load(); n != exports {
					t.Errorf("afterwards the statuses of %d of %d exports are written", n, exports)
				}
			})
		})
	}
}

// export has the provider export so many APIs.
func (w *beatingWorld) export(n int) *exports {
	w.Helper()
	app := fakecluster.New(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition", Cluster: true})
	w.heartbeat.app.Calls = app.Client()
	w.controlPlane.Serve(fakecluster.Resource{GroupVersionResource: cluster.APIServiceExports, Kind: "APIServiceExport"})
	e := newExports(w.heartbeat, cluster.Objects(w.controlPlane.Client(), cluster.APIServiceExports, "tenant").Informer(cache.Indexers{}))
	for i := range n {
		w.put(e.client.Create(w.Context(), object(v1alpha1.GroupVersion.String(), "APIServiceExport", "widgets"+strconv.Itoa(i)+".example.org"), metav1.CreateOptions{}))
	}
	if _, err := e.queue.Watch(e.informer, controller.Self); err != nil {
		w.Fatal(err)
	}
	return e
}

// TestRefusedExportStatusIsTold: that the provider is not told how its API fares is said on the binding, with
// the reason, for as long as it is so. Objects are kept in step.
func TestRefusedExportStatusIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		var mu sync.Mutex
		refused := true
		w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if refused && r.Resource == cluster.APIServiceExports && r.Verb == "patch" {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, context.Canceled)
			}
			return do()
		})
		defer w.serve()()
		w.konnector.bindings.Add(cache.MetaObjectToName(w.binding))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		c := w.condition(v1alpha1.ConditionHeartbeating)
		if c.Status != metav1.ConditionFalse || c.Severity != v1alpha1.SeverityWarning || c.Reason != v1alpha1.ReasonStepFailed || !strings.Contains(c.Message, `"widgets.example.org" is forbidden`) {
			t.Errorf("%+v", c)
		}
		mu.Lock()
		refused = false
		mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if c := w.condition(v1alpha1.ConditionHeartbeating); c.Status != metav1.ConditionTrue {
			t.Errorf("afterwards %+v", c)
		}
	})
}

// P25: a list of an export longer than its CRD allows is refused before it is read, and the binding says so: each pass
// would decode forty thousand claims, and put them in its message.
func TestExportWithoutEnd(t *testing.T) {
	list := func(n int) (l []any) {
		for i := range n {
			l = append(l, map[string]any{"group": "example.org", "version": "v1", "resource": "r" + strconv.Itoa(i)})
		}
		return l
	}
	for n, want := range map[int]v1alpha1.Condition{
		mostItems: v1alpha1.True(v1alpha1.ConditionConnected),
		mostItems + 1: failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportInvalid,
			"The APIServiceExport cannot be read: spec.permissionClaims has 65 items; 64 are possible."),
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newClaimWorld(t)
			defer w.serve()()
			exports := w.controlPlane.Client().Resource(cluster.APIServiceExports).Namespace("tenant")
			e, err := exports.Get(t.Context(), w.binding.Name, metav1.GetOptions{})
			if err == nil {
				err = unstructured.SetNestedSlice(e.Object, list(n), "spec", "permissionClaims")
			}
			if err == nil {
				_, err = exports.Update(t.Context(), e, metav1.UpdateOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			w.konnector.bindings.Add(cache.MetaObjectToName(w.binding))
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if got := w.condition(v1alpha1.ConditionConnected); got.Status != want.Status || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("with %d claims %+v, want %+v", n, got, want)
			}
		})
	}
}
