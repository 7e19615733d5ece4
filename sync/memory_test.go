// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
)

// keyedItems has the items of spec.items be owned one by one, by their names.
const keyedItems = `
    - name: spec
      type:
        map:
          fields:
          - name: items
            type:
              list:
                elementType: {namedType: __untyped_deduced_}
                elementRelationship: associative
                keys: [name]
          elementType: {namedType: __untyped_deduced_}
`

// newLarge is newFake with lists that are owned item by item.
func newLarge(tb testing.TB) *world {
	tb.Helper()
	types, err := fakecluster.Types(keyedItems)
	if err != nil {
		tb.Fatal(err)
	}
	w := newFake(tb)
	resource := fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget", Types: types}
	for _, c := range []*fakecluster.Cluster{w.fakeSource, w.fakeTarget} {
		c.Withdraw(widgets)
		c.Serve(resource)
	}
	return w
}

// listed is a spec with a list of so many items.
func listed(items, round int) string {
	list := make([]string, items)
	for i := range list {
		list[i] = fmt.Sprintf(`{"name":"item-%05d","value":"%028d"}`, i, i*7919+round)
	}
	return `{"size":"small","items":[` + strings.Join(list, ",") + `]}`
}

// I17: objects with long lists, whose items are owned one by one, take less than their
// bytes once they are in step.
func TestI17LargeObjects(t *testing.T) {
	const objects, items, most = 3, 4000, 0.5 // 0.25; what a look decodes takes more for its time
	synctest.Test(t, func(t *testing.T) {
		w, bytes := newLarge(t), 0
		for i := range objects {
			u := w.widget(fmt.Sprint("widget-", i), listed(items, i), ``)
			data, err := json.Marshal(u)
			if err != nil {
				t.Fatal(err)
			}
			bytes += len(data)
			w.create(w.source, w.sourceNS, u)
		}
		stop := w.run(Options{})
		w.until("all targets exist", func() bool { return w.fakeTarget.Created(widgets) == objects })
		for i := range objects {
			name := fmt.Sprint("widget-", i)
			w.merge(w.target, w.targetNS, name, `{"status":{"phase":"Ready"}}`, "status")
			w.until("in step", func() bool { return field(w.get(w.source, w.sourceNS, name), "status", "phase") == "Ready" })
		}
		w.settle()
		busy := heap()
		stop()
		idle := heap()
		runtime.KeepAlive(w)
		got := (busy - idle) / float64(bytes)
		if got <= 0 || got > most {
			t.Errorf("a byte of an object takes %.2f bytes of the heap, more than %.1f", got, most)
		}
	})
}
