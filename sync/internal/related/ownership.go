// SPDX-License-Identifier: Apache-2.0

package related

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/legacycopy"
)

// An ownership tells whose a copy is.
type ownership struct {
	Manager    string
	Former     types.UID
	FromTarget bool
	Marks      Marks
	Names      Names
	Sources    Sources
}

// madeBy reports whether this Sync made a copy, and whether other Syncs did. Each Sync that wants
// a copy applies the whole copy.
func (o ownership) madeBy(copied metav1.Object) (ours, others bool) { return madeBy(copied, o.Manager) }

// madeBy is that of the Sync whose copies have a field manager.
func madeBy(copied metav1.Object, manager string) (ours, others bool) {
	for _, entry := range copied.GetManagedFields() {
		if strings.HasSuffix(entry.Manager, Managers) {
			ours = ours || entry.Manager == manager
			others = others || entry.Manager != manager
		}
	}
	return ours, others
}

// isOurs reports whether a copy stands for the original of this name: this Sync made it,
// or another one made it from the same cluster, or a legacy konnector did. Of a cluster that does not say who it is
// that is not known, and any two could give their objects the same names.
func (o ownership) isOurs(p *pair, copied metav1.Object) bool {
	from, _ := o.Names.Origin(copied)
	if p.selected && o.isLegacy(copied) {
		return true
	}
	if o.Former != "" && from.Cluster == o.Former && p.original != nil {
		return from.sameName(p.from) // what has no original stays
	}
	if !from.sameSlot(p.from) {
		return o.ofPredecessor(p, copied)
	}
	ours, _ := o.madeBy(copied)
	return ours || p.from.Cluster != "" && from.Cluster != ""
}

// isLegacy reports whether a legacy konnector wrote a copy: it lies where ours would, and
// the original is what the claim selects, so that it is taken over.
func (o ownership) isLegacy(copied metav1.Object) bool {
	return o.Marks.Owner == legacycopy.OwnerAnnotation && legacycopy.Is(copied, o.side())
}

// side is the one that has the originals, as copies say it.
func (o ownership) side() string {
	if o.FromTarget {
		return "Provider"
	}
	return "Consumer"
}

// ofPredecessor reports whether this Sync made a copy from an object of the same name in a target cluster
// that has been replaced since. An original of the name in the new cluster takes the copy's place. Without one the
// copy stays for as long as its claim: that the new cluster lacks the original says nothing of the old one. A copy on
// the target is never of a predecessor: several source clusters may share the target, each with a Sync of the same name.
func (o ownership) ofPredecessor(p *pair, copied metav1.Object) bool {
	from, _ := o.Names.Origin(copied)
	ours, _ := o.madeBy(copied)
	return o.FromTarget && ours && from.sameName(p.from) && !from.sameCluster(p.from)
}

// claim is the source of the bound object that referred to the original of a copy;
// false if none did, or if it cannot be told.
func (o ownership) claim(p *pair) (cache.ObjectName, bool) {
	referrer := p.copy.GetAnnotations()[o.Marks.Referrer]
	key, ok := cache.NewObjectName(p.from.Name.Namespace, referrer), true
	if o.FromTarget {
		key, ok = o.Names.Source(key)
	}
	return key, ok && referrer != ""
}

// isAsked reports whether the claim that a copy was for is there, and stays; where that
// cannot be told, whether its namespace has any.
func (o ownership) isAsked(p *pair, namespace string) bool {
	key, ok := o.claim(p)
	if !ok {
		return o.Sources.In(namespace)
	}
	obj, known := o.Sources.Get(key)
	return !known || obj != nil && obj.GetDeletionTimestamp() == nil
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
