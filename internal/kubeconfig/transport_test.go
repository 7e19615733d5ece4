// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/testplatform"
)

const tenant = "cluster-abc"

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func example() *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}}
	u.SetNamespace(tenant)
	u.SetName("one")
	return u
}

func clientOf(t *testing.T, p *testplatform.Platform) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(p.Kubeconfig(tenant, "token").RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(secrets).Namespace(tenant)
}

// growth is how much the heap grew at most while fn ran.
func growth(fn func()) uint64 {
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var most atomic.Uint64
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			most.Store(max(most.Load(), now.HeapInuse))
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
		}
	}()
	fn()
	cancel()
	<-ended
	return most.Load() - min(before.HeapInuse, most.Load())
}

// TestP8Answers: what an API server of the other side answers is bounded, whatever it is
// asked for, and so is the memory that it takes.
func TestP8Answers(t *testing.T) {
	const mostMemory = 400 << 20
	megabyte := strings.Repeat("x", 1<<20)
	for name, tc := range map[string]struct {
		fault  testplatform.Fault
		says   string // in the error
		excess bool
		within time.Duration
	}{
		"gzip without end":   {testplatform.GzipBomb(), "larger than the 64 MB", true, 20 * time.Second},
		"blanks without end": {testplatform.Endless(200, "application/json", "{", " "), "larger than", true, 20 * time.Second},
		"lists of nothing":   {testplatform.Endless(200, "application/json", `{"items":[`, "[],"), "larger than", true, 20 * time.Second},
		"objects of nothing": {testplatform.Endless(200, "application/json", `{"items":[`, "{},"), "larger than", true, 20 * time.Second},
		"a list without end": {testplatform.EndlessList(example()), "larger than", true, 20 * time.Second},
		"a refusal without end": {
			testplatform.Endless(403, "application/json", `{"kind":"Status","message":"`, "x"),
			"refusal of more than 1 MB", true, 20 * time.Second,
		},
		"gzip that refuses":  {refusing(testplatform.GzipBomb()), "refusal of more than", true, 20 * time.Second},
		"headers":            {testplatform.Headers(1 << 20), "PROTOCOL_ERROR", false, 20 * time.Second},
		"another host":       {testplatform.Redirect("https://elsewhere.example/"), "another host", false, 20 * time.Second},
		"http":               {testplatform.Redirect("http://127.0.0.1:1/"), "another host", false, 20 * time.Second},
		"protobuf":           {testplatform.Answer(200, "application/vnd.kubernetes.protobuf", "k8s\x00"), "where JSON was asked for", false, 20 * time.Second},
		"YAML":               {testplatform.Answer(200, "application/yaml", "a: &a [1]\nb: [*a,*a]"), "where JSON was asked for", false, 20 * time.Second},
		"a web page":         {testplatform.Answer(200, "text/html", "<html>"), "where JSON was asked for", false, 20 * time.Second},
		"a type of nonsense": {testplatform.Answer(200, "\\;;", "{}"), "where JSON was asked for", false, 20 * time.Second},
		"half a document":    {testplatform.Answer(200, "application/json", `{"items":`), "unexpected", false, 20 * time.Second},
		"a deep document":    {testplatform.Answer(200, "application/json", strings.Repeat(`{"a":`, 1<<20)), "larger than", true, 20 * time.Second},
		"a long message":     {testplatform.Refuse(403, metav1.StatusReasonForbidden, megabyte[:1<<19]), "xxx", false, 20 * time.Second},
		"a longer message":   {testplatform.Refuse(403, metav1.StatusReasonForbidden, megabyte+megabyte), "refusal of more than", true, 20 * time.Second},
		"a long text":        {testplatform.Answer(500, "text/plain", megabyte), "", false, 20 * time.Second},
		"a trickle":          {testplatform.Trickle(50 * time.Millisecond), "deadline", false, 20 * time.Second},
		"silence":            {testplatform.Hang(), "deadline", false, 20 * time.Second},
		"come back later":    {later(), "", false, 0},
	} {
		t.Run("P8 "+name, func(t *testing.T) {
			p := testplatform.Start(t, nil)
			p.Fault(testplatform.All, tc.fault)
			ctx, cancel := context.WithTimeout(t.Context(), tc.within)
			defer cancel()
			if tc.within == 0 { // the pause is cut for those who would wait for ever
				ctx = t.Context()
			}
			if tc.says == "deadline" {
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
			}
			c := clientOf(t, p)
			var err error
			grown := growth(func() { _, err = c.List(ctx, metav1.ListOptions{}) })
			var excess *kubeconfig.ExcessError
			if err == nil || !strings.Contains(err.Error(), tc.says) || errors.As(err, &excess) != tc.excess || tc.says != "deadline" && ctx.Err() != nil {
				t.Fatalf("error %.300v, want one that says %q, ExcessError %t", err, tc.says, tc.excess)
			}
			if len(err.Error()) > 8<<10 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if grown > mostMemory {
				t.Errorf("took %d MB", grown>>20)
			}
			if asked := p.Asked(testplatform.All); tc.excess {
				if _, again := c.List(ctx, metav1.ListOptions{}); !errors.As(again, &excess) || p.Asked(testplatform.All) != asked {
					t.Errorf("asked again at once: %v", again)
				}
			}
		})
	}
}

