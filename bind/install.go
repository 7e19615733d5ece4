// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/mark"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// What callers of this file branch on with [errors.Is].
var (
	// ErrConflict says that a name is already taken by someone else's object.
	ErrConflict = errors.New("belongs to someone else")
	// ErrNotReady says that something did not happen before ctx ended.
	ErrNotReady = errors.New("not ready")
	// ErrPolicy says that a backend asks for what no backend may have.
	ErrPolicy = errors.New("refused")
)

// A Claim is a permission claim of a service.
type Claim struct {
	Service v1alpha1.GroupResource
	v1alpha1.PermissionClaim
}

// A ConsentError says that a binding needs answers which it did not get. Nothing
// has been changed in the App Cluster.
type ConsentError struct {
	Unanswered []Claim
	Refused    []Claim // required ones that were answered with Rejected
}

// Error implements error.
func (e *ConsentError) Error() string {
	var parts []string
	for _, c := range e.Unanswered {
		parts = append(parts, fmt.Sprintf("%s claims %s, which is not answered", c.Service, c.GroupResource))
	}
	for _, c := range e.Refused {
		parts = append(parts, fmt.Sprintf("%s cannot be bound without %s, which is rejected", c.Service, c.GroupResource))
	}
	return strings.Join(parts, "; ")
}

// A RequestError is the backend's refusal of an APIServiceExportRequest.
type RequestError struct {
	Request         string
	Reason, Message string // as the backend says; the reason is that of the condition ExportsReady
}

// Error implements error.
func (e *RequestError) Error() string {
	return fmt.Sprintf("the backend refuses request %s: %s", e.Request, e.Message)
}

// InstallOptions say what to bind and how.
type InstallOptions struct {
	// Kubeconfig is the tenant's, from a BindingResponse. It is read as data: a
	// server, a CA, a namespace and a token, see SECURITY.md.
	Kubeconfig []byte
	// Requests are made in the tenant namespace; see ReadRequests.
	Requests []v1alpha1.APIServiceExportRequest
	// Answer is asked about each permission claim that the App Cluster's bindings
	// do not answer yet. It returns an empty state for no answer; then, as with a
	// nil Answer, Install ends with a ConsentError.
	Answer func(context.Context, Claim) (v1alpha1.ClaimState, error)
	// Konnector are manifests to apply before the bindings. Nil leaves the
	// konnector to someone else.
	Konnector []*unstructured.Unstructured
	// DryRun, if not empty, changes nothing in either cluster.
	DryRun DryRun
	// Progress is told, a line each, what has been done and what is waited for.
	Progress func(string)
}

// A DryRun says how to change nothing.
type DryRun string

// Dry runs.
const (
	DryRunClient DryRun = "Client" // send no writes
	DryRunServer DryRun = "Server" // have the API servers check each write; not what needs something that is not there yet
)

func (d DryRun) param() []string {
	if d == "" {
		return nil
	}
	return []string{metav1.DryRunAll}
}

// fieldManager of everything that Install writes.
const fieldManager = "kubectl-bind"

var (
	secretsResource  = corev1.SchemeGroupVersion.WithResource("secrets")
	rolesResource    = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	crdsResource     = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	spacesResource   = corev1.SchemeGroupVersion.WithResource("namespaces")
	bindingsResource = v1alpha1.Resource("apiservicebindings")
	requestsResource = v1alpha1.Resource("apiserviceexportrequests")
	exportsResource  = v1alpha1.Resource("apiserviceexports")
)

// Install binds the requested APIs in the App Cluster that config leads to. In this
// order: it looks for conflicts; makes the requests in the Control Plane Cluster
// and waits until they are answered; has the permission claims answered; and only
// then writes to the App Cluster: the namespace klutch-bind, the CRD of bindings,
// the kubeconfig Secret, a ClusterRole for the konnector per API, the konnector,
// the bindings. It may be repeated at any time.
//
// It blocks until ctx ends at the longest. Its errors are, among others,
// ErrConflict, ErrNotReady, ErrPolicy, a ConsentError and a RequestError. It does
// not wait for the konnector to do its part: see WaitReady.
func Install(ctx context.Context, config *rest.Config, opts InstallOptions) ([]v1alpha1.APIServiceBinding, error) {
	i, err := newInstaller(config, opts)
	if err != nil {
		return nil, err
	}
	if err := i.look(ctx); err != nil {
		return nil, err
	}
	exports, err := i.request(ctx)
	if err != nil {
		return nil, err
	}
	if err := i.consent(ctx, exports); err != nil {
		return nil, err
	}
	return i.write(ctx)
}

