// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/bind/internal/servicenamespace"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A claimWorld is two clusters in memory, a binding between them, and a claim on the
// Secrets of the provider. Namespace "team" has the service namespace "service".
type claimWorld struct {
	*testing.T
	app, controlPlane *fakecluster.Cluster
	konnector         *Konnector
	session           *session
	binding           *v1alpha1.APIServiceBinding
	export            *v1alpha1.APIServiceExport
	verdict           *verdict
	log               logr.Logger
	owner             v1alpha1.Owner // of the claimed Secrets
	narrow            bool           // the konnector takes its rights on them by namespace
}

// credential is the Secret of the binding, on which the konnector keeps what it deletes.
func (w *claimWorld) credential() *kubeconfigSecret {
	w.Helper()
	s := &kubeconfigSecret{
		name: cache.NewObjectName("klutch-bind", "kubeconfig"), calls: w.app.Client(),
		informer: cluster.Objects(w.app.Client(), cluster.Secrets, "klutch-bind").Informer(cache.Indexers{}),
	}
	w.namespace(w.app, s.name.Namespace)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret"}}
	u.SetName(s.name.Name)
	u, err := s.calls.Resource(cluster.Secrets).Namespace(s.name.Namespace).Create(w.Context(), u, metav1.CreateOptions{})
	if err == nil {
		err = s.informer.GetStore().Add(u)
	}
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func newClaimWorld(t *testing.T) *claimWorld {
	t.Helper()
	w := claimWorldOf(t, false)
	w.order("team")
	return w
}

// wideClaimWorld is one whose bound objects are cluster-scoped on both sides.
func wideClaimWorld(t *testing.T) *claimWorld {
	t.Helper()
	w := claimWorldOf(t, true)
	w.export.Spec.Scope, w.export.Spec.ClusterScopedIsolation = v1alpha1.ClusterScope, v1alpha1.IsolationPrefixed
	w.session.heartbeat.seen.tenant = "uid"
	w.order("")
	return w
}

func claimWorldOf(t *testing.T, wide bool) *claimWorld {
	t.Helper()
	widgets := fakecluster.Resource{GroupVersionResource: schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, Kind: "Widget", Cluster: wide}
	asked := fakecluster.Resource{GroupVersionResource: cluster.APIServiceNamespaces, Kind: "APIServiceNamespace"}
	w := &claimWorld{T: t, app: fakecluster.New(widgets), controlPlane: fakecluster.New(widgets, asked), owner: v1alpha1.OwnerProvider}
	source, err := klutchsync.NewClusterForClients(w.app.Client(), w.app.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	target, err := klutchsync.NewClusterForClients(w.controlPlane.Client(), w.controlPlane.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	w.konnector = &Konnector{
		shared:  shared{app: &appCluster{Clients: cluster.Clients{Calls: w.app.Client(), Meta: w.app.Metadata()}}},
		syncs:   newSyncs(source, Options{}, nil),
		records: records{of: map[cache.ObjectName]*bindingRecord{}},
	}
	w.konnector.app.namespaces = cluster.Metas(w.app.Metadata(), cluster.NamespacesResource).Informer(cache.Indexers{})
	w.konnector.app.bindings = cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{indexSecret: bySecret})
	w.session = &session{
		shared: &w.konnector.shared, heartbeat: &heartbeat{secret: w.credential()}, target: target, Clients: cluster.Clients{Calls: w.controlPlane.Client(), Meta: w.controlPlane.Metadata()}, place: kubeconfig.Kubeconfig{Namespace: "tenant"},
	}
	w.session.namespaces = &servicenamespace.Keeper{
		Config: servicenamespace.Config{App: w.konnector.app.namespaces, Asked: cluster.Objects(w.controlPlane.Client(), cluster.APIServiceNamespaces, "tenant").Informer(cache.Indexers{})},
		Mapper: klutchsync.NewNamespaces(nil),
	}
	w.session.namespaces.Mapper.Set("team", "service")
	w.namespace(w.app, "team")
	w.namespace(w.controlPlane, "service")
	w.namespace(w.controlPlane, "tenant")
	w.ask("team", "service")
	w.binding = &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "klutch-bind", Name: "widgets.example.org"}}
	w.export = &v1alpha1.APIServiceExport{Spec: v1alpha1.APIServiceExportSpec{APIServiceExportCRDSpec: v1alpha1.APIServiceExportCRDSpec{
		Group: "example.org", Names: v1alpha1.CRDNames{Plural: "widgets", Kind: "Widget"}, Scope: v1alpha1.NamespacedScope,
		Versions: []v1alpha1.APIServiceExportVersion{{Name: "v1", Served: true, Storage: true}},
	}}}
	return w
}