// refusing is fault with a status code that says no.
func refusing(fault testplatform.Fault) testplatform.Fault {
	return func(w http.ResponseWriter, r *http.Request, honest http.Handler) {
		fault(withCode{w, http.StatusForbidden}, r, honest)
	}
}

type withCode struct {
	http.ResponseWriter
	code int
}

// Unwrap lets the flood be flushed.
func (w withCode) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [http.ResponseWriter].
func (w withCode) Write(p []byte) (int, error) {
	if w.Header().Get("X-Said") == "" {
		w.Header().Set("X-Said", "so")
		w.WriteHeader(w.code)
	}
	return w.ResponseWriter.Write(p)
}

// later refuses and asks for a pause of years, once.
func later() testplatform.Fault {
	asked := false
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		if !asked {
			asked = true
			w.Header().Set("Retry-After", "2147483647")
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	}
}

// TestP8Events: each event of a watch is bounded. client-go's decoder is not: it looks at
// the length of an event when all of it is in memory.
func TestP8Events(t *testing.T) {
	for name, fault := range map[string]testplatform.Fault{
		"text without end":     testplatform.Endless(200, "application/json", `{"type":"ADDED","object":{"a":"`, "x"),
		"blanks before":        testplatform.Endless(200, "application/json", "", "\n"),
		"lines in it":          testplatform.Endless(200, "application/json", `{"type":"ADDED","object":{"a":[`, "\n{},"),
		"quotes that mean not": testplatform.Endless(200, "application/json", `{"type":"ADDED","object":{"a":"`, `\"}`),
		"gzip":                 testplatform.GzipBomb(),
	} {
		t.Run("P8 "+name, func(t *testing.T) {
			p := testplatform.Start(t, nil)
			p.Fault(testplatform.Watch("secrets"), fault)
			c := clientOf(t, p)
			grown := growth(func() {
				w, err := c.Watch(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				defer w.Stop()
				e, ok := <-w.ResultChan()
				if err := apierrors.FromObject(e.Object); !ok || e.Type != watch.Error || !strings.Contains(err.Error(), "larger than") {
					t.Errorf("event %s: %v", e.Type, err)
				}
			})
			if grown > 400<<20 {
				t.Errorf("took %d MB", grown>>20)
			}
			var excess *kubeconfig.ExcessError
			if _, err := c.Watch(t.Context(), metav1.ListOptions{}); !errors.As(err, &excess) {
				t.Errorf("asked again at once: %v", err)
			}
		})
	}
}

// TestP8HonestAnswers: what a large control plane really answers is let in.
func TestP8HonestAnswers(t *testing.T) {
	p := testplatform.Start(t, nil)
	large := example()
	large.Object["data"] = map[string]any{"a": strings.Repeat("x", 3<<19)} // 1.5 MB, which etcd takes
	p.Put("secrets", large)
	fields := map[string]any{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		fields[name] = []any{map[string]any{"type": "Ready", "status": "True"}}
	}
	ordinary := example()
	ordinary.Object["status"] = fields
	p.Fault(testplatform.Path("/pages/secrets"), testplatform.EndlessPages(ordinary, 500))
	c := clientOf(t, p)
	if u, err := c.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || u.GetName() != "one" {
		t.Errorf("a large object: %v", err)
	}
	p.Fault(testplatform.List("secrets"), testplatform.EndlessPages(ordinary, 500))
	opts := metav1.ListOptions{Limit: 500}
	for range 20 {
		list, err := c.List(t.Context(), opts)
		if err != nil {
			t.Fatalf("a page of 500 objects: %v", err)
		}
		opts.Continue = list.GetContinue()
	}
	long := strings.Repeat("spec.a is invalid, ", 500)
	p.Fault(testplatform.Write("secrets"), testplatform.Refuse(422, metav1.StatusReasonInvalid, long))
	if _, err := c.Create(t.Context(), example(), metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.a is invalid") || len(err.Error()) > 4<<10 {
		t.Errorf("a long refusal: %v", err)
	}
	meta, err := metadata.NewForConfig(metadata.ConfigFor(p.Kubeconfig(tenant, "token").RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	if o, err := meta.Resource(secrets).Namespace(tenant).Get(t.Context(), "one", metav1.GetOptions{}); err != nil || o.Name != "one" {
		t.Errorf("metadata as JSON: %v, %v", o, err)
	}
}
