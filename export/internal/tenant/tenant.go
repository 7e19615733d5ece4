// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/internal/audit"
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

func (r *Record) holder() Holder { return Holder{r.Identity.Issuer, r.Identity.Subject, r.Cluster} }

// labels are what operators select namespaces of h by.
func (h Holder) labels() map[string]string {
	labels := map[string]string{v1alpha1.SubjectLabel: Digest(h.Issuer, h.Subject)}
	if len(validation.IsValidLabelValue(h.Cluster)) == 0 {
		labels[v1alpha1.AppClusterLabel] = h.Cluster
	}
	return labels
}

// Annotations are the annotations of the tenant namespace of h.
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
	r.LoggedIn = time.Now().UTC().Truncate(time.Second)
	namespace, err = t.EnsureTenantNamespace(ctx, &r)
	if err != nil {
		return "", err
	}
	if err := t.Rights.Enter(ctx, namespace, v1alpha1.BackendTenantRole); err != nil {
		return "", err
	}
	err = t.Records.Update(ctx, namespace, func(old *Record) error {
		r.Services = slices.Compact(slices.Sorted(slices.Values(slices.Concat(old.Services, r.Services))))
		r.Redeemed = old.Redeemed
		*old = r
		return nil
	})
	if err != nil {
		return "", err
	}
	err = retried(ctx, manyWriters, conflicting, func() error {
		if err := t.furnish(ctx, namespace); err != nil {
			return err
		}
		if _, _, err := t.Credentials.Current(ctx, namespace, t.Opts.Pauses.Settle); err != nil {
			return err
		}
		if namespace != r.holder().Namespace(t.Opts.NamespacePrefix) {
			return t.narrow(ctx, namespace)
		}
		return nil
	})
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
	if t.Opts.usesLegacyKonnector(ns) {
		role = v1alpha1.KlutchKonnectorRole
	}
	_, err = t.Rights.bind(ctx, namespace, namespace, clusterRole(role), false)
	if t.Opts.KlutchKonnectors && fates.DeniedBy(err, "klutch-backend") {
		return RefuseForNow(v1alpha1.ReasonMissingRights, fmt.Sprintf("the platform operator has to run kubectl apply -k deploy/klutch-konnectors for --klutch-konnectors=all (%s)", fates.Stable(err)), err)
	}
	return err
}

// ensureNamespace makes a namespace of a tenant, or checks that it is the one that
// carries the same annotations. Labels are put on a new one alone.
func (t *Tenants) ensureNamespace(ctx context.Context, name, tenant string, annotations, labels map[string]string) error {
	got, _, err := t.obtainNamespace(ctx, false, metav1.ObjectMeta{Name: name, Annotations: annotations, Labels: labels}, tenant)
	if err != nil {
		return err
	}
	return checkOwned(got, tenant, annotations)
}

// obtainNamespace makes a namespace of a tenant, or reads the one that is there, whosever it is.
func (t *Tenants) obtainNamespace(ctx context.Context, fresh bool, wanted metav1.ObjectMeta, tenant string) (got *corev1.Namespace, made bool, err error) {
	namespaces := t.Kube.CoreV1().Namespaces()
	wanted.Labels = maps.Clone(wanted.Labels)
	wanted.Labels[v1alpha1.TenantLabel], wanted.Labels[ManagedBy] = tenant, UserAgent
	got, made, err = obtain(fresh,
		func() (*corev1.Namespace, error) { return namespaces.Get(ctx, wanted.Name, metav1.GetOptions{}) },
		func() (*corev1.Namespace, error) {
			return namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: wanted}, metav1.CreateOptions{})
		})
	if err != nil {
		return nil, false, fmt.Errorf("make namespace %s: %w", wanted.Name, err)
	}
	return got, made, nil
}

// checkOwned returns an error if a namespace is another owner's, or is being deleted.
func checkOwned(ns *corev1.Namespace, tenant string, annotations map[string]string) error {
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
	if there, err := stays(ctx, t.Clients, namespace); there || err != nil {
		return err
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
		_, err = t.Dyn.Resource(ClusterBindingResource).Namespace(namespace).Create(ctx, &unstructured.Unstructured{Object: u}, metav1.CreateOptions{})
	}
	return ensured(err, "cluster binding", namespace)
}

