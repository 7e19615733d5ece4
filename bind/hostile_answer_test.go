// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	goruntime "runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/testplatform"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// hostileSecret leads to the enemy.
const hostileSecret = "kubeconfig-hostile"

// An attackedKonnector has bindings to an honest platform, of widgets, and to hostile
// ones, of gadgets, gizmos and gears.
type attackedKonnector struct {
	*world
	platforms map[string]*testplatform.Platform // the hostile ones, by binding
	service   string                            // service namespace of namespace team
	size      int64                             // of the widget that was changed last
}

const gizmos, gears = "gizmos.example.org", "gears.example.org"

func newAttackedKonnector(t *testing.T) *attackedKonnector {
	t.Helper()
	s := &attackedKonnector{world: newLoneWorld(t), size: 1, platforms: map[string]*testplatform.Platform{}}
	widget := read(t, "testdata/widgets.yaml")[0]
	s.offer(t, widget.DeepCopy())
	s.app.apply(t, v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"], object("v1", "Namespace", "", "team", nil),
		secret(v1alpha1.Namespace, s.secret, s.kubeconfig(t)))
	s.bind(t, widgets)
	s.allow(t, widgets)
	s.addPlatform(t, gadgets, renamed(widget, "gadgets", "Gadget"))
	s.addPlatform(t, gizmos, renamed(widget, "gizmos", "Gizmo"))
	s.addPlatform(t, gears, renamed(widget, "gears", "Gear"))
	return s
}

// addPlatform binds an API of a platform that can become hostile.
func (s *attackedKonnector) addPlatform(t *testing.T, binding string, export *unstructured.Unstructured) {
	t.Helper()
	plural, _, _ := strings.Cut(binding, ".")
	export.Object["spec"].(map[string]any)["names"].(map[string]any)["plural"] = plural
	s.offer(t, export)
	platform := testplatform.Start(t, s.controlPlane.Config())
	k, err := kubeconfig.Read(s.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := platform.Kubeconfig(tenant, k.Token).Write()
	if err != nil {
		t.Fatal(err)
	}
	hostile := *s.world
	hostile.secret = hostileSecret + "-" + plural
	s.app.apply(t, secret(v1alpha1.Namespace, hostile.secret, theirs))
	hostile.bind(t, binding)
	s.allow(t, binding)
	s.platforms[binding] = platform
}

// begin waits until an honest konnector has both in step.
func (s *attackedKonnector) begin(t *testing.T) {
	t.Helper()
	stop := s.run(t, bind.Options{})
	defer stop()
	for _, binding := range []string{widgets, gadgets, gizmos, gears} {
		s.ready(t, binding)
	}
	for _, u := range []*unstructured.Unstructured{
		widget("team", "one", map[string]any{"size": s.size}),
		object("example.org/v1", "Gadget", "team", "one", map[string]any{"spec": map[string]any{"size": s.size}}),
	} {
		s.app.apply(t, u)
	}
	rights := slices.Clone(widgetRights)
	for i := range rights {
		if rights[i].APIGroups[0] == "example.org" {
			rights[i].Resources = append([]string{strings.Replace(rights[i].Resources[0], "widgets", "gadgets", 1)}, rights[i].Resources...)
		}
	}
	s.service = s.serveNamespace(t, "team", rights)
	s.travels(t)
}

// travels changes a widget and returns how long it takes to arrive at the honest
// platform.
func (s *attackedKonnector) travels(t *testing.T) time.Duration {
	t.Helper()
	s.size++
	begun := time.Now()
	s.app.patch(t, widgetsGVR, cache.NewObjectName("team", "one"), map[string]any{"spec": map[string]any{"size": s.size}})
	eventually(t, func() error {
		u, err := s.controlPlane.dyn.Resource(widgetsGVR).Namespace(s.service).Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size"); size != s.size {
			return fmt.Errorf("size is %d, want %d", size, s.size)
		}
		return nil
	})
	return time.Since(begun)
}

// memoryLimit is that of a konnector in a Pod, whose GOMEMLIMIT is the limit of its manifest, less
// what an idle one needs.
const memoryLimit = 400 << 20

