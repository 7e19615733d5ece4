// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

const (
	silentKinds = 10
	silentEach  = 30 // objects of each: together far more than there are workers
)

// I13: a Control Plane Cluster that falls silent takes no worker, no connection and no
// live read from another, with ten kinds bound from it: it accepts connections and answers
// nothing, or stops in the middle of its answers. Once it speaks again, all is in step.
func TestRealSilence(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	w := &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "default", targetNS: "default"}
	var err error
	if w.from, err = NewCluster(app.Config()); err == nil {
		w.to, err = NewCluster(control.Config())
	}
	if err != nil {
		t.Fatal(err)
	}
	install(t, w.source)
	install(t, w.target)
	for i := range silentKinds {
		for _, d := range []dynamic.Interface{w.source, w.target} {
			if _, err := d.Resource(crds).Create(t.Context(), w.kind(i), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	line, err := cluster.NewLine(t.Context(), control.URL())
	if err != nil {
		t.Fatal(err)
	}
	config := control.Config()
	config.Host = line.URL()
	far, err := NewCluster(config)
	if err != nil {
		t.Fatal(err)
	}
	set := NewSet(SetOptions{})
	put := func(resource schema.GroupVersionResource, to *Cluster) {
		s, err := New(w.from, to, resource, Options{Mapper: Identity()})
		if err != nil {
			t.Fatal(err)
		}
		set.Put(resource.Resource, s)
	}
	put(widgets, w.to)
	for i := range silentKinds {
		put(silentKind(i), far)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := start(func() error { return set.Run(ctx) })
	defer func() {
		line.Speak()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	w.changeSilent("small")
	w.untilInStep("small")
	w.create(w.source, "default", w.widget("a", `{"color":"0"}`, ``))
	w.until("the healthy one is in step", func() bool { return w.targetOf("a") != nil })
	usual := w.p99("usual")
	sizes, n := []string{"medium", "large", "small"}, 0
	change := func() (size string) {
		size = sizes[n%len(sizes)]
		n++
		w.changeSilent(size)
		return size
	}
	for name, after := range map[string]int{"nothing": 0, "in the middle": 300} {
		line.Hush(after)
		last := ""
		for range 2 { // the second change meets calls that wait for an answer
			took, most := time.Duration(math.MaxInt64), max(2*usual, 500*time.Millisecond) // what waits for a silent cluster does so for seconds
			for turn := 0; turn < 3 && took > most; turn++ {                               // a busy machine is slow now and then, one that waits for a silent cluster each time
				last = change()
				took = min(took, w.p99(fmt.Sprint(name, n)))
			}
			t.Logf("usual p99 %v, beside silence (%s) %v", usual, name, took)
			if took > most {
				t.Errorf("p99 beside a cluster that answers %s: %v, usual %v", name, took, usual)
			}
		}
		line.Speak()
		w.untilInStep(last)
	}
}

func silentKind(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: fmt.Sprintf("kind%ds", i)}
}

// kind is the CRD of a silent kind.
func (w *world) kind(i int) *unstructured.Unstructured {
	name := fmt.Sprint("kind", i)
	return object(w.TB, strings.NewReplacer("widgets", name+"s", "widget", name, "Widget", "K"+name[1:]).Replace(widgetCRD))
}

// changeSilent gives all objects of the silent kinds a size.
func (w *world) changeSilent(size string) {
	w.Helper()
	var wg gosync.WaitGroup
	for i := range silentKinds {
		wg.Go(func() {
			for n := range silentEach {
				u := object(w.TB, fmt.Sprintf(`{"apiVersion":"example.org/v1","kind":"Kind%d","metadata":{"name":"x%d"},"spec":{"size":"%s"}}`, i, n, size))
				var err error
				for range 100 { // until the kind is served
					if _, err = w.source.Resource(silentKind(i)).Namespace("default").Apply(w.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test"}); err == nil {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				if err != nil {
					w.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func (w *world) untilInStep(size string) {
	w.Helper()
	for i := range silentKinds {
		w.until(fmt.Sprintf("kind %d is in step", i), func() bool {
			list, err := w.target.Resource(silentKind(i)).Namespace("default").List(w.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) < silentEach {
				return false
			}
			return !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool { return field(&u, "spec", "size") != size })
		})
	}
}

// p99 is how long it takes at most, of a hundred changes one after the other but one, until
// a change has come to the healthy target.
func (w *world) p99(what string) time.Duration {
	w.Helper()
	watch, err := w.target.Resource(widgets).Namespace(w.targetNS).Watch(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	defer watch.Stop()
	var times []time.Duration
	for i := range 100 {
		color, began := fmt.Sprint(what, i), time.Now()
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":"`+color+`"}}`)
		for seen := false; !seen; {
			select {
			case e := <-watch.ResultChan():
				u, _ := e.Object.(*unstructured.Unstructured)
				seen = u != nil && field(u, "spec", "color") == color
			case <-time.After(time.Minute):
				w.Fatalf("change %d has not come for a minute", i)
			}
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)*99/100-1]
}