// ask makes an APIServiceNamespace as a konnector and a backend do.
func (w *claimWorld) ask(namespace, service string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceNamespace",
		"metadata": map[string]any{"name": namespace}, "spec": map[string]any{}, "status": map[string]any{"namespace": service},
	}}
	asks := w.controlPlane.Client().Resource(cluster.APIServiceNamespaces).Namespace("tenant")
	if _, err := asks.Create(w.Context(), u, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager}); err != nil {
		w.Fatal(err)
	}
	if _, err := asks.UpdateStatus(w.Context(), u, metav1.UpdateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// order creates an object of the bound API.
func (w *claimWorld) order(namespace string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": "order"}, "spec": map[string]any{"color": "red"}}}
	if _, err := w.widgets(namespace).Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *claimWorld) widgets(namespace string) dynamic.ResourceInterface {
	return w.app.Client().Resource(w.widgetsResource()).Namespace(namespace)
}

func (*claimWorld) widgetsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
}

// run has the world's syncs run until the returned function is called, which waits.
func (w *claimWorld) run() (stop func()) {
	return w.start(w.konnector.syncs.Run, group.Informer(w.session.namespaces.Asked), group.Informer(w.konnector.app.namespaces))
}

func (w *claimWorld) start(parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = group.Run(ctx, parts...)
	}()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// hold stops the Sync of the binding.
func (w *claimWorld) hold() {
	key := cache.MetaObjectToName(w.binding)
	w.konnector.syncs.end(key, &w.konnector.records.get(key).sync)
}

// restart is a konnector that knows nothing of what was.
func (w *claimWorld) restart() {
	w.hold()
	w.konnector.records.of = map[cache.ObjectName]*bindingRecord{}
}

// answer makes the claim Accepted, Rejected, or for "" removes it, and has the
// konnector look.
func (w *claimWorld) answer(state v1alpha1.ClaimState) {
	w.Helper()
	claim := v1alpha1.PermissionClaim{
		GroupResource: v1alpha1.GroupResource{Resource: "secrets"}, Version: "v1", Selector: v1alpha1.ResourceSelector{Owner: w.owner, Names: []string{"*"}},
	}
	w.binding.Spec.PermissionClaims, w.export.Spec.PermissionClaims = nil, []v1alpha1.PermissionClaim{claim}
	if state != "" {
		w.binding.Spec.PermissionClaims = []v1alpha1.AcceptablePermissionClaim{{PermissionClaim: claim, State: state}}
	}
	w.binding.Generation++
	w.look()
}

// drop has the provider claim nothing any more, and the binding say so, and the konnector look.
func (w *claimWorld) drop() {
	w.Helper()
	w.binding.Spec.PermissionClaims, w.export.Spec.PermissionClaims = nil, nil
	w.binding.Generation++
	w.look()
}

