// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"strings"
	gosync "sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// provideSlowly is a provider whose targets go only when it has cleaned up: it puts a
// finalizer on each, and takes it off a moment after the deletion.
func (w *world) provideSlowly() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg gosync.WaitGroup
	wg.Go(func() {
		targets := w.target.Resource(widgets).Namespace(w.targetNS)
		for ctx.Err() == nil {
			list, err := targets.List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(list.Items); i++ {
				t := &list.Items[i]
				deleted := t.GetDeletionTimestamp()
				switch {
				case deleted == nil && len(t.GetFinalizers()) == 0:
					t.SetFinalizers([]string{"example.org/broker"})
				case deleted != nil && time.Since(deleted.Time) > time.Second:
					t.SetFinalizers(nil)
				default:
					continue
				}
				_, _ = targets.Update(ctx, t, metav1.UpdateOptions{FieldManager: "broker"}) // or again in a moment
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// A platform that takes a kind away gets rid of it, beside a konnector: what vanishes with
// the kind is told and not made anew, until the kind is served again.
func TestRealKindTakenAway(t *testing.T) {
	t.Parallel()
	each(t, map[string]struct {
		most int // creations of each
		take func(w *world)
	}{
		"the CRD is deleted": {1, (*world).deleteKind},
		// Crossplane deletes the claims of an XRD until there are none, and the CRD then: nothing
		// says before that the kind goes. Only the pause of what is lost lets it end.
		"its objects are deleted, then the CRD": {2, (*world).deleteObjectsAndKind},
	}, func(t *testing.T, _ string, test struct {
		most int
		take func(w *world)
	},
	) {
		t.Helper()
		app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
		source, target := admin(t, app.Config()), admin(t, control.Config())
		install(t, source)
		install(t, target)
		w := &world{TB: t, source: source, target: target, sourceNS: "default", targetNS: "default"}
		w.from, w.to = w.cluster(app), w.cluster(control)
		var mu gosync.Mutex
		made := map[string]int{}
		defer w.provideSlowly()()
		defer w.run(Options{Mapper: Identity(), Hooks: Hooks{Wrote: func(_ context.Context, write Write) {
			mu.Lock()
			defer mu.Unlock()
			if write.Step == string(stepCreate) && write.Err == nil {
				made[write.Object.Name]++
			}
		}}})()
		for i := range 3 {
			w.create(source, "default", w.widget(fmt.Sprintf("w%d", i), `{"size":"small"}`, ``))
		}
		w.until("the provider has taken up all", func() bool { return w.counted(target, widgets, "default") == 3 })
		time.Sleep(time.Second)
		began := time.Now()
		test.take(w)
		eventually(t, "the CRD has gone", func(ctx context.Context) (bool, error) {
			_, err := target.Resource(crds).Get(ctx, "widgets.example.org", metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
		t.Logf("the CRD went in %v", time.Since(began).Round(100*time.Millisecond))
		mu.Lock()
		for name, n := range made {
			if n > test.most {
				t.Errorf("%s was made %d times while its kind was being taken away", name, n)
			}
		}
		mu.Unlock()
		for i := range 3 {
			w.until("the loss is told", func() bool { return strings.HasPrefix(w.message(fmt.Sprintf("w%d", i)), string(ReasonVanished)) })
		}
		install(t, target)
		w.until("all are back, and nothing is told", func() bool {
			for i := range 3 {
				if name := fmt.Sprintf("w%d", i); w.targetOf(name) == nil || w.message(name) != "" {
					return false
				}
			}
			return true
		})
	})
}

func (w *world) deleteKind() {
	w.Helper()
	if err := w.target.Resource(crds).Delete(w.Context(), "widgets.example.org", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// deleteObjectsAndKind deletes the kind once there have been no objects of it for half a second. Each that comes back
// meanwhile is deleted, too.
func (w *world) deleteObjectsAndKind() {
	w.Helper()
	var none time.Time // since when
	all := w.target.Resource(widgets).Namespace("default")
	w.until("there are no objects of the kind", func() bool {
		list, err := all.List(w.Context(), metav1.ListOptions{})
		if err != nil {
			w.Fatal(err)
		}
		switch {
		case len(list.Items) == 0 && none.IsZero():
			none = time.Now()
		case len(list.Items) == 0:
			return time.Since(none) > 500*time.Millisecond
		default:
			none = time.Time{}
			if err := all.DeleteCollection(w.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				w.Fatal(err)
			}
		}
		return false
	})
	w.deleteKind()
}
