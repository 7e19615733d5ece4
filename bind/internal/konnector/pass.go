// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	objectstatus "github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// reconcile brings about what one binding says, as far as that goes, and says in
// its status how far that was.
func (a *Konnector) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	b, err := a.app.binding(key)
	if err != nil {
		return 0, err
	}
	if b == nil || b.DeletionTimestamp != nil {
		a.forget(key)
		return 0, nil
	}
	v := newVerdict()
	again, err := a.pass(ctx, b, v)
	again = a.recordOf(key).judgeWait(v, again)
	err = errors.Join(err, a.write(ctx, b, v))
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return time.Second, nil // another writer was faster
	}
	return again, err
}

// unknownGrace is how long conditions stay as they were that nothing is known of yet: a
// restart is no news, a provider that never ends its answer is.
const unknownGrace = time.Minute

// judgeWait tells v whether what it waits for is overdue, and says when to look again.
func (r *bindingRecord) judgeWait(v *verdict, again time.Duration) time.Duration {
	if !v.waits() {
		r.waitsSince = time.Time{}
		return again
	}
	if r.waitsSince.IsZero() {
		r.waitsSince = time.Now()
	}
	left := unknownGrace - time.Since(r.waitsSince)
	if v.overdue = left <= 0; v.overdue || again > 0 && again < left {
		return again
	}
	return left
}

// A pass is one look at a binding. Each of its steps is one thing that has to be true
// before the next can be, and reports whether it is.
type pass struct {
	*Konnector
	record   *bindingRecord
	key      cache.ObjectName
	binding  *v1alpha1.APIServiceBinding
	verdict  *verdict
	session  *session
	export   *v1alpha1.APIServiceExport
	grant    *permission.Grant // nil if the konnector has the rights of the claims everywhere, or needs none
	again    time.Duration     // until the next look at what no watch shows
	disabled bool              // what is there must not be synced
}

func (a *Konnector) pass(ctx context.Context, b *v1alpha1.APIServiceBinding, v *verdict) (time.Duration, error) {
	key := cache.MetaObjectToName(b)
	p := &pass{Konnector: a, record: a.recordOf(key), key: key, binding: b, verdict: v}
	schema := &installation{pass: p}
	for _, step := range []func(context.Context) (bool, error){
		p.openConnection, p.findExport, p.checkOffer, schema.readSchema, p.checkRights, schema.installSchema, p.sync,
	} {
		ok, err := step(ctx)
		if p.disabled {
			a.hold(p.key)
		}
		if err != nil || !ok {
			return p.again, err
		}
	}
	return p.again, nil
}

// block records why the pass ends here and holds the objects: what is there is
// neither changed nor deleted.
func (p *pass) block(c v1alpha1.Condition) (bool, error) {
	p.verdict.set(c)
	p.disabled = true
	return false, nil
}

// openConnection finds out whether the Secret is of use.
func (p *pass) openConnection(ctx context.Context) (bool, error) {
	ref := p.binding.Spec.KubeconfigSecretRef
	if p.key.Namespace != "" && (p.key.Namespace != v1alpha1.Namespace || ref.Namespace != v1alpha1.Namespace) {
		// Else a user of one namespace could use the credentials of all others, and be
		// the first to bind an API, which is then in all namespaces.
		p.disconnect(p.key)
		return p.block(failed(v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid,
			fmt.Sprintf("It is in namespace %s, and spec.kubeconfigSecretRef.namespace is %q. What a binding binds is for all namespaces, so both have to be %s.", p.key.Namespace, ref.Namespace, v1alpha1.Namespace)))
	}
	valid, session := p.connect(ctx, p.key, cache.NewObjectName(ref.Namespace, ref.Name)).state()
	if session == nil {
		return p.block(valid)
	}
	p.session = session
	p.verdict.set(valid)
	now := session.snapshot()
	p.verdict.provider = now.provider
	p.verdict.set(now.beating)
	return true, nil
}

