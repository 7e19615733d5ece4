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
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	recordKey = "tenant.json"
	managedBy = "app.kubernetes.io/managed-by"
)

var (
	errForeign     = errors.New("belongs to somebody else")
	errTerminating = errors.New("is being deleted")
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

// bind makes or finds the tenant of r's holder and adds r's services to it.
func (t *tenants) bind(ctx context.Context, r record) (namespace string, err error) {
	h := holder{r.Identity.Issuer, r.Identity.Subject, r.Cluster}
	namespace, err = t.ensureTenantNamespace(ctx, h)
	if err != nil {
		return "", err
	}
	if err := t.rights.enter(ctx, namespace, v1alpha1.BackendTenantRole); err != nil {
		return "", err
	}
	err = t.records.update(ctx, namespace, func(old *record) error {
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
	_, _, err = t.credentials.current(ctx, namespace, t.opts.Pauses.Settle)
	return namespace, err
}

// furnish makes what every tenant namespace has beside its credential.
func (t *tenants) furnish(ctx context.Context, namespace string) error {
	if err := t.ensureClusterBinding(ctx, namespace); err != nil {
		return err // among others because the tenant is being removed
	}
	return t.rights.bind(ctx, namespace, namespace, clusterRole(v1alpha1.TenantServiceAccount))
}

// ensureNamespace makes a namespace of a tenant, or checks that it is the one that
// carries the same annotations. Labels are put on a new one alone.
func (t *tenants) ensureNamespace(ctx context.Context, name, tenant string, annotations, labels map[string]string) error {
	got, err := t.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		labels = maps.Clone(labels)
		labels[v1alpha1.TenantLabel], labels[managedBy] = tenant, userAgent
		got, err = t.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: annotations, Labels: labels,
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			got, err = t.kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
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

func (t *tenants) ensureClusterBinding(ctx context.Context, namespace string) error {
	bindings := t.dyn.Resource(clusterBindingResource).Namespace(namespace)
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
			ProviderPrettyName:  t.opts.Platform,
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
func holderOf(ns metav1.Object) (holder, bool) {
	var h holder
	if err := json.Unmarshal([]byte(ns.GetAnnotations()[v1alpha1.HolderAnnotation]), &h); err != nil {
		return holder{}, false
	}
	name := ns.GetName()
	prefix := name[:max(0, strings.LastIndex(name, "-"))]
	return h, ns.GetLabels()[v1alpha1.TenantLabel] == name && h.namespace(prefix) == name
}
