// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A consentEnd removes the copies of claims whose consent a person took back.
type consentEnd struct {
	pass     *pass
	selected []klutchsync.Related // by the accepted claims
	judge    permission.Judge
	waits    bool // it could not begin yet

	lastCondition *v1alpha1.Condition                  // ClaimsInSync as a konnector of ours left it; nil if there is none
	maybeAccepted []v1alpha1.AcceptablePermissionClaim // claims without consent that may have had it before this process began
	maybeCopies   []string                             // namespaces where there may be copies of these
	rolesHidden   bool                                 // the konnector may not see where it has the rights of the claims
	unlisted      []string                             // bindings whose objects it may not list, and which may need a legacy konnector's copies
	pages         int                                  // of objects that were looked at for a legacy konnector's mark
	removed       bool                                 // there is no copy without consent any more
	unused        bool                                 // nor one that no object needs: only rights are left to be given back
}

// A remainder names the copies that the konnector could not remove.
type remainder struct {
	denied []string // resources whose copies the konnector may not delete
	unseen []string // resources, with the namespaces where it may not list them
}

// words say it; binding is that of copies in the App Cluster.
func (r remainder) words(binding string) (text string) {
	if len(r.denied) > 0 {
		text = fmt.Sprintf("Consent was revoked, but the konnector may not delete the copies of %s that it made: give it back the right, or delete those with the label %s. ",
			strings.Join(r.denied, ", "), v1alpha1.BoundAnnotation)
	}
	switch {
	case len(r.unseen) == 0:
	case binding == "":
		text += "There is no consent any more, and the platform does not let the konnector look whether copies are left there, which takes the right to list " + cluster.Some(r.unseen) + ". "
	default:
		text += fmt.Sprintf("There is no consent any more, and the konnector may not look whether copies are left. It needs a RoleBinding to the ClusterRole %s with get, list and delete on %s; kubectl bind repair gives it the rights. ",
			permission.ClaimsName(binding), cluster.Some(r.unseen))
	}
	return text
}

// run stops the Sync of the binding, and removes from both clusters the copies that it made under
// consents that were taken back. It does so once for each set of consents. If something is left, run
// returns why: the Sync of the remaining consents starts again without waiting for that, and run tries
// again after pauses that grow.
//
// Where another claim still selects a resource, its Sync removes the surplus copies.
func (w *consentEnd) run(ctx context.Context) (obstacle, error) {
	answers := w.answers()
	id := fmt.Sprint(w.selected, answers) // nothing that the provider can change
	if w.pass.record.consent.id == id {
		return obstacle{}, nil
	}
	if u := w.pass.record.unfinished; u.id == id && time.Until(u.next) > 0 {
		w.pass.lookAgain(time.Until(u.next))
		return u.why, nil
	}
	services, known := w.pass.session.namespaces.Services()
	if !known {
		w.waits = true
		w.pass.lookAgain(w.pass.record.unlisted.again())
		return obstacle{}, nil
	}
	why, done, err := w.carryOut(ctx, id, services)
	if !done {
		return w.postpone(ctx, id, why, err)
	}
	if len(answers) > 0 || w.pass.record.consent.id != "" {
		audit.Record(ctx, "claims answered", "answers", answers)
	}
	w.pass.record.consent, w.pass.record.unfinished = consent{id, w.selected}, unfinished{}
	return obstacle{}, nil
}

// carryOut does what the answers say. It is done, or there is an error, or an obstacle to tell of.
func (w *consentEnd) carryOut(ctx context.Context, id string, services []string) (why obstacle, done bool, err error) {
	granted, err := w.begin(ctx, id)
	if err != nil {
		return why, false, err
	}
	remains, opened, err := w.removeCopies(ctx, granted, services)
	if remains != "" || err != nil {
		return obstacle{v1alpha1.ReasonRevokedCopiesRemain, remains}, false, err
	}
	w.removed = true
	if err := w.giveUp(ctx, append(granted, opened...), services); err != nil {
		return why, false, err
	}
	return why, true, nil
}

