// SPDX-License-Identifier: Apache-2.0

// Package writer sends all that a Sync writes to its bound objects, each request in a function of
// its own: target.go and source.go have those of the two sides, delete.go what a deletion is answered with.
//
// A request says which object it means, and as of which version, so that the API server
// refuses it if that is another one by now: what was decided on an observation must not
// happen to anything else. The three forms in which API servers check that are an apply with
// a UID and a resourceVersion, a JSON patch that begins with tests, and a deletion with
// preconditions. What an answer means is not known here: see act.go of package sync.
package writer

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/prune"
)

// A Writer writes for one Sync.
type Writer struct {
	Resource         schema.GroupVersionResource
	Sources, Targets dynamic.NamespaceableResourceInterface
	Raw              rest.Interface // of the targets' API server, for what the dynamic client keeps to itself; may be nil
	Names            *names.Names
	Finalizer        string
	Schema           *prune.Cache // of the sources

	plain atomic.Bool // as an answer said
}

// Plain reports whether sources have no status subresource: as their schema says, or an
// answer where that is not known.
func (w *Writer) Plain() bool {
	if plain, known := w.Schema.Plain(); known {
		return plain
	}
	return w.plain.Load()
}

// LearnPlain notes that a source is there and its status subresource is not, or that it may be again.
func (w *Writer) LearnPlain(plain bool) { w.plain.Store(plain) }

// Merge patches the metadata of an object of whatever resource; the API server refuses another uid.
func (w *Writer) Merge(ctx context.Context, client dynamic.ResourceInterface, name string, metadata map[string]any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return nil, err
	}
	obj, err := client.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{FieldManager: w.Names.Manager()})
	return obj, refuted(err)
}

// refuted makes of an answer that the object is not the one, or not in the version, that
// was seen the error that asks for another look.
func refuted(err error) error {
	if fates.Is(err, fates.Replaced, fates.Conflict, fates.Contested) {
		return fmt.Errorf("%w: %w", fates.ErrAgain, err)
	}
	return err
}
