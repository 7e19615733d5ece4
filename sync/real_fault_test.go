// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	gosync "sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A badLine is a proxy in front of an API server. Until it is mended it refuses
// requests, loses answers to what has been done, cuts watches, and takes its time.
type badLine struct {
	proxy http.Handler

	mu     gosync.Mutex
	rng    *rand.Rand
	mended bool
	faults map[string]int
}

// newBadLine returns the line and the configuration of a client at its other end.
func newBadLine(tb testing.TB, config *rest.Config, seed uint64) (*badLine, *rest.Config) {
	tb.Helper()
	b := &badLine{rng: rand.New(rand.NewPCG(seed, 0)), faults: map[string]int{}}
	return b, Line(tb, config, func(proxy http.Handler) http.Handler { b.proxy = proxy; return b })
}

func (b *badLine) mend() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mended = true
}

// draw decides what becomes of a request, and how long that takes.
func (b *badLine) draw(r *http.Request) (fault string, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mended {
		return "", 0
	}
	watches := r.URL.Query().Get("watch") != ""
	switch n := b.rng.IntN(100); {
	case watches:
		fault = "cut"
	case r.Method == http.MethodGet && n < 5:
		fault = "unavailable"
	case r.Method == http.MethodGet:
	case n < 8:
		fault = "lost, done"
	case n < 14:
		fault = "internal, done"
	case n < 20:
		fault = "internal"
	case n < 26:
		fault = "conflict"
	case n < 28:
		fault = "throttled"
	}
	b.faults[fault]++
	if fault == "cut" {
		return fault, time.Duration(50+b.rng.IntN(1200)) * time.Millisecond
	}
	return fault, time.Duration(b.rng.IntN(30)) * time.Millisecond
}

func (b *badLine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	fault, pause := b.draw(r)
	if fault == "cut" {
		ctx, cancel := context.WithTimeout(r.Context(), pause)
		defer cancel()
		b.proxy.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	time.Sleep(pause)
	kind, done := strings.CutSuffix(fault, ", done")
	if fault == "" || done {
		w, r := w, r
		if done {
			w = httptest.NewRecorder()
		}
		b.proxy.ServeHTTP(w, r)
	}
	if fault != "" {
		Fail(w, kind)
	}
}

// A witness sees all that happens to the objects of two clusters, not through the
// bad lines, and knows what must not.
type witness struct {
	testing.TB
	source dynamic.Interface

	mu         gosync.Mutex
	targets    map[types.UID]types.UID // of each source
	origins    map[types.UID]types.UID // of each target
	given      map[types.UID]types.UID // who has the status of each target
	generation map[types.UID]int64     // latest of each source that its target was made from
	made       int
}

// watch calls f with each event until the test ends.
func (w *witness) watch(c dynamic.Interface, f func(watch.Event, *unstructured.Unstructured)) {
	w.Helper()
	events, err := c.Resource(widgets).Watch(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	done := make(chan struct{})
	w.Cleanup(func() { events.Stop(); <-done })
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				f(e, u)
			}
		}
	}()
}

func (w *witness) sawTarget(e watch.Event, u *unstructured.Unstructured) {
	from, ok := OriginOf(u)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.origins[u.GetUID()] = from.UID
	w.checkGiven(u.GetUID())
	switch {
	case e.Type == watch.Deleted:
		w.mayGo(u, from)
		delete(w.targets, from.UID)
	case w.targets[from.UID] == "":
		w.targets[from.UID] = u.GetUID()
		w.made++
	case w.targets[from.UID] != u.GetUID():
		w.Errorf("I4: %s/%s was made beside another target of %s", u.GetNamespace(), u.GetName(), from.UID)
	}
	if from.Generation < w.generation[from.UID] {
		w.Errorf("I6: %s/%s went back from generation %d of its source to %d", u.GetNamespace(), u.GetName(), w.generation[from.UID], from.Generation)
	}
	w.generation[from.UID] = from.Generation
}

// mayGo checks that a target has gone because its source is going or has gone.
func (w *witness) mayGo(u *unstructured.Unstructured, from Origin) {
	s, err := w.source.Resource(widgets).Namespace(from.Namespace).Get(w.Context(), from.Name, metav1.GetOptions{})
	if err == nil && s.GetUID() == from.UID && s.GetDeletionTimestamp() == nil {
		w.Errorf("I2: %s/%s was deleted although its source lives", u.GetNamespace(), u.GetName())
	}
}

func (w *witness) sawSource(_ watch.Event, u *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	phase, _ := field(u, "status", "phase").(string)
	if target, _, _ := strings.Cut(phase, " "); target != "" {
		w.given[types.UID(target)] = u.GetUID()
		w.checkGiven(types.UID(target))
	}
}

// checkGiven checks who was given the status of a target, once both were seen: one watch
// may be behind the other.
func (w *witness) checkGiven(target types.UID) {
	to, of := w.given[target], w.origins[target]
	if to != "" && of != "" && to != of {
		w.Errorf("I5: %s was given the status of %s, which was made from %s", to, target, of)
	}
}

