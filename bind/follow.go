// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Watch calls each with every binding of the App Cluster, and again when one changes,
// one call at a time, until ctx ends. It outlives an API server that is away.
func Watch(ctx context.Context, config *rest.Config, each func(v1alpha1.APIServiceBinding)) error {
	app, err := openApp(ctx, config)
	if err != nil {
		return err
	}
	namespace := ""
	if app.namespaced {
		namespace = v1alpha1.Namespace
	}
	inf := objects(app.Interface, bindingsResource, namespace).informer(cache.Indexers{})
	show := func(obj any) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return
		}
		if b, err := decode[v1alpha1.APIServiceBinding](u); err == nil {
			each(*b)
		}
	}
	if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: show, UpdateFunc: func(_, obj any) { show(obj) }}); err != nil {
		return err
	}
	inf.RunWithContext(ctx)
	return nil
}
