// SPDX-License-Identifier: Apache-2.0

package yardstick

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// RunSync is package sync alone, until ctx is done: with its own defaults, in target namespaces that
// it makes itself, and without a limit on deletions, since a load deletes all that it made.
// QPS is not used.
func RunSync(ctx context.Context, o Options) error {
	source, _, err := connect(o.App)
	if err != nil {
		return err
	}
	target, config, err := connect(o.ControlPlane)
	if err != nil {
		return err
	}
	namespaces, err := namespacesOn(ctx, config)
	if err != nil {
		return err
	}
	set := klutchsync.NewSet(klutchsync.SetOptions{})
	for _, r := range o.Resources {
		s, err := klutchsync.New(source, target, r, klutchsync.Options{Domain: "sync.example.org", Mapper: namespaces, DeletionLimit: -1})
		if err != nil {
			return err
		}
		set.Put(r.Resource, s) //nolint:contextcheck // a Sync has the context of its Set
	}
	return set.Run(ctx)
}

func connect(kubeconfig string) (*klutchsync.Cluster, *rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, nil, fmt.Errorf("kubeconfig %s: %w", kubeconfig, err)
	}
	cluster, err := klutchsync.NewCluster(config)
	return cluster, config, err
}

// namespacesOn maps each namespace to one of the target that is made when it is asked for.
func namespacesOn(ctx context.Context, config *rest.Config) (namespaces *klutchsync.Namespaces, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespaces = klutchsync.NewNamespaces(func(source string) {
		go func() {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "sync-" + source}}
			if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
				namespaces.Set(source, ns.Name)
			}
		}()
	})
	return namespaces, nil
}
