// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrNoServer says that what answers in the place of the App Cluster is no API server.
var ErrNoServer = cluster.ErrNoServer

// ErrAppCluster says that it is the App Cluster that could not be asked what it serves, not a platform.
var ErrAppCluster = cluster.ErrAppCluster

// List returns the bindings of the App Cluster.
func List(ctx context.Context, config *rest.Config) ([]v1alpha1.APIServiceBinding, error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return nil, err
	}
	return app.List(ctx)
}

// Watch calls each with every binding of the App Cluster, and again when one changes,
// one call at a time, until ctx ends. It outlives an API server that is away.
func Watch(ctx context.Context, config *rest.Config, each func(v1alpha1.APIServiceBinding)) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	namespace := ""
	if app.Namespaced {
		namespace = v1alpha1.Namespace
	}
	inf := cluster.Objects(app.Interface, cluster.APIServiceBindings, namespace).Informer(cache.Indexers{})
	show := func(obj any) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		if b, err := cluster.Decode[v1alpha1.APIServiceBinding](u); err == nil {
			each(*b)
		}
	}
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, obj any) { show(obj) }}); err != nil {
		return err
	}
	inf.RunWithContext(ctx)
	return nil
}

// ClusterID returns what tells the App Cluster of config apart from other clusters
// of the same person. It is made from the namespace klutch-bind, which is created
// where it is not there yet.
func ClusterID(ctx context.Context, config *rest.Config) (string, error) {
	id, err := KnownClusterID(ctx, config)
	if err != nil || id != "" {
		return id, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	u, err := client.Resource(cluster.NamespacesResource).Create(ctx, namespaceManifest(), metav1.CreateOptions{FieldManager: cluster.FieldManager})
	if err != nil {
		return "", fmt.Errorf("namespace %s: %w", v1alpha1.Namespace, err)
	}
	return cluster.ID(u.GetUID()), nil
}

// KnownClusterID is ClusterID without a write: empty where the namespace is not there yet, so
// that no platform can know the App Cluster.
func KnownClusterID(ctx context.Context, config *rest.Config) (string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	u, err := client.Resource(cluster.NamespacesResource).Get(ctx, v1alpha1.Namespace, metav1.GetOptions{})
	switch {
	case fates.Is(err, fates.Absent, fates.Unserved):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("namespace %s: %w", v1alpha1.Namespace, err)
	}
	return cluster.ID(u.GetUID()), nil
}

func namespaceManifest() *unstructured.Unstructured {
	return cluster.Manifest(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
}
