// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrNotRotated says that a new credential dies with the very thing that the one before
// it dies with: what was stolen is as good as before.
var ErrNotRotated = errors.New("the backend has not replaced the credential")

// A Credential is a kubeconfig Secret in namespace klutch-bind that bindings use.
type Credential struct {
	// Secret is its name.
	Secret string
	// Backend is the URL at which a login gets another one; empty if it was not written down.
	Backend string
	// Services are those of the bindings that use it, as "<resource>.<group>".
	Services []string
	// Ends is when its token ends; zero if that does not say. A konnector fetches the next one
	// long before, and cannot with one that has ended.
	Ends time.Time

	secret     *unstructured.Unstructured
	kubeconfig *kubeconfig.Kubeconfig
}

// Credentials returns the credentials of an App Cluster, by name, without the Secrets that a
// konnector copied.
func Credentials(ctx context.Context, config *rest.Config) ([]Credential, error) {
	app, bindings, err := openBound(ctx, config)
	if err != nil {
		return nil, err
	}
	services := map[string][]string{}
	for _, b := range bindings {
		if ref := b.Spec.KubeconfigSecretRef; ref.Namespace == v1alpha1.Namespace {
			services[ref.Name] = append(services[ref.Name], b.Name)
		}
	}
	var all []Credential
	for name, used := range services {
		c, err := credential(ctx, app, name, used)
		if err != nil {
			return nil, err
		}
		if c != nil {
			all = append(all, *c)
		}
	}
	slices.SortFunc(all, func(a, b Credential) int { return strings.Compare(a.Secret, b.Secret) })
	return all, nil
}

// Platforms returns the URLs of the backends at which an App Cluster was bound, sorted, as
// the Secrets of its bindings name them, also one whose kubeconfig cannot be read.
func Platforms(ctx context.Context, config *rest.Config) (urls []string, err error) {
	err = eachSecret(ctx, config, func(_ v1alpha1.APIServiceBinding, u *unstructured.Unstructured) {
		if u != nil && cluster.Backend(u) != "" {
			urls = append(urls, cluster.Backend(u))
		}
	})
	slices.Sort(urls)
	return slices.Compact(urls), err
}

// BoundAt returns the names of the bindings that a login at a backend can bind again: those of
// its credentials, and those whose Secret is gone or does not say where it came from, if the
// platform was called platform.
func BoundAt(ctx context.Context, config *rest.Config, backend, platform string) (names []string, err error) {
	err = eachSecret(ctx, config, func(b v1alpha1.APIServiceBinding, u *unstructured.Unstructured) {
		from := ""
		if u != nil {
			from = cluster.Backend(u)
		}
		if sameHost(from, backend) || from == "" && (b.Status.ProviderPrettyName == "" || b.Status.ProviderPrettyName == platform) {
			names = append(names, b.Name)
		}
	})
	slices.Sort(names)
	return names, err
}

// Elsewhere returns those of the bindings named by BoundAt whose Secret leads to another tenant
// than a kubeconfig from a login does: another person has bound them.
func Elsewhere(ctx context.Context, config *rest.Config, names []string, data []byte) (others []string, err error) {
	k, err := kubeconfig.Read(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the backend: %w", err)
	}
	var errs []error
	err = eachSecret(ctx, config, func(b v1alpha1.APIServiceBinding, u *unstructured.Unstructured) {
		if u == nil || !slices.Contains(names, b.Name) || cluster.LeadsTo(u, k) {
			return
		}
		if ours, err := spoilt(ctx, u, k); err != nil {
			errs = append(errs, err)
		} else if !ours {
			others = append(others, b.Name)
		}
	})
	return others, errors.Join(append(errs, err)...)
}

