// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// chooseSecret decides which Secret holds the kubeconfig. A Secret that leads to another tenant is
// never overwritten, and all bindings to one tenant share a Secret.
func (i *installer) chooseSecret(ctx context.Context) error {
	secrets, err := i.secrets(ctx)
	if err != nil {
		return err
	}
	i.secret = i.bestSecret(secrets)
	same, there := secrets[i.secret]
	if there && !same {
		return fmt.Errorf("secret %s/%s: %w", v1alpha1.Namespace, i.secret, ErrConflict)
	}
	i.secretThere = there
	for _, service := range i.services {
		b := i.existing[service.String()]
		if b == nil || b.Spec.KubeconfigSecretRef.Name == i.secret && b.Spec.KubeconfigSecretRef.Namespace == v1alpha1.Namespace {
			continue
		}
		ref := b.Spec.KubeconfigSecretRef
		return fmt.Errorf("APIServiceBinding %s uses secret %s/%s, which is not for %s, namespace %s, or is a copy of what a platform handed out: %w",
			b.Name, ref.Namespace, ref.Name, i.target.Server, i.target.Namespace, ErrConflict)
	}
	return nil
}

// secrets returns the names of the Secrets in the namespace, and whether they may be used: one
// leads to the same server and namespace, under the same CA or by the word of the same
// backend, or one of that backend's has no kubeconfig any more that can be read; and either Install
// made it or a binding uses it already, as those by hand and of the legacy CLI. Another Secret
// there may be of any origin.
func (i *installer) secrets(ctx context.Context) (map[string]bool, error) {
	list, err := i.app.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("secrets in %s: %w", v1alpha1.Namespace, err)
	}
	bindings, err := i.app.List(ctx)
	if err != nil {
		return nil, err
	}
	secrets := map[string]bool{}
	i.byHand = sets.New[string]()
	for n := range list.Items {
		u := &list.Items[n]
		used := slices.ContainsFunc(bindings, names(u))
		strange := ofAnother(u, i.opts.Backend) && !sameTrust(u, i.target)
		leads := cluster.LeadsTo(u, i.target) && !strange
		if !leads && sameHost(cluster.Backend(u), i.opts.Backend) {
			if leads, err = spoilt(ctx, u, i.target); err != nil {
				return nil, err
			}
		}
		secrets[u.GetName()] = (used || installed(u)) && leads
		if !installed(u) {
			i.byHand.Insert(u.GetName())
		}
	}
	return secrets, nil
}

// bestSecret is one that may be used. Where there is none, a binding
// that lost its Secret gets it back; else a name is made that everyone makes who binds
// to that place.
func (i *installer) bestSecret(secrets map[string]bool) string {
	same := slices.Sorted(maps.Keys(secrets))
	same = slices.DeleteFunc(same, func(name string) bool { return !secrets[name] })
	for _, service := range i.services {
		b := i.existing[service.String()]
		if b == nil || b.Spec.KubeconfigSecretRef.Namespace != v1alpha1.Namespace {
			continue
		}
		name := b.Spec.KubeconfigSecretRef.Name
		if _, there := secrets[name]; secrets[name] || len(same) == 0 && !there {
			return name
		}
	}
	return append(same, secretName(i.target))[0]
}

// secretName is "kubeconfig-xxxxx", the same for the same server and namespace.
func secretName(k *kubeconfig.Kubeconfig) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q", k.Server, k.Namespace)
	suffix := rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 36))
	return "kubeconfig-" + suffix[len(suffix)-5:]
}

// writeSecret writes the five fields that were read, not what came, and which tenant
// they lead to now.
func (i *installer) writeSecret(ctx context.Context) error {
	data, err := i.target.Write()
	if err != nil {
		return err
	}
	tenant, err := cluster.TenantUID(ctx, i.tenant, i.target.Namespace)
	if err != nil && !cluster.IsHidden(err) {
		return err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: i.secret},
		Data:       map[string][]byte{v1alpha1.KubeconfigKey: data},
	}
	if !i.byHand.Has(i.secret) {
		secret.Labels = map[string]string{madeByLabel: cluster.FieldManager}
	}
	backend, err := i.backend(ctx)
	if err != nil {
		return err
	}
	for key, value := range map[string]string{v1alpha1.TenantUIDAnnotation: string(tenant), v1alpha1.BackendAnnotation: backend} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&secret.ObjectMeta, key, value)
		}
	}
	if _, err := i.apply(ctx, cluster.Secrets, cluster.Manifest(secret)); err != nil {
		return err
	}
	i.did("%s secret %s/%s for host %s, namespace %s", written(i.secretThere), v1alpha1.Namespace, i.secret, i.target.Server, i.target.Namespace)
	return nil
}

// backend is the URL of the login, or that of the one before.
func (i *installer) backend(ctx context.Context) (string, error) {
	if i.opts.Backend != "" || !i.secretThere {
		return i.opts.Backend, nil
	}
	u, err := i.app.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace).Get(ctx, i.secret, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("secret %s/%s: %w", v1alpha1.Namespace, i.secret, err)
	}
	return u.GetAnnotations()[v1alpha1.BackendAnnotation], nil
}
