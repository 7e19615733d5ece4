// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A bound is what the konnector knows of one APIServiceBinding; see the Bound of package
// bind.
type bound struct {
	Name      string
	Ready     bool
	Up        bool
	TokenEnds time.Time
	Heartbeat time.Time
	Sync      klutchsync.Status
}

// Census returns what is known of all bindings, without I/O, once they have been listed.
func (a *Konnector) Census() (all []bound, ok bool) {
	if !a.app.bindings.HasSynced() {
		return nil, false
	}
	for _, obj := range a.app.bindings.GetStore().List() {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			all = append(all, a.boundBy(u))
		}
	}
	return all, true
}

func (a *Konnector) boundBy(u *unstructured.Unstructured) bound {
	key, found := cache.MetaObjectToName(u), bound{Name: u.GetName()}
	if b, err := cluster.Decode[v1alpha1.APIServiceBinding](u); err == nil {
		found.Ready = v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionReady)
	}
	found.Sync, _ = a.set.State(key.String())
	c := a.connectionOf(key)
	if c == nil {
		return found
	}
	if _, s := c.state(); s != nil {
		now := s.snapshot()
		found.Up = now.looked && now.away.Type == ""
		found.TokenEnds = cluster.ReadToken(s.token.Get()).Ends()
		if beaten := s.heartbeat.beaten.Load(); beaten != nil {
			found.Heartbeat = *beaten
		}
	}
	return found
}
