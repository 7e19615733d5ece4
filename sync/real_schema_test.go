// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/sync/internal/prune"
)

// A meter counts what goes to an API server.
type meter struct {
	mu      gosync.Mutex
	writes  []string
	watches map[string]int // by path
}

func metered(tb testing.TB, config *rest.Config) (*meter, *Cluster) {
	tb.Helper()
	m := &meter{watches: map[string]int{}}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			m.count(r)
			return next.RoundTrip(r)
		})
	})
	c, err := NewCluster(config)
	if err != nil {
		tb.Fatal(err)
	}
	return m, c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (m *meter) count(r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.URL.Query().Has("watch"):
		m.watches[r.URL.Path]++
	case r.Method != http.MethodGet:
		m.writes = append(m.writes, r.Method+" "+r.URL.Path)
	}
}

func (m *meter) written() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clip(m.writes)
}

func (m *meter) watched() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.watches)
}

// A shape is a version of the CRD of widgets: the schemas of fields beside size,
// phase and node.
type shape struct {
	name         string
	unserved     bool
	stored       bool
	plain        bool   // without a status subresource
	size         string // what else its schema says
	spec, status []string
}

func (s shape) json() string {
	props := func(known []string, more []string) string {
		for _, f := range more {
			if !strings.HasPrefix(f, `"`) {
				f = `"` + f + `":{"type":"string"}`
			}
			known = append(known, f)
		}
		return `{"type":"object","properties":{` + strings.Join(known, ",") + `}}`
	}
	str := func(name string) string { return `"` + name + `":{"type":"string"}` }
	subresources := `{"status":{}}`
	if s.plain {
		subresources = `null`
	}
	return fmt.Sprintf(`{"name":%q,"served":%t,"storage":%t,"subresources":`+subresources+`,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":%s,"status":%s}}}}`,
		s.name, !s.unserved, s.stored, props([]string{`"size":{"type":"string"` + s.size + `}`}, s.spec), props([]string{str("phase"), str("node")}, s.status))
}

// An evolution is two clusters whose CRDs change.
type evolution struct {
	*world
	set      *Set
	up, down *meter // of the target and the source
}

func (v *evolution) shape(d dynamic.Interface, shapes ...shape) {
	v.Helper()
	var all []string
	for _, s := range shapes {
		all = append(all, s.json())
	}
	patch := `{"spec":{"versions":[` + strings.Join(all, ",") + `]}}`
	if _, err := d.Resource(crds).Patch(v.Context(), "widgets.example.org", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		v.Fatal(err)
	}
}

// quiet waits until nothing has been written for a second, and fails if anything is
// in the next two.
func (v *evolution) quiet() {
	v.Helper()
	before := -1
	for deadline := time.Now().Add(2 * time.Minute); ; {
		n := len(v.up.written()) + len(v.down.written())
		if n == before {
			break
		}
		if time.Now().After(deadline) {
			v.Fatalf("writes do not end: %v", v.tail(10))
		}
		before = n
		<-time.After(time.Second)
	}
	<-time.After(2 * time.Second)
	if n := len(v.up.written()) + len(v.down.written()); n > before {
		v.Errorf("%d writes after all was in step: %v", n-before, v.tail(n-before))
	}
}

// restart has another Sync take over, which finds nothing to write.
func (v *evolution) restart() {
	v.Helper()
	up, down := len(v.up.written()), len(v.down.written())
	v.set.Put("s", v.build("widgets"))
	v.until("all is read again", func() bool { st, _ := v.set.State("s"); return st.Synced })
	v.quiet()
	if up, down := v.up.written()[up:], v.down.written()[down:]; len(up)+len(down) > 0 {
		v.Errorf("writes after a restart: %q to the target, %q to the source", up, down)
	}
}

func (v *evolution) tail(n int) []string {
	var out []string
	for _, m := range []*meter{v.up, v.down} {
		w := m.written()
		out = append(out, w[max(0, len(w)-n):]...)
	}
	return out
}

