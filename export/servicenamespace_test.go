// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
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
	refuse   func(fakecluster.Request) error // may be nil
}

// requestTime is how long each request takes.
const requestTime = 5 * time.Millisecond

var (
	namespaces          = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	roles               = rbacv1.SchemeGroupVersion.WithResource("roles")
	roleBindings        = rbacv1.SchemeGroupVersion.WithResource("rolebindings")
	clusterRoles        = rbacv1.SchemeGroupVersion.WithResource("clusterroles")
	clusterRoleBindings = rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")
)

func newSpaces(t *testing.T, opts Options) *spaces {
	t.Helper()
	return newSpacesOf(t, "apiservicenamespace", opts)
}

// newSpacesOf is newSpaces with another controller.
func newSpacesOf(t *testing.T, controller string, opts Options) *spaces {
	t.Helper()
	s := &spaces{still: newStill(t), requests: map[string]int{}}
	for _, r := range []fakecluster.Resource{
		{GroupVersionResource: roles, Kind: "Role", Plain: true},
		{GroupVersionResource: roleBindings, Kind: "RoleBinding", Plain: true},
		{GroupVersionResource: clusterRoles, Kind: "ClusterRole", Plain: true, Cluster: true},
		{GroupVersionResource: clusterRoleBindings, Kind: "ClusterRoleBinding", Plain: true, Cluster: true},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "resourcequotas"}, Kind: "ResourceQuota"},
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}, Kind: "ServiceAccount", Plain: true},
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
		refuse := s.refuse
		s.mu.Unlock()
		if refuse != nil {
			if err := refuse(r); err != nil {
				return err
			}
		}
		return do()
	})
	s.run(controller, opts)
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
	answer, err := s.answer(r.Context(), r.Method, strings.Split(strings.Trim(r.URL.Path, "/"), "/"), r.URL.Query(), &unstructured.Unstructured{Object: sent})
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

func (s *spaces) answer(ctx context.Context, method string, path []string, query url.Values, sent *unstructured.Unstructured) (runtime.Object, error) {
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
	switch {
	case method == http.MethodGet && len(path) == 1:
		return client.List(ctx, metav1.ListOptions{LabelSelector: query.Get("labelSelector")})
	case method == http.MethodGet:
		return client.Get(ctx, path[1], metav1.GetOptions{})
	case method == http.MethodPost:
		return client.Create(ctx, sent, metav1.CreateOptions{})
	case method == http.MethodPut:
		return client.Update(ctx, sent, metav1.UpdateOptions{})
	case method == http.MethodDelete:
		return object("{apiVersion: v1, kind: Status}"), client.Delete(ctx, path[1], metav1.DeleteOptions{})
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
	asked := s.asked(name)
	if c := v1alpha1.FindCondition(asked.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		reason = c.Reason
	}
	return asked.Status.Namespace, reason
}

// condition is the reason and the message of Ready of name.
func (s *spaces) condition(name string) string {
	s.Helper()
	if c := v1alpha1.FindCondition(s.asked(name).Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason + ": " + c.Message
	}
	return ""
}

func (s *spaces) asked(name string) *v1alpha1.APIServiceNamespace {
	s.Helper()
	asked := &v1alpha1.APIServiceNamespace{}
	u, err := s.Client().Resource(tenant.NamespaceResource).Namespace(s.tenant).Get(s.Context(), name, metav1.GetOptions{})
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, asked)
	}
	if err != nil {
		s.Fatal(err)
	}
	return asked
}

// A new service namespace takes one request for each thing that is written, and no look at what
// cannot be there: neither before that nor when the watches show what was written. Many that are
// asked for at once are made beside each other.
func TestServiceNamespaceRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
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
			s := newSpaces(t, Options{})
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
		s := newSpaces(t, Options{})
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

// What an API server has against a write of a service namespace, whichever it is, is told and is asked ever
// more rarely, as package fates has it; a while after that is over the service namespace is complete.
func TestServiceNamespaceRefusedForLong(t *testing.T) {
	made, changed := writesOfServiceNamespace(t)
	for _, write := range slices.Sorted(maps.Keys(made)) {
		for name, refusal := range denials {
			t.Run("new, "+write+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSpaces(t, Options{})
					s.put(clusterRoles, "", object("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "+v1alpha1.BackendOfferRole+"}, rules: []}"))
					s.deny(write, refusal)
					s.ask("team")
					s.suffers(refusal)
				})
			})
		}
	}
	for _, write := range slices.Sorted(maps.Keys(changed)) {
		for name, refusal := range denials {
			t.Run("changed, "+write+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSpaces(t, Options{})
					s.ask("team")
					s.sent()
					s.put(clusterRoles, "", object("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "+v1alpha1.BackendOfferRole+"}, rules: []}"))
					s.deny(write, refusal)
					s.exportGadgets()
					s.suffers(refusal)
				})
			})
		}
	}
}

