// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A gate is a line to an API server on which a request can be held, while
// something else happens there.
type gate struct {
	testing.TB
	proxy http.Handler

	mu    gosync.Mutex
	next  *flight
	blind bool // no object can be read
	vain  int  // reads that were refused
}

// A flight is a request on its way, for as long as the test likes.
type flight struct {
	gate    *gate
	verb    string
	arrived chan struct{}
	goes    chan struct{} // closed when it may go on
	lost    chan struct{} // closed when its sender gets no answer
	request *http.Request
}

// hold stops the next request with that verb: see verbOf.
func (g *gate) hold(verb string) *flight {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next = &flight{gate: g, verb: verb, arrived: make(chan struct{}), goes: make(chan struct{}), lost: make(chan struct{})}
	return g.next
}

func (g *gate) refuseReads(refuse bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.blind = refuse
}

func (g *gate) refusals() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.vain
}

func verbOf(r *http.Request) string {
	kind := r.Header.Get("Content-Type")
	switch {
	case !strings.Contains(r.URL.Path, "/widgets/"):
		return ""
	case strings.HasSuffix(r.URL.Path, "/status"):
		return "status"
	case strings.Contains(kind, "apply-patch"):
		return "apply"
	case strings.Contains(kind, "json-patch"):
		return "patch"
	default:
		return strings.ToLower(r.Method)
	}
}

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	h, blind := g.next, g.blind && verbOf(r) == "get"
	if h != nil && h.verb != verbOf(r) {
		h = nil
	}
	if h != nil {
		g.next = nil
	}
	if blind {
		g.vain++
	}
	g.mu.Unlock()
	switch {
	case blind:
		Fail(w, "internal")
	case h != nil:
		h.serve(w, r)
	default:
		g.proxy.ServeHTTP(w, r)
	}
}

func (h *flight) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	h.request = r.Clone(context.WithoutCancel(r.Context()))
	h.request.Body = io.NopCloser(bytes.NewReader(body))
	close(h.arrived)
	select {
	case <-h.goes:
		h.gate.proxy.ServeHTTP(w, h.request)
	case <-h.lost:
		panic(http.ErrAbortHandler)
	case <-r.Context().Done():
	}
}

// arrives waits until the request is there.
func (h *flight) arrives() {
	h.gate.Helper()
	select {
	case <-h.arrived:
	case <-time.After(20 * time.Second):
		h.gate.Fatalf("never: %s", h.verb)
	}
}

// lands lets the request go on after its sender was told that it is lost, and
// returns its answer's status.
func (h *flight) lands() int {
	answer := httptest.NewRecorder()
	h.gate.proxy.ServeHTTP(answer, h.request)
	return answer.Code
}

// synced runs a Sync over an object called a, which has a target.
func (w *world) synced(opts Options) (stop func()) {
	w.Helper()
	stop = w.run(opts)
	w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
	w.until("target exists", func() bool { return w.targetOf("a") != nil })
	return stop
}

// again makes a source anew that a person took away by force.
func (w *world) again(name, meta string) *unstructured.Unstructured {
	w.Helper()
	w.merge(w.source, w.sourceNS, name, `{"metadata":{"finalizers":null}}`)
	if w.get(w.source, w.sourceNS, name) != nil {
		w.delete(w.source, w.sourceNS, name)
	}
	return w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, meta))
}

