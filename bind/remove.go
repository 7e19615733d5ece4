// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	served, namespaced, err := BindingScope(ctx, config)
	if err != nil {
		return err
	}
	if !served {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	r := &remover{client: client, bindings: bindings(client, namespaced), opts: opts}
	return r.remove(ctx, name)
}

type remover struct {
	client   dynamic.Interface
	bindings dynamic.ResourceInterface
	opts     RemoveOptions
}

func (r *remover) remove(ctx context.Context, name string) error {
	binding, crd := &v1alpha1.APIServiceBinding{}, &apiextensionsv1.CustomResourceDefinition{}
	bound, err := get(ctx, r.bindings, name, binding)
	if err != nil {
		return fmt.Errorf("APIServiceBinding %s: %w", name, err)
	}
	defined, err := get(ctx, r.client.Resource(crdsResource), name, crd)
	if err != nil {
		return fmt.Errorf("CRD %s: %w", name, err)
	}
	made := defined && ours(crd)
	if !bound && !made {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	if made {
		if err := r.checkUnused(ctx, crd); err != nil {
			return err
		}
	}
	if err := r.delete(ctx, r.bindings, "APIServiceBinding", name); err != nil {
		return err
	}
	if made {
		if err := r.deleteCRD(ctx, crd); err != nil {
			return err
		}
	}
	if err := r.delete(ctx, r.client.Resource(rolesResource), "ClusterRole", ClusterRoleName(name)); err != nil {
		return err
	}
	if !bound {
		return nil
	}
	return r.deleteSecret(ctx, name, binding.Spec.KubeconfigSecretRef)
}

// checkUnused also counts objects that are being deleted: their finalizer waits for
// the konnector, which needs the binding.
func (r *remover) checkUnused(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			continue
		}
		resource := schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural}
		list, err := r.client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("list %s: %w", crd.Name, err)
		}
		if err == nil && len(list.Items) > 0 {
			o := list.Items[0]
			return fmt.Errorf("%s is %w: %s %s/%s is one of its objects", crd.Name, ErrInUse, o.GetKind(), o.GetNamespace(), o.GetName())
		}
		return nil
	}
	return nil
}

// deleteCRD looks again whether the API is used, since a CRD takes its objects along.
func (r *remover) deleteCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := r.checkUnused(ctx, crd); err != nil {
		return err
	}
	return r.delete(ctx, r.client.Resource(crdsResource), "CRD", crd.Name)
}

func (r *remover) deleteSecret(ctx context.Context, name string, ref v1alpha1.ClusterSecretKeyRef) error {
	list, err := r.bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("APIServiceBindings: %w", err)
	}
	for _, u := range list.Items {
		other := v1alpha1.APIServiceBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &other); err != nil {
			return fmt.Errorf("APIServiceBinding %s: %w", u.GetName(), err)
		}
		if other.Name != name && other.Spec.KubeconfigSecretRef == ref {
			return nil
		}
	}
	if ref.Namespace != v1alpha1.Namespace {
		return nil // not made by Install
	}
	return r.delete(ctx, r.client.Resource(secretsResource).Namespace(ref.Namespace), "secret", ref.Name)
}

// delete returns when the object has gone.
func (r *remover) delete(ctx context.Context, client dynamic.ResourceInterface, kind, name string) error {
	var err error
	if r.opts.DryRun == DryRunClient {
		_, err = client.Get(ctx, name, metav1.GetOptions{})
	} else {
		err = client.Delete(ctx, name, metav1.DeleteOptions{DryRun: r.opts.DryRun.param()})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && r.opts.DryRun == "" {
		err = until(ctx, client, name, func(u *unstructured.Unstructured) (bool, error) { return u == nil, nil })
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	if r.opts.Progress != nil {
		done := "Deleted"
		if r.opts.DryRun != "" {
			done = "Would delete"
		}
		r.opts.Progress(fmt.Sprintf("%s %s %s", done, kind, name))
	}
	return nil
}
