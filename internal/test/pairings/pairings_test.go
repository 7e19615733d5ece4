// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	team  = "team"              // namespace in all App Clusters
	ours  = "ours.example.org"  // group of the APIs that our backend offers
	their = "their.example.org" // group of those that the double of Klutch's offers
)

var (
	secretsGVR    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMapsGVR = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespacesGVR = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	crdsGVR       = stack.CRDs
	bindingsGVR   = v1alpha1.Resource("apiservicebindings")
	exportsGVR    = v1alpha1.Resource("apiserviceexports")
	requestsGVR   = v1alpha1.Resource("apiserviceexportrequests")
	requestedGVR  = v1alpha1.Resource("apiservicenamespaces")
	clustersGVR   = v1alpha1.Resource("clusterbindings")
)

// A side is a cluster with an administrator's access.
type side struct {
	*cluster.Cluster

	dyn  dynamic.Interface
	kube kubernetes.Interface
}

func newSide(t *testing.T, c *cluster.Cluster) *side {
	t.Helper()
	config := c.Config()
	config.QPS = -1
	s := &side{Cluster: c}
	var err error
	if s.dyn, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *side) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *side) apply(t *testing.T, objects ...*unstructured.Unstructured) {
	t.Helper()
	s.must(t, stack.Apply(t.Context(), s.Cluster, objects...))
}

// of is the client for an object of a kind with a regular plural.
func (s *side) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvk := u.GroupVersionKind()
	return s.dyn.Resource(gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")).Namespace(u.GetNamespace())
}

func object(apiVersion, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	maps.Copy(u.Object, rest)
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

func base64Of(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

// eventually waits until check finds nothing wrong.
func eventually(t *testing.T, check func(context.Context) error) {
	t.Helper()
	const patience = 3 * time.Minute
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if ctx.Err() == nil { // else it says no more than that
			last = err
		}
		return err == nil, nil
	})
	if err != nil {
		t.Fatalf("not within %s: %v", patience, last)
	}
}

// A program is a double that runs until it is stopped.
type program struct {
	mu   sync.Mutex
	last error // of its last pass
	stop func()
}

func run(t *testing.T, pass func(context.Context) error) *program {
	t.Helper()
	p := &program{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; {
			err := pass(ctx)
			p.mu.Lock()
			p.last = err
			p.mu.Unlock()
			select {
			case <-ctx.Done():
				tick.Stop()
			case <-tick.C:
			}
		}
	}()
	p.stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Log("a double said last:", p.said())
		}
	})
	return p
}

func (p *program) said() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// crd is that of a kind with a size and any status.
func crd(group, kind, scope string) *unstructured.Unstructured {
	plural := strings.ToLower(kind) + "s"
	return object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", plural+"."+group, map[string]any{"spec": map[string]any{
		"group": group, "scope": scope,
		"names": map[string]any{"plural": plural, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   map[string]any{"type": "object", "properties": map[string]any{"size": map[string]any{"type": "string"}}},
				"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		}},
	}})
}

// claims of widgets: Secrets come down, one ConfigMap goes up.
func claims() []any {
	return []any{
		map[string]any{"resource": "secrets", "version": "v1", "selector": map[string]any{"owner": "Provider", "names": []any{"*"}, "namespaces": []any{"*"}}},
		map[string]any{"resource": "configmaps", "version": "v1", "selector": map[string]any{"owner": "Consumer", "names": []any{"settings"}, "namespaces": []any{"*"}}},
	}
}

