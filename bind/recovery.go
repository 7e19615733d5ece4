// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A Leftover is an object in the Control Plane Cluster that was made for a claim of another
// App Cluster with this cluster's tenant: of one that is lost, as a rule.
type Leftover struct {
	// Cluster is the UID of namespace kube-system of that App Cluster.
	Cluster types.UID `json:"cluster"`
	// Namespace and Name identify the claim.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Claimed reports whether a claim of the same namespace and name is here. Without one
	// the object stays as it is.
	Claimed bool `json:"claimed"`
	// Differences say what becomes of the object when the claim takes it up: see the
	// Differences of package sync.
	Differences []string `json:"differences,omitempty"`
}

// mostLeftovers bounds what a platform can have a person read.
const mostLeftovers = 10_000

// Leftovers returns what Recover would take up for the binding of the given name, by the
// names of the claims, and changes nothing. Objects of other tenants are never among them:
// the tenant's own credential and service namespaces are all that is looked at. The error
// is ErrConflict while the platform says that another App Cluster holds the tenant.
func Leftovers(ctx context.Context, config *rest.Config, binding string) ([]Leftover, error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := newSearch(ctx, app, binding)
	if err != nil {
		return nil, err
	}
	places, err := s.places(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		if err := s.look(ctx, p); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.found, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s.found, nil
}

// Recover has the konnector take up, for a binding, what stands in the Control Plane
// Cluster for claims of a lost App Cluster: each object of which there is a claim of the
// same namespace and name here becomes that claim's, with the content of the claim. Lost is
// the Cluster of what Leftovers has listed: objects of no other cluster are taken up. It
// is an annotation of the binding, and stays.
func Recover(ctx context.Context, config *rest.Config, binding string, lost types.UID) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.RecoverAnnotation: lost}}})
	if err != nil {
		return err
	}
	_, err = app.Bindings().Patch(ctx, binding, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	if err != nil {
		return fmt.Errorf("APIServiceBinding %s: %w", binding, err)
	}
	return nil
}

// A search looks for what was made for other App Clusters with the tenant of one binding.
type search struct {
	app      *cluster.App
	self     types.UID // of the App Cluster
	tenant   dynamic.Interface
	at       *kubeconfig.Kubeconfig
	resource schema.GroupVersionResource
	scoped   bool // to the cluster
	found    []Leftover
}

// A place is a namespace of the App Cluster and its service namespace; of a cluster-scoped
// API neither has a name.
type place struct{ here, there string }

func newSearch(ctx context.Context, app *cluster.App, name string) (*search, error) {
	b, err := app.Binding(ctx, name)
	if err != nil {
		return nil, err
	}
	if b == nil {
		return nil, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	s := &search{app: app}
	if s.self, err = cluster.UIDOf(ctx, app, cluster.NamespacesResource, cache.NewObjectName("", metav1.NamespaceSystem)); err != nil {
		return nil, fmt.Errorf("identify the App Cluster: %w", err)
	}
	crd, err := cluster.ReadCRD(ctx, app, name)
	if err != nil {
		return nil, err
	}
	var served bool
	if s.resource, served = cluster.ServedResource(crd); !served {
		return nil, fmt.Errorf("%s is not served in the App Cluster yet: look at kubectl bind status", name)
	}
	s.scoped = crd.Spec.Scope == "Cluster"
	if s.at, s.tenant, err = cluster.OpenTenant(ctx, s.app, b); err != nil {
		return nil, err
	}
	return s, s.checkHolder(ctx)
}

// checkHolder fails while the platform says that the tenant is another App Cluster's.
func (s *search) checkHolder(ctx context.Context) error {
	b, err := cluster.Get[v1alpha1.ClusterBinding](ctx, s.tenant.Resource(cluster.ClusterBindings).Namespace(s.at.Namespace), v1alpha1.ClusterBindingName)
	if err != nil {
		return fmt.Errorf("read ClusterBinding %s: %w", v1alpha1.ClusterBindingName, err)
	}
	if b != nil && b.Status.ClusterUID != "" && b.Status.ClusterUID != string(s.self) {
		return fmt.Errorf("the platform says that App Cluster %s holds tenant %s: if that is gone for good, it has to clear status.clusterUID of ClusterBinding %s in there first: %w",
			b.Status.ClusterUID, s.at.Namespace, v1alpha1.ClusterBindingName, ErrConflict)
	}
	return nil
}

func (s *search) places(ctx context.Context) ([]place, error) {
	if s.scoped {
		return []place{{}}, nil
	}
	asked, err := cluster.Listed[v1alpha1.APIServiceNamespace](ctx, s.tenant.Resource(cluster.APIServiceNamespaces).Namespace(s.at.Namespace))
	if err != nil {
		return nil, fmt.Errorf("APIServiceNamespaces of tenant %s: %w", s.at.Namespace, err)
	}
	var all []place
	for _, a := range asked {
		if a.Status.Namespace != "" {
			all = append(all, place{a.Name, a.Status.Namespace})
		}
	}
	return all, nil
}

// look finds the leftovers in a service namespace.
func (s *search) look(ctx context.Context, p place) error {
	opts := metav1.ListOptions{Limit: 500}
	for {
		list, err := s.tenant.Resource(s.resource).Namespace(p.there).List(ctx, opts)
		if err != nil {
			return fmt.Errorf("list %s in %s: %w", s.resource.GroupResource(), p.there, err)
		}
		for i := range list.Items {
			if err := s.add(ctx, p, &list.Items[i]); err != nil {
				return err
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// add adds a target that was made for a claim of the place in another App Cluster.
func (s *search) add(ctx context.Context, p place, target *unstructured.Unstructured) error {
	from, made := klutchsync.OriginOf(target)
	name, ours := target.GetName(), true
	if s.scoped {
		name, ours = strings.CutPrefix(name, s.at.Namespace+"-")
	}
	if !made || !ours || from.Cluster == "" || from.Cluster == s.self || from.Namespace != p.here || from.Name != name {
		return nil
	}
	if len(s.found) == mostLeftovers {
		return fmt.Errorf("the Control Plane Cluster lists more than %d objects of other App Clusters", mostLeftovers)
	}
	claim, err := cluster.Get[unstructured.Unstructured](ctx, s.app.Resource(s.resource).Namespace(p.here), name)
	if err != nil {
		return fmt.Errorf("read %s %s/%s: %w", s.resource.GroupResource(), p.here, name, err)
	}
	l := Leftover{Cluster: from.Cluster, Namespace: p.here, Name: name, Claimed: claim != nil && claim.GetDeletionTimestamp() == nil}
	if l.Claimed {
		l.Differences = klutchsync.Differences(claim, target)
	}
	s.found = append(s.found, l)
	return nil
}
