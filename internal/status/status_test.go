// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

var exports = v1alpha1.Resource("apiserviceexports")

// stored is an export with a status that we know and fields that we do not.
func stored(version string, conditions ...any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExport",
		"metadata": map[string]any{"namespace": "ns", "name": "a", "uid": "1", "resourceVersion": version},
		"status":   map[string]any{"conditions": conditions, "future": "kept", "storedVersions": []any{"v1"}},
	}}
}

func condition(conditionType string) map[string]any {
	return map[string]any{"type": conditionType, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
}

// world is an API server that checks preconditions.
func world(t *testing.T, o *unstructured.Unstructured) (client *fake.FakeDynamicClient, patches *[]string) {
	t.Helper()
	client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{exports: "APIServiceExportList"}, o)
	patches = &[]string{}
	client.PrependReactor("patch", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		*patches = append(*patches, p.GetSubresource()+" "+string(p.GetPatch()))
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(p.GetPatch(), &sent); err != nil {
			t.Fatal(err)
		}
		live, err := client.Tracker().Get(exports, "ns", p.GetName())
		if err != nil {
			return true, nil, err
		}
		if live.(*unstructured.Unstructured).GetResourceVersion() != sent.ResourceVersion {
			return true, nil, apierrors.NewConflict(exports.GroupResource(), p.GetName(), errors.New("changed"))
		}
		return false, nil, nil
	})
	return client, patches
}

func decode(t *testing.T, u *unstructured.Unstructured) *v1alpha1.APIServiceExport {
	t.Helper()
	e := &v1alpha1.APIServiceExport{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, e); err != nil {
		t.Fatal(err)
	}
	return e
}

func at(client dynamic.Interface) dynamic.ResourceInterface {
	return client.Resource(exports).Namespace("ns")
}

func setConnected(e *v1alpha1.APIServiceExport) {
	c := v1alpha1.True("Connected")
	if v1alpha1.IsTrue(e.Status.Conditions, "Connected") {
		return
	}
	e.Status.Conditions = append(e.Status.Conditions, c)
}

func TestNoChangeNoWrite(t *testing.T) {
	o := stored("1", condition("Connected"))
	client, patches := world(t, o)
	if err := status.Write(t.Context(), at(client), decode(t, o), setConnected); err != nil {
		t.Fatal(err)
	}
	if len(*patches) != 0 {
		t.Errorf("sent %v", *patches)
	}
}

func TestOnlyTheDifferenceIsSent(t *testing.T) {
	o := stored("7")
	client, patches := world(t, o)
	seen := decode(t, o)
	err := status.Write(t.Context(), at(client), seen, func(e *v1alpha1.APIServiceExport) {
		e.Spec.Group = "ignored.example.org"
		e.Status.StoredVersions = nil
		e.Status.AcceptedNames = &v1alpha1.CRDNames{Plural: "p", Kind: "K"}
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`status {"metadata":{"resourceVersion":"7","uid":"1"},"status":{"acceptedNames":{"kind":"K","plural":"p"},"storedVersions":null}}`}
	if diff := cmp.Diff(want, *patches); diff != "" {
		t.Errorf("patches (-want +got):\n%s", diff)
	}
	if seen.Status.AcceptedNames != nil {
		t.Error("the argument was modified")
	}
}

// A cache that lags behind another writer's condition must not undo it.
func TestOtherWriterIsKept(t *testing.T) {
	client, patches := world(t, stored("2", condition("ProviderInSync")))
	if err := status.Write(t.Context(), at(client), decode(t, stored("1")), setConnected); err != nil {
		t.Fatal(err)
	}
	live, err := at(client).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, c := range decode(t, live).Status.Conditions {
		types = append(types, c.Type)
	}
	if diff := cmp.Diff([]string{"ProviderInSync", "Connected"}, types); diff != "" || len(*patches) != 2 {
		t.Errorf("%d patches, conditions (-want +got):\n%s", len(*patches), diff)
	}
	if future, _, _ := unstructured.NestedString(live.Object, "status", "future"); future != "kept" {
		t.Error("a field that we do not know is gone")
	}
}

func TestGoneOrReplacedIsNoError(t *testing.T) {
	o := stored("1")
	replaced := stored("2")
	replaced.SetUID("2")
	elsewhere := stored("1")
	elsewhere.SetName("b")
	for name, there := range map[string]*unstructured.Unstructured{"gone": elsewhere, "replaced": replaced} {
		t.Run(name, func(t *testing.T) {
			client, _ := world(t, there)
			if err := status.Write(t.Context(), at(client), decode(t, o), setConnected); err != nil {
				t.Error(err)
			}
			live, err := at(client).Get(t.Context(), there.GetName(), metav1.GetOptions{})
			if diff := cmp.Diff(there, live); diff != "" || err != nil {
				t.Errorf("written: %v\n%s", err, diff)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	o := stored("1")
	for name, refusal := range map[string]error{
		"forbidden":          apierrors.NewForbidden(exports.GroupResource(), "a", errors.New("no")),
		"conflicts for ever": apierrors.NewConflict(exports.GroupResource(), "a", errors.New("no")),
	} {
		t.Run(name, func(t *testing.T) {
			client, _ := world(t, o)
			client.PrependReactor("patch", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			err := status.Write(t.Context(), at(client), decode(t, o), setConnected)
			if err == nil || apierrors.IsForbidden(refusal) && !apierrors.IsForbidden(err) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func ExampleWrite() {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExport",
		"metadata": map[string]any{"namespace": "ns", "name": "a"},
	}}
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{exports: "APIServiceExportList"}, o)
	seen := &v1alpha1.APIServiceExport{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	ctx := context.Background()
	err := status.Write(ctx, client.Resource(exports).Namespace("ns"), seen, func(e *v1alpha1.APIServiceExport) {
		e.Status.StoredVersions = []string{"v1"}
	})
	fmt.Println(err)
	// Output: <nil>
}