// heap follows how much more of the heap is live until most is called, which returns it. What tests before have left
// there does not count, nor does garbage: how much of that there is depends on when the collector gets to it, and it
// knows the limit.
func heap(t *testing.T) (most func() uint64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	largest := make(chan uint64, 1)
	var before goruntime.MemStats
	goruntime.GC()
	goruntime.ReadMemStats(&before)
	limit := debug.SetMemoryLimit(int64(before.Sys-before.HeapSys+before.HeapInuse) + memoryLimit)
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	live := func() uint64 { // as the last collection found it
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	begin := live()
	go func() {
		all := begin
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			all = max(all, live())
			select {
			case <-ctx.Done():
				tick.Stop()
				largest <- all
				return
			case <-tick.C:
			}
		}
	}()
	return func() uint64 { cancel(); return <-largest - begin }
}

// TestP8HostilePlatform: a konnector is started with a platform that floods, holds or
// lies. The binding of that platform says so; that of an honest one stays Ready, its
// objects travel as before, and the konnector's memory is bounded.
func TestP8HostilePlatform(t *testing.T) {
	s := newAttackedKonnector(t)
	s.begin(t)
	exports, spaces := testplatform.Read("apiserviceexports"), testplatform.Read("apiservicenamespaces")
	// Many values in few bytes reach the bounds sooner.
	values := make([]any, 1_000)
	for i := range values {
		values[i] = int64(1)
	}
	space := object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", tenant, "flood", map[string]any{"status": map[string]any{"values": values}})
	export := object(v1alpha1.GroupVersion.String(), "APIServiceExport", tenant, "flood", map[string]any{"spec": map[string]any{"values": values}})
	dense := object("example.org/v1", "Gadget", s.service, "flood", map[string]any{"status": map[string]any{"values": values}})
	const tooLarge = v1alpha1.ReasonControlPlaneAnswerTooLarge
	for _, tc := range []attack{
		{"gzip without end, to all", testplatform.All, testplatform.GzipBomb(), v1alpha1.ConditionConnected, tooLarge, "larger than the 64 MB"},
		{"gzip without end, for exports", exports, testplatform.GzipBomb(), v1alpha1.ConditionConnected, tooLarge, "apiserviceexports"},
		{"exports without end", exports, testplatform.EndlessEvents("ADDED", export, false), v1alpha1.ConditionConnected, tooLarge, "100000 objects"},
		{"pages of exports without end", exports, pages(export), v1alpha1.ConditionConnected, tooLarge, "100000 objects"},
		{"namespaces without end", spaces, testplatform.EndlessEvents("ADDED", space, false), v1alpha1.ConditionConnected, tooLarge, "apiservicenamespaces"},
		{"pages of objects without end", testplatform.Read("gadgets"), pages(dense), v1alpha1.ConditionInformersSynced, tooLarge, "found at gadgets"},
		{"an event without end", testplatform.Read("gadgets"), testplatform.Endless(200, "application/json", `{"type":"ADDED","object":{"a":"`, "x"), v1alpha1.ConditionInformersSynced, tooLarge, "larger than"},
		{"headers without end", testplatform.All, testplatform.Headers(1 << 20), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "cannot be reached"},
		{"another host", testplatform.All, testplatform.Redirect("https://elsewhere.example"), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "another host"},
		{"no JSON", testplatform.All, testplatform.Answer(200, "text/html", "<html>"), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "where JSON was asked for"},
		{"half of JSON", testplatform.All, testplatform.Answer(200, "application/json", `{"apiVersion":`), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "cannot be reached"},
		{"a message of a megabyte", testplatform.All, testplatform.Refuse(500, "InternalError", strings.Repeat("long ", 100_000)), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "long long"},
	} {
		t.Run("P8 "+tc.name, func(t *testing.T) { s.withstands(t, map[string]attack{gadgets: tc}) })
	}
	t.Run("P8 objects without end, silence and a trickle at once", func(t *testing.T) {
		silence := attack{"", testplatform.All, testplatform.Hang(), v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "no answer in time"}
		trickle := silence
		trickle.fault = testplatform.Trickle(100 * time.Millisecond)
		flood := attack{"", testplatform.Read("gadgets"), testplatform.EndlessEvents("ADDED", dense, false), v1alpha1.ConditionInformersSynced, tooLarge, "gadgets"}
		s.withstands(t, map[string]attack{gadgets: flood, gizmos: silence, gears: trickle})
	})
	t.Run("P8 honest again", s.honest)
}

