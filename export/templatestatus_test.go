// SPDX-License-Identifier: Apache-2.0

package export

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

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
