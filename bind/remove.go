// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/doctor"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var (
	// ErrInUse says that objects of a bound API are still there.
	ErrInUse = errors.New("still in use")
	// ErrDeleting says beside ErrInUse that such an object is being deleted.
	ErrDeleting = errors.New("is being deleted")
	// ErrNotFound says that there is no such binding.
	ErrNotFound = errors.New("no such binding")
)

// RemoveOptions tune Remove.
type RemoveOptions struct {
	// DryRun, if not empty, deletes nothing.
	DryRun DryRun
	// Force does not wait for the Control Plane Cluster, which may be gone for good or serve the API no
	// more: an object that is being deleted loses the konnector's finalizer, so that it goes from the App
	// Cluster. What stands for it in the Control Plane Cluster may stay there.
	Force bool
	// Progress is told, a line each, what has been done.
	Progress func(string)
}

// Remove takes back what Install and the konnector did for the binding of the given
// name: the binding itself, its CRD, the konnector's rights, and the kubeconfig
// Secret unless another binding uses it. Objects of the bound API have to be gone
// before, or the error is ErrInUse: without the binding no program would delete what
// stands for them in the Control Plane Cluster. With Force it is enough that all of them
// are being deleted. What is gone already counts as removed, so Remove may be repeated after a failure.
//
// With the last use of a connection its token goes: the Control Plane Cluster refuses
// it when Remove returns, and the platform removes the tenant unless something is left
// of it there. If that cannot be had, all else is removed, and the error is
// ErrNotRevoked. A Secret that neither Install nor Klutch's CLI has made stays, and its
// token goes too: so it is with one that Klutch's konnector made again.
func Remove(ctx context.Context, config *rest.Config, name string, opts RemoveOptions) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	if !app.Served {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	r := &remover{App: app, progress: opts.Progress, dryRun: opts.DryRun, force: opts.Force}
	return r.remove(ctx, name)
}

type remover struct {
	*cluster.App
	progress
	dryRun      DryRun
	force       bool
	propagation metav1.DeletionPropagation // empty: as each kind has it
}

// remove deletes the Secret last: the konnector needs it for as long as there is a
// binding.
func (r *remover) remove(ctx context.Context, name string) error {
	binding, err := r.Binding(ctx, name)
	if err != nil {
		return err
	}
	crd, err := cluster.ReadCRD(ctx, r, name)
	if err != nil {
		return err
	}
	if crd != nil && !ours(crd) {
		crd = nil
	}
	secret, err := r.lastUse(ctx, name, binding)
	if err != nil {
		return err
	}
	if binding == nil && crd == nil && secret == nil {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	if err := r.letGo(ctx, crd); err != nil {
		return err
	}
	if err := r.checkUnused(ctx, crd); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return r.markUnbound(ctx, name, secret) },
		func() error { return r.delete(ctx, r.Bindings(), "APIServiceBinding", name) },
		func() error { return r.deleteCRD(ctx, crd) },
		func() error {
			return r.delete(ctx, r.Resource(cluster.ClusterRoles), "ClusterRole", permission.RoleName(name))
		},
		func() error { return r.deleteAdoption(ctx, name) },
		func() error { return r.deleteClaims(ctx, name) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return r.disconnect(ctx, name, secret)
}

// checkUnused also counts objects that are being deleted: their finalizer waits for
// the konnector, which needs the binding. Without a CRD there are none. A dry run has let none go.
func (r *remover) checkUnused(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	resource, served := cluster.ServedResource(crd)
	if !served || r.force && r.dryRun != "" {
		return nil
	}
	list, err := r.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case fates.Is(err, fates.Absent, fates.Unserved):
		return nil
	case err != nil:
		return fmt.Errorf("list %s: %w", crd.Name, err)
	case len(list.Items) > 0:
		return inUse(crd.Name, &list.Items[0])
	}
	return nil
}

// inUse names an object of a CRD that keeps the binding from being removed.
func inUse(crd string, o *unstructured.Unstructured) error {
	named := fmt.Sprintf("%s %s/%s", o.GetKind(), o.GetNamespace(), o.GetName())
	if o.GetDeletionTimestamp() == nil {
		return fmt.Errorf("%s is %w: %s is one of its objects", crd, ErrInUse, named)
	}
	return fmt.Errorf("%s is %w: %s %w, and waits for its finalizers %s", crd, ErrInUse, named, ErrDeleting, strings.Join(o.GetFinalizers(), ", "))
}

// lettingGo is how many objects are listed at a time.
const lettingGo = 100

