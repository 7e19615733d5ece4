// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/catalog/automation"
	"github.com/klutch-go/sdk/examples/catalog/engine"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Patience is how long anything may take on a busy machine.
const patience = 3 * time.Minute

// A world is a Control Plane Cluster with the catalog in it.
type world struct {
	config *rest.Config // of an administrator
	dyn    dynamic.Interface
	core   kubernetes.Interface
}

// TestOnCluster asserts on a real API server what the other tests assert on parts.
func TestOnCluster(t *testing.T) {
	w := newWorld(t, cluster.ForTest(t, "catalog").Config())
	t.Run("schema", w.testSchema)
	t.Run("a new service", w.testNewService)
	t.Run("automation", w.testAutomation)
	t.Run("restart", w.testRestart)
	t.Run("served", w.testServed)
	t.Run("policy", w.testPolicy)
}

// testPolicy: a thief of the automation's token makes no token of another account with it,
// and neither makes nor deletes what no claim controls.
func (w *world) testPolicy(t *testing.T) {
	thief := kubernetes.NewForConfigOrDie(w.automationConfig(t)).CoreV1()
	namespace := w.namespace(t)
	secret := func(kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "stolen", Annotations: map[string]string{corev1.ServiceAccountNameKey: "default"}}, Type: kind,
		}
	}
	owned := secret(corev1.SecretTypeServiceAccountToken)
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "anynines.com/v1", Kind: "ServiceBinding", Name: "b", UID: "u", Controller: new(true)}}
	foreign, err := w.core.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for why, try := range map[string]func(context.Context) error{
		"may write only in service namespaces": func(ctx context.Context) error {
			_, err := thief.Secrets(metav1.NamespaceSystem).Create(ctx, secret(corev1.SecretTypeServiceAccountToken), dry)
			return err
		},
		"may write only what a claim controls": func(ctx context.Context) error {
			_, err := thief.Secrets(namespace).Create(ctx, secret(corev1.SecretTypeOpaque), dry)
			return err
		},
		"may make no Secret but an Opaque one": func(ctx context.Context) error {
			_, err := thief.Secrets(namespace).Create(ctx, owned, dry)
			return err
		},
		"may change and delete only what a claim controlled": func(ctx context.Context) error {
			return thief.Secrets(namespace).Delete(ctx, foreign.Name, metav1.DeleteOptions{DryRun: dry.DryRun})
		},
	} {
		var last error
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			last = try(ctx)
			return last != nil && strings.Contains(last.Error(), why), nil
		})
		if err != nil {
			t.Errorf("%s: %v", why, last)
		}
	}
}

func newWorld(t *testing.T, config *rest.Config) *world {
	t.Helper()
	w := &world{config, dynamic.NewForConfigOrDie(config), kubernetes.NewForConfigOrDie(config)}
	crds := slices.AppendSeq(all("CustomResourceDefinition"), maps.Values(v1alpha1.CRDs()))
	for _, crd := range crds {
		w.apply(t, "", crd)
	}
	for _, crd := range crds {
		w.await(t, resourceOf(crd), "", crd.GetName(), established)
	}
	for _, object := range slices.Concat(catalog.Roles(), catalog.Templates(), catalog.Services()) {
		w.apply(t, "", object)
	}
	return w
}

