// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	tenant  = "cluster-abc"
	widgets = "widgets.example.org"
)

var (
	secretsGVR    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crdsGVR       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgetsGVR    = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	bindingsGVR   = v1alpha1.Resource("apiservicebindings")
	exportsGVR    = v1alpha1.Resource("apiserviceexports")
	requestedGVR  = v1alpha1.Resource("apiservicenamespaces")
	clustersGVR   = v1alpha1.Resource("clusterbindings")
)

// A world is two clusters, with an administrator's access.
type world struct {
	app, controlPlane *side
	konnector         *rest.Config // of the konnector in the App Cluster
	secret            string       // of bindings made by bind
	bindings          string       // their namespace; empty where they are cluster-scoped
	census            func() ([]bind.Bound, bool)
}

type side struct {
	*cluster.Cluster
	dyn    dynamic.Interface
	kube   kubernetes.Interface
	mapper *restmapper.DeferredDiscoveryRESTMapper
}

func newSide(t *testing.T, name string) *side {
	t.Helper()
	return sideOf(t, cluster.Reused(t, name))
}

func sideOf(t *testing.T, c *cluster.Cluster) *side {
	t.Helper()
	s := &side{Cluster: c}
	var err error
	if s.dyn, err = dynamic.NewForConfig(quick(s.Config())); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(quick(s.Config())); err != nil {
		t.Fatal(err)
	}
	s.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.kube.Discovery()))
	return s
}

func quick(c *rest.Config) *rest.Config {
	c.QPS = -1
	return c
}

// newWorld has the konnector's shipped roles in one cluster and a tenant with the
// rights of a backend in the other. Its test runs beside others: most of what it does is
// to wait for API servers.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newLoneWorld(t)
}

// newLoneWorld is a world whose test runs alone, because it measures memory or time.
func newLoneWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, newSide(t, "app"))
}

// newWideWorld is a world where widgets, or bindings, are cluster-scoped in the App Cluster. That is no other test's: for
// half a minute an API server remembers the scope of a kind that an admission policy looks at, and the garbage collector
// that of a kind of owners. It would look for a namespaced binding without its namespace, and delete its CRD.
func newWideWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return worldOf(t, sideOf(t, cluster.ForTest(t, "app")))
}

func worldOf(t *testing.T, app *side) *world {
	t.Helper()
	w := &world{secret: "kubeconfig", bindings: v1alpha1.Namespace, app: app, controlPlane: newSide(t, "control-plane")}
	for _, file := range []string{"namespace.yaml", "rbac.yaml", "admission.yaml"} {
		w.app.apply(t, read(t, filepath.Join("..", "deploy", "konnector", file))...)
	}
	w.konnector = w.app.as(t, v1alpha1.Namespace, "konnector")
	for _, crd := range v1alpha1.CRDs() {
		w.controlPlane.apply(t, crd)
	}
	w.controlPlane.apply(t, read(t, filepath.Join("testdata", "tenant.yaml"))...)
	return w
}

func read(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*unstructured.Unstructured
	for dec := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		u := &unstructured.Unstructured{}
		if err := dec.Decode(&u.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(u.Object) > 0 {
			all = append(all, u)
		}
	}
}

// apply makes objects what they say, retrying what is not served yet.
func (s *side) apply(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	for _, u := range objects {
		eventually(t, func() error {
			gvk := u.GroupVersionKind()
			mapping, err := s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				s.mapper.Reset()
				return err
			}
			client := s.dyn.Resource(mapping.Resource)
			if mapping.Scope.Name() == meta.RESTScopeNameRoot {
				_, err = client.Apply(t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
			} else {
				_, err = client.Namespace(u.GetNamespace()).Apply(t.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
			}
			return err
		})
	}
}

// as returns the configuration of a service account.
func (s *side) as(t *testing.T, namespace, account string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Config())
	config.BearerToken = s.token(t, namespace, account)
	return config
}

func (s *side) token(t *testing.T, namespace, account string) string {
	t.Helper()
	var token string
	eventually(t, func() error {
		r, err := s.kube.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err == nil {
			token = r.Status.Token
		}
		return err
	})
	return token
}

// kubeconfig is what a backend hands out.
func (w *world) kubeconfig(t *testing.T) []byte {
	t.Helper()
	config := w.controlPlane.Config()
	k := kubeconfig.Kubeconfig{
		Server: w.controlPlane.URL(), CAData: config.CAData, TLSServerName: config.ServerName,
		Namespace: tenant, Token: w.controlPlane.token(t, tenant, v1alpha1.TenantServiceAccount),
	}
	data, err := k.Write()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func secret(namespace, name string, data []byte) *unstructured.Unstructured {
	return object("v1", "Secret", namespace, name, map[string]any{
		"data": map[string]any{v1alpha1.KubeconfigKey: base64.StdEncoding.EncodeToString(data)},
	})
}

func object(apiVersion, kind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	maps.Copy(u.Object, fields)
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

// bind makes a binding as kubectl bind does.
func (w *world) bind(t *testing.T, name string, claims ...any) {
	t.Helper()
	if claims == nil {
		claims = []any{}
	}
	w.app.apply(t, object(v1alpha1.GroupVersion.String(), "APIServiceBinding", v1alpha1.Namespace, name, map[string]any{
		"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": w.secret, "key": v1alpha1.KubeconfigKey},
			"permissionClaims":    claims,
		},
	}))
}

// allow writes what kubectl bind writes for a binding of widgets or the like.
func (w *world) allow(t *testing.T, name string) {
	t.Helper()
	b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, name)
	e := get[v1alpha1.APIServiceExport](t, w.controlPlane, exportsGVR, tenant, name)
	w.app.apply(t, bind.Rights(e.Spec, b.Spec.PermissionClaims)...)
}

