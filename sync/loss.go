// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"strings"
	"time"
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
// target's cluster takes new ones: whoever takes a kind away, or the same object again and
// again, would be fought with empty databases.
func (o *observer) observeLoss(ctx context.Context, p *pair, r *record, looks bool) error {
	f := r.refusals.intent
	if f == nil {
		f = r.lose(p)
	}
	if !looks {
		return nil
	}
	why, err := o.offer(ctx)
	if p.offered = why == ""; err != nil || p.offered {
		return err
	}
	if f.reason != ReasonVanished || !time.Now().Before(f.next) {
		f = r.lose(p)
	}
	f.detail = clip(why)
	return nil
}

// lose begins the pause after which a target that has vanished is made anew. Each in a row
// is twice as long.
func (r *record) lose(p *pair) *refusal {
	r.refusals.intent = &refusal{reason: ReasonVanished, hash: p.want.hash, listed: p.targets, next: r.drift.lost(losePause)}
	return r.refusals.intent
}

// offer asks whether the target's cluster takes new objects, and answers why not.
func (o *observer) offer(ctx context.Context) (why string, err error) {
	if why, err = o.serving(ctx); why != "" || err != nil || o.opts.Offered == nil {
		return why, err
	}
	return o.opts.Offered(ctx)
}