// denials are what an API server has against a write for good.
var denials = map[string]string{
	"RBAC":       `RESOURCE "x" is forbidden: User "backend" cannot write resource "RESOURCE" in API group "x" in the namespace "y"`,
	"escalation": `RESOURCE "x" is forbidden: user "backend" (groups=["a"]) is attempting to grant RBAC permissions not currently held:`,
	"policy":     `RESOURCE "x" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no`,
	"webhook":    `admission webhook "w.example.org" denied the request: no`,
	"quota":      `RESOURCE "x" is forbidden: exceeded quota: q, requested: count/x=1, used: count/x=1, limited: count/x=1`,
}

// writesOfServiceNamespace are the writes, but those of its APIServiceNamespace, that a new service
// namespace takes, and those of another export.
func writesOfServiceNamespace(t *testing.T) (made, changed map[string]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
		s.ask("team")
		made = s.sent()
		s.exportGadgets()
		changed = s.sent()
	})
	for _, all := range []map[string]int{made, changed} {
		maps.DeleteFunc(all, func(write string, _ int) bool {
			return strings.HasPrefix(write, "get ") || strings.Contains(write, " apiservice")
		})
	}
	if len(made) < 4 || len(changed) < 3 {
		t.Fatalf("a new service namespace takes %v, a change %v", made, changed)
	}
	return made, changed
}

func (s *spaces) exportGadgets() {
	s.Helper()
	s.put(tenant.ExportResource, s.tenant, object(`{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExport, metadata: {name: gadgets.example.org},
		spec: {group: example.org, scope: Namespaced, names: {plural: gadgets, kind: Gadget}}}`))
}

// deny has an API server deny a write, in many words with the resource in them.
func (s *spaces) deny(write, words string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = func(r fakecluster.Request) error {
		if strings.TrimSpace(r.Verb+" "+r.Resource.Resource+" "+r.Subresource) != write {
			return nil
		}
		said := strings.ReplaceAll(words, "RESOURCE", r.Resource.Resource) + strings.Repeat(" and more", 300)
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: said,
			Details: &metav1.StatusDetails{Group: r.Resource.Group, Kind: r.Resource.Resource},
		}}
	}
}

// suffers has a refusal of the service namespace of team last for three hours, and end.
func (s *spaces) suffers(refusal string) {
	s.Helper()
	time.Sleep(2*time.Hour - time.Minute)
	s.sent()
	time.Sleep(time.Hour - time.Minute)
	sent := s.sent()
	if len(sent) == 0 {
		s.Fatal("it is not asked for any more")
	}
	if looks := slices.Min(slices.Collect(maps.Values(sent))); looks > 2*int(time.Hour/fates.Forbidden.Longest()) { // pauses are spread
		s.Errorf("in the third hour %v", sent)
	}
	said := s.condition("team")
	ofRoles := strings.HasPrefix(said, v1alpha1.ReasonMissingRights+": ") && (refusal == denials["RBAC"] || refusal == denials["escalation"])
	if len(said) > 1024 || !ofRoles && !strings.HasPrefix(said, "Refused: the platform's API server does not permit it: ") {
		s.Errorf("after three hours it says %d bytes: %.200q", len(said), said)
	}
	s.mu.Lock()
	s.refuse = nil
	s.mu.Unlock()
	time.Sleep(fates.Forbidden.Longest())
	if service, reason := s.told("team"); service != s.tenant+"-team" || reason != "" {
		s.Errorf("after %q has ended it says %q", refusal, s.condition("team"))
	}
}

