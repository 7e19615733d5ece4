// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// What stays in the Control Plane Cluster although its object has gone is told on
// the binding; what can be done about it comes first.
func TestDeletionsInSync(t *testing.T) {
	b := &v1alpha1.APIServiceBinding{}
	b.Name = "widgets.example.org"
	const here, gone, release = "in their annotation klutch.anynines.com/sync-message: kubectl bind status widgets.example.org lists them", "gone from here, and the konnector's log has their names", "run: kubectl -n klutch-bind annotate --overwrite apiservicebinding widgets.example.org klutch.anynines.com/release-deletion="
	for name, test := range map[string]struct {
		state  klutchsync.Status
		reason string
		says   []string
		not    string
	}{
		"in step":       {klutchsync.Status{Objects: 3}, "", nil, "objects"},
		"held":          {klutchsync.Status{Held: 2}, v1alpha1.ReasonDeletionsHeld, []string{"2 deleted objects", "kept in the Control Plane Cluster", "not made anew", here, release}, gone},
		"held copies":   {klutchsync.Status{HeldCopies: 2}, v1alpha1.ReasonDeletionsHeld, []string{"2 copies", release}, gone},
		"orphans":       {klutchsync.Status{Orphans: 4}, "TargetOrphaned", []string{"4 objects", "log has their names"}, release},
		"held, orphans": {klutchsync.Status{Held: 6, Orphans: 4}, v1alpha1.ReasonDeletionsHeld, []string{"6 deleted objects", here, "; 4 have " + gone, release}, "hand"},
	} {
		t.Run(name, func(t *testing.T) {
			c := deletionsInSync(b, test.state)
			if c.Type != v1alpha1.ConditionDeletionsInSync || c.Reason != test.reason || strings.Contains(c.Message, test.not) || (c.Message == "") != (test.says == nil) {
				t.Errorf("condition = %+v", c)
			}
			for _, words := range test.says {
				if !strings.Contains(c.Message, words) {
					t.Errorf("%q does not say %q", c.Message, words)
				}
			}
		})
	}
}

// TestLostPolicy: what is not known makes nothing anew, which would be empty.
func TestLostPolicy(t *testing.T) {
	for lost, want := range map[v1alpha1.LostInstances]klutchsync.LostPolicy{
		"": klutchsync.LostRecreate, "Recreate": klutchsync.LostRecreate, "Report": klutchsync.LostReport, "Restore": klutchsync.LostReport,
	} {
		if got := lostPolicy(lost); got != want {
			t.Errorf("%q: %s, want %s", lost, got, want)
		}
	}
}

// TestStartsArePaced: a provider that says something else of its API at each look, such as that there is none, has all
// objects of the App Cluster read ten times, and then once a minute; the binding says so. What its owner
// changes is carried out at once, and once the provider keeps to its word, objects are in step within a minute.
func TestStartsArePaced(t *testing.T) {
	for name, change := range map[string]func(w *claimWorld, n int) (offered bool){
		"a policy": func(w *claimWorld, n int) bool {
			w.export.Spec.LostInstances = []v1alpha1.LostInstances{v1alpha1.LostInstancesRecreate, v1alpha1.LostInstancesReport}[n%2]
			return true
		},
		"the reach of its rights": func(w *claimWorld, n int) bool {
			w.export.Spec.InformerScope = []v1alpha1.Scope{v1alpha1.ClusterScope, v1alpha1.NamespacedScope}[n%2]
			return true
		},
		"the offer": func(_ *claimWorld, n int) bool { return n%2 == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				w.permitted().bound[metav1.NamespaceAll] = true
				defer w.run()()
				var lists, requests atomic.Int64
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if requests.Add(1); r.Verb == "list" && r.Resource == w.widgetsResource() {
						lists.Add(1)
					}
					return do()
				})
				look := func(n int) (v1alpha1.Condition, time.Duration) {
					if !change(w, n) {
						w.hold()
						return v1alpha1.Condition{}, 0
					}
					w.verdict = newVerdict()
					p := w.pass()
					if _, err := p.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					if p.disabled { // as the konnector does
						w.hold()
					}
					return w.verdict.found[v1alpha1.ConditionInformersSynced], p.again
				}
				for n := range 2 * 3600 {
					look(n)
					time.Sleep(pacePause)
				}
				if lists, requests := lists.Swap(0), requests.Load(); lists < 60 || lists > 70 || requests > 600 {
					t.Errorf("%d lists of all objects in an hour, and %d requests", lists, requests)
				}
				if c, again := look(0); c.Reason != v1alpha1.ReasonStepFailed || !strings.Contains(c.Message, "once a minute") || again <= 0 || again > retryEvery {
					t.Errorf("it is told as %+v, and looked at again in %s", c, again)
				}
				w.binding.Generation++
				if look(0); lists.Load() == 0 {
					synctest.Wait()
				}
				if n := lists.Swap(0); n != 1 {
					t.Errorf("after an edit of the binding %d lists", n)
				}
				for n := range 100 {
					look(n)
				}
				var c v1alpha1.Condition
				for end := time.Now().Add(time.Minute + retryEvery); time.Now().Before(end); time.Sleep(time.Second) {
					c, _ = look(0)
				}
				if c.Status != metav1.ConditionTrue {
					t.Errorf("once the provider keeps to its word %+v", c)
				}
			})
		})
	}
}
