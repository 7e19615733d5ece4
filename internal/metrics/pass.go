// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// actions are what passes do, from what says least to what says most. Release is that a pass
// removed the finalizer or let the target go.
var actions = [...]string{"none", "mark", "status", "release", "apply", "delete", "create"}

// actionOf has the steps that write, of which a pass may do several.
var actionOf = map[string]int{
	"set-message": 1, "add-finalizer": 1, "mark": 1,
	"status":           2,
	"remove-finalizer": 3, "orphan": 3,
	"apply": 4, "empty": 4, "force": 4, "migrate": 4, "own": 4, "note": 4,
	"delete": 5, "collect": 5,
	"create": 6,
}

// action is what says most of a pass.
func action(steps []string) (a int) {
	for _, step := range steps {
		a = max(a, actionOf[step])
	}
	return a
}

// results of passes: all is done, something stands in the way that the object's user
// is told, or it is tried again.
var results = [...]string{"ok", "blocked", "retried"}

func result(err error) int {
	if err == nil {
		return 0
	}
	if _, ok := errors.AsType[*klutchsync.ObjectError](err); ok {
		return 1
	}
	return 2
}

// A tally counts the passes of one Sync. It is for many goroutines, and makes nothing
// for the garbage collector.
type tally struct {
	passes  [len(actions)][len(results)]prometheus.Counter
	took    prometheus.Observer
	blocked blocked
}

func (t *tally) count(pass klutchsync.Result) {
	t.passes[action(pass.Steps)][result(pass.Err)].Inc()
	t.took.Observe(pass.Took.Seconds())
}

// blocked are the objects that something keeps from being in step, as it is reported: one that waits
// behind requests that hang has no pass.
type blocked struct {
	mu    sync.Mutex
	names map[cache.ObjectName]struct{}
}

func (b *blocked) report(r klutchsync.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.names, r.Source)
	if r.Reason == "" || r.Reason == klutchsync.ReasonHeld || r.Reason == klutchsync.ReasonOrphaned { // which a Sync counts itself
		return
	}
	if b.names == nil {
		b.names = map[cache.ObjectName]struct{}{}
	}
	b.names[r.Source] = struct{}{}
}

func (b *blocked) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.names)
}
