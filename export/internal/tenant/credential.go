// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// credentials makes, renews and revokes the kubeconfigs of tenants.
type credentials struct {
	Clients

	opts *Options
}

// Current returns the kubeconfig of a tenant and how long it is good, after
// making or renewing it where needed. After a revocation none is made until the account or its anchor is settle
// old. A person who logs in need not wait: see HandOut.
func (c *credentials) Current(ctx context.Context, namespace string, settle time.Duration) (data []byte, again time.Duration, err error) {
	k, err := c.reachable(ctx)
	if err != nil {
		return nil, 0, err
	}
	k.Namespace = namespace
	err = retried(ctx, fewWriters, conflicting, func() error {
		data, again, err = c.try(ctx, *k, settle)
		return err
	})
	return data, again, err
}

func (c *credentials) try(ctx context.Context, k kubeconfig.Kubeconfig, settle time.Duration) (data []byte, again time.Duration, err error) {
	account, err := c.account(ctx, k.Namespace)
	if err != nil {
		return nil, 0, err
	}
	anchor, made, err := c.anchor(ctx, k.Namespace)
	if err != nil {
		return nil, 0, err
	}
	issuedFor := issuedForHash(k, account, anchor)
	secret, err := c.Kube.CoreV1().Secrets(k.Namespace).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if !fates.Is(err, fates.None, fates.Absent) {
		return nil, 0, fmt.Errorf("read credential of %s: %w", k.Namespace, err)
	}
	if fates.Is(err, fates.Absent) {
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.KubeconfigSecretName, Namespace: k.Namespace}}
	}
	if made && secret.ResourceVersion != "" && secret.Annotations[v1alpha1.IssuedForAnnotation] != issuedFor {
		audit.Record(ctx, "credential revoked", "tenant", k.Namespace) // by the tenant itself, or by hand
	}
	if left := time.Until(Renewal(secret)); secret.Annotations[v1alpha1.IssuedForAnnotation] == issuedFor && left > 0 {
		return secret.Data[v1alpha1.KubeconfigKey], left, nil
	}
	if left := settle - min(age(account), age(anchor)); left > 0 && secret.ResourceVersion != "" {
		return nil, left, nil
	}
	return c.issue(ctx, k, secret, anchor, issuedFor)
}

// age is that of what we have made, by the clock of backends: that of the API server may
// be behind, and what is new would look old enough.
func age(o metav1.Object) time.Duration {
	made := madeAt(o)
	if made.IsZero() {
		made = o.GetCreationTimestamp().Time
	}
	return time.Since(made)
}

// Renewal is when a kubeconfig is to be renewed; the zero time means now.
func Renewal(secret metav1.Object) time.Time {
	at, err := time.Parse(time.RFC3339, secret.GetAnnotations()[v1alpha1.RenewAfterAnnotation])
	if err != nil {
		return time.Time{}
	}
	return at
}

// issue gets a token and writes it into secret.
func (c *credentials) issue(ctx context.Context, k kubeconfig.Kubeconfig, secret, anchor *corev1.Secret, issuedFor string) (data []byte, again time.Duration, err error) {
	token, err := c.lasting(ctx, anchor)
	if err != nil {
		return nil, 0, err
	}
	k.Token = token.Token
	if data, err = k.Write(); err != nil {
		return nil, 0, err
	}
	again = time.Until(token.ExpirationTimestamp.Time) * 2 / 3
	event := "credential issued"
	if secret.ResourceVersion != "" {
		event = "credential rotated"
	}
	secret.Data = map[string][]byte{v1alpha1.KubeconfigKey: data}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.IssuedForAnnotation, issuedFor)
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.RenewAfterAnnotation, time.Now().Add(again).UTC().Format(time.RFC3339))
	if end := token.ExpirationTimestamp.Time; time.Until(end) > c.opts.TokenTTL+time.Minute {
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.LongTokensEndAnnotation, end.UTC().Format(time.RFC3339))
	}
	if err := c.put(ctx, secret); err != nil {
		return nil, 0, fmt.Errorf("write credential of %s: %w", k.Namespace, err)
	}
	audit.Record(ctx, event, "tenant", k.Namespace, "expires", token.ExpirationTimestamp.UTC().Format(time.RFC3339))
	return data, again, nil
}

// legacyKonnectorTTL is how long a token of the legacy konnector lives: off for longer, it never
// comes back by itself, since it brings no new one with a dead one.
const legacyKonnectorTTL = 24 * time.Hour

// lasting is a token that a tenant keeps.
func (c *credentials) lasting(ctx context.Context, anchor *corev1.Secret) (*authenticationv1.TokenRequestStatus, error) {
	ns, err := c.Kube.CoreV1().Namespaces().Get(ctx, anchor.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read tenant namespace: %w", err)
	}
	return c.token(ctx, anchor, c.opts.tokenLife(ns))
}

// tokenLife is for how long the tokens of a tenant are issued.
func (o *Options) tokenLife(tenant metav1.Object) time.Duration {
	life := o.TokenTTL
	if o.usesLegacyKonnector(tenant) {
		life = max(life, legacyKonnectorTTL)
		if age := o.MaxLoginAge; age > 0 {
			life = min(life, age)
		}
	}
	return life
}