// look has the konnector look, and write to the binding what it says.
func (w *claimWorld) look() {
	w.Helper()
	for range 10 {
		w.verdict = newVerdict()
		_, err := w.pass().sync(logr.NewContext(w.Context(), w.log))
		if err == nil {
			w.verdict.apply(&w.binding.Status, w.binding.Generation)
			return
		}
		if !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
	w.Fatal("conflicts have no end")
}

// pass is a look at the binding.
func (w *claimWorld) pass() *pass {
	key := cache.MetaObjectToName(w.binding)
	var grant *permission.Grant
	if w.narrow {
		grant = permission.NewGrant(w.app.Client(), w.binding.Name, w.binding.Spec.PermissionClaims)
	}
	return &pass{
		grant: grant,
		app:   w.konnector.app, syncs: w.konnector.syncs, schemaInterval: w.konnector.opts.SchemaInterval,
		record: w.konnector.records.get(key), key: key, binding: w.binding, verdict: w.verdict, session: w.session, export: w.export,
	}
}

func (w *claimWorld) namespace(c *fakecluster.Cluster, name string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(name)
	if _, err := c.Client().Resource(cluster.NamespacesResource).Create(w.Context(), u, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *claimWorld) secrets(c *fakecluster.Cluster, namespace string) dynamic.ResourceInterface {
	return c.Client().Resource(cluster.Secrets).Namespace(namespace)
}

// put creates a Secret, unless there is one of this name, and tells whether it did.
func (w *claimWorld) put(c *fakecluster.Cluster, namespace, name, kind, value string) bool {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": kind, "data": map[string]any{"of": value}}}
	u.SetName(name)
	_, err := w.secrets(c, namespace).Create(w.Context(), u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		w.Fatal(err)
	}
	return err == nil
}

func (w *claimWorld) remove(c *fakecluster.Cluster, namespace, name string) {
	w.Helper()
	if err := w.secrets(c, namespace).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// there are the Secrets of a namespace, with whose they are.
func (w *claimWorld) there(c *fakecluster.Cluster, namespace string) map[string]string {
	w.Helper()
	list, err := w.secrets(c, namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	found := map[string]string{}
	for _, u := range list.Items {
		of, _, _ := unstructured.NestedString(u.Object, "data", "of")
		found[u.GetName()] = of
	}
	return found
}

// A spot is a namespace of a cluster.
type spot struct {
	*fakecluster.Cluster
	namespace string
}

// TestP20Consent lets the owner of Secrets, an owner of the App Cluster and the users
// of the other side do what they want, in any order, and looks at what has become of it whenever all is quiet:
// without consent, or an object of the API, there is no copy, with both there is one of everything that may be
// copied, and what was there before is as it was.
func TestP20Consent(t *testing.T) {
	for seed := range uint64(20) {
		owner := []v1alpha1.Owner{v1alpha1.OwnerProvider, v1alpha1.OwnerConsumer}[seed%2]
		t.Run(fmt.Sprint(owner, seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				w.owner = owner
				from, to := spot{w.controlPlane, "service"}, spot{w.app, "team"}
				if owner == v1alpha1.OwnerConsumer {
					from, to = to, from
				}
				defer w.run()()
				random := rand.New(rand.NewPCG(seed, 20)) //nolint:gosec // a test
				agreed, ordered := false, true
				theirs, users := map[string]bool{}, map[string]bool{} // names of the owner's, and of what is not a copy
				names := []string{"a", "b", "c"}
				for range 40 {
					name := names[random.IntN(len(names))]
					switch op := random.IntN(10); op {
					case 0, 1:
						w.answer(v1alpha1.ClaimAccepted)
						agreed = true
					case 2, 3:
						w.answer([]v1alpha1.ClaimState{v1alpha1.ClaimRejected, ""}[op-2])
						agreed = false
					case 4:
						theirs[name] = true
						w.put(from.Cluster, from.namespace, name, "Opaque", "owner")
					case 5:
						w.put(from.Cluster, from.namespace, "token-of-"+name, "kubernetes.io/service-account-token", "owner")
					case 6:
						delete(theirs, name)
						w.remove(from.Cluster, from.namespace, name)
					case 7:
						users[name] = w.put(to.Cluster, to.namespace, name, "Opaque", "user") || users[name]
					case 8:
						w.restart()
						switch random.IntN(4) {
						case 0:
							w.look()
						case 1:
							w.answer(v1alpha1.ClaimAccepted)
							agreed = true
						case 2:
							w.answer("")
							agreed = false
						case 3:
							w.drop()
							agreed = false
						}
					case 9:
						if ordered = !ordered; ordered {
							w.order("team")
						} else if err := w.widgets("team").Delete(t.Context(), "order", metav1.DeleteOptions{}); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Minute) // until it is gone
					}
					if random.IntN(3) > 0 {
						continue // and do the next thing meanwhile
					}
					time.Sleep(5 * time.Minute)
					want := map[string]string{}
					for _, n := range names {
						switch {
						case users[n]:
							want[n] = "user"
						case theirs[n] && agreed && ordered:
							want[n] = "owner"
						}
					}
					if diff := cmp.Diff(want, w.there(to.Cluster, to.namespace)); diff != "" {
						t.Fatalf("consent %t, object %t: Secrets on the other side (-want +got):\n%s", agreed, ordered, diff)
					}
				}
			})
		})
	}
}

// putLegacy leaves a Secret as Klutch's konnector leaves its copies.
func (w *claimWorld) putLegacy(c *fakecluster.Cluster, namespace, name string) {
	w.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "data": map[string]any{"of": "klutch"}}}
	u.SetName(name)
	u.SetAnnotations(map[string]string{"klutch.anynines.com/resource-owner": string(w.owner)})
	if _, err := w.secrets(c, namespace).Create(w.Context(), u, metav1.CreateOptions{FieldManager: "konnector"}); err != nil {
		w.Fatal(err)
	}
}