// serveNamespace does what a backend does for an APIServiceNamespace.
func (w *world) serveNamespace(t *testing.T, name string, rules []rbacv1.PolicyRule) string {
	t.Helper()
	eventually(t, func() error {
		_, err := w.controlPlane.dyn.Resource(requestedGVR).Namespace(tenant).Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	service := tenant + "-" + name
	role := &rbacv1.Role{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}, ObjectMeta: metav1.ObjectMeta{Namespace: service, Name: "klutch-binder"}, Rules: rules,
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
	if err != nil {
		t.Fatal(err)
	}
	w.controlPlane.apply(t,
		object("v1", "Namespace", "", service, nil),
		&unstructured.Unstructured{Object: m},
		object("rbac.authorization.k8s.io/v1", "RoleBinding", service, "klutch-binder", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "klutch-binder"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": tenant, "name": v1alpha1.TenantServiceAccount}},
		}))
	w.controlPlane.patchStatus(t, requestedGVR, tenant, name, map[string]any{"namespace": service})
	return service
}

func (s *side) patchStatus(t *testing.T, gvr schema.GroupVersionResource, namespace, name string, status map[string]any) {
	t.Helper()
	s.patch(t, gvr, cache.NewObjectName(namespace, name), map[string]any{"status": status}, "status")
}

func (s *side) patch(t *testing.T, gvr schema.GroupVersionResource, name cache.ObjectName, patch map[string]any, subresources ...string) {
	t.Helper()
	data, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.dyn.Resource(gvr).Namespace(name.Namespace).Patch(t.Context(), name.Name, types.MergePatchType, data, metav1.PatchOptions{}, subresources...); err != nil {
		t.Fatalf("patch %s %s: %v", gvr.Resource, name, err)
	}
}

// run runs a konnector until the test or stop ends it, and fails the test if that
// leaves something behind or logs a secret.
func (w *world) run(t *testing.T, opts bind.Options, logs ...logr.Logger) (stop func()) {
	t.Helper()
	opts.SchemaInterval = time.Millisecond
	var k *bind.Konnector
	done, label := make(chan error, 1), strconv.FormatInt(konnectors.Add(1), 10)
	ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), append(logs, logger(t))[0]))
	pprof.Do(ctx, pprof.Labels("konnector", label), func(ctx context.Context) {
		var err error
		if k, err = bind.New(quick(rest.CopyConfig(w.konnector)), opts); err != nil {
			t.Fatal(err)
		}
		go func() { done <- k.Run(ctx) }()
	})
	w.census = k.Census
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
			nothingLeft(t, label)
		case <-time.After(2 * time.Minute):
			t.Error("Run does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

// konnectors counts those that tests have run. A goroutine has the label of the one that
// started it, so that each is told from those of tests that run at the same time.
var konnectors atomic.Int64

// nothingLeft fails the test if goroutines of a konnector still run. It leaves a moment
// to those that have been told to end and have nothing left to do.
func nothingLeft(t *testing.T, konnector string) {
	t.Helper()
	var left []string
	err := wait.PollUntilContextTimeout(context.WithoutCancel(t.Context()), 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		left = leftBehind(konnector)
		return len(left) == 0, nil
	})
	if err != nil {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n\n"))
	}
}

// leftBehind are the goroutines of a konnector, but for those of package net/http, which
// keep connections for the next request.
func leftBehind(konnector string) []string {
	var profile strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
	var left []string
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		outermost := stack[strings.LastIndexByte(strings.TrimSpace(stack), '\n')+1:]
		if strings.Contains(stack, fmt.Sprintf("%q:%q", "konnector", konnector)) && !strings.Contains(outermost, "net/http") {
			left = append(left, stack)
		}
	}
	return left
}

// logger writes to the test's log until the test ends.
func logger(t *testing.T) logr.Logger {
	t.Helper()
	var mu sync.Mutex
	ended := false
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
	})
	return funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			t.Log(time.Now().Format("05.000"), prefix, text.Clip(args, 300)) // or what failed is hard to find
		}
	}, funcr.Options{})
}

// eventually waits until check finds nothing wrong. It says what it waited for if that took long: on a machine that
// other work slows down, this tells a wait that is slow from one that has no end.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	const patience, long = 4 * time.Minute, time.Minute
	var last, waited error
	begun := time.Now()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		if last = check(); last != nil {
			waited = last
		}
		return last == nil, nil
	})
	switch took := time.Since(begun); {
	case err != nil:
		t.Fatalf("not within %s: %v", patience, last)
	case took > long:
		t.Logf("it took %s until this was over: %v", took, waited)
	}
}

func get[T any](t *testing.T, s *side, gvr schema.GroupVersionResource, namespace, name string) *T {
	t.Helper()
	o, err := find[T](t, s, gvr, namespace, name)
	if err != nil {
		t.Fatalf("%s %s/%s: %v", gvr.Resource, namespace, name, err)
	}
	return o
}

func find[T any](t *testing.T, s *side, gvr schema.GroupVersionResource, namespace, name string) (*T, error) {
	t.Helper()
	u, err := s.dyn.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o := new(T)
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
}

// condition waits until a condition of the binding is False for this reason, or True
// for none, with a message that contains each of words.
func (w *world) condition(t *testing.T, name, conditionType, reason string, words ...string) {
	t.Helper()
	eventually(t, func() error {
		b, err := find[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, name)
		if err != nil {
			return err
		}
		return hasCondition(b.Status.Conditions, conditionType, reason, words...)
	})
}

func hasCondition(conditions []v1alpha1.Condition, conditionType, reason string, words ...string) error {
	c := v1alpha1.FindCondition(conditions, conditionType)
	if c == nil || (c.Status == metav1.ConditionTrue) != (reason == "") || c.Reason != reason {
		return fmt.Errorf("%s is not %q: %+v", conditionType, reason, conditions)
	}
	for _, word := range words {
		if !strings.Contains(c.Message, word) {
			return fmt.Errorf("%s says %q, want %q in it", conditionType, c.Message, word)
		}
	}
	return nil
}

func (w *world) ready(t *testing.T, name string) {
	t.Helper()
	w.condition(t, name, v1alpha1.ConditionReady, "")
}

func widget(namespace, name string, spec map[string]any) *unstructured.Unstructured {
	return object("example.org/v1", "Widget", namespace, name, map[string]any{"spec": spec})
}

