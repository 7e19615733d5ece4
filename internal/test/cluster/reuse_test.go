// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

// left is what the first test leaves behind; the kinds that it adds come last.
var left = []string{`
apiVersion: v1
kind: Namespace
metadata: {name: shop, finalizers: [example.org/hold]}`, `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: clerk, namespace: default}`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view, labels: {changed: "yes"}}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: clerk}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: closed}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "object.metadata.name == 'kube-root-ca.crt'", message: closed}]`, `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: closed}
spec: {policyName: closed, validationActions: [Deny]}`, `
apiVersion: example.org/v1
kind: Widget
metadata: {name: held, namespace: default, finalizers: [example.org/hold]}
spec: {size: 1}`}

func widgetCRD(kind string) string {
	return `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: ` + kind + `}}}}}}}]`
}

// TestReuse: what a test leaves in a cluster, another one does not find there.
func TestReuse(t *testing.T) {
	var first string
	var system any
	t.Run("first", func(t *testing.T) {
		c := Reused(t, "first")
		first, system = c.URL(), get(t, c, "namespaces", "", "kube-system").GetUID()
		apply(t, c, widgetCRD("integer"))
		for _, manifest := range left {
			apply(t, c, manifest)
		}
		awaitClosed(t, c)
	})
	t.Run("second", func(t *testing.T) {
		began := time.Now()
		c := Reused(t, "second")
		t.Logf("reset in %v", time.Since(began))
		if c.URL() != first || c.Name() != "second" {
			t.Fatalf("cluster %q at %s, want second at %s", c.Name(), c.URL(), first)
		}
		if got := get(t, c, "namespaces", "", "kube-system").GetUID(); got != system {
			t.Errorf("kube-system has UID %v, was %v", got, system)
		}
		apply(t, c, `{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: default}}`)
		if got := get(t, c, "configmaps", "default", "settings"); got == nil {
			t.Error("the policy of the first test is in force")
		}
		for what, o := range map[string]*unstructured.Unstructured{
			"namespace": get(t, c, "namespaces", "", "shop"), "service account": get(t, c, "serviceaccounts", "default", "clerk"),
			"cluster role": get(t, c, "rbac.authorization.k8s.io/v1/clusterroles", "", "clerk"),
		} {
			if o != nil {
				t.Errorf("the %s of the first test is there", what)
			}
		}
		if got := get(t, c, "rbac.authorization.k8s.io/v1/clusterroles", "", "view").GetLabels()["changed"]; got != "" {
			t.Error("a cluster role is as the first test changed it")
		}
		apply(t, c, widgetCRD("string"))
		if got := get(t, c, "example.org/v1/widgets", "default", "held"); got != nil {
			t.Errorf("an object of the first test is there: %v", got)
		}
		apply(t, c, `{apiVersion: example.org/v1, kind: Widget, metadata: {name: held, namespace: default}, spec: {size: large}}`)
	})
	t.Run("stopped", func(t *testing.T) {
		c := Reused(t, "stopped")
		if err := c.StopServer(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		if c.leave() {
			t.Error("a cluster whose server was stopped is left to others")
		}
	})
}

// TestMemory: what the servers themselves add to a new cluster is no trace of a test.
func TestMemory(t *testing.T) {
	t.Parallel()
	c := Reused(t, "memory")
	store := newEtcd(c.servers.dir)
	defer store.close()
	if err := c.reset(t.Context(), "memory"); err != nil {
		t.Fatal(err)
	}
	now, err := store.list(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	steady := func(m map[string]entry) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(m)), restless)
	}
	if diff := cmp.Diff(steady(c.began.entries), steady(now)); diff != "" {
		t.Errorf("objects of a cluster (-new +reset):\n%s", diff)
	}
}

// resourceOf reads group/version/resource, or the resource of a core kind.
func resourceOf(path string) schema.GroupVersionResource {
	if parts := strings.Split(path, "/"); len(parts) == 3 {
		return schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]}
	}
	return schema.GroupVersionResource{Version: "v1", Resource: path}
}

func get(t *testing.T, c *Cluster, path, namespace, name string) *unstructured.Unstructured {
	t.Helper()
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Resource(resourceOf(path)).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return o
}

// apply applies an object once its kind is served.
func apply(t *testing.T, c *Cluster, manifest string) {
	t.Helper()
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		t.Fatal(err)
	}
	gvr := o.GroupVersionKind().GroupVersion().WithResource(resourceNames[o.GetKind()])
	var last error
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, last = d.Resource(gvr).Namespace(o.GetNamespace()).Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: "test", Force: true})
		return last == nil, nil
	}); err != nil {
		t.Fatalf("apply %s %s: %v", o.GetKind(), o.GetName(), last)
	}
}

var resourceNames = map[string]string{
	"Namespace": "namespaces", "ConfigMap": "configmaps", "ServiceAccount": "serviceaccounts", "ClusterRole": "clusterroles",
	"ValidatingAdmissionPolicy": "validatingadmissionpolicies", "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	"CustomResourceDefinition": "customresourcedefinitions", "Widget": "widgets",
}

// awaitClosed waits until the policy of the first test is in force.
func awaitClosed(t *testing.T, c *Cluster) {
	t.Helper()
	d, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"generateName": "try-"}}}
	if err := wait.PollUntilContextTimeout(t.Context(), pollInterval, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := d.Resource(resourceOf("configmaps")).Namespace("default").Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "closed"), nil
	}); err != nil {
		t.Fatal(err)
	}
}
