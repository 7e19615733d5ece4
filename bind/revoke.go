// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// revoke removes from both clusters the copies that this binding made of what it has
// no consent for any more, after it has stopped what makes them. It does so once for
// each set of consents. What could not be removed is returned as a sentence.
//
// Where a resource is still claimed otherwise, its Sync removes what is too much.
func (p *pass) revoke(ctx context.Context, selected []klutchsync.Related, judge claimant) (string, error) {
	here, there, answers := p.withoutConsent(klutchsync.TargetSide, selected), p.withoutConsent(klutchsync.SourceSide, selected), p.answers(judge)
	id := fmt.Sprint(selected, answers) // nothing that the provider can change
	if p.lastConsent(p.key).id == id {
		return "", nil
	}
	services, known := p.session.services()
	if !known {
		p.again = time.Second
		return "", nil
	}
	taken, err := p.taken(ctx)
	if err != nil {
		return "", err
	}
	p.hold(p.key)
	denied, err := p.removeAll(ctx, place{meta: p.app.meta, owner: v1alpha1.OwnerProvider, namespaces: append(slices.Clone(taken), metav1.NamespaceAll)}, here)
	if err != nil {
		return "", err
	}
	deniedThere, err := p.removeAll(ctx, place{meta: p.session.meta, owner: v1alpha1.OwnerConsumer, namespaces: services}, there)
	if err != nil {
		return "", err
	}
	if denied = append(denied, deniedThere...); len(denied) > 0 {
		p.again = retryEvery
		return fmt.Sprintf("Consent was revoked, but the konnector may not delete the copies of %s that it made: give it back the right, or delete those with the label %s.",
			strings.Join(denied, ", "), v1alpha1.BoundAnnotation), nil
	}
	if len(selected) > 0 {
		if taken, err = p.removeStrays(ctx, selected, taken, services); err != nil {
			return "", err
		}
	}
	if err := p.giveBack(ctx, taken); err != nil {
		return "", err
	}
	if len(answers) > 0 || p.lastConsent(p.key).id != "" {
		audit(ctx, "claims answered", "answers", answers)
	}
	p.consented(id, selected)
	return "", nil
}

// removeAll removes the copies of resources, and returns the resources whose copies the
// konnector may not delete.
func (p *pass) removeAll(ctx context.Context, from place, resources []schema.GroupVersionResource) (denied []string, err error) {
	removed := 0
	for _, resource := range resources {
		n, err := p.removeCopies(ctx, from, resource)
		removed += n
		switch {
		case apierrors.IsForbidden(err):
			denied = append(denied, resource.GroupResource().String())
		case err != nil:
			return nil, err
		}
	}
	if removed > 0 {
		audit(ctx, "consent revoked, copies removed", "copies", removed)
	}
	return denied, nil
}

// taken are the namespaces in which the rights of the binding's claims were taken.
func (p *pass) taken(ctx context.Context) (namespaces []string, err error) {
	list, err := p.app.meta.Resource(roleBindingsResource).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, claimsName(p.binding.Name)).String(),
	})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil // nor could they be taken
	}
	if err != nil {
		return nil, fmt.Errorf("look for the rights of claims: %w", err)
	}
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return namespaces, nil
}

// giveBack gives back the rights of claims in the namespaces where they were taken.
func (p *pass) giveBack(ctx context.Context, namespaces []string) error {
	g := &grant{app: p.app, binding: p.binding.Name}
	for _, namespace := range namespaces {
		if err := g.giveBack(ctx, namespace); err != nil {
			return fmt.Errorf("give back the rights of claims in namespace %s: %w", namespace, err)
		}
	}
	return nil
}

// answers are those of the binding, such as "Accepted secrets"; and "Refused nodes"
// where the answer does not count.
func (p *pass) answers(judge claimant) []string {
	all := []string{}
	for _, c := range p.binding.Spec.PermissionClaims {
		state := string(c.State)
		if c.State == v1alpha1.ClaimAccepted && judge.refuses(c.PermissionClaim) != "" {
			state = "Refused"
		}
		all = append(all, state+" "+c.String())
	}
	return all
}