// stays tells whether a tenant has its ClusterBinding; the error wraps ErrTerminating if that is deleted.
func stays(ctx context.Context, c Clients, tenant string) (there bool, err error) {
	got, err := c.Dyn.Resource(ClusterBindingResource).Namespace(tenant).Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	switch {
	case fates.Is(err, fates.Absent):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("read cluster binding of %s: %w", tenant, err)
	case got.GetDeletionTimestamp() != nil:
		return false, fmt.Errorf("tenant %s %w%s", tenant, ErrTerminating, awaited(got))
	}
	return true, nil
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
	name, said := ns.GetName(), ns.GetAnnotations()[v1alpha1.AdoptedAnnotation]
	if err := json.Unmarshal([]byte(cmp.Or(said, ns.GetAnnotations()[v1alpha1.HolderAnnotation])), &h); err != nil {
		return Holder{}, false
	}
	if said != "" { // the name is Klutch's
		return h, ns.GetLabels()[v1alpha1.TenantLabel] == name
	}
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

// Of returns the namespace and the record of a holder's tenant; both are empty if there is none.
func (t *Tenants) Of(ctx context.Context, h Holder) (namespace string, r Record, err error) {
	namespace = h.Namespace(t.Opts.NamespacePrefix)
	found, _, err := t.Records.Read(ctx, namespace)
	switch {
	case errors.Is(err, errNoRecord):
		return "", Record{}, nil
	case err != nil:
		return "", Record{}, err
	case found.Identity.Issuer != h.Issuer || found.Identity.Subject != h.Subject || found.Cluster != h.Cluster:
		return "", Record{}, nil
	}
	return namespace, *found, nil
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
		other, ok := holderOf(&ns)
		switch {
		case ok:
			own += One(other.Issuer == h.Issuer && other.Subject == h.Subject)
		case beingAdopted(&ns):
			own += One(ns.Labels[v1alpha1.SubjectLabel] == h.labels()[v1alpha1.SubjectLabel])
		default:
			continue
		}
		all++
	}
	switch {
	case caps.PerIdentity >= 0 && own > caps.PerIdentity:
		return fmt.Errorf("the App Cluster %s %w: you have bound %d, and the platform allows no more", h.Cluster, ErrCapped, caps.PerIdentity)
	case caps.Tenants >= 0 && all > caps.Tenants:
		return fmt.Errorf("the App Cluster %s %w: the platform has no room for more than %d", h.Cluster, ErrCapped, caps.Tenants)
	}
	return nil
}

// beingAdopted tells whether the adoption of a tenant namespace of the legacy backend has begun, and is not over.
func beingAdopted(ns metav1.Object) bool {
	annotations := ns.GetAnnotations()
	return ns.GetLabels()[v1alpha1.TenantLabel] == ns.GetName() && annotations[v1alpha1.IdentityAnnotation] != "" &&
		annotations[v1alpha1.HolderAnnotation] == "" && annotations[v1alpha1.AdoptedAnnotation] == ""
}