// ClusterID returns what tells the App Cluster of config apart from other clusters
// of the same person. It is made from the namespace klutch-bind, which is created
// where it is not there yet.
func ClusterID(ctx context.Context, config *rest.Config) (string, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return "", err
	}
	spaces := client.Resource(spacesResource)
	u, err := spaces.Get(ctx, v1alpha1.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		u, err = spaces.Create(ctx, namespaceManifest(), metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return "", fmt.Errorf("namespace %s: %w", v1alpha1.Namespace, err)
	}
	return clusterID(u.GetUID()), nil
}

// ReadRequests reads APIServiceExportRequests from YAML or JSON, one or many
// documents. No other kind is accepted.
func ReadRequests(manifest []byte) ([]v1alpha1.APIServiceExportRequest, error) {
	var requests []v1alpha1.APIServiceExportRequest
	dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		var raw json.RawMessage
		if err := dec.Decode(&raw); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read requests: %w", err)
		}
		if len(raw) == 0 || string(raw) == "null" {
			continue
		}
		for _, item := range items(raw) {
			request, err := ReadRequest(item)
			if err != nil {
				return nil, err
			}
			requests = append(requests, *request)
		}
	}
	if len(requests) == 0 {
		return nil, errors.New("read requests: no APIServiceExportRequest found")
	}
	return requests, nil
}

// items returns those of a v1 List, or the one object that raw is.
func items(raw []byte) []json.RawMessage {
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(raw, &list) == nil && list.Kind == "List" {
		return list.Items
	}
	return []json.RawMessage{raw}
}

