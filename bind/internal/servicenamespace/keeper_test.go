// SPDX-License-Identifier: Apache-2.0

package servicenamespace

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestNamespaceAskedFor: a namespace in which a Sync has met an object once gets its service
// namespace, however late the watches show the namespace and what was asked for, and whatever
// else has the namespace looked at in between.
func TestNamespaceAskedFor(t *testing.T) {
	for _, order := range [][]event{{objectMet, namespaceSeen, askedSeen, readySeen}, {namespaceSeen, objectMet, askedSeen, readySeen}} {
		for looks := range 1 << (2 * len(order)) { // two bits an event: how often the namespace is looked at after it
			t.Run(fmt.Sprint(order, looks), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newAskingWorld(t)
					for at, e := range order {
						w.happens(e)
						w.looks(looks >> (2 * at) & 3)
						if at == 1 {
							w.looks(1) // now or later: each event leads to one
						}
					}
					w.looks(1)
					if service, ok := w.Mapper.Of("team"); !ok || service != "service" {
						t.Errorf("the service namespace is %q, %t", service, ok)
					}
					if w.created != 1 {
						t.Errorf("asked %d times", w.created)
					}
				})
			})
		}
	}
}

// An event of a namespace leads to a look at it.
type event int

const (
	objectMet     event = iota // by a Sync
	namespaceSeen              // in the App Cluster
	askedSeen                  // the APIServiceNamespace
	readySeen                  // and the service namespace in it
)

// An askingWorld is a namespace "team" that is to get a service namespace.
type askingWorld struct {
	*testing.T
	*Keeper
	platform *fakecluster.Cluster
	created  int
}

func newAskingWorld(t *testing.T) *askingWorld {
	t.Helper()
	resource := fakecluster.Resource{GroupVersionResource: cluster.APIServiceNamespaces, Kind: "APIServiceNamespace"}
	app, platform := fakecluster.New(), fakecluster.New(resource)
	n := New(Config{
		App: cluster.Metas(app.Metadata(), cluster.NamespacesResource).Informer(cache.Indexers{}), Calls: platform.Client(), Tenant: "tenant",
		Asked: cluster.Objects(platform.Client(), cluster.APIServiceNamespaces, "tenant").Informer(cache.Indexers{}), Grace: time.Minute,
		WhileOurs: func(f controller.Func) controller.Func { return f }, Touch: func() {},
	})
	t.Cleanup(n.Queue.ShutDown)
	w := &askingWorld{T: t, Keeper: n, platform: platform}
	tenant := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	tenant.SetName("tenant")
	if _, err := platform.Client().Resource(cluster.NamespacesResource).Create(t.Context(), tenant, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	platform.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Verb == "create" {
			w.created++
		}
		return do()
	})
	return w
}

