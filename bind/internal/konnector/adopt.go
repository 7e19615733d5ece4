// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/adoption"
	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// reasonAdopted is the reason of the Event of a claim that was made for an object of the
// provider.
const reasonAdopted = "Adopted"

// terms are what was agreed to about objects that the provider makes.
func terms(export *v1alpha1.APIServiceExport, b *v1alpha1.APIServiceBinding) adoption.Terms {
	return adoption.Terms{Offered: adoption.Offered(export), Limit: int(b.Spec.MaxAdoptedObjects)}
}

// adopt makes claims of what the provider has made, and says what of that is none.
func (k *Konnector) adopt(ctx context.Context, p *pass) {
	made := p.record.sync
	if made.fingerprint == "" || p.export.Spec.Scope != v1alpha1.NamespacedScope {
		return
	}
	resource := made.kind.GroupVersion().WithResource(p.export.Spec.Names.Plural)
	adopted := made.provided.Look(ctx, terms(p.export, p.binding), adoption.Clients{
		Claims: k.app.Calls.Resource(resource), Counted: k.app.Meta.Resource(resource), Objects: p.session.Calls.Resource(resource),
	})
	for _, u := range adopted {
		audit.Record(ctx, "object of the provider adopted", "resource", p.binding.Name, "object", cache.MetaObjectToName(u).String())
		k.tellObject(p.binding.Name, made.kind, behind.News{
			Object: cache.MetaObjectToName(u), UID: u.GetUID(), Type: corev1.EventTypeNormal, Reason: reasonAdopted,
			Message: "The provider has made this object in the Control Plane Cluster, and this cluster has agreed to that. Its deletion here leaves it there.",
		})
	}
	c, again := made.provided.Condition(p.binding.Name, terms(p.export, p.binding), time.Now())
	p.mention(c)
	p.lookAgain(again)
}
