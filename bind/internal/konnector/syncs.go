// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/adoption"
	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A recipe has the parameters of a binding's Sync. The session has the rest.
type recipe struct {
	export  *v1alpha1.APIServiceExport
	related []klutchsync.Related
	grant   *permission.Grant     // nil where related objects may be read in all namespaces
	former  types.UID             // of the App Cluster whose objects are taken up; empty if none
	lost    klutchsync.LostPolicy // empty is Recreate
	terms   adoption.Terms
}

// fingerprint changes when the Sync has to be made anew.
func (r recipe) fingerprint(s *session, version schema.GroupVersionResource) (string, error) {
	spec := r.export.Spec
	data, err := json.Marshal([]any{version, spec.Scope, spec.InformerScope, spec.ClusterScopedIsolation, r.related, r.grant != nil, r.former, r.lost, r.terms.Agreed(), s.heartbeat.snapshot().tenant})
	return fmt.Sprintf("%p %s", s, data), err
}

// syncs are the Syncs of the bindings, by namespace/name of the binding.
type syncs struct {
	*klutchsync.Set

	source *klutchsync.Cluster
	embed  func(binding string, opts *klutchsync.Options) // see Sync of Options

	changed   func(name string)
	news      func(binding cache.ObjectName) // of a ledger
	deletions deletionLogs
	embedding sync.Mutex // held while the embedding program is called
}

// made is the Sync of a binding that was made last.
type made struct {
	fingerprint string // empty while it does not run
	version     string // of the API
	kind        schema.GroupVersionKind
	ledger      *behind.Ledger // nil before the first
	provided    *adoption.Tracker
}

func newSyncs(source *klutchsync.Cluster, opts Options, changed func(name string)) *syncs {
	return &syncs{Set: klutchsync.NewSet(klutchsync.SetOptions{Changed: changed}), source: source, embed: opts.Sync, changed: changed}
}

// put starts the Sync of a binding, unless one runs with the same recipe and session, or it may not begin yet.
func (all *syncs) put(binding cache.ObjectName, last *made, s *session, r recipe, begin func() bool) error {
	version := crd.SyncVersion(&r.export.Spec, last.version)
	fingerprint, err := r.fingerprint(s, version)
	if err != nil || last.fingerprint == fingerprint {
		return err
	}
	opts := s.options(r)
	opts.DeletionLog = all.deletions.of(binding, s.heartbeat.secret).forSync()
	all.embedder(binding.Name, &opts)
	ledger := behind.NewLedger(func() { all.news(binding) })
	ledger.Follow(last.ledger, time.Now())
	opts.Hooks.Reported = both(ledger.Report, opts.Hooks.Reported)
	provided := adoption.New(func() { all.changed(binding.String()) })
	if r.export.Spec.Scope == v1alpha1.NamespacedScope {
		opts.Hooks.Unclaimed = provided.Found
	}
	sync, err := klutchsync.New(all.source, s.target, version, opts)
	if err != nil {
		return err
	}
	if !begin() {
		return errManyStarts
	}
	*last = made{fingerprint, version.Version, version.GroupVersion().WithKind(r.export.Spec.Names.Kind), ledger, provided}
	all.Put(binding.String(), sync)
	return nil
}

// both is a hook that calls two, of which the second may be nil.
func both[T any](first, second func(context.Context, T)) func(context.Context, T) {
	if second == nil {
		return first
	}
	return func(ctx context.Context, v T) {
		first(ctx, v)
		second(ctx, v)
	}
}

// end stops the Sync of a binding and returns when it has stopped.
func (all *syncs) end(binding cache.ObjectName, last *made) {
	last.fingerprint = ""
	all.Remove(binding.String())
}

// embedder lets the embedding program change the options of a Sync: one call at a time.
func (all *syncs) embedder(binding string, opts *klutchsync.Options) {
	if all.embed == nil {
		return
	}
	all.embedding.Lock()
	defer all.embedding.Unlock()
	all.embed(binding, opts)
}