var widgetRights = []rbacv1.PolicyRule{
	{APIGroups: []string{"example.org"}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
	{APIGroups: []string{"example.org"}, Resources: []string{"widgets/status"}, Verbs: []string{"get"}},
	{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
}

var secretsClaim = map[string]any{
	"resource": "secrets", "version": "v1", "required": true, "state": "Accepted",
	"selector": map[string]any{"owner": "Provider", "references": []any{map[string]any{"path": "status.secret"}}},
}

// offer puts the API of an export into the Control Plane Cluster, and the export into
// the tenant namespace.
func (w *world) offer(t *testing.T, export *unstructured.Unstructured) {
	t.Helper()
	w.controlPlane.serve(t, export)
	export.SetNamespace(tenant)
	w.controlPlane.apply(t, export)
}

// serve makes the CRD that an export is of.
func (s *side) serve(t *testing.T, export *unstructured.Unstructured) {
	t.Helper()
	spec := runtime.DeepCopyJSON(export.Object["spec"].(map[string]any))
	delete(spec, "informerScope")
	delete(spec, "clusterScopedIsolation")
	delete(spec, "permissionClaims")
	s.apply(t, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", export.GetName(), map[string]any{"spec": spec}))
}

// A story is one binding's life. Each chapter builds on those before it.
type story struct {
	*world
	parent  *testing.T // outlives the chapters
	export  *unstructured.Unstructured
	service string // service namespace of namespace team
	stop    func()
}

func (s *story) start() {
	s.stop = s.run(s.parent, bind.Options{Version: "v1.2.3", HeartbeatInterval: 4 * time.Second, NamespaceGrace: 2 * time.Second})
}

// TestKonnector ends with the first chapter that fails.
func TestKonnector(t *testing.T) {
	s := &story{world: newWorld(t), parent: t, export: read(t, filepath.Join("testdata", "widgets.yaml"))[0]}
	s.start()
	_ = t.Run("CRD of bindings is installed, namespaced", s.crdInstalled) &&
		t.Run("no Secret", s.noSecret) &&
		t.Run("Secret with exec", s.secretWithExec) &&
		t.Run("no export", s.noExport) &&
		t.Run("heartbeat", s.heartbeat) &&
		t.Run("P32 rights missing, nothing installed, and given", s.rights) &&
		t.Run("CRD with the same schema", s.sameSchema) &&
		t.Run("export says so", s.exportStatus) &&
		t.Run("claim goes up, status and Secret come down", s.claimTravels) &&
		t.Run("all is counted", s.counted) &&
		t.Run("consent is revoked, and given again", s.consentRevoked) &&
		t.Run("a service namespace is refused", s.namespaceRefused) &&
		t.Run("schema changes", s.schemaChanges) &&
		t.Run("claims grow", s.claimsGrow) &&
		t.Run("the offer is withdrawn, and made again", s.offerWithdrawn) &&
		t.Run("another App Cluster holds the tenant", s.heldElsewhere) &&
		t.Run("the control plane was replaced while the konnector was away", s.controlPlaneReplaced) &&
		t.Run("P13 a login has ended the credentials before it", s.credentialAwaited) &&
		t.Run("token rotates", s.tokenRotates) &&
		t.Run("nothing happens when nothing changed", s.idle) &&
		t.Run("control plane away and back", s.controlPlaneAway) &&
		t.Run("export vanishes and returns", s.exportVanishes) &&
		t.Run("claim is deleted on both sides", s.claimDeleted) &&
		t.Run("namespace goes", s.namespaceGoes) &&
		t.Run("CRD vanishes and is made anew", s.crdVanishes) &&
		t.Run("CRD with claims is deleted, and nothing with it", s.crdTerminates) &&
		t.Run("Events tell of it", s.events) &&
		t.Run("a neighbour's Secret is not used", s.neighbour) &&
		t.Run("Secret leads elsewhere and back", s.otherPlace) &&
		t.Run("foreign CRD is left alone", s.foreignCRD) &&
		t.Run("binding goes, nothing else does", s.bindingGoes) &&
		t.Run("binding returns and takes up where it was", s.bindingReturns)
	s.stop()
}

func (s *story) crdInstalled(t *testing.T) {
	eventually(t, func() error {
		u, err := s.app.dyn.Resource(crdsGVR).Get(t.Context(), "apiservicebindings.klutch.anynines.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if scope, _, _ := unstructured.NestedString(u.Object, "spec", "scope"); scope != "Namespaced" {
			return fmt.Errorf("scope %q", scope)
		}
		return nil
	})
}

func (s *story) noSecret(t *testing.T) {
	s.bind(t, widgets, secretsClaim)
	s.condition(t, widgets, v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretNotFound, "klutch-bind/kubeconfig", "kubectl bind")
	s.condition(t, widgets, v1alpha1.ConditionReady, v1alpha1.ReasonKubeconfigSecretNotFound)
}

func (s *story) secretWithExec(t *testing.T) {
	bad := bytes.Replace(s.kubeconfig(t), []byte("    token:"), []byte("    exec: {apiVersion: client.authentication.k8s.io/v1, command: id}\n    token:"), 1)
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, bad))
	s.condition(t, widgets, v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid, "users[0].user.exec", "kubectl bind")
}

func (s *story) noExport(t *testing.T) {
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, s.kubeconfig(t)))
	s.condition(t, widgets, v1alpha1.ConditionSecretValid, "")
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportNotFound, widgets)
}

