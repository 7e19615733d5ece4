// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// legacyCluster returns Tenants of a cluster in which Klutch's backend has made tenants: the namespaces ada-1 to ada-3 and eve-1.
func legacyCluster(t *testing.T, caps Limits) (*Tenants, *fake.Clientset) {
	t.Helper()
	kube, meta, dyn := fake.NewClientset(), metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	for _, name := range []string{"ada-1", "ada-2", "ada-3", "eve-1"} {
		owner := metav1.OwnerReference{Kind: "Namespace", UID: types.UID(name)}
		for _, o := range []runtime.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: owner.UID, Annotations: map[string]string{v1alpha1.IdentityAnnotation: strings.Replace(name, "-", "#", 1)}}},
			&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: legacyRole(name), OwnerReferences: []metav1.OwnerReference{owner}}},
		} {
			if err := kube.Tracker().Add(o); err != nil {
				t.Fatal(err)
			}
		}
	}
	dyn.PrependReactor("get", ClusterBindingResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": v1alpha1.KubeconfigSecretName}}}}, nil
	})
	meta.PrependReactor("get", ClusterBindingResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{v1alpha1.TenantFinalizer}}}, nil
	})
	meta.PrependReactor("list", ExportResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.List{}, nil
	})
	meta.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		all, err := kube.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		found := &metav1.List{}
		for _, ns := range all.Items {
			found.Items = append(found.Items, runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: ns.ObjectMeta}})
		}
		return true, found, err
	})
	kube.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "backend"}}}, nil
	})
	all := func(string) bool { return true }
	return New(Clients{Kube: kube, Dyn: dyn, Meta: meta}, &Options{NamespacePrefix: "cluster", AdoptIssuer: "https://issuer", Adopt: all, Caps: caps}), kube
}

// counting calls then after each list.
type counting struct {
	metadata.Interface
	then func()
}

func (c counting) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return countingGetter{c.Interface.Resource(gvr), c.then}
}

type countingGetter struct {
	metadata.Getter
	then func()
}

func (g countingGetter) List(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := g.Getter.List(ctx, opts)
	g.then()
	return list, err
}

// TestP10AdoptionsAtOnceStayWithinCaps: each counts the tenants before another one has written that it is one. Its namespace
// is left as it was, and an adoption that was cut off goes on.
func TestP10AdoptionsAtOnceStayWithinCaps(t *testing.T) {
	for name, test := range map[string]struct {
		caps        Limits
		first, next string // next is adopted when first has counted
		fits        bool
	}{
		"too many of an identity": {Limits{Tenants: -1, PerIdentity: 1}, "ada-1", "ada-2", false},
		"too many in all":         {Limits{Tenants: 1, PerIdentity: -1}, "ada-1", "eve-1", false},
		"of two identities":       {Limits{Tenants: 2, PerIdentity: 1}, "ada-1", "eve-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			tenants, kube := legacyCluster(t, test.caps)
			adopt := func(namespace string) error {
				subject, cluster, _ := strings.Cut(namespace, "-")
				_, err := tenants.adopt(t.Context(), &Record{Identity: auth.Identity{Issuer: "https://issuer", Subject: subject}, Cluster: cluster}, namespace)
				return err
			}
			begun := false
			tenants.Meta = counting{tenants.Meta, func() {
				if begun {
					return
				}
				begun = true
				if err := adopt(test.next); err != nil {
					t.Errorf("the faster one: %v", err)
				}
			}}
			if err := adopt(test.first); errors.Is(err, ErrCapped) == test.fits || test.fits && err != nil {
				t.Errorf("the slower one: %v", err)
			}
			ns, err := kube.CoreV1().Namespaces().Get(t.Context(), test.first, metav1.GetOptions{})
			if _, ours := holderOf(ns); err != nil || ours != test.fits || !ours && len(ns.Labels) > 0 {
				t.Errorf("afterwards: %v, %v, %v", ns.Labels, ns.Annotations, err)
			}
		})
	}
	tenants, kube := legacyCluster(t, Limits{Tenants: 1, PerIdentity: 1})
	ns, err := kube.CoreV1().Namespaces().Get(t.Context(), "ada-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ada := Record{Identity: auth.Identity{Issuer: "https://issuer", Subject: "ada"}, Cluster: "1"}
	ns.Labels = labels.Merge(ada.holder().labels(), map[string]string{v1alpha1.TenantLabel: "ada-1"})
	if _, err := kube.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	other := ada
	other.Cluster = "2"
	if _, err := tenants.adopt(t.Context(), &other, "ada-2"); !errors.Is(err, ErrCapped) {
		t.Errorf("beside one that was cut off: %v", err)
	}
	if _, err := tenants.adopt(t.Context(), &ada, "ada-1"); err != nil {
		t.Errorf("one that was cut off: %v", err)
	}
}