// options returns the options of the Sync of an export of this session.
func (s *session) options(r recipe) klutchsync.Options {
	opts := klutchsync.Options{Mapper: s.namespaces.Mapper, Related: slices.Clone(r.related), FormerSource: r.former, Lost: r.lost, Adopt: r.terms.Agreed() && r.export.Spec.Scope == v1alpha1.NamespacedScope, Hooks: klutchsync.Hooks{Refused: s.records.related}}
	for i := range opts.Related {
		opts.Related[i].Except = permission.ClosedPatterns()
	}
	opts.Offered = s.offers(r.export.Name)
	if r.export.Spec.InformerScope == v1alpha1.NamespacedScope {
		opts.TargetScope = klutchsync.ScopeMapped
	}
	if r.grant != nil {
		opts.RelatedAccess = r.grant.Access
	}
	switch {
	case r.export.Spec.Scope != v1alpha1.ClusterScope:
	case r.export.Spec.ClusterScopedIsolation == v1alpha1.IsolationNamespaced:
		opts.Mapper, opts.TargetScope = s.namespaces.Wide, klutchsync.ScopeMapped
	default:
		opts.Mapper = klutchsync.Prefix(s.place.Namespace + "-")
		meta := tenantMeta(s.place.Namespace, s.heartbeat.snapshot().tenant)
		opts.RelatedMapper = s.namespaces.Mapper
		opts.TargetMeta = func(cache.ObjectName) klutchsync.Meta { return meta }
	}
	return opts
}

// tenantMeta says whose a cluster-scoped object is. The garbage collector deletes it
// with the tenant namespace.
func tenantMeta(namespace string, uid types.UID) klutchsync.Meta {
	return klutchsync.Meta{
		Annotations:     map[string]string{v1alpha1.ClusterNamespaceAnnotation: namespace},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uid}},
	}
}

// informersSynced says whether objects can be read. It is no news that they cannot
// be where the provider fails.
func informersSynced(state klutchsync.Status, providerFails bool) v1alpha1.Condition {
	switch {
	case state.Err != nil && providerFails:
		return pending(v1alpha1.ConditionInformersSynced, "Objects cannot be read.")
	case cluster.IsExcess(state.Err):
		return failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonControlPlaneAnswerTooLarge, tooLarge("The Control Plane Cluster", state.Err))
	case state.Err != nil:
		return failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonInformerSyncTimeout, "Objects cannot be read: "+cluster.Explain(state.Err)+".")
	case !state.Synced:
		return pending(v1alpha1.ConditionInformersSynced, "Reading the objects of both clusters.")
	}
	return v1alpha1.True(v1alpha1.ConditionInformersSynced)
}

// deletionsInSync says whether the Control Plane Cluster has just what it should.
func deletionsInSync(b *v1alpha1.APIServiceBinding, state klutchsync.Status) v1alpha1.Condition {
	switch {
	case state.Held > 0:
		return warned(v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, heldMessage(b, state))
	case state.HeldCopies > 0:
		return warned(v1alpha1.ConditionDeletionsInSync, v1alpha1.ReasonDeletionsHeld, heldCopiesMessage(b, state.HeldCopies))
	case state.Orphans > 0:
		return warned(v1alpha1.ConditionDeletionsInSync, string(klutchsync.ReasonOrphaned), fmt.Sprintf(
			"%d objects in the Control Plane Cluster were made from objects that have gone from here before the konnector removed its finalizer, "+
				"as when it is taken off by hand. They stay; the konnector's log has their names.", state.Orphans))
	}
	return v1alpha1.True(v1alpha1.ConditionDeletionsInSync)
}

// heldMessage says where to look: an object that has gone without its finalizer, which Orphans counts, has
// no annotation that could say why.
func heldMessage(b *v1alpha1.APIServiceBinding, state klutchsync.Status) string {
	gone := ""
	if state.Orphans > 0 {
		gone = fmt.Sprintf("; %d have gone from here, and the konnector's log has their names", state.Orphans)
	}
	return fmt.Sprintf("%d deleted objects wait, since so many went at once: what was deleted here is kept in the Control Plane Cluster, what vanished there is not made anew. "+
		"The ones that are here say why in their annotation %s: kubectl bind status %s lists them%s. If all are meant, run: %s",
		state.Held, klutchsync.MessageAnnotation, b.Name, gone, behind.ReleaseCommand(b))
}

func heldCopiesMessage(b *v1alpha1.APIServiceBinding, held int) string {
	return fmt.Sprintf("%d copies, such as Secrets, are kept here although their originals in the Control Plane Cluster are gone or of another type, since so many went at once, as when that is "+
		"restored from a backup: the annotation %s of the objects that they were for says which. If all are meant to go, run: %s",
		held, klutchsync.MessageAnnotation, behind.ReleaseCommand(b))
}