func (s *story) heartbeat(t *testing.T) {
	s.condition(t, widgets, v1alpha1.ConditionHeartbeating, "")
	cb := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster")
	got := []any{cb.Status.KonnectorVersion, cb.Status.HeartbeatInterval.Duration, time.Since(cb.Status.LastHeartbeatTime.Time) < 10*time.Second}
	if diff := cmp.Diff([]any{"v1.2.3", 4 * time.Second, true}, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func (s *story) sameSchema(t *testing.T) {
	s.condition(t, widgets, v1alpha1.ConditionSchemaInSync, "")
	theirs, ours := get[unstructured.Unstructured](t, s.controlPlane, crdsGVR, "", widgets), get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
	if diff := cmp.Diff(theirs.Object["spec"], ours.Object["spec"]); diff != "" {
		t.Errorf("spec (-control plane +app):\n%s", diff)
	}
}

// rights: before they are given nothing is installed.
func (s *story) rights(t *testing.T) {
	s.offer(t, s.export)
	s.condition(t, widgets, v1alpha1.ConditionInformersSynced, "MissingRights",
		"klutch-bind-konnector-"+widgets, v1alpha1.AggregateToKonnectorLabel, "list, watch, update, patch widgets.example.org", "create", "secrets",
		"bind clusterroles.rbac.authorization.k8s.io klutch-bind-claims-"+widgets)
	if err := goneFrom(t, s.app, crdsGVR, "", widgets); err != nil {
		t.Error(err)
	}
	s.allow(t, widgets)
	s.ready(t, widgets)
	b := get[v1alpha1.APIServiceBinding](t, s.app, bindingsGVR, v1alpha1.Namespace, widgets)
	if b.Status.ProviderPrettyName != "Test backend" {
		t.Errorf("providerPrettyName is %q", b.Status.ProviderPrettyName)
	}
}

func (s *story) exportStatus(t *testing.T) {
	eventually(t, func() error {
		e := get[v1alpha1.APIServiceExport](t, s.controlPlane, exportsGVR, tenant, widgets)
		for _, c := range []string{v1alpha1.ConditionConnected, v1alpha1.ConditionConsumerInSync, "Established", "NamesAccepted", v1alpha1.ConditionReady} {
			if !v1alpha1.IsTrue(e.Status.Conditions, c) {
				return fmt.Errorf("%s is not True: %+v", c, e.Status.Conditions)
			}
		}
		if e.Status.AcceptedNames == nil || e.Status.AcceptedNames.Kind != "Widget" || len(e.Status.StoredVersions) != 1 {
			return fmt.Errorf("status is %+v", e.Status)
		}
		return nil
	})
}

// claimsGrow: what was agreed to goes on, and nothing is done for the rest.
func (s *story) claimsGrow(t *testing.T) {
	before := get[unstructured.Unstructured](t, s.controlPlane, exportsGVR, tenant, widgets)
	claims, _, _ := unstructured.NestedSlice(before.Object, "spec", "permissionClaims")
	change := func(claims []any) {
		patch, err := json.Marshal(map[string]any{"spec": map[string]any{"permissionClaims": claims}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.controlPlane.dyn.Resource(exportsGVR).Namespace(tenant).Patch(t.Context(), widgets, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change(append(slices.Clone(claims), map[string]any{"resource": "configmaps", "version": "v1", "required": true}))
	s.condition(t, widgets, "ClaimsInSync", "NewClaims", "configmaps", "kubectl bind")
	s.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	change(claims)
	s.ready(t, widgets)
}

// offerWithdrawn: what the backend says on the export stands on the binding, and not
// what follows from it.
func (s *story) offerWithdrawn(t *testing.T) {
	s.withdraw(t, widgets+" is not on offer any more")
	s.condition(t, widgets, v1alpha1.ConditionOffered, v1alpha1.ReasonNotOffered, "not on offer any more. ", "Ask the operators of Test backend")
	s.condition(t, widgets, v1alpha1.ConditionReady, v1alpha1.ReasonNotOffered, "Ask the operators")
	s.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	s.offerAgain(t)
	s.ready(t, widgets)
	s.condition(t, widgets, v1alpha1.ConditionOffered, "")
}

// withdraw says on the export of widgets, as a backend does, why it is no offer any more.
func (w *world) withdraw(t *testing.T, why string) {
	t.Helper()
	w.sayOffered(t, v1alpha1.False(v1alpha1.ConditionOffered, v1alpha1.SeverityError, v1alpha1.ReasonNotOffered, why))
}

func (w *world) offerAgain(t *testing.T) {
	t.Helper()
	w.sayOffered(t, v1alpha1.True(v1alpha1.ConditionOffered))
}

func (w *world) sayOffered(t *testing.T, offered v1alpha1.Condition) {
	t.Helper()
	w.controlPlane.edit(t, exportsGVR, cache.NewObjectName(tenant, widgets), func(e *v1alpha1.APIServiceExport) {
		e.Status.Conditions = v1alpha1.SetCondition(e.Status.Conditions, offered)
	})
}

// edit changes the status of an object, however often others do.
func (s *side) edit(t *testing.T, gvr schema.GroupVersionResource, name cache.ObjectName, change func(*v1alpha1.APIServiceExport)) {
	t.Helper()
	eventually(t, func() error {
		e := get[v1alpha1.APIServiceExport](t, s, gvr, name.Namespace, name.Name)
		change(e)
		m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
		if err != nil {
			return err
		}
		_, err = s.dyn.Resource(gvr).Namespace(name.Namespace).UpdateStatus(t.Context(), &unstructured.Unstructured{Object: m}, metav1.UpdateOptions{})
		return err
	})
}

// heldElsewhere: of two App Clusters with one credential, the first keeps the tenant.
func (s *story) heldElsewhere(t *testing.T) {
	holder := func() string {
		return get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.ClusterUID
	}
	system := get[unstructured.Unstructured](t, s.app, namespacesGVR, "", metav1.NamespaceSystem)
	if holder() != string(system.GetUID()) {
		t.Errorf("the tenant is held by %q, want %s", holder(), system.GetUID())
	}
	pin := func(uid string) {
		patch := fmt.Appendf(nil, `{"status":{"clusterUID":%q}}`, uid)
		if _, err := s.controlPlane.dyn.Resource(clustersGVR).Namespace(tenant).Patch(t.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	pin("another")
	s.condition(t, widgets, v1alpha1.ConditionConnected, "TenantHeldByAnotherCluster", tenant, "another", "kubectl bind")
	if got := holder(); got != "another" {
		t.Errorf("the tenant is held by %q", got)
	}
	pin("")
	s.ready(t, widgets)
	if got := holder(); got != string(system.GetUID()) {
		t.Errorf("the tenant is held by %q", got)
	}
}

// controlPlaneReplaced: a konnector that starts finds a tenant other than the one that
// the Secret was bound to. What it does not find there is not gone. When the former one is back, all goes on
// and nothing has changed; one that runs meets another one, and the owner takes its mark off the Secret.
func (s *story) controlPlaneReplaced(t *testing.T) {
	const pinned = "klutch.anynines.com/tenant-uid"
	name := cache.NewObjectName(v1alpha1.Namespace, s.secret)
	pin := func() string {
		return get[unstructured.Unstructured](t, s.app, secretsGVR, name.Namespace, name.Name).GetAnnotations()[pinned]
	}
	repin := func(uid any) {
		s.app.patch(t, secretsGVR, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{pinned: uid}}})
	}
	uid := string(get[unstructured.Unstructured](t, s.controlPlane, namespacesGVR, "", tenant).GetUID())
	if got := pin(); got != uid {
		t.Fatalf("the Secret is bound to tenant %q, want %s", got, uid)
	}
	s.app.apply(t, widget("team", "doomed", map[string]any{"size": int64(1)}))
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, s.service, "doomed")
		return err
	})
	credential := get[unstructured.Unstructured](t, s.app, secretsGVR, "team", "one-creds")
	s.stop()
	repin("another")
	for _, o := range []struct {
		side      *side
		namespace string
	}{{s.app, "team"}, {s.controlPlane, s.service}} {
		if err := o.side.dyn.Resource(widgetsGVR).Namespace(o.namespace).Delete(t.Context(), "doomed", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	beat := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime
	s.start()
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneReplaced, uid, "another", "kubectl bind again", "under lostInstances Report, told as lost", pinned)
	s.condition(t, widgets, v1alpha1.ConditionHeartbeating, v1alpha1.ReasonControlPlaneReplaced)
	<-time.After(5 * time.Second) // in which it would have beaten and synced
	get[unstructured.Unstructured](t, s.app, widgetsGVR, "team", "doomed")
	if now := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime; !now.Equal(beat) {
		t.Error("a heartbeat was written")
	}
	repin(uid)
	s.ready(t, widgets)
	eventually(t, func() error { return goneFrom(t, s.app, widgetsGVR, "team", "doomed") })
	if diff := cmp.Diff(credential, get[unstructured.Unstructured](t, s.app, secretsGVR, "team", "one-creds")); diff != "" {
		t.Errorf("the credential (-before +after):\n%s", diff)
	}
	repin("another")
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneReplaced, uid, "another")
	repin(nil)
	s.ready(t, widgets)
	eventually(t, func() error {
		if got := pin(); got != uid {
			return fmt.Errorf("the Secret is bound to tenant %q", got)
		}
		return nil
	})
}

func (s *story) claimTravels(t *testing.T) {
	s.app.apply(t, object("v1", "Namespace", "", "team", nil))
	s.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	s.service = s.serveNamespace(t, "team", widgetRights)
	eventually(t, func() error {
		got, err := s.controlPlane.dyn.Resource(widgetsGVR).Namespace(s.service).Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if size, _, _ := unstructured.NestedInt64(got.Object, "spec", "size"); size != 5 {
			return fmt.Errorf("size is %d", size)
		}
		return nil
	})
	s.controlPlane.apply(t, object("v1", "Secret", s.service, "one-creds", map[string]any{"stringData": map[string]any{"password": "swordfish"}}))
	s.controlPlane.apply(t, object("v1", "Secret", s.service, "other", map[string]any{"stringData": map[string]any{"password": "private"}}))
	s.controlPlane.patchStatus(t, widgetsGVR, s.service, "one", map[string]any{"secret": "one-creds"})
	eventually(t, func() error {
		_, err := s.app.dyn.Resource(secretsGVR).Namespace("team").Get(t.Context(), "one-creds", metav1.GetOptions{})
		return err
	})
	if _, err := s.app.dyn.Resource(secretsGVR).Namespace("team").Get(t.Context(), "other", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Secret that nothing refers to: %v, want not found", err)
	}
}

func (s *story) consentRevoked(t *testing.T) {
	s.app.apply(t, object("v1", "Secret", "team", "own", map[string]any{"stringData": map[string]any{"password": "mine"}}))
	rejected := maps.Clone(secretsClaim)
	rejected["state"] = "Rejected"
	s.bind(t, widgets, rejected)
	eventually(t, func() error { return goneFrom(t, s.app, secretsGVR, "team", "one-creds") })
	s.condition(t, widgets, v1alpha1.ConditionClaimsInSync, v1alpha1.ReasonUnsupportedClaim, "required and was rejected")
	s.bind(t, widgets, secretsClaim)
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, s.app, secretsGVR, "team", "one-creds")
		return err
	})
	s.bind(t, widgets)
	eventually(t, func() error { return goneFrom(t, s.app, secretsGVR, "team", "one-creds") })
	s.bind(t, widgets, secretsClaim)
	s.ready(t, widgets)
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, s.app, secretsGVR, "team", "one-creds")
		return err
	})
	get[unstructured.Unstructured](t, s.app, secretsGVR, "team", "own")
	get[unstructured.Unstructured](t, s.controlPlane, secretsGVR, s.service, "one-creds")
}