// offers is what the platform team applies for our backend: the cluster-scoped API is a
// namespaced one here, of which App Clusters see a cluster-scoped one.
func offers() []*unstructured.Unstructured {
	every := []any{"get", "list", "watch", "create", "update", "patch", "delete"}
	passOn := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "offer-ours", map[string]any{"rules": []any{
		rule(ours, every, "widgets", "gears"), rule("", every, "secrets", "configmaps"),
	}})
	passOn.SetLabels(map[string]string{v1alpha1.AggregateToBackendLabel: "true"})
	template := func(plural string, spec map[string]any) *unstructured.Unstructured {
		spec["apiServiceSelector"] = map[string]any{"group": ours, "resource": plural}
		return object(v1alpha1.GroupVersion.String(), "APIServiceExportTemplate", catalog.Namespace, plural+"-ours", map[string]any{"spec": spec})
	}
	mayBind := rule(v1alpha1.GroupVersion.Group, []any{"bind"}, "apiserviceexporttemplates")
	return []*unstructured.Unstructured{
		crd(ours, "Widget", "Namespaced"), crd(ours, "Gear", "Namespaced"), passOn,
		object("rbac.authorization.k8s.io/v1", "Role", catalog.Namespace, "bind-ours", map[string]any{"rules": []any{mayBind}}),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", catalog.Namespace, "bind-ours", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "bind-ours"},
			"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:developers"}},
		}),
		template("widgets", map[string]any{"permissionClaims": claims(), "adoption": "Offer"}),
		template("gears", map[string]any{"clusterScopedIsolation": "Namespaced"}),
	}
}

// A pairing is one backend with one konnector.
type pairing struct {
	name      string
	app       *side
	control   *side
	group     string
	konnector *program // the double, or nil
	tenant    func() string
}

