// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	gosync "sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	realcluster "github.com/klutch-go/sdk/internal/test/cluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A stage is two real API servers on which plans are replayed, each in namespaces of
// its own. A konnector's line leads to what is called after the plan and the konnector.
type stage struct {
	users [2]dynamic.Interface
	lines [2]rest.Config

	mu     gosync.Mutex
	reruns map[string]*rerun // by source namespace
	writes int
	met    map[string]int

	eyes gosync.WaitGroup // of the witnesses
}

// replayCRD is what both sides serve; the target is stricter.
const replayCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.org"},
  "spec": {
    "group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
    "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": {"openAPIV3Schema": {
      "type": "object", "properties": {
        "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"size": {"type": "string", "pattern": "PATTERN"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}`

func newStage(t *testing.T) *stage {
	t.Helper()
	g := &stage{reruns: map[string]*rerun{}, met: map[string]int{}}
	for side, pattern := range []string{"", "^(drift-)?[0-9]*$"} {
		config := realcluster.Reused(t, "replay-"+sideName(side)).Config()
		config.QPS = -1
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		g.users[side] = client
		g.lines[side] = *klutchsync.Line(t, config, func(proxy http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.route(w, r, side, proxy) }) //nolint:contextcheck // what is late outlives its sender
		})
		g.serve(t, side, strings.Replace(replayCRD, "PATTERN", pattern, 1))
		g.witness(t, side)
	}
	return g
}

// serve waits until a side serves things.
func (g *stage) serve(t *testing.T, side int, crd string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(crd), u); err != nil {
		t.Fatal(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if _, err := g.users[side].Resource(crds).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, err := g.users[side].Resource(simThings).List(t.Context(), metav1.ListOptions{})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// witness lets each plan see what happens to its objects, not through a line.
func (g *stage) witness(t *testing.T, side int) {
	t.Helper()
	things := g.users[side].Resource(simThings)
	now, err := things.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := watchtools.NewRetryWatcherWithContext(t.Context(), now.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return things.Watch(ctx, o) },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.eyes.Go(func() {
		for e := range events.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				if r := g.rerun(strings.TrimPrefix(u.GetNamespace(), "svc-")); r != nil {
					r.sees(side, e, u)
				}
			}
		}
		if t.Context().Err() == nil {
			t.Errorf("what happens to the %s is not seen any more", sideName(side))
		}
	})
	t.Cleanup(func() { events.Stop(); g.eyes.Wait() })
}

func (g *stage) rerun(namespace string) *rerun {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reruns[namespace]
}

// route hands a request to the plan and the konnector that it is of.
func (g *stage) route(w http.ResponseWriter, q *http.Request, side int, proxy http.Handler) {
	parts := strings.SplitN(q.URL.Path, "/", 5)
	r := g.rerun(parts[1])
	id, err := strconv.Atoi(parts[2])
	born, err2 := strconv.Atoi(parts[3])
	if r == nil || err != nil || err2 != nil {
		panic(http.ErrAbortHandler) // no test asks for anything else
	}
	q.URL.Path = strings.Replace("/"+parts[4], "/v1/widgets", "/v1/namespaces/"+r.at(side, r.ns)+"/widgets", 1)
	(&live{rerun: r, crew: r.crew(id), born: born, side: side, proxy: proxy, w: w, r: q}).serve()
}

// A live request is one on its way from a konnector to an API server.
type live struct {
	*rerun
	crew  *crew
	born  int // incarnation that sent it
	side  int
	proxy http.Handler
	w     http.ResponseWriter
	r     *http.Request
	body  []byte
}

func (l *live) writes() bool { return l.r.Method != http.MethodGet }

func (l *live) String() string {
	return "k" + strconv.Itoa(l.crew.id) + " " + sideName(l.side) + " " + l.r.Method + " " + l.r.URL.Path + " " + string(l.body)
}

// serve lets the request meet what has been arranged for it.
func (l *live) serve() {
	if l.writes() {
		select {
		case l.passed <- struct{}{}:
		default:
		}
		if !l.setsOut() {
			panic(http.ErrAbortHandler)
		}
		defer l.arrived()
	}
	f := l.meets()
	l.stage.count(f)
	switch {
	case l.writes():
		l.write(f)
	case f.kind != "":
		klutchsync.Fail(l.w, f.kind)
	case l.r.URL.Query().Has("watch"):
		l.watch()
	default:
		l.proxy.ServeHTTP(l.w, l.r)
	}
}

func (g *stage) count(f fault) {
	if f.kind != "" {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.met[strings.TrimSpace(f.kind+" "+f.effect)]++
	}
}

// meets is what becomes of a request; nothing special if it has no kind.
func (l *live) meets() fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calm {
		return fault{}
	}
	l.step = int(time.Since(l.began) / (20 * time.Millisecond))
	for _, w := range l.windows {
		if w.side == l.side && w.until >= l.step && (w.kind != "forbidden" || strings.HasSuffix(l.r.URL.Path, "/widgets")) {
			return fault{kind: w.kind}
		}
	}
	for i, f := range l.faults {
		if f.reads != l.writes() {
			l.faults = slices.Delete(l.faults, i, i+1)
			if f.effect == "late" || f.kind == "crash" {
				l.wg.Add(1)
			}
			return f
		}
	}
	return fault{}
}

// An ending is that of all watches of a side.
type ending struct {
	over chan struct{}
	gone bool // what they have seen is too old for them to go on
}

func newEnding() *ending { return &ending{over: make(chan struct{})} }

// watch lets events through until the side's watches end.
func (l *live) watch() {
	ctx, cancel := context.WithCancel(l.r.Context())
	defer cancel()
	l.mu.Lock()
	cut := l.cuts[l.side]
	l.mu.Unlock()
	go func() {
		select {
		case <-cut.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	defer l.watched(cut)
	l.proxy.ServeHTTP(&slow{l.w, l, ctx}, l.r.WithContext(ctx))
}

// watched ends a watch in good order, unless it has ended otherwise.
func (l *live) watched(cut *ending) {
	why := recover()
	select {
	case <-cut.over:
	default:
		if why != nil {
			panic(why)
		}
		return
	}
	if cut.gone {
		l.stage.count(fault{kind: "gone"})
		status := httptest.NewRecorder()
		klutchsync.Fail(status, "gone")
		e := metav1.WatchEvent{Type: string(watch.Error)}
		e.Object.Raw = status.Body.Bytes()
		_ = json.NewEncoder(l.w).Encode(e) // if its sender has not ended too
	}
}

// A slow writer writes when its side does not lag.
type slow struct {
	http.ResponseWriter
	live *live
	ctx  context.Context //nolint:containedctx // that of the request
}

// Unwrap is for http.ResponseController.
func (s *slow) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *slow) Write(p []byte) (int, error) {
	s.live.mu.Lock()
	lag := s.live.lags[s.live.side]
	s.live.mu.Unlock()
	select {
	case <-lag:
	case <-s.ctx.Done():
	}
	return s.ResponseWriter.Write(p)
}

// write carries out a write, whether or not its sender waits for the answer, and
// answers it, as well as f lets it.
func (l *live) write(f fault) {
	body, err := io.ReadAll(l.r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	l.body = body
	l.judge()
	l.tell("%s: %s %s", l, f.kind, f.effect)
	switch f.effect {
	case "late":
		go func() {
			defer l.wg.Done()
			time.Sleep(time.Duration(len(body)%7) * 100 * time.Millisecond)
			l.carry()
		}()
	case "", "done":
		answer := l.carry()
		if f.kind == "" {
			answer(l.w)
			return
		}
	}
	if f.kind == "crash" {
		go func() {
			defer l.wg.Done()
			l.crew.again()
		}()
		<-l.r.Context().Done()
	}
	klutchsync.Fail(l.w, f.kind)
}

// carry carries out the request, and returns what hands on its answer.
func (l *live) carry() (answer func(http.ResponseWriter)) {
	request := l.r.Clone(context.WithoutCancel(l.r.Context()))
	request.Body = io.NopCloser(bytes.NewReader(l.body))
	out := httptest.NewRecorder()
	l.proxy.ServeHTTP(out, request)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted("%s: %d", l, out.Code)
	if out.Code < http.StatusMultipleChoices {
		l.model.writes++
		l.model.last = l.String()
		l.wrote = time.Now()
	}
	return func(w http.ResponseWriter) {
		maps.Copy(w.Header(), out.Header())
		w.WriteHeader(out.Code)
		_, _ = w.Write(out.Body.Bytes())
	}
}

// setsOut reports whether the request is of the incarnation that is, and counts it.
func (l *live) setsOut() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.born != l.crew.born {
		return false
	}
	l.sending++
	l.crew.onWay.Add(1)
	return true
}

func (l *live) arrived() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sending--
	l.crew.onWay.Done()
}

// judge checks that what a write would take away may go: it asks the API servers
// before they are asked to.
func (l *live) judge() {
	deletes := l.side == sideTarget && l.r.Method == http.MethodDelete
	releases := l.side == sideSource && bytes.Contains(l.body, []byte(`"op":"remove","path":"/metadata/finalizers`))
	if !deletes && !releases {
		return
	}
	name := cache.NewObjectName(l.ns, l.r.URL.Path[strings.LastIndex(l.r.URL.Path, "/")+1:])
	source, target := l.get(sideSource, name), l.get(sideTarget, op{name: name}.target())
	switch {
	case target == nil:
	case deletes:
		l.deletes(target, source)
	case source != nil && sourceUID(target) == string(source.GetUID()):
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.belated() {
			l.model.breaks("I3", "the finalizer is taken off %s while its target is there", name)
		}
	}
}

func (l *live) deletes(target, source *unstructured.Unstructured) {
	var options metav1.DeleteOptions
	_ = json.Unmarshal(l.body, &options) // no options are fine
	if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != target.GetUID() {
		return
	}
	switch {
	case sourceUID(target) == "":
		l.breaks("I2", "%s is to be deleted, which is not ours", target.GetName())
	case l.plan.Deletion == klutchsync.DeletionOrphan:
		l.breaks("I2", "%s is to be deleted although policy keeps it", target.GetName())
	case source != nil && string(source.GetUID()) == sourceUID(target) && source.GetDeletionTimestamp() == nil:
		l.breaks("I2", "%s is to be deleted although its source lives", target.GetName())
	}
}

// played is what the simulator does too.
func played(r *rerun, o op) { o.do(r.sim) }

// armed arms the lines.
func armed(r *rerun, o op) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.do(r.sim)
	for _, f := range r.faults {
		r.overtime = r.overtime || f.effect == "late"
	}
}

