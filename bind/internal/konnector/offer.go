// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// checkOffer passes on what the provider says about its export. The objects of a
// withdrawn one are synced on, as far as the rights go that are left: so they can be
// deleted to the end.
func (p *pass) checkOffer(context.Context) (bool, error) {
	p.passOn(v1alpha1.ConditionProviderInSync, "Its schema and claims stay as they are until the operators of %s have mended that.")
	p.passOn(v1alpha1.ConditionOffered, "What was synced stays, and can be deleted. Ask the operators of %s for it; everything goes on when it is offered to you again.")
	p.passOn(v1alpha1.ConditionLoginCurrent, "Until a login at %s nothing is synced once the credential ends.")
	return true, nil
}

// passOn takes a condition of the export over. One that the provider does not speak of
// holds, and is not shown unless it once did not.
func (p *pass) passOn(conditionType, advice string) {
	said := v1alpha1.FindCondition(p.export.Status.Conditions, conditionType)
	if said == nil || said.Status != metav1.ConditionFalse {
		p.mention(v1alpha1.True(conditionType))
		return
	}
	message := text.Clip(strings.TrimSuffix(cmp.Or(said.Message, said.Reason, "no reason given"), "."), cluster.MaxMessage/2)
	p.verdict.set(v1alpha1.False(conditionType, severity(said), cmp.Or(text.Clip(said.Reason, cluster.MaxMessage/8), reasonUnknown),
		fmt.Sprintf("The provider says: %s. "+advice, message, cmp.Or(text.Clip(p.verdict.provider, cluster.MaxMessage/8), "the platform"))))
}

// offers asks the provider now whether it offers an API still, and answers why not: what
// vanished with the end of an offer does not come back as an empty database.
func (s *session) offers(export string) func(context.Context) (why string, err error) {
	client := s.calls.Resource(cluster.APIServiceExports).Namespace(s.place.Namespace)
	return func(ctx context.Context) (string, error) {
		u, err := client.Get(ctx, export, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "the provider has no APIServiceExport " + export + " for this cluster any more", nil
		}
		var e v1alpha1.APIServiceExport
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e)
		}
		if err != nil {
			return "", fmt.Errorf("read APIServiceExport %s: %w", export, err)
		}
		return withdrawn(&e), nil
	}
}

// withdrawn says why an export is no offer any more; empty if it is one.
func withdrawn(e *v1alpha1.APIServiceExport) (why string) {
	if e.DeletionTimestamp != nil {
		return "the provider is taking the APIServiceExport " + e.Name + " away"
	}
	for _, of := range []string{v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync} {
		c := v1alpha1.FindCondition(e.Status.Conditions, of)
		if c != nil && c.Status == metav1.ConditionFalse && severity(c) == v1alpha1.SeverityError {
			return "the provider says: " + text.Clip(cmp.Or(c.Message, c.Reason, "no reason given"), cluster.MaxMessage/2)
		}
	}
	return ""
}

// reasonUnknown is given where the provider gives none.
const reasonUnknown = "Unknown"

// severity is what a provider may say it is: an API server refuses anything else.
func severity(c *v1alpha1.Condition) v1alpha1.Severity {
	if c.Severity == v1alpha1.SeverityWarning || c.Severity == v1alpha1.SeverityInfo {
		return c.Severity
	}
	return v1alpha1.SeverityError
}

// providerFails tells whether the provider has said that its API is not usable.
func (v *verdict) providerFails() bool {
	return v.found[v1alpha1.ConditionProviderInSync].Severity == v1alpha1.SeverityError
}
