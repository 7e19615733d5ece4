// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/adoption"
	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	objectstatus "github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Konnector is one Run of a bind.Konnector.
type Konnector struct {
	shared

	connections *connections
	syncs       *syncs
	records     records
	events      record.EventRecorder
}

// New does no I/O.
func New(config *rest.Config, opts Options) (*Konnector, error) {
	app, err := newAppCluster(config)
	if err != nil {
		return nil, err
	}
	source, err := klutchsync.NewCluster(config)
	if err != nil {
		return nil, err
	}
	k := &Konnector{shared: shared{app: app, opts: opts}, records: records{of: map[cache.ObjectName]*bindingRecord{}}}
	k.connections = newConnections(&k.shared)
	k.bindings = controller.New("binding", k.paced, controller.Options{Workers: passWorkers, Meanwhile: k.meanwhile})
	k.syncs = newSyncs(source, opts, k.changed)
	k.syncs.news = k.bindings.Look
	return k, k.watch()
}

func (k *Konnector) watch() error {
	if _, err := k.bindings.Watch(k.app.bindings, controller.Self); err != nil {
		return err
	}
	_, err := k.bindings.Watch(k.app.crds, func(o metav1.Object) []cache.ObjectName { return k.app.lookup(indexName, o.GetName()) })
	return err
}

// Run works until ctx is done and all that it started has ended.
func (k *Konnector) Run(ctx context.Context) error {
	defer k.app.Close()
	defer k.bindings.ShutDown() // which may never run
	if err := k.app.prepare(ctx); err != nil {
		return nil // it only ends with ctx
	}
	k.log = logr.FromContextOrDiscard(ctx)
	k.log.Info("konnector started", "version", k.opts.Version)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.app.kube.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	k.events = broadcaster.NewRecorder(scheme, corev1.EventSource{Component: behind.EventSource})
	defer k.connections.wg.Wait()
	return group.Run(ctx, group.Informer(k.app.bindings), group.Informer(k.app.crds), group.Informer(k.app.namespaces), k.syncs.Run, k.bindings.Run)
}

// changed is called with the name of a Sync whose state may have changed.
func (k *Konnector) changed(name string) {
	if key, err := cache.ParseObjectName(name); err == nil {
		k.bindings.Add(key)
	}
}

// forget ends what a binding that is gone had running. Nothing is deleted: neither
// the CRD, nor objects on either side.
func (k *Konnector) forget(binding cache.ObjectName) {
	k.syncs.end(binding, &k.records.get(binding).sync)
	k.connections.disconnect(binding)
	k.records.forget(binding)
	k.syncs.deletions.forget(binding)
}

// paced is reconcile, not as often as a platform thinks of something, and not while
// others of the same connection hold as many workers as they may.
func (k *Konnector) paced(ctx context.Context, binding cache.ObjectName) (time.Duration, error) {
	if c := k.connections.of(binding); c != nil {
		if !c.enter() {
			return pacePause, controller.ErrBusy
		}
		defer c.leave()
	}
	if !k.records.get(binding).pace.TryAccept() {
		return pacePause, controller.ErrBusy
	}
	return k.reconcile(ctx, binding)
}

// reconcile brings about what one binding says, as far as that goes, and says in
// its status how far that was.
func (k *Konnector) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	b, err := k.app.binding(key)
	if err != nil {
		return 0, err
	}
	if b == nil || b.DeletionTimestamp != nil {
		k.forget(key)
		return 0, nil
	}
	v, record := newVerdict(), k.records.get(key)
	again, err := k.pass(record.since(ctx), b, v)
	record.note(err)
	again = record.judgeWait(v, again)
	unwritten := k.write(ctx, b, v)
	record.written = unwritten == nil
	return again, errors.Join(err, unwritten)
}

// meanwhile does what a binding has to do in the pause after a pass that failed: the Events of its objects
// do not wait for that to be mended. A status that was refused waits, and one of a spec that has changed does for
// the next pass, which is due then.
func (k *Konnector) meanwhile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	b, err := k.app.binding(key)
	p := k.records.get(key).last
	if err != nil || b == nil || b.DeletionTimestamp != nil || p == nil {
		return 0, err
	}
	judged := p.binding.Generation == b.Generation
	p.binding, p.again = b, 0
	k.objects(ctx, p)
	if p.record.written && judged {
		err = k.write(ctx, b, p.verdict)
	}
	return p.again, err
}

