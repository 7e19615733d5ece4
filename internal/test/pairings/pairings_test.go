// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	ours  = "ours.example.org"  // group of the APIs that our backend offers
	their = "their.example.org" // group of those that the double of Klutch's offers
	// byKlutch begins groups whose APIs Klutch's CLI binds; our CLI binds the others.
	byKlutch = "klutch-cli."
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
	plural, y := strings.CutSuffix(strings.ToLower(gvk.Kind), "y")
	if plural += "s"; y {
		plural = strings.TrimSuffix(plural, "s") + "ies"
	}
	return s.dyn.Resource(gvk.GroupVersion().WithResource(plural)).Namespace(u.GetNamespace())
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

// gearClaims are those of a cluster-scoped API at Klutch's backend.
func gearClaims() []any {
	selector := map[string]any{"owner": "Provider", "names": []any{"gear-creds"}, "namespaces": []any{"*"}}
	return []any{
		map[string]any{"resource": "secrets", "version": "v1", "selector": selector},
		map[string]any{"resource": "configmaps", "version": "v1", "selector": selector},
	}
}

// offers is what the platform team applies for our backend. Of its cluster-scoped APIs one is
// a namespaced one here, and one is switched on by its name.
func offers(group string) []*unstructured.Unstructured {
	all := slices.Concat([]*unstructured.Unstructured{crd(group, "Widget", "Namespaced"), crd(group, "Gear", "Namespaced"), crd(group, "Comet", "Cluster")},
		offersOf(group), deploy.Prefixed("comets."+group))
	return append(all, template(group, "gears", map[string]any{"clusterScopedIsolation": "Namespaced"}), template(group, "comets", map[string]any{"clusterScopedIsolation": "Prefixed"}))
}

// offersOf is that without the CRDs and the cluster-scoped APIs.
func offersOf(group string) []*unstructured.Unstructured {
	every := []any{"get", "list", "watch", "create", "update", "patch", "delete"}
	passOn := object("rbac.authorization.k8s.io/v1", "ClusterRole", "", group, map[string]any{"rules": []any{
		rule(group, every, "widgets", "gears", "wheels"), rule("", every, "secrets", "configmaps"),
	}})
	passOn.SetLabels(map[string]string{v1alpha1.AggregateToBackendLabel: "true"})
	mayBind := rule(v1alpha1.GroupVersion.Group, []any{"bind"}, "apiserviceexporttemplates")
	return []*unstructured.Unstructured{
		passOn,
		object("rbac.authorization.k8s.io/v1", "Role", catalog.Namespace, group, map[string]any{"rules": []any{mayBind}}),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", catalog.Namespace, group, map[string]any{
			"roleRef": map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": group},
			"subjects": []any{
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:developers"},
				map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "oidc:guests"},
			},
		}),
		template(group, "widgets", map[string]any{"permissionClaims": claims(), "adoption": "Offer"}),
	}
}

// klutchGroup has the templates that Klutch's backend reads.
const klutchGroup = "example-backend.klutch.anynines.com"

