// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/writer"
)

// A deletion names the UID and the version of what it deletes. One of them would do for
// one cluster; another one in its place may have the very same version.
func TestDeletionNamesWhatItDeletes(t *testing.T) {
	var got metav1.DeleteOptions
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.Method != http.MethodDelete {
			t.Errorf("%s: %v", r.Method, err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Status","status":"Success","details":{"uid":"u1"}}`))
	}))
	defer server.Close()
	to, err := NewCluster(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	a := &actor{write: &writer.Writer{Resource: widgets, Targets: to.writes.Resource(widgets), Raw: to.raw}}
	target := object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a","uid":"u1","resourceVersion":"7"}}`)
	var r record
	if _, err := a.remove(t.Context(), writer.Target{Name: cache.NewObjectName("svc", "a"), Seen: target}, &r); err != nil || r.answers.gone != "u1" {
		t.Errorf("gone = %q, %v", r.answers.gone, err)
	}
	uid, version := target.GetUID(), target.GetResourceVersion()
	if diff := cmp.Diff(&metav1.Preconditions{UID: &uid, ResourceVersion: &version}, got.Preconditions); diff != "" {
		t.Errorf("preconditions (-want +got):\n%s", diff)
	}
}

// A deletion that waits is told as soon where the target cluster's clock is wrong.
func TestSlowDeletionIsToldBesideAWrongClock(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, 0, 15 * time.Second, 2 * time.Minute, time.Hour} {
		t.Run(skew.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				w.fakeTarget.Skew(skew)
				var reports atomic.Int64
				defer w.run(Options{Hooks: Hooks{Reported: func(context.Context, Report) { reports.Add(1) }}})()
				w.createMany(1)
				w.merge(w.target, w.targetNS, "w0", `{"metadata":{"finalizers":["example.org/hold"]}}`)
				w.delete(w.source, w.sourceNS, "w0")
				time.Sleep(time.Minute)
				first := w.message("w0")
				time.Sleep(time.Hour)
				if got := w.message("w0"); !strings.HasPrefix(first, string(ReasonTerminating)) || !strings.Contains(got, "example.org/hold") || reports.Load() != 1 {
					t.Errorf("message %q, then %q, after %d reports", first, got, reports.Load())
				}
			})
		})
	}
}

// A deletion that waits for its target is told as such within moments, also where a field of the target
// was fought over: the pause of the contest is not that of the deletion.
func TestSlowDeletionIsToldAfterAContest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		defer w.run(Options{})()
		w.meddles(`{"spec":{"color":"blue"}}`, func(u *unstructured.Unstructured) bool { return field(u, "spec", "color") == "red" })
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
		time.Sleep(time.Hour)
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":["example.org/hold"]}}`)
		w.delete(w.source, w.sourceNS, "a")
		time.Sleep(30 * time.Second)
		if got := w.message("a"); !strings.HasPrefix(got, string(ReasonTerminating)) {
			t.Errorf("message %q", got)
		}
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":null}}`)
		w.until("both are gone", func() bool { return w.targetOf("a") == nil && w.get(w.source, w.sourceNS, "a") == nil })
	})
}

// What users remove from a claim that is being deleted goes from the target too, also where another writer owns
// it as well: it may be what keeps the target. A writer that claims it anew each time does not keep the deletion.
func TestRemovalWhileDeleting(t *testing.T) {
	for what, insists := range map[string]bool{"claimed once": false, "claimed each time": true} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFake(t)
				stop := w.run(Options{})
				w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small","color":"red"}`, ``))
				time.Sleep(time.Minute)
				stop()
				w.restored(t.Context(), "a")
				if insists {
					w.fakeTarget.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
						err := do()
						if err == nil && (r.Verb == "apply" || r.Verb == "patch") {
							w.restored(ctx, "a")
						}
						return err
					})
				} else {
					w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":["example.org/hold"]}}`)
				}
				w.delete(w.source, w.sourceNS, "a")
				w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":null,"size":"large"}}`)
				defer w.run(Options{})()
				time.Sleep(time.Minute)
				u := w.targetOf("a")
				switch {
				case insists && u != nil:
					t.Error("the target is not deleted")
				case !insists && (u == nil || field(u, "spec", "color") != nil || field(u, "spec", "size") != "large"):
					t.Errorf("the target is %v", u)
				}
			})
		})
	}
}

// restored has a tool that restores backups own all of a target, beside those that do.
func (w *world) restored(ctx context.Context, name string) {
	u := w.targetOf(name) //nolint:contextcheck // the world has one
	if u == nil {
		return
	}
	all := metav1.ManagedFieldsEntry{
		Manager: "restorer", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: u.GetAPIVersion(), FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:color":{},"f:size":{}}}`),
	}
	u.SetManagedFields(append(u.GetManagedFields(), all))
	if _, err := w.target.Resource(widgets).Namespace(w.targetNS).Update(ctx, u, metav1.UpdateOptions{FieldManager: "restorer"}); err != nil {
		w.Error(err)
	}
}

// I18: a claim that others write while the Sync puts its finalizer on, or takes it off, is looked at again
// at once: a lost race is no refusal, and nothing is told.
func TestFinalizerRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFake(t)
		var told atomic.Int32
		s, stop := w.sync(Options{Hooks: Hooks{Reported: func(_ context.Context, r Report) {
			if r.Reason != "" && r.Reason != ReasonTerminating {
				told.Add(1)
			}
		}}})
		defer stop()
		race := func() {
			raced := false
			w.fakeSource.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
				if r.Verb == "patch" && !raced {
					raced = true                                                                                            // the write below comes here, too
					w.merge(w.source, w.sourceNS, "a", `{"metadata":{"annotations":{"others":"`+time.Now().String()+`"}}}`) //nolint:contextcheck // someone else's
				}
				return do()
			})
		}
		race()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		time.Sleep(time.Second)
		if w.targetOf("a") == nil {
			t.Error("the target is not made at once")
		}
		race()
		w.delete(w.source, w.sourceNS, "a")
		time.Sleep(time.Second)
		if w.get(w.source, w.sourceNS, "a") != nil {
			t.Error("the claim does not go at once")
		}
		if st := s.Status(); told.Load() > 0 || st.Err != nil {
			t.Errorf("told %d times, status %+v", told.Load(), st)
		}
	})
}