// ReadRequest reads one APIServiceExportRequest from JSON, as it stands in a
// BindingResponse.
func ReadRequest(raw []byte) (*v1alpha1.APIServiceExportRequest, error) {
	r := &v1alpha1.APIServiceExportRequest{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	if r.APIVersion != v1alpha1.GroupVersion.String() || r.Kind != "APIServiceExportRequest" {
		return nil, fmt.Errorf("read request: kind %q, apiVersion %q is not an APIServiceExportRequest of %s", r.Kind, r.APIVersion, v1alpha1.GroupVersion)
	}
	if len(r.Spec.Resources) == 0 {
		return nil, fmt.Errorf("read request %q: it names no resource", r.Name)
	}
	return r, nil
}

// An installer is one call of Install. Its later fields are filled in as it goes.
type installer struct {
	opts     InstallOptions
	target   *kubeconfig.Kubeconfig
	config   *rest.Config
	app      dynamic.Interface
	tenant   dynamic.Interface
	services []v1alpha1.GroupResource

	namespaced bool // the scope of bindings, with served
	served     bool
	existing   map[string]*v1alpha1.APIServiceBinding
	secret     string
	secretIs   bool
	answers    map[string][]v1alpha1.AcceptablePermissionClaim
}

func newInstaller(config *rest.Config, opts InstallOptions) (*installer, error) {
	target, err := kubeconfig.Read(opts.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of the backend: %w", err)
	}
	i := &installer{opts: opts, target: target, config: config, existing: map[string]*v1alpha1.APIServiceBinding{}, answers: map[string][]v1alpha1.AcceptablePermissionClaim{}}
	if i.services, err = services(opts.Requests); err != nil {
		return nil, err
	}
	if i.app, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	tenant := target.RESTConfig()
	tenant.UserAgent = fieldManager
	tenant.WarningHandlerWithContext = rest.NoWarnings{} // not the backend's to write on our terminal
	if i.tenant, err = dynamic.NewForConfig(tenant); err != nil {
		return nil, err
	}
	return i, nil
}

func (i *installer) say(format string, args ...any) {
	if i.opts.Progress != nil {
		i.opts.Progress(fmt.Sprintf(format, args...))
	}
}

// did is say for what has been done.
func (i *installer) did(format string, args ...any) {
	if i.opts.DryRun != "" {
		format += " (dry run)"
	}
	i.say(format, args...)
}

// services lists what is going to be bound, in the order of the requests.
func services(requests []v1alpha1.APIServiceExportRequest) ([]v1alpha1.GroupResource, error) {
	var all []v1alpha1.GroupResource
	for _, r := range requests {
		for _, resource := range r.Spec.Resources {
			if err := checkService(resource.GroupResource); err != nil {
				return nil, err
			}
			if !slices.Contains(all, resource.GroupResource) {
				all = append(all, resource.GroupResource)
			}
		}
	}
	return all, nil
}

var (
	groupPattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	resourcePattern = regexp.MustCompile(`^[a-z][-a-z0-9]*[a-z0-9]$`)
	namePattern     = regexp.MustCompile(`^[a-z0-9A-Z]([-.:a-z0-9A-Z]*[a-z0-9A-Z])?$`)
)

// checkService keeps a backend from being given rights on what was here before it:
// Kubernetes' own groups and ours.
func checkService(r v1alpha1.GroupResource) error {
	switch {
	case !groupPattern.MatchString(r.Group) || !resourcePattern.MatchString(r.Resource):
		return fmt.Errorf("service %q: not <resource>.<group>: %w", r.String(), ErrPolicy)
	case !strings.Contains(r.Group, "."), within(r.Group, "k8s.io"), within(r.Group, "kubernetes.io"), within(r.Group, v1alpha1.GroupVersion.Group):
		return fmt.Errorf("service %s: its group is not for a backend to offer: %w", r, ErrPolicy)
	}
	return nil
}

func within(group, domain string) bool {
	return group == domain || strings.HasSuffix(group, "."+domain)
}

// checkClaim keeps wildcards and the like out of the konnector's rights.
func checkClaim(c Claim) error {
	ok := (c.Group == "" || groupPattern.MatchString(c.Group)) && resourcePattern.MatchString(c.Resource)
	for _, name := range c.Selector.Names {
		ok = ok && (name == "*" || namePattern.MatchString(name))
	}
	if !ok {
		return fmt.Errorf("service %s claims %q: not a resource: %w", c.Service, c.String(), ErrPolicy)
	}
	return nil
}

// look reads the App Cluster and fails on what Install would fail on later.
func (i *installer) look(ctx context.Context) (err error) {
	if i.served, i.namespaced, err = BindingScope(ctx, i.config); err != nil {
		return err
	}
	for _, service := range i.services {
		if err := i.lookForBinding(ctx, service.String()); err != nil {
			return err
		}
	}
	if err := i.chooseSecret(ctx); err != nil {
		return err
	}
	for name, b := range i.existing {
		if b.Spec.KubeconfigSecretRef.Name != i.secret || b.Spec.KubeconfigSecretRef.Namespace != v1alpha1.Namespace {
			ref := b.Spec.KubeconfigSecretRef
			return fmt.Errorf("APIServiceBinding %s uses secret %s/%s, which is not for %s, namespace %s: %w",
				name, ref.Namespace, ref.Name, i.target.Server, i.target.Namespace, ErrConflict)
		}
	}
	return nil
}

// BindingScope returns whether the App Cluster of config serves APIServiceBindings,
// and whether in namespaces; where it does not, they are going to be.
func BindingScope(ctx context.Context, config *rest.Config) (served, namespaced bool, err error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return false, false, err
	}
	list, err := client.ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, true, nil
	}
	if err != nil {
		return false, false, fmt.Errorf("look for %s in the App Cluster: %w", bindingsResource.GroupResource(), err)
	}
	for _, r := range list.APIResources {
		if r.Name == bindingsResource.Resource {
			return true, r.Namespaced, nil
		}
	}
	return false, true, ctx.Err()
}

