// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	gosync "sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

var fleeting = flag.Int("fleeting", 200, "number of sources that TestRealFleeting creates and deletes while the konnector is killed; more of them in make fleeting")

// mostFleeting are the sources among which one deletion at least has to meet the finalizer.
const mostFleeting = 5000

// I20: a source that is deleted a moment after its creation leaves nothing behind, also
// where the API server's DELETE and the patch that adds the finalizer both succeed, and
// where the konnector is killed in between, and where a broker hands out Secrets for the
// targets and loses some of these.
func TestRealFleeting(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	install(t, source)
	install(t, target)
	for name, test := range map[string]struct {
		sources int
		lives   func(i int) time.Duration
		kills   int
	}{
		"0, 2, 5 and 20 ms": {200, func(i int) time.Duration { return time.Millisecond * time.Duration([]int{0, 2, 5, 20}[i%4]) }, 0},
		"with kills":        {*fleeting, func(int) time.Duration { return rand.N(50 * time.Millisecond) }, max(5, *fleeting/250)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{TB: t, source: source, target: target}
			w.from, w.to = w.cluster(app), w.cluster(control)
			w.sourceNS, w.targetNS = w.fresh(source), w.fresh(target)
			w.secret(source, w.sourceNS, "creds", "YQ==")
			collisions, end, err := cluster.Collisions(t.Context(), source.Resource(widgets).Namespace(w.sourceNS), DefaultFinalizer)
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			lived, begun := make(chan struct{}), 0
			go func() {
				defer close(lived)
				for ; begun == 0 || begun < mostFleeting && collisions() == 0; begun += test.sources {
					w.live(begun, test.sources, test.lives)
				}
			}()
			defer w.broker()()
			s := w.killed(lived, test.kills)
			left := w.leaves(s)
			for began := time.Now(); left != "" && time.Since(began) < time.Minute; left = w.leaves(s) {
				time.Sleep(100 * time.Millisecond)
			}
			if left != "" {
				t.Errorf("%s left", left)
			}
			n := collisions()
			if t.Logf("%d of %d deletions met the finalizer", n, begun); n == 0 {
				t.Error("no deletion met the finalizer: nothing was shown")
			}
		})
	}
}

// live creates n sources, 16 at once, and deletes each after a moment.
func (w *world) live(from, n int, lives func(i int) time.Duration) {
	var wg gosync.WaitGroup
	begun := make(chan struct{}, 16)
	for i := from; i < from+n; i++ {
		begun <- struct{}{}
		wg.Go(func() {
			defer func() { <-begun }()
			u := w.widget(fmt.Sprintf("w%d", i), `{"size":"small","late":"creds"}`, ``)
			sources := w.source.Resource(widgets).Namespace(w.sourceNS)
			if _, err := sources.Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
				w.Error(err)
			}
			time.Sleep(lives(i))
			if err := sources.Delete(w.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				w.Error(err)
			}
		})
	}
	wg.Wait()
}

// broker hands out a Secret for each target and takes it back with it. One target in
// twenty it loses.
func (w *world) broker() (stop func()) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	targets, credentials := w.target.Resource(widgets).Namespace(w.targetNS), w.target.Resource(secrets).Namespace(w.targetNS)
	events, err := targets.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			u, ok := e.Object.(*unstructured.Unstructured)
			switch {
			case !ok:
			case e.Type == watch.Deleted:
				_ = credentials.Delete(ctx, brokered+u.GetName(), metav1.DeleteOptions{})
			case e.Type == watch.Added && rand.N(20) == 0:
				_ = targets.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
			case e.Type == watch.Added:
				name := brokered + u.GetName()
				secret := object(w.TB, `{"apiVersion":"v1","kind":"Secret","type":"Opaque","metadata":{"name":"`+name+`"},"data":{"password":"cGFzcw=="}}`)
				_, _ = credentials.Create(ctx, secret, metav1.CreateOptions{})
				_, _ = targets.Patch(ctx, u.GetName(), types.MergePatchType, []byte(`{"status":{"secret":"`+name+`"}}`), metav1.PatchOptions{}, "status")
			}
		}
	}()
	return func() { cancel(); events.Stop(); <-done }
}

// brokered begins the names of the broker's Secrets.
const brokered = "for-"

// killed runs a konnector until the sources have lived, which is killed so many times
// meanwhile: what it had sent may arrive, and what it knew is lost. It returns the last.
func (w *world) killed(lived <-chan struct{}, kills int) *Sync {
	w.Helper()
	opts := Options{DeletionLimit: -1, Workers: 32, Related: []Related{
		{Resource: secrets, From: SourceSide, References: []string{"spec.late"}},
		{Resource: secrets, From: TargetSide, References: []string{"status.secret"}},
	}}
	s, stop := w.sync(opts)
	for range kills {
		select {
		case <-lived:
		case <-time.After(300*time.Millisecond + rand.N(700*time.Millisecond)):
		}
		stop()
		s, stop = w.sync(opts)
	}
	w.Cleanup(stop)
	<-lived
	return s
}

// leaves says what is left of sources that have gone, or is said of them.
func (w *world) leaves(s *Sync) string {
	w.Helper()
	n := w.counted(w.target, widgets, w.targetNS)
	copied := w.getSecret(w.target, w.targetNS, "creds") != nil
	switch {
	case w.counted(w.source, widgets, w.sourceNS) > 0:
		return "sources"
	case n > 0:
		return fmt.Sprintf("%d targets", n)
	case copied:
		return "the copy of a Secret"
	case w.counted(w.source, secrets, w.sourceNS) != 1: // what sources refer to
		return "copies of credentials"
	}
	if st := s.Status(); st.Orphans+st.Held+st.HeldCopies+len(st.Untold) > 0 {
		return fmt.Sprintf("what the Sync says, %+v,", st)
	}
	return ""
}

func (w *world) counted(d dynamic.Interface, resource schema.GroupVersionResource, namespace string) int {
	w.Helper()
	list, err := d.Resource(resource).Namespace(namespace).List(context.WithoutCancel(w.Context()), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return len(list.Items)
}