// withoutConsent are the resources of which there may be copies of what the owner from
// has, but must not be. Of the provider's, which are here: any that is claimed, was
// claimed while this process ran, or that nearly all claims are about. Of the App
// Cluster's, which are there: only those, since without a claim there are no rights to
// look.
func (p *pass) withoutConsent(from klutchsync.Side, selected []klutchsync.Related) []schema.GroupVersionResource {
	found, here := map[schema.GroupVersionResource]bool{}, from == klutchsync.TargetSide
	if here {
		found[corev1.SchemeGroupVersion.WithResource("secrets")] = true
		found[corev1.SchemeGroupVersion.WithResource("configmaps")] = true
	}
	for _, c := range p.claims() {
		if here || c.Selector.Owner == v1alpha1.OwnerConsumer {
			found[schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource}] = true
		}
	}
	for _, r := range p.lastConsent(p.key).selected {
		if here || r.From == from {
			found[r.Resource] = true
		}
	}
	for _, r := range selected {
		if r.From == from {
			delete(found, r.Resource)
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
}

// mostClaims bounds how many claims that were not answered have us look for copies.
const mostClaims = 20

// claims are those of the binding and of the export, agreed to or not.
func (p *pass) claims() []v1alpha1.PermissionClaim {
	all := slices.Clone(p.export.Spec.PermissionClaims[:min(len(p.export.Spec.PermissionClaims), mostClaims)])
	for _, c := range p.binding.Spec.PermissionClaims {
		all = append(all, c.PermissionClaim)
	}
	return all
}

// A consent is what was last found to be agreed to, and carried out.
type consent struct {
	id       string
	selected []klutchsync.Related
}

func (a *agent) lastConsent(binding cache.ObjectName) consent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.consents[binding]
}

func (p *pass) consented(id string, selected []klutchsync.Related) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consents[p.key] = consent{id, selected}
}

// A place is where copies of an owner's objects are.
type place struct {
	meta       metadata.Interface
	owner      v1alpha1.Owner
	namespaces []string
	stays      func(context.Context, *metav1.PartialObjectMetadata) (bool, error) // of a copy; nil for none
}

// removeCopies deletes the copies of a resource that this binding made, and gives up
// those that others want too. Where the konnector may not even list them, it has made
// none.
func (p *pass) removeCopies(ctx context.Context, from place, resource schema.GroupVersionResource) (removed int, err error) {
	for _, namespace := range from.namespaces {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		list, err := from.meta.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.BoundAnnotation + "=true"})
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("look for copies of %s: %w", resource.GroupResource(), err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			ours, others := copiedBy(p.binding.Name, from.owner, o)
			if ours && from.stays != nil {
				stays, err := from.stays(ctx, o)
				if err != nil {
					return removed, err
				}
				ours = !stays
			}
			if !ours {
				continue
			}
			if err := removeCopy(ctx, from.meta.Resource(resource).Namespace(o.Namespace), o, p.binding.Name, others); err != nil && !apierrors.IsNotFound(err) {
				return removed, fmt.Errorf("remove the copy %s/%s of %s: %w", o.Namespace, o.Name, resource.GroupResource(), err)
			}
			removed++
		}
	}
	return removed, nil
}

// removeCopy removes a copy in the version that was seen or, if it is shared, what
// says that this binding wants it.
func removeCopy(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, binding string, shared bool) error {
	if !shared {
		return client.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}})
	}
	others := slices.DeleteFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		name, related := strings.CutSuffix(entry.Manager, relatedManager)
		return related && manages(name, binding)
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion, "managedFields": others}})
	if err != nil {
		return fmt.Errorf("patch of managed fields: %w", err)
	}
	_, err = client.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// relatedManager ends the field managers of Syncs on copies.
const relatedManager = "/related"

// copiedBy tells whether o is a copy of an object of owner's that the Sync of a
// binding made, and whether that of another binding did too.
func copiedBy(binding string, owner v1alpha1.Owner, o *metav1.PartialObjectMetadata) (ours, others bool) {
	a := o.Annotations
	if a[klutchsync.SourceAnnotation] == "" || a[klutchsync.OwnerAnnotation] != string(owner) || o.Labels[v1alpha1.BoundAnnotation] != "true" {
		return false, false
	}
	for _, entry := range o.ManagedFields {
		if name, related := strings.CutSuffix(entry.Manager, relatedManager); related {
			ours = ours || manages(name, binding)
			others = others || !manages(name, binding)
		}
	}
	return ours, others
}

// manages tells whether a Sync's field manager is that of a binding. The long ones are
// cut and have a hash instead of the rest.
func manages(manager, binding string) bool {
	const short = 60
	name, ok := strings.CutPrefix(manager, v1alpha1.GroupVersion.Group+"/")
	return ok && (name == binding || len(binding) > short && len(name) > short && strings.HasPrefix(name, binding[:short]))
}

// audit leaves one record of something that was agreed to, taken back or replaced.
// Values never hold secrets.
func audit(ctx context.Context, event string, keysAndValues ...any) {
	logr.FromContextOrDiscard(ctx).WithName("audit").Info(event, keysAndValues...)
}
