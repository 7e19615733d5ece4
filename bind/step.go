// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/bind/internal/adoption"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// write does what Install promises for the App Cluster, in an order that leaves
// nothing useless behind when a step fails.
func (i *installer) write(ctx context.Context) ([]v1alpha1.APIServiceBinding, error) {
	for _, step := range []func(context.Context) error{i.writeNamespace, i.writeCRD, i.writeSecret, i.writeRoles, i.writeKonnector} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	var written []v1alpha1.APIServiceBinding
	for _, service := range i.services {
		b, err := i.writeBinding(ctx, service.String())
		if err != nil {
			return nil, err
		}
		written = append(written, *b)
	}
	return written, nil
}

func (i *installer) writeNamespace(ctx context.Context) error {
	found, err := cluster.Get[metav1.PartialObjectMetadata](ctx, i.app.Resource(cluster.NamespacesResource), v1alpha1.Namespace)
	if err != nil || found != nil {
		return err
	}
	if _, err := i.apply(ctx, cluster.NamespacesResource, namespaceManifest()); err != nil {
		return err
	}
	i.did("Created namespace %s", v1alpha1.Namespace)
	return nil
}

// writeCRD leaves a CRD that is there alone, unless it lacks fields of ours in the same scope, as
// Klutch's does: what a bind writes there would be refused or lost.
func (i *installer) writeCRD(ctx context.Context) error {
	shipped := v1alpha1.CRDs()[cluster.APIServiceBindings.GroupResource().String()]
	if i.app.Served {
		live, err := cluster.Get[unstructured.Unstructured](ctx, i.app.Resource(cluster.CRDs), shipped.GetName())
		if fates.Is(err, fates.Forbidden) || err == nil && (live == nil || len(crd.Lacks(live, shipped)) == 0) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if _, err := i.apply(ctx, cluster.CRDs, shipped); err != nil {
		return err
	}
	i.did("Installed CRD %s", shipped.GetName())
	if i.opts.DryRun != "" {
		return nil
	}
	if i.app.Served {
		return i.awaitFields(ctx)
	}
	err := until(ctx, i.app.Resource(cluster.CRDs), shipped.GetName(), func(live *apiextensionsv1.CustomResourceDefinition) (bool, error) {
		return live != nil && apihelpers.IsCRDConditionTrue(live, apiextensionsv1.Established), nil
	})
	if err != nil {
		return fmt.Errorf("CRD %s is not established: %w", shipped.GetName(), err)
	}
	return nil
}

// awaitFields returns when the API server takes bindings with a field that their CRD has just got,
// or when it refuses them for ten seconds: then the bind itself says why.
func (i *installer) awaitFields(ctx context.Context) error {
	probe := i.binding("probe." + v1alpha1.GroupVersion.Group)
	probe.Spec.MaxAdoptedObjects = 1
	u := cluster.Manifest(probe)
	_ = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		taken, err := i.app.Bindings().Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return false, nil //nolint:nilerr // it is asked again
		}
		_, has, _ := unstructured.NestedInt64(taken.Object, "spec", "maxAdoptedObjects")
		return has, nil
	})
	return ctx.Err()
}

// writeRoles also takes away what claims that are not agreed to any more gave.
func (i *installer) writeRoles(ctx context.Context) error {
	for _, service := range i.services {
		has, err := i.claimed(ctx, service)
		if err != nil {
			return err
		}
		claims := i.consents.needed(service, has)
		rights := permission.Rights(i.consents.spec(service), claims)
		if n := len(rights) - 1; n > 0 && i.consents.exports[service.String()] == nil { // in a dry run
			i.say("Left out the rights of the claims of %s, which hang on its kind: the platform has not published it for this cluster yet", service)
			rights = rights[n:]
		}
		if err := i.writeRights(ctx, rights, func() error { return i.awaitPolicy(ctx, service.String(), permission.NamespacesOf(claims)) }); err != nil {
			return err
		}
		r := &remover{App: i.app, progress: i.progress, dryRun: i.opts.DryRun}
		if err := i.writeAdoption(ctx, service, r); err != nil {
			return err
		}
		if len(permission.ClaimRules(claims)) > 0 {
			continue
		}
		if err := r.deleteClaims(ctx, service.String()); err != nil {
			return err
		}
	}
	return nil
}