// An attack is what a platform does, and what its binding says then.
type attack struct {
	name              string
	match             testplatform.Match
	fault             testplatform.Fault
	condition, reason string
	says              string
}

// withstands starts a konnector under attacks, by the binding whose platform attacks.
func (s *attackedKonnector) withstands(t *testing.T, attacks map[string]attack) {
	t.Helper()
	const mostLatency = 10 * time.Second
	s.honest(t) // so that no condition is that of the row before
	goruntime.GC()
	most := heap(t)
	for binding, a := range attacks {
		defer s.platforms[binding].Fault(a.match, a.fault)()
	}
	defer s.run(t, bind.Options{})()
	said := func() {
		for binding, a := range attacks {
			s.condition(t, binding, a.condition, a.reason, a.says)
		}
	}
	said()
	slowest := time.Duration(0)
	for range 5 {
		slowest = max(slowest, s.travels(t))
	}
	s.ready(t, widgets)
	if slowest > mostLatency {
		t.Errorf("an object of the honest platform took %s", slowest)
	}
	said() // still
	// Of four answers at once, 64 MB each, and what is copied of them.
	if live := most(); live > memoryLimit {
		t.Errorf("%d MB are live", live>>20)
	} else {
		t.Logf("%d MB are live, slowest object %s", live>>20, slowest)
	}
}

// honest waits until a konnector has both in step while the platform behaves.
func (s *attackedKonnector) honest(t *testing.T) {
	t.Helper()
	defer s.run(t, bind.Options{})()
	for _, binding := range []string{widgets, gadgets, gizmos, gears} {
		s.ready(t, binding)
	}
}

// pages refuses to stream a list, so that it comes in pages, without end.
func pages(example *unstructured.Unstructured) testplatform.Fault {
	endless := testplatform.EndlessPages(example, 500)
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		if testplatform.Watch(addressed(r))(r) {
			http.Error(w, "no watches here", http.StatusMethodNotAllowed)
			return
		}
		endless(w, r, honest)
	}
}

func addressed(r *http.Request) string { return r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:] }

