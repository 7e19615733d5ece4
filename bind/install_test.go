// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"strings"
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

	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestReadRequests(t *testing.T) {
	one := `{"apiVersion":"klutch.anynines.com/v1alpha1","kind":"APIServiceExportRequest","metadata":{"name":"a"},"spec":{"resources":[{"group":"example.com","resource":"as"}]}}`
	for _, c := range []struct {
		name, manifest string
		want           []string
		err            string
	}{
		{"JSON", one, []string{"a"}, ""},
		{"YAML", "apiVersion: klutch.anynines.com/v1alpha1\nkind: APIServiceExportRequest\nmetadata: {name: b}\nspec: {resources: [{group: example.com, resource: bs}]}\n", []string{"b"}, ""},
		{"documents", "---\n" + one + "\n---\n---\n# nothing\n---\n" + one + "\n", []string{"a", "a"}, ""},
		{"list", `{"apiVersion":"v1","kind":"List","items":[` + one + `,` + one + `]}`, []string{"a", "a"}, ""},
		{"nothing", "", nil, "no APIServiceExportRequest found"},
		{"another kind", `{"apiVersion":"v1","kind":"Secret"}`, nil, `kind "Secret"`},
		{"another version", strings.Replace(one, "/v1alpha1", "/v2", 1), nil, `apiVersion "klutch.anynines.com/v2"`},
		{"no resource", `{"apiVersion":"klutch.anynines.com/v1alpha1","kind":"APIServiceExportRequest","spec":{}}`, nil, "names no resource"},
		{"nonsense", "}{", nil, "read requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			requests, err := ReadRequests([]byte(c.manifest))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error = %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, r := range requests {
				names = append(names, r.Name)
			}
			if diff := cmp.Diff(c.want, names); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
		})
	}
}

// A backend is given no rights on what was in the App Cluster before it.
func TestCheckService(t *testing.T) {
	for name, want := range map[string]bool{
		"postgresqlinstances.anynines.com":       true,
		"things.example.com":                     true,
		"things.k8s.io.example.com":              true,
		"secrets":                                false,
		"deployments.apps":                       false,
		"clusterroles.rbac.authorization.k8s.io": false,
		"things.k8s.io":                          false,
		"things.x.kubernetes.io":                 false,
		"apiservicebindings.klutch.anynines.com": false,
		"things.sub.klutch.anynines.com":         false,
		"*.example.com":                          false,
		"things.*":                               false,
		"things/status.example.com":              false,
		"Things.example.com":                     false,
		"things.example.com.":                    false,
		"things.\x1b[2J.com":                     false,
	} {
		resource, group, _ := strings.Cut(name, ".")
		err := checkService(v1alpha1.GroupResource{Group: group, Resource: resource})
		if (err == nil) != want || err != nil && !errors.Is(err, ErrPolicy) {
			t.Errorf("checkService(%q) = %v", name, err)
		}
	}
}

func TestCheckClaim(t *testing.T) {
	claim := func(group, resource string, names ...string) Claim {
		return Claim{PermissionClaim: v1alpha1.PermissionClaim{
			GroupResource: v1alpha1.GroupResource{Group: group, Resource: resource}, Selector: v1alpha1.ResourceSelector{Names: names},
		}}
	}
	for _, c := range []struct {
		claim Claim
		ok    bool
	}{
		{claim("", "secrets"), true},
		{claim("", "secrets", "*"), true},
		{claim("example.com", "things", "a", "b.c"), true},
		{claim("*", "secrets"), false},
		{claim("", "*"), false},
		{claim("", "pods/exec"), false},
		{claim("", "secrets", "a", ""), false},
		{claim("", "secrets", "a*"), false},
	} {
		if err := checkClaim(c.claim); (err == nil) != c.ok {
			t.Errorf("checkClaim(%v) = %v", c.claim.PermissionClaim, err)
		}
	}
}

// Everyone who binds to one place finds the same Secret; other places have others.
func TestSecretName(t *testing.T) {
	a := secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "1"})
	seen := map[string]bool{a: true}
	for _, k := range []kubeconfig.Kubeconfig{{Server: "https://a", Namespace: "m"}, {Server: "https://b", Namespace: "n"}, {Server: "https://a n", Namespace: ""}} {
		seen[secretName(&k)] = true
	}
	if len(seen) != 4 || a != secretName(&kubeconfig.Kubeconfig{Server: "https://a", Namespace: "n", Token: "2"}) || len(a) != len("kubeconfig-xxxxx") {
		t.Errorf("names %v", seen)
	}
}

func TestIsReady(t *testing.T) {
	for _, c := range []struct {
		name       string
		conditions []v1alpha1.Condition
		want       bool
		waitingFor string
	}{
		{"no konnector", nil, false, ": no konnector has taken it up yet"},
		{"ready", []v1alpha1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 2}}, true, ""},
		{"ready, of a konnector that counts nothing", []v1alpha1.Condition{{Type: "Ready", Status: "True"}}, true, ""},
		{"ready before the change", []v1alpha1.Condition{{Type: "Ready", Status: "True", ObservedGeneration: 1}}, false, ""},
		{"two reasons", []v1alpha1.Condition{
			v1alpha1.False("Ready", "Error", "A", "a"), v1alpha1.False("Connected", "Error", "A", "a"), v1alpha1.True("SecretValid"), v1alpha1.Unknown("Synced", "", ""),
		}, false, ": Connected is False: A: a; Synced is Unknown"},
		{"one waits for another", []v1alpha1.Condition{
			v1alpha1.False("Connected", "Error", "A", "a"), v1alpha1.False("InformersSynced", "Info", "Pending", "x"), v1alpha1.False("SchemaInSync", "Info", "Pending", "x"),
		}, false, ": Connected is False: A: a; InformersSynced, SchemaInSync pending"},
	} {
		b := &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: v1alpha1.APIServiceBindingStatus{Conditions: c.conditions}}
		if got := isReady(b); got != c.want {
			t.Errorf("%s: isReady = %v", c.name, got)
		}
		if got := waitingFor(b); got != c.waitingFor {
			t.Errorf("%s: waitingFor = %q, want %q", c.name, got, c.waitingFor)
		}
	}
}

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

// until sees what is there, every change, and the end, and outlives an API server
// that is away for a while.
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
				seen = append(seen, colorOf(u))
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
			synctest.Wait()
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
