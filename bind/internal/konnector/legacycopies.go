// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const (
	legacyFirst = 10 * time.Second       // after which the first look for copies of a legacy konnector is
	legacyEvery = 30 * time.Second       // between looks
	legacyTime  = 40 * time.Second       // for a look: the provider may have any number of namespaces, and list each slowly
	legacyEach  = 100 * time.Millisecond // and for each list of it, until it has three times as long
	legacyLooks = 3                      // that find none, after which there are none
	legacySoon  = 10                     // looks at that pace
	legacyRare  = 10 * time.Minute       // between looks after these
)

// legacyCopies are the copies of a legacy konnector that nothing has taken over.
type legacyCopies struct {
	looks    pace      // nil before the first
	next     time.Time // look
	names    []string
	services int    // namespaces that the last look was about
	none     int    // looks that found none
	failed   int    // looks in a row
	unseen   string // why the last one failed; empty if it did not
}

// tellCopies says which copies of related objects are not what they should be.
func (p *pass) tellCopies(ctx context.Context, state klutchsync.Status, selected []klutchsync.Related) {
	p.findLegacyCopies(ctx, state, selected)
	c, l := p.verdict.found[v1alpha1.ConditionClaimsInSync], &p.record.legacy
	if l.failed > 1 && c.Type != "" { // in a row; one may be a moment's
		c.Message = strings.TrimSpace(c.Message + " Whether Klutch's konnector left copies cannot be looked at: " + l.unseen + ".")
		c.Reason = cmp.Or(c.Reason, v1alpha1.ReasonCopiesLeftAlone)
		p.verdict.set(c)
	}
	if c := copiesInSync(c, l.names, state); c.Type != "" {
		p.verdict.set(c)
	}
}

// copiesInSync adds to a condition which objects stand where copies should, and stay as they are,
// what API servers refuse of copies to which no object refers, and which copies of a legacy
// konnector, on either side, have no original any more, so that nothing takes them over.
func copiesInSync(c v1alpha1.Condition, left []string, state klutchsync.Status) v1alpha1.Condition {
	if len(left) > 0 {
		c.Message += " Copies that Klutch's konnector made are left, which have no original on the other side: " +
			cluster.Some(left) + ". Delete them if nothing needs them."
		c.Reason = cmp.Or(c.Reason, v1alpha1.ReasonCopiesLeftAlone)
	}
	if len(state.Untold) > 0 {
		text := "Related objects do not arrive as they should: " + cluster.Some(state.Untold) + ". " + c.Message
		c = warned(v1alpha1.ConditionClaimsInSync, cmp.Or(c.Reason, v1alpha1.ReasonCopiesRefused), text)
	}
	if len(state.Taken) > 0 {
		text := "Related objects do not arrive, since other objects have their names: " + cluster.Some(state.Taken) +
			". Delete or rename those. " + c.Message
		c = warned(v1alpha1.ConditionClaimsInSync, cmp.Or(c.Reason, v1alpha1.ReasonCopiesLeftAlone), text)
	}
	c.Message = strings.TrimSpace(c.Message)
	return c
}

// findLegacyCopies looks a few times after a start and after a namespace is mapped, and goes on
// for as long as it finds some or fails. Where that has no end, as where a provider takes a namespace
// away and maps it again all the time, it becomes rare.
func (p *pass) findLegacyCopies(ctx context.Context, state klutchsync.Status, selected []klutchsync.Related) {
	l := &p.record.legacy
	services, known := p.session.namespaces.Services()
	changed := l.services != len(services)
	if !state.Synced || !known || l.none >= legacyLooks && !changed {
		return
	}
	if l.looks == nil {
		l.looks = flowcontrol.NewTokenBucketPassiveRateLimiter(float32(1/legacyRare.Seconds()), legacySoon)
	}
	if l.next.IsZero() || l.none >= legacyLooks { // else there is a next one
		l.next = time.Now().Add(legacyFirst) // by then the others have been taken over
	}
	if changed {
		l.services, l.none = len(services), 0
	}
	if wait := time.Until(l.next); wait > 0 {
		p.lookAgain(wait)
		return
	}
	every := legacyRare
	if l.looks.TryAccept() {
		every = legacyEvery
		names, err := p.lookForLegacy(ctx, services, selected)
		l.note(names, err)
	}
	l.next = time.Now().Add(every)
	p.lookAgain(every)
}

