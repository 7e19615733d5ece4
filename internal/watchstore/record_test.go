// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func FuzzRecord(f *testing.F) {
	f.Add("a", "b", int64(-1), 1.5, true)
	f.Add("", "ü", int64(math.MinInt64), math.Inf(1), false)
	f.Add("long", strings.Repeat("x", maxWarm), int64(1), 0.0, true)
	known := &dictionary{}
	f.Fuzz(func(t *testing.T, k, s string, n int64, x float64, b bool) {
		if x != x {
			return // NaN is no JSON, and differs from itself
		}
		want := &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": "n", "namespace": "ns", "uid": "u", "resourceVersion": "7"},
			k + "x":    []any{s, n, x, b, nil, map[string]any{s: n, "": s}, []any{}},
			"status":   map[string]any{"phase": s},
		}}
		c, ok := known.record(want)
		if !ok {
			t.Fatal("has no record")
		}
		if diff := cmp.Diff(want, c.Full()); diff != "" {
			t.Errorf("decoded (-want +got):\n%s", diff)
		}
		meta := c.GetObjectMeta()
		if meta.GetName() != "n" || meta.GetNamespace() != "ns" || meta.GetUID() != "u" || meta.GetResourceVersion() != "7" {
			t.Errorf("metadata = %+v", meta)
		}
	})
}

// What is not JSON is kept as it is.
func TestNoRecord(t *testing.T) {
	if _, ok := (&dictionary{}).record(&unstructured.Unstructured{Object: map[string]any{"a": uint8(1)}}); ok {
		t.Error("an object that is not JSON has a record")
	}
}

// BenchmarkLargeRecord writes and reads an object of a long list.
func BenchmarkLargeRecord(b *testing.B) {
	items := make([]any, 5000)
	for i := range items {
		items[i] = map[string]any{"name": fmt.Sprint("item ", i), "value": fmt.Sprintf("%028d", i*7919)}
	}
	names, u := &dictionary{}, &unstructured.Unstructured{Object: map[string]any{"spec": items}}
	b.ReportAllocs()
	for b.Loop() {
		r, _ := names.record(u)
		r.Full()
	}
}

// Large objects do not stay decoded: what was read of a hundred of them is forgotten.
func TestLargeRecordsRest(t *testing.T) {
	const objects = 30
	items := make([]any, 5000)
	for i := range items {
		items[i] = map[string]any{"name": fmt.Sprint("item ", i), "port": int64(i)}
	}
	names, all, bytes := &dictionary{}, make([]*Record, objects), 0
	for i := range all {
		all[i], _ = names.record(&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": fmt.Sprint(i)}, "spec": items}})
		bytes += len(all[i].body)
	}
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	for _, r := range all {
		r.Full()
	}
	if more := heap() - before; more > bytes {
		t.Errorf("after a look at objects of %d bytes the heap has %d bytes more", bytes, more)
	}
	runtime.KeepAlive(all)
}
