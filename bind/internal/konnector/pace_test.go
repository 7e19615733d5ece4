// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/controller"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// I13: the bindings of a platform that answers slowly leave workers to those of others, also
// before their first pass.
func TestI13PassesOfOneConnection(t *testing.T) {
	slow, honest := cache.NewObjectName("ns", "slow"), cache.NewObjectName("ns", "honest")
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)
	k := &Konnector{
		records: records{of: map[cache.ObjectName]*bindingRecord{}}, connections: newConnections(&shared{app: &appCluster{bindings: informer}}),
	}
	for _, name := range []cache.ObjectName{slow, honest} {
		k.connections.bySecret[name] = newTestConnection()
		if err := informer.GetStore().Add(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"namespace": name.Namespace, "name": name.Name},
			"spec":     map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": name.Namespace, "name": name.Name}},
		}}); err != nil {
			t.Fatal(err)
		}
	}
	for range mostPasses {
		if !k.connections.of(slow).enter() {
			t.Fatal("no room for the first passes")
		}
	}
	if again, err := k.paced(t.Context(), slow); again != pacePause || !errors.Is(err, controller.ErrBusy) {
		t.Errorf("one pass too many: %v, %v", again, err)
	}
	if c := k.connections.of(honest); !c.enter() {
		t.Error("another connection waits")
	}
}

func newTestConnection() *connection { return &connection{passes: make(chan struct{}, mostPasses)} }

// P30: however much a provider asks for that it is refused, the log stays readable.
func TestP30RefusalRecords(t *testing.T) {
	var left []string
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { left = append(left, args) }, funcr.Options{}))
	var records refusalRecords
	for range 1000 {
		records.related(ctx, klutchsync.Refusal{Why: "not agreed to"})
	}
	if len(left) != mostRecorded+1 || !strings.Contains(left[mostRecorded], "more refusals") {
		t.Errorf("%d audit records", len(left))
	}
}
