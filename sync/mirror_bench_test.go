// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"fmt"
	gosync "sync"
	"testing"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// BenchmarkUpdates changes many objects at once on a real API server, and waits
// until all have gone up to another one.
func BenchmarkUpdates(b *testing.B) {
	const objects = 500
	app, control := cluster.Reused(b, "app"), cluster.Reused(b, "control")
	source, target := admin(b, app.Config()), admin(b, control.Config())
	install(b, source)
	install(b, target)
	from, err := NewCluster(app.Config())
	if err != nil {
		b.Fatal(err)
	}
	to, err := NewCluster(control.Config())
	if err != nil {
		b.Fatal(err)
	}
	w := &world{TB: b, source: source, target: target, from: from, to: to, sourceNS: "default", targetNS: "default"}
	arrived := make(chan struct{}, objects)
	defer w.run(Options{Workers: 32, Mapper: Identity(), Hooks: Hooks{Wrote: func(_ context.Context, w Write) {
		if w.Side == TargetSide && w.Err == nil {
			arrived <- struct{}{}
		}
	}}})()
	all := func(do func(name string)) {
		var wg gosync.WaitGroup
		for worker := range 16 {
			wg.Go(func() {
				for i := worker; i < objects; i += 16 {
					do(fmt.Sprintf("w-%d", i))
				}
			})
		}
		for range objects {
			<-arrived
		}
		wg.Wait()
	}
	all(func(name string) { w.create(source, "default", w.widget(name, `{"size":"small"}`, ``)) })
	round := 0
	for b.Loop() {
		round++
		all(func(name string) {
			w.merge(source, "default", name, fmt.Sprintf(`{"spec":{"color":"c%d"}}`, round))
		})
	}
	b.ReportMetric(float64(objects*round)/b.Elapsed().Seconds(), "updates/s")
}
