// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var podsGVR = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// kubelet stands for the machines of the cluster: containers run, but for those of a bad image.
func (w *world) kubelet(pod *unstructured.Unstructured) {
	image := pod.Object["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"].(string)
	status := map[string]any{"phase": "Running", "conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	if strings.Contains(image, "bad") {
		waiting := map[string]any{"waiting": map[string]any{"reason": "ImagePullBackOff", "message": "no such image"}}
		status = map[string]any{"phase": "Pending", "containerStatuses": []any{map[string]any{
			"name": "konnector", "image": image, "imageID": "", "ready": false, "restartCount": int64(0), "state": waiting,
		}}}
	}
	_, _ = w.dyn.Resource(podsGVR).Namespace(pod.GetNamespace()).Patch(w.Context(), pod.GetName(), types.MergePatchType, []byte(mustJSON(map[string]any{"status": status})), metav1.PatchOptions{}, "status")
}

// furnished waits until the controller manager has given each namespace its default ServiceAccount.
func (w *world) furnished() {
	w.Helper()
	err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		namespaces, err := w.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, n := range namespaces.Items {
			if _, err := w.kube.CoreV1().ServiceAccounts(n.Name).Get(ctx, "default", metav1.GetOptions{}); apierrors.IsNotFound(err) {
				return false, nil
			} else if err != nil {
				return false, err
			}
		}
		return len(namespaces.Items) > 3, nil
	})
	if err != nil {
		w.Fatalf("default ServiceAccounts: %v", err)
	}
}

// TestKonnector is the life of a konnector's installation on a real API server.
func TestKonnector(t *testing.T) {
	c := cluster.ForTest(t, "konnector")
	w := &world{T: t, cluster: c, dyn: dynamic.NewForConfigOrDie(c.Config()), kube: kubernetes.NewForConfigOrDie(c.Config())}
	w.serve(t.Context(), podsGVR, w.kubelet)
	w.furnished()
	clean := w.inventory()
	const one, two, bad = "example.com/konnector:v1", "example.com/konnector:v2", "example.com/konnector:bad"

	w.expect(w.run("konnector", "install"), exitUsage, "--image is missing")
	w.expect(w.run("konnector", "upgrade", "--image", two), exitError, "no konnector is installed", "kubectl bind konnector install")
	w.expect(w.run("konnector", "uninstall"), exitOK, "No konnector is installed")
	for _, mode := range []string{"client", "server"} {
		r := w.run("konnector", "install", "--image", one, "--dry-run="+mode, "-o", "name")
		w.expect(r, exitOK, "(dry run)")
		if !strings.Contains(r.out, "deployment.apps/konnector") {
			t.Errorf("-o name:\n%s", r.out)
		}
	}
	if diff := cmp.Diff(clean, w.inventory()); diff != "" {
		t.Fatalf("a dry run changed the world (-before +after):\n%s", diff)
	}

	w.expect(w.run("konnector", "install", "--image", one), exitOK, "All replicas of the konnector run "+one)
	before := w.deployment()
	w.expect(w.run("konnector", "install", "--image", one), exitOK)
	if after := w.deployment(); after.GetGeneration() != before.GetGeneration() {
		t.Error("the second time changes the Deployment")
	}
	w.expect(w.run("konnector", "install", "--image", two), exitConflict, "is installed with image "+one, "kubectl bind konnector upgrade")
	w.expect(w.run("konnector", "upgrade", "--image", two), exitOK, "All replicas of the konnector run "+two)
	if image := w.image(); image != two {
		t.Errorf("image %s", image)
	}

	// An image that does not run is told, in time, and the old one goes on.
	person := terminal{until: "ImagePullBackOff: no such image"}
	w.expect(person.run(t.Context(), "konnector", "upgrade", "--image", bad, "--kubeconfig", c.Kubeconfig()), exitNotReady, "the konnector is not ready", "ImagePullBackOff")
	w.expect(w.run("konnector", "upgrade", "--image", two), exitOK)

	// What another program applies is its own, unless it is taken over.
	u := w.deployment()
	flux := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName(), "namespace": u.GetNamespace()},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "konnector", "image": one}}}}},
	}}
	w.must(w.deployments().Apply(t.Context(), "konnector", flux, metav1.ApplyOptions{FieldManager: "flux", Force: true}))
	before = w.deployment()
	w.expect(w.run("konnector", "upgrade", "--image", two), exitConflict, "flux", "--force-conflicts")
	if after := w.deployment(); after.GetGeneration() != before.GetGeneration() {
		t.Error("a conflict changed the Deployment")
	}
	for _, command := range advisedUpgrades(t) {
		w.expect(w.run(strings.Fields(strings.Replace(command, "IMAGE", two, 1))...), exitOK)
	}

	// While an API is bound the konnector stays.
	w.must(w.dyn.Resource(crds).Create(t.Context(), v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"], metav1.CreateOptions{}))
	w.await(crds, "", "apiservicebindings.klutch.anynines.com", func(u *unstructured.Unstructured) bool {
		return strings.Contains(mustJSON(u.Object), `"status":"True","type":"Established"`)
	})
	w.must(w.dyn.Resource(bindings).Namespace("klutch-bind").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "APIServiceBinding", "metadata": map[string]any{"name": "things.example.com"},
		"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"name": "kubeconfig-x", "namespace": "klutch-bind", "key": "kubeconfig"}},
	}}, metav1.CreateOptions{}))
	installed := w.inventory()
	w.expect(w.run("konnector", "uninstall"), exitConflict, "things.example.com", "kubectl bind unbind")
	w.check(w.dyn.Resource(bindings).Namespace("klutch-bind").Delete(t.Context(), "things.example.com", metav1.DeleteOptions{}))
	w.expect(w.run("konnector", "uninstall", "--dry-run=server"), exitOK, "Would delete Deployment konnector")
	if diff := cmp.Diff(slices.DeleteFunc(installed, func(name string) bool { return strings.HasPrefix(name, "apiservicebindings ") }), w.inventory()); diff != "" {
		t.Fatalf("uninstall changed the world (-before +after):\n%s", diff)
	}
	w.expect(w.run("konnector", "uninstall"), exitOK, "Deleted Deployment konnector")
	left := slices.DeleteFunc(w.inventory(), func(name string) bool { return slices.Contains(clean, name) })
	want := []string{"customresourcedefinitions /apiservicebindings.klutch.anynines.com", "namespaces /klutch-bind", "serviceaccounts klutch-bind/default"}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
	if list, err := w.dyn.Resource(podsGVR).Namespace("klutch-bind").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("pods are left: %v", err)
	}
}