// both checks a field of both sides.
func (v *evolution) both(name string, source, target any, path ...string) {
	v.Helper()
	v.until(fmt.Sprintf("%s of %s is %v and %v", strings.Join(path, "."), name, source, target), func() bool {
		return field(v.get(v.source, v.sourceNS, name), path...) == source && field(v.targetOf(name), path...) == target
	})
}

// unread waits until a side cannot be read in the version of the Sync.
func (v *evolution) unread(view string) {
	v.Helper()
	v.until(view+" cannot be read", func() bool {
		st, _ := v.set.State("s")
		var e *ReadError
		return !st.Synced && errors.As(st.Err, &e) && e.View == view && strings.Contains(e.Error(), "not served in version v1")
	})
}

var (
	v1     = shape{name: "v1", stored: true}
	v2     = shape{name: "v2"}
	gadget = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}
)

func (s shape) with(change func(*shape)) shape { change(&s); return s }
func plain(s *shape)                           { s.plain = true }
func stored(s *shape)                          { s.stored = true }
func notStored(s *shape)                       { s.stored = false }
func unserved(s *shape)                        { s.unserved = true }
func spec(f ...string) func(*shape)            { return func(s *shape) { s.spec = f } }
func status(f ...string) func(*shape)          { return func(s *shape) { s.status = f } }
func size(of string) func(*shape)              { return func(s *shape) { s.size = of } }