func (c *credentials) token(ctx context.Context, anchor *corev1.Secret, life time.Duration) (*authenticationv1.TokenRequestStatus, error) {
	seconds := int64(life.Seconds())
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: anchor.Name, UID: anchor.UID},
	}}
	got, err := c.Kube.CoreV1().ServiceAccounts(anchor.Namespace).CreateToken(ctx, v1alpha1.TenantServiceAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token for %s: %w", anchor.Namespace, err)
	}
	return &got.Status, nil
}

// account finds or makes the ServiceAccount of a tenant. Tokens of one that was deleted
// are not good for another one of the same name.
func (c *credentials) account(ctx context.Context, namespace string) (got *corev1.ServiceAccount, err error) {
	accounts := c.Kube.CoreV1().ServiceAccounts(namespace)
	got, err = accounts.Get(ctx, v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		got, err = accounts.Create(ctx, &corev1.ServiceAccount{
			ObjectMeta:                   madeNow(v1alpha1.TenantServiceAccount),
			AutomountServiceAccountToken: new(bool),
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("make service account in %s: %w", namespace, err)
	}
	return got, nil
}

// madeNow is the metadata of what tokens die with.
func madeNow(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.MadeAtAnnotation: time.Now().UTC().Format(time.RFC3339Nano)}}
}

// anchor finds or makes the Secret that tokens are bound to.
func (c *credentials) anchor(ctx context.Context, namespace string) (got *corev1.Secret, made bool, err error) {
	secrets := c.Kube.CoreV1().Secrets(namespace)
	got, err = secrets.Get(ctx, v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
	if made = fates.Is(err, fates.Absent); made {
		got, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: madeNow(v1alpha1.TokenAnchorSecret)}, metav1.CreateOptions{})
		if fates.Is(err, fates.Exists) { // another one was faster
			made = false
			got, err = secrets.Get(ctx, v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, false, fmt.Errorf("make secret %s/%s: %w", namespace, v1alpha1.TokenAnchorSecret, err)
	}
	return got, made, nil
}

// reachable says how App Clusters reach the API server: as Options say, else as the
// Control Plane Cluster says to everybody in kube-public, else as the backend does.
func (c *credentials) reachable(ctx context.Context) (*kubeconfig.Kubeconfig, error) {
	api := c.opts.APIServer
	if api.URL == "" {
		public, err := c.clusterInfo(ctx)
		if err != nil {
			return nil, err
		}
		if public != nil {
			api = APIServer{URL: public.Server, CAData: firstOf(api.CAData, public.CAData), TLSServerName: cmp.Or(api.TLSServerName, public.TLSServerName)}
		}
	}
	tls := c.opts.Backend.TLSClientConfig
	k := &kubeconfig.Kubeconfig{Server: cmp.Or(api.URL, c.opts.Backend.Host), CAData: firstOf(api.CAData, tls.CAData), TLSServerName: api.TLSServerName}
	if api.URL == "" {
		k.TLSServerName = cmp.Or(k.TLSServerName, tls.ServerName)
	}
	if k.CAData == nil && tls.CAFile != "" { // read anew each time, since it rotates
		ca, err := os.ReadFile(tls.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA of the API server: %w", err)
		}
		k.CAData = ca
	}
	return k, nil
}

// issuedForHash is the hash of what a kubeconfig is issued for; another one has it made anew before
// its time.
func issuedForHash(k kubeconfig.Kubeconfig, account, anchor metav1.Object) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", k.Server, k.CAData, k.TLSServerName, account.GetUID(), anchor.GetUID()))
	return hex.EncodeToString(sum[:8])
}

// madeAt is the zero time where an object does not say.
func madeAt(o metav1.Object) time.Time {
	at, _ := time.Parse(time.RFC3339Nano, o.GetAnnotations()[v1alpha1.MadeAtAnnotation])
	return at
}

// clusterInfo returns what the ConfigMap cluster-info of kube-public tells everybody
// about the API server, as kubeadm makes it, or nil if there is none that the
// backend may read.
func (c *credentials) clusterInfo(ctx context.Context) (*kubeconfig.Kubeconfig, error) {
	info, err := c.Kube.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, "cluster-info", metav1.GetOptions{})
	if fates.Is(err, fates.Absent, fates.Forbidden) {
		return nil, nil //nolint:nilnil // it is an offer
	}
	if err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	return parseClusterInfo(info.Data["kubeconfig"])
}

// parseClusterInfo takes the one cluster of a kubeconfig: its URL, and whom to trust.
func parseClusterInfo(text string) (*kubeconfig.Kubeconfig, error) {
	var config clientcmdv1.Config
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return nil, fmt.Errorf("read cluster-info: %w", err)
	}
	if len(config.Clusters) != 1 {
		return nil, fmt.Errorf("cluster-info names %d clusters, not one", len(config.Clusters))
	}
	c := config.Clusters[0].Cluster
	if u, err := url.Parse(c.Server); err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the server of cluster-info is %q, not an https URL", c.Server)
	}
	return &kubeconfig.Kubeconfig{Server: c.Server, CAData: c.CertificateAuthorityData, TLSServerName: c.TLSServerName}, nil
}

// firstOf returns the first that is not empty.
func firstOf(all ...[]byte) []byte {
	for _, data := range all {
		if len(data) > 0 {
			return data
		}
	}
	return nil
}