// A service namespace that is given up and has objects yet is looked at ever more rarely, and goes a while
// after they have gone.
func TestServiceNamespaceWaitsForItsObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
		widgets := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
		s.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		s.put(offer.CRDResource, "", crdOf("widgets", v1alpha1.NamespacedScope))
		s.ask("team")
		s.sent()
		s.put(widgets, s.tenant+"-team", object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: a}}"))
		asked := s.Client().Resource(tenant.NamespaceResource).Namespace(s.tenant)
		if err := asked.Delete(t.Context(), "team", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if _, reason := s.told("team"); reason != tenant.ReasonObjectsRemain {
			t.Errorf("the reason is %q", reason)
		}
		s.sent()
		time.Sleep(time.Hour - time.Minute)
		if looks := s.sent()["get namespaces"]; looks == 0 || looks > 2*int(time.Hour/fates.Forbidden.Longest()) {
			t.Errorf("in the third hour it is looked at %d times", looks)
		}
		if err := s.Client().Resource(widgets).Namespace(s.tenant+"-team").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fates.Forbidden.Longest() + time.Minute)
		if _, err := asked.Get(t.Context(), "team", metav1.GetOptions{}); !fates.Is(err, fates.Absent) {
			t.Errorf("it is there yet: %q, %v", s.condition("team"), err)
		}
	})
}

// While a gate is closed again, no API server is asked of a service namespace that stands.
func TestServiceNamespaceBehindAClosedGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
		s.ask("team")
		s.sent()
		s.change(namespaces, "", s.tenant, `{"metadata":{"annotations":{"gate.klutch.anynines.com/paid":"closed"}}}`)
		s.sent()
		if _, reason := s.told("team"); reason != v1alpha1.ReasonGateClosed {
			t.Errorf("the reason is %q", reason)
		}
		time.Sleep(3 * time.Minute)
		sent := s.sent()
		if delete(sent, "get apiservicenamespaces"); len(sent) > 0 { // which is the test's
			t.Errorf("behind the gate %v", sent)
		}
		s.change(namespaces, "", s.tenant, `{"metadata":{"annotations":{"gate.klutch.anynines.com/paid":"open"}}}`)
		s.sent()
		if _, reason := s.told("team"); reason != "" {
			t.Errorf("the reason is %q", reason)
		}
	})
}

// TestGateClosesBeforeItsServiceNamespaceIsSeen: a gate closes again while the backend's cache does not show
// yet that it has made a service namespace: the tenant loses its rights there, and is told of it still.
func TestGateClosesBeforeItsServiceNamespaceIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
		s.put(offer.CRDResource, "", object("{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.example.org}}")) // new: a quota waits
		s.refuse = func(r fakecluster.Request) error {
			if r.Verb == "patch" && r.Resource == tenant.NamespaceResource && r.Subresource == "status" {
				s.Lag(tenant.NamespaceResource, true)
			}
			return nil
		}
		s.ask("team")
		s.sent()
		service, _ := s.told("team")
		if may := s.may(service); !slices.Contains(may, "create") {
			t.Fatalf("while the gate is open: %q", may)
		}
		s.change(namespaces, "", s.tenant, `{"metadata":{"annotations":{"gate.klutch.anynines.com/paid":"closed"}}}`)
		s.sent()
		s.refuse = nil
		s.Lag(tenant.NamespaceResource, false)
		s.sent()
		if may := s.may(service); slices.Contains(may, "create") {
			t.Errorf("behind the gate: %q", may)
		}
		if now, reason := s.told("team"); now != service || reason != v1alpha1.ReasonGateClosed {
			t.Errorf("told: service namespace %q and reason %q, want %q and %q", now, reason, service, v1alpha1.ReasonGateClosed)
		}
	})
}

// TestGateIsAskedAgain: a Gate that closes again, of which no event tells, takes the rights within the time of
// a review, and one that opens gives them within half a minute.
func TestGateIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var locked atomic.Bool
		s := newSpaces(t, Options{ReviewInterval: 10 * time.Minute, Gate: GateFunc(func(context.Context, Tenant) error {
			if locked.Load() {
				return fmt.Errorf("the account is %w", ErrGateClosed)
			}
			return nil
		})})
		s.ask("team")
		s.sent()
		service, _ := s.told("team")
		for range 2 {
			if may := s.may(service); !slices.Contains(may, "create") {
				t.Fatalf("while it is open: %q", may)
			}
			locked.Store(true)
			time.Sleep(15 * time.Minute)
			if may := s.may(service); slices.Contains(may, "create") {
				t.Errorf("behind it: %q", may)
			}
			locked.Store(false)
			time.Sleep(30 * time.Second)
		}
	})
}

