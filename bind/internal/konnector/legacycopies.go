// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	legacyFirst = 10 * time.Second // after which the first look for copies of a legacy konnector is
	legacyEvery = 30 * time.Second // between looks
	legacyLooks = 3                // that find none, after which there are none
)

// legacyCopies are the copies of a legacy konnector that nothing has taken over.
type legacyCopies struct {
	next     time.Time // look
	names    []string
	services int // namespaces that the last look was about
	none     int // looks that found none
}

// tellCopies says which objects stand where copies should, and stay as they are, and which
// copies of a legacy konnector, on either side, have no original any more, so that nothing takes
// them over.
func (p *pass) tellCopies(ctx context.Context, state klutchsync.Status, selected []klutchsync.Related) error {
	if err := p.findLegacyCopies(ctx, state, selected); err != nil {
		return err
	}
	c := p.verdict.found[v1alpha1.ConditionClaimsInSync]
	if left := p.record.legacy.names; len(left) > 0 {
		c.Message += " Copies that Klutch's konnector made are left, which have no original on the other side: " +
			cluster.Some(left) + ". Delete them if nothing needs them."
		c.Reason = firstReason(c.Reason)
	}
	if len(state.Taken) > 0 {
		text := "Related objects do not arrive, since other objects have their names: " + cluster.Some(state.Taken) +
			". Delete or rename those. " + c.Message
		c = warned(v1alpha1.ConditionClaimsInSync, firstReason(c.Reason), text)
	}
	if c.Message = strings.TrimSpace(c.Message); c.Type != "" {
		p.verdict.set(c)
	}
	return nil
}

func firstReason(reason string) string {
	if reason == "" {
		return v1alpha1.ReasonCopiesLeftAlone
	}
	return reason
}

// findLegacyCopies looks a few times after a start and after a namespace is mapped, and goes on
// for as long as it finds some.
func (p *pass) findLegacyCopies(ctx context.Context, state klutchsync.Status, selected []klutchsync.Related) error {
	l := &p.record.legacy
	services, known := p.session.namespaces.Services()
	if !state.Synced || !known || l.none >= legacyLooks && l.services == len(services) {
		return nil
	}
	if l.services != len(services) {
		l.services, l.none, l.next = len(services), 0, time.Time{}
	}
	if l.next.IsZero() {
		l.next = time.Now().Add(legacyFirst) // by then the others have been taken over
	}
	if wait := time.Until(l.next); wait > 0 {
		p.lookAgain(wait)
		return nil
	}
	taken, err := p.taken(ctx)
	if err != nil {
		return err
	}
	var names []string
	type copies struct {
		of   schema.GroupVersionResource
		from klutchsync.Side
	}
	seen := map[copies]bool{}
	for _, r := range selected {
		if seen[copies{r.Resource, r.From}] {
			continue
		}
		seen[copies{r.Resource, r.From}] = true
		side := p.copiesHere(taken)
		if r.From == klutchsync.SourceSide {
			side = p.copiesThere(services)
		}
		found, err := side.OfLegacy(ctx, r.Resource)
		if err != nil {
			return err
		}
		names = append(names, found...)
	}
	if l.names, l.next = names, time.Now().Add(legacyEvery); len(names) > 0 {
		l.none = 0
	} else {
		l.none++
	}
	p.lookAgain(legacyEvery)
	return nil
}

// lookAgain has the next pass come no later than that.
func (p *pass) lookAgain(wait time.Duration) {
	if wait > 0 && (p.again == 0 || wait < p.again) {
		p.again = wait
	}
}