func (s *story) namespaceRefused(t *testing.T) {
	ready := func(status string) []any {
		return []any{map[string]any{
			"type": "Ready", "status": status, "severity": "Error", "reason": "NameTaken", "message": "the name is taken", "lastTransitionTime": "2026-01-01T00:00:00Z",
		}}
	}
	s.controlPlane.patchStatus(t, requestedGVR, tenant, "team", map[string]any{"conditions": ready("False")})
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonServiceNamespaceRefused, "team (the name is taken)")
	s.controlPlane.patchStatus(t, requestedGVR, tenant, "team", map[string]any{"conditions": nil})
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, "")
	s.ready(t, widgets)
}

func (s *story) schemaChanges(t *testing.T) {
	changed := s.export.DeepCopy()
	versions, _, _ := unstructured.NestedSlice(changed.Object, "spec", "versions")
	props := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "colour"}
	if err := unstructured.SetNestedField(versions[0].(map[string]any), map[string]any{"type": "string"}, props...); err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedSlice(changed.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	s.export = changed
	s.offer(t, changed)
	eventually(t, func() error {
		theirs, ours := get[unstructured.Unstructured](t, s.controlPlane, crdsGVR, "", widgets), get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
		if diff := cmp.Diff(theirs.Object["spec"], ours.Object["spec"]); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	s.ready(t, widgets)
}

// credentialAwaited: a backend keeps no credential for some seconds after a login. The
// konnector goes on with the one that kubectl bind has written, and looks again soon.
func (s *story) credentialAwaited(t *testing.T) {
	before := get[unstructured.Unstructured](t, s.app, secretsGVR, v1alpha1.Namespace, s.secret)
	beat := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime
	s.controlPlane.apply(t, object("v1", "Secret", tenant, v1alpha1.KubeconfigSecretName, nil))
	eventually(t, func() error {
		if now := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime; now.Sub(beat.Time) < 4*time.Second {
			return errors.New("no heartbeat since")
		}
		return nil
	})
	now := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster")
	if c := v1alpha1.FindCondition(now.Status.Conditions, v1alpha1.ConditionSecretValid); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("condition: %+v", c)
	}
	if after := get[unstructured.Unstructured](t, s.app, secretsGVR, v1alpha1.Namespace, s.secret); !cmp.Equal(before.Object["data"], after.Object["data"]) {
		t.Error("the credential in use was replaced by none")
	}
}

func (s *story) tokenRotates(t *testing.T) {
	before := get[unstructured.Unstructured](t, s.app, secretsGVR, v1alpha1.Namespace, s.secret)
	s.controlPlane.apply(t, secret(tenant, v1alpha1.KubeconfigSecretName, s.kubeconfig(t)))
	eventually(t, func() error {
		theirs, ours := get[unstructured.Unstructured](t, s.controlPlane, secretsGVR, tenant, v1alpha1.KubeconfigSecretName), get[unstructured.Unstructured](t, s.app, secretsGVR, v1alpha1.Namespace, s.secret)
		if cmp.Equal(before.Object["data"], ours.Object["data"]) || !cmp.Equal(theirs.Object["data"], ours.Object["data"]) {
			return errors.New("the App Cluster's Secret is not the tenant's new one")
		}
		return nil
	})
	s.app.apply(t, widget("team", "two", map[string]any{"size": int64(1)}))
	eventually(t, func() error {
		_, err := s.controlPlane.dyn.Resource(widgetsGVR).Namespace(s.service).Get(t.Context(), "two", metav1.GetOptions{})
		return err
	})
}

func (s *story) idle(t *testing.T) {
	s.ready(t, widgets)
	crd, e := get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets), get[unstructured.Unstructured](t, s.controlPlane, exportsGVR, tenant, widgets)
	s.stop()
	s.start()
	beat := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime
	eventually(t, func() error {
		now := get[v1alpha1.ClusterBinding](t, s.controlPlane, clustersGVR, tenant, "cluster").Status.LastHeartbeatTime
		if now.Sub(beat.Time) < 4*time.Second {
			return errors.New("no heartbeat since")
		}
		return nil
	})
	s.ready(t, widgets)
	after := []*unstructured.Unstructured{
		get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets), get[unstructured.Unstructured](t, s.controlPlane, exportsGVR, tenant, widgets),
	}
	for i, before := range []*unstructured.Unstructured{crd, e} {
		if diff := cmp.Diff(before, after[i]); diff != "" {
			t.Errorf("written although nothing changed (-before +after):\n%s", diff)
		}
	}
}