// TestPairings plays the five end-to-end tests of Klutch for each pairing; the doubles with each
// other show that they do what the five demand. What FROM-KLUTCH.md says of the pairings is this.
func TestPairings(t *testing.T) {
	if testing.Short() {
		t.Skip("needs real clusters")
	}
	s, err := stack.Start(t.Context(), stack.Options{Log: os.Stderr, Dir: t.TempDir()})
	t.Cleanup(func() {
		if s != nil {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	control, app, other := newSide(t, s.Control), newSide(t, s.App), newSide(t, cluster.ForTest(t, "app-of-klutch"))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("konnector:\n%s\nbackend:\n%s", s.Konnector.LastWords(), s.Backend.LastWords())
		}
	})
	for _, a := range []*side{app, other} {
		a.apply(t, object("v1", "Namespace", "", team, nil), object("v1", "Namespace", "", v1alpha1.Namespace, nil))
	}
	other.apply(t, v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"]) // Klutch's konnector installs it
	control.apply(t, offers()...)
	control.apply(t, crd(their, "Widget", "Namespaced"), crd(their, "Gear", "Cluster"))

	backend := &klutchBackend{side: control, offers: map[string][]any{"widgets." + their: claims(), "gears." + their: {}}}
	kubeconfigs := map[*side][]byte{
		app: backend.bind(t, "cluster-aaaaa", "ada#c1"), other: backend.bind(t, "cluster-bbbbb", "grace#c2"),
	}
	run(t, backend.pass)
	klutchs := &klutchKonnector{other}
	double := run(t, klutchs.pass)

	for _, at := range []struct {
		app    *side
		tenant string
	}{{app, "cluster-aaaaa"}, {other, "cluster-bbbbb"}} {
		bindTheirs(t, s, at.app, kubeconfigs[at.app])
		tenant := bindOurs(t, s, control, at.app)
		pairings := []pairing{
			{name: "Klutch's backend", app: at.app, control: control, group: their, tenant: func() string { return at.tenant }},
			{name: "our backend", app: at.app, control: control, group: ours, tenant: func() string { return tenant }},
		}
		for i := range pairings {
			p := &pairings[i]
			if p.name += ", our konnector"; at.app == other {
				p.name, p.konnector = strings.Replace(p.name, "our konnector", "Klutch's konnector", 1), double
			}
			t.Run(p.name, p.five)
		}
		if at.app == other {
			t.Run("doctor --takeover", func(t *testing.T) { pairings[0].foreseen(t, s) })
			t.Run("over and back", func(t *testing.T) { overAndBack(t, s, pairings[0], klutchs.pass) })
		}
	}
}

// bindTheirs binds with our CLI at the double of Klutch's backend.
func bindTheirs(t *testing.T, s *stack.Stack, app *side, kubeconfig []byte) {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{"kubeconfig": kubeconfig}
	for _, plural := range []string{"widgets", "gears"} {
		request := object(v1alpha1.GroupVersion.String(), "APIServiceExportRequest", "", plural+"."+their, map[string]any{
			"spec": map[string]any{"resources": []any{map[string]any{"group": their, "resource": plural}}},
		})
		data, err := json.Marshal(request)
		app.must(t, err)
		files[plural] = data
	}
	for name, data := range files {
		app.must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	at := *s
	at.App = app.Cluster
	for _, plural := range []string{"widgets", "gears"} {
		out := at.Kubectl(t.Context(), nil, "apiservice", "-f", filepath.Join(dir, plural), "--remote-kubeconfig", filepath.Join(dir, "kubeconfig"),
			"--yes", "--adopt", "5", "--skip-konnector", "--timeout", "3m")
		if out.Code != 0 {
			t.Fatalf("kubectl bind apiservice %s: exit code %d\n%s%s", plural, out.Code, out.Stdout, out.Stderr)
		}
	}
}

// bindOurs binds with our CLI at our backend. It labels the tenant for Klutch's konnector, without
// which that never begins, and returns the tenant's namespace.
func bindOurs(t *testing.T, s *stack.Stack, control, app *side) (tenant string) {
	t.Helper()
	before := control.tenants(t)
	at := *s
	at.App = app.Cluster
	done := make(chan stack.Output, 1)
	go func() {
		done <- at.Bind(t.Context(), stack.Developer, "--service", "widgets."+ours, "--service", "gears."+ours, "--adopt", "5", "--timeout", "3m")
	}()
	eventually(t, func(context.Context) error {
		for name := range control.tenants(t) { //nolint:contextcheck // it takes that of the test
			if !before[name] {
				tenant = name
				return nil
			}
		}
		select {
		case out := <-done:
			t.Fatalf("kubectl bind: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		default:
		}
		return errors.New("there is no new tenant")
	})
	if app.Cluster != s.App {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.KlutchKonnectorLabel)
		_, err := control.dyn.Resource(namespacesGVR).Patch(t.Context(), tenant, types.MergePatchType, patch, metav1.PatchOptions{})
		control.must(t, err)
	}
	if out := <-done; out.Code != 0 {
		t.Fatalf("kubectl bind: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	return tenant
}

// tenants are the namespaces with a ClusterBinding.
func (s *side) tenants(t *testing.T) map[string]bool {
	t.Helper()
	list, err := s.dyn.Resource(clustersGVR).List(t.Context(), metav1.ListOptions{})
	s.must(t, err)
	all := map[string]bool{}
	for _, b := range list.Items {
		all[b.GetNamespace()] = true
	}
	return all
}

// five are the five end-to-end tests of Klutch.
func (p pairing) five(t *testing.T) {
	anchor := p.place(p.app, "widgets", team, "anchor")
	anchor.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	service := ""
	eventually(t, func(ctx context.Context) error {
		u, err := p.control.dyn.Resource(requestedGVR).Namespace(p.tenant()).Get(ctx, team, metav1.GetOptions{})
		if err == nil {
			if service = text(u, "status", "namespace"); service == "" {
				err = errors.New("there is no service namespace")
			}
		}
		return err
	})
	p.place(p.control, "widgets", service, "anchor").has(t, "small", "spec", "size")

	t.Run("namespaced", func(t *testing.T) {
		p.life(t, p.place(p.app, "widgets", team, "one"), p.place(p.control, "widgets", service, "one"))
	})
	t.Run("cluster-scoped", func(t *testing.T) {
		here := p.place(p.app, "gears", "", "one")
		switch {
		case p.group == their:
			p.life(t, here, p.place(p.control, "gears", "", p.tenant()+"-one"))
		case p.konnector == nil:
			p.life(t, here, p.place(p.control, "gears", p.tenant()+"-"+v1alpha1.Namespace, "one"))
		default: // what FROM-KLUTCH.md says does not work
			eventually(t, func(context.Context) error {
				if err := p.konnector.said(); err == nil || !strings.Contains(err.Error(), "gears."+ours) {
					return fmt.Errorf("Klutch's konnector says: %w", err)
				}
				return nil
			})
		}
	})
	t.Run("provider-owned", func(t *testing.T) {
		p.follows(t, p.claimed(p.control, secretsGVR, service, "creds"), p.claimed(p.app, secretsGVR, team, "creds"))
	})
	t.Run("consumer-owned", func(t *testing.T) {
		p.follows(t, p.claimed(p.app, configMapsGVR, team, "settings"), p.claimed(p.control, configMapsGVR, service, "settings"))
	})
	t.Run("adoption", func(t *testing.T) {
		made, claim := p.place(p.control, "widgets", service, "made"), p.place(p.app, "widgets", team, "made")
		made.create(t, map[string]any{"spec": map[string]any{"size": "large"}})
		claim.has(t, "large", "spec", "size")
		claim.has(t, "true", "metadata", "annotations", v1alpha1.BoundAnnotation)
		made.patch(t, `{"status":{"state":"running"}}`, "status")
		claim.has(t, "running", "status", "state")
		claim.patch(t, `{"spec":{"size":"medium"}}`)
		made.has(t, "medium", "spec", "size")
	})
}

// life is the life of a claim here, and of what stands for it there.
func (p pairing) life(t *testing.T, here, there place) {
	t.Helper()
	here.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	there.has(t, "small", "spec", "size")
	there.patch(t, `{"status":{"state":"running"}}`, "status")
	here.has(t, "running", "status", "state")
	here.patch(t, `{"spec":{"size":"large"}}`)
	there.has(t, "large", "spec", "size")
	there.patch(t, `{"spec":{"size":"drifted"}}`)
	there.has(t, "large", "spec", "size")
	here.delete(t)
	here.gone(t)
	there.gone(t)
}

// follows has a copy follow its original until that goes.
func (p pairing) follows(t *testing.T, original, copied place) {
	t.Helper()
	first, second := "first", "second"
	if original.gvr == secretsGVR {
		first, second = base64Of([]byte(first)), base64Of([]byte(second))
	}
	original.create(t, map[string]any{"data": map[string]any{"password": first}})
	copied.has(t, first, "data", "password")
	original.patch(t, fmt.Sprintf(`{"data":{"password":%q}}`, second))
	copied.has(t, second, "data", "password")
	original.delete(t)
	copied.gone(t)
}

// A place is where an object is or will be.
type place struct {
	*side

	gvr             schema.GroupVersionResource
	namespace, name string
}

func (p pairing) place(s *side, plural, namespace, name string) place {
	return place{s, schema.GroupVersionResource{Group: p.group, Version: "v1", Resource: plural}, namespace, name}
}

// claimed is a place of an object that a claim selects.
func (p pairing) claimed(s *side, gvr schema.GroupVersionResource, namespace, name string) place {
	return place{s, gvr, namespace, name}
}

func (o place) client() dynamic.ResourceInterface {
	return o.dyn.Resource(o.gvr).Namespace(o.namespace)
}

func (o place) String() string { return fmt.Sprintf("%s %s/%s", o.gvr.Resource, o.namespace, o.name) }

func (o place) create(t *testing.T, fields map[string]any) {
	t.Helper()
	kind := map[string]string{"widgets": "Widget", "gears": "Gear", "secrets": "Secret", "configmaps": "ConfigMap"}[o.gvr.Resource]
	u := object(o.gvr.GroupVersion().String(), kind, o.namespace, o.name, fields)
	eventually(t, func(ctx context.Context) error {
		_, err := o.client().Create(ctx, u, metav1.CreateOptions{FieldManager: "kubectl-create"})
		return err
	})
}

func (o place) patch(t *testing.T, patch string, subresources ...string) {
	t.Helper()
	if _, err := o.client().Patch(t.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-patch"}, subresources...); err != nil {
		t.Fatalf("%s: %v", o, err)
	}
}

func (o place) delete(t *testing.T) {
	t.Helper()
	if err := o.client().Delete(t.Context(), o.name, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("%s: %v", o, err)
	}
}

// has waits until a field of the object has the value.
func (o place) has(t *testing.T, want string, path ...string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		u, err := o.client().Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
		if got := text(u, path...); got != want {
			return fmt.Errorf("%s: %s is %q, want %q", o, strings.Join(path, "."), got, want)
		}
		return nil
	})
}

func (o place) gone(t *testing.T) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		_, err := o.client().Get(ctx, o.name, metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("%s is still there", o)
		}
		return ignore(apierrors.IsNotFound, err)
	})
}
