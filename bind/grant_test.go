// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP32Grant: the rights of claims are taken where objects are, one namespace at a
// time, and what is in the way of that is told and holds up nothing else.
func TestP32Grant(t *testing.T) {
	g := &grants{world: newWorld(t), service: map[string]string{}}
	g.offer(t, read(t, "testdata/widgets.yaml")[0])
	g.app.apply(t, secret(v1alpha1.Namespace, g.secret, g.kubeconfig(t)))
	defer g.run(t, bind.Options{})()
	eventually(t, func() error {
		_, err := g.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	g.bind(t, widgets, secretsClaim)
	_ = t.Run("rights of before are narrowed", g.narrowed) &&
		t.Run("a namespace waits", g.waits) &&
		t.Run("a RoleBinding is deleted", g.lost) &&
		t.Run("a claim is about fewer namespaces", g.fewer) &&
		t.Run("unbind leaves nothing", g.unbound)
}

type grants struct {
	*world
	service map[string]string // by namespace
}

// hand makes an object in a namespace that is handed a Secret.
func (g *grants) hand(t *testing.T, namespace string) {
	t.Helper()
	g.app.apply(t, object("v1", "Namespace", "", namespace, nil), widget(namespace, "one", map[string]any{"size": int64(5)}))
	g.service[namespace] = g.serveNamespace(t, namespace, widgetRights)
	g.write(t, namespace, "first")
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, g.controlPlane, widgetsGVR, g.service[namespace], "one")
		return err
	})
	g.controlPlane.patchStatus(t, widgetsGVR, g.service[namespace], "one", map[string]any{"secret": "creds"})
}

func (g *grants) write(t *testing.T, namespace, text string) {
	t.Helper()
	g.controlPlane.apply(t, object("v1", "Secret", g.service[namespace], "creds", map[string]any{"data": map[string]any{"password": encoded(text)}}))
}

func (g *grants) has(t *testing.T, namespace, text string) {
	t.Helper()
	eventually(t, func() error {
		u, err := find[unstructured.Unstructured](t, g.app, secretsGVR, namespace, "creds")
		if err != nil {
			return err
		}
		if got, _, _ := unstructured.NestedString(u.Object, "data", "password"); got != encoded(text) {
			return fmt.Errorf("the copy has %q", got)
		}
		return nil
	})
}

// narrowed: an installation of before this version gave the rights in all namespaces.
func (g *grants) narrowed(t *testing.T) {
	g.app.apply(t, object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "klutch-bind-konnector-"+widgets, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{v1alpha1.AggregateToKonnectorLabel: "true"}},
		"rules": []any{
			map[string]any{"apiGroups": []any{"example.org"}, "resources": []any{"widgets", "widgets/status"}, "verbs": []any{"get", "list", "watch", "update", "patch"}},
			map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get", "list", "watch", "create", "update", "patch", "delete"}},
		},
	}))
	g.hand(t, "team")
	g.has(t, "team", "first")
	if err := goneFrom(t, g.app, roleBindingsGVR, "team", claimsOfWidgets); err != nil {
		t.Error(err)
	}
	ill := func() (said []string) {
		for _, f := range bind.Doctor(t.Context(), g.app.Config(), time.Now()) {
			if f.Check == "rights" && !f.OK {
				said = append(said, f.About+": "+f.Message)
			}
		}
		return said
	}
	want := []string{widgets + ": the ClusterRole klutch-bind-konnector-" + widgets + " gives the konnector rights on secrets in all namespaces"}
	if diff := cmp.Diff(want, ill()); diff != "" {
		t.Errorf("doctor (-want +got):\n%s", diff)
	}
	g.allow(t, widgets)
	if said := ill(); len(said) > 0 {
		t.Errorf("doctor says %q", said)
	}
	g.unlocked(t, ill)
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, g.app, roleBindingsGVR, "team", claimsOfWidgets)
		return err
	})
	g.write(t, "team", "second")
	g.has(t, "team", "second")
	g.ready(t, widgets)
}

// unlocked: policies that are there and hold no account are told of.
func (g *grants) unlocked(t *testing.T, ill func() []string) {
	t.Helper()
	for _, name := range []string{"klutch-konnector", claimsOfWidgets} {
		g.app.patch(t, policyBindingsGVR, cache.NewObjectName("", name), map[string]any{"spec": map[string]any{"validationActions": []any{"Audit"}}})
		if said := ill(); len(said) != 1 || !strings.Contains(said[0], "ValidatingAdmissionPolicyBinding "+name+" does not deny") {
			t.Errorf("doctor says %q", said)
		}
		g.app.patch(t, policyBindingsGVR, cache.NewObjectName("", name), map[string]any{"spec": map[string]any{"validationActions": []any{"Deny"}}})
	}
}