// What Klutch's konnector copied in either direction and what has no original any more is told, also in a namespace
// that was mapped long after the start, and goes with the consent.
func TestP20CopiesOfKlutch(t *testing.T) {
	for _, owner := range []v1alpha1.Owner{v1alpha1.OwnerProvider, v1alpha1.OwnerConsumer} {
		t.Run(string(owner), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				w.owner = owner
				to, late := spot{w.app, "team"}, spot{w.app, "late"}
				if owner == v1alpha1.OwnerConsumer {
					to, late = spot{w.controlPlane, "service"}, spot{w.controlPlane, "service-late"}
				}
				defer w.run()()
				w.answer(v1alpha1.ClaimAccepted)
				for range 10 { // until the konnector looks no more
					time.Sleep(time.Minute)
					w.look()
				}
				w.namespace(w.app, "late")
				w.namespace(w.controlPlane, "service-late")
				w.putLegacy(late.Cluster, late.namespace, "left")
				w.session.namespaces.Mapper.Set("late", "service-late")
				w.ask("late", "service-late")
				for range 2 {
					time.Sleep(time.Minute)
					w.look()
				}
				if c := w.verdict.found[v1alpha1.ConditionClaimsInSync]; !strings.Contains(c.Message, "secrets "+late.namespace+"/left") {
					t.Errorf("ClaimsInSync is %+v", c)
				}
				w.putLegacy(to.Cluster, to.namespace, "more")
				w.answer(v1alpha1.ClaimRejected)
				for _, at := range []spot{to, late} {
					if left := w.there(at.Cluster, at.namespace); len(left) > 0 {
						t.Errorf("copies remain in %s: %v", at.namespace, left)
					}
				}
			})
		})
	}
}

// What Klutch's konnector copied may be another binding's that has consent for the same: it stays where
// that one has objects, and there alone.
func TestP20CopiesOfKlutchBesideAnother(t *testing.T) {
	for _, scope := range []string{"Namespaced", "Cluster"} {
		t.Run(scope, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				defer w.run()()
				gadgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "gadgets"}
				w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition", Cluster: true})
				w.app.Serve(fakecluster.Resource{GroupVersionResource: gadgets, Kind: "Gadget", Cluster: scope == "Cluster"})
				w.namespace(w.app, "shared")
				for _, plural := range []string{"gadgets", "gizmos"} {
					crd := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": map[string]any{
						"group": "example.org", "scope": scope, "names": map[string]any{"plural": plural, "kind": "Any"},
						"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true}},
					}}}
					crd.SetName(plural + ".example.org")
					other := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"permissionClaims": []any{
						map[string]any{"resource": "secrets", "version": "v1", "state": "Accepted"},
					}}}}
					other.SetNamespace("klutch-bind")
					other.SetName(crd.GetName())
					_, err := w.app.Client().Resource(cluster.CRDs).Create(t.Context(), crd, metav1.CreateOptions{})
					if err == nil {
						err = w.konnector.app.bindings.GetStore().Add(other)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				gadget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Gadget"}}
				gadget.SetName("one")
				of := w.app.Client().Resource(gadgets).Namespace("shared")
				if scope == "Cluster" {
					of = w.app.Client().Resource(gadgets)
				}
				if _, err := of.Create(t.Context(), gadget, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.putLegacy(w.app, "team", "left")
				w.putLegacy(w.app, "shared", "left")
				var hidden atomic.Bool
				hidden.Store(true)
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if hidden.Load() && slices.Contains([]string{"gadgets", "gizmos"}, r.Resource.Resource) {
						return apierrors.NewForbidden(r.Resource.GroupResource(), "", nil)
					}
					return do()
				})
				w.answer(v1alpha1.ClaimRejected)
				w.says(v1alpha1.ReasonRevokedCopiesRemain, "those of gadgets.example.org, gizmos.example.org, whose")
				hidden.Store(false)
				w.says("")
				_, inTeam := w.there(w.app, "team")["left"]
				_, inShared := w.there(w.app, "shared")["left"]
				if !inShared || inTeam != (scope == "Cluster") {
					t.Errorf("copies remain: beside gadgets %t, elsewhere %t", inShared, inTeam)
				}
			})
		})
	}
}

