// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// tellObject makes an Event of an object of a bound API. The admission policy of the
// konnector goes by the annotation.
func (k *Konnector) tellObject(resource string, kind schema.GroupVersionKind, n behind.News) {
	version, word := kind.ToAPIVersionAndKind()
	about := &corev1.ObjectReference{APIVersion: version, Kind: word, Namespace: n.Object.Namespace, Name: n.Object.Name, UID: n.UID}
	k.events.AnnotatedEventf(about, map[string]string{v1alpha1.ResourceAnnotation: resource}, n.Type, n.Reason, "%s", n.Message)
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