// shut closes a line for a while.
func shut(r *rerun, o op) {
	armed(r, o)
	r.cutAll(o.n%2, false)
}

// cut ends the watches of a side.
func (r *rerun) cut(o op) { r.cutAll(o.n%2, false) }

// gone is cut, with nothing to go on from.
func (r *rerun) gone(o op) { r.cutAll(o.n%2, true) }

func (r *rerun) cutAll(side int, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cuts[side].gone = gone
	close(r.cuts[side].over)
	r.cuts[side] = newEnding()
}

// lag holds the events of a side back.
func (r *rerun) lag(o op) {
	side := o.n % 2
	r.resume(side)
	r.mu.Lock()
	r.lags[side] = make(chan struct{})
	r.mu.Unlock()
	r.wg.Go(func() {
		time.Sleep(time.Duration(100+o.n) * time.Millisecond)
		r.resume(side)
	})
}

func (r *rerun) resume(side int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.lags[side]:
	default:
		close(r.lags[side])
	}
}

// force takes finalizers away by hand.
func (r *rerun) force(o op) {
	if u := r.get(sideSource, o.name); u != nil {
		r.mu.Lock()
		r.model.life(u).forced = true
		r.mu.Unlock()
	}
	o.do(r.sim)
}

// inGap deletes an object and makes it anew while no watch looks.
func (r *rerun) inGap(o op) {
	side := 1 - o.n%2 // as the simulator has it
	gap := window{"outage", side, 1 << 30, nil}
	r.mu.Lock()
	r.windows = append(r.windows, gap)
	r.mu.Unlock()
	r.cutAll(side, true)
	r.force(o)
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.windows, gap)
	r.windows = slices.Delete(r.windows, at, at+1)
}

// deleteAll deletes all sources at once.
func (r *rerun) deleteAll(op) {
	for _, u := range r.objects(sideSource) {
		_ = r.things(sideSource, r.ns).Delete(r.ctx, u.GetName(), metav1.DeleteOptions{})
	}
}

// crash ends a konnector, now or at its next write, before or after its effect.
func (r *rerun) crash(o op) {
	if o.n%3 == 0 {
		r.rebind(o)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, fault{kind: "crash", effect: []string{"none", "done"}[o.n%3-1]})
}

// rebind lets a konnector begin anew.
func (r *rerun) rebind(o op) { r.crew(o.n % len(r.crews)).again() }

func (r *rerun) crew(id int) *crew {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.crews[id]
}

// loseLease makes a konnector lose its lease during a request: another one takes over
// at once, while the first one does not know for a while.
func (r *rerun) loseLease(o op) {
	c := r.crew(o.n % len(r.crews))
	if c.retired {
		return
	}
	c.retire()
	r.hire()
	r.wg.Go(func() {
		time.Sleep(time.Duration(50+o.n) * time.Millisecond)
		c.stop()
	})
}
