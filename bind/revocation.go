// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrNotRevoked says that the token of a connection is still good.
var ErrNotRevoked = errors.New("not revoked")

// revocationTime bounds what an App Cluster waits for a Control Plane Cluster that it
// leaves: API servers accept a token for ten seconds that they have just accepted.
const revocationTime = 30 * time.Second

// A revocation is the end of the last use of a connection: the Control Plane Cluster is
// to refuse its token, and the platform to remove the tenant.
type revocation struct {
	progress
	dryRun  DryRun
	app     dynamic.Interface
	secret  *unstructured.Unstructured
	place   *kubeconfig.Kubeconfig
	token   cluster.Token
	tenant  dynamic.Interface
	givenUp bool // the tenant
}

// carryOut ends the use of the connection that the Secret holds. The error is ErrNotRevoked
// if its token may be good from then on.
func (d *revocation) carryOut(ctx context.Context) (err error) {
	d.place, err = cluster.ReadSecret(d.secret)
	if err != nil {
		return fmt.Errorf("the token in secret %s is %w: %w", d.secret.GetName(), ErrNotRevoked, err)
	}
	ctx, cancel := context.WithTimeout(ctx, half(ctx, revocationTime))
	defer cancel()
	d.token = cluster.ReadToken(d.place.Token)
	if d.tenant, err = cluster.TenantClient(d.place); err == nil {
		err = d.run(ctx)
	}
	if err == nil || fates.Is(err, fates.Unauthorized) {
		d.say("%s the token of tenant %s at %s", d.dryRun.word("Revoked", "Would revoke"), d.place.Namespace, d.place.Server)
		return nil
	}
	return fmt.Errorf("the token of tenant %s at %s is %w: %s%s", d.place.Namespace, d.place.Server, ErrNotRevoked, cluster.Explain(err), d.lifetime())
}

// half of the time that is left until the end of ctx, or most.
func half(ctx context.Context, most time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(most, time.Until(end)/2)
	}
	return most
}

func (d *revocation) lifetime() string {
	if ends := d.token.Ends(); !ends.IsZero() {
		return "; it ends at " + ends.Format(time.RFC3339)
	}
	return ""
}

// run revokes the token last: without it nothing else can be done.
func (d *revocation) run(ctx context.Context) error {
	binding, err := d.find(ctx)
	if err != nil {
		return err
	}
	if err := d.giveUp(ctx, binding); err != nil {
		return err
	}
	if err := d.revoke(ctx); err != nil || d.dryRun != "" {
		return err
	}
	return d.refused(ctx)
}

func (d *revocation) bindings() dynamic.ResourceInterface {
	return d.tenant.Resource(cluster.ClusterBindings).Namespace(d.place.Namespace)
}

// find reads the tenant's ClusterBinding, nil if it is gone. A tenant of another App
// Cluster is an error.
func (d *revocation) find(ctx context.Context) (*v1alpha1.ClusterBinding, error) {
	binding, err := cluster.Get[v1alpha1.ClusterBinding](ctx, d.bindings(), v1alpha1.ClusterBindingName)
	if err != nil {
		return nil, err
	}
	space, err := cluster.Get[corev1.Namespace](ctx, d.tenant.Resource(cluster.NamespacesResource), d.place.Namespace)
	if err != nil && !fates.Is(err, fates.Forbidden, fates.Terminating) {
		return nil, err
	}
	if space == nil {
		space = &corev1.Namespace{}
	}
	return binding, d.checkOwn(ctx, space, binding)
}

// checkOwn goes by what the tenant itself cannot write, if that tells: a thief of the
// token must not be able to keep it by saying that the tenant is another cluster's.
func (d *revocation) checkOwn(ctx context.Context, space *corev1.Namespace, binding *v1alpha1.ClusterBinding) error {
	if bound := types.UID(d.secret.GetAnnotations()[v1alpha1.TenantUIDAnnotation]); bound != "" && space.UID != "" && space.UID != bound {
		return fmt.Errorf("the tenant namespace there has the UID %s, and %s was bound", space.UID, bound)
	}
	home, err := cluster.UIDOf(ctx, d.app, cluster.NamespacesResource, cache.NewObjectName("", v1alpha1.Namespace))
	if err != nil || strings.HasSuffix(space.Annotations[v1alpha1.IdentityAnnotation], "#"+cluster.ID(home)) {
		return err
	}
	own, err := cluster.UIDOf(ctx, d.app, cluster.NamespacesResource, cache.NewObjectName("", metav1.NamespaceSystem))
	if err == nil && binding != nil && binding.Status.ClusterUID != "" && binding.Status.ClusterUID != string(own) {
		return fmt.Errorf("another App Cluster holds the tenant (its namespace kube-system has the UID %s)", binding.Status.ClusterUID)
	}
	return err
}

