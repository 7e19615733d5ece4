// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TenantClient returns a client of the tenant that k leads to.
func TenantClient(k *kubeconfig.Kubeconfig) (dynamic.Interface, error) {
	config := k.RESTConfig()
	config.UserAgent, config.Timeout = FieldManager, CallTimeout
	return dynamic.NewForConfig(config)
}

// OpenTenant reads the credential of a binding, and returns a client of the tenant that it leads to.
func OpenTenant(ctx context.Context, app *App, b *v1alpha1.APIServiceBinding) (k *kubeconfig.Kubeconfig, tenant dynamic.Interface, err error) {
	ref := b.Spec.KubeconfigSecretRef
	u, err := app.Resource(Secrets).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err == nil {
		k, err = ReadSecret(u)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	tenant, err = TenantClient(k)
	return k, tenant, err
}

// hearingTimeout is how long a platform may take to say whether it hears the konnector: a person waits.
const hearingTimeout = 5 * time.Second

// Unheard is what a platform says of the tenant that a kubeconfig Secret leads to while it has
// heard no konnector since the bind; empty if it has.
func Unheard(ctx context.Context, app *App, secret v1alpha1.ClusterSecretKeyRef) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, hearingTimeout)
	defer cancel()
	u, err := Get[unstructured.Unstructured](ctx, app.Resource(Secrets).Namespace(secret.Namespace), secret.Name)
	if err != nil || u == nil {
		return "", err
	}
	k, err := ReadSecret(u)
	if err != nil {
		return "", err
	}
	client, err := TenantClient(k)
	if err != nil {
		return "", err
	}
	b, err := Get[v1alpha1.ClusterBinding](ctx, client.Resource(ClusterBindings).Namespace(k.Namespace), v1alpha1.ClusterBindingName)
	if err != nil || b == nil {
		return "", err
	}
	return AwaitedBy(b), nil
}

// AwaitedBy is what a platform says while it waits for the first heartbeat of a konnector.
func AwaitedBy(b *v1alpha1.ClusterBinding) string {
	c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionHealthy)
	if c == nil || c.Reason != v1alpha1.ReasonFirstHeartbeatPending {
		return ""
	}
	return Clip(c.Message)
}

// FieldManager of everything that Install writes.
const FieldManager = "kubectl-bind"