// letGo removes the konnector's finalizer from all objects, if the person wants that and each of them is being deleted: a
// konnector that runs cannot put it on again then, and has nothing deleted since it sees no end of a deletion.
func (r *remover) letGo(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	resource, served := cluster.ServedResource(crd)
	if !served || !r.force {
		return nil
	}
	var held []cache.ObjectName
	for opts := (metav1.ListOptions{Limit: lettingGo}); ; {
		list, err := r.Resource(resource).List(ctx, opts)
		if fates.Is(err, fates.Absent, fates.Unserved) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", crd.Name, err)
		}
		for i := range list.Items {
			o := &list.Items[i]
			if o.GetDeletionTimestamp() == nil {
				return inUse(crd.Name, o)
			}
			if slices.Contains(o.GetFinalizers(), v1alpha1.SyncerFinalizer) {
				held = append(held, cache.MetaObjectToName(o))
			}
		}
		if opts.Continue = list.GetContinue(); opts.Continue == "" {
			break
		}
	}
	for _, name := range held {
		if err := r.removeFinalizer(ctx, r.Resource(resource).Namespace(name.Namespace), name.Name); err != nil {
			return fmt.Errorf("let go of %s %s: %w", crd.Name, name, err)
		}
	}
	if len(held) > 0 {
		r.say("%s %d objects that are being deleted, without waiting for the platform: what stands for them there may stay", r.dryRun.word("Let go of", "Would let go of"), len(held))
	}
	return nil
}

// removeFinalizer removes the konnector's finalizer from an object that is being deleted, whatever else changes there meanwhile.
func (r *remover) removeFinalizer(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	if r.dryRun == DryRunClient {
		return nil
	}
	return retry(ctx, func(err error) bool { return fates.Is(err, fates.Conflict) }, func() error {
		o, err := client.Get(ctx, name, metav1.GetOptions{})
		if fates.Is(err, fates.Absent) || err == nil && o.GetDeletionTimestamp() == nil {
			return nil // another one of the name is kept by checkUnused
		}
		if err != nil {
			return err
		}
		left := slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == v1alpha1.SyncerFinalizer })
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": left}})
		if err == nil {
			_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager, DryRun: r.dryRun.param()})
		}
		return err
	})
}

// deleteCRD looks again whether the API is used, since a CRD takes its objects along.
func (r *remover) deleteCRD(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if crd == nil {
		return nil
	}
	if err := r.checkUnused(ctx, crd); err != nil {
		return err
	}
	return r.delete(ctx, r.Resource(cluster.CRDs), "CRD", crd.Name)
}

// deleteAdoption has the provider's objects adopted no more.
func (r *remover) deleteAdoption(ctx context.Context, name string) error {
	return r.delete(ctx, r.Resource(cluster.ClusterRoles), "ClusterRole", permission.AdoptionName(name))
}

// deleteClaims deletes what gives the konnector the rights of a binding's claims, once
// it may take no more of them: the RoleBindings of all namespaces first, since they
// would come to life again with the role, and last the role, by which a removal that is
// repeated knows that there may be more.
func (r *remover) deleteClaims(ctx context.Context, name string) error {
	claims := permission.ClaimsName(name)
	role, err := cluster.Get[metav1.PartialObjectMetadata](ctx, r.Resource(cluster.ClusterRoles), claims)
	if err != nil || role == nil {
		return err
	}
	list, err := r.Resource(cluster.RoleBindings).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + claims})
	if err != nil {
		return fmt.Errorf("list RoleBindings %s: %w", claims, err)
	}
	for i := range list.Items {
		namespace := list.Items[i].GetNamespace()
		if err := r.delete(ctx, r.Resource(cluster.RoleBindings).Namespace(namespace), "RoleBinding", claims); err != nil {
			return fmt.Errorf("namespace %s: %w", namespace, err)
		}
	}
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ClusterRole"} {
		if err := r.delete(ctx, r.Resource(rightsResources[kind]), kind, claims); err != nil {
			return err
		}
	}
	return nil
}

// madeByLabel on a kubeconfig Secret says that Install made it.
const madeByLabel = "app.kubernetes.io/managed-by"

// lastUse returns the Secret of a binding if no other binding names it, or the Secret at which an earlier
// removal stopped; nil if there is none.
func (r *remover) lastUse(ctx context.Context, name string, b *v1alpha1.APIServiceBinding) (*unstructured.Unstructured, error) {
	list, err := r.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("secrets in %s: %w", v1alpha1.Namespace, err)
	}
	others, err := r.others(ctx, name)
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		u := &list.Items[i]
		own := b != nil && names(u)(*b) || b == nil && u.GetAnnotations()[v1alpha1.UnboundAnnotation] == name && !cluster.IsCopy(u)
		if own && !slices.ContainsFunc(others, names(u)) {
			return u, nil
		}
	}
	return nil, nil //nolint:nilnil // absence is a value
}

// names tells of a binding whether it names a Secret.
func names(secret *unstructured.Unstructured) func(v1alpha1.APIServiceBinding) bool {
	return func(b v1alpha1.APIServiceBinding) bool {
		ref := b.Spec.KubeconfigSecretRef
		return ref.Name == secret.GetName() && ref.Namespace == secret.GetNamespace()
	}
}

// others are the bindings but for the one of that name.
func (r *remover) others(ctx context.Context, name string) ([]v1alpha1.APIServiceBinding, error) {
	all, err := r.List(ctx)
	return slices.DeleteFunc(all, func(o v1alpha1.APIServiceBinding) bool { return o.Name == name }), err
}