// Schemas change under a Sync, on either side, in the order of a life.
var schemaChanges = []struct {
	name   string
	happen func(v *evolution)
}{
	{"a version comes to the target", func(v *evolution) { v.shape(v.target, v1, v2) }},
	{"a version comes to the source", func(v *evolution) { v.shape(v.source, v2, v1) }},
	{"the storage version of the target moves", func(v *evolution) { v.shape(v.target, v1.with(notStored), v2.with(stored)) }},
	{"the storage version of the source moves", func(v *evolution) { v.shape(v.source, v2.with(stored), v1.with(notStored)) }},
	{"the version of the target goes and returns", func(v *evolution) {
		v.shape(v.target, v1.with(notStored).with(unserved), v2.with(stored))
		v.unread("target")
		v.merge(v.source, v.sourceNS, "a", `{"spec":{"size":"large"}}`)
		v.create(v.source, v.sourceNS, v.widget("meanwhile", `{"size":"small"}`, ``))
		v.shape(v.target, v1.with(notStored), v2.with(stored))
		v.both("a", "large", "large", "spec", "size")
		v.both("meanwhile", "small", "small", "spec", "size")
	}},
	{"the version of the source goes and returns", func(v *evolution) {
		v.shape(v.source, v2.with(stored), v1.with(notStored).with(unserved))
		v.unread("source")
		v.merge(v.target, v.targetNS, "a", `{"status":{"node":"n1"}}`, "status")
		v.shape(v.source, v2, v1)
		v.both("a", "n1", "n1", "status", "node")
		v.shape(v.target, v1, v2)
	}},
	{"a field comes to the source, and later to the target", func(v *evolution) {
		v.shape(v.source, v2.with(spec("extra")), v1.with(spec("extra")))
		v.learn("a", `{"spec":{"extra":"x","size":"small"}}`, "spec", "extra")
		v.both("a", "small", "small", "spec", "size")
		v.both("a", "x", nil, "spec", "extra")
		v.leftBehind("spec.extra")
		v.quiet()
		v.restart()
		v.shape(v.target, v1.with(spec("extra")), v2.with(spec("extra")))
		v.both("a", "x", "x", "spec", "extra")
	}},
	{"a field goes from the target, and returns", func(v *evolution) {
		v.shape(v.target, v1, v2)
		v.both("a", "x", nil, "spec", "extra")
		v.merge(v.source, v.sourceNS, "a", `{"spec":{"size":"medium"}}`)
		v.both("a", "medium", "medium", "spec", "size")
		v.leftBehind("spec.extra")
		v.quiet()
		v.shape(v.target, v1.with(spec("extra")), v2.with(spec("extra")))
		v.both("a", "x", "x", "spec", "extra")
		v.leftBehind("")
	}},
	{"a field has a name of Crossplane's, which later serves the kind", func(v *evolution) {
		const own, crossplane = `"resourceRef":{"type":"object","properties":{"name":{"type":"string"}}}`, `"compositionRef":{"type":"object"}`
		v.shape(v.target, v1.with(spec("extra", own)), v2)
		v.shape(v.source, v1.with(spec("extra", own)), v2)
		v.learn("a", `{"spec":{"resourceRef":{"name":"own"}}}`, "spec", "resourceRef")
		v.both("a", "own", "own", "spec", "resourceRef", "name")
		v.shape(v.target, v1.with(spec("extra", own, crossplane)), v2)
		v.both("a", "own", nil, "spec", "resourceRef", "name")
		v.merge(v.source, v.sourceNS, "a", `{"spec":{"resourceRef":null}}`)
	}},
	{"a field with a default comes to the source", func(v *evolution) {
		v.shape(v.target, v1.with(spec("extra", "tier")), v2)
		v.shape(v.source, v1.with(spec("extra", `"tier":{"type":"string","default":"gold"}`)), v2)
		v.both("a", "gold", "gold", "spec", "tier")
	}},
	{"fields go from the source", func(v *evolution) {
		v.shape(v.source, v1, v2)
		v.both("a", nil, nil, "spec", "extra")
		v.both("a", nil, nil, "spec", "tier")
	}},
	{"a field of the status comes to the target, and later to the source", func(v *evolution) {
		v.shape(v.target, v1.with(status("url")), v2)
		v.learn("a", "", "")
		v.both("a", nil, "https://a", "status", "url")
		v.both("a", "n2", "n2", "status", "node")
		v.quiet()
		v.restart()
		v.shape(v.source, v1.with(status("url")), v2)
		v.both("a", "https://a", "https://a", "status", "url")
	}},
	{"the target gets stricter, and then not", func(v *evolution) {
		v.shape(v.target, v1.with(status("url")).with(size(`,"maxLength":6`)), v2)
		v.until("the refusal is told", func() bool {
			v.merge(v.source, v.sourceNS, "a", fmt.Sprintf(`{"spec":{"size":"extra-large-%d"}}`, time.Now().UnixNano()))
			return strings.HasPrefix(v.message("a"), string(ReasonRefused)+": ")
		})
		v.shape(v.target, v1.with(status("url")), v2)
		began := time.Now()
		v.until("the refused change arrives", func() bool {
			return v.message("a") == "" && field(v.get(v.source, v.sourceNS, "a"), "spec", "size") == field(v.targetOf("a"), "spec", "size")
		})
		if took := time.Since(began); took > time.Minute {
			v.Errorf("it took %v", took)
		}
	}},
}

// leftBehind waits until the claim says which field its target is without, or that none is.
func (v *evolution) leftBehind(field string) {
	v.Helper()
	v.until("told of the field: "+field, func() bool {
		m := v.message("a")
		return m == "" && field == "" || field != "" && strings.HasPrefix(m, string(ReasonFields)+": ") && strings.HasSuffix(m, ": "+field)
	})
}

// learn changes an object of the source once its API server knows a field, and for an
// empty patch the status of a target.
func (v *evolution) learn(name, patch string, path ...string) {
	v.Helper()
	v.until("a new field is known", func() bool {
		if patch == "" {
			v.merge(v.target, v.targetNS, name, `{"status":{"url":"https://a","node":"n2"}}`, "status")
			return field(v.targetOf(name), "status", "url") != nil
		}
		v.merge(v.source, v.sourceNS, name, patch)
		return field(v.get(v.source, v.sourceNS, name), path...) != nil
	})
}

