// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"fmt"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// deletions says how many deletions are held because too many came at once, and
// lets them go when the owner of the binding says so.
func (p *pass) deletions(state klutchsync.Status) {
	if p.record.releases(p.binding.Annotations[klutchsync.ReleaseAnnotation]) {
		p.set.Release(p.key.String())
		state.Held = 0
	}
	p.mention(deletionsInSync(p.binding, state))
}

// deletionsInSync says whether the Control Plane Cluster has just what it should.
func deletionsInSync(b *v1alpha1.APIServiceBinding, state klutchsync.Status) v1alpha1.Condition {
	switch {
	case state.Held > 0:
		return warned(v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, heldMessage(b, state.Held))
	case state.Orphans > 0:
		return warned(v1alpha1.ConditionDeletionsInSync, string(klutchsync.ReasonOrphaned), fmt.Sprintf(
			"%d objects in the Control Plane Cluster were made from objects that have gone from here without the konnector letting them go, "+
				"as when a finalizer is taken off by hand. They stay; the konnector's log has their names.", state.Orphans))
	}
	return v1alpha1.True(v1alpha1.ConditionDeletionsInSync)
}

func heldMessage(b *v1alpha1.APIServiceBinding, held int) string {
	return fmt.Sprintf("%d deleted objects are kept in the Control Plane Cluster, since so many went at once: their annotation %s says why. If all are meant, run: "+
		"kubectl -n %s annotate --overwrite apiservicebinding %s %s=\"$(date)\"",
		held, klutchsync.MessageAnnotation, cmp.Or(b.Namespace, v1alpha1.Namespace), b.Name, klutchsync.ReleaseAnnotation)
}

// releases reports whether a binding's word of release is a new one. What stood
// there when the konnector started was for what was held before.
func (r *bindingRecord) releases(word string) bool {
	before := r.released
	r.released = &word
	return before != nil && word != "" && word != *before
}