func (w *askingWorld) happens(e event) {
	w.Helper()
	var err error
	switch e {
	case objectMet:
		w.want("team")
	case namespaceSeen:
		err = w.App.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	case askedSeen, readySeen:
		var u *unstructured.Unstructured
		if u, err = w.Calls.Resource(cluster.APIServiceNamespaces).Namespace("tenant").Get(w.Context(), "team", metav1.GetOptions{}); err == nil {
			if e == readySeen {
				u.Object["status"] = map[string]any{"namespace": "service"}
			}
			err = w.Asked.GetStore().Add(u)
		}
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *askingWorld) looks(times int) {
	w.Helper()
	for range times {
		if _, err := w.reconcile(w.Context(), cache.NewObjectName("", "team")); err != nil {
			w.Fatal(err)
		}
	}
}

func TestRefusedFor(t *testing.T) {
	ready := func(c v1alpha1.Condition) []v1alpha1.Condition { return []v1alpha1.Condition{c} }
	for name, tc := range map[string]struct {
		conditions []v1alpha1.Condition
		want       string
	}{
		"nothing said, as by peers": {nil, ""},
		"ready":                     {ready(v1alpha1.True(v1alpha1.ConditionReady)), ""},
		"not yet":                   {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityInfo, "Pending", "Waits.")), ""},
		"refused":                   {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, "NameTaken", "it belongs to another tenant")), "it belongs to another tenant"},
		"refused with few words":    {ready(v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, "NameTaken", "")), "NameTaken"},
	} {
		asked := &v1alpha1.APIServiceNamespace{Status: v1alpha1.APIServiceNamespaceStatus{Conditions: tc.conditions}}
		if got := refusedFor(asked); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestP25NamespacesReady: however much a provider has to say, the condition stays small.
func TestP25NamespacesReady(t *testing.T) {
	n := &Keeper{refused: map[string]string{}, unrequested: unrequested{seen: map[string]sighting{}}}
	if c := n.Ready(); c.Status != "True" {
		t.Errorf("%+v", c)
	}
	for _, name := range []string{"d", "b", "a", "e", "c"} {
		n.refused[name] = strings.Repeat("no ", 1000)
	}
	c := n.Ready()
	if c.Status != "False" || c.Severity != v1alpha1.SeverityWarning || c.Reason != v1alpha1.ReasonServiceNamespaceRefused {
		t.Errorf("%+v", c)
	}
	if len(c.Message) > cluster.MaxMessage || !strings.Contains(c.Message, "in a (no no") || !strings.Contains(c.Message, "and 2 more") {
		t.Errorf("message of %d bytes: %s", len(c.Message), c.Message)
	}
	for i := range 1000 {
		n.unrequested.seen["u"+strconv.Itoa(i)] = sighting{told: i%2 == 0}
	}
	if c = n.Ready(); c.Reason != v1alpha1.ReasonServiceNamespaceRefused || len(c.Message) > cluster.MaxMessage || !strings.Contains(c.Message, "u0, u10, u100, and 497 more") {
		t.Errorf("message of %d bytes, for %s: %s", len(c.Message), c.Reason, c.Message)
	}
	clear(n.refused)
	if c = n.Ready(); c.Reason != v1alpha1.ReasonUninvitedNamespace || c.Severity != v1alpha1.SeverityWarning || !strings.Contains(c.Message, "and 497 more") {
		t.Errorf("message for %s: %s", c.Reason, c.Message)
	}
}

// A namespace that the App Cluster does not have, since it was restored, say, keeps its service namespace
// for as long as this has an object, or the konnector may not look. The Syncs look at the objects that were left
// there, and open nothing, until they meet a claim.
func TestLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAskingWorld(t)
		w.happens(objectMet)
		w.happens(namespaceSeen)
		w.looks(1)
		n := New(w.Config) // a konnector that starts beside what another one has asked for
		defer n.Queue.ShutDown()
		gone, held, failed := false, "widgets.example.org one", error(nil)
		n.Gone = func(context.Context, string) (bool, error) { return gone, nil }
		n.Holds = func(_ context.Context, service string) (string, error) {
			if service != "service" {
				t.Errorf("looks into %q", service)
			}
			return held, failed
		}
		n.Patience = 10 * time.Minute
		w.happens(readySeen)
		look := func() (time.Duration, error) { return n.reconcile(t.Context(), cache.NewObjectName("", "team")) }
		isLeft := func() bool {
			_, err := w.Calls.Resource(cluster.APIServiceNamespaces).Namespace("tenant").Get(t.Context(), "team", metav1.GetOptions{})
			return err == nil
		}
		if again, err := look(); err != nil || again != time.Minute {
			t.Fatal(again, err)
		}
		if _, looked := n.Mapper.Source(cache.NewObjectName("service", "one")); looked {
			t.Error("a namespace in which an object may still be met is looked at")
		}
		time.Sleep(time.Minute)
		if _, err := look(); err != nil {
			t.Fatal(err)
		}
		if _, open := n.Mapper.Of("team"); open {
			t.Error("a namespace without objects is open")
		}
		if back, looked := n.Mapper.Source(cache.NewObjectName("service", "one")); !looked || back.Namespace != "team" {
			t.Errorf("what was left leads to %s, %t", back, looked)
		}
		gone = true
		if err := w.App.GetStore().Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			again, err := look()
			if err != nil || again == 0 {
				t.Fatal(again, err)
			}
			time.Sleep(again)
		}
		if c := n.Ready(); !isLeft() || c.Reason != v1alpha1.ReasonServiceNamespaceKept || !strings.Contains(c.Message, "team (widgets.example.org one)") {
			t.Errorf("left: %t, %+v", isLeft(), c)
		}
		failed = errors.New("refused")
		if _, err := look(); err == nil || !isLeft() {
			t.Errorf("left: %t, where it may not look: %v", isLeft(), err)
		}
		held, failed = "", nil
		w.platform.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "delete" {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("a policy protects it"))
			}
			return do()
		})
		if _, err := look(); err == nil || !isLeft() || !strings.Contains(n.Ready().Message, "team (it cannot be given up: ") {
			t.Errorf("left: %t, where it may not be deleted: %v, %+v", isLeft(), err, n.Ready())
		}
		w.platform.Intercept(nil)
		if _, err := look(); err != nil || isLeft() {
			t.Errorf("left: %t, although nothing is there: %v", isLeft(), err)
		}
		if c := n.Ready(); c.Status != metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	})
}

// TestKeptForLong: a service namespace that stays for good, since it has objects, is looked at ever more rarely;
// that its namespace is back is seen at once all the same.
func TestKeptForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAskingWorld(t)
		w.Patience = time.Minute
		var looks atomic.Int64
		w.Gone = func(context.Context, string) (bool, error) { looks.Add(1); return true, nil }
		w.Holds = leftOne
		defer w.runsWithoutTeam()()
		w.Queue.Add(cache.NewObjectName("", "team"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		looks.Store(0)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := looks.Load(); n < 5 || n > 7 {
			t.Errorf("looked at %d times in the third hour", n)
		}
		if c := w.Ready(); c.Reason != v1alpha1.ReasonServiceNamespaceKept {
			t.Errorf("%+v", c)
		}
		w.happens(namespaceSeen)
		w.Queue.Add(cache.NewObjectName("", "team")) // as the watch does
		synctest.Wait()
		if c := w.Ready(); c.Status != metav1.ConditionTrue {
			t.Errorf("the namespace is back, and %+v", c)
		}
	})
}