// findExport looks for what the provider offers under the binding's name. While the
// control plane is away, what was last seen of it goes on to hold.
func (p *pass) findExport(context.Context) (bool, error) {
	now := p.session.snapshot()
	connected := now.connected()
	if now.refused.Type != "" {
		return p.block(now.refused)
	}
	if !p.session.exports.HasSynced() || !p.session.asked.HasSynced() || !now.admitted {
		if connected.Status == metav1.ConditionTrue {
			connected = p.notListed(now)
		}
		p.verdict.set(connected)
		return false, nil
	}
	export, err := p.session.export(p.binding.Name)
	if err != nil {
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportInvalid, "The APIServiceExport cannot be read: "+cluster.Explain(err)+"."))
	}
	if export == nil && now.away.Type == "" {
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportNotFound,
			fmt.Sprintf("The provider has no APIServiceExport %s for this cluster. What was synced stays as it is. %s", p.binding.Name, repair)))
	}
	p.verdict.set(connected)
	p.export = export
	return export != nil, nil
}

func (p *pass) notListed(now snapshot) v1alpha1.Condition {
	if now.unreadable.Type != "" {
		return now.unreadable
	}
	return pending(v1alpha1.ConditionConnected, "Connecting to the Control Plane Cluster.")
}

// sync has the objects kept in step, and says whether they are.
func (p *pass) sync(ctx context.Context) (bool, error) {
	name := p.key.String()
	selected, err := p.settleClaims(ctx)
	if err != nil {
		return false, err
	}
	if p.export.Spec.Scope == v1alpha1.ClusterScope && p.session.snapshot().tenant == "" {
		p.again = retryEvery
		p.verdict.set(pending(v1alpha1.ConditionInformersSynced, "Waits to read the tenant namespace."))
		return false, nil
	}
	r := recipe{export: p.export, related: selected, grant: p.grant, former: types.UID(p.binding.Annotations[v1alpha1.RecoverAnnotation])}
	if err = p.put(p.key, p.session, r); err != nil { //nolint:contextcheck // a Sync has the context of its Set
		return p.block(failed(v1alpha1.ConditionInformersSynced, v1alpha1.ReasonInvalidClaim, cluster.Explain(err)+"."))
	}
	state, ok := p.set.State(name)
	if ok && state.Err != nil {
		p.again = rightsEvery
	}
	p.verdict.set(informersSynced(state, p.verdict.providerFails()))
	p.relatedWait(state.Unreadable)
	p.deletions(state)
	p.mention(p.session.namespaces.ready())
	return true, nil
}

// mention sets a condition, unless all is well and always was.
func (p *pass) mention(c v1alpha1.Condition) {
	if c.Message != "" || v1alpha1.FindCondition(p.binding.Status.Conditions, c.Type) != nil {
		p.verdict.set(c)
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

// write writes the status if it is not what it was, and tells of what has changed.
func (a *Konnector) write(ctx context.Context, b *v1alpha1.APIServiceBinding, v *verdict) error {
	before := b.Status.Conditions
	after := b.DeepCopy()
	v.apply(&after.Status, b.Generation)
	client := a.app.calls.Resource(cluster.APIServiceBindings).Namespace(b.Namespace)
	err := objectstatus.Write(ctx, client, b, func(o *v1alpha1.APIServiceBinding) { v.apply(&o.Status, o.Generation) })
	if err == nil {
		a.tell(b, before, after.Status.Conditions)
	}
	return err
}

// tell makes Events of conditions that have turned.
func (a *Konnector) tell(b *v1alpha1.APIServiceBinding, before, after []v1alpha1.Condition) {
	for _, c := range after {
		was := v1alpha1.FindCondition(before, c.Type)
		if was != nil && was.Status == c.Status && was.Reason == c.Reason {
			continue
		}
		switch {
		case c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue:
			a.events.Event(b, "Normal", v1alpha1.ConditionReady, "Objects of "+b.Name+" are kept in step.")
		case c.Type != v1alpha1.ConditionReady && c.Severity == v1alpha1.SeverityError:
			a.events.Event(b, "Warning", c.Reason, c.Message)
		}
	}
}
