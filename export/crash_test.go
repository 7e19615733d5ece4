// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var errCrash = errors.New("crash")

// A crash ends a program at its n-th write: before the API server has got it, or
// when it has done it but the answer was not read.
type crash struct {
	at      int64
	after   bool
	writes  atomic.Int64
	crashed atomic.Bool
}

func (c *crash) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return c.send(next, r) })
	})
	return config
}

func (c *crash) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if c.crashed.Load() {
		return nil, errCrash
	}
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "reviews") || c.writes.Add(1) != c.at {
		return next.RoundTrip(r)
	}
	c.crashed.Store(true)
	if c.after {
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(errCrash, resp.Body.Close())
	}
	return nil, errCrash
}

// crashes ends a backend at each write of a bind, and has another one go on. The
// tenants have a prefix of their own, so that other steps do not meet them.
func crashes(t *testing.T, w *world) {
	t.Helper()
	const prefix = "crash"
	bind := func(config *rest.Config, subject string) (string, error) {
		e := must(New(config, Options{NamespacePrefix: prefix}))
		return e.tenants.Bind(t.Context(), tenant.Record{
			Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: subject}, Cluster: "c1", Services: []string{"widgets.example.org"},
		})
	}
	points := 0
	for n := int64(1); n <= 12; n++ { // more than a bind has
		for _, after := range []bool{false, true} {
			c := &crash{at: n, after: after}
			subject := fmt.Sprintf("crash-%d-%t", n, after)
			_, err := bind(c.wrap(w.config), subject)
			if !c.crashed.Load() {
				continue
			}
			points++
			if err == nil {
				t.Errorf("write %d: the bind of a program that crashed succeeded", n)
			}
			namespace, err := bind(w.config, subject)
			if err != nil {
				t.Errorf("after a crash at write %d (done: %t): %v", n, after, err)
				continue
			}
			whole(t, w, namespace)
		}
	}
	// The controllers are at it too, and may be faster with some of the writes.
	if points < 4 {
		t.Errorf("only %d points at which to crash", points)
	}
}

// whole compares what is in a tenant namespace with what has to be.
func whole(t *testing.T, w *world, namespace string) {
	t.Helper()
	_, account := w.admin.CoreV1().ServiceAccounts(namespace).Get(t.Context(), v1alpha1.TenantServiceAccount, metav1.GetOptions{})
	_, rights := w.admin.RbacV1().RoleBindings(namespace).Get(t.Context(), v1alpha1.TenantRoleBinding, metav1.GetOptions{})
	_, binding := w.dyn.Resource(tenant.ClusterBindingResource).Namespace(namespace).Get(t.Context(), v1alpha1.ClusterBindingName, metav1.GetOptions{})
	secret, credential := w.admin.CoreV1().Secrets(namespace).Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	_, record := w.admin.CoreV1().Secrets(namespace).Get(t.Context(), v1alpha1.TenantRecordSecret, metav1.GetOptions{})
	for what, err := range map[string]error{"account": account, "rights": rights, "binding": binding, "credential": credential, "record": record} {
		if err != nil {
			t.Errorf("%s of %s: %v (missing: %t)", what, namespace, err, apierrors.IsNotFound(err))
		}
	}
	if secret != nil && len(secret.Data[v1alpha1.KubeconfigKey]) == 0 {
		t.Errorf("the kubeconfig of %s is empty", namespace)
	}
	if services := must(readServices(t, w, namespace)); !cmp.Equal(services, []string{"widgets.example.org"}) {
		t.Errorf("services of %s: %q", namespace, services)
	}
}

func readServices(t *testing.T, w *world, namespace string) ([]string, error) {
	t.Helper()
	r, _, err := w.exporter.tenants.Records.Read(t.Context(), namespace)
	if err != nil {
		return nil, err
	}
	return r.Services, nil
}

// A cut ends a backend for one tenant at one of its writes: from then on no request of
// its about this tenant is answered, as if it had crashed there. So one backend can
// crash at all its writes at once, at each for another tenant.
type cut struct {
	write string // method and path, in which the tenant namespace is T
	after bool   // the API server has done it
}

type cuts struct {
	mu   sync.Mutex
	at   map[string]cut // by tenant namespace
	dead sets.Set[string]
	seen map[string]sets.Set[string] // writes by tenant namespace
}

