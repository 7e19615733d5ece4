// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/mark"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An installer is one call of Install. Its later fields are filled in as it goes.
type installer struct {
	progress
	opts     InstallOptions
	config   *rest.Config
	target   *kubeconfig.Kubeconfig
	tenant   dynamic.Interface
	services []v1alpha1.GroupResource

	app         *cluster.App
	existing    map[string]*v1alpha1.APIServiceBinding
	secret      string
	secretThere bool
	byHand      sets.Set[string] // Secrets that are not ours to mark, and so to delete
	consents    *consents
	adopted     map[string]int32 // limits that a person has just given, by service
	polite      bool             // takes no field over from another manager
}

func newInstaller(config *rest.Config, opts InstallOptions) (*installer, error) {
	target, err := kubeconfig.Read(opts.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the backend: %w", err)
	}
	services, err := services(opts.Requests)
	if err != nil {
		return nil, err
	}
	client, err := cluster.TenantClient(target)
	if err != nil {
		return nil, err
	}
	return &installer{
		progress: opts.Progress, opts: opts, config: config, target: target, tenant: client, services: services,
		existing: map[string]*v1alpha1.APIServiceBinding{}, adopted: map[string]int32{},
	}, nil
}

// did is say for what has been done.
func (i *installer) did(format string, args ...any) {
	if i.opts.DryRun != "" {
		format += " (dry run)"
	}
	i.say(format, args...)
}

// lookForBinding also refuses a CRD that no binding made: the konnector would; and what
// the App Cluster serves without a CRD, by another API server behind it: the konnector
// would be given rights on objects that have nothing to do with the service.
func (i *installer) lookForBinding(ctx context.Context, name string) error {
	b, err := i.app.Binding(ctx, name)
	if err != nil {
		return err
	}
	if b != nil {
		i.existing[name] = b
		return nil
	}
	crd, err := cluster.ReadCRD(ctx, i.app, name)
	if err != nil {
		return err
	}
	if crd != nil && !ours(crd) {
		return fmt.Errorf("the CRD %s is in the App Cluster already and no binding made it: %w", name, ErrConflict)
	}
	if crd != nil {
		return nil
	}
	served, err := i.app.Serves(ctx, name)
	if err == nil && served {
		err = fmt.Errorf("%s is served in the App Cluster already, without a CRD: %w", name, ErrConflict)
	}
	return err
}

// ours tells a CRD that a binding made from any other.
func ours(crd *apiextensionsv1.CustomResourceDefinition) bool {
	_, marked := mark.Get(crd)
	return marked || slices.ContainsFunc(crd.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "APIServiceBinding" })
}

// look reads the App Cluster and fails on what Install would fail on later.
func (i *installer) look(ctx context.Context) (err error) {
	if i.app, err = cluster.OpenApp(ctx, i.config); err != nil {
		return err
	}
	for _, service := range i.services {
		if err := i.lookForBinding(ctx, service.String()); err != nil {
			return err
		}
	}
	return nil
}

// InstallOptions say what to bind and how.
type InstallOptions struct {
	// Kubeconfig is the tenant's, from a BindingResponse. It is read as data: a
	// server, a CA, a namespace and a token, see SECURITY.md.
	Kubeconfig []byte
	// Backend is the URL at which a login got it; empty if it came in another way.
	Backend string
	// Requests are made in the tenant namespace; see ReadRequests.
	Requests []v1alpha1.APIServiceExportRequest
	// Answer sets the State of the permission claims of all services: it is given
	// them with the answers of the App Cluster's bindings, which hold with a nil
	// Answer. With a claim that has none Install ends with a ConsentError.
	Answer func(context.Context, []Claim) error
	// MaxAdopted is how many objects that the providers make may become claims in the App
	// Cluster, for each service; see the field MaxAdoptedObjects of bindings. Nil leaves that
	// as it is.
	MaxAdopted *int32
	// AskAdoption is asked for that number where MaxAdopted is nil, once for each service that
	// is bound for the first time and whose provider offers adoption. Nil answers none.
	AskAdoption func(ctx context.Context, service v1alpha1.GroupResource) (limit int32, err error)
	// Konnector are manifests to apply before the bindings. Nil leaves the
	// konnector to other means.
	Konnector []*unstructured.Unstructured
	// Applied is told each object that was applied to the App Cluster, or in a dry run would
	// be. A Secret is among them.
	Applied func(*unstructured.Unstructured)
	// DryRun, if not empty, changes nothing in either cluster.
	DryRun DryRun
	// Progress is told, a line each, what has been done and what is waited for.
	Progress func(string)
}

// ErrConflict says that another owner's object has the name already.
var ErrConflict = errors.New("belongs to someone else")