// bindings is where APIServiceBindings are, in the scope that is served.
func bindings(client dynamic.Interface, namespaced bool) dynamic.ResourceInterface {
	if namespaced {
		return client.Resource(bindingsResource).Namespace(v1alpha1.Namespace)
	}
	return client.Resource(bindingsResource)
}

// lookForBinding also refuses a CRD that no binding made: the konnector would.
func (i *installer) lookForBinding(ctx context.Context, name string) error {
	if i.served {
		b := &v1alpha1.APIServiceBinding{}
		found, err := get(ctx, bindings(i.app, i.namespaced), name, b)
		if err != nil {
			return fmt.Errorf("APIServiceBinding %s: %w", name, err)
		}
		if found {
			i.existing[name] = b
			return nil
		}
	}
	crd := &metav1.PartialObjectMetadata{}
	found, err := get(ctx, i.app.Resource(crdsResource), name, crd)
	if err != nil {
		return fmt.Errorf("CRD %s: %w", name, err)
	}
	if found && !ours(crd) {
		return fmt.Errorf("the CRD %s is in the App Cluster already and no binding made it: %w", name, ErrConflict)
	}
	return nil
}

// ours tells a CRD that a binding made from any other.
func ours(crd metav1.Object) bool {
	_, marked := crd.GetAnnotations()[mark.Annotation]
	return marked || slices.ContainsFunc(crd.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "APIServiceBinding" })
}

// get decodes into o what is there.
func get(ctx context.Context, r dynamic.ResourceInterface, name string, o any) (found bool, err error) {
	u, err := r.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
}

// chooseSecret finds the Secret for the same server and namespace. Where there is
// none, a binding that lost its Secret gets it back; else a name is made that
// everyone makes who binds to that place.
func (i *installer) chooseSecret(ctx context.Context) error {
	list, err := i.app.Resource(secretsResource).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("secrets in %s: %w", v1alpha1.Namespace, err)
	}
	i.secret = secretName(i.target)
	there := map[string]bool{}
	var same []string
	for _, u := range list.Items {
		there[u.GetName()] = true
		if i.sameTarget(u) {
			same = append(same, u.GetName())
		}
	}
	slices.Sort(same)
	for _, b := range i.existing {
		ref := b.Spec.KubeconfigSecretRef
		if ref.Namespace == v1alpha1.Namespace && (slices.Contains(same, ref.Name) || len(same) == 0 && !there[ref.Name]) {
			i.secret, i.secretIs = ref.Name, there[ref.Name]
			return nil
		}
	}
	if len(same) > 0 {
		i.secret, i.secretIs = same[0], true
	}
	if there[i.secret] && !i.secretIs {
		return fmt.Errorf("secret %s/%s: %w", v1alpha1.Namespace, i.secret, ErrConflict)
	}
	return nil
}

func (i *installer) sameTarget(u unstructured.Unstructured) bool {
	secret := corev1.Secret{}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &secret) != nil {
		return false
	}
	k, err := kubeconfig.Read(secret.Data[v1alpha1.KubeconfigKey])
	return err == nil && k.Server == i.target.Server && k.Namespace == i.target.Namespace
}

// secretName is "kubeconfig-xxxxx", the same for the same server and namespace.
func secretName(k *kubeconfig.Kubeconfig) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q", k.Server, k.Namespace)
	suffix := rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 36))
	return "kubeconfig-" + suffix[len(suffix)-5:]
}

// request makes the requests, waits for the answers, and returns what the services
// claim.
func (i *installer) request(ctx context.Context) (map[string][]v1alpha1.PermissionClaim, error) {
	claims := map[string][]v1alpha1.PermissionClaim{}
	for _, r := range i.opts.Requests {
		if err := i.makeRequest(ctx, r); err != nil {
			return nil, err
		}
		for _, resource := range r.Spec.Resources {
			export, err := i.export(ctx, resource.String())
			switch {
			case err != nil:
				return nil, err
			case export == nil:
				claims[resource.String()] = resource.PermissionClaims
			default:
				claims[resource.String()] = export.Spec.PermissionClaims
			}
		}
	}
	return claims, nil
}