var namespacePattern = regexp.MustCompile(`cluster-[a-z2-7]{16}[-a-z0-9]*`) // the first in a body is its name

func (c *cuts) wrap(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) { return c.send(next, r) })
	})
	return config
}

func (c *cuts) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	r, body, err := withBody(r)
	if err != nil {
		return nil, err
	}
	tenant, write := about(r, body)
	lost, unanswered := c.fate(tenant, write)
	if lost {
		return nil, errCrash
	}
	resp, err := next.RoundTrip(r)
	if err == nil && unanswered {
		return nil, errors.Join(errCrash, resp.Body.Close())
	}
	return resp, err
}

// withBody returns a request like r whose body has been read.
func withBody(r *http.Request) (*http.Request, []byte, error) {
	if r.Body == nil {
		return r, nil, nil
	}
	body, err := io.ReadAll(r.Body)
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	return r, body, err
}

// about tells which tenant a request concerns, if one, and what it writes, if it does.
func about(r *http.Request, body []byte) (tenant, write string) {
	path := r.URL.Path
	if strings.HasSuffix(path, "/namespaces") {
		path += "/" + string(namespacePattern.Find(body))
	}
	tenant = tenantPattern.FindString(path)
	if _, rest, ok := strings.Cut(path, "/namespaces/"); ok && tenant != "" && r.Method != http.MethodGet {
		write = r.Method + " " + strings.Replace(rest, tenant, "T", 1)
		if bytes.Contains(body, []byte(v1alpha1.BackendOfferRole)) { // beside one of the tenant
			write += " " + v1alpha1.BackendRoleBinding
		}
	}
	return tenant, write
}

func (c *cuts) fate(tenant, write string) (lost, unanswered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead.Has(tenant) {
		return true, false
	}
	if write == "" {
		return false, false
	}
	if c.seen[tenant] == nil {
		c.seen[tenant] = sets.New[string]()
	}
	c.seen[tenant].Insert(write)
	at, ok := c.at[tenant]
	if !ok || at.write != write {
		return false, false
	}
	c.dead.Insert(tenant)
	return !at.after, at.after
}

// alive are the tenants that should have been cut and were not yet.
func (c *cuts) alive() (left []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for tenant, at := range c.at {
		if !c.dead.Has(tenant) {
			left = append(left, fmt.Sprintf("%s at %+v, after %q", tenant, at, sets.List(c.seen[tenant])))
		}
	}
	return left
}

// The writes of a backend for a tenant, from a request to its export, and from an
// APIServiceNamespace to the service namespace with its rights; and those of a removal.
var (
	exportWrites = []string{"POST T/apiserviceexports", "PATCH T/apiserviceexportrequests/first/status", "PATCH T/apiserviceexports/widgets.example.org/status"}
	spaceWrites  = []string{
		"PATCH T/apiservicenamespaces/team-a", "POST T-team-a", "POST T-team-a/rolebindings klutch-backend", "POST T-team-a/roles", "POST T-team-a/rolebindings",
		"PATCH T/apiservicenamespaces/team-a/status",
	}
	exportedWrites = []string{"PUT T-team-a", "POST T-team-a/resourcequotas"} // in a service namespace, when there is an export
	revokeWrites   = []string{"PATCH T/clusterbindings/cluster/status", "DELETE T/secrets/klutch-binder", "DELETE T/secrets/kubeconfig", "DELETE T/rolebindings/klutch-binder"}
	emptyWrites    = []string{
		"DELETE T/apiserviceexports/widgets.example.org", "DELETE T/apiservicenamespaces/team-a", "DELETE T-team-a/widgets/w", "DELETE T-team-a",
	}
	keepWrites = []string{"PUT T-team-a/roles/klutch-binder", "PUT T-team-a/resourcequotas/klutch-binder", "DELETE T-team-a/rolebindings/klutch-backend"}
	endWrites  = []string{"DELETE T-team-a/rolebindings/klutch-binder", "PATCH T/apiservicenamespaces/team-a", "DELETE T", "PATCH T/clusterbindings/cluster"}
)

// A victim is a tenant for which the backend crashes, or not if it has no cut.
type victim struct {
	cluster, namespace string
	at                 cut
	spaceFirst         bool // a service namespace is asked for before an export
	policy             v1alpha1.DeletionPolicy
}

