// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/legacy"
	"github.com/klutch-go/sdk/sync/internal/names"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// NewAdopted returns the source, of the given name, that takes over a target which the
// target's side made, in a Sync that has Options.Adopt and the usual Domain; ok is false if
// the target is going, has no UID, or is or was the target of a Sync or of a legacy konnector.
// Nothing of the target's metadata travels, and none of the references by which Crossplane
// keeps what it composed. Target has to be read live.
func NewAdopted(target *unstructured.Unstructured, name cache.ObjectName) (source *unstructured.Unstructured, ok bool) {
	n := names.Of(names.Klutch, "")
	if target.GetUID() == "" || taken(n, target) || legacy.Writer(target) != "" {
		return nil, false
	}
	for _, entry := range target.GetManagedFields() { // others may take off annotations
		if strings.HasPrefix(entry.Manager, n.Domain) {
			return nil, false
		}
	}
	body := travel.Body(target.Object, nil)
	if spec, ok := body["spec"].(map[string]any); ok && spec["compositionUpdatePolicy"] != "Manual" {
		delete(spec, "compositionRevisionRef") // Crossplane writes it over what people say
	}
	source = &unstructured.Unstructured{Object: body}
	source.SetName(name.Name)
	source.SetNamespace(name.Namespace)
	source.SetLabels(map[string]string{n.Adopted: "true"})
	source.SetAnnotations(map[string]string{n.Bound: "true", n.Target: string(target.GetUID())})
	return source, true
}

// Differences says, a line for each field in the order of their names, what becomes of a
// target that a Sync made when source takes it up: what source sets to something else, and
// what a Sync has set and source does not. Metadata and status are not compared.
func Differences(source, target *unstructured.Unstructured) []string {
	return travel.Differences(source, target, domain)
}

// taken reports whether a target is going, or says that it is or was one of a Sync.
func taken(n *names.Names, target *unstructured.Unstructured) bool {
	a := target.GetAnnotations()
	return target.GetDeletionTimestamp() != nil || a[n.Bound] != "" || a[n.Source] != "" || a[n.Orphaned] != ""
}

// observeAdoption sets the policies for what the target's side made, also where the source has
// gone, and has a source take over the very target that it names.
func (o *observer) observeAdoption(p *pair) {
	switch {
	case p.source == nil:
		if p.target != nil && p.target.GetAnnotations()[o.names.Adopted] != "" {
			p.policy.deletion, p.policy.orphans = DeletionOrphan, OrphanReport
		}
		return
	case !isAdopted(o.names, p.source):
		return
	}
	p.policy.lost, p.policy.deletion, p.policy.orphans = LostReport, DeletionOrphan, OrphanReport
	if o.opts.Adopt && !p.isMade && p.target != nil && string(p.target.GetUID()) == p.state.source.targetRecord {
		p.policy.conflict = ConflictAdopt
	}
}

// unclaimed reports whether the target's side made what has the target's name, and no
// source is there. It opens no namespace.
func (o *observer) unclaimed(p *pair) bool {
	if p.source != nil || p.state.source.freshness == unknown || !p.mapped || p.target == nil {
		return false
	}
	_, open := opened(o.opts.Mapper).Target(p.key)
	return open && p.state.target.relation == relationForeign && !taken(o.names, p.target)
}