// note takes note of what a look has found.
func (l *legacyCopies) note(names []string, err error) {
	switch {
	case err != nil:
		l.failed, l.unseen = l.failed+1, cluster.Explain(err)
	case len(names) > 0:
		l.names, l.none, l.failed = names, 0, 0
	default:
		l.names, l.none, l.failed = nil, l.none+1, 0
	}
}

// lookForLegacy looks for copies of a legacy konnector on both sides.
func (p *pass) lookForLegacy(ctx context.Context, services []string, selected []klutchsync.Related) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, legacyTime+min(time.Duration(len(services)*len(selected))*legacyEach, 2*legacyTime))
	defer cancel()
	granted, _, err := p.grantedNamespaces(ctx)
	if err != nil {
		return nil, err
	}
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
		side := p.copiesHere(granted)
		if r.From == klutchsync.SourceSide {
			side = p.copiesThere(services)
		}
		found, err := side.OfLegacy(ctx, r.Resource)
		if err != nil {
			return nil, err
		}
		names = append(names, found...)
	}
	return names, nil
}

// openToLook takes the rights to look for copies of a legacy konnector of claims that may have been accepted, where it has served
// objects and no rights were taken before, and returns these namespaces, and where it could.
func (w *consentEnd) openToLook(ctx context.Context, granted []string) (served, opened []string, err error) {
	consumers := func(c v1alpha1.AcceptablePermissionClaim) bool { return c.Selector.Owner == v1alpha1.OwnerConsumer }
	grant := permission.NewGrant(w.pass.app.Calls, w.pass.binding.Name, slices.DeleteFunc(slices.Clone(w.maybeAccepted), consumers))
	if grant == nil || slices.ContainsFunc(w.pass.binding.ManagedFields, answeredByLegacy) {
		return nil, nil, nil
	}
	served, err = w.servedByLegacy(ctx)
	served = slices.DeleteFunc(served, func(namespace string) bool { return slices.Contains(granted, namespace) || !grant.Covers(namespace) })
	if err != nil || len(served) == 0 {
		return nil, nil, err
	}
	missing, err := permission.MissingRights(ctx, w.pass.app.Calls, grant.Rules)
	if err != nil || len(missing) == 0 {
		return nil, nil, err // it may look everywhere
	}
	for _, namespace := range served {
		if may, err := grant.Access(ctx, namespace, true); !may || err != nil {
			return served, opened, nil //nolint:nilerr // it is told where it cannot look, and tried again
		}
		opened = append(opened, namespace)
	}
	return served, opened, nil
}

// answeredByLegacy reports whether an entry of managed fields is that by which Klutch's command line
// tool answered the claims: its konnector has made no copy of what was refused then.
func answeredByLegacy(e metav1.ManagedFieldsEntry) bool {
	return e.Manager == "kubectl-bind" && e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" &&
		e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:permissionClaims"`)
}

// servedByLegacy are the namespaces with objects that bear the mark of a legacy konnector; where
// the objects are in none, all that a service namespace was asked for.
func (w *consentEnd) servedByLegacy(ctx context.Context) (namespaces []string, err error) {
	objects := w.pass.app.Meta.Resource(crd.SyncVersion(&w.pass.export.Spec, ""))
	for opts := (metav1.ListOptions{Limit: eventPage}); ; w.pages++ {
		list, err := objects.List(ctx, opts)
		if fates.Is(err, fates.Absent, fates.Unserved) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for objects of %s: %w", w.pass.binding.Name, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; o.Annotations[v1alpha1.BoundAnnotation] == "true" && o.Labels[klutchsync.AdoptedLabel] == "" {
				namespaces = append(namespaces, o.Namespace)
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			break
		}
	}
	if slices.Contains(namespaces, metav1.NamespaceAll) {
		namespaces = nil
		for _, key := range w.pass.session.namespaces.Asked.GetStore().ListKeys() {
			if _, name, err := cache.SplitMetaNamespaceKey(key); err == nil && w.pass.session.namespaces.InApp(name) {
				namespaces = append(namespaces, name)
			}
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}