// klutchsOffers are templates of Klutch's, as its backend needs them and no more.
func klutchsOffers(group string) []*unstructured.Unstructured {
	kind := crd(klutchGroup, "APIServiceExportTemplate", "Namespaced")
	versions, _, _ := unstructured.NestedSlice(kind.Object, "spec", "versions")
	versions[0].(map[string]any)["name"] = "v1alpha1"
	versions[0].(map[string]any)["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	kind.Object["spec"].(map[string]any)["versions"] = versions
	all := []*unstructured.Unstructured{kind}
	for plural, claims := range map[string][]any{"widgets": claims(), "gears": gearClaims()} {
		all = append(all, object(klutchGroup+"/v1alpha1", "APIServiceExportTemplate", catalog.Namespace, plural+"."+group, map[string]any{"spec": map[string]any{
			"APIServiceSelector": map[string]any{"group": group, "resource": plural}, "permissionClaims": claims,
		}}))
	}
	return all
}

func template(group, plural string, spec map[string]any) *unstructured.Unstructured {
	spec["apiServiceSelector"] = map[string]any{"group": group, "resource": plural}
	return object(v1alpha1.GroupVersion.String(), "APIServiceExportTemplate", catalog.Namespace, plural+"."+group, map[string]any{"spec": spec})
}

// A pairing is one backend with one konnector, bound by one CLI.
type pairing struct {
	name      string
	app       *side
	control   *side
	group     string
	team      string   // its namespace in the App Cluster
	person    string   // who binds
	konnector *program // the double, or nil
	tenant    string
}

// An installation is both backends in a Control Plane Cluster, and what binds there.
type installation struct {
	*stack.Stack

	control *side
	klutchs *klutchBackend
	backend *program // Klutch's
}

// TestPairings plays the five end-to-end tests of Klutch for each pairing; the doubles with each
// other show that they do what the five demand. What FROM-KLUTCH.md says of the pairings is this.
func TestPairings(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	in := install(t)
	other := newSide(t, cluster.ForTest(t, "app-of-klutch"))
	other.apply(t, object("v1", "Namespace", "", v1alpha1.Namespace, nil), klutchsCRD())
	double := run(t, newKlutchKonnector(other).pass)
	for _, app := range []*side{newSide(t, in.App), other} {
		for _, group := range []string{their, ours, byKlutch + their, byKlutch + ours} {
			p := pairing{name: "Klutch's backend", app: app, control: in.control, group: group, team: strings.ReplaceAll(group, ".", "-")}
			if p.person = "ada"; strings.HasSuffix(group, ours) { // a person has a tenant at one backend
				p.name, p.person = "our backend", stack.Developer
			}
			if p.name += ", our konnector"; app == other {
				p.name, p.konnector = strings.Replace(p.name, "our konnector", "Klutch's konnector", 1), double
			}
			if strings.HasPrefix(group, byKlutch) {
				p.name += ", Klutch's CLI"
				p.person = map[string]string{"ada": "grace", stack.Developer: stack.Guest}[p.person]
			}
			app.apply(t, object("v1", "Namespace", "", p.team, nil))
			if p.tenant = in.bound(t, app, func() { in.bind(t, &p) }); t.Failed() {
				t.FailNow() // what follows would wait in vain
			}
			t.Run(p.name, p.five)
			if !strings.HasPrefix(group, byKlutch) { // which tool has bound it does not matter
				t.Run(p.name+", in trouble", p.troubles)
			}
			if group == ours && app != other {
				t.Run("second bind", func(t *testing.T) { in.secondBind(t, &p) })
			}
		}
	}
}

// secondBind has Klutch's CLI bind again what ours has bound, and Klutch's konnector carry a
// change of the schema over: over CRDs that our konnector made only with its flag.
func (in *installation) secondBind(t *testing.T, p *pairing) {
	t.Helper()
	cli, name := in.klutchCLI(p), "widgets."+p.group
	if err := cli.bind(t.Context(), name); err == nil || !strings.Contains(err.Error(), "is not owned by klutch-bind") {
		t.Errorf("without --crd-owner-references: %v", err)
	}
	p.app.must(t, in.Konnector.Stop())
	in.control.label(t, p.tenant)
	eventually(t, func(ctx context.Context) error {
		err := newKlutchKonnector(p.app).pass(ctx)
		if err == nil || !strings.Contains(err.Error(), "ForeignCustomResourceDefinition: "+name) {
			return fmt.Errorf("without --crd-owner-references Klutch's konnector says: %w", err)
		}
		return nil
	})
	in.Konnector.Args = append(in.Konnector.Args, "--crd-owner-references")
	p.app.must(t, in.Konnector.Start(t.Context()))
	eventually(t, func(ctx context.Context) error { return cli.bind(ctx, name) })

	p.app.must(t, in.Konnector.Stop())
	double := run(t, newKlutchKonnector(p.app).pass)
	color := []byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color","value":{"type":"string"}}]`)
	_, err := in.control.dyn.Resource(crdsGVR).Patch(t.Context(), name, types.JSONPatchType, color, metav1.PatchOptions{})
	in.control.must(t, err)
	place{p.app, crdsGVR, "", name}.shows(t, "color")
	double.stop()
	p.app.must(t, in.Konnector.Start(t.Context()))
	p.life(t, p.place(p.app, "widgets", p.team, "after"), p.place(p.control, "widgets", p.tenant+"-"+p.team, "after"))
}

// install starts both backends, with all that they offer.
func install(t *testing.T) *installation {
	t.Helper()
	if testing.Short() {
		t.Skip("needs real clusters")
	}
	s, err := stack.Start(t.Context(), stack.Options{Log: os.Stderr, Dir: tempdir.ForTest(t, "stack"), Backend: []string{
		"--allow-legacy-cli", fmt.Sprintf("--prefixed-apis=comets.%[1]s,comets.%[2]s%[1]s,gears.%[3]s,gears.%[2]s%[3]s", ours, byKlutch, their),
	}})
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
	control := newSide(t, s.Control)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("konnector:\n%s\nbackend:\n%s", s.Konnector.LastWords(), s.Backend.LastWords())
		}
	})
	offered := map[string][]any{}
	for _, begin := range []string{"", byKlutch} {
		control.apply(t, offers(begin+ours)...)
		control.apply(t, crd(begin+their, "Widget", "Namespaced"), crd(begin+their, "Gear", "Cluster"), crd(begin+their, "Wheel", "Namespaced"))
		offered["widgets."+begin+their], offered["gears."+begin+their], offered["wheels."+begin+their] = claims(), gearClaims(), []any{}
	}
	in := &installation{s, control, newKlutchBackend(t, control, offered), nil}
	in.backend = run(t, in.klutchs.pass)
	return in
}

