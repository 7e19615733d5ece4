// SPDX-License-Identifier: Apache-2.0

package related

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Holders reports whether a copy was made by this Sync, and whether by others. Each of
// those that want it applies all of it.
func (c *Copier) Holders(o metav1.Object) (ours, others bool) {
	for _, entry := range o.GetManagedFields() {
		if strings.HasSuffix(entry.Manager, Managers) {
			ours = ours || entry.Manager == c.Manager
			others = others || entry.Manager != c.Manager
		}
	}
	return ours, others
}

// isOurs reports whether a copy stands for the original of this name: this Sync holds it,
// or another one made it from the same cluster. Of a cluster that does not say who it is
// that is not known, and any two could give their objects the same names.
func (c *Copier) isOurs(p *pair, copied metav1.Object) bool {
	from, _ := c.Names.Origin(copied)
	if c.Former != "" && from.Cluster == c.Former && p.original != nil {
		return from.sameName(p.from) // what has no original stays
	}
	if !from.sameSlot(p.from) {
		return c.ofPredecessor(p, copied)
	}
	ours, _ := c.Holders(copied)
	return ours || p.from.Cluster != "" && from.Cluster != ""
}

// ofPredecessor reports whether this Sync made a copy from what stood under the same name
// in a target cluster that another one has replaced. What the new one hands out takes its
// place; else it stays for as long as the claim that it was for, since that it is not in the
// new one says nothing of where it was. Copies on the target are none: several clusters may
// share that, each with a Sync that is called the same.
func (c *Copier) ofPredecessor(p *pair, copied metav1.Object) bool {
	from, _ := c.Names.Origin(copied)
	ours, _ := c.Holders(copied)
	return c.FromTarget && ours && from.sameName(p.from) && !from.sameCluster(p.from)
}

// claim is the source of the bound object that referred to the original of a copy;
// false if none did, or if it cannot be told.
func (c *Copier) claim(p *pair) (cache.ObjectName, bool) {
	referrer := p.copy.GetAnnotations()[c.Marks.Referrer]
	key, ok := cache.NewObjectName(p.from.Name.Namespace, referrer), true
	if c.FromTarget {
		key, ok = c.Names.Source(key)
	}
	return key, ok && referrer != ""
}

// isAsked reports whether the claim that a copy was for is there, and stays; where that
// cannot be told, whether its namespace has any.
func (c *Copier) isAsked(p *pair) bool {
	key, ok := c.claim(p)
	if !ok {
		return c.Sources.In(c.sourceNamespace(p.from.Name, p.name))
	}
	obj, known := c.Sources.Get(key)
	return !known || obj != nil && obj.GetDeletionTimestamp() == nil
}

// isClaimed reports whether a predecessor's copy may be asked for still; where that cannot
// be told, by any source of its namespace.
func (c *Copier) isClaimed(p *pair) bool {
	key, ok := c.claim(p)
	if !ok {
		return c.Sources.In(p.name.Namespace)
	}
	obj, known := c.Sources.Get(key)
	return obj != nil || !known
}

// unclaimed confirms live that a predecessor's copy is asked for no more; and in that case,
// whether another Sync wants it.
func (c *Copier) unclaimed(ctx context.Context, p *pair) (verified, shared bool, err error) {
	key, ok := c.claim(p)
	if !ok {
		if deserted, err := c.Sources.Deserted(ctx, p.name.Namespace); err != nil || !deserted {
			return false, false, err
		}
		return c.held(ctx, p)
	}
	asking, err := c.Sources.Live(ctx, key)
	if err != nil || asking != nil {
		return false, false, err
	}
	return c.held(ctx, p)
}