// postpone has the answers be carried out later, and returns what to tell of that. An error that people
// are not to be told of yet is returned.
func (w *consentEnd) postpone(ctx context.Context, id string, why obstacle, err error) (obstacle, error) {
	u := &w.pass.record.unfinished
	if u.id == id {
		ctx = fates.FailingSince(ctx, u.since)
	}
	told := fates.IsTold(ctx, err) || u.id == id && u.why.words != ""
	switch {
	case err == nil:
	case fates.Of(err).Fate() == fates.Done || errors.Is(err, errManyStarts) || !told && !w.unused:
		return obstacle{}, err
	case !told:
		why = obstacle{}
	default:
		why = w.explain(why, err)
	}
	if u.id != id {
		*u = unfinished{id: id}
	}
	pause := max(u.growing(retryEvery*time.Duration(max(w.pages, 1)), carryOutRarely), fates.Asked(err))
	if u.why = why; u.lasts() || fates.Asked(err) > 0 { // else each look finds out whether it can be done
		u.next = time.Now().Add(pause)
	}
	w.pass.lookAgain(pause)
	return why, nil
}

// explain adds to what remains what an API server has against taking it back.
func (w *consentEnd) explain(remains obstacle, err error) obstacle {
	said := cluster.Clip(fates.Stable(err)) // with the object
	if fates.IsUnanswered(err) {
		said = cluster.Explain(err)
	}
	reason := v1alpha1.ReasonStepFailed
	if !w.removed && !w.wasDone() { // so that a konnector that starts looks for the copies
		reason = v1alpha1.ReasonRevokedCopiesRemain
	}
	return obstacle{reason, strings.TrimSpace(remains.words + " What the answers to claims take back is not all taken back: " + said + ". It is tried again by itself.")}
}

// begin finds out where there may be copies, stops the Sync that makes them, and returns the
// namespaces in which the konnector has the rights of the claims.
func (w *consentEnd) begin(ctx context.Context, id string) (granted []string, err error) {
	w.lastCondition = v1alpha1.FindCondition(w.pass.binding.Status.Conditions, v1alpha1.ConditionClaimsInSync)
	granted, known, err := w.pass.grantedNamespaces(ctx)
	if err != nil {
		return nil, err
	}
	w.rolesHidden = !known
	w.maybeAccepted = w.findMaybeAccepted()
	if w.pass.record.stoppedFor != id {
		if !w.pass.record.starts.begin(w.pass.binding.Generation) {
			return nil, errManyStarts
		}
		w.pass.syncs.end(w.pass.key, &w.pass.record.sync)
		w.pass.record.legacy = legacyCopies{}
	}
	w.pass.record.stoppedFor = id
	return granted, nil
}

// removeCopies removes the copies in both clusters. It says what remains, and returns the namespaces
// in which it took rights to look.
func (w *consentEnd) removeCopies(ctx context.Context, granted, services []string) (remains string, opened []string, err error) {
	served, opened, err := w.openToLook(ctx, granted)
	if err != nil {
		return "", nil, err
	}
	if w.maybeCopies = served; w.lastCondition != nil { // there was a konnector that made copies
		w.maybeCopies = slices.Concat(granted, served, services)
	}
	here, err := w.removeAll(ctx, w.pass.copiesHere(slices.Concat(granted, served)), w.withoutConsent(klutchsync.TargetSide))
	there, other := w.removeAll(ctx, w.pass.copiesThere(services), w.withoutConsent(klutchsync.SourceSide))
	remains = here.words(w.pass.binding.Name) + there.words("")
	if len(w.unlisted) > 0 {
		slices.Sort(w.unlisted)
		remains += "Copies that Klutch's konnector made stay until it is known whether they are those of " + cluster.Some(slices.Compact(w.unlisted)) +
			", whose objects the konnector may not list. kubectl bind repair gives it the right."
	}
	return strings.TrimSpace(remains), opened, cmp.Or(err, other)
}