// may are the verbs of a tenant on the objects in a service namespace.
func (s *spaces) may(service string) []string {
	s.Helper()
	u, err := s.Client().Resource(roles).Namespace(service).Get(s.Context(), v1alpha1.ServiceNamespaceRole, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	role := &rbacv1.Role{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, role); err != nil {
		s.Fatal(err)
	}
	return role.Rules[0].Verbs
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

// What an API server refuses a tenant is asked for ever more rarely, however often the konnector reports, or
// a thief of the tenant's credential writes a status.
func TestStatusesEndNoPause(t *testing.T) {
	for controller, test := range map[string]struct {
		refused string
		write   func(*spaces)
	}{
		"tenant": {"create rolebindings", func(s *spaces) { s.beat() }},
		"apiservicenamespace": {"create namespaces", func(s *spaces) {
			patch := fmt.Appendf(nil, `{"status":{"storedVersions":[%q]}}`, time.Now().String())
			_, err := s.Client().Resource(tenant.ExportResource).Namespace(s.tenant).Patch(s.Context(), "widgets.example.org", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
			if err != nil {
				s.Fatal(err)
			}
		}},
	} {
		t.Run(controller, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSpacesOf(t, controller, Options{})
				s.put(tenant.ClusterBindingResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster}}"))
				s.mu.Lock()
				s.refuse = func(r fakecluster.Request) error {
					if r.Verb+" "+r.Resource.Resource == test.refused {
						return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("a policy says no"))
					}
					return nil
				}
				s.mu.Unlock()
				s.ask("team")
				time.Sleep(time.Hour)
				before := s.sent()[test.refused]
				for range 60 {
					test.write(s)
					time.Sleep(time.Minute)
				}
				if n := s.sent()[test.refused]; before == 0 || n > 20 {
					t.Errorf("refused %d times in the first hour, and %d times in an hour with a status a minute", before, n)
				}
			})
		})
	}
}

// A tenant that asks for service namespaces and gives them up meets no cap: it may begin as many a minute as it
// may have, each that stays comes, and is told to wait meanwhile. As many as it may have come at once, and
// what one tenant does keeps no other one waiting.
func TestServiceNamespacesOfOneTenantArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, minutes = 200, 3 // most is the cap of Options
		s := newSpaces(t, Options{})
		s.Serve(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
		s.put(offer.CRDResource, "", crdOf("widgets", v1alpha1.NamespacedScope))
		for i := range most {
			s.ask(fmt.Sprintf("team-%d", i))
		}
		time.Sleep(time.Second)
		for i := range most {
			if name := fmt.Sprintf("team-%d", i); !s.serves(name) {
				t.Fatalf("%s is not there after a second", name)
			}
			s.give(fmt.Sprintf("team-%d", i))
		}
		s.sent()
		for i := range minutes * 600 {
			s.ask(fmt.Sprintf("loop-%d", i))
			time.Sleep(time.Minute/600 - requestTime) // to give it up is a request
			s.give(fmt.Sprintf("loop-%d", i))
		}
		other := s.neighbour()
		other.ask("team")
		time.Sleep(time.Second)
		if !other.serves("team") {
			t.Errorf("the neighbour waits: %q", other.condition("team"))
		}
		if n := s.sent()["create namespaces"]; n > (minutes+1)*most+1 { // the last one is the neighbour's
			t.Errorf("%d service namespaces in %d minutes", n, minutes)
		}
		for i := range 2 * most { // of which half are beyond the cap
			s.ask(fmt.Sprintf("stays-%d", i))
		}
		time.Sleep(15 * time.Second)
		said := map[string]int{}
		for i := range 2 * most {
			said[s.condition(fmt.Sprintf("stays-%d", i))]++
		}
		if n := said["TooMany: a tenant may begin 200 service namespaces a minute, and has begun as many: this one waits for its turn"]; n == 0 || n > most {
			t.Errorf("after fifteen seconds they say %v", said)
		}
		time.Sleep(2 * time.Minute)
		served := 0
		for i := range 2 * most {
			served += tenant.One(s.serves(fmt.Sprintf("stays-%d", i)))
		}
		if served != most {
			t.Errorf("%d that stay are there, want %d", served, most)
		}
	})
}

// A finalizer does not say that a service namespace was begun: a tenant may have written it while it was Klutch's, and a
// backup brings it back.
func TestServiceNamespacesWithAFinalizerArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most, minutes = 200, 3 // most is the cap of Options
		s := newSpaces(t, Options{})
		for i := range minutes * 600 {
			name := fmt.Sprintf("loop-%d", i)
			s.put(tenant.NamespaceResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: "+name+
				", finalizers: ["+v1alpha1.ServiceNamespaceFinalizer+"]}}"))
			time.Sleep(time.Minute/600 - requestTime)
			s.give(name)
		}
		if n := s.sent()["create namespaces"]; n < most || n > (minutes+1)*most {
			t.Errorf("%d service namespaces in %d minutes", n, minutes)
		}
	})
}