// Whatever happens to a schema, nothing is lost or made anew, writing ends, and what
// did not change is not watched anew.
func TestRealSchemaChanges(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	app, control := cluster.Reused(t, "app"), cluster.Reused(t, "control")
	v := &evolution{world: &world{TB: t, source: admin(t, app.Config()), target: admin(t, control.Config()), sourceNS: "team", targetNS: "svc-team"}}
	for _, d := range []dynamic.Interface{v.source, v.target} {
		install(t, d, v.sourceNS, v.targetNS)
		other := strings.NewReplacer("widget", "gadget", "Widget", "Gadget").Replace(widgetCRD)
		if _, err := d.Resource(crds).Create(t.Context(), object(t, other), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		v.shape(d, v1)
	}
	v.down, v.from = metered(t, app.Config())
	v.up, v.to = metered(t, control.Config())
	v.set = v.put("widgets")
	published(t, v.from, gadget)
	published(t, v.to, gadget)
	other, err := New(v.from, v.to, gadget, Options{Mapper: Prefix("g-")})
	if err != nil {
		t.Fatal(err)
	}
	v.set.Put("gadgets", other)
	v.create(v.source, v.sourceNS, v.widget("a", `{"size":"small"}`, ``))
	v.until("all is watched", func() bool {
		st, _ := v.set.State("gadgets")
		return v.targetOf("a") != nil && st.Synced
	})
	v.provideNow("a")
	uid := v.targetOf("a").GetUID()
	for i, change := range schemaChanges {
		ok := t.Run(change.name, func(t *testing.T) {
			inner := *v
			w := *v.world
			w.TB = t
			inner.world = &w
			others := func() [2]map[string]int {
				return [2]map[string]int{beside(inner.down.watched()), beside(inner.up.watched())}
			}
			before := others()
			change.happen(&inner)
			name := fmt.Sprintf("new-%d", i)
			w.create(w.source, w.sourceNS, w.widget(name, `{"size":"small"}`, ``))
			inner.both(name, "small", "small", "spec", "size")
			inner.provideNow(name)
			inner.quiet()
			if got := w.targetOf("a").GetUID(); got != uid {
				t.Errorf("the target was made anew: %s, not %s", got, uid)
			}
			if got := field(w.get(w.source, w.sourceNS, "a"), "status", "phase"); got != "Ready" {
				t.Errorf("the source's phase is %v", got)
			}
			if diff := cmp.Diff(before, others()); diff != "" {
				t.Errorf("other watches (-before +after):\n%s", diff)
			}
		})
		if !ok {
			return
		}
	}
}

// published waits until a cluster serves a resource and its schema, which would be a change for
// a Sync that has begun.
func published(tb testing.TB, c *Cluster, resource schema.GroupVersionResource) {
	tb.Helper()
	eventually(tb, "the schema of "+resource.Resource, func(ctx context.Context) (bool, error) {
		fields := prune.NewCache(c.raw, resource, nil, func(string) {})
		fields.Load(ctx)
		_, known := fields.Plain()
		err := c.raw.Get().AbsPath("/apis", resource.Group, resource.Version, resource.Resource).Do(ctx).Error()
		return known && err == nil, nil
	})
}

// beside are the watches of the other Sync.
func beside(all map[string]int) map[string]int {
	maps.DeleteFunc(all, func(path string, _ int) bool { return !strings.HasSuffix(path, "/gadgets") })
	return all
}

// provideNow has the provider give a status, and waits until the source has it.
func (v *evolution) provideNow(name string) {
	v.Helper()
	v.merge(v.target, v.targetNS, name, `{"status":{"phase":"Ready"}}`, "status")
	v.until("status came down", func() bool { return field(v.get(v.source, v.sourceNS, name), "status", "phase") == "Ready" })
}