// giveUp removes the copies that no object needs, and gives back the rights in the namespaces
// that are left without an object or a claim: not before the copies there are gone.
func (w *consentEnd) giveUp(ctx context.Context, granted, services []string) (err error) {
	if len(w.selected) > 0 {
		if granted, err = w.removeUnused(ctx, granted, services); err != nil {
			return err
		}
	}
	w.unused = true
	return w.giveBack(ctx, granted)
}

// removeUnused removes the copies that no object needs. Of the namespaces in which the
// rights of claims were taken it returns those without an object or a claim.
func (w *consentEnd) removeUnused(ctx context.Context, granted, services []string) (unused []string, err error) {
	namespaces := permission.UnusedNamespaces{
		Binding: w.pass.binding.Name, API: crd.SyncVersion(&w.pass.export.Spec, ""), Grant: w.pass.grant, InApp: w.pass.session.namespaces.InApp,
		App:          permission.Cluster{Clients: w.pass.app.Clients},
		ControlPlane: permission.Cluster{Clients: w.pass.session.Clients},
	}
	if permission.IsWide(&w.pass.export.Spec) {
		namespaces.Mapped = func(namespace string) bool {
			_, mapped := w.pass.session.namespaces.Mapper.Of(namespace)
			return mapped
		}
	}
	if unused, err = namespaces.Among(ctx, granted); err != nil {
		return nil, err
	}
	return unused, namespaces.RemoveCopies(ctx, w.selected, unused, services)
}

// removeAll removes the copies of resources, and returns what remains.
func (w *consentEnd) removeAll(ctx context.Context, from permission.Copies, resources []schema.GroupVersionResource) (left remainder, err error) {
	var refused fates.Refusals
	removed := 0
	for _, resource := range resources {
		others := w.claimedElsewhere(resource)
		from.Legacy = len(others) == 0 || from.Owner == v1alpha1.OwnerProvider
		from.Stays = func(ctx context.Context, o *metav1.PartialObjectMetadata) (bool, error) {
			if len(others) == 0 || !legacycopy.Is(o, string(from.Owner)) {
				return false, nil
			}
			return w.mayHaveObjects(ctx, others, o.Namespace)
		}
		n, unseen, err := from.Remove(ctx, resource)
		removed += n
		if fates.IsRefused(err) {
			left.denied = append(left.denied, resource.GroupResource().String())
		} else if err := refused.Keep(err); err != nil {
			return left, err
		}
		unseen = slices.DeleteFunc(unseen, func(namespace string) bool { return !w.mayHave(resource, from.Owner, namespace) })
		what := resource.GroupResource().String()
		if named := slices.DeleteFunc(slices.Clone(unseen), isAll); len(named) > 0 {
			what += " in " + strings.Join(named, ", ")
		}
		if len(unseen) > 0 {
			left.unseen = append(left.unseen, what)
		}
	}
	if removed > 0 {
		audit.Record(ctx, "consent revoked, copies removed", "copies", removed)
	}
	return left, refused.Err()
}

func isAll(namespace string) bool { return namespace == metav1.NamespaceAll }

// isDone reports whether the answers were carried out, as far as is known: by this process, or by the konnector
// of ours whose last word is about them, and not that copies remain.
func (w *consentEnd) isDone() bool { return w.pass.record.consent.id != "" || w.wasDone() }

// wasDone reports whether a konnector of ours has said last that no copies remain without these answers.
func (w *consentEnd) wasDone() bool {
	return w.lastCondition != nil && w.lastCondition.ObservedGeneration == w.pass.binding.Generation && !copiesRemain(w.lastCondition)
}

// findMaybeAccepted returns the claims without consent that may have been accepted before this process began, in the
// state Accepted. Where no konnector has written a condition yet, claims of the provider that the binding does not name are
// new, and are left out. Claims whose consent was taken back a moment ago are included: a legacy konnector may have left
// copies in namespaces where no rights were taken yet.
func (w *consentEnd) findMaybeAccepted() (found []v1alpha1.AcceptablePermissionClaim) {
	done := w.isDone()
	claims := slices.Clone(w.pass.binding.Spec.PermissionClaims)
	if w.lastCondition != nil {
		for _, c := range permission.Unanswered(w.exported(), claims) {
			claims = append(claims, v1alpha1.AcceptablePermissionClaim{PermissionClaim: c})
		}
	}
	for _, c := range claims {
		if policy, _ := permission.PolicyOf(c.GroupResource, false); c.State != v1alpha1.ClaimAccepted && policy != permission.Never &&
			(!done || w.had(schema.GroupResource(c.GroupResource), c.Selector.Owner)) {
			c.State = v1alpha1.ClaimAccepted
			found = append(found, c)
		}
	}
	return found
}