// spoilt tells whether a Secret from a login has no kubeconfig any more that can be read, and is of
// the tenant that k leads to. Where that is not on record the one who logs in is believed, as where
// the Secret is gone.
func spoilt(ctx context.Context, u *unstructured.Unstructured, k *kubeconfig.Kubeconfig) (bool, error) {
	if _, err := cluster.ReadSecret(u); err == nil || cluster.Backend(u) == "" {
		return false, nil
	}
	return ofTenant(ctx, u, k)
}

// ofTenant tells whether a Secret is of the tenant that k leads to; true where it does not say.
func ofTenant(ctx context.Context, u *unstructured.Unstructured, k *kubeconfig.Kubeconfig) (bool, error) {
	of := types.UID(u.GetAnnotations()[v1alpha1.TenantUIDAnnotation])
	if of == "" {
		return true, nil
	}
	client, err := cluster.TenantClient(k)
	if err != nil {
		return false, err
	}
	var tenant types.UID
	err = retry(ctx, untilKnown, func() (err error) {
		tenant, err = cluster.TenantUID(ctx, client, k.Namespace)
		return err
	})
	return tenant == of, err
}

// openBound returns an App Cluster and its bindings.
func openBound(ctx context.Context, config *rest.Config) (*cluster.App, []v1alpha1.APIServiceBinding, error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	bindings, err := app.List(ctx)
	return app, bindings, err
}

// eachSecret calls do with each binding of an App Cluster and its Secret, or nil where that
// is gone.
func eachSecret(ctx context.Context, config *rest.Config, do func(v1alpha1.APIServiceBinding, *unstructured.Unstructured)) error {
	app, bindings, err := openBound(ctx, config)
	if err != nil {
		return err
	}
	for _, b := range bindings {
		u, err := secretOf(ctx, app, b)
		if err != nil {
			return err
		}
		do(b, u)
	}
	return nil
}

// secretOf returns nil where the Secret of a binding is gone.
func secretOf(ctx context.Context, app *cluster.App, b v1alpha1.APIServiceBinding) (*unstructured.Unstructured, error) {
	ref := b.Spec.KubeconfigSecretRef
	u, err := cluster.Get[unstructured.Unstructured](ctx, app.Resource(cluster.Secrets).Namespace(ref.Namespace), ref.Name)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	return u, nil
}

// credential returns nil where there is none to be renewed.
func credential(ctx context.Context, app *cluster.App, name string, services []string) (*Credential, error) {
	u, err := cluster.Get[unstructured.Unstructured](ctx, app.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace), name)
	if err != nil {
		return nil, fmt.Errorf("secret %s/%s: %w", v1alpha1.Namespace, name, err)
	}
	if u == nil {
		return nil, nil //nolint:nilnil // absence is a value
	}
	k, err := cluster.ReadSecret(u)
	if err != nil { // a copy is refused too
		return nil, nil //nolint:nilerr,nilnil // a binding that uses it says what is wrong
	}
	slices.Sort(services)
	return &Credential{
		Secret: name, Backend: u.GetAnnotations()[v1alpha1.BackendAnnotation], Services: services, Ends: cluster.ReadToken(k.Token).Ends(), secret: u, kubeconfig: k,
	}, nil
}

// Replace writes a kubeconfig from a new login into the Secret, from where the konnector
// takes its token up, also after the end of ctx, see storing. It has to lead to the same place.
// The error is ErrNotRotated if it was written, and the tokens before it are as good as they were.
func (c Credential) Replace(ctx context.Context, config *rest.Config, data []byte) error {
	ctx, cancel := storing(ctx)
	defer cancel()
	k, err := kubeconfig.Read(data)
	if err != nil {
		return fmt.Errorf("kubeconfig of the backend: %w", err)
	}
	if !cluster.LeadsTo(c.secret, k) {
		return fmt.Errorf("the login leads to %s, namespace %s, and Secret %s/%s to %s, namespace %s: log in as the one who bound it: %w",
			k.Server, k.Namespace, v1alpha1.Namespace, c.Secret, c.kubeconfig.Server, c.kubeconfig.Namespace, ErrConflict)
	}
	if err := c.write(ctx, config, k); err != nil {
		return fmt.Errorf("write secret %s/%s: %w", v1alpha1.Namespace, c.Secret, err)
	}
	before, after := cluster.ReadToken(c.kubeconfig.Token).Kubernetes.Secret.UID, cluster.ReadToken(k.Token).Kubernetes.Secret.UID
	if before == after {
		return ErrNotRotated
	}
	return nil
}