// TestCrashAtEachWrite: a backend crashes at each of its writes, before it is done and
// after, and another one takes over: every tenant ends as if nothing had happened.
func TestCrashAtEachWrite(t *testing.T) {
	w := newStillWorld(t)
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: offer-configmaps, labels: {klutch.anynines.com/aggregate-to-backend: "true"}},
		rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, update, patch, delete]}]}`),
		changed(templateOf("widgets"), []any{map[string]any{"resource": "configmaps", "version": "v1", "required": true, "selector": map[string]any{"owner": "Consumer"}}}, "spec", "permissionClaims"))
	var all []*victim
	admit := func(spaceFirst bool, cuts ...cut) {
		for _, at := range cuts {
			all = append(all, w.admit(fmt.Sprintf("c%02d", len(all)), at, spaceFirst))
		}
	}
	admit(false, eachWay(exportWrites, spaceWrites, exportedWrites[1:])...) // what is exported is noted at once
	admit(true, eachWay(spaceWrites, exportWrites, exportedWrites, []string{"PUT T-team-a/roles/klutch-binder"})...)
	removals := map[v1alpha1.DeletionPolicy][]cut{
		v1alpha1.DeletionPolicyDelete: eachWay(revokeWrites, emptyWrites, endWrites), v1alpha1.DeletionPolicyOrphan: eachWay(keepWrites, endWrites),
	}
	admit(false, make([]cut, max(0, 1+len(removals[v1alpha1.DeletionPolicyDelete])+len(removals[v1alpha1.DeletionPolicyOrphan])-len(all)))...)
	w.beat() // a backend writes when it has heard no konnector for a while
	if !t.Run("of what a tenant asks for", func(t *testing.T) { w.t = t; w.crashWhenAsked(all) }) {
		return
	}
	w.t = t
	bystander, rest := all[0], all[1:]
	before := w.ofTenant(bystander.namespace)
	var ill []*victim
	for policy, cuts := range removals {
		for i, at := range cuts {
			rest[i].at, rest[i].policy = at, policy
		}
		ill, rest = append(ill, rest[:len(cuts)]...), rest[len(cuts):]
	}
	t.Run("of a removal", func(t *testing.T) {
		w.t = t
		w.crashWhenRemoved(ill)
		if diff := cmp.Diff(before, w.ofTenant(bystander.namespace)); diff != "" {
			t.Errorf("another tenant was touched (-before +after):\n%s", diff)
		}
	})
}

// eachWay is no crash at all, then one before and one after each write.
func eachWay(writes ...[]string) []cut {
	all := []cut{{}}
	for _, write := range slices.Concat(writes...) {
		all = append(all, cut{write, false}, cut{write, true})
	}
	return all
}

// admit makes a tenant.
func (w *world) admit(clusterID string, at cut, spaceFirst bool) *victim {
	w.t.Helper()
	namespace, err := must(New(w.config, Options{Caps: Caps{PerIdentity: -1}})).tenants.Bind(w.t.Context(), tenant.Record{
		Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: "ada", Groups: users["ada"].Groups}, Cluster: clusterID, Services: []string{"widgets.example.org"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return &victim{cluster: clusterID, namespace: namespace, at: at, spaceFirst: spaceFirst}
}

// work runs a backend that crashes as the victims say, and returns how to end it.
func (w *world) work(victims ...*victim) (c *cuts, stop func()) {
	c = &cuts{at: map[string]cut{}, dead: sets.New[string](), seen: map[string]sets.Set[string]{}}
	for _, p := range victims {
		if p.at.write != "" {
			c.at[p.namespace] = p.at
		}
	}
	e := must(New(c.wrap(w.config), Options{RemovalsAtOnce: -1}))
	e.tenants.Opts.Pauses.NewKind = time.Hour // quotas are for core resources alone
	log := funcr.New(w.log.add, funcr.Options{})
	if len(c.at) > 0 {
		log = logr.Discard() // of so many crashes
	}
	ctx, cancel := context.WithCancel(logr.NewContext(w.t.Context(), log))
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	return c, func() {
		w.t.Helper()
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
	}
}

// crashWhenAsked has all tenants ask for an export and a service namespace.
func (w *world) crashWhenAsked(all []*victim) {
	request := func(p *victim) { w.put(tenant.RequestResource, p.namespace, requestOf("first", "widgets.example.org")) }
	space := func(p *victim) {
		w.put(tenant.NamespaceResource, p.namespace, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: team-a}}"))
	}
	healthy := map[bool]*victim{}
	begun := map[bool][]string{false: exportWrites, true: spaceWrites}
	first, second := map[bool]func(*victim){false: request, true: space}, map[bool]func(*victim){false: space, true: request}
	c, stop := w.work(all...)
	for _, p := range all {
		first[p.spaceFirst](p)
		if p.at.write == "" {
			healthy[p.spaceFirst] = p
		}
	}
	for _, p := range all {
		switch {
		case slices.Contains(begun[p.spaceFirst], p.at.write): // it crashes before
		case p.spaceFirst:
			until(w, "apiservicenamespaces", p.namespace, "team-a", func(o *v1alpha1.APIServiceNamespace) bool { return o.Status.Namespace != "" })
		default:
			until(w, "apiserviceexportrequests", p.namespace, "first", offer.Answered)
		}
	}
	for _, p := range all {
		second[p.spaceFirst](p)
	}
	w.crashed(c, stop)
	w.enumerated(c, healthy[false], healthy[true])
	_, stop = w.work()
	defer stop()
	whole := func(state map[string]string) bool {
		_, ok := state["rolebindings T-team-a/klutch-binder"]
		return ok && strings.Contains(state["roles T-team-a/klutch-binder"], "widgets")
	}
	w.recovered(all, func(p *victim) *victim { return healthy[p.spaceFirst] }, whole)
}

// crashed waits until the backend has crashed for all that it should, and ends it.
func (w *world) crashed(c *cuts, stop func()) {
	w.t.Helper()
	defer stop()
	var left []string
	defer func() {
		if len(left) > 0 {
			w.t.Errorf("no crash for\n%s", strings.Join(left, "\n"))
		}
	}()
	w.eventually("crashes", func(context.Context) (bool, error) {
		left = c.alive()
		return len(left) == 0, nil
	})
}

// enumerated fails the test if a backend that does not crash makes a write at which
// none crashes.
func (w *world) enumerated(c *cuts, healthy ...*victim) {
	w.t.Helper()
	tried := sets.New(revokeWrites...) // the first of them is of a new tenant too
	for _, at := range c.at {
		tried.Insert(at.write)
	}
	for _, p := range healthy {
		if missed := sets.List(c.seen[p.namespace].Difference(tried)); len(missed) > 0 {
			w.t.Errorf("writes at which no crash was tried: %q", missed)
		}
	}
}

// recovered waits until all tenants are as the one of them is that knew no crash.
func (w *world) recovered(all []*victim, model func(*victim) *victim, whole func(map[string]string) bool) {
	w.t.Helper()
	var differences []string
	defer func() {
		if w.t.Failed() {
			w.t.Log(strings.Join(differences, "\n"))
		}
	}()
	w.eventually("recovery", func(context.Context) (bool, error) {
		states := w.states() //nolint:contextcheck // the world has one
		differences = nil
		for _, p := range all {
			want := states[model(p).namespace]
			if diff := cmp.Diff(want, states[p.namespace]); diff != "" || !whole(want) {
				differences = append(differences, fmt.Sprintf("%s, crash %+v (-without +with):\n%s", p.namespace, p.at, diff))
			}
		}
		return len(differences) == 0, nil
	})
}

// crashWhenRemoved removes tenants that have an object each: half of them with a policy
// from the start, half get it when they are being deleted already.
func (w *world) crashWhenRemoved(ill []*victim) {
	healthy := map[v1alpha1.DeletionPolicy]*victim{}
	for _, p := range ill {
		w.put(widgets, p.namespace+"-team-a", object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: w}}"))
		if p.at.write == "" {
			healthy[p.policy] = p
		}
	}
	c, stop := w.work(ill...)
	bindings := func(p *victim) dynamic.ResourceInterface {
		return w.dyn.Resource(tenant.ClusterBindingResource).Namespace(p.namespace)
	}
	for _, p := range ill {
		var errs [3]error
		policy := fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, p.policy)
		if !p.at.after {
			_, errs[0] = bindings(p).Patch(w.t.Context(), "cluster", types.MergePatchType, policy, metav1.PatchOptions{})
		}
		errs[1] = bindings(p).Delete(w.t.Context(), "cluster", metav1.DeleteOptions{})
		if p.at.after {
			_, errs[2] = bindings(p).Patch(w.t.Context(), "cluster", types.MergePatchType, policy, metav1.PatchOptions{})
		}
		if err := errors.Join(errs[:]...); err != nil {
			w.t.Fatal(err)
		}
	}
	w.crashed(c, stop)
	w.enumerated(c, healthy[v1alpha1.DeletionPolicyDelete], healthy[v1alpha1.DeletionPolicyOrphan])
	_, stop = w.work()
	defer stop()
	w.recovered(ill, func(p *victim) *victim { return healthy[p.policy] }, func(state map[string]string) bool {
		_, there := state["namespaces T"]
		_, kept := state["widgets T-team-a/w"]
		held := state["roles T-team-a/klutch-binder"] + state["resourcequotas T-team-a/klutch-binder"]
		_, entered := state["rolebindings T-team-a/klutch-backend"]
		return !there && !entered && kept == (len(state) > 0) && !strings.Contains(held, "configmaps")
	})
}

// put creates an object as the administrator.
func (w *world) put(gvr schema.GroupVersionResource, namespace string, u *unstructured.Unstructured) {
	w.t.Helper()
	if _, err := w.dyn.Resource(gvr).Namespace(namespace).Create(w.t.Context(), u, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// ofTenant are the versions of all that a tenant has.
func (w *world) ofTenant(tenant string) map[string]string {
	w.t.Helper()
	own := w.versions()
	maps.DeleteFunc(own, func(name, _ string) bool { return !strings.Contains(name, tenant) })
	if len(own) < 8 {
		w.t.Fatalf("%d objects of a tenant", len(own))
	}
	return own
}

// states are what there is of each tenant, without names, times and numbers of its own.
func (w *world) states() map[string]map[string]string {
	w.t.Helper()
	all := map[string]map[string]string{}
	rbac, core := rbacv1.SchemeGroupVersion, corev1.SchemeGroupVersion
	for _, gvr := range []schema.GroupVersionResource{
		tenant.ExportResource, tenant.RequestResource, tenant.NamespaceResource, tenant.ClusterBindingResource, widgets, rbac.WithResource("roles"), rbac.WithResource("rolebindings"),
		core.WithResource("namespaces"), core.WithResource("secrets"), core.WithResource("serviceaccounts"), core.WithResource("resourcequotas"),
	} {
		list, err := w.dyn.Resource(gvr).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			name := strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/")
			tenant := tenantPattern.FindString(name)
			if tenant == "" || o.GetName() == "default" {
				continue
			}
			if all[tenant] == nil {
				all[tenant] = map[string]string{}
			}
			all[tenant][gvr.Resource+" "+strings.ReplaceAll(name, tenant, "T")] = strings.ReplaceAll(essence(o), tenant, "T")
		}
	}
	return all
}

var clusterIDPattern = regexp.MustCompile(`\bc[0-9][0-9]\b`)

// essence is what two backends have to agree on in an object.
func essence(o unstructured.Unstructured) string {
	meta := map[string]any{
		"labels": o.GetLabels(), "annotations": o.GetAnnotations(), "finalizers": o.GetFinalizers(), "deleted": o.GetDeletionTimestamp() != nil,
	}
	annotations := o.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool {
		return slices.Contains([]string{v1alpha1.RenewAfterAnnotation, v1alpha1.IssuedForAnnotation, v1alpha1.MadeAtAnnotation, v1alpha1.AnchorAnnotation}, key)
	})
	meta["annotations"] = annotations
	fields := map[string]any{"metadata": meta}
	for key, value := range o.Object {
		switch status, _ := value.(map[string]any); key {
		case "data":
			fields[key] = slices.Sorted(maps.Keys(status))
		case "status":
			fields["phase"], fields["namespace"], fields["conditions"] = status["phase"], status["namespace"], reasonsOf(status)
		case "metadata":
		default:
			fields[key] = value
		}
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return clusterIDPattern.ReplaceAllString(string(text), "C")
}

func reasonsOf(status map[string]any) (all []string) {
	conditions, _, _ := unstructured.NestedSlice(status, "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok {
			all = append(all, fmt.Sprint(c["type"], c["status"], c["reason"]))
		}
	}
	slices.Sort(all)
	return all
}
