// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ManagedBy is the label that says which program made an object.
const ManagedBy = "app.kubernetes.io/managed-by"

var nameEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A Holder is whom a tenant belongs to: a cluster of an identity. The cluster is a
// name that the client chose; it only tells apart the clusters of that identity.
type Holder struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Cluster string `json:"cluster"`
}

// Namespace returns the name of h's tenant namespace. Names are hashes of equal
// length, so that none is the beginning of another one.
func (h Holder) Namespace(prefix string) string {
	return prefix + "-" + Digest(h.Issuer, h.Subject, h.Cluster)
}

// Digest is a hash that tells apart all lists of fields.
func Digest(fields ...string) string {
	sum := sha256.New()
	for _, field := range fields {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(field))) // a hash takes everything
		_, _ = sum.Write([]byte(field))
	}
	return nameEncoding.EncodeToString(sum.Sum(nil)[:10])
}

// labels are what operators select namespaces of h by.
func (h Holder) labels() map[string]string {
	labels := map[string]string{v1alpha1.SubjectLabel: Digest(h.Issuer, h.Subject)}
	if len(validation.IsValidLabelValue(h.Cluster)) == 0 {
		labels[v1alpha1.AppClusterLabel] = h.Cluster
	}
	return labels
}

// Annotations are those of the tenant namespace of h.
func (h Holder) Annotations() map[string]string {
	data, _ := json.Marshal(h) // three strings
	return map[string]string{
		v1alpha1.HolderAnnotation:   string(data),
		v1alpha1.IdentityAnnotation: h.Subject + "#" + h.Cluster,
	}
}

// serviceNamespaceName returns the name of the service namespace for a namespace
// of the App Cluster: injective, since no name of a namespace begins with "-".
func serviceNamespaceName(tenant, namespace string) string {
	name := tenant + "-" + namespace
	if len(name) <= validation.DNS1123LabelMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(namespace))
	return tenant + "--" + nameEncoding.EncodeToString(sum[:10])
}

// Bind makes or finds the tenant of r's holder and adds r's services to it.
func (t *Tenants) Bind(ctx context.Context, r Record) (namespace string, err error) {
	h := Holder{r.Identity.Issuer, r.Identity.Subject, r.Cluster}
	namespace, err = t.EnsureTenantNamespace(ctx, h)
	if err != nil {
		return "", err
	}
	if err := t.Rights.Enter(ctx, namespace, v1alpha1.BackendTenantRole); err != nil {
		return "", err
	}
	err = t.Records.Update(ctx, namespace, func(old *Record) error {
		r.Services = slices.Compact(slices.Sorted(slices.Values(slices.Concat(old.Services, r.Services))))
		r.Redeemed, r.LoggedIn = old.Redeemed, time.Now().UTC().Truncate(time.Second)
		*old = r
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := t.furnish(ctx, namespace); err != nil {
		return "", err
	}
	_, _, err = t.Credentials.Current(ctx, namespace, t.Opts.Pauses.Settle)
	return namespace, err
}

// furnish makes what every tenant namespace has beside its credential.
func (t *Tenants) furnish(ctx context.Context, namespace string) error {
	if err := t.ensureClusterBinding(ctx, namespace); err != nil {
		return err // among others because the tenant is being removed
	}
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read tenant namespace: %w", err)
	}
	role := v1alpha1.TenantRole
	if hasKlutchKonnector(ns) {
		role = v1alpha1.KlutchKonnectorRole
	}
	return t.Rights.bind(ctx, namespace, namespace, clusterRole(role))
}

// ensureNamespace makes a namespace of a tenant, or checks that it is the one that
// carries the same annotations. Labels are put on a new one alone.
func (t *Tenants) ensureNamespace(ctx context.Context, name, tenant string, annotations, labels map[string]string) error {
	got, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		labels = maps.Clone(labels)
		labels[v1alpha1.TenantLabel], labels[ManagedBy] = tenant, UserAgent
		got, err = t.Kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: annotations, Labels: labels,
		}}, metav1.CreateOptions{})
		if fates.Is(err, fates.Exists) {
			got, err = t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return owned(got, tenant, annotations)
}

func owned(ns *corev1.Namespace, tenant string, annotations map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if ns.Annotations[key] != annotations[key] {
			return fmt.Errorf("namespace %s %w: annotation %s", ns.Name, ErrForeign, key)
		}
	}
	switch {
	case ns.Labels[v1alpha1.TenantLabel] != tenant:
		return fmt.Errorf("namespace %s %w: label %s", ns.Name, ErrForeign, v1alpha1.TenantLabel)
	case ns.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s %w", ns.Name, ErrTerminating)
	}
	return nil
}

func (t *Tenants) ensureClusterBinding(ctx context.Context, namespace string) error {
	bindings := t.Dyn.Resource(ClusterBindingResource).Namespace(namespace)
	got, err := bindings.Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err == nil && got.GetDeletionTimestamp() != nil {
		return fmt.Errorf("tenant %s %w%s", namespace, ErrTerminating, awaited(got))
	}
	if !fates.Is(err, fates.Absent) {
		return ensured(err, "cluster binding", namespace)
	}
	want := &v1alpha1.ClusterBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterBindingName, Namespace: namespace, Finalizers: []string{v1alpha1.TenantFinalizer}},
		Spec: v1alpha1.ClusterBindingSpec{
			KubeconfigSecretRef: v1alpha1.LocalSecretKeyRef{Name: v1alpha1.KubeconfigSecretName, Key: v1alpha1.KubeconfigKey},
			ProviderPrettyName:  t.Opts.Platform,
		},
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err == nil {
		_, err = bindings.Create(ctx, &unstructured.Unstructured{Object: u}, metav1.CreateOptions{})
	}
	return ensured(err, "cluster binding", namespace)
}