// give gives up a service namespace.
func (s *spaces) give(name string) {
	s.Helper()
	if err := s.Client().Resource(tenant.NamespaceResource).Namespace(s.tenant).Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// neighbour is another tenant of the same cluster, without exports.
func (s *spaces) neighbour() *spaces {
	s.Helper()
	still := *s.still
	still.tenant = still.settle("grace")
	return &spaces{still: &still}
}

// A write of a service namespace that is answered 409 for hours is tried a few times at once and then ever more
// rarely, as package fates has it: it is told, and holds no worker that another tenant waits for.
func TestConflictsForHoursHoldNoWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const asked = 32
		s := newSpaces(t, Options{})
		s.mu.Lock()
		s.refuse = func(r fakecluster.Request) error {
			if r.Resource == roleBindings && r.Object.Name == v1alpha1.TenantRoleBinding && strings.HasPrefix(r.Object.Namespace, s.tenant) {
				return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("another one was faster"))
			}
			return nil
		}
		s.mu.Unlock()
		for i := range asked {
			s.ask(fmt.Sprintf("team-%d", i))
		}
		other := s.neighbour()
		for round := range 3 {
			name := fmt.Sprintf("round-%d", round)
			other.ask(name)
			time.Sleep(2 * time.Second)
			if !other.serves(name) {
				t.Errorf("round %d: the neighbour waits", round)
			}
			if round > 0 && s.condition("team-1") == "" {
				t.Errorf("round %d: it is not told", round)
			}
			time.Sleep(10 * time.Minute)
			n := 0
			for write, times := range s.sent() {
				if strings.HasSuffix(write, " rolebindings") && !strings.HasPrefix(write, "get ") {
					n += times
				}
			}
			if most := 6 * asked * int(12*time.Minute/fates.Conflict.Longest()); round > 0 && (n == 0 || n > most) {
				t.Errorf("round %d: %d writes of role bindings, want %d at most", round, n, most)
			}
		}
		s.mu.Lock()
		s.refuse = nil
		s.mu.Unlock()
		time.Sleep(2 * fates.Conflict.Longest())
		if !s.serves("team-1") {
			t.Errorf("afterwards: %q", s.condition("team-1"))
		}
	})
}

// What the platform answers slowly for the namespaces of one tenant, as where a webhook hangs, keeps no other one waiting.
func TestSlowAnswersForOneTenantHoldNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpaces(t, Options{})
		s.mu.Lock()
		s.refuse = func(r fakecluster.Request) error {
			if strings.HasPrefix(r.Object.Namespace, s.tenant) || strings.HasPrefix(r.Object.Name, s.tenant) {
				time.Sleep(time.Minute)
			}
			return nil
		}
		s.mu.Unlock()
		for i := range 2 * askedAtOnce {
			s.ask(fmt.Sprintf("team-%d", i))
		}
		time.Sleep(time.Second)
		other := s.neighbour()
		other.ask("team")
		time.Sleep(time.Second)
		if !other.serves("team") {
			t.Errorf("the neighbour waits: %q", other.condition("team"))
		}
	})
}

// The keys of some controllers are tenants, in no namespace: what three of them wait for holds no worker of a fourth.
func TestSlowAnswersForThreeTenantsHoldNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpacesOf(t, "tenant", Options{})
		var slow sync.Map
		s.mu.Lock()
		s.refuse = func(r fakecluster.Request) error {
			for _, place := range []string{r.Object.Namespace, r.Object.Name} {
				if _, is := slow.Load(place); is {
					time.Sleep(time.Minute)
				}
			}
			return nil
		}
		s.mu.Unlock()
		for _, subject := range []string{"bob", "carol", "dan"} {
			h := tenant.Holder{Issuer: "https://issuer", Subject: subject, Cluster: "c1"}
			slow.Store(h.Namespace("cluster"), true)
			s.settle(subject)
		}
		time.Sleep(time.Second)
		s.mu.Lock()
		clear(s.requests)
		s.mu.Unlock()
		s.settle("grace")
		time.Sleep(2 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.requests) < 2 { // one is to make the namespace
			t.Errorf("the fourth waits: %v", s.requests)
		}
	})
}
