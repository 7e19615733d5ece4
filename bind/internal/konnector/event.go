// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// tellGone has each object of a binding be told that the tenant is gone, once: what its status
// says is of the past.
func (k *Konnector) tellGone(ctx context.Context, b *v1alpha1.APIServiceBinding) error {
	crd, err := cluster.ReadCRD(ctx, k.app.Calls, b.Name)
	resource, served := cluster.ServedResource(crd)
	if err != nil || !served {
		return err
	}
	var all []behind.News
	opts := metav1.ListOptions{Limit: eventPage}
	for range eventPages {
		list, err := k.app.Meta.Resource(resource).List(ctx, opts)
		if err != nil {
			return fmt.Errorf("objects of %s: %w", b.Name, err)
		}
		for i := range list.Items {
			if o := &list.Items[i]; slices.Contains(o.Finalizers, v1alpha1.SyncerFinalizer) {
				all = append(all, behind.News{Object: cache.MetaObjectToName(o), UID: o.UID, Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonTenantGone, Message: ofThePast})
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			break
		}
	}
	key := cache.MetaObjectToName(b)
	made := &k.records.get(key).sync
	if made.ledger == nil {
		made.ledger = behind.NewLedger(func() { k.changed(key.String()) })
		made.kind = resource.GroupVersion().WithKind(crd.Spec.Names.Kind)
	}
	made.ledger.Tell(all)
	return nil
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

// ofRights reports whether want of rights on the kind may be why n is told.
func ofRights(n behind.News) bool {
	return n.Reason == string(klutchsync.ReasonDenied) || n.Reason == string(klutchsync.ReasonStatus)
}

// mostReferrers bounds how many objects of one API are looked at for references.
const mostReferrers = 100

// tellReferrers tells the objects of other bound APIs that refer to one whose counterpart
// was lost, as a ServiceBinding does: what they hold is of the one that is gone.
func (k *Konnector) tellReferrers(ctx context.Context, p *pass, lost cache.ObjectName) {
	for _, other := range k.app.lookup(indexSecret, secretOf(p.binding).String()) {
		if other.Name == p.binding.Name {
			continue
		}
		crd, err := cluster.ReadCRD(ctx, k.app.Calls, other.Name)
		resource, served := cluster.ServedResource(crd)
		if err != nil || !served {
			continue
		}
		list, err := k.app.Calls.Resource(resource).Namespace(lost.Namespace).List(ctx, metav1.ListOptions{Limit: mostReferrers})
		if err != nil {
			continue
		}
		for i := range list.Items {
			if u := &list.Items[i]; refersTo(u, p.record.sync.kind.Kind, lost.Name) {
				k.tellObject(other.Name, u.GroupVersionKind(), behind.News{
					Object: cache.MetaObjectToName(u), UID: u.GetUID(), Type: corev1.EventTypeWarning, Reason: behind.ReasonRecreated,
					Message: "What stood for " + p.record.sync.kind.Kind + " " + lost.Name + " in the Control Plane Cluster had vanished and was made anew, empty: " +
						"credentials of the one before are worth nothing there. Make this object anew.",
				})
			}
		}
	}
}

// refersTo reports whether an object has the credentials of the instance of that kind and name, in
// the words of Klutch's data services. A Backup, which refers to it too, is all that is left of it.
func refersTo(u *unstructured.Unstructured, kind, name string) bool {
	ref, _, _ := unstructured.NestedString(u.Object, "spec", "instanceRef")
	service, _, _ := unstructured.NestedString(u.Object, "spec", "serviceInstanceType")
	return u.GetKind() == "ServiceBinding" && ref == name && strings.EqualFold(kind, service+"Instance")
}

func secretOf(b *v1alpha1.APIServiceBinding) cache.ObjectName {
	return cache.NewObjectName(b.Spec.KubeconfigSecretRef.Namespace, b.Spec.KubeconfigSecretRef.Name)
}
