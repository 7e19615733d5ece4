// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A template that names no API offers nothing, and the other templates count: the CRDs of other groups
// let names pass that are none, and who may make templates in one namespace must not take the offer of all away.
func TestTemplateWithoutAName(t *testing.T) {
	template := func(name, group, resource string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"default","uid":%q},"spec":{"APIServiceSelector":{"group":%q,"resource":%q}}}`, name, name, group, resource)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		items := ""
		switch r.URL.Path {
		case "/apis/klutch.anynines.com/v1alpha1/apiserviceexporttemplates":
		case "/apis/bind.anynines.com/v1alpha1/apiserviceexporttemplates":
			items = strings.Join([]string{
				template("empty", "", ""), template("up", "../../example.org", "gears"), template("percent", "example.org", "%2f"), template("good", "example.org", "widgets"),
			}, ",")
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"kind":"APIServiceExportTemplateList","apiVersion":"bind.anynines.com/v1alpha1","items":[%s]}`, items)
	}))
	defer server.Close()
	dyn, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	services, err := templates{dyn}.Services(t.Context())
	if err != nil || len(services) != 1 || services[0].Name() != "widgets.example.org" {
		t.Errorf("%+v, %v", services, err)
	}
}

// A template of another group carries no condition of ours. The log says once what it lacks,
// and again when that is something else, or when it comes back.
func TestForeignTemplateIsLoggedOnce(t *testing.T) {
	lines := 0
	ctx := logr.NewContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example-backend.klutch.anynines.com/v1alpha1", "kind": "APIServiceExportTemplate",
		"metadata": map[string]any{"name": "widgets", "uid": "1"},
	}}
	broken := func(message string) v1alpha1.Condition {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, v1alpha1.ReasonSchemaMissing, message)
	}
	c := &control{}
	for i, step := range []struct {
		ready v1alpha1.Condition
		lines int
	}{{broken("no CRD"), 1}, {broken("no CRD"), 1}, {broken("another one"), 2}, {v1alpha1.True(v1alpha1.ConditionReady), 2}, {broken("another one"), 3}} {
		if err := c.noteTemplate(ctx, u, step.ready); err != nil || lines != step.lines {
			t.Errorf("after look %d: %d lines, want %d, %v", i, lines, step.lines, err)
		}
	}
}

// A template whose API tenants cannot have is looked at ever more rarely, and a CRD that comes is seen at once.
func TestTemplateBrokenForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStill(t)
		var looks atomic.Int32
		s.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "get" && r.Resource == offer.CRDResource {
				looks.Add(1)
			}
			return do()
		})
		s.run("apiserviceexporttemplate", Options{Catalog: templates{s.Client()}})
		template := templateOf("widgets")
		s.put(templateResource, s.tenant, template)
		tells := func(want string) {
			t.Helper()
			u, err := s.Client().Resource(templateResource).Namespace(s.tenant).Get(t.Context(), "widgets", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions"); !strings.Contains(fmt.Sprint(conditions), want) {
				t.Errorf("it tells %v, want %s", conditions, want)
			}
		}
		rests := func() {
			t.Helper()
			time.Sleep(2 * time.Hour)
			looks.Store(0)
			time.Sleep(time.Hour)
			if n := looks.Load(); n == 0 || n > 2*int32(time.Hour/soundTemplateReview) { // a look reads the CRD twice
				t.Errorf("in the third hour the CRD is read %d times", n)
			}
		}
		rests()
		tells(v1alpha1.ReasonSchemaMissing)
		s.put(offer.CRDResource, "", crdOf("widgets", v1alpha1.NamespacedScope))
		works := []byte(`{"status":{"conditions":[{"type":"Established","status":"True"}]}}`)
		if _, err := s.Client().Resource(offer.CRDResource).Patch(t.Context(), "widgets.example.org", types.MergePatchType, works, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		tells(v1alpha1.ReasonMissingRights)
		rests()
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.BackendOfferRole}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"", "example.org"}, Resources: []string{"secrets", "widgets"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		}}}
		if _, err := s.kube.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(soundTemplateReview + time.Second)
		tells("status:True")
	})
}

// What keeps the backend from reading a template's CRD, or the templates, is told on the template, at
// once if it is a refusal and else once it has lasted: it said that it works for as long as that lasted.
func TestTemplateUnread(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		for name, resource := range map[string]schema.GroupVersionResource{"CRD ": offer.CRDResource, "templates ": templateResource} {
			err := answer.Err(fakecluster.Request{Verb: "get", Resource: resource, Object: cache.NewObjectName("", "widgets.example.org")})
			if answer.Kind == fates.Absent || answer.Kind == fates.Unserved && name == "CRD " { // there is none, which is told otherwise
				continue
			}
			t.Run(name+strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
				c := fakecluster.New(
					fakecluster.Resource{GroupVersionResource: offer.CRDResource, Kind: "CustomResourceDefinition", Cluster: true},
					fakecluster.Resource{GroupVersionResource: templateResource, Kind: "APIServiceExportTemplate"},
				)
				if _, err := c.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "offers"},
				}}, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				offers := c.Client().Resource(templateResource).Namespace("offers")
				u, failed := offers.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": v1alpha1.GroupVersion.String(), "kind": "APIServiceExportTemplate", "metadata": map[string]any{"name": "widgets"},
					"spec": map[string]any{"apiServiceSelector": map[string]any{"group": "example.org", "resource": "widgets"}},
				}}, metav1.CreateOptions{})
				if failed != nil {
					t.Fatal(failed)
				}
				c.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == resource && (r.Verb == "list" || r.Resource == offer.CRDResource) {
						return err
					}
					return do()
				})
				ctrl := &control{clients: tenant.Clients{Dyn: c.Client()}, catalog: templates{c.Client()}}
				ctrl.templates = cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{})
				if err := ctrl.templates.GetStore().Add(u); err != nil {
					t.Fatal(err)
				}
				for _, lasts := range []bool{false, true} {
					ctx := t.Context()
					if lasts {
						ctx = fates.FailingSince(ctx, time.Now().Add(-time.Minute))
					}
					if _, failed := ctrl.reconcileTemplates(ctx, cache.NewObjectName("", "widgets.example.org")); fates.Of(failed) != fates.Of(err) {
						t.Errorf("lasting %t: %v", lasts, failed)
					}
					now, failed := offers.Get(t.Context(), "widgets", metav1.GetOptions{})
					if failed != nil {
						t.Fatal(failed)
					}
					conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
					said := fmt.Sprint(conditions)
					if told := strings.Contains(said, v1alpha1.ReasonStepFailed) && strings.Contains(said, err.Error()) && strings.Contains(said, "status:False"); told != (lasts || fates.IsRefused(err)) {
						t.Errorf("lasting %t: %s", lasts, said)
					}
				}
			})
		}
	}
}