func (k *Konnector) pass(ctx context.Context, b *v1alpha1.APIServiceBinding, v *verdict) (time.Duration, error) {
	key := cache.MetaObjectToName(b)
	p := &pass{
		app: k.app, connections: k.connections, syncs: k.syncs, schemaInterval: k.opts.SchemaInterval,
		crdOwnerReferences: k.opts.CRDOwnerReferences,
		record:             k.records.get(key), key: key, binding: b, verdict: v,
	}
	p.record.last = p
	schema := &installation{pass: p}
	for _, s := range []step{
		{v1alpha1.ConditionSecretValid, "The kubeconfig Secret cannot be looked at", p.openConnection},
		{v1alpha1.ConditionConnected, "The APIServiceExport cannot be looked at", p.findExport},
		{v1alpha1.ConditionConnected, "The APIServiceExport cannot be looked at", p.checkOffer},
		{v1alpha1.ConditionSchemaInSync, "The CRD of the API cannot be looked at", schema.readSchema},
		{v1alpha1.ConditionInformersSynced, "The konnector's own rights cannot be looked at", p.checkRights},
		{v1alpha1.ConditionSchemaInSync, "The CRD of the API cannot be installed", schema.installSchema},
		{v1alpha1.ConditionInformersSynced, "What the binding says cannot be carried out", p.sync},
	} {
		ok, err := s.do(ctx)
		if p.disabled {
			k.syncs.end(p.key, &p.record.sync)
		}
		if err != nil || !ok {
			p.stumble(ctx, s, err)
			k.objects(ctx, p)
			return p.again, err
		}
	}
	k.objects(ctx, p)
	k.adopt(ctx, p)
	return p.again, nil
}

// objects says how many objects are not in step, and makes their Events.
func (k *Konnector) objects(ctx context.Context, p *pass) {
	if p.record.sync.fingerprint != "" {
		p.record.stop = stop{}
	} else {
		k.tellStopped(ctx, p)
	}
	l := p.record.sync.ledger
	if l == nil {
		return
	}
	now := time.Now()
	news, again := l.News(now)
	if p.record.missingRights == "" && p.export != nil && slices.ContainsFunc(news, ofRights) {
		p.review(ctx)
	}
	for _, n := range news {
		n = withNamespace(p.session, n)
		if p.record.missingRights != "" {
			n = withoutRights(n)
		}
		if n.Reason != "" {
			k.tellObject(p.binding.Name, p.record.sync.kind, n)
		}
		p.record.lost.add(n)
	}
	c, later := l.Condition(p.binding.Name, now)
	p.verdict.set(k.tellLost(ctx, p, c))
	p.lookAgain(again)
	p.lookAgain(later)
}

// tellLost tells what refers to objects that were lost, and adds to c why it cannot. What failed is tried again
// after a growing pause, and nothing waits for that. Of more namespaces than it asks for at once, chance takes some.
func (k *Konnector) tellLost(ctx context.Context, p *pass, c v1alpha1.Condition) v1alpha1.Condition {
	lost := &p.record.lost
	var refused fates.Refusals
	var err error
	failed, again := 0, time.Until(lost.next) <= 0
	everywhere := new(fates.Refusals).Keep(lost.err) != nil
	for namespace, news := range lost.news {
		if (news.failed || everywhere) && !again {
			continue
		}
		untold := k.tellReferrers(ctx, p, namespace, news.why)
		if untold == nil {
			delete(lost.news, namespace)
			continue
		}
		news.failed = true
		if err = refused.Keep(untold); err != nil || failed+1 == fates.Few {
			break
		}
		failed++
	}
	if again || err != nil {
		lost.count(cmp.Or(err, refused.Err()))
	}
	p.lookAgain(time.Until(lost.next))
	if !lost.isTold(ctx) {
		return c
	}
	if c.Status == metav1.ConditionTrue {
		c = v1alpha1.False(c.Type, v1alpha1.SeverityInfo, v1alpha1.ReasonStepFailed, "")
	}
	c.Message = strings.TrimSpace(c.Message + " What refers to objects that were lost is not told of it: " + cluster.Explain(lost.err) + ". It is tried again by itself.")
	return c
}

