// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// Tombstones are of sources that the watch has shown to be deleted while our finalizer was
// on them. An API server that is asked to delete an object decides by what it has read
// whether the object may go at once. A finalizer that is added after that read does not
// hold it: both requests succeed, and the watch shows the end of an object with the
// finalizer and without deletionTimestamp. Nothing else ends so, neither an ordinary
// deletion nor a finalizer that is removed by hand. What a list lacks proves nothing.
type tombstones struct {
	finalizer string

	mu    sync.Mutex
	known map[types.UID]bool
	order []types.UID // as they were seen
}

// maxTombstones is how many are kept, the latest.
const maxTombstones = 10_000

func newTombstones(finalizer string) *tombstones {
	return &tombstones{finalizer: finalizer, known: map[types.UID]bool{}}
}

// ended notes the last state of a source, as the watch has shown it.
func (t *tombstones) ended(last metav1.Object) {
	if last.GetDeletionTimestamp() != nil || !slices.Contains(last.GetFinalizers(), t.finalizer) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if uid := last.GetUID(); !t.known[uid] {
		t.known[uid], t.order = true, append(t.order, uid)
	}
	if len(t.order) > maxTombstones {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
}

// of reports whether the source with a UID was seen to end so.
func (t *tombstones) of(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[uid]
}

// findTime is for how long find waits for what an API server shows at once.
const findTime = time.Second

// find watches again what happened to a source since its target was made, for a konnector
// that was down then. API servers show that for a minute at least; what they do not show
// any more stays unknown.
func (t *tombstones) find(ctx context.Context, sources dynamic.ResourceInterface, made Origin) {
	if t.of(made.UID) || made.Version == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	w, err := sources.Watch(ctx, metav1.ListOptions{
		ResourceVersion: made.Version[:min(len(made.Version), maxVersion)],
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, made.Name).String(),
	})
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if last, ok := event.Object.(metav1.Object); ok && event.Type == watch.Deleted {
			t.ended(last)
		}
		if t.of(made.UID) {
			return
		}
	}
}