// automationConfig is of the automation's own service account, which has exactly
// the rights that the catalog gives it.
func (w *world) automationConfig(t *testing.T) *rest.Config {
	t.Helper()
	token, err := w.core.CoreV1().ServiceAccounts(catalog.Namespace).
		CreateToken(t.Context(), "automation", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(w.config)
	config.BearerToken = token.Status.Token
	return config
}

// Automate runs the automation until stop is called or the test ends.
func (w *world) automate(t *testing.T, engines map[string]engine.Engine) (stop func()) {
	t.Helper()
	config := w.automationConfig(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- automation.Run(ctx, config, engines); close(done) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// Namespace makes a service namespace for this test alone.
func (w *world) namespace(t *testing.T) string {
	t.Helper()
	ns, err := w.core.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "service-", Labels: map[string]string{v1alpha1.TenantLabel: "tenant"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// resourceOf returns the resource of an object; all of ours have plain plurals.
func resourceOf(object *unstructured.Unstructured) schema.GroupVersionResource {
	gvr, _ := meta.UnsafeGuessKindToResource(object.GroupVersionKind())
	return gvr
}

func (w *world) tryApply(ctx context.Context, namespace string, object *unstructured.Unstructured) error {
	if namespace == "" {
		namespace = object.GetNamespace()
	}
	_, err := w.dyn.Resource(resourceOf(object)).Namespace(namespace).
		Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "developer"})
	return err
}

func (w *world) apply(t *testing.T, namespace string, object *unstructured.Unstructured) {
	t.Helper()
	if err := w.tryApply(t.Context(), namespace, object); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
}

func (w *world) delete(t *testing.T, gvr schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	if err := w.dyn.Resource(gvr).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Await returns the object once ok says so of it; ok gets nil when there is none.
func (w *world) await(t *testing.T, gvr schema.GroupVersionResource, namespace, name string, ok func(*unstructured.Unstructured) bool) *unstructured.Unstructured {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := w.dyn.Resource(gvr).Namespace(namespace)
	byName := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + name }
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			byName(&o)
			return client.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			byName(&o)
			return client.Watch(ctx, o)
		},
	}
	var last *unstructured.Unstructured
	_, err := watchtools.UntilWithSync(ctx, source, &unstructured.Unstructured{}, func(store cache.Store) (bool, error) {
		for _, obj := range store.List() {
			last = obj.(*unstructured.Unstructured)
		}
		return len(store.List()) == 0 && ok(nil), nil
	}, func(event watch.Event) (bool, error) {
		last = event.Object.(*unstructured.Unstructured)
		if event.Type == watch.Deleted {
			return ok(nil), nil
		}
		return ok(last), nil
	})
	if err != nil {
		t.Fatalf("%s %s/%s: %v; last seen: %v", gvr.Resource, namespace, name, err, last)
	}
	return last
}

func established(u *unstructured.Unstructured) bool {
	return u != nil && conditionOf(u, "Established")["status"] == "True"
}

func conditionOf(u *unstructured.Unstructured, kind string) map[string]any {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range all {
		if m := one.(map[string]any); m["type"] == kind {
			return m
		}
	}
	return nil
}

// testSchema is the table of the offline test, put to the API server.
func (w *world) testSchema(t *testing.T) {
	for i, r := range slices.Concat(creations(), updates(), services()) {
		t.Run(r.kind+"/"+r.name, func(t *testing.T) {
			object := func(spec fields) *unstructured.Unstructured {
				u := &unstructured.Unstructured{Object: claim(r.kind, spec)}
				u.SetName(fmt.Sprintf("case-%d", i))
				return u
			}
			if r.before != nil {
				w.apply(t, "default", object(r.before))
			}
			err := w.tryApply(t.Context(), "default", object(r.spec))
			switch {
			case r.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case r.want != "" && (err == nil || !strings.Contains(err.Error(), r.want)):
				t.Fatalf("got %v, want %q", err, r.want)
			}
		})
	}
}

// overlay is the path of a file that tells go to read a copy of the folders in their place.
func overlay(t *testing.T, dir string) string {
	t.Helper()
	here, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			replace[here+strings.TrimPrefix(path, dir)] = path
		}
		return err
	})
	text, jsonErr := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(dir, "overlay.json")
	if err := errors.Join(err, jsonErr, os.WriteFile(path, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

// exported is what an App Cluster sees of a CRD.
func exported(t *testing.T, crd *unstructured.Unstructured) *v1alpha1.APIServiceExportCRDSpec {
	t.Helper()
	var out struct {
		Spec v1alpha1.APIServiceExportCRDSpec
	}
	text, err := crd.MarshalJSON()
	if err := errors.Join(err, json.Unmarshal(text, &out)); err != nil {
		t.Fatal(err)
	}
	return &out.Spec
}

// testNewService follows the README in a copy of the folders, and orders what comes of it.
func (w *world) testNewService(t *testing.T) {
	dir := t.TempDir()
	commands, err := stack.Reader{Folder: "."}.Commands()
	if err != nil {
		t.Fatal(err)
	}
	script := "set -e; mkdir -p servicebroker; cp -r \"$OLDPWD\" catalog; cp -r \"$OLDPWD\"/../servicebroker/deploy servicebroker; cd catalog\n"
	for _, line := range commands {
		if strings.HasPrefix(line, "for ") || strings.HasPrefix(line, "sed ") {
			script += line + "\n"
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "cd "+dir+"; "+script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", overlay(t, dir), "-o", dir+"/tests", ".") //nolint:gosec // paths of our own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, line := range commands {
		flags, ok := strings.CutPrefix(line, "go test . -")
		if !ok {
			continue
		}
		cmd := exec.CommandContext(t.Context(), dir+"/tests", append(strings.Fields("-test."+flags), "-test.v")...) //nolint:gosec // words of our README
		cmd.Dir = dir + "/catalog"
		if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(flags, "/orders") && !strings.Contains(string(out), "CassandraInstance") {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
	made := func(path string) (all []*unstructured.Unstructured) {
		all, err := stack.Read(dir + "/" + path)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	for _, object := range slices.Concat(made("catalog/crds"), made("catalog/roles"), made("servicebroker/deploy"), made("catalog/services/cassandra.yaml")) {
		w.apply(t, "", object)
	}
	var learned []string // by App Clusters that bound them before
	for i, crd := range made("catalog/crds") {
		for _, change := range crdcompat.Compare(exported(t, catalog.CRDs()[i]), exported(t, crd)) {
			learned = append(learned, fmt.Sprintf("%s: %s %s", crd.GetName(), change.Effect, change))
		}
	}
	var want []string
	for _, crd := range []string{"backups", "restores", "servicebindings"} {
		want = append(want, crd+`.anynines.com: widened v1 spec.serviceInstanceType: value "cassandra" is new`)
	}
	if diff := cmp.Diff(want, learned); diff != "" {
		t.Errorf("changes of the APIs that are there (-want +got):\n%s", diff)
	}
	const plural = "cassandrainstances"
	w.await(t, schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", plural+".anynines.com", func(u *unstructured.Unstructured) bool {
		return established(u) && conditionOf(u, "NamesAccepted")["status"] == "True"
	})
	namespace := w.namespace(t)
	for _, object := range made("catalog/orders/cassandra.yaml") {
		var err error
		waitErr := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
			err = w.tryApply(ctx, namespace, object)
			return err == nil, nil // the CRDs' new schema is served after a moment
		})
		if waitErr != nil {
			t.Fatal(waitErr, err)
		}
	}
	for _, name := range []string{"catalog/roles/3-bind.yaml", "servicebroker/deploy/1-role.yaml"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if text := string(data); err != nil || !strings.Contains(text, plural) || strings.Contains(text, plural+"/status") != strings.Contains(name, "broker") {
			t.Errorf("%s: %v: %s", name, err, text)
		}
	}
}
