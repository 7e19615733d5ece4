// SPDX-License-Identifier: Apache-2.0

// Package tombstone knows which sources were deleted although the finalizer was on them.
//
// An API server that is asked to delete an object decides by what it has read whether the
// object may go at once. A finalizer that is added after that read does not hold it: both
// requests succeed, and the target that is made next has lost its source already. A live
// read after the patch does not settle it (it still found 32 of 97 such sources). The watch
// does: it shows the end of an object with the finalizer and without deletionTimestamp, and
// nothing else ends so, neither an ordinary deletion nor a finalizer that is removed by hand.
// What a list lacks proves nothing.
//
// A konnector that was down has not seen the end. It watches again from the version that the
// source had when its target was made, which the target records: API servers show what
// happened in the last minute at least. Without evidence a target is an orphan, with its
// grace.
package tombstone

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// Tombstones are the tombstones of the sources of one Sync. Create them with New.
type Tombstones struct {
	finalizer string
	sources   dynamic.NamespaceableResourceInterface

	mu    sync.Mutex
	known map[types.UID]bool
	order []types.UID // as they were seen
}

const (
	most     = 10_000      // that are kept, the latest
	findTime = time.Second // for which Find waits for what an API server shows at once
)

// New returns none yet, of sources that have a finalizer.
func New(finalizer string, sources dynamic.NamespaceableResourceInterface) *Tombstones {
	return &Tombstones{finalizer: finalizer, sources: sources, known: map[types.UID]bool{}}
}

// Ended notes the last state of a source, as a watch has shown it.
func (t *Tombstones) Ended(last metav1.Object) {
	if last.GetDeletionTimestamp() != nil || !slices.Contains(last.GetFinalizers(), t.finalizer) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if uid := last.GetUID(); !t.known[uid] {
		t.known[uid], t.order = true, append(t.order, uid)
	}
	if len(t.order) > most {
		delete(t.known, t.order[0])
		t.order = t.order[1:]
	}
}

// Of reports whether the source with a UID was seen to end so.
func (t *Tombstones) Of(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[uid]
}

// UIDWithSuffix is the UID with this suffix of a source that was seen to end so, or else the suffix itself.
func (t *Tombstones) UIDWithSuffix(suffix string) types.UID {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, uid := range t.order {
		if strings.HasSuffix(string(uid), suffix) {
			return uid
		}
	}
	return types.UID(suffix)
}

// Find watches again what happened to a source since it had a version. What the API server does not show
// any more stays unknown; an error says that it has not answered.
func (t *Tombstones) Find(ctx context.Context, source cache.ObjectName, uid types.UID, version string) error {
	if t.Of(uid) || version == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	w, err := t.sources.Namespace(source.Namespace).Watch(ctx, metav1.ListOptions{
		ResourceVersion: version, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, source.Name).String(),
	})
	if fates.Is(err, fates.Expired) {
		return nil
	}
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if last, ok := event.Object.(metav1.Object); ok && event.Type == watch.Deleted {
			t.Ended(last)
		}
		if t.Of(uid) {
			break
		}
	}
	return nil
}
