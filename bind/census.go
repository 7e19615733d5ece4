// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Bound is what a Konnector knows of one APIServiceBinding. What it does not know
// is zero.
type Bound struct {
	Name  string // resource.group
	Ready bool
	// Up says that the Control Plane Cluster answered, and took the token, when it
	// was last looked at.
	Up bool
	// TokenEnds is when the token ends that is in use.
	TokenEnds time.Time
	// Heartbeat is when the Control Plane Cluster last took one.
	Heartbeat time.Time
	Sync      klutchsync.Status
}

// Census tells of all bindings what Run knows, without I/O. It reports false while Run
// does not run here, or has not seen everything yet.
func (k *Konnector) Census() ([]Bound, bool) {
	a := k.running.Load()
	if a == nil || !a.app.bindings.HasSynced() {
		return nil, false
	}
	var all []Bound
	for _, obj := range a.app.bindings.GetStore().List() {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			all = append(all, a.bound(u))
		}
	}
	return all, true
}

func (a *agent) bound(u *unstructured.Unstructured) Bound {
	key, found := cache.MetaObjectToName(u), Bound{Name: u.GetName()}
	if b, err := decode[v1alpha1.APIServiceBinding](u); err == nil {
		found.Ready = v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionReady)
	}
	found.Sync, _ = a.set.State(key.String())
	a.mu.Lock()
	c := a.connections[a.uses[key]]
	a.mu.Unlock()
	if c == nil {
		return found
	}
	if _, s := c.state(); s != nil {
		now := s.sight()
		found.Up = now.looked && now.away.Type == ""
		found.TokenEnds = readToken(*s.token.value.Load()).ends()
		if beaten := s.beaten.Load(); beaten != nil {
			found.Heartbeat = *beaten
		}
	}
	return found
}