// TestP20MayNotDelete: revoked consent is not forgotten while copies remain.
func TestP20MayNotDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		w.put(w.controlPlane, "service", "a", "Opaque", "provider")
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		denied := true
		w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if denied && r.Verb == "delete" {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, nil)
			}
			return do()
		})
		w.answer(v1alpha1.ClaimRejected)
		time.Sleep(time.Minute)
		if c := w.verdict.found[v1alpha1.ConditionClaimsInSync]; c.Reason != v1alpha1.ReasonRevokedCopiesRemain {
			t.Errorf("ClaimsInSync is %+v", c)
		}
		w.put(w.controlPlane, "service", "b", "Opaque", "provider")
		time.Sleep(time.Minute)
		if diff := cmp.Diff(map[string]string{"a": "provider"}, w.there(w.app, "team")); diff != "" {
			t.Errorf("Secrets in the App Cluster (-want +got):\n%s", diff)
		}
		denied = false
		w.look()
		if c := w.verdict.found[v1alpha1.ConditionClaimsInSync]; c.Status != metav1.ConditionTrue {
			t.Errorf("ClaimsInSync is %+v", c)
		}
		if left := w.there(w.app, "team"); len(left) > 0 {
			t.Errorf("copies remain: %v", left)
		}
	})
}

// A rulebook is what the API server of the App Cluster lets the konnector do with Secrets and the
// like: nothing but where a RoleBinding of the claims is, and what their ClusterRole says.
type rulebook struct {
	off          atomic.Bool // it rules nothing
	role, binder atomic.Bool // the ClusterRole has the claimed resources, and the konnector may bind it

	mu    sync.Mutex
	bound map[string]bool // namespaces with a RoleBinding
}

// permitted are rules under which the konnector may do all that it asks for.
func (w *claimWorld) permitted() *rulebook {
	rules := w.rules()
	rules.role.Store(true)
	rules.binder.Store(true)
	return rules
}

// rules has a rulebook rule in the App Cluster.
func (w *claimWorld) rules() *rulebook {
	rules := &rulebook{bound: map[string]bool{}}
	answer := func(path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			namespace, _, _ := unstructured.NestedString(u.Object, "spec", "resourceAttributes", "namespace")
			var value any = rules.allows(namespace)
			if path[0] != "allowed" {
				value = "system:serviceaccount:klutch-bind:konnector"
			}
			_ = unstructured.SetNestedField(u.Object, value, append([]string{"status"}, path...)...)
		}
	}
	w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.RoleBindings, Kind: "RoleBinding", Plain: true})
	for _, review := range []fakecluster.Resource{
		{GroupVersionResource: authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews"), Kind: "SelfSubjectAccessReview", Mutate: answer("allowed")},
		{GroupVersionResource: authenticationv1.SchemeGroupVersion.WithResource("selfsubjectreviews"), Kind: "SelfSubjectReview", Mutate: answer("userInfo", "username")},
	} {
		review.Cluster, review.Plain = true, true
		w.app.Serve(review)
	}
	w.app.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
		if strings.HasPrefix(r.Resource.Resource, "selfsubject") && r.Verb == "create" { // no API server keeps those
			_ = w.app.Client().Resource(r.Resource).Delete(ctx, r.Object.Name, metav1.DeleteOptions{})
		}
		claimed := slices.Contains([]string{"secrets", "configmaps"}, r.Resource.Resource) && r.Object.Namespace != v1alpha1.Namespace && !rules.allows(r.Object.Namespace)
		if !rules.off.Load() && (claimed || r.Resource == cluster.RoleBindings && !rules.binder.Load()) {
			return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, nil)
		}
		err := do()
		if err == nil && r.Resource == cluster.RoleBindings && (r.Verb == "create" || r.Verb == "delete") {
			rules.mu.Lock()
			defer rules.mu.Unlock()
			rules.bound[r.Object.Namespace] = r.Verb == "create"
		}
		return err
	})
	return rules
}

