// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// tellObject makes an Event of an object of a bound API. The admission policy of the
// konnector goes by the annotation.
func (k *Konnector) tellObject(resource string, kind schema.GroupVersionKind, n behind.News) {
	version, word := kind.ToAPIVersionAndKind()
	about := &corev1.ObjectReference{APIVersion: version, Kind: word, Namespace: n.Object.Namespace, Name: n.Object.Name, UID: n.UID}
	k.events.AnnotatedEventf(about, map[string]string{v1alpha1.ResourceAnnotation: resource}, n.Type, n.Reason, "%s", n.Message)
}

const (
	eventPage  = 500
	eventPages = 20
)

// An inventory is a look at the objects of a binding, metadata only.
type inventory struct {
	kind    schema.GroupVersionKind
	objects []metav1.PartialObjectMetadata
	pages   int // that the look took
	cut     bool
}

// inventory lists the objects of a binding; their kind is empty where it is not served.
func (k *Konnector) inventory(ctx context.Context, binding string) (inventory, error) {
	crd, err := cluster.ReadCRD(ctx, k.app.Calls, binding)
	resource, served := cluster.ServedResource(crd)
	if err != nil || !served {
		return inventory{}, err
	}
	all := inventory{kind: resource.GroupVersion().WithKind(crd.Spec.Names.Kind)}
	opts := metav1.ListOptions{Limit: eventPage}
	for range eventPages {
		list, err := k.app.Meta.Resource(resource).List(ctx, opts)
		if err != nil {
			return inventory{}, fmt.Errorf("objects of %s: %w", binding, err)
		}
		all.objects, all.pages = append(all.objects, list.Items...), all.pages+1
		if opts.Continue = list.Continue; opts.Continue == "" {
			break
		}
	}
	all.cut = opts.Continue != ""
	return all, nil
}

// tellGone has each object of a binding be told that the tenant is gone, once: what its status
// says is of the past.
func (k *Konnector) tellGone(ctx context.Context, b *v1alpha1.APIServiceBinding) error {
	found, err := k.inventory(ctx, b.Name)
	if err != nil || found.kind.Empty() {
		return err
	}
	var all []behind.News
	for i := range found.objects {
		if o := &found.objects[i]; slices.Contains(o.Finalizers, v1alpha1.SyncerFinalizer) {
			all = append(all, behind.News{Object: cache.MetaObjectToName(o), UID: o.UID, Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonTenantGone, Message: ofThePast})
		}
	}
	k.ledger(cache.MetaObjectToName(b), found.kind).Tell(all)
	return nil
}

// ledger is that of a binding, also where none of its Syncs ever ran.
func (k *Konnector) ledger(binding cache.ObjectName, kind schema.GroupVersionKind) *behind.Ledger {
	made := &k.records.get(binding).sync
	if made.ledger == nil {
		made.ledger, made.kind = behind.NewLedger(func() { k.bindings.Look(binding) }), kind
	}
	return made.ledger
}

// A stop says since when no Sync of a binding runs.
type stop struct {
	since time.Time // zero while the Sync runs
	next  time.Time // the next look at the objects
	looks series    // that have failed
}

// tellStopped has the objects be told of what keeps their Sync from running that have changed
// since it does: there is no Sync that would. What fails is looked at again, ever more rarely.
func (k *Konnector) tellStopped(ctx context.Context, p *pass) {
	c, is := p.verdict.stopper()
	if !is {
		return
	}
	s, now := &p.record.stop, time.Now()
	if before := v1alpha1.FindCondition(p.binding.Status.Conditions, c.Type); s.since.IsZero() {
		s.since = now.Truncate(time.Second) // as API servers keep time
		if before != nil && before.Status == metav1.ConditionFalse && !isPending(*before) {
			s.since = before.LastTransitionTime.Time // before a restart
		}
	}
	if left := s.next.Sub(now); left > 0 {
		p.lookAgain(left)
		return
	}
	found, err := k.inventory(ctx, p.binding.Name)
	s.looks.count(err)
	every := max(retryEvery*time.Duration(max(found.pages, 1)), min(now.Sub(s.since)/4, stoppedRarely), time.Until(s.looks.next))
	s.next = now.Add(every)
	p.lookAgain(every)
	if err != nil {
		logr.FromContextOrDiscard(ctx).V(4).Info("objects of a binding without a Sync cannot be listed", "reason", cluster.Explain(err))
		return
	}
	if found.kind.Empty() {
		return // there are none
	}
	k.ledger(p.key, found.kind).Stopped(found.reports(c, p.binding.Name, s.since), found.cut, now)
}

// reports say of the objects that have changed since then that c keeps them from being in step.
func (f inventory) reports(c v1alpha1.Condition, binding string, since time.Time) []klutchsync.Report {
	all := make([]klutchsync.Report, 0, len(f.objects))
	for i := range f.objects {
		r := klutchsync.Report{Source: cache.MetaObjectToName(&f.objects[i]), UID: f.objects[i].UID}
		if changedSince(&f.objects[i], since) {
			r.Reason, r.Message = klutchsync.Reason(c.Reason), "It waits for the APIServiceBinding "+binding+": "+c.Message
		}
		all = append(all, r)
	}
	return all
}