// giveUp has the platform remove the tenant, unless something would be left over: then
// no bind could reach it again.
func (d *revocation) giveUp(ctx context.Context, binding *v1alpha1.ClusterBinding) error {
	if binding == nil || binding.DeletionTimestamp != nil {
		d.givenUp = true
		return nil
	}
	err := d.checkEmpty(ctx)
	if err == nil && d.dryRun != DryRunClient {
		err = d.bindings().Delete(ctx, binding.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}, DryRun: d.dryRun.param()})
	}
	if d.givenUp = err == nil || fates.Is(err, fates.Absent, fates.Unserved); d.givenUp {
		d.say("%s tenant %s at %s", d.dryRun.word("Gave up", "Would give up"), d.place.Namespace, d.place.Server)
		return nil
	}
	d.say("The platform keeps tenant %s: %s", d.place.Namespace, cluster.Explain(err))
	return ctx.Err()
}

// checkEmpty returns an error as long as the tenant has objects.
func (d *revocation) checkEmpty(ctx context.Context) error {
	exports, err := cluster.Listed[v1alpha1.APIServiceExport](ctx, d.tenant.Resource(cluster.APIServiceExports).Namespace(d.place.Namespace))
	if err != nil {
		return err
	}
	spaces, err := cluster.Listed[v1alpha1.APIServiceNamespace](ctx, d.tenant.Resource(cluster.APIServiceNamespaces).Namespace(d.place.Namespace))
	for _, space := range spaces {
		for _, e := range exports {
			if err == nil && space.Status.Namespace != "" {
				err = d.checkNone(ctx, &e.Spec, space.Status.Namespace)
			}
		}
	}
	return err
}

func (d *revocation) checkNone(ctx context.Context, e *v1alpha1.APIServiceExportSpec, namespace string) error {
	for _, v := range e.Versions {
		if !v.Served {
			continue
		}
		gvr := schema.GroupVersionResource{Group: e.Group, Version: v.Name, Resource: e.Names.Plural}
		list, err := d.tenant.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1})
		if fates.Is(err, fates.Absent, fates.Unserved) {
			return nil
		}
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%s are left in %s", gvr.GroupResource(), namespace)
		}
		return err
	}
	return nil
}

// revoke deletes what the token is bound to. Where only the removal of the tenant ends
// the token, that has begun.
func (d *revocation) revoke(ctx context.Context) error {
	bound := d.token.Kubernetes.Secret
	if d.dryRun == DryRunClient || d.givenUp && bound.Name == "" {
		return nil
	}
	if bound.Name == "" {
		return fmt.Errorf("it is bound to nothing that could be deleted: Klutch's backend makes such tokens, and they end when the platform team deletes the namespace %s", d.place.Namespace)
	}
	err := d.tenant.Resource(cluster.Secrets).Namespace(d.place.Namespace).Delete(ctx, bound.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &bound.UID}, DryRun: d.dryRun.param()})
	if d.givenUp && cluster.IsHidden(err) {
		return nil
	}
	return err
}

// refused waits until the API server does not know the token any more. That it has no
// rights is not enough: with a new bind it could have rights again.
func (d *revocation) refused(ctx context.Context) error {
	d.say("Waiting until the token is refused")
	for {
		_, err := d.bindings().Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
		if fates.Is(err, fates.Unauthorized) || fates.Is(err, fates.Forbidden, fates.Terminating) && d.token.Kubernetes.Secret.Name == "" {
			return nil
		}
		if cluster.Pause(ctx, time.Second/2) != nil {
			return errors.New("the Control Plane Cluster was told so, but does not refuse it yet")
		}
	}
}