func copiesRemain(said *v1alpha1.Condition) bool {
	return said != nil && said.Reason == v1alpha1.ReasonRevokedCopiesRemain
}

// had reports whether this process has carried out consent for what an owner has of a resource.
func (w *consentEnd) had(resource schema.GroupResource, owner v1alpha1.Owner) bool {
	return slices.ContainsFunc(w.pass.record.consent.selected, func(r klutchsync.Related) bool {
		return r.Resource.GroupResource() == resource && (r.From == klutchsync.SourceSide) == (owner == v1alpha1.OwnerConsumer)
	})
}

// mayHave reports whether a namespace may have copies of what an owner has of a resource, for which
// there is no consent any more. Of all namespaces that is said where no single one is known.
func (w *consentEnd) mayHave(resource schema.GroupVersionResource, owner v1alpha1.Owner, namespace string) bool {
	consumers, had := owner == v1alpha1.OwnerConsumer, w.had(resource.GroupResource(), owner)
	maybe := slices.ContainsFunc(w.maybeAccepted, func(c v1alpha1.AcceptablePermissionClaim) bool {
		return c.Group == resource.Group && c.Resource == resource.Resource && (c.Selector.Owner == v1alpha1.OwnerConsumer) == consumers
	})
	sure := had || maybe && copiesRemain(w.lastCondition)
	if isAll(namespace) {
		return sure && w.rolesHidden
	}
	return sure || maybe && slices.Contains(w.maybeCopies, namespace)
}

// copiesHere are those in the App Cluster of what the provider has.
func (p *pass) copiesHere(granted []string) permission.Copies {
	return permission.Copies{Meta: p.app.Meta, Binding: p.binding.Name, Owner: v1alpha1.OwnerProvider, Namespaces: append(slices.Clone(granted), metav1.NamespaceAll)}
}

// copiesThere are those in the Control Plane Cluster of what the App Cluster has.
func (p *pass) copiesThere(services []string) permission.Copies {
	return permission.Copies{Meta: p.session.Meta, Binding: p.binding.Name, Owner: v1alpha1.OwnerConsumer, Namespaces: services}
}

// claimedElsewhere are the other bindings that have consent for a resource: copies of a
// legacy konnector, which name no binding, may then be theirs.
func (w *consentEnd) claimedElsewhere(resource schema.GroupVersionResource) (others []string) {
	for _, obj := range w.pass.app.bindings.GetStore().List() {
		o, ok := obj.(*unstructured.Unstructured)
		if !ok || cache.MetaObjectToName(o) == w.pass.key {
			continue
		}
		b, err := cluster.Decode[v1alpha1.APIServiceBinding](o)
		if err != nil || slices.ContainsFunc(b.Spec.PermissionClaims, func(c v1alpha1.AcceptablePermissionClaim) bool {
			return c.State == v1alpha1.ClaimAccepted && c.Group == resource.Group && c.Resource == resource.Resource
		}) {
			others = append(others, o.GetName())
		}
	}
	return others
}

