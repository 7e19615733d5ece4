// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
)

// A world is what one test sees of the stack: a namespace of its own in the App
// Cluster. What does not happen fails the test at once.
type world struct {
	*testing.T
	s         *stack.Stack
	ctx       context.Context //nolint:containedctx // a world is one step of one test
	namespace string
}

func enter(ctx context.Context, t *testing.T, namespace string) world {
	t.Helper()
	w := world{t, of(ctx), ctx, namespace}
	w.apply(w.s.App, object("v1", "Namespace", "", namespace, nil))
	return w
}

func (w world) apply(c *cluster.Cluster, objects ...*unstructured.Unstructured) {
	w.Helper()
	if err := stack.Apply(w.ctx, c, objects...); err != nil {
		w.Fatal(err)
	}
}

// app and mirror name an object of the world's namespace, on either side.
func (w world) app(gvr schema.GroupVersionResource, name string) stack.Object {
	return stack.Object{Cluster: w.s.App, Resource: gvr, Namespace: w.namespace, Name: name}
}

func (w world) mirror(gvr schema.GroupVersionResource, name string) stack.Object {
	w.Helper()
	namespace, err := w.s.ServiceNamespace(w.ctx, w.namespace)
	if err != nil {
		w.Fatal(err)
	}
	return stack.Object{Cluster: w.s.Control, Resource: gvr, Namespace: namespace, Name: name}
}

func (w world) await(o stack.Object, cond stack.Condition) *unstructured.Unstructured {
	w.Helper()
	u, err := o.Await(w.ctx, patience, cond)
	if err != nil {
		w.Fatalf("%v\nkonnector:\n%s\nbackend:\n%s", err, w.s.Konnector.LastWords(), w.s.Backend.LastWords())
	}
	return u
}

// awaitState waits for a managed state on both sides.
func (w world) awaitState(gvr schema.GroupVersionResource, name, state string) {
	w.Helper()
	running := stack.Field(state, "status", "managed", "state")
	w.await(w.mirror(gvr, name), running)
	w.await(w.app(gvr, name), running)
}

func (w world) get(o stack.Object) *unstructured.Unstructured {
	w.Helper()
	u, err := o.Get(w.ctx)
	if err != nil {
		w.Fatal(err)
	}
	return u
}

// patch merges JSON into an object and returns what the API server said.
func (w world) patch(o stack.Object, json string) error {
	w.Helper()
	c, err := o.Client()
	if err != nil {
		w.Fatal(err)
	}
	_, err = c.Patch(w.ctx, o.Name, types.MergePatchType, []byte(json), metav1.PatchOptions{})
	return err
}

// edit changes an object as its only writer would.
func (w world) edit(o stack.Object, change func(u *unstructured.Unstructured)) {
	w.Helper()
	c, err := o.Client()
	if err != nil {
		w.Fatal(err)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		u, err := c.Get(w.ctx, o.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(u)
		_, err = c.Update(w.ctx, u, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}

func (w world) remove(o stack.Object) {
	w.Helper()
	c, err := o.Client()
	if err != nil {
		w.Fatal(err)
	}
	if err := c.Delete(w.ctx, o.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		w.Fatal(err)
	}
}

// said fails the test unless a command ended with the code and said all of it.
func (w world) said(out stack.Output, code int, words ...string) {
	w.Helper()
	if out.Code != code {
		w.Errorf("exit code %d, want %d", out.Code, code)
	}
	for _, word := range words {
		if !strings.Contains(out.Stderr, word) {
			w.Errorf("stderr does not say %q", word)
		}
	}
	if w.Failed() {
		w.Fatalf("stdout:\n%s\nstderr:\n%s", out.Stdout, out.Stderr)
	}
}

// mentions holds when some text of the object, wherever, contains all words.
func mentions(words ...string) stack.Condition {
	return func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		u = u.DeepCopy()
		u.SetManagedFields(nil)
		text, err := u.MarshalJSON()
		if err != nil {
			return false
		}
		for _, word := range words {
			if !strings.Contains(string(text), word) {
				return false
			}
		}
		return true
	}
}

// condition holds when the object has the condition, for this reason and with a
// message that contains all words.
func condition(conditionType, reason string, words ...string) stack.Condition {
	return func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range all {
			m, ok := c.(map[string]any)
			if !ok || m["type"] != conditionType || m["reason"] != reason {
				continue
			}
			message, _ := m["message"].(string)
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
		}
		return false
	}
}

// clusterWide are the resources that a bind may write.
func clusterWide() []schema.GroupVersionResource {
	rbac := schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}
	return []schema.GroupVersionResource{
		secrets, serviceAccounts, rbac.WithResource("roles"), rbac.WithResource("rolebindings"), rbac.WithResource("clusterroles"),
	}
}
