// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// event is one as API servers send it of a widget that a konnector keeps in step.
func event(i int) string {
	fields := `{"f:metadata":{"f:annotations":{".":{},"f:example.org/bound":{},"f:example.org/source":{}}},"f:spec":{".":{},"f:color":{},"f:size":{},"f:ports":{".":{},"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:port":{}}}}}`
	return fmt.Sprintf(`{"type":"MODIFIED","object":{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"annotations":{"example.org/bound":"true","example.org/source":"{\"name\":\"w-%d\",\"uid\":\"0c5c2b1e-4f8c-4a6f-9df4-3b6a0a6f%04d\",\"generation\":1}"},"creationTimestamp":"2026-01-01T00:00:00Z","finalizers":["example.org/sync"],"generation":%d,"labels":{"app":"web","team":"red"},"managedFields":[{"apiVersion":"example.org/v1","fieldsType":"FieldsV1","fieldsV1":%s,"manager":"example.org/sync","operation":"Apply","time":"2026-01-01T00:00:00Z"},{"apiVersion":"example.org/v1","fieldsType":"FieldsV1","fieldsV1":{"f:status":{".":{},"f:conditions":{},"f:phase":{}}},"manager":"provider","operation":"Update","subresource":"status","time":"2026-01-01T00:00:01Z"}],"name":"w-%d","namespace":"default","resourceVersion":"%d","uid":"0c5c2b1e-4f8c-4a6f-9df4-3b6a0a6f%04d"},"spec":{"color":"c%d","ports":[{"name":"http","port":80}],"ratio":0.5,"size":"small","text":"a\nb \u00fc ü"},"status":{"conditions":[{"lastTransitionTime":"2026-01-01T00:00:01Z","message":"All is well.","reason":"Available","status":"True","type":"Ready"}],"phase":"Ready"}}}`+"\n",
		i, i%10_000, i, fields, i, 1000+i, i%10_000, i)
}

// stream answers a watch with the same bytes each time.
type stream struct {
	data  []byte
	small bool // in small reads
}

func (s stream) RoundTrip(*http.Request) (*http.Response, error) {
	var body io.Reader = bytes.NewReader(s.data)
	if s.small {
		body = iotest.OneByteReader(body)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body)}, nil
}

// clients are ours and client-go's.
func clients(tb testing.TB, s stream) map[string]dynamic.Interface {
	tb.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1", Transport: s, QPS: -1}
	ours, err := NewDynamic(config)
	if err != nil {
		tb.Fatal(err)
	}
	theirs, err := dynamic.NewForConfig(config)
	if err != nil {
		tb.Fatal(err)
	}
	return map[string]dynamic.Interface{"ours": ours, "client-go": theirs}
}

func watched(tb testing.TB, c dynamic.Interface) (events []watch.Event) {
	tb.Helper()
	w, err := c.Resource(widgets).Watch(tb.Context(), metav1.ListOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		events = append(events, e)
	}
	return events
}

// Whatever a stream has, its watch sees what that of client-go's client does.
func TestWatchSeesTheSame(t *testing.T) {
	object := strings.TrimSuffix(strings.TrimPrefix(event(1), `{"type":"MODIFIED","object":`), "}\n")
	for name, text := range map[string]string{
		"objects":          event(1) + event(2) + event(3),
		"without newlines": strings.TrimSpace(event(1)) + strings.TrimSpace(event(2)),
		"braces in texts":  strings.ReplaceAll(event(1), "All is well.", `}]\"{[\\`) + event(2),
		"a large object":   strings.ReplaceAll(event(1), "All is well.", strings.Repeat("x", 100_000)) + event(2),
		"spaces":           "{ \"type\" : \"ADDED\" ,\n \"object\" : " + object + " }\n" + event(2),
		"other order":      `{"object":` + object + `,"type":"ADDED"}`,
		"more fields":      `{"type":"ADDED","object":` + object + `,"more":{}}` + "\n" + event(2),
		"a bookmark":       `{"type":"BOOKMARK","object":{"kind":"Widget","apiVersion":"example.org/v1","metadata":{"resourceVersion":"7","creationTimestamp":null,"annotations":{"k8s.io/initial-events-end":"true"}}}}`,
		"an error":         `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old","reason":"Expired","code":410}}`,
		"of the core":      `{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a"},"data":{"a":"Yg=="}}}`,
		"of meta":          `{"type":"ADDED","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":410}}`,
		"a list":           `{"type":"ADDED","object":{"kind":"WidgetList","apiVersion":"example.org/v1","metadata":{},"items":[{"kind":"Widget","apiVersion":"example.org/v1"}]}}`,
		"no kind":          `{"type":"ADDED","object":{"apiVersion":"example.org/v1"}}`,
		"an unknown type":  `{"type":"MOVED","object":` + object + `}`,
		"no object":        `{"type":"ADDED"}`,
		"null":             `{"type":"ADDED","object":null}`,
		"a field twice":    `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.org/v1","spec":{"a":1,"a":2}}}`,
		"the type twice":   `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.org/v1"},"type":"DELETED"}`,
		"the object twice": `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.org/v1"},"object":{"kind":"Other","apiVersion":"example.org/v1"}}`,
		"no JSON":          `{"type":"ADDED","object":{"kind":Widget}}`,
		"cut":              event(1) + event(2)[:100],
		"cut at an end":    event(1),
		"nothing":          "",
		"deep":             `{"type":"ADDED","object":{"kind":"Widget","apiVersion":"example.org/v1","spec":` + strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000) + `}}`,
	} {
		for _, small := range []bool{false, true} {
			c := clients(t, stream{[]byte(text), small})
			ours, theirs := watched(t, c["ours"]), watched(t, c["client-go"])
			if diff := cmp.Diff(theirs, ours, cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Message" }, cmp.Ignore())); diff != "" {
				t.Errorf("%s: events (-client-go +ours):\n%s", name, diff)
			}
			if name == "objects" && len(ours) != 3 {
				t.Errorf("%d events, want 3", len(ours))
			}
		}
	}
}

// An open watch keeps no buffer of the size of the largest event that it has seen.
func TestLargeEventsPass(t *testing.T) {
	const size = 4 << 20
	text := strings.ReplaceAll(event(1), "All is well.", strings.Repeat("x", size))
	later, end := io.Pipe()
	answer := roundTripper(func() *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(io.MultiReader(strings.NewReader(text), later))}
	})
	c, err := NewDynamic(&rest.Config{Host: "http://127.0.0.1:1", Transport: answer, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Resource(widgets).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if e := <-w.ResultChan(); e.Type != watch.Modified {
		t.Fatalf("%v", e)
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	busy := heap()
	w.Stop()
	_ = end.Close()
	for range w.ResultChan() {
	}
	if kept := busy - heap(); kept > size/2 {
		t.Errorf("%d bytes are kept of an event of %d", kept, size)
	}
	runtime.KeepAlive(text)
}

type roundTripper func() *http.Response

func (f roundTripper) RoundTrip(*http.Request) (*http.Response, error) { return f(), nil }

// BenchmarkWatch reads a stream of events through a whole client.
func BenchmarkWatch(b *testing.B) {
	const length = 2000
	var text strings.Builder
	for i := range length {
		text.WriteString(event(i))
	}
	for name, c := range clients(b, stream{data: []byte(text.String())}) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				if n := len(watched(b, c)); n != length {
					b.Fatalf("%d events", n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*length), "ns/event")
		})
	}
}
