// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// HandOut returns a kubeconfig of a tenant for a person or machine that has just proven its
// identity. HandOut replaces a token anchor that is older than Pauses.Rotation, which ends all tokens
// bound to the old anchor. API servers accept an ended token for some seconds more, and its holder may read
// the tenant's Secret: so HandOut does not store the new token there. The tenant reconcile makes the
// token for the Secret after Pauses.Settle.
func (c *credentials) HandOut(ctx context.Context, namespace string) ([]byte, error) {
	n, err := c.next(ctx, namespace, c.rotateAnchor)
	if n.kept != nil || err != nil {
		return n.kept, err
	}
	return n.with(c.lasting(ctx, n.anchor))
}

// Short returns a kubeconfig for the legacy CLI, with a token that ends in minutes, since browsers
// keep the URLs that they were sent to; the konnector replaces it by the kept one. Of the older
// tokens Short ends only those that the legacy backend made, which never end by themselves.
func (c *credentials) Short(ctx context.Context, namespace string) ([]byte, error) {
	n, err := c.next(ctx, namespace, c.ownAnchor)
	if err != nil {
		return nil, err
	}
	return n.with(c.token(ctx, n.anchor, MinTokenTTL))
}

// A successor is the next kubeconfig of a tenant, without its token.
type successor struct {
	*kubeconfig.Kubeconfig

	anchor *corev1.Secret // that its token is to be bound to
	kept   []byte         // the kubeconfig of the kept Secret, if its token is bound to this anchor; else nil
}

// with writes it with its token.
func (n successor) with(token *authenticationv1.TokenRequestStatus, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	n.Token = token.Token
	return n.Write()
}

// next prepares a tenant's next kubeconfig. choose returns the anchor and may replace it, which ends
// all older tokens. next empties the kept Secret if its token is dead, so that no konnector fetches
// it; the replica that keeps credentials then makes it anew.
func (c *credentials) next(ctx context.Context, namespace string, choose func(context.Context, string) (*corev1.Secret, error)) (n successor, err error) {
	if _, err := stays(ctx, c.Clients, namespace); err != nil { // since the code was made that is traded for it
		return n, err
	}
	if n.Kubeconfig, err = c.reachable(ctx); err != nil {
		return n, err
	}
	n.Namespace = namespace
	account, err := c.account(ctx, namespace)
	if err != nil {
		return n, err
	}
	if n.anchor, err = choose(ctx, namespace); err != nil {
		return n, err
	}
	n.kept, err = c.keptOrEmptied(ctx, namespace, issuedForHash(*n.Kubeconfig, account, n.anchor))
	if n.kept == nil && err == nil {
		err = c.noteAnchor(ctx, n.anchor)
	}
	return n, err
}

// rotateAnchor replaces the Secret that tokens are bound to, unless it is new.
func (c *credentials) rotateAnchor(ctx context.Context, namespace string) (*corev1.Secret, error) {
	anchor, _, err := c.anchor(ctx, namespace)
	if err != nil || time.Since(madeAt(anchor)) < c.opts.Pauses.Rotation {
		return anchor, err
	}
	err = c.Kube.CoreV1().Secrets(namespace).Delete(ctx, anchor.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &anchor.UID}})
	if !fates.Is(err, fates.None, fates.Absent, fates.Conflict) { // another login was faster
		return nil, fmt.Errorf("revoke the credential of %s: %w", namespace, err)
	}
	if err == nil {
		audit.Record(ctx, "credential replaced", "tenant", namespace)
	}
	anchor, _, err = c.anchor(ctx, namespace)
	return anchor, err
}

// ownAnchor is the Secret that tokens are bound to, in the place of Klutch's.
func (c *credentials) ownAnchor(ctx context.Context, namespace string) (*corev1.Secret, error) {
	anchor, _, err := c.anchor(ctx, namespace)
	if err == nil && anchor.Type == corev1.SecretTypeServiceAccountToken {
		return c.rotateAnchor(ctx, namespace)
	}
	return anchor, err
}

// noteAnchor writes the UID of the anchor on the ClusterBinding, so that the replica that keeps
// credentials looks at the tenant again.
func (c *credentials) noteAnchor(ctx context.Context, anchor *corev1.Secret) error {
	change := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnchorAnnotation, anchor.UID)
	_, err := c.Dyn.Resource(ClusterBindingResource).Namespace(anchor.Namespace).
		Patch(ctx, v1alpha1.ClusterBindingName, types.MergePatchType, change, metav1.PatchOptions{})
	if IgnoreNotFound(err) != nil {
		return fmt.Errorf("note the rotation of %s: %w", anchor.Namespace, err)
	}
	return nil
}

// keptOrEmptied returns the kubeconfig that is kept for a tenant if it was issued for what issuedFor stands for (this
// API server, account and anchor) and is not due for renewal. Any other it empties, and returns nil: its token is
// dead, and a konnector with a newer one must not take it over. Klutch's would take over an empty one, too: where it
// may be used, the Secret is deleted, and made anew at once.
func (c *credentials) keptOrEmptied(ctx context.Context, namespace, issuedFor string) (kept []byte, err error) {
	err = retried(ctx, manyWriters, conflicting, func() error {
		kept = nil
		secret, err := c.Kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
		switch {
		case fates.Is(err, fates.Absent):
			return nil
		case err != nil:
			return err
		case secret.Annotations[v1alpha1.IssuedForAnnotation] == issuedFor && time.Until(Renewal(secret)) > 0:
			kept = secret.Data[v1alpha1.KubeconfigKey]
			return nil
		case len(secret.Data) == 0:
			return nil
		}
		ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if c.opts.usesLegacyKonnector(ns) {
			return IgnoreNotFound(c.Kube.CoreV1().Secrets(namespace).Delete(ctx, secret.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &secret.UID, ResourceVersion: &secret.ResourceVersion}}))
		}
		secret.Data = nil
		delete(secret.Annotations, v1alpha1.IssuedForAnnotation)
		delete(secret.Annotations, v1alpha1.RenewAfterAnnotation)
		return c.put(ctx, secret)
	})
	if err != nil {
		return nil, fmt.Errorf("read credential of %s: %w", namespace, err)
	}
	return kept, nil
}