// bound runs a bind, and returns the tenant that it has made. Our backend's lets Klutch's
// konnector in when that has said what it lacks.
func (in *installation) bound(t *testing.T, app *side, bind func()) (tenant string) {
	t.Helper()
	before := in.control.tenants(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		bind()
	}()
	eventually(t, func(context.Context) error {
		for name := range in.control.tenants(t) { //nolint:contextcheck // it takes that of the test
			if !before[name] {
				tenant = name
				return nil
			}
		}
		return errors.New("there is no new tenant")
	})
	if app.Cluster != in.App {
		if klutchs := in.klutchs.serves(tenant); !klutchs {
			in.control.lacking(t, tenant)
		}
		in.control.label(t, tenant)
	}
	<-done
	return tenant
}

// lacking waits until our backend says what Klutch's konnector lacks, which is in vain for
// longer than a minute: that konnector says nothing.
func (s *side) lacking(t *testing.T, tenant string) {
	t.Helper()
	began, help := time.Now(), "kubectl label namespace "+tenant+" "+v1alpha1.KlutchKonnectorLabel+"=true"
	for _, resource := range []schema.GroupVersionResource{clustersGVR, exportsGVR} {
		eventually(t, func(ctx context.Context) error {
			list, err := s.dyn.Resource(resource).Namespace(tenant).List(ctx, metav1.ListOptions{})
			for i := 0; err == nil && i < len(list.Items); i++ {
				if said := fmt.Sprint(list.Items[i].Object["status"]); strings.Contains(said, help) {
					return nil
				}
			}
			return fmt.Errorf("%s of %s do not say %q: %w", resource.Resource, tenant, help, err)
		})
	}
	if took := time.Since(began); took > 90*time.Second {
		t.Errorf("what Klutch's konnector lacks was told after %s", took)
	}
}

// label has a tenant use Klutch's konnector.
func (s *side) label(t *testing.T, tenant string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.KlutchKonnectorLabel)
	_, err := s.dyn.Resource(namespacesGVR).Patch(t.Context(), tenant, types.MergePatchType, patch, metav1.PatchOptions{})
	s.must(t, err)
}

// bind binds the APIs of a pairing, as its person and its CLI do it.
func (in *installation) bind(t *testing.T, p *pairing) {
	t.Helper()
	if strings.HasPrefix(p.group, byKlutch) {
		in.bindByKlutchs(t, p, in.klutchCLI(p))
		return
	}
	at, args := *in.Stack, []string{"--adopt", "5", "--timeout", "4m"}
	at.App = p.app.Cluster
	if cli := in.klutchCLI(p); cli.backend == in.klutchs.url { // it gives one at a time
		succeeds(t, in.bindAt(t, p, cli.backend, "widgets."+p.group, args...))
		claim := "gears." + p.group + "/"
		succeeds(t, in.bindAt(t, p, cli.backend, "gears."+p.group, append(args, "--accept-claim", claim+"secrets", "--accept-claim", claim+"configmaps")...))
		return
	}
	out := in.bindAt(t, p, in.BackendURL, "widgets."+p.group, append(args, "--service", "gears."+p.group, "--service", "comets."+p.group)...)
	succeeds(t, out)
	if words := "If that is Klutch's konnector, it waits until it may list Secrets"; p.konnector != nil && !strings.Contains(out.Stderr, words) {
		t.Errorf("it took Ready for more than the Secret: no %q in\n%s", words, out.Stderr)
	}
}

// visitor is the person of a pairing at a browser.
func (in *installation) visitor(p *pairing) visitor { return visitor{in.Browser(p.person), p.person} }

// klutchCLI is Klutch's CLI at the backend that offers the group of the pairing.
func (in *installation) klutchCLI(p *pairing) *klutchCLI {
	if strings.HasSuffix(p.group, their) {
		return &klutchCLI{p.app, in.klutchs.url, in.visitor(p)}
	}
	return &klutchCLI{p.app, in.BackendURL, in.visitor(p)}
}

