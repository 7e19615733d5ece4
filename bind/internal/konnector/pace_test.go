// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// I13: the bindings of a platform that answers slowly leave workers to those of others.
func TestI13PassesOfOneConnection(t *testing.T) {
	slow, honest := cache.NewObjectName("ns", "slow"), cache.NewObjectName("ns", "honest")
	a := &Konnector{records: map[cache.ObjectName]*bindingRecord{}, connections: map[cache.ObjectName]*connection{}, uses: map[cache.ObjectName]cache.ObjectName{}}
	for _, name := range []cache.ObjectName{slow, honest} {
		a.connections[name], a.uses[name] = newTestConnection(), name
	}
	for range mostPasses {
		if !a.connections[slow].enter() {
			t.Fatal("no room for the first passes")
		}
	}
	if again, err := a.paced(t.Context(), slow); again != pacePause || err != nil {
		t.Errorf("one pass too many: %v, %v", again, err)
	}
	if c := a.connectionOf(honest); !c.enter() {
		t.Error("another connection waits")
	}
}

func newTestConnection() *connection { return &connection{passes: make(chan struct{}, mostPasses)} }
