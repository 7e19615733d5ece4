// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// former reports whether this Sync made a copy from what stood under the same name
// in a target cluster that another one has taken the place of. What that one hands
// out replaces it; else it stays for as long as the claim that it was for, since
// that it is not there says nothing of where it was. Copies on the target are none:
// several clusters may share that, each with a Sync that is called the same.
func (r *relation) former(t *transfer, copied metav1.Object) bool {
	from, _ := OriginOf(copied)
	ours, _ := r.holders(copied)
	return r.From == TargetSide && ours && t.from.sameName(from) && !t.from.sameCluster(from)
}

// isOurs reports whether a copy stands for the original of this name: this Sync holds it,
// or another one made it from the same cluster. Of a cluster that does not say who it is
// that is not known, and any two could give their objects the same names.
func (r *relation) isOurs(t *transfer, copied metav1.Object) bool {
	from, _ := OriginOf(copied)
	if !t.from.sameSlot(from) {
		return r.former(t, copied)
	}
	held, _ := r.holders(copied)
	return held || t.from.cluster != "" && from.Cluster != ""
}

// claim is the source of the bound object that referred to the original of a copy;
// false if none did, or if it cannot be told.
func (r *relation) claim(t *transfer) (cache.ObjectName, bool) {
	referrer := t.copy.GetAnnotations()[ReferrerAnnotation]
	key, ok := r.engine.opts.Mapper.Source(cache.NewObjectName(t.from.name.Namespace, referrer))
	return key, ok && referrer != ""
}

// claimed reports whether a copy of another cluster's may be asked for still; where
// that cannot be told, by any source of its namespace.
func (r *relation) claimed(t *transfer) bool {
	key, ok := r.claim(t)
	if !ok {
		return r.engine.spaces.has(t.name.Namespace)
	}
	obj, _, known := r.engine.source.get(key)
	return obj != nil || !known
}

// forsaken confirms live that a copy of another cluster's is asked for no more; and
// in that case, whether another Sync wants it.
func (r *relation) forsaken(ctx context.Context, t *transfer) (verified, shared bool, err error) {
	key, ok := r.claim(t)
	if !ok {
		if deserted, err := r.engine.deserted(ctx, t.name.Namespace); err != nil || !deserted {
			return false, false, err
		}
		return r.held(ctx, t)
	}
	asking, err := r.engine.source.live(ctx, key)
	if err != nil || asking != nil {
		return false, false, err
	}
	return r.held(ctx, t)
}
