// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// checkOffer passes on what the provider says about its export. The objects of a
// withdrawn one are synced on, as far as the rights go that are left: so they can be
// deleted to the end.
func (p *pass) checkOffer(context.Context) (bool, error) {
	p.passOn(v1alpha1.ConditionProviderInSync, "Its schema and claims stay as they are until the operators of %s have mended that.")
	p.passOn(v1alpha1.ConditionOffered, "What was synced stays, and can be deleted as long as its kind is served. Ask the operators of %s for it; everything goes on when it is offered to you again.")
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
	reason := text.Clip(said.Reason, cluster.MaxMessage/8)
	message := cmp.Or(strings.TrimSuffix(text.Clip(said.Message, cluster.MaxMessage/2), "."), reason, "no reason given")
	p.verdict.set(v1alpha1.False(conditionType, severity(said), cmp.Or(reason, reasonUnknown),
		fmt.Sprintf("The provider says: %s. "+advice, message, cmp.Or(text.Clip(p.verdict.provider, cluster.MaxMessage/8), "the platform"))))
}

// offers asks the provider now whether it offers an API still, and answers why not: what
// vanished with the end of an offer does not come back as an empty database.
func (s *session) offers(export string) func(context.Context) (why string, err error) {
	client := s.Calls.Resource(cluster.APIServiceExports).Namespace(s.place.Namespace)
	return func(ctx context.Context) (string, error) {
		u, err := client.Get(ctx, export, metav1.GetOptions{})
		if fates.Is(err, fates.Absent) {
			return "the provider has no APIServiceExport " + export + " for this cluster any more", nil
		}
		var e v1alpha1.APIServiceExport
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e)
		}
		if err != nil {
			return "", fmt.Errorf("read APIServiceExport %s: %w", export, err)
		}
		return notOffered(&e), nil
	}
}

// notOffered says why an export is no offer any more; empty if it is one.
func notOffered(e *v1alpha1.APIServiceExport) (why string) {
	if e.DeletionTimestamp != nil {
		return "the provider is taking the APIServiceExport " + e.Name + " away"
	}
	for _, of := range []string{v1alpha1.ConditionOffered, v1alpha1.ConditionProviderInSync} {
		c := v1alpha1.FindCondition(e.Status.Conditions, of)
		if c != nil && c.Status == metav1.ConditionFalse && severity(c) == v1alpha1.SeverityError {
			return "the provider says: " + cmp.Or(text.Clip(c.Message, cluster.MaxMessage/2), text.Clip(c.Reason, cluster.MaxMessage/8), "no reason given")
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

// openConnection finds out whether the Secret is of use.
func (p *pass) openConnection(ctx context.Context) (bool, error) {
	ref := p.binding.Spec.KubeconfigSecretRef
	if p.key.Namespace != "" && (p.key.Namespace != v1alpha1.Namespace || ref.Namespace != v1alpha1.Namespace) {
		// Else a user of one namespace could use the credentials of all others, and be
		// the first to bind an API, which is then in all namespaces.
		p.connections.disconnect(p.key)
		return p.block(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid,
			fmt.Sprintf("It is in namespace %s, and spec.kubeconfigSecretRef.namespace is %q. What a binding binds is for all namespaces, so both have to be %s.", p.key.Namespace, ref.Namespace, v1alpha1.Namespace)))
	}
	valid, session := p.connections.connect(ctx, p.key, cache.NewObjectName(ref.Namespace, ref.Name)).state()
	if session == nil {
		return p.block(valid)
	}
	p.session = session
	p.verdict.set(valid)
	now := session.heartbeat.snapshot()
	p.verdict.provider = now.provider
	p.verdict.set(session.exports.beating(p.binding.Name, now.beating))
	return true, nil
}

// findExport looks for what the provider offers under the binding's name. While the
// control plane is away, what was last seen of it goes on to hold.
func (p *pass) findExport(context.Context) (bool, error) {
	now := p.session.heartbeat.snapshot()
	connected := unlessGone(p.binding, p.session.place.Server, now.connected())
	if now.refused.Type != "" {
		return p.block(now.refused)
	}
	if !p.session.exports.informer.HasSynced() || !p.session.namespaces.Asked.HasSynced() || now.admitted == "" {
		if connected.Status == metav1.ConditionTrue {
			connected = unlessGone(p.binding, p.session.place.Server, notListed(now))
		}
		p.verdict.set(connected)
		return false, nil
	}
	export, err := p.session.exports.get(p.binding.Name)
	if err != nil {
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportInvalid, "The APIServiceExport cannot be read: "+cluster.Explain(err)+"."))
	}
	if export == nil && now.away.Type == "" {
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportNotFound,
			fmt.Sprintf("The provider has no APIServiceExport %[1]s for this cluster. What was synced stays as it is. If the platform offers it still, run kubectl bind repair; kubectl bind unbind %[1]s gives the binding up.", p.binding.Name)))
	}
	if connected.Reason == v1alpha1.ReasonStepFailed {
		connected.Severity = v1alpha1.SeverityWarning // what was listed before goes on to hold
	}
	p.verdict.set(connected)
	p.export = export
	return export != nil, nil
}

func notListed(now snapshot) v1alpha1.Condition {
	if now.unreadable.Type != "" {
		return now.unreadable
	}
	return pending(v1alpha1.ConditionConnected, "Connecting to the Control Plane Cluster.")
}

// unlessGone is c, unless it is known already that the platform at server has removed the tenant: that
// it is not reached, or does not take the token, is no news then.
func unlessGone(b *v1alpha1.APIServiceBinding, server string, c v1alpha1.Condition) v1alpha1.Condition {
	gone, before := tenantGone(server), v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionConnected)
	follows := slices.Contains([]string{v1alpha1.ReasonControlPlaneUnreachable, v1alpha1.ReasonTokenRevoked, v1alpha1.ReasonControlPlaneUnauthorized, v1alpha1.ReasonStepFailed}, c.Reason)
	if follows && before != nil && before.Reason == gone.Reason && before.Message == gone.Message {
		return gone
	}
	return c
}
