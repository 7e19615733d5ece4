// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var (
	// ErrInUse says that objects of a bound API are still there.
	ErrInUse = errors.New("still in use")
	// ErrNotFound says that there is no such binding.
	ErrNotFound = errors.New("no such binding")
)

// RemoveOptions tune Remove.
type RemoveOptions struct {
	// DryRun, if not empty, deletes nothing.
	DryRun DryRun
	// Progress is told, a line each, what has been done.
	Progress func(string)
}

// Remove takes back what Install and the konnector did for the binding of the given
// name: the binding itself, its CRD, the konnector's rights, and the kubeconfig
// Secret unless another binding uses it. Objects of the bound API have to be gone
// before, or the error is ErrInUse: without the binding nobody would delete what
// stands for them in the Control Plane Cluster. What is gone already counts as
// removed, so Remove may be repeated after a failure.
func Remove(ctx context.Context, config *rest.Config, name string, opts RemoveOptions) error {
	app, err := openApp(ctx, config)
	if err != nil {
		return err
	}
	if !app.served {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	r := &remover{appClient: app, progress: opts.Progress, dryRun: opts.DryRun}
	return r.remove(ctx, name)
}

type remover struct {
	*appClient
	progress
	dryRun DryRun
}

// remove deletes the Secret last: the konnector needs it for as long as there is a
// binding.
func (r *remover) remove(ctx context.Context, name string) error {
	binding, err := r.binding(ctx, name)
	if err != nil {
		return err
	}
	crd, err := r.crd(ctx, name)
	if err != nil {
		return err
	}
	if crd != nil && !ours(crd) {
		crd = nil
	}
	if binding == nil && crd == nil {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	if err := r.checkUnused(ctx, crd); err != nil {
		return err
	}
	if err := r.delete(ctx, r.bindings(), "APIServiceBinding", name); err != nil {
		return err
	}
	if err := r.deleteCRD(ctx, crd); err != nil {
		return err
	}
	if err := r.delete(ctx, r.Resource(rolesResource), "ClusterRole", ClusterRoleName(name)); err != nil {
		return err
	}
	return r.deleteSecret(ctx, binding)
}

// checkUnused also counts objects that are being deleted: their finalizer waits for
// the konnector, which needs the binding. Without a CRD there are none.
func (r *remover) checkUnused(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	resource, served := servedResource(crd)
	if !served {
		return nil
	}
	list, err := r.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", crd.Name, err)
	case len(list.Items) > 0:
		o := list.Items[0]
		return fmt.Errorf("%s is %w: %s %s/%s is one of its objects", crd.Name, ErrInUse, o.GetKind(), o.GetNamespace(), o.GetName())
	}
	return nil
}

func servedResource(crd *apiextensionsv1.CustomResourceDefinition) (r schema.GroupVersionResource, served bool) {
	if crd == nil {
		return r, false
	}
	for _, v := range crd.Spec.Versions {
		if v.Served {
			return schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}, true
		}
	}
	return r, false
}

// deleteCRD looks again whether the API is used, since a CRD takes its objects along.
func (r *remover) deleteCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd == nil {
		return nil
	}
	if err := r.checkUnused(ctx, crd); err != nil {
		return err
	}
	return r.delete(ctx, r.Resource(crdsResource), "CRD", crd.Name)
}

// deleteSecret leaves what Install has not made, and what another binding uses.
func (r *remover) deleteSecret(ctx context.Context, b *v1alpha1.APIServiceBinding) error {
	if b == nil || b.Spec.KubeconfigSecretRef.Namespace != v1alpha1.Namespace {
		return nil
	}
	all, err := r.list(ctx)
	if err != nil {
		return err
	}
	ref := b.Spec.KubeconfigSecretRef
	if slices.ContainsFunc(all, func(o v1alpha1.APIServiceBinding) bool { return o.Name != b.Name && o.Spec.KubeconfigSecretRef == ref }) {
		return nil
	}
	return r.delete(ctx, r.Resource(secretsResource).Namespace(ref.Namespace), "secret", ref.Name)
}

// delete returns when the object has gone.
func (r *remover) delete(ctx context.Context, client dynamic.ResourceInterface, kind, name string) error {
	err := r.send(ctx, client, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	done := "Deleted"
	if r.dryRun != "" {
		done = "Would delete"
	}
	r.say("%s %s %s", done, kind, name)
	return nil
}

func (r *remover) send(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	if r.dryRun == DryRunClient {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		return err
	}
	err := client.Delete(ctx, name, metav1.DeleteOptions{DryRun: r.dryRun.param()})
	if err != nil || r.dryRun != "" {
		return err
	}
	return until(ctx, client, name, func(o *metav1.PartialObjectMetadata) (bool, error) { return o == nil, nil })
}