// bindByKlutchs binds with Klutch's CLI, which gives our konnector no rights: it says which.
func (in *installation) bindByKlutchs(t *testing.T, p *pairing, cli *klutchCLI) {
	t.Helper()
	at := *in.Stack
	at.App = p.app.Cluster
	plurals := []string{"widgets", "gears", "comets"}
	if cli.backend == in.klutchs.url {
		plurals = plurals[:2]
	}
	for _, plural := range plurals {
		name := plural + "." + p.group
		if err := cli.bind(t.Context(), name); err != nil {
			t.Fatalf("Klutch's kubectl bind %s: %v", name, err)
		}
		if p.konnector != nil {
			continue
		}
		eventually(t, func(ctx context.Context) error {
			b, err := p.app.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace).Get(ctx, name, metav1.GetOptions{})
			if said := fmt.Sprint(b); err == nil && !strings.Contains(said, "Create the ClusterRole klutch-bind-konnector-"+name) {
				err = errors.New(said)
			}
			return err
		})
		p.grant(t, name)
		if plural == "widgets" {
			succeeds(t, at.Kubectl(t.Context(), nil, "claims", name, "--adopt", "5", "--yes"))
		}
	}
}

// grant makes the ClusterRole that the binding asks for, and what belongs to it.
func (p *pairing) grant(t *testing.T, name string) {
	t.Helper()
	u, err := p.app.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace).Get(t.Context(), name, metav1.GetOptions{})
	p.app.must(t, err)
	b := &v1alpha1.APIServiceBinding{}
	p.app.must(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b))
	e := &v1alpha1.APIServiceExport{}
	eventually(t, func(ctx context.Context) error {
		list, err := p.control.dyn.Resource(exportsGVR).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("no export %s: %w", name, err)
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[0].Object, e)
	})
	p.app.apply(t, bind.Rights(e.Spec, b.Spec.PermissionClaims)...)
}

