// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
)

func widget(name, color string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color},
	}}
}

func colorOf(u *unstructured.Unstructured) string {
	if u == nil {
		return "gone"
	}
	color, _, _ := unstructured.NestedString(u.Object, "spec", "color")
	return color
}

// until sees what is there, what becomes of it, and the end, and outlives an API
// server that is away for a while.
func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gvr := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "WidgetList"})
		away := 3
		client.PrependReactor("get", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			away--
			return away >= 0, nil, apierrors.NewServiceUnavailable("away")
		})
		widgets := client.Resource(gvr)
		var seen []string
		done := make(chan error, 1)
		go func() {
			done <- until(t.Context(), widgets, "a", func(u *unstructured.Unstructured) (bool, error) {
				if c := colorOf(u); len(seen) == 0 || seen[len(seen)-1] != c {
					seen = append(seen, c)
				}
				return len(seen) == 4, nil
			})
		}()
		time.Sleep(time.Minute)
		for _, step := range []func() error{
			func() error {
				_, err := widgets.Create(t.Context(), widget("a", "red"), metav1.CreateOptions{})
				return err
			},
			func() error {
				_, err := widgets.Update(t.Context(), widget("a", "blue"), metav1.UpdateOptions{})
				return err
			},
			func() error { return widgets.Delete(t.Context(), "a", metav1.DeleteOptions{}) },
		} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"gone", "red", "blue", "gone"}, seen); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
	})
}

func TestUntilEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gvr := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{gvr: "WidgetList"})
		refuse := error(apierrors.NewForbidden(gvr.GroupResource(), "a", errors.New("no")))
		client.PrependReactor("get", "widgets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refuse })
		never := func(*unstructured.Unstructured) (bool, error) { return false, nil }
		if err := until(t.Context(), client.Resource(gvr), "a", never); !apierrors.IsForbidden(err) {
			t.Errorf("forbidden: error = %v", err)
		}
		refuse = apierrors.NewServiceUnavailable("away")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := until(ctx, client.Resource(gvr), "a", never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("away: error = %v", err)
		}
	})
}
