// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// askedAtOnce is how many service namespaces the tests ask for at the same time.
const askedAtOnce = 20

// A spaces is a still cluster with a tenant that has one export and asks for service namespaces.
// Each request takes a while, so that watches show what was written in the midst of a pass.
type spaces struct {
	*still

	mu       sync.Mutex
	requests map[string]int // of the backend, since they were last taken
	last     time.Time
}

// requestTime is how long each request takes.
const requestTime = 5 * time.Millisecond

var (
	namespaces   = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	roles        = rbacv1.SchemeGroupVersion.WithResource("roles")
	roleBindings = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
)

func newSpaces(t *testing.T) *spaces {
	t.Helper()
	s := &spaces{still: newStill(t), requests: map[string]int{}}
	for _, r := range []fakecluster.Resource{
		{GroupVersionResource: roles, Kind: "Role", Plain: true},
		{GroupVersionResource: roleBindings, Kind: "RoleBinding", Plain: true},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, Kind: "ResourceQuota"},
		{GroupVersionResource: tenant.NamespaceResource, Kind: "APIServiceNamespace"},
	} {
		s.Serve(r)
	}
	s.typed = must(kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://control-plane", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, &http.Client{Transport: s}))
	s.put(tenant.ExportResource, s.tenant, object(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: widgets.example.org},
		spec: {group: example.org, scope: Namespaced, names: {plural: widgets, kind: Widget}}}`))
	s.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
		if r.Verb == "list" || r.Verb == "watch" || r.Verb == "create" && r.Resource == tenant.NamespaceResource { // the last one is the tenant's
			return do()
		}
		time.Sleep(requestTime)
		s.mu.Lock()
		s.requests[strings.TrimSpace(r.Verb+" "+r.Resource.Resource+" "+r.Subresource)]++
		s.last = time.Now()
		s.mu.Unlock()
		return do()
	})
	s.run("apiservicenamespace", Options{})
	synctest.Wait()
	return s
}

// RoundTrip has the typed client be served by the cluster in memory.
func (s *spaces) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent map[string]any
	if r.Body != nil {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return nil, err
		}
	}
	answer, err := s.answer(r.Context(), r.Method, strings.Split(strings.Trim(r.URL.Path, "/"), "/"), &unstructured.Unstructured{Object: sent})
	code, body := http.StatusOK, any(answer)
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		status := refused.Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code, body = int(status.Code), status
	} else if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: io.NopCloser(bytes.NewReader(must(json.Marshal(body)))),
	}, nil
}

func (s *spaces) answer(ctx context.Context, method string, path []string, sent *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if path[len(path)-1] == "selfsubjectreviews" {
		return object("{apiVersion: authentication.k8s.io/v1, kind: SelfSubjectReview, status: {userInfo: {username: backend}}}"), nil
	}
	var gvr schema.GroupVersionResource
	if gvr.Version = path[1]; path[0] == "apis" {
		gvr.Group, gvr.Version, path = path[1], path[2], path[1:]
	}
	namespace := ""
	if path = path[2:]; path[0] == "namespaces" && len(path) > 2 {
		namespace, path = path[1], path[2:]
	}
	gvr.Resource = path[0]
	client := s.Client().Resource(gvr).Namespace(namespace)
	switch method {
	case http.MethodGet:
		return client.Get(ctx, path[1], metav1.GetOptions{})
	case http.MethodPost:
		return client.Create(ctx, sent, metav1.CreateOptions{})
	case http.MethodPut:
		return client.Update(ctx, sent, metav1.UpdateOptions{})
	}
	return nil, apierrors.NewMethodNotSupported(gvr.GroupResource(), method)
}

// sent are the requests of the backend since the last call, once it has come to rest.
func (s *spaces) sent() map[string]int {
	s.Helper()
	time.Sleep(time.Minute)
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.requests
	s.requests = map[string]int{}
	return all
}

func (s *spaces) ask(name string) {
	s.Helper()
	s.put(tenant.NamespaceResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: "+name+"}}"))
}

// told is the service namespace of name, and the reason of its Ready.
func (s *spaces) told(name string) (service, reason string) {
	s.Helper()
	u, err := s.Client().Resource(tenant.NamespaceResource).Namespace(s.tenant).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	service, _, _ = unstructured.NestedString(u.Object, "status", "namespace")
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m := c.(map[string]any); m["type"] == v1alpha1.ConditionReady {
			reason, _ = m["reason"].(string)
		}
	}
	return service, reason
}

// A new service namespace takes one request for each thing that is written, and no look at what
// cannot be there: neither before that nor when the watches show what was written. Many that are
// asked for at once are made beside each other.
func TestServiceNamespaceRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t)
		begin := time.Now()
		for i := range askedAtOnce {
			s.ask(fmt.Sprintf("team-%d", i))
		}
		want := map[string]int{
			"patch apiservicenamespaces": askedAtOnce, "create namespaces": askedAtOnce, "create rolebindings": 2 * askedAtOnce, "create resourcequotas": askedAtOnce,
			"create roles": askedAtOnce, "patch apiservicenamespaces status": askedAtOnce,
		}
		if diff := cmp.Diff(want, s.sent()); diff != "" {
			t.Errorf("requests for %d service namespaces (-want +got):\n%s", askedAtOnce, diff)
		}
		if took := s.last.Sub(begin); took > 2*7*requestTime {
			t.Errorf("%d service namespaces took %s, as long as %d requests", askedAtOnce, took, took/requestTime)
		}
		for i := range askedAtOnce {
			name := fmt.Sprintf("team-%d", i)
			if service, reason := s.told(name); service != s.tenant+"-"+name || reason != "" {
				t.Errorf("%s: service namespace %q, %s", name, service, reason)
			}
		}
		s.sent()
		s.change(tenant.ExportResource, s.tenant, "widgets.example.org", `{"metadata":{"annotations":{"a":"b"}}}`)
		if sent := s.sent(); len(sent) > 1 { // the change itself is one
			t.Errorf("after an event that is no news: %v", sent)
		}
	})
}

// What is changed or taken away by hand of a service namespace comes back at once, however short
// after the backend has made it, and a change of what is exported arrives.
func TestServiceNamespaceIsKept(t *testing.T) {
	for _, after := range []time.Duration{0, requestTime / 2, requestTime, 3 * requestTime, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newSpaces(t)
			s.ask("team")
			service := s.tenant + "-team"
			for asked := time.Now(); !s.serves("team"); time.Sleep(time.Millisecond) {
				if time.Since(asked) > time.Minute {
					t.Fatal("there is no service namespace")
				}
			}
			time.Sleep(after)
			for gvr, names := range map[schema.GroupVersionResource][]string{roles: {v1alpha1.ServiceNamespaceRole}, roleBindings: {v1alpha1.TenantRoleBinding, v1alpha1.BackendRoleBinding}} {
				for _, name := range names {
					if err := s.Client().Resource(gvr).Namespace(service).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			time.Sleep(time.Second)
			s.change(roles, service, v1alpha1.ServiceNamespaceRole, `{"rules":[]}`)
			time.Sleep(time.Second)
			s.has(roles, service, v1alpha1.ServiceNamespaceRole, "rules", 1)
			s.has(roleBindings, service, v1alpha1.TenantRoleBinding, "subjects", 1)
			s.has(roleBindings, service, v1alpha1.BackendRoleBinding, "subjects", 1)
			s.put(tenant.ExportResource, s.tenant, object(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: gadgets.example.org},
				spec: {group: example.org, scope: Namespaced, names: {plural: gadgets, kind: Gadget}}}`))
			time.Sleep(time.Second)
			s.has(roles, service, v1alpha1.ServiceNamespaceRole, "rules", 2)
			ns, err := s.Client().Resource(namespaces).Get(t.Context(), service, metav1.GetOptions{})
			if noted := ns.GetAnnotations()[v1alpha1.ExportedAnnotation]; err != nil || noted != "gadgets.example.org,widgets.example.org" {
				t.Errorf("noted are %q, %v", noted, err)
			}
		})
	}
}