// mayHaveObjects reports whether one of these bindings has an object in a namespace of the App Cluster, or a
// cluster-scoped one; until that is known it has.
func (w *consentEnd) mayHaveObjects(ctx context.Context, bindings []string, namespace string) (mayHave bool, err error) {
	for _, binding := range bindings {
		kind, err := cluster.ReadCRD(ctx, w.pass.app.Calls, binding)
		if err != nil {
			return false, err
		}
		resource, served := cluster.ServedResource(kind)
		if !served {
			continue
		}
		where := namespace
		if kind.Spec.Scope != apiextensionsv1.NamespaceScoped {
			where = metav1.NamespaceAll
		}
		list, err := w.pass.app.Meta.Resource(resource).Namespace(where).List(ctx, metav1.ListOptions{Limit: 1})
		switch {
		case fates.Is(err, fates.Absent, fates.Unserved):
		case fates.Is(err, fates.Forbidden):
			w.unlisted, mayHave = append(w.unlisted, binding), true
		case err != nil:
			return false, fmt.Errorf("look for objects of %s: %w", binding, err)
		case len(list.Items) > 0:
			return true, nil
		}
	}
	return mayHave, nil
}

// grantedNamespaces are those in which the konnector has taken the rights of the binding's claims, if
// it may know.
func (p *pass) grantedNamespaces(ctx context.Context) (namespaces []string, known bool, err error) {
	list, err := p.app.Meta.Resource(cluster.RoleBindings).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, permission.ClaimsName(p.binding.Name)).String(),
	})
	if cluster.IsHidden(err) {
		return nil, false, nil // nor can they be taken
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for the rights of claims: %w", err)
	}
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return namespaces, true, nil
}

// giveBack gives back the rights of claims in the namespaces where they were taken. If the API server
// refuses that in one namespace, the others are done all the same.
func (w *consentEnd) giveBack(ctx context.Context, namespaces []string) error {
	var refused fates.Refusals
	for _, namespace := range namespaces {
		if err := permission.GiveBack(ctx, w.pass.app.Calls, w.pass.binding.Name, namespace); err != nil {
			if err := refused.Keep(fmt.Errorf("give back the rights of claims in namespace %s: %w", namespace, err)); err != nil {
				return err
			}
		}
	}
	return refused.Err()
}

// answers are those of the binding, such as "Accepted secrets"; and "Refused nodes"
// where the answer does not count.
func (w *consentEnd) answers() []string {
	all := []string{}
	for _, c := range w.pass.binding.Spec.PermissionClaims {
		state := string(c.State)
		if c.State == v1alpha1.ClaimAccepted && w.judge.Refuses(c.PermissionClaim) != "" {
			state = "Refused"
		}
		all = append(all, state+" "+c.String())
	}
	return all
}

// withoutConsent returns the resources whose copies have to go: originals are on the side from, and no
// consent covers them. Of the provider's originals, whose copies are in the App Cluster, these are the claimed
// resources, the resources that were claimed while this process ran, and Secrets and ConfigMaps, which nearly all
// claims are about. Of the App Cluster's originals, Secrets and ConfigMaps are looked for only if the answers have
// changed while no konnector ran, since without a claim the konnector has hardly a right to look there.
func (w *consentEnd) withoutConsent(from klutchsync.Side) []schema.GroupVersionResource {
	found, here := map[schema.GroupVersionResource]bool{}, from == klutchsync.TargetSide
	if here || w.lastCondition != nil && !w.isDone() {
		found[corev1.SchemeGroupVersion.WithResource("secrets")] = true
		found[corev1.SchemeGroupVersion.WithResource("configmaps")] = true
	}
	for _, c := range w.claims() {
		if here || c.Selector.Owner == v1alpha1.OwnerConsumer {
			found[schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource}] = true
		}
	}
	for _, r := range w.pass.record.consent.selected {
		if here || r.From == from {
			found[r.Resource] = true
		}
	}
	for _, r := range w.selected {
		if r.From == from {
			delete(found, r.Resource)
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
}

// mostClaims bounds how many claims that were not answered have us look for copies.
const mostClaims = 20

// exported are the claims of the export, as far as they count.
func (w *consentEnd) exported() []v1alpha1.PermissionClaim {
	all := w.pass.export.Spec.PermissionClaims
	return all[:min(len(all), mostClaims)]
}

// claims are those of the binding and of the export, agreed to or not.
func (w *consentEnd) claims() []v1alpha1.PermissionClaim {
	all := slices.Clone(w.exported())
	for _, c := range w.pass.binding.Spec.PermissionClaims {
		all = append(all, c.PermissionClaim)
	}
	return all
}