func (i *installer) makeRequest(ctx context.Context, r v1alpha1.APIServiceExportRequest) error {
	if i.opts.DryRun == DryRunClient {
		return nil
	}
	name, err := i.createRequest(ctx, r)
	if err != nil {
		return fmt.Errorf("request %s in namespace %s of %s: %w", r.Name, i.target.Namespace, i.target.Server, err)
	}
	if i.opts.DryRun == DryRunServer {
		return nil
	}
	return i.awaitRequest(ctx, name)
}

// createRequest tries for a while, because the rights of a new tenant may lag.
func (i *installer) createRequest(ctx context.Context, r v1alpha1.APIServiceExportRequest) (name string, err error) {
	r.ObjectMeta = metav1.ObjectMeta{Name: r.Name, GenerateName: r.GenerateName}
	if r.Name == "" && r.GenerateName == "" {
		r.GenerateName = "export-"
	}
	requests := i.tenant.Resource(requestsResource).Namespace(i.target.Namespace)
	err = retry(ctx, func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }, func() error {
		made, err := requests.Create(ctx, manifest(&r), metav1.CreateOptions{FieldManager: fieldManager, DryRun: i.opts.DryRun.param()})
		if apierrors.IsAlreadyExists(err) && r.Name != "" {
			r.GenerateName, r.Name = r.Name+"-", ""
			made, err = requests.Create(ctx, manifest(&r), metav1.CreateOptions{FieldManager: fieldManager, DryRun: i.opts.DryRun.param()})
		}
		if err == nil {
			name = made.GetName()
		}
		return err
	})
	return name, err
}

