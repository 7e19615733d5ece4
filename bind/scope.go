// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An appClient is a client of an App Cluster that knows in which scope
// APIServiceBindings are served there. Where they are not, they are going to be, in
// namespaces.
type appClient struct {
	dynamic.Interface
	discovery          discovery.DiscoveryInterface
	served, namespaced bool
}

func openApp(ctx context.Context, config *rest.Config) (*appClient, error) {
	a := &appClient{namespaced: true}
	var err error
	if a.Interface, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	list, err := a.discovery.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return a, ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s in the App Cluster: %w", bindingsResource.GroupResource(), err)
	}
	for _, r := range list.APIResources {
		if r.Name == bindingsResource.Resource {
			a.served, a.namespaced = true, r.Namespaced
		}
	}
	return a, ctx.Err()
}

// bindings is where APIServiceBindings are.
func (a *appClient) bindings() dynamic.ResourceInterface {
	if a.namespaced {
		return a.Resource(bindingsResource).Namespace(v1alpha1.Namespace)
	}
	return a.Resource(bindingsResource)
}

// binding returns nil if there is none.
func (a *appClient) binding(ctx context.Context, name string) (*v1alpha1.APIServiceBinding, error) {
	if !a.served {
		return nil, nil //nolint:nilnil // absence is a value
	}
	b, err := get[v1alpha1.APIServiceBinding](ctx, a.bindings(), name)
	if err != nil {
		return nil, fmt.Errorf("APIServiceBinding %s: %w", name, err)
	}
	return b, nil
}

// readCRD returns nil if there is none.
func readCRD(ctx context.Context, app dynamic.Interface, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
	crd, err := get[apiextensionsv1.CustomResourceDefinition](ctx, app.Resource(crdsResource), name)
	if err != nil {
		return nil, fmt.Errorf("CRD %s: %w", name, err)
	}
	return crd, nil
}

// List returns the bindings of the App Cluster.
func List(ctx context.Context, config *rest.Config) ([]v1alpha1.APIServiceBinding, error) {
	app, err := openApp(ctx, config)
	if err != nil {
		return nil, err
	}
	return app.list(ctx)
}

func (a *appClient) list(ctx context.Context) ([]v1alpha1.APIServiceBinding, error) {
	if !a.served {
		return nil, nil
	}
	all, err := listed[v1alpha1.APIServiceBinding](ctx, a.bindings())
	if err != nil {
		return nil, fmt.Errorf("APIServiceBindings: %w", err)
	}
	return all, nil
}
