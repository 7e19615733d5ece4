// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestOfferWithdrawn: who uses an API that is not offered any more is told so, and
// loses nothing.
func TestOfferWithdrawn(t *testing.T) {
	const (
		ns   = "withdrawn"
		name = "trinkets.example.org"
	)
	trinkets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "trinkets"}
	binding := func(w world) stack.Object {
		return stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: name}
	}
	f := features.New("an offer is withdrawn").
		Assess("it is offered and bound", step(ns, func(w world) {
			w.apply(w.s.Control, trinketCRD())
			w.apply(w.s.Control, offer("trinkets")...)
			w.said(w.s.Bind(w.ctx, stack.Developer, "--service", name), exitOK)
			w.apply(w.s.App, object("example.org/v1", "Trinket", ns, "one", map[string]any{"spec": map[string]any{"size": "small"}}))
			w.await(w.mirror(trinkets, "one"), stack.There)
		})).
		Assess("it is withdrawn: the binding says so, and nothing is deleted", step(ns, func(w world) {
			w.remove(stack.Object{Cluster: w.s.Control, Resource: v1alpha1.Resource("apiserviceexporttemplates"), Namespace: "data-services", Name: "trinkets"})
			w.await(binding(w), condition(v1alpha1.ConditionReady, v1alpha1.ReasonNotOffered, "not on offer any more", "Ask the operators of Demo platform"))
			out := w.s.Kubectl(w.ctx, nil, "status", name)
			if out.Code != exitTimeout || !strings.Contains(out.Stdout, "not on offer any more") {
				w.Errorf("exit code %d, status says:\n%s%s", out.Code, out.Stdout, out.Stderr)
			}
			w.get(w.app(trinkets, "one"))
			w.get(w.mirror(trinkets, "one"))
		})).
		Assess("what there is can be deleted, to the end", step(ns, func(w world) {
			w.remove(w.app(trinkets, "one"))
			w.await(w.app(trinkets, "one"), stack.Gone)
			w.await(w.mirror(trinkets, "one"), stack.Gone)
		})).
		Assess("it is offered again: all goes on", step(ns, func(w world) {
			w.apply(w.s.App, object("example.org/v1", "Trinket", ns, "two", map[string]any{"spec": map[string]any{"size": "small"}}))
			w.apply(w.s.Control, offer("trinkets")...)
			w.await(binding(w), stack.True(v1alpha1.ConditionReady))
			w.await(w.mirror(trinkets, "two"), stack.There)
		})).
		Feature()
	testenv.Test(t, f)
}

// TestTemplateWithoutKind: doctor, looking at the Control Plane Cluster, finds a template whose
// kind is not there, and says what to do; with the kind all is well.
func TestTemplateWithoutKind(t *testing.T) {
	const soon = time.Minute // 15 seconds where nothing else runs
	f := features.New("an offer without a kind").
		Assess("doctor finds it", step("kindless", func(w world) {
			w.apply(w.s.Control, offer("baubles")...)
			w.diagnosed(soon, "SchemaMissing", " get crd baubles.example.org")
		})).
		Assess("the kind comes: all is well", step("kindless", func(w world) {
			w.apply(w.s.Control, curiosity("baubles"))
			w.diagnosed(patience, "true", "tenants can have it")
		})).
		Feature()
	testenv.Test(t, f)
}

// diagnosed waits until doctor, asked about the Control Plane Cluster, has words in what it says
// of the template baubles, and nothing to say of what only App Clusters need.
func (w world) diagnosed(within time.Duration, words ...string) {
	w.Helper()
	var out []byte
	err := wait.PollUntilContextTimeout(w.ctx, time.Second, within, true, func(ctx context.Context) (bool, error) {
		cmd := exec.CommandContext(ctx, filepath.Join(w.s.Dir, "bin", "kubectl-bind"), "doctor", "--kubeconfig", w.s.Control.Kubeconfig())
		out, _ = cmd.CombinedOutput() // it ends with 3 as long as anything is wrong
		var said []string
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "data-services/baubles") {
				said = append(said, line)
			}
		}
		all := strings.Join(said, "")
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(all, word) }), nil
	})
	if err != nil || strings.Contains(string(out), "konnector") {
		w.Errorf("%v, want %q of baubles, and no word of a konnector:\n%s", err, words, out)
	}
}