func (w *world) deployments() dynamic.ResourceInterface {
	return w.dyn.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("klutch-bind")
}

func (w *world) deployment() *unstructured.Unstructured {
	w.Helper()
	return w.must(w.deployments().Get(w.Context(), "konnector", metav1.GetOptions{}))
}

func (w *world) image() string {
	w.Helper()
	containers, _, _ := unstructured.NestedSlice(w.deployment().Object, "spec", "template", "spec", "containers")
	return containers[0].(map[string]any)["image"].(string)
}

// advisedUpgrades are the commands, less the name of the program, by which messages have this
// konnector take the place of Klutch's, whose Deployment has another field manager.
func advisedUpgrades(t *testing.T) (commands []string) {
	t.Helper()
	words := regexp.MustCompile(`kubectl bind (konnector upgrade[-A-Z a-z]*?)(?: puts |\. )`)
	for _, file := range []string{"bind/internal/cluster/ready.go", "bind/internal/doctor/advice.go", "export/internal/tenant/clusterbinding.go"} {
		source, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		found := words.FindSubmatch(source)
		if found == nil {
			t.Fatalf("%s advises no upgrade", file)
		}
		commands = append(commands, string(found[1]))
	}
	return commands
}

// Each has all that such a takeover needs.
func TestAdvisedUpgrades(t *testing.T) {
	for _, command := range advisedUpgrades(t) {
		r := (terminal{}).run(t.Context(), append(strings.Fields(command), "--kubeconfig", "/nonexistent")...)
		if r.code != exitError || !strings.Contains(command, "--force-conflicts") {
			t.Errorf("kubectl bind %s: %v", command, r)
		}
	}
}