// storing is a context to store what a login has handed out, half a minute long: the login has ended
// the credential before it, so that a person who gives up then would leave the App Cluster with none.
func storing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
}

func (c Credential) write(ctx context.Context, config *rest.Config, k *kubeconfig.Kubeconfig) error {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return err
	}
	data, err := k.Write()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret",
		"metadata": map[string]any{"uid": c.secret.GetUID()}, "data": map[string][]byte{v1alpha1.KubeconfigKey: data},
	})
	if err != nil {
		return err
	}
	_, err = app.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace).Patch(ctx, c.Secret, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: cluster.FieldManager})
	return fates.Withheld(err)
}

// Renew replaces the credentials of an App Cluster that lead to the tenant of a new login's
// kubeconfig: the login has ended the tokens before it, and existing bindings go on with the new
// one, whether or not the rest of the command succeeds. Backend is the URL of the login: a credential
// that came from another backend stays, although this kubeconfig leads to the same place, and so does one of
// unknown origin whose tenant does not take the new token. Renew goes on after the end of ctx, see
// storing. It returns the Secrets.
func Renew(ctx context.Context, config *rest.Config, backend string, data []byte) (secrets []string, err error) {
	k, err := kubeconfig.Read(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the backend: %w", err)
	}
	ctx, cancel := storing(ctx)
	defer cancel()
	all, err := Credentials(ctx, config)
	for _, c := range all {
		if !cluster.LeadsTo(c.secret, k) || ofAnother(c.secret, backend) || c.Backend == "" && (!sameTrust(c.secret, k) || !c.takes(ctx, k)) {
			continue
		}
		if same, err := ofTenant(ctx, c.secret, k); err == nil && !same {
			continue // the tenant was made anew: an install writes token and tenant at once, and is the consent
		}
		if err := c.Replace(ctx, config, data); err != nil && !errors.Is(err, ErrNotRotated) {
			return secrets, err
		}
		secrets = append(secrets, c.Secret)
	}
	return secrets, err
}

// ofAnother tells whether a Secret says that another backend than this one handed out its
// kubeconfig. One of an earlier version does not say which.
func ofAnother(secret *unstructured.Unstructured, backend string) bool {
	known := secret.GetAnnotations()[v1alpha1.BackendAnnotation]
	return known != "" && backend != "" && !sameHost(known, backend)
}

// takes tells whether the tenant of a credential takes the token of k: another backend can say where
// that leads, and not make it. It asks for what each konnector reads there.
func (c Credential) takes(ctx context.Context, k *kubeconfig.Kubeconfig) bool {
	client, err := cluster.TenantClient(k)
	if err != nil {
		return false
	}
	err = retry(ctx, untilKnown, func() error {
		_, err := cluster.Get[metav1.PartialObjectMetadata](ctx, client.Resource(cluster.APIServiceExports).Namespace(k.Namespace), c.Services[0])
		return err
	})
	return !untilKnown(err)
}

// sameTrust tells whether a Secret and a kubeconfig trust the same CA, for the same name: under another one a
// machine in between could be that server.
func sameTrust(secret *unstructured.Unstructured, k *kubeconfig.Kubeconfig) bool {
	before, err := cluster.ReadSecret(secret)
	return err == nil && bytes.Equal(before.CAData, k.CAData) && before.TLSServerName == k.TLSServerName
}

// sameHost tells whether two URLs are of one backend.
func sameHost(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && x.Host != "" && strings.EqualFold(x.Host, y.Host)
}