func succeeds(t *testing.T, out stack.Output) {
	t.Helper()
	if out.Code != 0 {
		t.Errorf("exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
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
	anchor := p.place(p.app, "widgets", p.team, "anchor")
	anchor.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	service := ""
	eventually(t, func(ctx context.Context) error {
		u, err := p.control.dyn.Resource(requestedGVR).Namespace(p.tenant).Get(ctx, p.team, metav1.GetOptions{})
		if err == nil {
			if service = text(u, "status", "namespace"); service == "" {
				err = errors.New("there is no service namespace")
			}
		}
		return err
	})
	p.place(p.control, "widgets", service, "anchor").has(t, "small", "spec", "size")

	t.Run("namespaced", func(t *testing.T) {
		p.life(t, p.place(p.app, "widgets", p.team, "one"), p.place(p.control, "widgets", service, "one"))
	})
	t.Run("cluster-scoped", func(t *testing.T) {
		here := p.place(p.app, "gears", "", "one")
		switch {
		case strings.HasSuffix(p.group, their):
			p.life(t, here, p.place(p.control, "gears", "", p.tenant+"-one"))
			p.place(p.app, "gears", "", "two").create(t, map[string]any{"spec": map[string]any{"size": "small"}})
			for _, gvr := range []schema.GroupVersionResource{secretsGVR, configMapsGVR} { // only the second is not the widgets' too
				p.follows(t, p.claimed(p.control, gvr, service, "gear-creds"), p.claimed(p.app, gvr, p.team, "gear-creds"))
			}
		case p.konnector == nil:
			p.life(t, here, p.place(p.control, "gears", p.tenant+"-"+v1alpha1.Namespace, "one"))
			p.life(t, p.place(p.app, "comets", "", "one"), p.place(p.control, "comets", "", p.tenant+"-one"))
		default: // what FROM-KLUTCH.md says does not work
			eventually(t, func(context.Context) error {
				if err := p.konnector.said(); err == nil || !strings.Contains(err.Error(), "gears."+p.group) {
					return fmt.Errorf("Klutch's konnector says: %w", err)
				}
				return nil
			})
			p.life(t, p.place(p.app, "comets", "", "one"), p.place(p.control, "comets", "", p.tenant+"-one"))
		}
	})
	t.Run("provider-owned", func(t *testing.T) {
		p.follows(t, p.claimed(p.control, secretsGVR, service, "creds"), p.claimed(p.app, secretsGVR, p.team, "creds"))
	})
	t.Run("consumer-owned", func(t *testing.T) {
		p.follows(t, p.claimed(p.app, configMapsGVR, p.team, "settings"), p.claimed(p.control, configMapsGVR, service, "settings"))
	})
	t.Run("adoption", func(t *testing.T) {
		made, claim := p.place(p.control, "widgets", service, "made"), p.place(p.app, "widgets", p.team, "made")
		made.create(t, map[string]any{"spec": map[string]any{"size": "large"}})
		claim.has(t, "large", "spec", "size")
		claim.has(t, "true", "metadata", "annotations", v1alpha1.BoundAnnotation)
		made.patch(t, `{"status":{"state":"running"}}`, "status")
		claim.has(t, "running", "status", "state")
		claim.patch(t, `{"spec":{"size":"medium"}}`)
		made.has(t, "medium", "spec", "size")
	})
}

// troubles are what happens to what the programs share, beside the five: each goes on by itself.
func (p pairing) troubles(t *testing.T) {
	team := p.team + "-2"
	p.app.apply(t, object("v1", "Namespace", "", team, nil))
	service := p.tenant + "-" + team
	here, there := p.place(p.app, "widgets", team, "one"), p.place(p.control, "widgets", service, "one")
	here.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	there.has(t, "small", "spec", "size")

	t.Run("a deleted service namespace", func(t *testing.T) {
		was := there.uid(t)
		namespace := place{p.control, namespacesGVR, "", service}
		first := namespace.uid(t)
		namespace.delete(t)
		namespace.isAnew(t, first)
		there.isAnew(t, was)
		there.patch(t, `{"status":{"state":"running"}}`, "status")
		here.has(t, "running", "status", "state")
	})
	t.Run("a deleted kubeconfig Secret", func(t *testing.T) { // which our konnector would only tell
		if p.konnector == nil {
			return
		}
		b, err := p.app.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace).Get(t.Context(), "widgets."+p.group, metav1.GetOptions{})
		p.app.must(t, err)
		secret := place{p.app, secretsGVR, v1alpha1.Namespace, text(b, "spec", "kubeconfigSecretRef", "name")}
		was := secret.uid(t)
		secret.delete(t)
		secret.isAnew(t, was)
		here.patch(t, `{"spec":{"size":"large"}}`)
		there.has(t, "large", "spec", "size")
	})
	t.Run("what the export says", func(t *testing.T) {
		export := place{p.control, exportsGVR, p.tenant, "widgets." + p.group}
		eventually(t, func(ctx context.Context) error {
			u, err := export.client().Get(ctx, export.name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			e := &v1alpha1.APIServiceExport{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, e); err != nil {
				return err
			}
			for _, want := range []string{v1alpha1.ConditionConnected, "Established"} {
				if !v1alpha1.IsTrue(e.Status.Conditions, want) {
					return fmt.Errorf("%s is not True: %+v", want, e.Status.Conditions)
				}
			}
			if len(e.Status.StoredVersions) != 1 || e.Status.AcceptedNames.Plural != "widgets" {
				return fmt.Errorf("%+v", e.Status)
			}
			return nil
		})
	})
	t.Run("a deleted namespace of the App Cluster", func(t *testing.T) {
		here.delete(t)
		here.gone(t)
		place{p.app, namespacesGVR, "", team}.delete(t)
		place{p.control, requestedGVR, p.tenant, team}.gone(t)
		place{p.control, namespacesGVR, "", service}.gone(t)
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
	kind := map[string]string{"widgets": "Widget", "gears": "Gear", "comets": "Comet", "wheels": "Wheel", "secrets": "Secret", "configmaps": "ConfigMap"}[o.gvr.Resource]
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

// shows waits until a word is in the spec of the object.
func (o place) shows(t *testing.T, word string) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		u, err := o.client().Get(ctx, o.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if spec := fmt.Sprint(u.Object["spec"]); !strings.Contains(spec, word) {
			return fmt.Errorf("%s: no %q in %s", o, word, spec)
		}
		return nil
	})
}

func (o place) uid(t *testing.T) types.UID {
	t.Helper()
	u, err := o.client().Get(t.Context(), o.name, metav1.GetOptions{})
	o.must(t, err)
	return u.GetUID()
}

// isAnew waits until the object is another one than it was.
func (o place) isAnew(t *testing.T, was types.UID) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		u, err := o.client().Get(ctx, o.name, metav1.GetOptions{})
		if err == nil && (u.GetUID() == was || u.GetDeletionTimestamp() != nil) {
			err = fmt.Errorf("%s is still that of before", o)
		}
		return err
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