// waits: what keeps the konnector from rights in one namespace.
func (g *grants) waits(t *testing.T) {
	g.app.apply(t, object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "test", map[string]any{"spec": map[string]any{
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{"rbac.authorization.k8s.io"}, "apiVersions": []any{"v1"}, "resources": []any{"rolebindings"}, "operations": []any{"CREATE"},
		}}},
		"validations": []any{map[string]any{"expression": "request.namespace != 'stuck'", "message": "none in namespace stuck"}},
	}}), object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "test", map[string]any{
		"spec": map[string]any{"policyName": "test", "validationActions": []any{"Deny"}},
	}))
	g.app.apply(t, object("v1", "Namespace", "", "stuck", nil))
	eventually(t, func() error { // it is in force
		u := roleBinding("stuck", "any", "view", "default")
		_, err := g.app.dyn.Resource(roleBindingsGVR).Namespace("stuck").Create(t.Context(), u, metav1.CreateOptions{DryRun: dry})
		if err == nil {
			return errors.New("the policy is not in force")
		}
		return nil
	})
	g.hand(t, "stuck")
	g.condition(t, widgets, v1alpha1.ConditionClaimsInSync, v1alpha1.ReasonMissingRights, "stuck", "none in namespace stuck")
	g.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	eventually(t, func() error {
		u := get[unstructured.Unstructured](t, g.app, widgetsGVR, "stuck", "one")
		if name, _, _ := unstructured.NestedString(u.Object, "status", "secret"); name != "creds" {
			return errors.New("the status has not come down")
		}
		return nil
	})
	g.write(t, "team", "third")
	g.has(t, "team", "third")
	if err := g.app.dyn.Resource(widgetsGVR).Namespace("stuck").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error { return goneFrom(t, g.app, widgetsGVR, "stuck", "one") })
	g.hand(t, "stuck")
	if err := goneFrom(t, g.app, secretsGVR, "stuck", "creds"); err != nil {
		t.Error(err)
	}
	if err := g.app.dyn.Resource(policyBindingsGVR).Delete(t.Context(), "test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.has(t, "stuck", "first")
	g.ready(t, widgets)
}

func (g *grants) lost(t *testing.T) {
	if err := g.app.dyn.Resource(roleBindingsGVR).Namespace("team").Delete(t.Context(), claimsOfWidgets, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.write(t, "team", "fourth")
	g.has(t, "team", "fourth")
	get[unstructured.Unstructured](t, g.app, roleBindingsGVR, "team", claimsOfWidgets)
}

// fewer: where no claim is any more, neither copies nor the rights of claims stay.
func (g *grants) fewer(t *testing.T) {
	claim := runtime.DeepCopyJSON(secretsClaim)
	if err := unstructured.SetNestedStringSlice(claim, []string{"team"}, "selector", "namespaces"); err != nil {
		t.Fatal(err)
	}
	g.bind(t, widgets, claim)
	g.allow(t, widgets)
	eventually(t, func() error { return goneFrom(t, g.app, secretsGVR, "stuck", "creds") })
	eventually(t, func() error { return goneFrom(t, g.app, roleBindingsGVR, "stuck", claimsOfWidgets) })
	g.write(t, "team", "fifth")
	g.has(t, "team", "fifth")
	g.ready(t, widgets)
}

func (g *grants) unbound(t *testing.T) {
	for _, namespace := range []string{"team", "stuck"} {
		if err := g.app.dyn.Resource(widgetsGVR).Namespace(namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { return goneFrom(t, g.app, widgetsGVR, namespace, "one") })
	}
	if err := bind.Remove(t.Context(), g.app.Config(), widgets, bind.RemoveOptions{}); err != nil && !errors.Is(err, bind.ErrNotRevoked) {
		t.Fatal(err)
	}
	for _, o := range []struct {
		name cache.ObjectName
		err  error
	}{
		{cache.NewObjectName("team", claimsOfWidgets), goneFrom(t, g.app, roleBindingsGVR, "team", claimsOfWidgets)},
		{cache.NewObjectName("stuck", claimsOfWidgets), goneFrom(t, g.app, roleBindingsGVR, "stuck", claimsOfWidgets)},
		{cache.NewObjectName("", claimsOfWidgets), goneFrom(t, g.app, rolesGVR, "", claimsOfWidgets)},
		{cache.NewObjectName("", claimsOfWidgets), goneFrom(t, g.app, policiesGVR, "", claimsOfWidgets)},
		{cache.NewObjectName("", claimsOfWidgets), goneFrom(t, g.app, policyBindingsGVR, "", claimsOfWidgets)},
		{cache.NewObjectName("", widgets), goneFrom(t, g.app, rolesGVR, "", "klutch-bind-konnector-"+widgets)},
	} {
		if o.err != nil {
			t.Error(o.name, o.err)
		}
	}
}