func (i *installer) awaitRequest(ctx context.Context, name string) error {
	said := ""
	r := v1alpha1.APIServiceExportRequest{}
	err := until(ctx, i.tenant.Resource(requestsResource).Namespace(i.target.Namespace), name, func(u *unstructured.Unstructured) (bool, error) {
		if u == nil {
			return false, &RequestError{Request: name, Message: "it was deleted before it was answered"}
		}
		r = v1alpha1.APIServiceExportRequest{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
			return false, err
		}
		if r.Status.Phase == v1alpha1.RequestFailed {
			return false, refusal(r)
		}
		if r.Status.Phase == v1alpha1.RequestSucceeded {
			return true, nil
		}
		if now := "Waiting for the backend to answer request " + name + because(r.Status.Conditions); now != said {
			said = now
			i.say("%s", now)
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the backend has not answered request %s%s: %w", name, because(r.Status.Conditions), ErrNotReady)
	}
	return err
}

func refusal(r v1alpha1.APIServiceExportRequest) *RequestError {
	e := &RequestError{Request: r.Name, Message: r.Status.TerminalMessage}
	if c := v1alpha1.FindCondition(r.Status.Conditions, v1alpha1.ConditionExportsReady); c != nil {
		e.Reason = c.Reason
		if e.Message == "" {
			e.Message = c.Message
		}
	}
	return e
}

// export returns nil in a dry run where there is none.
func (i *installer) export(ctx context.Context, name string) (*v1alpha1.APIServiceExport, error) {
	exports := i.tenant.Resource(exportsResource).Namespace(i.target.Namespace)
	export := &v1alpha1.APIServiceExport{}
	if i.opts.DryRun != "" {
		found, err := get(ctx, exports, name, export)
		if err != nil || !found {
			return nil, err
		}
		return export, nil
	}
	err := until(ctx, exports, name, func(u *unstructured.Unstructured) (bool, error) {
		if u == nil {
			i.say("Waiting for the backend to publish %s", name)
			return false, nil
		}
		return true, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, export)
	})
	if err != nil {
		return nil, fmt.Errorf("APIServiceExport %s: %w", name, err)
	}
	return export, nil
}

// consent has every claim answered, those of existing bindings as before.
func (i *installer) consent(ctx context.Context, claims map[string][]v1alpha1.PermissionClaim) error {
	missing := &ConsentError{}
	for _, service := range i.services {
		for _, c := range claims[service.String()] {
			claim := Claim{service, c}
			if err := checkClaim(claim); err != nil {
				return err
			}
			state, err := i.answer(ctx, claim)
			switch {
			case err != nil:
				return err
			case state == "":
				missing.Unanswered = append(missing.Unanswered, claim)
			case state == v1alpha1.ClaimRejected && c.Required:
				missing.Refused = append(missing.Refused, claim)
			}
			i.answers[service.String()] = append(i.answers[service.String()], v1alpha1.AcceptablePermissionClaim{PermissionClaim: c, State: state})
		}
	}
	if len(missing.Unanswered)+len(missing.Refused) > 0 {
		return missing
	}
	return nil
}

func (i *installer) answer(ctx context.Context, c Claim) (v1alpha1.ClaimState, error) {
	if b := i.existing[c.Service.String()]; b != nil {
		for _, before := range b.Spec.PermissionClaims {
			if equality.Semantic.DeepEqual(before.PermissionClaim, c.PermissionClaim) {
				return before.State, nil
			}
		}
	}
	if i.opts.Answer == nil {
		return "", nil
	}
	return i.opts.Answer(ctx, c)
}

// write does what Install promises for the App Cluster, in an order that leaves
// nothing useless behind when a step fails.
func (i *installer) write(ctx context.Context) ([]v1alpha1.APIServiceBinding, error) {
	for _, step := range []func(context.Context) error{i.writeNamespace, i.writeCRD, i.writeSecret, i.writeRoles, i.writeKonnector} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	var written []v1alpha1.APIServiceBinding
	for _, service := range i.services {
		b, err := i.writeBinding(ctx, service.String())
		if err != nil {
			return nil, err
		}
		written = append(written, *b)
	}
	return written, nil
}

func (i *installer) writeNamespace(ctx context.Context) error {
	found, err := get(ctx, i.app.Resource(spacesResource), v1alpha1.Namespace, &metav1.PartialObjectMetadata{})
	if err != nil || found {
		return err
	}
	if _, err := i.apply(ctx, spacesResource, namespaceManifest()); err != nil {
		return err
	}
	i.did("Created namespace %s", v1alpha1.Namespace)
	return nil
}

// writeCRD leaves a CRD that is there alone, whatever its scope: see BindingScope.
func (i *installer) writeCRD(ctx context.Context) error {
	if i.served {
		return nil
	}
	crd := v1alpha1.CRDs()[bindingsResource.GroupResource().String()]
	if _, err := i.apply(ctx, crdsResource, crd); err != nil {
		return err
	}
	i.did("Installed CRD %s", crd.GetName())
	if i.opts.DryRun != "" {
		return nil
	}
	err := until(ctx, i.app.Resource(crdsResource), crd.GetName(), func(u *unstructured.Unstructured) (bool, error) {
		return u != nil && established(u), nil
	})
	if err != nil {
		return fmt.Errorf("CRD %s is not established: %w", crd.GetName(), err)
	}
	return nil
}

func established(u *unstructured.Unstructured) bool {
	crd := apiextensionsv1.CustomResourceDefinition{}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &crd) == nil &&
		slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		})
}

// writeSecret writes the five fields that were read, not what came.
func (i *installer) writeSecret(ctx context.Context) error {
	data, err := i.target.Write()
	if err != nil {
		return err
	}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.Namespace, Name: i.secret},
		Data:       map[string][]byte{v1alpha1.KubeconfigKey: data},
	}
	if _, err := i.apply(ctx, secretsResource, manifest(secret)); err != nil {
		return err
	}
	done := "Created"
	if i.secretIs {
		done = "Updated"
	}
	i.did("%s secret %s/%s for host %s, namespace %s", done, v1alpha1.Namespace, i.secret, i.target.Server, i.target.Namespace)
	return nil
}

func (i *installer) writeRoles(ctx context.Context) error {
	for _, service := range i.services {
		role := ClusterRole(service.String(), service, i.answers[service.String()])
		if _, err := i.apply(ctx, rolesResource, manifest(role)); err != nil {
			return err
		}
	}
	return nil
}