// claimed are the rights of claims that the konnector has, where it has not carried out the last answers.
func (i *installer) claimed(ctx context.Context, service v1alpha1.GroupResource) ([]rbacv1.PolicyRule, error) {
	if b := i.existing[service.String()]; b == nil || !lags(b) {
		return nil, nil
	}
	role, err := cluster.Get[rbacv1.ClusterRole](ctx, i.app.Resource(cluster.ClusterRoles), permission.ClaimsName(service.String()))
	if err != nil || role == nil {
		return nil, err
	}
	return role.Rules, nil
}

// writeAdoption gives the konnector the right to make claims, or takes it away.
func (i *installer) writeAdoption(ctx context.Context, service v1alpha1.GroupResource, r *remover) error {
	before := i.existing[service.String()]
	switch {
	case i.maxAdopted(service.String()) > 0:
	case before != nil && before.Spec.MaxAdoptedObjects > 0:
		return r.deleteAdoption(ctx, service.String())
	default:
		return nil
	}
	if _, err := i.apply(ctx, cluster.ClusterRoles, permission.AdoptionRights(service)); err != nil {
		return err
	}
	i.did("Allowed the provider of %s to have up to %d of its own objects become claims", service, i.maxAdopted(service.String()))
	return nil
}

// maxAdopted is what a binding says, unless it is told anew.
func (i *installer) maxAdopted(binding string) int32 {
	if i.opts.MaxAdopted != nil {
		return *i.opts.MaxAdopted
	}
	if b := i.existing[binding]; b != nil {
		return b.Spec.MaxAdoptedObjects
	}
	return i.adopted[binding]
}

// askAdoption has a person asked about adoption by what is bound for the first time, if that is
// on offer. In a dry run where nothing is published yet it is not known.
func (i *installer) askAdoption(ctx context.Context) error {
	for _, service := range i.services {
		export, name := i.consents.exports[service.String()], service.String()
		if export == nil {
			continue
		}
		if limit := i.opts.MaxAdopted; limit != nil && *limit > 0 && !adoption.Offered(export) {
			i.say("The provider of %s does not offer that its own objects become claims: none do until it does", name)
		}
		if i.opts.MaxAdopted != nil || i.opts.AskAdoption == nil || i.existing[name] != nil || export.Spec.Adoption != v1alpha1.AdoptionOffer {
			continue
		}
		limit, err := i.opts.AskAdoption(ctx, service)
		if err != nil {
			return err
		}
		i.adopted[name] = limit
	}
	return nil
}

// writeRights writes the last of rights, by which a konnector may take the others, once
// these are in force.
func (i *installer) writeRights(ctx context.Context, rights []*unstructured.Unstructured, inForce func() error) error {
	for n, u := range rights {
		if n > 0 && n == len(rights)-1 {
			if err := inForce(); err != nil {
				return err
			}
		}
		if _, err := i.apply(ctx, rightsResources[u.GetKind()], u); err != nil {
			return err
		}
	}
	return nil
}

// writeKonnector leaves the CRD of bindings to writeCRD.
func (i *installer) writeKonnector(ctx context.Context) error {
	if len(i.opts.Konnector) == 0 {
		return nil
	}
	for _, u := range i.opts.Konnector {
		if u.GetKind() == "CustomResourceDefinition" {
			continue
		}
		resource, err := resourceOf(ctx, i.app, u)
		if err != nil {
			return err
		}
		if _, err := i.apply(ctx, resource, withoutAggregated(u)); err != nil {
			return err
		}
	}
	i.did("Applied the konnector")
	return nil
}

// resourceOf asks the App Cluster for the resource of an object's kind.
func resourceOf(ctx context.Context, app *cluster.App, u *unstructured.Unstructured) (schema.GroupVersionResource, error) {
	version := u.GroupVersionKind().GroupVersion()
	list, err := app.Discovery.ServerResourcesForGroupVersionWithContext(ctx, version.String())
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("konnector: %s in the App Cluster: %w", version, err)
	}
	for _, r := range list.APIResources {
		if r.Kind == u.GetKind() && !strings.Contains(r.Name, "/") {
			return version.WithResource(r.Name), nil
		}
	}
	return schema.GroupVersionResource{}, fmt.Errorf("konnector: the App Cluster has no %s of %s", u.GetKind(), version)
}

// withoutAggregated leaves out the rules of an aggregated ClusterRole: they are
// another's to fill in, and not ours to empty.
func withoutAggregated(u *unstructured.Unstructured) *unstructured.Unstructured {
	if _, aggregated := u.Object["aggregationRule"]; aggregated {
		u = u.DeepCopy()
		delete(u.Object, "rules")
	}
	return u
}

