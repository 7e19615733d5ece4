// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"strings"
	"time"

	"github.com/klutch-go/sdk/sync/internal/refusal"
)

// vanished reports whether there was a target of the source: while we run or, as the message
// on the source says, before.
func (p *pair) vanished(d *drift) bool {
	return p.target == nil && (d.accepted != "" || strings.HasPrefix(p.state.source.message, string(ReasonVanished)+": "))
}

// returns reports whether a target that has vanished should be made anew.
func (s state) returns() bool {
	return s.target.relation == relationVanished && s.source.exists && !s.source.deleting
}

// observeLoss makes a target that has vanished come back after a pause, and only while the
// target's cluster takes new ones: a platform that takes a kind away, or the same object again and
// again, would be fought with empty databases.
func (o *observer) observeLoss(ctx context.Context, p *pair, r *record, looks bool) error {
	if r.loss == nil && o.refused.Of(p.key, refusal.Spec) == nil {
		r.lose(p)
	}
	if !looks {
		return nil
	}
	why, err := o.offer(ctx)
	if p.offered = why == ""; err != nil || p.offered {
		return err
	}
	if r.loss == nil || !time.Now().Before(r.loss.next) {
		r.lose(p)
	}
	r.loss.hash, r.loss.listed, r.loss.why = p.want.hash, p.targets, clip(why)
	return nil
}

// A loss is the pause after which a target that has vanished is made anew.
type loss struct {
	hash   string // of what it should be
	listed int    // as of which list of targets it had vanished
	why    string // it is not made anew after the pause either; empty if it is
	next   time.Time
}

// lose begins the pause. Each in a row is twice as long.
func (r *record) lose(p *pair) {
	r.loss = &loss{hash: p.want.hash, listed: p.targets, next: r.drift.lost(losePause)}
}

// due reports whether the pause is over: what is wanted has changed, or what is seen.
func (l *loss) due(p *pair) bool {
	return l.hash != p.want.hash || l.listed != p.targets || !time.Now().Before(l.next)
}

// offer asks whether the target's cluster takes new objects, and answers why not.
func (o *observer) offer(ctx context.Context) (why string, err error) {
	if why, err = o.serving(ctx); why != "" || err != nil || o.opts.Offered == nil {
		return why, err
	}
	return o.opts.Offered(ctx)
}