// A namespace of the name of a new service namespace that is not the tenant's is left alone, though
// the backend's watch does not show it.
func TestServiceNamespaceOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t)
		theirs := object("{apiVersion: v1, kind: Namespace}")
		theirs.SetName(s.tenant + "-team")
		s.put(namespaces, "", theirs)
		s.sent()
		s.ask("team")
		sent := s.sent()
		if _, reason := s.told("team"); reason != "NameTaken" {
			t.Errorf("the reason is %q", reason)
		}
		for request := range sent {
			if strings.HasPrefix(request, "create r") || strings.HasPrefix(request, "update") {
				t.Errorf("%s in a namespace of others", request)
			}
		}
	})
}

func (s *spaces) serves(name string) bool {
	s.Helper()
	service, _ := s.told(name)
	return service != ""
}

func (s *spaces) change(gvr schema.GroupVersionResource, namespace, name, patch string) {
	s.Helper()
	if _, err := s.Client().Resource(gvr).Namespace(namespace).Patch(s.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
}

// has wants an object to be there with so many entries in a list.
func (s *spaces) has(gvr schema.GroupVersionResource, namespace, name, list string, want int) {
	s.Helper()
	u, err := s.Client().Resource(gvr).Namespace(namespace).Get(s.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.Error(err)
		return
	}
	if all, _, _ := unstructured.NestedSlice(u.Object, list); len(all) != want {
		s.Errorf("%s %s has %d %s, want %d", gvr.Resource, name, len(all), list, want)
	}
}