// EnsureTenantNamespace makes the namespace of r's holder unless that is one too many.
// It counts before and after: of many that come at once none stays beyond a cap,
// though some may be refused that would have fitted.
func (t *Tenants) EnsureTenantNamespace(ctx context.Context, r *Record) (string, error) {
	h := r.holder()
	name := h.Namespace(t.Opts.NamespacePrefix)
	_, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if !fates.Is(err, fates.Absent) {
		return name, t.ensureNamespace(ctx, name, name, h.Annotations(), h.labels())
	}
	if theirs, err := t.atLegacyBackend(ctx, h); theirs != nil || err != nil {
		if err != nil {
			return "", err
		}
		return t.adopt(ctx, r, theirs.Name)
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

// atLegacyBackend returns the namespace that the legacy backend has made for h, or nil. It serves an
// identity no more that two namespaces carry, so there must not be a second one.
func (t *Tenants) atLegacyBackend(ctx context.Context, h Holder) (found *metav1.PartialObjectMetadata, err error) {
	opts := metav1.ListOptions{Limit: namespacesPage}
	for identity := h.Annotations()[v1alpha1.IdentityAnnotation]; ; {
		list, err := t.Meta.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("look for a tenant of Klutch's backend: %w", err)
		}
		for i := range list.Items {
			ns := &list.Items[i]
			holder, ours := holderOf(ns)
			if ns.Annotations[v1alpha1.IdentityAnnotation] != identity || ours && (holder != h || ns.Annotations[v1alpha1.AdoptedAnnotation] == "") {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("namespace %s %w: namespace %s has the same annotation %s; nothing was made", found.Name, ErrForeign, ns.Name, v1alpha1.IdentityAnnotation)
			}
			found = ns
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return found, nil
		}
	}
}

// adopt makes the tenant of r's holder at the legacy backend one of ours. Each step can be done again; the
// annotation, which only a program or person with the verb adopt may write, comes last.
func (t *Tenants) adopt(ctx context.Context, r *Record, name string) (string, error) {
	h := r.holder()
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("read namespace %s: %w", name, err)
	}
	if holder, ours := holderOf(ns); ours && holder == h && ns.DeletionTimestamp == nil {
		return name, nil
	}
	if err := t.adoptable(ctx, h, ns); err != nil {
		return "", fmt.Errorf("namespace %s %w: Klutch's backend has made it for this App Cluster of yours; %w; nothing was made", name, ErrForeign, err)
	}
	if ns, err = t.reserve(ctx, h, ns); err != nil {
		return "", err
	}
	// The API server's admission knows the label some milliseconds later.
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, settling, true, func(ctx context.Context) (bool, error) {
		err = t.Rights.Enter(ctx, name, v1alpha1.BackendTenantRole)
		return err == nil, nil
	})
	if err != nil {
		return "", fmt.Errorf("adopt tenant %s: %w", name, err)
	}
	if err := t.inherit(ctx, name, *r); err != nil {
		return "", err
	}
	data, _ := json.Marshal(h) // three strings
	metav1.SetMetaDataAnnotation(&ns.ObjectMeta, v1alpha1.AdoptedAnnotation, string(data))
	if _, err := t.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{}); err != nil {
		return "", fmt.Errorf("adopt tenant %s: %w", name, err)
	}
	audit.Record(ctx, "tenant of Klutch's backend adopted", "tenant", name)
	return name, nil
}

// reserve has a namespace that is to be adopted for h count as a tenant: as in EnsureTenantNamespace, none of many that
// come at once stays beyond a cap. One whose adoption was cut off counts already.
func (t *Tenants) reserve(ctx context.Context, h Holder, ns *corev1.Namespace) (*corev1.Namespace, error) {
	if beingAdopted(ns) {
		return ns, t.capTenants(ctx, h, 0)
	}
	if err := t.capTenants(ctx, h, 1); err != nil {
		return nil, err
	}
	before := maps.Clone(ns.Labels)
	ns, err := label(ctx, t.Clients, ns, ns.Name, h.labels())
	if err != nil {
		return nil, err
	}
	if err := t.capTenants(ctx, h, 0); err != nil {
		ns.Labels = before
		_, undone := t.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
		return nil, errors.Join(err, undone)
	}
	return ns, nil
}

// adoptable says why a namespace is not to be adopted for h. Klutch's identities name no
// issuer, and the name of a cluster is the client's word: it must not shift the border between
// the two. The ClusterRole shows that the legacy backend has made the namespace.
func (t *Tenants) adoptable(ctx context.Context, h Holder, ns *corev1.Namespace) error {
	switch {
	case !t.Opts.Adopt(ns.Name):
		return fmt.Errorf("the platform team lets this backend adopt it with --adopt-klutch-tenants=%s", ns.Name)
	case h.Issuer != t.Opts.AdoptIssuer:
		return fmt.Errorf("only identities of the issuer %s can have it adopted", t.Opts.AdoptIssuer)
	case strings.Contains(h.Cluster, "#"):
		return errors.New("the name of the App Cluster contains a #")
	case ns.DeletionTimestamp != nil:
		return errors.New("it is being deleted")
	}
	role, err := t.Kube.RbacV1().ClusterRoles().Get(ctx, legacyRole(ns.Name), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read what Klutch's backend has granted to it (the platform team runs kubectl apply -k deploy/adoption): %w", err)
	}
	if !slices.ContainsFunc(role.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Namespace" && o.UID == ns.UID }) {
		return fmt.Errorf("ClusterRole %s does not belong to the namespace", role.Name)
	}
	binding, err := t.Dyn.Resource(ClusterBindingResource).Namespace(ns.Name).Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read its ClusterBinding: %w", err)
	}
	secret, _, _ := unstructured.NestedString(binding.Object, "spec", "kubeconfigSecretRef", "name")
	if secret != v1alpha1.KubeconfigSecretName || binding.GetDeletionTimestamp() != nil {
		return fmt.Errorf("its ClusterBinding is being deleted, or names the Secret %q, not %q", secret, v1alpha1.KubeconfigSecretName)
	}
	return nil
}