func (r *rulebook) allows(namespace string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.role.Load() && r.bound[namespace]
}

// secretsHere are the Secrets in the App Cluster but the konnector's own, as an administrator sees them.
func (w *claimWorld) secretsHere() (names []string) {
	all, _ := w.app.Objects(cluster.Secrets)
	for _, u := range all {
		if u.GetNamespace() != v1alpha1.Namespace {
			names = append(names, u.GetNamespace()+"/"+u.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// says wants ClaimsInSync to have a reason, and words in its message.
func (w *claimWorld) says(reason string, words ...string) {
	w.Helper()
	w.look()
	c := w.verdict.found[v1alpha1.ConditionClaimsInSync]
	if c.Reason != reason || strings.Contains(c.Message, "configmaps") || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(c.Message, word) }) {
		w.Errorf("ClaimsInSync is %+v, want reason %q and %q", c, reason, words)
	}
}

// TestP20RevokedBeforeThis: what Klutch's konnector copied with a consent that was revoked before
// this konnector came is looked for where that one has served objects: its absence is believed only
// where the konnector may look.
func TestP20RevokedBeforeThis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		w.answer(v1alpha1.ClaimRejected)
		if c, said := w.verdict.found[v1alpha1.ConditionClaimsInSync]; said {
			t.Errorf("nothing is known of the namespaces yet, and ClaimsInSync is %+v", c)
		}
		defer w.run()()
		w.putLegacy(w.app, "team", "left")
		w.put(w.app, "team", "own", "Opaque", "user")
		rules := w.rules()
		w.says("") // Klutch's konnector has served nothing
		w.mark("team")
		rejected := w.binding.DeepCopy()
		w.binding.Status.Conditions = nil
		w.binding.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: "kubectl-bind", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:permissionClaims":{}}}`),
		}}
		w.restart()
		w.says("") // nor copied anything: its own command has refused the claim

		w.binding = rejected
		w.binding.Status.Conditions = nil
		w.restart()
		const rule = "ClusterRole klutch-bind-claims-widgets.example.org with get, list and delete on secrets in team"
		w.says(v1alpha1.ReasonRevokedCopiesRemain, rule, "kubectl bind repair")
		w.restart()
		w.says(v1alpha1.ReasonRevokedCopiesRemain, rule)
		rules.binder.Store(true) // but the role says nothing of Secrets
		w.says(v1alpha1.ReasonRevokedCopiesRemain, rule)
		if diff := cmp.Diff([]string{"team/left", "team/own"}, w.secretsHere()); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		rules.role.Store(true)
		w.says("")
		if diff := cmp.Diff([]string{"team/own"}, w.secretsHere()); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		if rules.allows("team") {
			t.Error("the rights are not given back")
		}
		rules.role.Store(false)
		rules.binder.Store(false)
		w.restart()
		w.says("") // it has been done

		w.binding.Status.Conditions = nil
		rules.off.Store(true)
		w.putLegacy(w.app, "team", "left")
		rules.role.Store(true)
		rules.binder.Store(true)
		rules.off.Store(false)
		w.restart()
		w.says("")
		if left := w.secretsHere(); len(left) != 1 || rules.allows("team") {
			t.Errorf("Secrets: %v; rights: %t", left, rules.allows("team"))
		}
	})
}