func (s *story) controlPlaneAway(t *testing.T) {
	began := time.Now()
	if err := s.controlPlane.StopServer(); err != nil {
		t.Fatal(err)
	}
	s.condition(t, widgets, v1alpha1.ConditionConnected, "ControlPlaneUnreachable", s.controlPlane.URL(), "connection refused")
	s.countedAs(t, false)
	s.app.apply(t, widget("team", "three", map[string]any{"size": int64(1)}))
	<-time.After(time.Until(began.Add(20 * time.Second))) // by then retries are as rare as they get
	if err := s.controlPlane.StartServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { // how soon, TestInformerAfterOutage says
		b := get[v1alpha1.APIServiceBinding](t, s.app, bindingsGVR, s.bindings, widgets)
		if err := hasCondition(b.Status.Conditions, v1alpha1.ConditionReady, ""); err != nil {
			return err
		}
		_, err := s.controlPlane.dyn.Resource(widgetsGVR).Namespace(s.service).Get(t.Context(), "three", metav1.GetOptions{})
		return err
	})
	// Watches of the tenant namespace are back as well.
	s.controlPlane.patchStatus(t, exportsGVR, tenant, widgets, map[string]any{"acceptedNames": nil})
	eventually(t, func() error {
		e := get[v1alpha1.APIServiceExport](t, s.controlPlane, exportsGVR, tenant, widgets)
		if e.Status.AcceptedNames == nil {
			return errors.New("the export has no acceptedNames")
		}
		return nil
	})
}

func (s *story) exportVanishes(t *testing.T) {
	e := get[unstructured.Unstructured](t, s.controlPlane, exportsGVR, tenant, widgets)
	if err := s.controlPlane.dyn.Resource(exportsGVR).Namespace(tenant).Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportNotFound)
	get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
	for _, name := range []string{"one", "two", "three"} {
		get[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, s.service, name)
	}
	e.SetResourceVersion("")
	e.SetUID("")
	e.SetManagedFields(nil)
	s.controlPlane.apply(t, e)
	s.ready(t, widgets)
}

func (s *story) claimDeleted(t *testing.T) {
	for _, name := range []string{"two", "three"} {
		if err := s.app.dyn.Resource(widgetsGVR).Namespace("team").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"two", "three"} {
		eventually(t, func() error { return goneFrom(t, s.app, widgetsGVR, "team", name) })
		if err := goneFrom(t, s.controlPlane, widgetsGVR, s.service, name); err != nil {
			t.Error(err)
		}
	}
}

func (s *story) namespaceGoes(t *testing.T) {
	if err := s.app.dyn.Resource(widgetsGVR).Namespace("team").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.app.dyn.Resource(namespacesGVR).Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, s.controlPlane, requestedGVR, tenant, "team") })
	if err := goneFrom(t, s.app, namespacesGVR, "", "team"); err != nil {
		t.Error(err)
	}
}

func (s *story) crdVanishes(t *testing.T) {
	before := get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
	if err := s.app.dyn.Resource(crdsGVR).Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		now, err := find[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
		if err == nil && now.GetUID() == before.GetUID() {
			return errors.New("the old CRD is still there")
		}
		return err
	})
	s.ready(t, widgets)
}

func (s *story) crdTerminates(t *testing.T) {
	s.app.apply(t, object("v1", "Namespace", "", "held", nil))
	names := []string{"a", "b", "c"}
	for _, name := range names {
		s.app.apply(t, widget("held", name, map[string]any{"size": int64(2)}))
	}
	service := s.serveNamespace(t, "held", widgetRights)
	for _, name := range names {
		eventually(t, func() error {
			_, err := find[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, service, name)
			return err
		})
	}
	if err := s.app.dyn.Resource(crdsGVR).Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.condition(t, widgets, v1alpha1.ConditionConnected, "CustomResourceDefinitionTerminating", "Nothing is deleted in the Control Plane Cluster")
	eventually(t, func() error {
		for _, name := range names {
			if u := get[unstructured.Unstructured](t, s.app, widgetsGVR, "held", name); u.GetDeletionTimestamp() == nil {
				return fmt.Errorf("%s is not being deleted", name)
			}
		}
		return nil
	})
	for _, name := range names {
		get[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, service, name)
		s.app.patch(t, widgetsGVR, cache.NewObjectName("held", name), map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	s.ready(t, widgets)
}

func (s *story) events(t *testing.T) {
	eventually(t, func() error {
		events, err := s.app.kube.CoreV1().Events(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + widgets})
		if err != nil {
			return err
		}
		reasons := map[string]bool{}
		for _, e := range events.Items {
			reasons[e.Type+" "+e.Reason] = true
		}
		for _, want := range []string{"Normal Ready", "Warning KubeconfigSecretInvalid", "Warning ControlPlaneUnreachable", "Warning MissingRights"} {
			if !reasons[want] {
				return fmt.Errorf("no event %s among %v", want, reasons)
			}
		}
		return nil
	})
}

func (s *story) neighbour(t *testing.T) {
	s.app.apply(t, object("v1", "Namespace", "", "neighbour", nil),
		object(v1alpha1.GroupVersion.String(), "APIServiceBinding", "neighbour", widgets, map[string]any{
			"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": s.secret, "key": v1alpha1.KubeconfigKey}},
		}))
	eventually(t, func() error {
		b := get[v1alpha1.APIServiceBinding](t, s.app, bindingsGVR, "neighbour", widgets)
		return hasCondition(b.Status.Conditions, v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid, "kubeconfigSecretRef.namespace")
	})
	s.ready(t, widgets)
}