// script is what users and a provider do to the objects of one namespace, and
// which of them are there at the end.
func (w *witness) script(source, target dynamic.ResourceInterface, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	merge := func(c dynamic.ResourceInterface, name, patch string, sub ...string) {
		_, _ = c.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "someone"}, sub...)
	}
	for n := range 25 {
		name := []string{"a", "b", "c"}[r.IntN(3)]
		size := []string{"small", "medium", "large"}[r.IntN(3)]
		switch r.IntN(8) {
		case 0, 1:
			_, _ = source.Create(w.Context(), object(w, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"`+name+`"},"spec":{"size":"`+size+`"}}`), metav1.CreateOptions{})
		case 2, 3:
			merge(source, name, `{"spec":{"size":"`+size+`"},"metadata":{"labels":{"tier":"`+size+`"}}}`)
		case 4:
			remove(w.Context(), source, name)
		case 5, 6:
			if t, err := target.Get(w.Context(), name, metav1.GetOptions{}); err == nil {
				merge(target, name, fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":"%s %d"}}`, t.GetUID(), t.GetUID(), n), "status")
			}
		default:
			merge(target, name, fmt.Sprintf(`{"spec":{"late":"%d"}}`, n))
		}
		time.Sleep(time.Duration(r.IntN(250)) * time.Millisecond)
	}
}

// remove deletes what it has seen: a DELETE without a version that meets the patch which
// adds a finalizer takes both on a real API server, and leaves an orphan.
func remove(ctx context.Context, client dynamic.ResourceInterface, name string) {
	if u, err := client.Get(ctx, name, metav1.GetOptions{}); err == nil {
		version := u.GetResourceVersion()
		_ = client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
	}
}

// inStep says what is not in step in a pair of namespaces.
func (w *witness) inStep(ctx context.Context, source, target dynamic.ResourceInterface) string {
	sources, err := source.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	targets, err := target.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	byUID := map[types.UID]*unstructured.Unstructured{}
	for i := range targets.Items {
		from, _ := OriginOf(&targets.Items[i])
		byUID[from.UID] = &targets.Items[i]
	}
	if len(sources.Items) != len(targets.Items) {
		return fmt.Sprintf("%d sources, %d targets", len(sources.Items), len(targets.Items))
	}
	for i := range sources.Items {
		s := &sources.Items[i]
		t := byUID[s.GetUID()]
		switch {
		case t == nil || s.GetDeletionTimestamp() != nil:
			return s.GetName() + " has no target"
		case field(s, "spec", "size") != field(t, "spec", "size"), s.GetLabels()["tier"] != t.GetLabels()["tier"]:
			return s.GetName() + " differs from its target"
		case field(s, "status", "phase") != field(t, "status", "phase"):
			return s.GetName() + " has an old status"
		}
	}
	return ""
}

// Two real API servers behind lines that refuse requests, lose answers, cut
// watches and are slow: the invariants hold meanwhile, and all is in step soon
// after the lines are mended.
func TestRealFaults(t *testing.T) {
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	source, target := admin(t, app.Config()), admin(t, control.Config())
	table := NewNamespaces(nil)
	var sources, targets []string
	for i := range 12 {
		sources, targets = append(sources, "team"+strconv.Itoa(i)), append(targets, "svc-team"+strconv.Itoa(i))
		table.Set(sources[i], targets[i])
	}
	install(t, source, sources...)
	install(t, target, targets...)
	w := &witness{TB: t, source: source, targets: map[types.UID]types.UID{}, origins: map[types.UID]types.UID{}, given: map[types.UID]types.UID{}, generation: map[types.UID]int64{}}
	w.watch(target, w.sawTarget)
	w.watch(source, w.sawSource)

	near, appConfig := newBadLine(t, app.Config(), 1)
	far, controlConfig := newBadLine(t, control.Config(), 2)
	stop := w.sync(appConfig, controlConfig, table)
	var users gosync.WaitGroup
	for i := range sources {
		users.Go(func() {
			w.script(source.Resource(widgets).Namespace(sources[i]), target.Resource(widgets).Namespace(targets[i]), uint64(i))
		})
	}
	users.Wait()
	stop() // and another one takes over
	defer w.sync(appConfig, controlConfig, table)()
	near.mend()
	far.mend()
	problem := ""
	defer func() {
		if problem != "" {
			t.Error(problem)
		}
	}()
	for i := range sources {
		eventually(t, "all in step", func(ctx context.Context) (bool, error) {
			if now := w.inStep(ctx, source.Resource(widgets).Namespace(sources[i]), target.Resource(widgets).Namespace(targets[i])); ctx.Err() == nil {
				problem = now
			}
			return problem == "", nil
		})
	}
	t.Logf("%d targets made; faults on the near line %v, on the far line %v", w.made, near.faults, far.faults)
	if far.faults["lost, done"] == 0 || far.faults["cut"] == 0 {
		t.Error("the lines were not bad enough to show anything")
	}
}

// sync runs a Sync between the two until stop is called.
func (w *witness) sync(from, to *rest.Config, table *Namespaces) (stop func()) {
	w.Helper()
	a, err := NewCluster(from)
	if err != nil {
		w.Fatal(err)
	}
	b, err := NewCluster(to)
	if err != nil {
		w.Fatal(err)
	}
	s, err := New(a, b, widgets, Options{Mapper: table, DeletionLimit: -1})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
	}
}
