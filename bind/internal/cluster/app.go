// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An App is a client of an App Cluster that knows in which scope
// APIServiceBindings are served there. Where they are not, they are going to be, in
// namespaces.
type App struct {
	dynamic.Interface
	Discovery          discovery.DiscoveryInterfaceWithContext
	Served, Namespaced bool
}

// OpenApp returns an App for a configuration, after it has asked whether bindings are served.
func OpenApp(ctx context.Context, config *rest.Config) (*App, error) {
	a := &App{Namespaced: true}
	var err error
	if a.Interface, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if a.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	list, err := a.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v1alpha1.GroupVersion.String())
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return a, checkServer(ctx, a.Discovery, config.Host)
	}
	if fates.Is(err, fates.Unreachable, fates.Broken, fates.Unknown) && !fates.IsUnanswered(err) {
		return nil, cmp.Or(checkServer(ctx, a.Discovery, config.Host), err)
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s in %w: %w", APIServiceBindings.GroupResource(), ErrAppCluster, err)
	}
	for _, r := range list.APIResources {
		if r.Name == APIServiceBindings.Resource {
			a.Served, a.Namespaced = true, r.Namespaced
		}
	}
	return a, ctx.Err()
}

var (
	// ErrNoServer says that what answers is no API server.
	ErrNoServer = errors.New("is no Kubernetes API server")
	// ErrAppCluster says of which cluster an error speaks.
	ErrAppCluster = errors.New("the App Cluster")
)

// checkServer tells an API server from whatever else answers that it knows nothing, such as the
// health port of a program.
func checkServer(ctx context.Context, d discovery.ServerVersionInterfaceWithContext, host string) error {
	version, err := d.ServerVersionWithContext(ctx)
	if fates.Is(err, fates.Forbidden, fates.Unauthorized) || err == nil && version.GitVersion != "" {
		return nil
	}
	if fates.IsUnanswered(err) {
		return fmt.Errorf("look for %w at %s: %w", ErrAppCluster, host, err)
	}
	return fmt.Errorf("what answers at %s %w", host, errors.Join(ErrNoServer, err))
}

// Bindings is where APIServiceBindings are.
func (a *App) Bindings() dynamic.ResourceInterface {
	if a.Namespaced {
		return a.Resource(APIServiceBindings).Namespace(v1alpha1.Namespace)
	}
	return a.Resource(APIServiceBindings)
}

// Binding returns nil if there is none.
func (a *App) Binding(ctx context.Context, name string) (*v1alpha1.APIServiceBinding, error) {
	if !a.Served {
		return nil, nil //nolint:nilnil // absence is a value
	}
	b, err := Get[v1alpha1.APIServiceBinding](ctx, a.Bindings(), name)
	if err != nil {
		return nil, fmt.Errorf("APIServiceBinding %s: %w", name, err)
	}
	return b, nil
}

// List returns all bindings.
func (a *App) List(ctx context.Context) ([]v1alpha1.APIServiceBinding, error) {
	if !a.Served {
		return nil, nil
	}
	all, err := Listed[v1alpha1.APIServiceBinding](ctx, a.Bindings())
	if err != nil {
		return nil, fmt.Errorf("APIServiceBindings: %w", err)
	}
	return all, nil
}

// Serves tells whether an API server serves a resource in any version.
func (a *App) Serves(ctx context.Context, resource string) (bool, error) {
	r := schema.ParseGroupResource(resource)
	groups, err := a.Discovery.ServerGroupsWithContext(ctx)
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("APIs of the App Cluster: %w", err)
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			if g.Name != r.Group {
				continue
			}
			list, err := a.Discovery.ServerResourcesForGroupVersionWithContext(ctx, v.GroupVersion)
			if err != nil && !fates.Is(err, fates.Absent, fates.Unserved) {
				return false, fmt.Errorf("look for %s in the App Cluster: %w", resource, err)
			}
			if err == nil && slices.ContainsFunc(list.APIResources, func(one metav1.APIResource) bool { return one.Name == r.Resource }) {
				return true, nil
			}
		}
	}
	return false, nil
}