// writeKonnector leaves the CRD of bindings to writeCRD.
func (i *installer) writeKonnector(ctx context.Context) error {
	if len(i.opts.Konnector) == 0 {
		return nil
	}
	client, err := discovery.NewDiscoveryClientForConfig(i.config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return fmt.Errorf("APIs of the App Cluster: %w", err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	for _, u := range i.opts.Konnector {
		if u.GetKind() == "CustomResourceDefinition" {
			continue
		}
		if _, aggregated := u.Object["aggregationRule"]; aggregated {
			u = u.DeepCopy()
			delete(u.Object, "rules") // another's to fill in, and not ours to empty
		}
		mapping, err := mapper.RESTMapping(u.GroupVersionKind().GroupKind(), u.GroupVersionKind().Version)
		if err != nil {
			return fmt.Errorf("konnector: %w", err)
		}
		if _, err := i.apply(ctx, mapping.Resource, u); err != nil {
			return err
		}
	}
	i.did("Applied the konnector")
	return nil
}

func (i *installer) writeBinding(ctx context.Context, name string) (*v1alpha1.APIServiceBinding, error) {
	b := &v1alpha1.APIServiceBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.APIServiceBindingSpec{
			KubeconfigSecretRef: v1alpha1.ClusterSecretKeyRef{
				LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: i.secret, Key: v1alpha1.KubeconfigKey},
				Namespace:         v1alpha1.Namespace,
			},
			PermissionClaims: i.answers[name],
		},
	}
	if i.namespaced {
		b.Namespace = v1alpha1.Namespace
	}
	var written *unstructured.Unstructured
	// The API server may serve a new resource a moment after it is established.
	err := retry(ctx, func(err error) bool { return apierrors.IsNotFound(err) && i.opts.DryRun == "" }, func() (err error) {
		written, err = i.apply(ctx, bindingsResource, manifest(b))
		return err
	})
	if err != nil {
		return nil, err
	}
	done := "Created"
	if i.existing[name] != nil {
		done = "Updated"
	}
	i.did("%s APIServiceBinding %s", done, name)
	return b, runtime.DefaultUnstructuredConverter.FromUnstructured(written.Object, b)
}

// apply takes over what it writes, and nothing else of an object. In a dry run what
// is not sent, or cannot be checked, counts as written.
func (i *installer) apply(ctx context.Context, resource schema.GroupVersionResource, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if i.opts.DryRun == DryRunClient {
		return u, nil
	}
	var r dynamic.ResourceInterface = i.app.Resource(resource)
	if u.GetNamespace() != "" {
		r = i.app.Resource(resource).Namespace(u.GetNamespace())
	}
	written, err := r.Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true, DryRun: i.opts.DryRun.param()})
	if i.opts.DryRun == DryRunServer && apierrors.IsNotFound(err) {
		i.say("Not checked, since it needs what is not there yet: %s %s", u.GetKind(), u.GetName())
		return u, nil
	}
	if err != nil {
		return nil, fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return written, nil
}

// List returns the bindings of the App Cluster.
func List(ctx context.Context, config *rest.Config) ([]v1alpha1.APIServiceBinding, error) {
	served, namespaced, err := BindingScope(ctx, config)
	if err != nil || !served {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := bindings(client, namespaced).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("APIServiceBindings: %w", err)
	}
	all := make([]v1alpha1.APIServiceBinding, len(list.Items))
	for i, u := range list.Items {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &all[i]); err != nil {
			return nil, fmt.Errorf("APIServiceBinding %s: %w", u.GetName(), err)
		}
	}
	return all, nil
}

// WaitReady waits until the named bindings are Ready, or ctx ends, and returns them
// as they are then. With the deadline of ctx the error is ErrNotReady and says what
// the conditions say. Progress is told, a line each, what is waited for.
func WaitReady(ctx context.Context, config *rest.Config, names []string, progress func(string)) ([]v1alpha1.APIServiceBinding, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, namespaced, err := BindingScope(ctx, config)
	if err != nil {
		return nil, err
	}
	var all []v1alpha1.APIServiceBinding
	var notReady []error
	for _, name := range names {
		b, err := waitReady(ctx, bindings(client, namespaced), name, progress)
		if err != nil && !errors.Is(err, ErrNotReady) {
			return nil, err
		}
		notReady = append(notReady, err)
		all = append(all, *b)
	}
	return all, errors.Join(notReady...)
}