// inherit begins the record of an adopted tenant with its holder and the exports that it has,
// whatever a Secret of that name says: tenants of the legacy backend may write Secrets everywhere.
func (t *Tenants) inherit(ctx context.Context, name string, r Record) error {
	exports, err := t.Meta.Resource(ExportResource).Namespace(name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list exports of %s: %w", name, err)
	}
	r.Services = nil
	for _, export := range exports.Items {
		r.Services = append(r.Services, export.Name)
	}
	_, secret, err := t.Records.Read(ctx, name)
	if errors.Is(err, errNoRecord) {
		secret, err = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: name}}, nil
	}
	if err == nil {
		err = t.Records.write(ctx, &r, secret)
	}
	if err != nil {
		return err
	}
	binding, err := t.Meta.Resource(ClusterBindingResource).Namespace(name).Get(ctx, v1alpha1.ClusterBindingName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read cluster binding of %s: %w", name, err)
	}
	if slices.Contains(binding.Finalizers, v1alpha1.TenantFinalizer) {
		return nil
	}
	return t.setFinalizers(ctx, ClusterBindingResource, binding, append(binding.Finalizers, v1alpha1.TenantFinalizer))
}

// label says whose namespace it is that the legacy backend has made.
func label(ctx context.Context, c Clients, ns *corev1.Namespace, tenant string, labels map[string]string) (*corev1.Namespace, error) {
	if ns.Labels[v1alpha1.TenantLabel] == tenant {
		return ns, nil
	}
	for key, value := range labels {
		metav1.SetMetaDataLabel(&ns.ObjectMeta, key, value)
	}
	metav1.SetMetaDataLabel(&ns.ObjectMeta, v1alpha1.TenantLabel, tenant)
	ns, err := c.Kube.CoreV1().Namespaces().Update(ctx, ns, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("adopt namespace: %w", err)
	}
	return ns, nil
}

// adoptService labels the service namespace that the legacy backend has made for an adopted
// tenant, and has given it rights in.
func (t *Tenants) adoptService(ctx context.Context, name, tenant string, annotations, labels map[string]string) error {
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil || ns.Labels[v1alpha1.TenantLabel] != "" || ns.Annotations[v1alpha1.ServiceNamespaceAnnotation] != annotations[v1alpha1.ServiceNamespaceAnnotation] {
		return IgnoreNotFound(err)
	}
	rights, err := t.Kube.RbacV1().RoleBindings(name).Get(ctx, v1alpha1.TenantRoleBinding, metav1.GetOptions{})
	if err != nil || rights.RoleRef != clusterRole(legacyRole(tenant)) {
		return IgnoreNotFound(err)
	}
	_, err = label(ctx, t.Clients, ns, tenant, labels)
	return err
}

// legacyRole is the ClusterRole, and ClusterRoleBinding, of a tenant of the legacy backend.
func legacyRole(tenant string) string { return v1alpha1.LegacyTenantRole + "-" + tenant }

// narrow takes from an adopted tenant what the legacy backend gave it in the whole cluster, once it
// has our rights to the cluster-scoped APIs that it goes on with.
func (t *Tenants) narrow(ctx context.Context, tenant string) error {
	wide := func(opts metav1.DeleteOptions) error {
		return t.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, legacyRole(tenant), opts)
	}
	if fates.Is(wide(metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}), fates.Absent) {
		return nil
	}
	if err := t.retain(ctx, tenant); err != nil {
		return err
	}
	if err := IgnoreNotFound(wide(metav1.DeleteOptions{})); err != nil {
		return fmt.Errorf("take from tenant %s its rights in the whole cluster: %w", tenant, err)
	}
	return nil
}

const namespacesPage = 500 // namespaces a request

// undoTenant deletes a tenant namespace in which nothing has been made yet.
func (t *Tenants) undoTenant(ctx context.Context, name string) error {
	ns, err := t.Kube.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = t.deleteNamespace(ctx, ns, metav1.DeleteOptions{})
	}
	return IgnoreNotFound(err)
}