// changedSince reports whether a source was created, edited or deleted since then. A deletion waits
// whenever it was: the finalizer says so.
func changedSince(o *metav1.PartialObjectMetadata, since time.Time) bool {
	_, copied := klutchsync.OriginOf(o)
	taken := slices.Contains(o.Finalizers, v1alpha1.SyncerFinalizer)
	edited := func(e metav1.ManagedFieldsEntry) bool {
		return e.Subresource == "" && e.Time != nil && !e.Time.Time.Before(since) && e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), `"f:spec"`)
	}
	switch {
	case copied:
		return false
	case !taken:
		return o.DeletionTimestamp == nil && !o.CreationTimestamp.Time.Before(since)
	}
	return o.DeletionTimestamp != nil || slices.ContainsFunc(o.ManagedFields, edited)
}

const ofThePast = "The platform has removed this cluster's tenant, and what stood for this object may be gone with it: its status says how it was last. The binding tells what to do."

// withoutRights is the news of an object where the konnector lacks rights on its kind: of which
// the admission policy lets only one Event pass.
func withoutRights(n behind.News) behind.News {
	if n.Type == corev1.EventTypeWarning && n.Reason != v1alpha1.ReasonTenantGone {
		n.Reason, n.Message = string(klutchsync.ReasonDenied), behind.NoRights
	}
	return n
}

// withNamespace is the news of an object, with the reason if its namespace has no service namespace.
func withNamespace(s *session, n behind.News) behind.News {
	if n.Reason == string(klutchsync.ReasonMissing) && s != nil {
		n.Message = cmp.Or(s.namespaces.Why(n.Object.Namespace), n.Message)
	}
	return n
}

// ofRights reports whether want of rights on the kind may be why n is told.
func ofRights(n behind.News) bool {
	return n.Reason == string(klutchsync.ReasonDenied) || n.Reason == string(klutchsync.ReasonStatus)
}

// referrerPage is how many objects of one API are read at once to look for references.
const referrerPage = 100

// tellReferrers writes Events on objects of other bound APIs, such as ServiceBindings, that refer to an object of the
// namespace whose counterpart was lost: their credentials are of the lost instance. Lost has the reasons, by object name.
func (k *Konnector) tellReferrers(ctx context.Context, p *pass, namespace string, lost map[string]string) error {
	kind := p.record.sync.kind.Kind
	for _, other := range k.app.lookup(indexSecret, secretOf(p.binding).String()) {
		if other.Name == p.binding.Name {
			continue
		}
		crd, err := cluster.ReadCRD(ctx, k.app.Calls, other.Name)
		resource, served := cluster.ServedResource(crd)
		opts := metav1.ListOptions{Limit: referrerPage}
		for more := err == nil && served; more; more = err == nil && opts.Continue != "" {
			var list *unstructured.UnstructuredList
			if list, err = k.app.Calls.Resource(resource).Namespace(namespace).List(ctx, opts); err != nil {
				break
			}
			opts.Continue = list.GetContinue()
			for i := range list.Items {
				u := &list.Items[i]
				name := referredTo(u, kind)
				if why := lost[name]; why != "" {
					k.tellObject(other.Name, u.GroupVersionKind(), behind.News{
						Object: cache.MetaObjectToName(u), UID: u.GetUID(), Type: corev1.EventTypeWarning, Reason: why, Message: worthless(kind, name, why),
					})
				}
			}
		}
		if err != nil {
			return fmt.Errorf("%s that refer to lost objects in %s: %w", other.Name, namespace, err)
		}
	}
	return nil
}

// worthless says that credentials are those of an instance that is gone.
func worthless(kind, name, why string) string {
	if why == behind.ReasonRecreated {
		return "What stood for " + kind + " " + name + " in the Control Plane Cluster had vanished and was made anew, empty: " +
			"credentials of the one before are worth nothing there. Make this object anew."
	}
	return "What stood for " + kind + " " + name + " in the Control Plane Cluster has vanished, and is not made anew: the credentials of it are worth nothing. Its Events say what to do; make this object anew after that."
}

// referredTo is the name of the instance of that kind whose credentials an object has, in the fields of
// Klutch's data services; empty if it has none. A Backup is left out, although it refers to an instance: it is still good
// when the instance is lost.
func referredTo(u *unstructured.Unstructured, kind string) string {
	service, _, _ := unstructured.NestedString(u.Object, "spec", "serviceInstanceType")
	if u.GetKind() != "ServiceBinding" || !strings.EqualFold(kind, service+"Instance") {
		return ""
	}
	name, _, _ := unstructured.NestedString(u.Object, "spec", "instanceRef")
	return name
}

func secretOf(b *v1alpha1.APIServiceBinding) cache.ObjectName {
	return cache.NewObjectName(b.Spec.KubeconfigSecretRef.Namespace, b.Spec.KubeconfigSecretRef.Name)
}