// awaited says what the removal of a tenant waits for.
func awaited(binding *unstructured.Unstructured) string {
	b := &v1alpha1.ClusterBinding{}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(binding.Object, b) // without a word where it says none
	if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionRemoved); c != nil {
		return ": " + c.Message
	}
	return ""
}

// holderOf returns the holder of a tenant namespace, if ns is one: its name has to
// be the one that follows from the holder. Only who may write namespaces can make one.
func holderOf(ns metav1.Object) (Holder, bool) {
	var h Holder
	if err := json.Unmarshal([]byte(ns.GetAnnotations()[v1alpha1.HolderAnnotation]), &h); err != nil {
		return Holder{}, false
	}
	name := ns.GetName()
	prefix := name[:max(0, strings.LastIndex(name, "-"))]
	return h, ns.GetLabels()[v1alpha1.TenantLabel] == name && h.Namespace(prefix) == name
}

// Tenants makes tenants and gives them their credentials, at any replica.
type Tenants struct {
	Clients

	Opts        *Options
	Rights      *Rights
	Records     *records
	Credentials *credentials
}

// New returns Tenants. It does no I/O.
func New(c Clients, opts *Options) *Tenants {
	return &Tenants{c, opts, &Rights{Clients: c}, &records{c}, &credentials{Clients: c, opts: opts}}
}

// ErrCapped says that there are as many as there may be.
var ErrCapped = errors.New("is one too many")

// capTenants returns an error that wraps ErrCapped if there would be more tenants than
// may be, or more of h's identity, once there were so many more.
func (t *Tenants) capTenants(ctx context.Context, h Holder, more int) error {
	caps := t.Opts.Caps
	if caps.Tenants < 0 && caps.PerIdentity < 0 {
		return nil
	}
	list, err := t.Meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.TenantLabel + ",!" + v1alpha1.AppNamespaceLabel,
	})
	if err != nil {
		return fmt.Errorf("count tenants: %w", err)
	}
	all, own := more, more
	for _, ns := range list.Items {
		if other, ok := holderOf(&ns); ok {
			all++
			own += One(other.Issuer == h.Issuer && other.Subject == h.Subject)
		}
	}
	switch {
	case caps.PerIdentity >= 0 && own > caps.PerIdentity:
		return fmt.Errorf("the App Cluster %s %w: you have bound %d, and the platform allows no more", h.Cluster, ErrCapped, caps.PerIdentity)
	case caps.Tenants >= 0 && all > caps.Tenants:
		return fmt.Errorf("the App Cluster %s %w: the platform has no room for more than %d", h.Cluster, ErrCapped, caps.Tenants)
	}
	return nil
}

// EnsureTenantNamespace makes the namespace of a tenant unless that is one too many.
// It counts before and after: of many that come at once none stays beyond a cap,
// though some may be refused that would have fitted.
func (t *Tenants) EnsureTenantNamespace(ctx context.Context, h Holder) (string, error) {
	name := h.Namespace(t.Opts.NamespacePrefix)
	_, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !fates.Is(err, fates.Absent) {
		return name, t.ensureNamespace(ctx, name, name, h.Annotations(), h.labels())
	}
	if err := t.checkElsewhere(ctx, h); err != nil {
		return "", err
	}
	if err := t.capTenants(ctx, h, 1); err != nil {
		return "", err
	}
	if err := t.ensureNamespace(ctx, name, name, h.Annotations(), h.labels()); err != nil {
		return "", err
	}
	if err := t.capTenants(ctx, h, 0); err != nil {
		return "", errors.Join(err, t.undoTenant(ctx, name))
	}
	return name, nil
}

// checkElsewhere returns an error that wraps ErrForeign if Klutch's backend has made a tenant
// for h: it serves an identity no more that two namespaces carry.
func (t *Tenants) checkElsewhere(ctx context.Context, h Holder) error {
	opts := metav1.ListOptions{Limit: namespacesPage}
	for identity := h.Annotations()[v1alpha1.IdentityAnnotation]; ; {
		list, err := t.Meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, opts)
		if err != nil {
			return fmt.Errorf("look for a tenant of Klutch's backend: %w", err)
		}
		for i := range list.Items {
			ns := &list.Items[i]
			if _, ours := holderOf(ns); !ours && ns.Annotations[v1alpha1.IdentityAnnotation] == identity {
				return fmt.Errorf("namespace %s %w: Klutch's backend has made it for this App Cluster of yours, and would serve you no more beside a second one; nothing was made", ns.Name, ErrForeign)
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return nil
		}
	}
}

const namespacesPage = 500 // namespaces a request

// undoTenant deletes a tenant namespace in which nothing has been made yet.
func (t *Tenants) undoTenant(ctx context.Context, name string) error {
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = t.deleteNamespace(ctx, ns)
	}
	return IgnoreNotFound(err)
}
