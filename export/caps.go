// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// maxRequests is how many APIServiceExportRequests one tenant may have at a time.
const maxRequests = 100

// reasonTooMany is why a service namespace beyond the cap is not made, nor a request
// answered that asks for too much at once.
const reasonTooMany = "TooMany"

// errCapped says that there are as many as there may be.
var errCapped = errors.New("is one too many")

// capTenants returns an error that wraps errCapped if there would be more tenants than
// may be, or more of h's identity, once there were so many more.
func (t *tenants) capTenants(ctx context.Context, h holder, more int) error {
	caps := t.opts.Caps
	if caps.Tenants < 0 && caps.PerIdentity < 0 {
		return nil
	}
	list, err := t.meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel,
	})
	if err != nil {
		return fmt.Errorf("count tenants: %w", err)
	}
	all, own := more, more
	for _, ns := range list.Items {
		if other, ok := holderOf(&ns); ok {
			all++
			own += one(other.Issuer == h.Issuer && other.Subject == h.Subject)
		}
	}
	switch {
	case caps.PerIdentity >= 0 && own > caps.PerIdentity:
		return fmt.Errorf("the App Cluster %s %w: you have bound %d, and the platform allows no more", h.Cluster, errCapped, caps.PerIdentity)
	case caps.Tenants >= 0 && all > caps.Tenants:
		return fmt.Errorf("the App Cluster %s %w: the platform has no room for more than %d", h.Cluster, errCapped, caps.Tenants)
	}
	return nil
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// ensureTenantNamespace makes the namespace of a tenant unless that is one too many.
// It counts before and after: of many that come at once none stays beyond a cap,
// though some may be refused that would have fitted.
func (t *tenants) ensureTenantNamespace(ctx context.Context, h holder) (string, error) {
	name := h.namespace(t.opts.NamespacePrefix)
	_, err := t.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return name, t.ensureNamespace(ctx, name, name, h.annotations(), h.labels())
	}
	if err := t.capTenants(ctx, h, 1); err != nil {
		return "", err
	}
	if err := t.ensureNamespace(ctx, name, name, h.annotations(), h.labels()); err != nil {
		return "", err
	}
	if err := t.capTenants(ctx, h, 0); err != nil {
		return "", errors.Join(err, t.undoTenant(ctx, name))
	}
	return name, nil
}

// undoTenant deletes a tenant namespace in which nothing has been made yet.
func (t *tenants) undoTenant(ctx context.Context, name string) error {
	ns, err := t.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = t.deleteNamespace(ctx, ns)
	}
	return ignoreNotFound(err)
}
