// SPDX-License-Identifier: Apache-2.0

package related

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/watchstore"
)

// An observer looks at an original and its copy.
type observer struct {
	filter            *filter
	owners            ownership
	Originals, Copies Side
}

// observe looks at both; false if the original has no name on the other side.
func (o *observer) observe(key cache.ObjectName, r *record) (*pair, bool) {
	name, ok := o.filter.Names.Copy(key)
	if !ok {
		return nil, false
	}
	owner, _ := o.filter.Names.Clusters()
	p := &pair{name: name, from: Origin{Cluster: owner, Name: key}}
	original, _, seenOriginal := o.Originals.Get(key)
	copied, version, seenCopy := o.Copies.Get(name)
	p.seen = seenOriginal && seenCopy && o.filter.Bound.Known()
	if original != nil && o.filter.mayTravel(original, name) {
		o.observeOriginal(p, original)
	}
	if copied != nil {
		o.observeCopy(p, copied)
	}
	unchanged := p.original != nil && r.wish == p.wish()
	// The watch has the last word once it has come as far as the write, also if the copy that it
	// shows is older: the API server may have been restored from a backup.
	current := p.taken && copied.GetResourceVersion() == r.copy || watchstore.Newer(r.copy, version)
	p.settled = !r.stays && r.goes == (departure{}) && unchanged && current
	p.stays = r.stays && unchanged && (!p.taken || p.theirs)
	p.goes = unchanged && p.taken && r.goes.copy == copied.GetUID()
	p.verified, p.shared, p.read = r.verified, r.shared, p.read || r.read
	r.verified, r.shared, r.read = false, false, false
	return p, true
}

func (o *observer) observeOriginal(p *pair, original metav1.Object) {
	p.original, p.travels = original, true
	p.from.UID = original.GetUID()
	found := o.filter.selects(original, p.name)
	p.referrers, p.selected, p.excepted = found.referrers, found.selected, !found.selected && len(found.excepted) > 0
	if p.excepted {
		p.referrers = found.excepted // who is told
	}
}

func (o *observer) observeCopy(p *pair, copied metav1.Object) {
	p.copy, p.taken = copied, true
	p.ours = o.owners.isOurs(p, copied)
	p.claimed = o.owners.ofPredecessor(p, copied) && o.owners.isClaimed(p)
	mine, _ := o.owners.madeBy(copied)
	p.theirs = !mine
	if !o.filter.FromTarget && (!p.selected || !p.travels) {
		p.read = o.filter.Bound.Leaving(p.from.Name, copied.GetAnnotations()[o.filter.Marks.Referrer] == "")
	}
}
