// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var fleeting = flag.Int("fleeting", 100, "how many claims TestFleetingClaims creates and deletes")

// Instances and ServiceBindings are deleted within 50 ms of their creation, and one in twenty
// of their mirrors by the platform, beside a claim that is written all the time and a konnector
// that is killed again and again: nothing of them is left on either side. With the usual limit of
// deletions most are held, which is told of each, and are gone after the command that the binding names.
func TestFleetingClaims(t *testing.T) {
	const ns = "fleeting"
	f := features.New("claims that live for a moment").
		Assess("nothing is left of them", step(ns, func(w world) {
			w.apply(w.s.App, instance(ns, "base", "postgresql-single-nano"))
			w.awaitState(instances, "base", "Running")
			w.restarted(append(slices.Clone(w.s.Konnector.Args), "--deletion-limit=-1"))
			args := w.s.Konnector.Args
			defer w.restarted(args[:len(args)-1])
			quiet := w.noise("base")
			collisions, mishaps := w.collisions(), w.mishaps()
			lived := make(chan struct{})
			go func() {
				defer close(lived)
				w.live(*fleeting)
			}()
			kills := w.kills(lived)
			quiet()
			lost := mishaps()
			left := ""
			err := wait.PollUntilContextTimeout(w.ctx, time.Second, patience, true, func(context.Context) (bool, error) {
				left = w.leftOver()
				return left == "", nil
			})
			if err != nil {
				w.Errorf("after %d claims and %d kills there are still: %s", *fleeting, kills, left)
			}
			w.awaitNothingToTell()
			met := collisions()
			w.Logf("%d claims, %d kills, %d deletions met the finalizer, %d mirrors were deleted", *fleeting, kills, met, lost)
			if *fleeting >= 1000 && (met == 0 || lost == 0) {
				w.Error("nothing was shown: no deletion met the finalizer, or no mirror was deleted")
			}
		})).
		Assess("nor with the usual limit, once it is said that all are meant", step(ns, func(w world) {
			n := min(*fleeting, 500)
			w.must(w.patch(w.app(instances, "base"), `{"metadata":{"labels":{"again":"true"}}}`))
			w.await(w.mirror(instances, "base"), stack.Field("true", "metadata", "labels", "again")) // it works
			w.live(n)
			w.must(w.s.Konnector.Kill())
			w.must(w.s.Konnector.Start(w.ctx))
			held := w.released()
			w.awaitNothingToTell()
			w.Logf("%d claims, %d deletions were held", n, held)
			if n >= 500 && held == 0 { // fewer may all be gone before the konnector of a busy machine has seen them
				w.Error("nothing was shown: no deletion was held")
			}
			w.patchRelease("all of the fleeting ones")
		})).Feature()
	testenv.Test(t, f)
}

// awaitNothingToTell waits until the bindings tell of no held deletions, no orphans and no copies.
func (w world) awaitNothingToTell() {
	w.Helper()
	for _, name := range services[:2] {
		w.await(w.binding(name), isTrue(v1alpha1.ConditionReady, v1alpha1.ConditionDeletionsInSync, v1alpha1.ConditionObjectsSynced, v1alpha1.ConditionClaimsInSync))
	}
}

// released waits until nothing is left of claims that have lived, and does what the bindings say of those
// that are held, once each tells it.
func (w world) released() (held int) {
	w.Helper()
	said := regexp.MustCompile(`^(\d+) deleted objects .*? run: kubectl (.*)$`)
	left, untold := "", ""
	err := wait.PollUntilContextTimeout(w.ctx, time.Second, patience, true, func(context.Context) (bool, error) {
		if left = w.leftOver(); left == "" {
			return true, nil
		}
		for _, name := range services[:2] {
			says := message(w.get(w.binding(name)), v1alpha1.ConditionDeletionsInSync)
			m := said.FindStringSubmatch(says)
			if m == nil {
				continue
			}
			if untold = w.untold(resource(strings.TrimSuffix(name, ".anynines.com")), says); untold != "" {
				continue
			}
			n, _ := strconv.Atoi(m[1])
			held += n
			_, err := stack.Reader{Stack: w.s, Folder: ".", Namespace: w.namespace}.Type(w.ctx, "kubectl --context app "+m[2]) //nolint:contextcheck // the world has one
			w.must(err)
		}
		return false, nil
	})
	if err != nil {
		w.Errorf("%d were held, and there are still: %s; not told: %s", held, left, untold)
	}
	return held
}

// untold names the objects that claims of a resource left and that are told nowhere: claims that do not say that they are
// held, and targets of claims that have gone, which neither the binding nor the log mentions.
func (w world) untold(gvr schema.GroupVersionResource, binding string) string {
	w.Helper()
	log, err := os.ReadFile(w.s.Konnector.Log())
	w.must(err)
	there, untold := map[string]bool{"base": true}, []string(nil)
	for _, u := range w.list(w.app(gvr, "")) {
		there[u.GetName()] = true
		if u.GetName() != "base" && !strings.HasPrefix(u.GetAnnotations()[klutchsync.MessageAnnotation], string(klutchsync.ReasonHeld)) {
			untold = append(untold, "claim "+u.GetName())
		}
	}
	for _, u := range w.list(w.mirror(gvr, "")) {
		told := regexp.MustCompile(`(?m)^.*cannot be synced.*` + regexp.QuoteMeta(u.GetNamespace()+"/"+u.GetName()) + `".*` + string(klutchsync.ReasonOrphaned))
		if !there[u.GetName()] && (!strings.Contains(binding, "have gone from here") || !told.Match(log)) {
			untold = append(untold, "target "+u.GetName())
		}
	}
	return strings.Join(untold, ", ")
}

