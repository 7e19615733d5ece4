// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
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
	cluster.Clients

	kube kubernetes.Interface // for events and access reviews
	uid  types.UID            // of namespace kube-system, set by prepare

	servedNames crd.ServedNames // short names and categories of what the App Cluster serves

	bindings   cache.SharedIndexInformer
	crds       cache.SharedIndexInformer // metadata only
	namespaces cache.SharedIndexInformer // metadata only
}

func newAppCluster(config *rest.Config) (*appCluster, error) {
	config = cluster.Unlimited(config)
	a := &appCluster{}
	var err error
	if a.Clients, err = cluster.NewClients(config); err == nil {
		a.kube, err = kubernetes.NewForConfigAndClient(config, a.HTTP)
	}
	if err != nil {
		return nil, fmt.Errorf("client for the App Cluster: %w", err)
	}
	return a, a.informers()
}

func (a *appCluster) discovery() discovery.DiscoveryInterfaceWithContext {
	return discovery.ToDiscoveryInterfaceWithContext(a.kube.Discovery())
}

func (a *appCluster) informers() error {
	a.bindings = cluster.Objects(a.Watches, cluster.APIServiceBindings, metav1.NamespaceAll).Informer(cache.Indexers{indexSecret: bySecret, indexName: byName})
	a.crds = cluster.Metas(a.Meta, cluster.CRDs).Informer(cache.Indexers{})
	a.namespaces = cluster.Metas(a.Meta, cluster.NamespacesResource).Informer(cache.Indexers{})
	return errors.Join(a.crds.SetTransform(onlyIdentity), a.namespaces.SetTransform(onlyIdentity))
}

// onlyIdentity drops all of a CRD or namespace but that it exists.
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
	return cluster.Cached[v1alpha1.APIServiceBinding](a.bindings, name)
}

// prepare makes sure that APIServiceBindings are served, in whichever scope, and
// waits for what it takes.
func (a *appCluster) prepare(ctx context.Context) error {
	said := ""
	for failures := 0; ; {
		ready, err := a.served(ctx)
		if ready && err == nil {
			return nil
		}
		pause := time.Second / 2
		if failures++; err == nil {
			failures = 0
		} else {
			pause = max(pause, fates.Of(err).Pause(failures))
		}
		if now := cluster.Trouble(err); now != said && ctx.Err() == nil {
			if said = now; err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "the App Cluster is not ready for APIServiceBindings, retrying")
			}
		}
		if err := cluster.Pause(ctx, pause); err != nil {
			return err
		}
	}
}

// served installs our CRD if there is none. One of another scope or another make is
// left as it is.
func (a *appCluster) served(ctx context.Context) (bool, error) {
	crds := a.Calls.Resource(cluster.CRDs)
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

// identity returns the UID by which this cluster is told from another one at the same address.
func (a *appCluster) identity(ctx context.Context) (types.UID, error) {
	return cluster.UIDOf(ctx, a.Calls, cluster.NamespacesResource, cache.NewObjectName("", metav1.NamespaceSystem))
}

// namespaceGone asks the API server. The cluster's identity is asked after, so that
// another cluster at the same address proves nothing.
func (a *appCluster) namespaceGone(ctx context.Context, name string) (bool, error) {
	_, err := cluster.UIDOf(ctx, a.Calls, cluster.NamespacesResource, cache.NewObjectName("", name))
	if err == nil {
		return false, nil
	}
	if !fates.Is(err, fates.Absent) {
		return false, fmt.Errorf("look for namespace %s: %w", name, err)
	}
	identity, err := a.identity(ctx)
	if err != nil {
		return false, fmt.Errorf("identity of the App Cluster: %w", err)
	}
	return identity == a.uid, nil
}