// write writes the status if it is not what it was, and tells of what has changed.
func (k *Konnector) write(ctx context.Context, b *v1alpha1.APIServiceBinding, v *verdict) error {
	before := b.Status.Conditions
	after := b.DeepCopy()
	v.apply(&after.Status, b.Generation)
	client := k.app.Calls.Resource(cluster.APIServiceBindings).Namespace(b.Namespace)
	err := objectstatus.Write(ctx, client, b, func(o *v1alpha1.APIServiceBinding) { v.apply(&o.Status, o.Generation) })
	if err != nil {
		return err
	}
	k.tell(b, before, after.Status.Conditions)
	return k.followGone(ctx, b, cluster.IsGone(before), cluster.IsGone(after.Status.Conditions))
}

// tellGoneEvery is how often the objects of a binding are told at most that the tenant is gone:
// a platform may have it come and go.
const tellGoneEvery = time.Hour

// followGone has the objects be told once when a tenant has gone, again where that failed.
func (k *Konnector) followGone(ctx context.Context, b *v1alpha1.APIServiceBinding, before, now bool) error {
	r := k.records.get(cache.MetaObjectToName(b))
	r.goneUntold = now && (r.goneUntold || !before && time.Since(r.toldGone) >= tellGoneEvery)
	if !r.goneUntold {
		return nil
	}
	if err := k.tellGone(ctx, b); err != nil {
		return err
	}
	r.goneUntold, r.toldGone = false, time.Now()
	return nil
}

// tell makes Events of conditions that have turned.
func (k *Konnector) tell(b *v1alpha1.APIServiceBinding, before, after []v1alpha1.Condition) {
	for _, c := range after {
		was := v1alpha1.FindCondition(before, c.Type)
		if was != nil && was.Status == c.Status && (was.Reason == c.Reason || c.Status == metav1.ConditionTrue) {
			continue // that Ready has something to say is no news of Ready
		}
		switch {
		case c.Type == v1alpha1.ConditionReady && c.Status == metav1.ConditionTrue:
			k.events.Event(b, "Normal", v1alpha1.ConditionReady, "Objects of "+b.Name+" are kept in step.")
		case c.Type != v1alpha1.ConditionReady && c.Severity == v1alpha1.SeverityError:
			k.events.Event(b, "Warning", c.Reason, c.Message)
		}
	}
}

// A bound is what the konnector knows of one APIServiceBinding; see the Bound of package
// bind.
type bound struct {
	Name      string
	Ready     bool
	Up        bool
	TokenEnds time.Time
	Heartbeat time.Time
	Sync      klutchsync.Status
}

// Census describes all bindings, without I/O, once they have been listed.
func (k *Konnector) Census() (all []bound, ok bool) {
	if !k.app.bindings.HasSynced() {
		return nil, false
	}
	for _, obj := range k.app.bindings.GetStore().List() {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			all = append(all, k.boundBy(u))
		}
	}
	return all, true
}

func (k *Konnector) boundBy(u *unstructured.Unstructured) bound {
	key, found := cache.MetaObjectToName(u), bound{Name: u.GetName()}
	if b, err := cluster.Decode[v1alpha1.APIServiceBinding](u); err == nil {
		found.Ready = v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionReady)
	}
	found.Sync, _ = k.syncs.State(key.String())
	c := k.connections.of(key)
	if c == nil {
		return found
	}
	if _, s := c.state(); s != nil {
		now := s.heartbeat.snapshot()
		found.Up = now.looked != "" && now.away.Type == ""
		found.TokenEnds = cluster.ReadToken(s.token.Get()).Ends()
		if beaten := s.heartbeat.beaten.Load(); beaten != nil {
			found.Heartbeat = *beaten
		}
	}
	return found
}

// reasonAdopted is the reason of the Event of a claim that was made for an object of the
// provider.
const reasonAdopted = "Adopted"

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
