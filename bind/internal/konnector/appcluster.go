// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Indexes of the bindings informer.
const (
	indexSecret = "secret" // namespace/name of the kubeconfig Secret
	indexName   = "name"   // the binding's own name
)

// An appCluster is the cluster in which bindings and bound objects are.
type appCluster struct {
	clients

	kube kubernetes.Interface // for events and access reviews
	uid  types.UID            // of namespace kube-system, set by prepare

	servedNames crd.ServedNames // short names and categories of what the App Cluster serves

	bindings   cache.SharedIndexInformer
	crds       cache.SharedIndexInformer // metadata only
	namespaces cache.SharedIndexInformer // metadata only
}

func newAppCluster(config *rest.Config) (*appCluster, error) {
	config = unlimited(config)
	a := &appCluster{}
	var err error
	if a.clients, err = newClients(config); err == nil {
		a.kube, err = kubernetes.NewForConfigAndClient(config, a.http)
	}
	if err != nil {
		return nil, fmt.Errorf("client for the App Cluster: %w", err)
	}
	return a, a.informers()
}

func (a *appCluster) discovery() discovery.DiscoveryInterface { return a.kube.Discovery() }

func (a *appCluster) informers() error {
	a.bindings = cluster.Objects(a.watches, cluster.APIServiceBindings, metav1.NamespaceAll).Informer(cache.Indexers{indexSecret: bySecret, indexName: byName})
	a.crds = cluster.Metas(a.meta, cluster.CRDs).Informer(cache.Indexers{})
	a.namespaces = cluster.Metas(a.meta, cluster.NamespacesResource).Informer(cache.Indexers{})
	return errors.Join(a.crds.SetTransform(onlyIdentity), a.namespaces.SetTransform(onlyIdentity))
}

// onlyIdentity keeps what is asked of CRDs and namespaces: that they are there.
func onlyIdentity(obj any) (any, error) {
	m, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	return &metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, DeletionTimestamp: m.DeletionTimestamp,
	}}, nil
}

func bySecret(obj any) ([]string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	namespace, _, _ := unstructured.NestedString(u.Object, "spec", "kubeconfigSecretRef", "namespace")
	name, _, _ := unstructured.NestedString(u.Object, "spec", "kubeconfigSecretRef", "name")
	if u.GetNamespace() != "" && u.GetNamespace() != namespace {
		return nil, nil // a neighbour's, which is not used
	}
	return []string{cache.NewObjectName(namespace, name).String()}, nil
}

func byName(obj any) ([]string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	return []string{u.GetName()}, nil
}

// lookup returns the names of the bindings under value of an index.
func (a *appCluster) lookup(index, value string) []cache.ObjectName {
	found, err := a.bindings.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil
	}
	names := make([]cache.ObjectName, 0, len(found))
	for _, obj := range found {
		if o, ok := obj.(metav1.Object); ok {
			names = append(names, cache.MetaObjectToName(o))
		}
	}
	return names
}

// binding returns a binding from the cache; nil if it is not there.
func (a *appCluster) binding(name cache.ObjectName) (*v1alpha1.APIServiceBinding, error) {
	return cached[v1alpha1.APIServiceBinding](a.bindings, name)
}

// stored returns an object of the store of inf; nil if it is not there.
func stored(inf cache.SharedIndexInformer, name cache.ObjectName) *unstructured.Unstructured {
	obj, _, _ := inf.GetStore().GetByKey(name.String())
	u, _ := obj.(*unstructured.Unstructured)
	return u
}

// cached is stored as a T.
func cached[T any](inf cache.SharedIndexInformer, name cache.ObjectName) (*T, error) {
	if u := stored(inf, name); u != nil {
		return cluster.Decode[T](u)
	}
	return nil, nil //nolint:nilnil // absence in a cache is a value
}

// prepare makes sure that APIServiceBindings are served, in whichever scope, and
// waits for what it takes.
func (a *appCluster) prepare(ctx context.Context) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, time.Second/2, true, func(ctx context.Context) (bool, error) {
		ready, err := a.served(ctx)
		if err != nil && ctx.Err() == nil {
			if now := cluster.Explain(err); now != said {
				logr.FromContextOrDiscard(ctx).Error(err, "the App Cluster is not ready for APIServiceBindings, retrying")
				said = now
			}
		}
		return ready, nil
	})
}

// served installs our CRD if there is none. One of another scope or another make is
// left as it is.
func (a *appCluster) served(ctx context.Context) (bool, error) {
	crds := a.calls.Resource(cluster.CRDs)
	name := cluster.APIServiceBindings.GroupResource().String()
	u, err := crds.Get(ctx, name, metav1.GetOptions{})
	if fates.Is(err, fates.Absent, fates.Unserved) {
		u, err = crds.Create(ctx, v1alpha1.CRDs()[name], metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	}
	if fates.Is(err, fates.Exists) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("CRD %s: %w", name, err)
	}
	crd, err := cluster.Decode[apiextensionsv1.CustomResourceDefinition](u)
	if err != nil || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || crd.DeletionTimestamp != nil {
		return false, err
	}
	if a.uid, err = a.identity(ctx); err != nil {
		return false, fmt.Errorf("identity of the App Cluster: %w", err)
	}
	return true, nil
}

// identity returns what tells this cluster from one that took its address.
func (a *appCluster) identity(ctx context.Context) (types.UID, error) {
	return cluster.UIDOf(ctx, a.calls, cluster.NamespacesResource, cache.NewObjectName("", metav1.NamespaceSystem))
}

// clients reach one cluster over connections that close ends.
type clients struct {
	calls   dynamic.Interface  // everything that is answered at once
	watches dynamic.Interface  // lists and watches
	meta    metadata.Interface // lists and watches of metadata
	http    *http.Client       // of calls
}

// unlimited is config without a rate limit: it is up to the API server to say that it
// has too much to do.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	return config
}

func newClients(config *rest.Config) (c clients, err error) {
	patient, err := rest.HTTPClientFor(config)
	if err != nil {
		return c, err
	}
	calls := *patient
	calls.Timeout = cluster.CallTimeout
	c.http = &calls
	if c.calls, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return c, err
	}
	if c.watches, err = dynamic.NewForConfigAndClient(config, patient); err != nil {
		return c, err
	}
	c.meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(config), patient)
	return c, err
}

func (c clients) close() { c.http.CloseIdleConnections() }