func (s *story) otherPlace(t *testing.T) {
	data := s.kubeconfig(t)
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, bytes.Replace(data, []byte("namespace: "+tenant), []byte("namespace: someone-elses"), 1)))
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonStepFailed, "forbidden")
	b := get[v1alpha1.APIServiceBinding](t, s.app, bindingsGVR, s.bindings, widgets)
	if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionConnected); c == nil || c.Severity != v1alpha1.SeverityError {
		t.Errorf("where nothing was ever listed: %+v", c)
	}
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, data))
	s.ready(t, widgets)
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, bytes.Replace(data, []byte("token: "), []byte("token: not"), 1)))
	s.condition(t, widgets, v1alpha1.ConditionConnected, v1alpha1.ReasonTokenRevoked, "kubectl bind")
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, data))
	s.ready(t, widgets)
}

func (s *story) foreignCRD(t *testing.T) {
	crd := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	spec := crd.Object["spec"].(map[string]any)
	spec["names"] = map[string]any{"kind": "Gadget", "listKind": "GadgetList", "plural": "gadgets", "singular": "gadget"}
	gadgets := crd.DeepCopy()
	gadgets.SetName("gadgets.example.org")
	delete(spec, "informerScope")
	s.app.apply(t, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "gadgets.example.org", map[string]any{"spec": spec}))
	before := get[unstructured.Unstructured](t, s.app, crdsGVR, "", "gadgets.example.org")
	s.offer(t, gadgets)
	s.bind(t, "gadgets.example.org")
	s.condition(t, "gadgets.example.org", v1alpha1.ConditionConnected, v1alpha1.ReasonForeignCustomResourceDefinition, "gadgets.example.org")
	after := get[unstructured.Unstructured](t, s.app, crdsGVR, "", "gadgets.example.org")
	if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" {
		t.Errorf("spec (-before +after):\n%s", diff)
	}
}

func (s *story) bindingGoes(t *testing.T) {
	s.app.apply(t, object("v1", "Namespace", "", "team2", nil), widget("team2", "kept", map[string]any{"size": int64(2)}))
	service := s.serveNamespace(t, "team2", widgetRights)
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, service, "kept")
		return err
	})
	if err := s.app.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace).Delete(t.Context(), widgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		e := get[v1alpha1.APIServiceExport](t, s.controlPlane, exportsGVR, tenant, widgets)
		return hasCondition(e.Status.Conditions, v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceBindingNotFound)
	})
	get[unstructured.Unstructured](t, s.app, crdsGVR, "", widgets)
	get[unstructured.Unstructured](t, s.app, widgetsGVR, "team2", "kept")
	get[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, service, "kept")
}

func (s *story) bindingReturns(t *testing.T) {
	s.bind(t, widgets, secretsClaim)
	s.ready(t, widgets)
	s.app.apply(t, widget("team2", "kept", map[string]any{"size": int64(4)}))
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, tenant+"-team2", "kept")
		if size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size"); size != 4 {
			return fmt.Errorf("size is %d", size)
		}
		return nil
	})
}

// TestClusterScope is an API of cluster-scoped objects, in an App Cluster that has
// cluster-scoped APIServiceBindings. What it claims travels in the namespaces that another
// API of the tenant has a service namespace for.
func TestClusterScope(t *testing.T) {
	w := newWideWorld(t)
	app, controlPlane := w.app, w.controlPlane
	crd := v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"]
	crd.Object["spec"].(map[string]any)["scope"] = "Cluster"
	app.apply(t, crd)
	eventually(t, func() error {
		_, err := app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	before := get[unstructured.Unstructured](t, app, crdsGVR, "", crd.GetName())
	export := read(t, filepath.Join("testdata", "widgets.yaml"))[0]
	spec := export.Object["spec"].(map[string]any)
	namespaced := renamed(export, "gadgets", "Gadget")
	w.offer(t, namespaced)
	spec["scope"], spec["informerScope"], spec["clusterScopedIsolation"] = "Cluster", "Cluster", "Prefixed"
	all := map[string]any{"resource": "secrets", "version": "v1", "selector": map[string]any{"owner": "Provider"}}
	spec["permissionClaims"] = []any{maps.Clone(all)}
	all["state"] = "Accepted"
	w.offer(t, export)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}, Rules: widgetRights[:2]}
	if _, err := controlPlane.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controlPlane.apply(t, object("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "tenant", map[string]any{
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tenant"},
		"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": tenant, "name": v1alpha1.TenantServiceAccount}},
	}))
	app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
	w.bindings = ""
	for name, claims := range map[string][]any{widgets: {all}, gadgets: {}} {
		app.apply(t, object(v1alpha1.GroupVersion.String(), "APIServiceBinding", "", name, map[string]any{
			"spec": map[string]any{
				"kubeconfigSecretRef": map[string]any{"namespace": v1alpha1.Namespace, "name": w.secret, "key": v1alpha1.KubeconfigKey},
				"permissionClaims":    claims,
			},
		}))
		w.allow(t, name)
	}
	defer w.run(t, bind.Options{})()
	w.ready(t, widgets)
	w.ready(t, gadgets)
	w.condition(t, widgets, v1alpha1.ConditionClaimsInSync, "")

	app.apply(t, widget("", "one", map[string]any{"size": int64(5)}))
	eventually(t, func() error {
		got, err := find[unstructured.Unstructured](t, controlPlane, widgetsGVR, "", tenant+"-one")
		if err != nil {
			return err
		}
		owners := got.GetOwnerReferences()
		if len(owners) != 1 || owners[0].Kind != "Namespace" || owners[0].Name != tenant || got.GetAnnotations()[v1alpha1.ClusterNamespaceAnnotation] != tenant {
			return fmt.Errorf("owners %v, annotations %v", owners, got.GetAnnotations())
		}
		return nil
	})
	w.claimsOfClusterScope(t)
	ours := get[unstructured.Unstructured](t, app, crdsGVR, "", widgets)
	b := get[v1alpha1.APIServiceBinding](t, app, bindingsGVR, "", widgets)
	if refs := ours.GetOwnerReferences(); len(refs) != 1 || refs[0].UID != b.UID {
		t.Errorf("owner references of the CRD are %v, want the binding", refs)
	}
	gone := `{"metadata":{"ownerReferences":[{"apiVersion":"klutch.anynines.com/v1alpha1","kind":"APIServiceBinding","name":"` + widgets + `","uid":"gone"}]}}`
	_, err := dynamic.NewForConfigOrDie(quick(rest.CopyConfig(w.konnector))).Resource(crdsGVR).Patch(t.Context(), widgets, types.MergePatchType, []byte(gone), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
	if err == nil || !strings.Contains(err.Error(), "klutch-konnector-owners") {
		t.Errorf("a thief has the garbage collector delete the CRD: %v", err)
	}
	after := get[unstructured.Unstructured](t, app, crdsGVR, "", crd.GetName())
	if diff := cmp.Diff(before.Object["spec"], after.Object["spec"]); diff != "" {
		t.Errorf("the CRD of bindings was changed (-before +after):\n%s", diff)
	}
	w.holdsClaims(t)
	if err := app.dyn.Resource(widgetsGVR).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, app, widgetsGVR, "", "one") })
	if err := goneFrom(t, controlPlane, widgetsGVR, "", tenant+"-one"); err != nil {
		t.Error(err)
	}
}