// flights are what may happen at a real API server while a request is on its way
// there.
var flights = map[string]func(w *world, near, far *gate){
	"a target that is replaced is not deleted": func(w *world, _, far *gate) {
		defer w.synced(Options{})()
		deletion := far.hold("delete")
		w.delete(w.source, w.sourceNS, "a")
		deletion.arrives()
		w.delete(w.target, w.targetNS, "a")
		foreign := w.create(w.target, w.targetNS, w.widget("a", `{"late":"x"}`, ``))
		close(deletion.goes)
		w.until("source is gone", func() bool { return w.get(w.source, w.sourceNS, "a") == nil })
		if diff := cmp.Diff(foreign, w.targetOf("a")); diff != "" {
			w.Errorf("foreign object changed:\n%s", diff)
		}
	},
	"a source that is made again gets no old status": func(w *world, near, _ *gate) {
		defer w.synced(Options{})()
		status := near.hold("status")
		w.merge(w.target, w.targetNS, "a", `{"status":{"phase":"Old"}}`, "status")
		status.arrives()
		w.again("a", ``)
		close(status.goes)
		w.until("conflict reported", func() bool { return strings.HasPrefix(w.message("a"), string(ReasonConflict)) })
		if got := field(w.get(w.source, w.sourceNS, "a"), "status", "phase"); got != nil {
			w.Errorf("the new source got the old status %v", got)
		}
	},
	"a source that is made again keeps its finalizers": func(w *world, near, _ *gate) {
		defer w.synced(Options{})()
		release := near.hold("patch")
		w.delete(w.source, w.sourceNS, "a")
		release.arrives()
		w.again("a", `"finalizers":["example.org/keep"]`)
		close(release.goes)
		w.until("target exists", func() bool { return w.targetOf("a") != nil })
		if got := w.get(w.source, w.sourceNS, "a").GetFinalizers(); !slices.Contains(got, "example.org/keep") {
			w.Errorf("finalizers %q are left", got)
		}
		w.merge(w.source, w.sourceNS, "a", `{"metadata":{"finalizers":null}}`)
	},
	"what arrives late changes nothing": func(w *world, _, far *gate) {
		defer w.synced(Options{})()
		old := far.hold("apply")
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"medium"}}`)
		old.arrives()
		close(old.lost)
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"size":"large"}}`)
		w.until("the latest went up", func() bool { return field(w.targetOf("a"), "spec", "size") == "large" })
		if code := old.lands(); code != http.StatusConflict {
			w.Errorf("what was asked before was answered with %d", code)
		}
	},
	"a name that is taken is left": func(w *world, _, far *gate) {
		defer w.synced(Options{})()
		creation := far.hold("apply")
		w.create(w.source, w.sourceNS, w.widget("b", `{"size":"small"}`, ``))
		creation.arrives()
		foreign := w.create(w.target, w.targetNS, w.widget("b", `{"late":"x"}`, ``))
		close(creation.goes)
		w.until("conflict reported, or not", func() bool {
			return w.message("b") != "" || w.targetOf("b").GetResourceVersion() != foreign.GetResourceVersion()
		})
		if diff := cmp.Diff(foreign, w.targetOf("b")); diff != "" {
			w.Errorf("foreign object changed:\n%s", diff)
		}
	},
	"a source is held before its target is made": func(w *world, _, far *gate) {
		creation := far.hold("apply")
		defer w.run(Options{})()
		w.create(w.source, w.sourceNS, w.widget("a", `{"size":"small"}`, ``))
		creation.arrives()
		if got := w.get(w.source, w.sourceNS, "a").GetFinalizers(); !slices.Contains(got, DefaultFinalizer) {
			w.Errorf("its finalizers are %q", got)
		}
		close(creation.goes)
	},
	"what others hold is left to them": func(w *world, _, far *gate) {
		defer w.synced(Options{Drift: DriftReport})()
		apply := far.hold("apply")
		w.merge(w.source, w.sourceNS, "a", `{"spec":{"color":"red"}}`)
		apply.arrives()
		w.merge(w.target, w.targetNS, "a", `{"spec":{"size":"large"}}`) // unseen until that has been asked for
		close(apply.goes)
		w.until("drift reported, or corrected", func() bool {
			return strings.HasPrefix(w.message("a"), string(ReasonDrifted)) || field(w.targetOf("a"), "spec", "color") != nil
		})
		if got := field(w.targetOf("a"), "spec", "size"); got != "large" {
			w.Errorf("size = %v, want the provider's", got)
		}
	},
	"a source stays while its target cannot be read": func(w *world, _, far *gate) {
		defer w.synced(Options{})()
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":["example.org/busy"]}}`)
		deletion := far.hold("delete")
		w.delete(w.source, w.sourceNS, "a")
		deletion.arrives()
		far.refuseReads(true)
		close(deletion.lost)
		w.until("the target is looked for, again and again, or not missed", func() bool {
			return far.refusals() > 3 || w.get(w.source, w.sourceNS, "a") == nil
		})
		if w.get(w.source, w.sourceNS, "a") == nil {
			w.Fatal("the source was let go")
		}
		far.refuseReads(false)
		w.until("target is being deleted", func() bool { return w.targetOf("a").GetDeletionTimestamp() != nil })
		w.merge(w.target, w.targetNS, "a", `{"metadata":{"finalizers":null}}`)
	},
}

// Whatever happens at real API servers while requests are on their way there, the
// requests do no harm. Mutants run it too, on the clusters of TestMutants.
func TestRealFlights(t *testing.T) {
	t.Parallel()
	app, control := flightCluster(t, "SYNC_SOURCE"), flightCluster(t, "SYNC_TARGET")
	each(t, flights, func(t *testing.T, _ string, happens func(w *world, near, far *gate)) {
		t.Helper()
		near, far := &gate{TB: t}, &gate{TB: t}
		w := &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), from: near.to(app), to: far.to(control)}
		w.sourceNS, w.targetNS = w.fresh(w.source), w.fresh(w.target)
		happens(w, near, far)
	})
}

// flightCluster serves widgets: the one of a kubeconfig that the environment names,
// or a new one.
func flightCluster(t *testing.T, env string) *cluster.Cluster {
	t.Helper()
	kubeconfig := os.Getenv(env)
	if kubeconfig == "" {
		c := cluster.Reused(t, "flights")
		install(t, admin(t, c.Config()))
		return c
	}
	c, err := cluster.Existing(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	install(t, admin(t, c.Config()))
	return c
}

// to is a cluster at the other end of g.
func (g *gate) to(c *cluster.Cluster) *Cluster {
	g.Helper()
	out, err := NewCluster(Line(g.TB, c.Config(), func(proxy http.Handler) http.Handler { g.proxy = proxy; return g }))
	if err != nil {
		g.Fatal(err)
	}
	return out
}

// fresh is a namespace that no other test uses.
func (w *world) fresh(d dynamic.Interface) string {
	w.Helper()
	ns, err := d.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(w.Context(), object(w.TB, `{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"flight-"}}`), metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return ns.GetName()
}