func (w world) list(o stack.Object) []unstructured.Unstructured {
	w.Helper()
	c, err := o.Client()
	w.must(err)
	list, err := c.List(w.ctx, metav1.ListOptions{})
	w.must(err)
	return list.Items
}

// message is that of a condition; empty if it is not there.
func message(u *unstructured.Unstructured, conditionType string) string {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if m, ok := c.(map[string]any); ok && m["type"] == conditionType {
			text, _ := m["message"].(string)
			return text
		}
	}
	return ""
}

// restarted stops the konnector and starts it with these arguments.
func (w world) restarted(args []string) {
	w.Helper()
	w.must(w.s.Konnector.Stop())
	w.s.Konnector.Args = args
	w.must(w.s.Konnector.Start(w.ctx))
}

// noise writes to an instance until quiet.
func (w world) noise(name string) (quiet func()) {
	w.Helper()
	c, err := w.app(instances, name).Client()
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.ctx)
	var wg sync.WaitGroup
	for writer := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				patch := fmt.Sprintf(`{"metadata":{"labels":{"writer-%d":"%d"}}}`, writer, i)
				_, _ = c.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}

// collisions counts the claims whose deletion met the finalizer.
func (w world) collisions() (stop func() int) {
	w.Helper()
	var stops []func() int
	for _, gvr := range []schema.GroupVersionResource{instances, bindings} {
		c, err := w.app(gvr, "").Client()
		w.must(err)
		counted, stop, err := cluster.Collisions(w.ctx, c, v1alpha1.SyncerFinalizer)
		w.must(err)
		stops = append(stops, func() int { stop(); return counted() })
	}
	return func() (n int) {
		for _, stop := range stops {
			n += stop()
		}
		return n
	}
}

// mishaps deletes one in twenty of the mirrors, as they appear, and counts them.
func (w world) mishaps() (stop func() int) {
	w.Helper()
	var n atomic.Int64
	var stops []func()
	for _, gvr := range []schema.GroupVersionResource{instances, bindings} {
		mirrors := w.mirror(gvr, "")
		c, err := mirrors.Client()
		w.must(err)
		stop, err := cluster.Follow(w.ctx, c, func(change watch.EventType, u *unstructured.Unstructured) {
			if change == watch.Added && rand.N(20) == 0 && c.Delete(w.ctx, u.GetName(), metav1.DeleteOptions{}) == nil {
				n.Add(1)
			}
		})
		w.must(err)
		stops = append(stops, stop)
	}
	return func() int {
		for _, stop := range stops {
			stop()
		}
		return int(n.Load())
	}
}

// live creates claims, 16 at once, every other one a ServiceBinding, and deletes each after a moment.
func (w world) live(n int) {
	instance, err := w.app(instances, "").Client()
	binding, err2 := w.app(bindings, "").Client()
	if err != nil || err2 != nil {
		w.Error(err, err2)
		return
	}
	var wg sync.WaitGroup
	begun := make(chan struct{}, 16)
	for i := range n {
		begun <- struct{}{}
		wg.Go(func() {
			defer func() { <-begun }()
			c, u := instance, w.fleetingClaim(i)
			if u.GetKind() == "ServiceBinding" {
				c = binding
			}
			if _, err := c.Create(w.ctx, u, metav1.CreateOptions{}); err != nil {
				w.Error(err)
			}
			time.Sleep(rand.N(50 * time.Millisecond))
			if err := c.Delete(w.ctx, u.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				w.Error(err)
			}
		})
	}
	wg.Wait()
}

func (w world) fleetingClaim(i int) *unstructured.Unstructured {
	if i%2 == 0 {
		return instance(w.namespace, fmt.Sprint("db-", i), "postgresql-single-nano")
	}
	return object("anynines.com/v1", "ServiceBinding", w.namespace, fmt.Sprint("access-", i), map[string]any{
		"spec": map[string]any{"instanceRef": "base", "serviceInstanceType": "postgresql"},
	})
}

// kills kills the konnector and starts it again until the claims have lived, at least twice.
func (w world) kills(lived <-chan struct{}) (kills int) {
	w.Helper()
	for ; ; kills++ {
		select {
		case <-lived:
			if kills >= 2 {
				return kills
			}
		case <-time.After(500*time.Millisecond + rand.N(2*time.Second)):
		}
		w.must(w.s.Konnector.Kill())
		w.must(w.s.Konnector.Start(w.ctx))
	}
}

// leftOver names what is there of claims that have lived.
func (w world) leftOver() string {
	w.Helper()
	service := w.mirror(instances, "base").Namespace
	var left []string
	for _, side := range []struct {
		cluster   *cluster.Cluster
		namespace string
	}{{w.s.App, w.namespace}, {w.s.Control, service}} {
		for _, gvr := range []schema.GroupVersionResource{instances, bindings, secrets} {
			c, err := stack.Object{Cluster: side.cluster, Resource: gvr, Namespace: side.namespace}.Client()
			if err != nil {
				return err.Error()
			}
			list, err := c.List(w.ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for _, u := range list.Items {
				if u.GetName() != "base" {
					left = append(left, gvr.Resource+" "+side.namespace+"/"+u.GetName())
				}
			}
		}
	}
	if len(left) > 10 {
		left = append(left[:10], fmt.Sprintf("and %d more", len(left)-10))
	}
	return strings.Join(left, ", ")
}

// isTrue holds when these conditions of an object are True, or not there.
func isTrue(types ...string) stack.Condition {
	return func(u *unstructured.Unstructured) bool {
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		return !slices.ContainsFunc(all, func(c any) bool {
			m, _ := c.(map[string]any)
			return slices.Contains(types, fmt.Sprint(m["type"])) && m["status"] != string(metav1.ConditionTrue)
		})
	}
}