// claimsOfClusterScope has a Secret come to the namespace of a gadget, and its changes.
func (w *world) claimsOfClusterScope(t *testing.T) {
	t.Helper()
	w.app.apply(t, object("v1", "Namespace", "", "team", nil), object("v1", "Namespace", "", "aside", nil),
		object("example.org/v1", "Gadget", "team", "one", map[string]any{"spec": map[string]any{"size": int64(1)}}))
	rules := slices.Clone(widgetRights)
	rules[0].Resources, rules[1].Resources = []string{"gadgets"}, []string{"gadgets/status"}
	service := w.serveNamespace(t, "team", rules)
	for _, password := range []string{"swordfish", "rotated"} {
		w.controlPlane.apply(t, object("v1", "Secret", service, "plan-creds", map[string]any{"stringData": map[string]any{"password": password}}))
		eventually(t, func() error {
			u, err := find[corev1.Secret](t, w.app, secretsGVR, "team", "plan-creds")
			if err == nil && string(u.Data["password"]) != password {
				err = fmt.Errorf("the password is %q", u.Data["password"])
			}
			return err
		})
	}
	if names := w.app.secretsIn(t, "aside"); len(names) > 0 {
		t.Errorf("Secrets in a namespace without a service namespace: %v", names)
	}
	w.condition(t, widgets, v1alpha1.ConditionClaimsInSync, "")
}

// holdsClaims fails the test if an object of a cluster-scoped API lets the konnector take
// the rights of claims in a namespace, after an owner was told that it has namespaces.
func (w *world) holdsClaims(t *testing.T) {
	t.Helper()
	e := get[v1alpha1.APIServiceExport](t, w.controlPlane, exportsGVR, tenant, widgets)
	all := v1alpha1.AcceptablePermissionClaim{State: v1alpha1.ClaimAccepted, PermissionClaim: v1alpha1.PermissionClaim{GroupResource: v1alpha1.GroupResource{Resource: "secrets"}}}
	e.Spec.Scope, e.Spec.ClusterScopedIsolation = v1alpha1.NamespacedScope, ""
	w.app.apply(t, bind.Rights(e.Spec, []v1alpha1.AcceptablePermissionClaim{all})...)
	th := newThief(t, w.konnector)
	eventually(t, func() error {
		err := th.create(roleBindingsGVR, roleBinding("default", claimsOfWidgets, claimsOfWidgets, "konnector"))(t.Context())
		if err == nil || !strings.Contains(err.Error(), "has no namespaces") {
			return fmt.Errorf("the rights of claims in namespace default: %w", err)
		}
		return nil
	})
}

// TestP15ShippedPods: the namespace that enforces the restricted Pod Security Standard
// admits the pods of the Deployment.
func TestP15ShippedPods(t *testing.T) {
	t.Parallel()
	app := newSide(t, "app")
	app.apply(t, read(t, filepath.Join("..", "deploy", "konnector", "namespace.yaml"))...)
	app.apply(t, read(t, filepath.Join("..", "deploy", "konnector", "rbac.yaml"))...)
	app.apply(t, read(t, filepath.Join("..", "deploy", "konnector", "deployment.yaml"))...)
	eventually(t, func() error {
		pods, err := app.kube.CoreV1().Pods(v1alpha1.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=konnector"})
		if err == nil && len(pods.Items) != 2 {
			return fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}

// TestP15ShippedRights: no wildcard, and nothing that gives away more rights.
func TestP15ShippedRights(t *testing.T) {
	for _, u := range read(t, filepath.Join("..", "deploy", "konnector", "rbac.yaml")) {
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs) {
				if strings.Contains(word, "*") || slices.Contains([]string{"escalate", "bind", "impersonate", "delete", "deletecollection"}, word) {
					t.Errorf("%s %s allows %q", role.Kind, role.Name, word)
				}
			}
			if u.GetKind() == "ClusterRole" && slices.Contains(rule.Resources, "secrets") {
				t.Errorf("ClusterRole %s allows Secrets everywhere", role.Name)
			}
		}
	}
}

func goneFrom(t *testing.T, s *side, gvr schema.GroupVersionResource, namespace, name string) error {
	t.Helper()
	_, err := s.dyn.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s %s/%s is still there", gvr.Resource, namespace, name)
	}
	return err
}