// installed reports whether Install made a Secret. A copy may say so, too.
func installed(secret *unstructured.Unstructured) bool {
	klutchs := secret.GetNamespace() == v1alpha1.Namespace && secret.GetGenerateName() == "kubeconfig-" // the CLI's
	return (klutchs || secret.GetLabels()[madeByLabel] == cluster.FieldManager) && !cluster.IsCopy(secret)
}

// markUnbound has a removal that is interrupted find the Secret when it is repeated; without a
// name it takes the mark off.
func (r *remover) markUnbound(ctx context.Context, name string, secret *unstructured.Unstructured) error {
	if secret == nil || r.dryRun != "" || cluster.IsCopy(secret) {
		return nil
	}
	var mark any
	if name != "" {
		mark = name
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": secret.GetUID(), "annotations": map[string]any{v1alpha1.UnboundAnnotation: mark}}})
	if err == nil {
		_, err = r.Resource(cluster.Secrets).Namespace(secret.GetNamespace()).Patch(ctx, secret.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	}
	if err != nil {
		return fmt.Errorf("mark secret %s: %w", secret.GetName(), fates.Withheld(err))
	}
	return nil
}

// disconnect deletes the Secret after its token is revoked, or cannot be. One that Install has
// not made is left, with a token that is refused.
func (r *remover) disconnect(ctx context.Context, name string, secret *unstructured.Unstructured) error {
	switch {
	case secret == nil:
		return nil
	case cluster.IsCopy(secret):
		r.say("Left secret %s/%s and its token: it is a copy, which no binding should name", secret.GetNamespace(), secret.GetName())
		return fmt.Errorf("the token in secret %s/%s, which stays, is %w", secret.GetNamespace(), secret.GetName(), ErrNotRevoked)
	}
	if klutchs, err := doctor.LegacyKonnector(ctx, r.App); klutchs && err == nil {
		r.say("Warning: Klutch's konnector runs here, and makes secret %s/%s again within seconds for as long as its token is good: run %s, and delete that Secret if it comes back",
			secret.GetNamespace(), secret.GetName(), doctor.StopIt)
	}
	revoked := r.leave(ctx, name, secret)
	if ctx.Err() != nil {
		return fmt.Errorf("unbind %s: %w", name, context.Cause(ctx)) // the Secret is needed once more
	}
	if !installed(secret) {
		r.say("%s secret %s/%s: neither kubectl bind nor Klutch's CLI has made it", r.dryRun.word("Left", "Would leave"), secret.GetNamespace(), secret.GetName())
		if revoked != nil {
			return revoked // to be repeated
		}
		return r.markUnbound(ctx, "", secret)
	}
	if err := r.delete(ctx, r.Resource(cluster.Secrets).Namespace(secret.GetNamespace()), "secret", secret.GetName()); err != nil {
		return err
	}
	return revoked
}

// leave departs from a tenant, unless it is used through another Secret.
func (r *remover) leave(ctx context.Context, name string, secret *unstructured.Unstructured) error {
	others, err := r.others(ctx, name)
	if err != nil {
		return err
	}
	for _, o := range others {
		u, err := secretOf(ctx, r.App, o)
		if err != nil {
			return fmt.Errorf("the token in secret %s is %w: another one may lead to the same tenant: %w", secret.GetName(), ErrNotRevoked, err)
		}
		if u != nil && sameTenant(u, secret) {
			r.say("Kept the token: APIServiceBinding %s uses the same tenant", o.Name)
			return nil
		}
	}
	d := &revocation{progress: r.progress, dryRun: r.dryRun, app: r, secret: secret}
	return d.carryOut(ctx)
}

// sameTenant tells whether two Secrets lead to one tenant.
func sameTenant(a, b *unstructured.Unstructured) bool {
	if uid := a.GetAnnotations()[v1alpha1.TenantUIDAnnotation]; uid != "" && uid == b.GetAnnotations()[v1alpha1.TenantUIDAnnotation] {
		return true
	}
	k, err := cluster.ReadSecret(b)
	return err == nil && cluster.LeadsTo(a, k)
}

// delete returns when the object has gone.
func (r *remover) delete(ctx context.Context, client dynamic.ResourceInterface, kind, name string) error {
	err := r.send(ctx, client, name)
	if fates.Is(err, fates.Absent, fates.Unserved) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	r.say("%s %s %s", r.dryRun.word("Deleted", "Would delete"), kind, name)
	return nil
}

func (r *remover) send(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	if r.dryRun == DryRunClient {
		_, err := client.Get(ctx, name, metav1.GetOptions{})
		return err
	}
	opts := metav1.DeleteOptions{DryRun: r.dryRun.param()}
	if r.propagation != "" {
		opts.PropagationPolicy = &r.propagation
	}
	err := client.Delete(ctx, name, opts)
	if err != nil || r.dryRun != "" {
		return err
	}
	return until(ctx, client, name, func(o *metav1.PartialObjectMetadata) (bool, error) { return o == nil, nil })
}

// rightsResources are those of what Rights returns, by kind.
var rightsResources = map[string]schema.GroupVersionResource{
	"ClusterRole": cluster.ClusterRoles, "ValidatingAdmissionPolicy": cluster.Policies, "ValidatingAdmissionPolicyBinding": cluster.PolicyBindings,
}