// TestP20AnsweredWhileAway has a claim end while no konnector of ours runs, and Klutch's go on copying: what
// ours had found of the answers before says nothing of these, so that it looks for copies of both where
// objects were served, or says which right that takes.
func TestP20AnsweredWhileAway(t *testing.T) {
	for name, answer := range map[string]struct {
		state v1alpha1.ClaimState
		done  string // the reason, when nothing is left
	}{"rejected": {v1alpha1.ClaimRejected, ""}, "removed": {"", v1alpha1.ReasonNewClaims}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				defer w.run()()
				w.put(w.app, "team", "own", "Opaque", "user")
				rules := w.permitted()
				w.put(w.controlPlane, "service", "a", "Opaque", "provider")
				w.narrow = true
				w.answer(v1alpha1.ClaimAccepted)
				time.Sleep(time.Minute)
				w.says("")
				if diff := cmp.Diff([]string{"team/a", "team/own"}, w.secretsHere()); diff != "" {
					t.Fatalf("Secrets (-want +got):\n%s", diff)
				}
				w.restart() // and Klutch's konnector comes
				w.namespace(w.app, "late")
				w.order("late")
				w.mark("late")
				rules.off.Store(true)
				w.putLegacy(w.app, "late", "left")
				rules.off.Store(false)
				rules.role.Store(false) // the rights go with the consent
				w.answer(answer.state)
				w.says(v1alpha1.ReasonRevokedCopiesRemain, "with get, list and delete on secrets in ", "late", "team")
				w.restart()
				w.says(v1alpha1.ReasonRevokedCopiesRemain, "with get, list and delete on secrets in ", "late", "team")
				rules.role.Store(true)
				w.says(answer.done)
				if diff := cmp.Diff([]string{"team/own"}, w.secretsHere()); diff != "" {
					t.Errorf("Secrets (-want +got):\n%s", diff)
				}
				if rules.allows("team") || rules.allows("late") {
					t.Error("the rights are not given back")
				}
				rules.role.Store(false)
				w.restart()
				w.says(answer.done) // it has been done
			})
		})
	}
}

// TestP20RejectedAtOnce has a person reject a claim whose consent this konnector has just carried out, and before it
// took rights where Klutch's konnector has served objects: the copies there go all the same.
func TestP20RejectedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		w.putLegacy(w.app, "team", "left")
		w.put(w.app, "team", "own", "Opaque", "user")
		rules := w.permitted()
		w.narrow = true
		w.mark("team")
		w.answer(v1alpha1.ClaimAccepted)
		w.answer(v1alpha1.ClaimRejected)
		w.says("")
		if diff := cmp.Diff([]string{"team/own"}, w.secretsHere()); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		if rules.allows("team") {
			t.Error("the rights are not given back")
		}
	})
}

// TestP20LastWord: ClaimsInSync, by which the next konnector knows what was done, says nothing of answers that
// are not carried out, and that copies remain whatever else there is to say.
func TestP20LastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		stop := w.start(w.konnector.syncs.Run) // and which namespaces the platform serves is not known
		w.put(w.controlPlane, "service", "a", "Opaque", "provider")
		w.put(w.app, "team", "a", "Opaque", "user")
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		w.look()
		if c, said := w.verdict.found[v1alpha1.ConditionClaimsInSync]; said {
			t.Errorf("not carried out, and ClaimsInSync is %+v", c)
		}
		stop()
	})
	p := &pass{verdict: newVerdict()}
	p.verdict.set(warned(v1alpha1.ConditionClaimsInSync, v1alpha1.ReasonRevokedCopiesRemain, "Copies remain."))
	p.relatedWait(map[string]string{"late": "no"})
	if c := p.verdict.found[v1alpha1.ConditionClaimsInSync]; c.Reason != v1alpha1.ReasonRevokedCopiesRemain || !strings.Contains(c.Message, "cannot be read in late") || !strings.Contains(c.Message, "Copies remain.") {
		t.Errorf("ClaimsInSync is %+v", c)
	}
}

// mark gives the order of a namespace an annotation as Klutch's konnector does.
func (w *claimWorld) mark(namespace string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.BoundAnnotation)
	if _, err := w.widgets(namespace).Patch(w.Context(), "order", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "konnector"}); err != nil {
		w.Fatal(err)
	}
}

// TestP20RightsGoWithTheConsent: a konnector whose rights are taken together with the consent says
// that it cannot look for its copies, also after a restart, and removes them when it may.
func TestP20RightsGoWithTheConsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		rules := w.permitted()
		w.put(w.controlPlane, "service", "a", "Opaque", "provider")
		w.narrow = true
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		w.says("")
		if diff := cmp.Diff([]string{"team/a"}, w.secretsHere()); diff != "" {
			t.Fatalf("Secrets (-want +got):\n%s", diff)
		}
		for _, binder := range []bool{true, false} { // or it may not even see where it had rights
			where := " on secrets in team;"
			if !binder {
				where = " on secrets;"
				w.answer(v1alpha1.ClaimAccepted)
				time.Sleep(time.Minute)
				w.says("")
			}
			rules.role.Store(false)
			rules.binder.Store(binder)
			w.answer(v1alpha1.ClaimRejected)
			w.says(v1alpha1.ReasonRevokedCopiesRemain, where)
			w.restart()
			w.says(v1alpha1.ReasonRevokedCopiesRemain, where)
			if diff := cmp.Diff([]string{"team/a"}, w.secretsHere()); diff != "" {
				t.Fatalf("Secrets (-want +got):\n%s", diff)
			}
			rules.role.Store(true)
			rules.binder.Store(true)
			w.says("")
			if left := w.secretsHere(); len(left) > 0 || rules.allows("team") {
				t.Errorf("copies remain: %v; rights: %t", left, rules.allows("team"))
			}
		}
	})
}