func waitReady(ctx context.Context, r dynamic.ResourceInterface, name string, progress func(string)) (*v1alpha1.APIServiceBinding, error) {
	b, said := &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: name}}, ""
	err := until(ctx, r, name, func(u *unstructured.Unstructured) (bool, error) {
		if u == nil {
			return false, fmt.Errorf("APIServiceBinding %s is gone", name)
		}
		b = &v1alpha1.APIServiceBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b); err != nil || isReady(b) {
			return err == nil, err
		}
		if now := "Waiting for " + name + waitingFor(b); now != said && progress != nil {
			said = now
			progress(now)
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return b, fmt.Errorf("%s is %w%s", name, ErrNotReady, waitingFor(b))
	}
	return b, err
}

// isReady takes a summary without observedGeneration as current: not every
// konnector writes it.
func isReady(b *v1alpha1.APIServiceBinding) bool {
	c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionReady)
	return c != nil && c.Status == metav1.ConditionTrue && (c.ObservedGeneration == 0 || c.ObservedGeneration >= b.Generation)
}

func waitingFor(b *v1alpha1.APIServiceBinding) string {
	if len(b.Status.Conditions) == 0 {
		return ": no konnector has taken it up yet"
	}
	return because(b.Status.Conditions)
}

// because says what the conditions say that do not hold: in full, but for those that
// merely wait for others.
func because(conditions []v1alpha1.Condition) string {
	var parts, pending []string
	for _, c := range conditions {
		switch {
		case c.Type == v1alpha1.ConditionReady || c.Status == metav1.ConditionTrue:
		case c.Reason == v1alpha1.ReasonPending:
			pending = append(pending, c.Type)
		default:
			words := slices.DeleteFunc([]string{c.Type + " is " + string(c.Status), c.Reason, c.Message}, func(s string) bool { return s == "" })
			parts = append(parts, strings.Join(words, ": "))
		}
	}
	if len(pending) > 0 {
		parts = append(parts, strings.Join(pending, ", ")+" pending")
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, "; ")
}

// until calls done with the object as it is, then with each change of it, until
// done returns true or an error, or ctx ends. A nil object is one that is not there.
func until(ctx context.Context, r dynamic.ResourceInterface, name string, done func(*unstructured.Unstructured) (bool, error)) error {
	for {
		end, err := untilWatchEnds(ctx, r, name, done)
		switch {
		case end:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
		case err != nil && !passing(err):
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
	}
}

func untilWatchEnds(ctx context.Context, r dynamic.ResourceInterface, name string, done func(*unstructured.Unstructured) (bool, error)) (end bool, err error) {
	u, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	version := ""
	if err == nil {
		version = u.GetResourceVersion()
	} else {
		u = nil
	}
	if ok, err := done(u); ok || err != nil {
		return true, err
	}
	w, err := r.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: version})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	return untilDone(w, done)
}

func untilDone(w watch.Interface, done func(*unstructured.Unstructured) (bool, error)) (end bool, err error) {
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error || !ok:
			return false, nil // read it again
		case e.Type == watch.Bookmark:
			continue
		case e.Type == watch.Deleted:
			u = nil
		}
		if ok, err := done(u); ok || err != nil {
			return true, err
		}
	}
	return false, nil
}

// passing errors are those of an API server that may be back soon.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// retry calls fn for some ten seconds while again says so.
func retry(ctx context.Context, again func(error) bool, fn func() error) error {
	for range 20 {
		if err := fn(); err == nil || !again(err) {
			return err
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	return fn()
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// manifest returns o as it is applied: without what only the API server writes.
func manifest(o runtime.Object) *unstructured.Unstructured {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err) // types of ours and of k8s.io/api
	}
	delete(m, "status")
	unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: m}
}

func namespaceManifest() *unstructured.Unstructured {
	return manifest(&corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace}})
}
