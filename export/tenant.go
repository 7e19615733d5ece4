// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	recordKey = "tenant.json"
	managedBy = "app.kubernetes.io/managed-by"
)

var (
	errForeign     = errors.New("belongs to somebody else")
	errTerminating = errors.New("is being deleted")
	clusterPattern = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$`)
	nameEncoding   = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)
)

// A holder is whom a tenant belongs to: a cluster of an identity. The cluster is a
// name that the client chose; it only tells apart the clusters of that identity.
type holder struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	Cluster string `json:"cluster"`
}

// namespace returns the name of h's tenant namespace. Names are hashes of equal
// length, so that none is the beginning of another one.
func (h holder) namespace(prefix string) string {
	return prefix + "-" + digest(h.Issuer, h.Subject, h.Cluster)
}

// digest is a hash that tells apart all lists of fields.
func digest(fields ...string) string {
	sum := sha256.New()
	for _, field := range fields {
		_ = binary.Write(sum, binary.BigEndian, uint64(len(field))) // a hash takes everything
		_, _ = sum.Write([]byte(field))
	}
	return nameEncoding.EncodeToString(sum.Sum(nil)[:10])
}

// labels are what operators select namespaces of h by.
func (h holder) labels() map[string]string {
	labels := map[string]string{v1alpha1.SubjectLabel: digest(h.Issuer, h.Subject)}
	if len(validation.IsValidLabelValue(h.Cluster)) == 0 {
		labels[v1alpha1.AppClusterLabel] = h.Cluster
	}
	return labels
}

func (h holder) annotations() map[string]string {
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

// A record is what our side remembers of a tenant.
type record struct {
	Identity auth.Identity `json:"identity"`
	Cluster  string        `json:"cluster"`
	// LoggedIn is when the holder last logged in, or bound as a machine.
	LoggedIn time.Time `json:"loggedIn,omitzero"`
	// Services were chosen at logins and allowed then, by name.
	Services []string `json:"services"`
	// Redeemed one-time codes and when they may be forgotten.
	Redeemed map[string]time.Time `json:"redeemed,omitempty"`
}

// bindTenant makes or finds the tenant of r's holder and adds r's services to it.
func (e *Exporter) bindTenant(ctx context.Context, r record) (namespace string, err error) {
	h := holder{r.Identity.Issuer, r.Identity.Subject, r.Cluster}
	namespace, err = e.ensureTenantNamespace(ctx, h)
	if err != nil {
		return "", err
	}
	if err := e.enter(ctx, namespace, v1alpha1.BackendTenantRole); err != nil {
		return "", err
	}
	err = e.updateRecord(ctx, namespace, func(old *record) error {
		r.Services = slices.Compact(slices.Sorted(slices.Values(slices.Concat(old.Services, r.Services))))
		r.Redeemed, r.LoggedIn = old.Redeemed, time.Now().UTC().Truncate(time.Second)
		*old = r
		return nil
	})
	if err != nil {
		return "", err
	}
	if err := e.furnish(ctx, namespace); err != nil {
		return "", err
	}
	_, _, err = e.credential(ctx, namespace, e.revocation)
	return namespace, err
}

// furnish makes what every tenant namespace has beside its credential.
func (e *Exporter) furnish(ctx context.Context, namespace string) error {
	if err := e.ensureClusterBinding(ctx, namespace); err != nil {
		return err // among others because the tenant is being removed
	}
	return e.bindAccount(ctx, namespace, namespace, clusterRole(v1alpha1.TenantServiceAccount))
}

// ensureNamespace makes a namespace of a tenant, or checks that it is the one that
// carries the same annotations. Labels are put on a new one alone.
func (e *Exporter) ensureNamespace(ctx context.Context, name, tenant string, annotations, labels map[string]string) error {
	got, err := e.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		labels = maps.Clone(labels)
		labels[v1alpha1.TenantLabel], labels[managedBy] = tenant, userAgent
		got, err = e.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: annotations, Labels: labels,
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			got, err = e.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
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
			return fmt.Errorf("namespace %s %w: annotation %s", ns.Name, errForeign, key)
		}
	}
	switch {
	case ns.Labels[v1alpha1.TenantLabel] != tenant:
		return fmt.Errorf("namespace %s %w: label %s", ns.Name, errForeign, v1alpha1.TenantLabel)
	case ns.DeletionTimestamp != nil:
		return fmt.Errorf("namespace %s %w", ns.Name, errTerminating)
	}
	return nil
}

func (e *Exporter) ensureClusterBinding(ctx context.Context, namespace string) error {
	bindings := e.dyn.Resource(clusterBindingResource).Namespace(namespace)
	got, err := bindings.Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err == nil && got.GetDeletionTimestamp() != nil {
		return fmt.Errorf("tenant %s %w%s", namespace, errTerminating, awaited(got))
	}
	if !apierrors.IsNotFound(err) {
		return ensured(err, "cluster binding", namespace)
	}
	want := &v1alpha1.ClusterBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ClusterBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ClusterBindingName, Namespace: namespace, Finalizers: []string{v1alpha1.TenantFinalizer}},
		Spec: v1alpha1.ClusterBindingSpec{
			KubeconfigSecretRef: v1alpha1.LocalSecretKeyRef{Name: v1alpha1.KubeconfigSecretName, Key: v1alpha1.KubeconfigKey},
			ProviderPrettyName:  e.opts.Name,
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

// ensured wraps the error of a write; that another writer was faster is none.
func ensured(err error, what, namespace string) error {
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("make %s in %s: %w", what, namespace, err)
}

// errNoRecord says that a namespace is not a tenant's.
var errNoRecord = errors.New("is not a tenant of this backend")

func (e *Exporter) readRecord(ctx context.Context, namespace string) (*record, *corev1.Secret, error) {
	secret, err := e.kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.TenantRecordSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("namespace %s %w", namespace, errNoRecord)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	r := &record{}
	if err := json.Unmarshal(secret.Data[recordKey], r); err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	return r, secret, nil
}

// manyWriters is for one object that many replicas and logins may write at once.
var manyWriters = wait.Backoff{Steps: 30, Duration: 10 * time.Millisecond, Factor: 1.3, Jitter: 1, Cap: time.Second}

func conflicting(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// updateRecord writes what change makes of the record, unless change fails or
// changes nothing. Change is called again when another writer was faster.
func (e *Exporter) updateRecord(ctx context.Context, namespace string, change func(*record) error) error {
	return retry.OnError(manyWriters, conflicting, func() error {
		r, secret, err := e.readRecord(ctx, namespace)
		if errors.Is(err, errNoRecord) {
			r, secret, err = &record{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: namespace}}, nil
		}
		if err != nil {
			return err
		}
		if err := change(r); err != nil {
			return err
		}
		return e.writeRecord(ctx, r, secret)
	})
}

func (e *Exporter) writeRecord(ctx context.Context, r *record, secret *corev1.Secret) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of tenant %s: %w", secret.Namespace, err)
	}
	if string(secret.Data[recordKey]) == string(data) {
		return nil
	}
	secret.Data = map[string][]byte{recordKey: data}
	if err := e.put(ctx, secret); err != nil {
		return fmt.Errorf("write record of tenant %s: %w", secret.Namespace, err)
	}
	return nil
}

// holderOf returns the holder of a tenant namespace, if ns is one: its name has to
// be the one that follows from the holder. Only who may write namespaces can make one.
func holderOf(ns metav1.Object) (holder, bool) {
	var h holder
	if err := json.Unmarshal([]byte(ns.GetAnnotations()[v1alpha1.HolderAnnotation]), &h); err != nil {
		return holder{}, false
	}
	name := ns.GetName()
	prefix := name[:max(0, strings.LastIndex(name, "-"))]
	return h, ns.GetLabels()[v1alpha1.TenantLabel] == name && h.namespace(prefix) == name
}
