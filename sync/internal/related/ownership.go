// SPDX-License-Identifier: Apache-2.0

package related

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// An ownership tells whose a copy is.
type ownership struct {
	Manager    string
	FromTarget bool
	Marks      Marks
	Names      Names
	Sources    Sources
}

// madeBy reports whether a copy was made by this Sync, and whether by others. Each of
// those that want it applies all of it.
func (o ownership) madeBy(copied metav1.Object) (ours, others bool) {
	for _, entry := range copied.GetManagedFields() {
		if strings.HasSuffix(entry.Manager, Managers) {
			ours = ours || entry.Manager == o.Manager
			others = others || entry.Manager != o.Manager
		}
	}
	return ours, others
}

// isOurs reports whether a copy stands for the original of this name: this Sync made it,
// or another one made it from the same cluster. Of a cluster that does not say who it is
// that is not known, and any two could give their objects the same names.
func (o ownership) isOurs(p *pair, copied metav1.Object) bool {
	from, _ := o.Names.Origin(copied)
	if !from.sameSlot(p.from) {
		return o.ofPredecessor(p, copied)
	}
	ours, _ := o.madeBy(copied)
	return ours || p.from.Cluster != "" && from.Cluster != ""
}

// ofPredecessor reports whether this Sync made a copy from what stood under the same name
// in a target cluster that another one has replaced. What the new one hands out takes its
// place; else it stays for as long as the claim that it was for, since that it is not in the
// new one says nothing of where it was. Copies on the target are none: several clusters may
// share that, each with a Sync that is called the same.
func (o ownership) ofPredecessor(p *pair, copied metav1.Object) bool {
	from, _ := o.Names.Origin(copied)
	ours, _ := o.madeBy(copied)
	return o.FromTarget && ours && from.sameName(p.from) && !from.sameCluster(p.from)
}

// claim is the source of the bound object that referred to the original of a copy;
// false if none did, or if it cannot be told.
func (o ownership) claim(p *pair) (cache.ObjectName, bool) {
	referrer := p.copy.GetAnnotations()[o.Marks.Referrer]
	key, ok := o.Names.Source(cache.NewObjectName(p.from.Name.Namespace, referrer))
	return key, ok && referrer != ""
}

// isClaimed reports whether a predecessor's copy may be asked for still; where that cannot
// be told, by any source of its namespace.
func (o ownership) isClaimed(p *pair) bool {
	key, ok := o.claim(p)
	if !ok {
		return o.Sources.In(p.name.Namespace)
	}
	obj, known := o.Sources.Get(key)
	return obj != nil || !known
}