// runsWithoutTeam runs the queue, until the function that it returns is called, after team, which was ready, has gone
// from the App Cluster.
func (w *askingWorld) runsWithoutTeam() (stop func()) {
	w.Helper()
	w.happens(objectMet)
	w.happens(namespaceSeen)
	w.looks(1)
	w.happens(readySeen)
	if err := w.App.GetStore().Delete(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "team"}}); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- w.Queue.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	}
}

// leftOne is Holds where something was left.
func leftOne(context.Context, string) (string, error) { return "widgets.example.org one", nil }

// P30: a provider that forges who asked for namespaces has no more than so many of them looked at, and the App
// Cluster asked at a pace whether it has them.
func TestP30ForgedNamespaces(t *testing.T) {
	w := newAskingWorld(t)
	asked := 0
	w.Gone, w.Holds, w.Grace = func(context.Context, string) (bool, error) { asked++; return false, nil }, leftOne, 0
	for i := range mostRecalled + 10 {
		asked := &v1alpha1.APIServiceNamespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("space-", i), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManager}}}}
		asked.Status.Namespace = "service-" + asked.Name
		if _, err := w.unmapped(t.Context(), asked); err != nil && !errors.Is(err, controller.ErrBusy) {
			t.Fatal(err)
		}
		_, open := w.Mapper.Of(asked.Name)
		_, looked := w.Mapper.Source(cache.NewObjectName(asked.Status.Namespace, "one"))
		if open || looked != (i < mostRecalled) {
			t.Errorf("%s is open: %t, is looked at: %t", asked.Name, open, looked)
		}
	}
	if asked > 2*fates.Few {
		t.Errorf("the App Cluster is asked %d times at once", asked)
	}
	for i := range mostRecalled { // the provider takes them back
		if _, err := w.reconcile(t.Context(), cache.NewObjectName("", fmt.Sprint("space-", i))); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.recalled) > 0 {
		t.Errorf("%d namespaces that are not there any more take up room", len(w.recalled))
	}
}

// P30: however often a provider changes what stands for a namespace that is not there, the App Cluster is asked for it at a
// pace; a namespace that has gone is given up all the same.
func TestP30NamespacesThatChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAskingWorld(t)
		var asked, events atomic.Int64
		var empty atomic.Bool
		w.Gone = func(context.Context, string) (bool, error) { asked.Add(1); return true, nil }
		w.Holds = func(ctx context.Context, service string) (string, error) {
			if empty.Load() {
				return "", nil
			}
			return leftOne(ctx, service)
		}
		defer w.runsWithoutTeam()()
		for end := time.Now().Add(time.Hour); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			events.Add(1)
			w.Queue.Add(cache.NewObjectName("", "team")) // as the watch does
		}
		synctest.Wait()
		if n := asked.Load(); n < 2 || n > 2000 {
			t.Errorf("asked %d times in an hour, with %d events", n, events.Load())
		}
		empty.Store(true)
		time.Sleep(time.Minute)
		w.Queue.Add(cache.NewObjectName("", "team"))
		synctest.Wait()
		if _, err := w.Calls.Resource(cluster.APIServiceNamespaces).Namespace("tenant").Get(t.Context(), "team", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is not given up: %v", err)
		}
	})
}

// What was left of cluster-scoped claims that are namespaced in the Control Plane Cluster is looked at, too.
func TestWideNamespaceIsRecalled(t *testing.T) {
	w := newAskingWorld(t)
	w.Gone, w.Holds, w.Grace = func(context.Context, string) (bool, error) { return false, nil }, leftOne, 0
	asked := &v1alpha1.APIServiceNamespace{ObjectMeta: metav1.ObjectMeta{Name: wideNamespace, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: v1alpha1.FieldManager}}}}
	asked.Status.Namespace = "service"
	if _, err := w.unmapped(t.Context(), asked); err != nil {
		t.Fatal(err)
	}
	_, open := w.Wide.Of("")
	if claim, looked := w.Wide.Source(cache.NewObjectName("service", "one")); open || !looked || claim != cache.NewObjectName("", "one") {
		t.Errorf("open: %t, leads to %s: %t", open, claim, looked)
	}
}

// TestServiceNamespaceIsNone: what a provider says is a service namespace, and cannot be the name of one, is not used,
// and is told in few words.
func TestServiceNamespaceIsNone(t *testing.T) {
	for _, service := range []string{strings.Repeat("n", 1<<16), "a/b", "..", "\x1b[2J", "A"} {
		n := New(Config{Touch: func() {}, WhileOurs: func(f controller.Func) controller.Func { return f }})
		t.Cleanup(n.Queue.ShutDown)
		n.want("team")
		asked := &v1alpha1.APIServiceNamespace{Status: v1alpha1.APIServiceNamespaceStatus{Namespace: service}}
		asked.Name = "team"
		why := n.mapTo(asked)
		if _, mapped := n.Mapper.Of("team"); mapped || why == "" || len(why) > 200 || strings.Contains(why, "\x1b") {
			t.Errorf("%.20q is mapped: %t, %.300q", service, mapped, why)
		}
	}
}