// TestP20PlatformHidesCopies: a platform that does not let the konnector list what was copied to it
// is named for that, until it does.
func TestP20PlatformHidesCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		w.owner = v1alpha1.OwnerConsumer
		w.put(w.app, "team", "a", "Opaque", "user")
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		var hidden atomic.Bool
		hidden.Store(true)
		w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if hidden.Load() && r.Resource == cluster.Secrets {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, nil)
			}
			return do()
		})
		w.answer(v1alpha1.ClaimRejected)
		w.says(v1alpha1.ReasonRevokedCopiesRemain, "the platform does not let the konnector look", "to list secrets in service")
		hidden.Store(false)
		w.says("")
		if left := w.there(w.controlPlane, "service"); len(left) > 0 {
			t.Errorf("copies remain: %v", left)
		}
	})
}

// TestP27ClaimAnswers: what a person answers leaves one record, however often a
// konnector looks.
func TestP27ClaimAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		var records []string
		w.log = funcr.NewJSON(func(record string) { records = append(records, record) }, funcr.Options{})
		defer w.run()()
		w.put(w.controlPlane, "service", "a", "Opaque", "provider")
		for _, state := range []v1alpha1.ClaimState{v1alpha1.ClaimAccepted, v1alpha1.ClaimRejected, ""} {
			w.answer(state)
			time.Sleep(time.Minute)
			w.look()
		}
		if diff := cmp.Diff([]string{
			`{"logger":"audit","level":0,"msg":"claims answered","answers":["Accepted secrets"]}`,
			`{"logger":"audit","level":0,"msg":"consent revoked, copies removed","copies":1}`,
			`{"logger":"audit","level":0,"msg":"claims answered","answers":["Rejected secrets"]}`,
			`{"logger":"audit","level":0,"msg":"claims answered","answers":[]}`,
		}, records); diff != "" {
			t.Errorf("records (-want +got):\n%s", diff)
		}
	})
}

// A copy that another binding wants too stays, and is that one's alone from then on.
func TestP20SharedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		w.put(w.controlPlane, "service", "a", "Opaque", "provider")
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		copied, err := w.secrets(w.app, "team").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const other = "klutch.anynines.com/gadgets.example.org/related"
		copied.SetResourceVersion("")
		copied.SetManagedFields(nil)
		if _, err := w.secrets(w.app, "team").Apply(t.Context(), "a", copied, metav1.ApplyOptions{FieldManager: other, Force: true}); err != nil {
			t.Fatal(err)
		}
		w.answer(v1alpha1.ClaimRejected)
		if copied, err = w.secrets(w.app, "team").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, entry := range copied.GetManagedFields() {
			left = append(left, entry.Manager)
		}
		if diff := cmp.Diff([]string{other}, left); diff != "" {
			t.Errorf("managers (-want +got):\n%s", diff)
		}
	})
}

// TestProtectedCopy: a copy that the API server keeps once there is no consent keeps no other one, and
// is told.
func TestProtectedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newClaimWorld(t)
		defer w.run()()
		for _, name := range []string{"a", "b", "c"} {
			w.put(w.controlPlane, "service", name, "Opaque", "provider")
		}
		w.answer(v1alpha1.ClaimAccepted)
		time.Sleep(time.Minute)
		w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "delete" && r.Object.Name == "a" {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("a policy protects it"))
			}
			return do()
		})
		w.answer(v1alpha1.ClaimRejected)
		w.says(v1alpha1.ReasonRevokedCopiesRemain, "secrets")
		if diff := cmp.Diff([]string{"team/a"}, w.secretsHere()); diff != "" {
			t.Errorf("Secrets (-want +got):\n%s", diff)
		}
		w.app.Intercept(nil)
		w.says("")
		if left := w.secretsHere(); len(left) > 0 {
			t.Errorf("copies remain: %v", left)
		}
	})
}