func (i *installer) writeBinding(ctx context.Context, name string) (*v1alpha1.APIServiceBinding, error) {
	var b *unstructured.Unstructured
	// The API server may serve a new resource a moment after it is established.
	err := retry(ctx, func(err error) bool { return fates.Is(err, fates.Absent, fates.Unserved) && i.opts.DryRun == "" }, func() (err error) {
		b, err = i.apply(ctx, cluster.APIServiceBindings, withCoreGroup(cluster.Manifest(i.binding(name))))
		return err
	})
	if err != nil {
		return nil, err
	}
	i.did("%s APIServiceBinding %s", written(i.existing[name] != nil), name)
	return cluster.Decode[v1alpha1.APIServiceBinding](b)
}

// withCoreGroup writes the group of claims on core resources out, as API servers do: without it
// two managers who apply the same claims would differ from what is stored, and so conflict.
func withCoreGroup(binding *unstructured.Unstructured) *unstructured.Unstructured {
	claims, _, _ := unstructured.NestedFieldNoCopy(binding.Object, "spec", "permissionClaims")
	all, _ := claims.([]any)
	for _, c := range all {
		if claim, ok := c.(map[string]any); ok && claim["group"] == nil {
			claim["group"] = ""
		}
	}
	return binding
}

func (i *installer) binding(name string) *v1alpha1.APIServiceBinding {
	b := &v1alpha1.APIServiceBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.APIServiceBindingSpec{
			KubeconfigSecretRef: v1alpha1.ClusterSecretKeyRef{
				LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: i.secret, Key: v1alpha1.KubeconfigKey},
				Namespace:         v1alpha1.Namespace,
			},
			PermissionClaims:  i.consents.answers[name],
			MaxAdoptedObjects: i.maxAdopted(name),
		},
	}
	if i.app.Namespaced {
		b.Namespace = v1alpha1.Namespace
	}
	return b
}

// written is the word for what has become of an object.
func written(over bool) string {
	if over {
		return "Updated"
	}
	return "Created"
}

// apply takes over what it writes, and nothing else of an object. In a dry run what
// is not sent, or cannot be checked, counts as written.
func (i *installer) apply(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if i.opts.Applied != nil {
		i.opts.Applied(u)
	}
	if i.opts.DryRun == DryRunClient {
		return u, nil
	}
	var r dynamic.ResourceInterface = i.app.Resource(resource)
	if u.GetNamespace() != "" {
		r = i.app.Resource(resource).Namespace(u.GetNamespace())
	}
	written, err := r.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: cluster.FieldManager, Force: !i.polite, DryRun: i.opts.DryRun.param()})
	if i.opts.DryRun == DryRunServer && fates.Is(err, fates.Absent, fates.Unserved) {
		i.say("Not checked, since it needs what is not there yet: %s %s", u.GetKind(), u.GetName())
		return u, nil
	}
	if resource == cluster.Secrets { // an API server may quote the token in it
		err = fates.Withheld(err)
	}
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return written, nil
}

// konnectorAccount is the konnector's service account, of which the shipped policy speaks.
const konnectorAccount = "konnector"

// awaitPolicy returns when the API server holds who takes the rights of a binding's claims
// to the policy: a thief of the konnector's credential could be faster, and keep what it
// got. It tries where the policy admits nothing.
func (i *installer) awaitPolicy(ctx context.Context, binding string, r permission.Namespaces) error {
	nowhere := slices.DeleteFunc([]string{v1alpha1.Namespace, metav1.NamespacePublic, metav1.NamespaceSystem}, r.Covers)
	if i.opts.DryRun != "" || len(nowhere) == 0 {
		return nil
	}
	probe := cluster.Manifest(permission.RoleBinding(binding, nowhere[0], rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.Namespace, Name: konnectorAccount}))
	bindings := i.app.Resource(cluster.RoleBindings).Namespace(nowhere[0])
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := bindings.Create(ctx, probe, metav1.CreateOptions{FieldManager: cluster.FieldManager, DryRun: []string{metav1.DryRunAll}})
		return fates.DeniedBy(err, permission.ClaimsName(binding)), nil
	})
	if err != nil {
		return fmt.Errorf("the ValidatingAdmissionPolicy %s is not in force: %w", permission.ClaimsName(binding), err)
	}
	return nil
}