// maxRelease is how much of the annotation that releases held deletions is compared, in bytes.
const maxRelease = 256

// deletions says how many deletions are held because too many came at once, and releases
// them when a person has annotated the binding, also while no konnector ran. What stood there
// when a konnector first looked at the binding releases nothing.
func (p *pass) deletions(ctx context.Context, state klutchsync.Status) (err error) {
	log := p.syncs.deletions.of(p.key, p.session.heartbeat.secret)
	released, asked := log.released(), text.Clip(p.binding.Annotations[klutchsync.ReleaseAnnotation], maxRelease)
	switch {
	case released == nil, asked == "" && *released != "":
		err = log.seen(ctx, asked)
	case asked != *released && (state.Synced || state.Held+state.HeldCopies > 0): // before, the held ones are not known
		p.syncs.Release(p.key.String())
		state.Held, state.HeldCopies = 0, 0
		err = log.empty(ctx, asked)
	}
	p.mention(deletionsInSync(p.binding, state))
	return err
}

// lostPolicy is the policy of a Sync. A value that this konnector does not know, which a newer one
// or another side's API server may have, makes nothing anew: a new instance is an empty one.
func lostPolicy(lost v1alpha1.LostInstances) klutchsync.LostPolicy {
	if lost == "" || lost == v1alpha1.LostInstancesRecreate {
		return klutchsync.LostRecreate
	}
	return klutchsync.LostReport
}

// sync has the objects kept in step, and says whether they are.
func (p *pass) sync(ctx context.Context) (bool, error) {
	if p.record.starts.wait(p.binding.Generation) > 0 {
		return unsynced(p, errManyStarts)
	}
	name := p.key.String()
	selected, settled, err := p.settleClaims(ctx)
	switch {
	case errors.Is(err, errManyStarts):
		return unsynced(p, err)
	case err != nil:
		return false, err
	}
	if p.export.Spec.ClusterScopedIsolation == v1alpha1.IsolationPrefixed && p.session.heartbeat.snapshot().tenant == "" {
		p.lookAgain(retryEvery)
		p.verdict.set(pending(v1alpha1.ConditionInformersSynced, "Waits to read the tenant namespace."))
		return false, nil
	}
	r := recipe{
		export: p.export, related: selected, grant: p.grant, former: types.UID(p.binding.Annotations[v1alpha1.RecoverAnnotation]), terms: terms(p.export, p.binding),
		lost: lostPolicy(cmp.Or(p.binding.Spec.LostInstances, p.export.Spec.LostInstances)),
	}
	begin := func() bool { return p.record.starts.begin(p.binding.Generation) }
	if err = p.syncs.put(p.key, &p.record.sync, p.session, r, begin); err != nil { //nolint:contextcheck // a Sync has the context of its Set
		return unsynced(p, err)
	}
	state, ok := p.syncs.State(name)
	if ok && state.Err != nil {
		p.lookAgain(p.record.unread.again())
	} else {
		p.record.unread = trouble{}
	}
	p.verdict.set(informersSynced(state, p.verdict.providerFails()))
	if settled { // else ClaimsInSync would say that the claims were looked at
		p.record.unlisted = trouble{}
		p.tellCopies(ctx, state, selected)
		p.relatedWait(state.Unreadable)
	}
	if p.record.missingRights != "" {
		p.verdict.set(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonMissingRights, p.record.missingRights))
	}
	p.mention(namespacesReady(p.record.unlisted, p.session.namespaces))
	return true, p.deletions(ctx, state)
}

// unsynced ends the pass since no Sync can be made, or may begin yet.
func unsynced(p *pass, err error) (bool, error) {
	if errors.Is(err, errManyStarts) {
		p.lookAgain(p.record.starts.wait(p.binding.Generation))
		return p.block(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonStepFailed, "Objects wait: "+err.Error()+"."))
	}
	return p.block(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonInvalidClaim, cluster.Explain(err)+"."))
}

// terms are what was agreed to about objects that the provider makes.
func terms(export *v1alpha1.APIServiceExport, b *v1alpha1.APIServiceBinding) adoption.Terms {
	return adoption.Terms{Offered: adoption.Offered(export), Limit: int(b.Spec.MaxAdoptedObjects)}
}
