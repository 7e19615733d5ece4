// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// revoke removes from the App Cluster the copies that this binding made of what it
// has no consent for any more, after it has stopped what makes them. It does so once
// for each set of consents. What could not be removed is returned as a sentence.
//
// Where a resource is still claimed otherwise, its Sync removes what is too much.
func (p *pass) revoke(ctx context.Context, selected []klutchsync.Related) (string, error) {
	without, answers := p.withoutConsent(selected), p.answers()
	id := fmt.Sprint(without, selected, answers)
	if !p.consentChanged(id) {
		return "", nil
	}
	p.hold(p.key)
	removed, denied := 0, []string{}
	for _, resource := range without {
		n, err := p.removeCopies(ctx, resource)
		removed += n
		switch {
		case apierrors.IsForbidden(err):
			denied = append(denied, resource.GroupResource().String())
		case err != nil:
			return "", err
		}
	}
	if removed > 0 {
		audit(ctx, "consent revoked, copies removed", "copies", removed)
	}
	if len(denied) > 0 {
		p.again = retryEvery
		return fmt.Sprintf("Consent was revoked, but the konnector may not delete the copies of %s that it made: give it back the right, or delete those with the label %s.",
			strings.Join(denied, ", "), v1alpha1.BoundAnnotation), nil
	}
	if len(answers) > 0 || p.lastConsent(p.key).id != "" {
		audit(ctx, "claims answered", "answers", answers)
	}
	p.consented(id, selected)
	return "", nil
}

// answers are those of the binding, such as "Accepted secrets".
func (p *pass) answers() []string {
	all := []string{}
	for _, c := range p.binding.Spec.PermissionClaims {
		all = append(all, string(c.State)+" "+c.String())
	}
	return all
}

// withoutConsent are the resources of which there may be copies, but must not be: any
// that is claimed, was claimed while this process ran, or that nearly all claims are
// about.
func (p *pass) withoutConsent(selected []klutchsync.Related) []schema.GroupVersionResource {
	found := map[schema.GroupVersionResource]bool{
		corev1.SchemeGroupVersion.WithResource("secrets"):    true,
		corev1.SchemeGroupVersion.WithResource("configmaps"): true,
	}
	note := func(c v1alpha1.PermissionClaim) {
		found[schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource}] = true
	}
	for _, c := range p.binding.Spec.PermissionClaims {
		note(c.PermissionClaim)
	}
	for _, c := range p.export.Spec.PermissionClaims {
		note(c)
	}
	for _, r := range p.lastConsent(p.key).selected {
		found[r.Resource] = true
	}
	for _, r := range selected {
		if r.From == klutchsync.TargetSide { // of the other side there are no copies here
			delete(found, r.Resource)
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
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

func (p *pass) consentChanged(id string) bool { return p.lastConsent(p.key).id != id }

func (p *pass) consented(id string, selected []klutchsync.Related) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consents[p.key] = consent{id, selected}
}

// removeCopies deletes the copies of a resource that this binding made. Where the
// konnector may not even list them, it has made none.
func (p *pass) removeCopies(ctx context.Context, resource schema.GroupVersionResource) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := p.app.meta.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.BoundAnnotation + "=true"})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for copies of %s: %w", resource.GroupResource(), err)
	}
	removed := 0
	for i := range list.Items {
		o := &list.Items[i]
		if !copiedBy(p.binding.Name, o) {
			continue
		}
		err := p.app.meta.Resource(resource).Namespace(o.Namespace).Delete(ctx, o.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}})
		if err != nil && !apierrors.IsNotFound(err) {
			return removed, fmt.Errorf("delete the copy %s/%s of %s: %w", o.Namespace, o.Name, resource.GroupResource(), err)
		}
		removed++
	}
	return removed, nil
}

// copiedBy tells whether o is a copy of an object of the provider's that the Sync of
// a binding made, and no other binding's.
func copiedBy(binding string, o *metav1.PartialObjectMetadata) bool {
	a := o.Annotations
	if a[klutchsync.SourceAnnotation] == "" || a[klutchsync.OwnerAnnotation] != string(v1alpha1.OwnerProvider) || o.Labels[v1alpha1.BoundAnnotation] != "true" {
		return false
	}
	made := false
	for _, entry := range o.ManagedFields {
		name, related := strings.CutSuffix(entry.Manager, "/related")
		if !related {
			continue
		}
		if !manages(name, binding) {
			return false // it shares the copy
		}
		made = true
	}
	return made
}

// manages tells whether a Sync's field manager is that of a binding. The long ones are
// cut and have a hash instead of the rest.
func manages(manager, binding string) bool {
	const short = 60
	name, ok := strings.CutPrefix(manager, v1alpha1.GroupVersion.Group+"/")
	return ok && (name == binding || len(binding) > short && len(name) > short && strings.HasPrefix(name, binding[:short]))
}