// TestP8HostilePlatformCommands: binding, looking and leaving end in time and with an
// error that a person can read, whatever the platform answers.
func TestP8HostilePlatformCommands(t *testing.T) {
	app := newSide(t, "app")
	app.apply(t, v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"], object("v1", "Namespace", "", v1alpha1.Namespace, nil))
	for name, tc := range map[string]struct {
		fault testplatform.Fault
		says  string
		slow  bool // it takes as long as a call may
	}{
		"gzip without end":       {testplatform.GzipBomb(), "larger than the 64 MB", false},
		"blanks without end":     {testplatform.Endless(200, "application/json", "{", " "), "larger than the 64 MB", false},
		"a refusal without end":  {testplatform.Endless(403, "text/plain", "no", "no"), "refusal of more than 1 MB", false},
		"a message of a half MB": {testplatform.Refuse(422, metav1.StatusReasonInvalid, strings.Repeat("long ", 100_000)), "long long", false},
		"half of JSON":           {testplatform.Answer(200, "application/json", `{"apiVersion":`), "unexpected", true},
		"another host":           {testplatform.Redirect("https://elsewhere.example"), "another host", true},
		"silence":                {testplatform.Hang(), "", true},
		"a trickle":              {testplatform.Trickle(50 * time.Millisecond), "", true},
	} {
		t.Run("P8 "+name, func(t *testing.T) {
			platform := testplatform.Start(t, nil)
			platform.Fault(testplatform.All, tc.fault)
			access, err := platform.Kubeconfig(tenant, "token").Write()
			if err != nil {
				t.Fatal(err)
			}
			used := secret(v1alpha1.Namespace, hostileSecret, access)
			used.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "kubectl-bind"})
			w := &world{app: app, secret: hostileSecret, bindings: v1alpha1.Namespace}
			app.apply(t, used)
			w.bind(t, gadgets)
			most, begun, call := heap(t), time.Now(), 12*time.Second
			if tc.slow {
				call /= 4
			}
			ctx, cancel := context.WithTimeout(t.Context(), call)
			defer cancel()

			var told []string
			request := v1alpha1.APIServiceExportRequest{Spec: v1alpha1.APIServiceExportRequestSpec{Resources: []v1alpha1.APIServiceExportRequestResource{
				{GroupResource: v1alpha1.GroupResource{Group: "example.org", Resource: "widgets"}},
			}}}
			request.Name = "widgets"
			_, err = bind.Install(ctx, app.Config(), bind.InstallOptions{
				Kubeconfig: access, Requests: []v1alpha1.APIServiceExportRequest{request}, Progress: func(line string) { told = append(told, line) },
			})
			check(t, "bind", err, tc.says, tc.slow)
			ctx, cancel = context.WithTimeout(t.Context(), call)
			defer cancel()
			for _, f := range bind.Doctor(ctx, app.Config(), time.Now()) {
				if f.Check == "control-plane" && (f.OK || !strings.Contains(f.Message, tc.says) && !tc.slow) {
					t.Errorf("doctor finds %+v", f)
				}
				told = append(told, f.Message, f.Hint)
			}
			ctx, cancel = context.WithTimeout(t.Context(), call)
			defer cancel()
			err = bind.Remove(ctx, app.Config(), gadgets, bind.RemoveOptions{Progress: func(line string) { told = append(told, line) }})
			if !errors.Is(err, bind.ErrNotRevoked) {
				t.Errorf("unbind ends with %v", err)
			}
			check(t, "unbind", err, tc.says, tc.slow)
			for _, line := range told {
				if len(line) > 4<<10 {
					t.Errorf("a line of %d bytes: %.200s", len(line), line)
				}
			}
			if took, live := time.Since(begun), most(); took > 40*time.Second || live > 256<<20 { // one answer of 64 MB after the other
				t.Errorf("took %s and %d MB", took, live>>20)
			}
		})
	}
}

func check(t *testing.T, what string, err error, says string, slow bool) {
	t.Helper()
	if err == nil || !slow && !strings.Contains(err.Error(), says) || len(err.Error()) > 4<<10 {
		t.Errorf("%s ends with %.500v, want %q", what, err, says)
	}
}

// TestP8HostileBackend: nor can a backend hold or flood the client of its handshake.
func TestP8HostileBackend(t *testing.T) {
	for name, tc := range map[string]struct {
		fault testplatform.Fault
		says  string
	}{
		"gzip without end":   {testplatform.GzipBomb(), "larger than 1 MB"},
		"blanks without end": {testplatform.Endless(200, "application/json", "{", " "), "larger than 1 MB"},
		"headers":            {testplatform.Headers(1 << 20), "PROTOCOL_ERROR"},
		"another host":       {testplatform.Redirect("https://elsewhere.example/export"), "another origin"},
		"half of JSON":       {testplatform.Answer(200, "application/json", `{"kind":`), "not a Klutch backend"},
		"a trickle":          {testplatform.Trickle(50 * time.Millisecond), "deadline"},
		"silence":            {testplatform.Hang(), "deadline"},
	} {
		t.Run("P8 "+name, func(t *testing.T) {
			backend := testplatform.Front(t, http.NotFoundHandler())
			backend.Fault(testplatform.All, tc.fault)
			client, err := bind.NewClient(backend.URL(), bind.ClientOptions{CAData: backend.CA()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			most := heap(t)
			if _, err = client.Discover(ctx); err == nil || !strings.Contains(err.Error(), tc.says) || len(err.Error()) > 4<<10 {
				t.Errorf("error %.500v, want %q", err, tc.says)
			}
			if live := most(); live > 32<<20 {
				t.Errorf("took %d MB", live>>20)
			}
		})
	}
}
