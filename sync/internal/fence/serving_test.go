// SPDX-License-Identifier: Apache-2.0

package fence_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/sync/internal/fence"
)

// Discovery tells whether a resource takes new objects; what cannot be told is taken for yes only
// where it may not be read.
func TestServing(t *testing.T) {
	const (
		gone  = "the target cluster does not serve widgets.example.org any more"
		going = "the target cluster is taking widgets.example.org away"
		all   = `"get","list","watch","create","update","patch","delete"`
	)
	widgets, secrets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}, schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	lists := func(resource, verbs string) string {
		return `{"kind":"APIResourceList","resources":[{"name":"` + resource + `","verbs":[` + verbs + `]},{"name":"` + resource + `/status","verbs":["get","patch"]}]}`
	}
	failure := func(reason metav1.StatusReason) string {
		return `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"` + string(reason) + `"}`
	}
	for name, test := range map[string]struct {
		resource     schema.GroupVersionResource
		at           string // where it is asked for
		code         int
		answer       string
		why, failure string // parts of the error
	}{
		"served":                      {widgets, "/apis/example.org/v1", 200, lists("widgets", all), "", ""},
		"of the core":                 {secrets, "/api/v1", 200, lists("secrets", all), "", ""},
		"listed without create":       {widgets, "/apis/example.org/v1", 200, lists("widgets", `"get","list","watch","delete"`), going, ""},
		"only another of the version": {widgets, "/apis/example.org/v1", 200, lists("gadgets", all), gone, ""},
		"only its status":             {widgets, "/apis/example.org/v1", 200, `{"resources":[{"name":"widgets/status","verbs":["create"]}]}`, gone, ""},
		"nothing of the version":      {widgets, "/apis/example.org/v1", 200, `{"resources":[]}`, gone, ""},
		"version not served":          {widgets, "/apis/example.org/v1", 404, "404 page not found\n", gone, ""},
		"group not served":            {widgets, "/apis/example.org/v1", 404, failure(metav1.StatusReasonNotFound), gone, ""},
		"not to be read":              {widgets, "/apis/example.org/v1", 403, failure(metav1.StatusReasonForbidden), "", ""},
		"no list":                     {widgets, "/apis/example.org/v1", 200, "<html>", "", "read resources"},
		"no answer of an API server":  {widgets, "/apis/example.org/v1", 500, failure(metav1.StatusReasonInternalError), "", "read resources"},
		"not logged in":               {widgets, "/apis/example.org/v1", 401, failure(metav1.StatusReasonUnauthorized), "", "read resources"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != test.at {
					t.Errorf("%s is asked for, want %s", r.URL.Path, test.at)
				}
				if strings.HasPrefix(test.answer, "{") {
					w.Header().Set("Content-Type", "application/json")
				}
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.answer)
			}))
			defer server.Close()
			client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			why, err := fence.Serving(client.RESTClient(), test.resource)(t.Context())
			if why != test.why || (err != nil) != (test.failure != "") || err != nil && !strings.Contains(err.Error(), test.failure) {
				t.Errorf("Serving = %q, %v; want %q, %q", why, err, test.why, test.failure)
			}
		})
	}
	if why, err := fence.Serving(nil, widgets)(t.Context()); why != "" || err != nil {
		t.Errorf("without a client: %q, %v", why, err)
	}
}
