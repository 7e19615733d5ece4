// SPDX-License-Identifier: Apache-2.0

//go:build unix

package fates

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// notOfRealServers has the kinds that TestRealTable does not meet, and why.
var notOfRealServers = map[Kind]string{
	None:       "no error",
	Ended:      "the caller's own",
	Superseded: "our own",
	Terminal:   "our own",
	Unknown:    "our own",
	Damaged:    "what is stored would have to be damaged behind the back of the API server: TestReasons",
}

// Every error that a real API server can be made to give has its row; and whatever code and
// reason a webhook or a policy denies with, what it says is not taken for what the API server
// knows.
func TestRealTable(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	t.Run("answers", func(t *testing.T) { w.answers(t) })
	t.Run("webhooks", func(t *testing.T) { w.webhooks(t) })
	t.Run("policies", func(t *testing.T) { w.policies(t) })
}

func (w *walk) answers(t *testing.T) {
	t.Helper()
	met := maps.Clone(notOfRealServers)
	for _, r := range w.rows() {
		err := r.ask()
		got := Of(err)
		if got != r.want {
			t.Errorf("%s: kind %d, want %d: %s", r.name, got, r.want, describe(err))
		}
		met[got] = r.name
	}
	for k := range Kinds {
		if met[k] == "" {
			t.Errorf("kind %d is not met, and there is no reason given", k)
		}
	}
}

func (w *walk) webhooks(t *testing.T) {
	t.Helper()
	stays := map[metav1.StatusReason]Kind{
		metav1.StatusReasonInvalid: Invalid, metav1.StatusReasonBadRequest: Malformed, metav1.StatusReasonMethodNotAllowed: NotAllowed,
		metav1.StatusReasonNotAcceptable: NotAcceptable, metav1.StatusReasonRequestEntityTooLarge: TooLarge, metav1.StatusReasonUnsupportedMediaType: Unsupported,
		metav1.StatusReasonTooManyRequests: Overloaded, metav1.StatusReasonServerTimeout: Broken, metav1.StatusReasonTimeout: Broken,
		metav1.StatusReasonInternalError: Broken, metav1.StatusReasonServiceUnavailable: Broken, metav1.StatusReasonUnknown: Malformed, // with code 400
	}
	for i, reason := range reasons(t) {
		want, ok := stays[reason]
		if !ok {
			want = Forbidden
		}
		err := w.denied(fmt.Sprint("reason-", i), metav1.Status{Reason: reason, Message: "metadata.uid is not what I like"})
		if got := Of(err); got != want {
			t.Errorf("reason %q: kind %d, want %d: %s", reason, got, want, describe(err))
		}
	}
	codes := map[int32]Kind{400: Malformed, 405: NotAllowed, 406: NotAcceptable, 413: TooLarge, 415: Unsupported, 422: Invalid, 429: Overloaded, 500: Broken, 502: Broken, 503: Broken, 504: Broken}
	for _, code := range []int32{200, 301, 400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 412, 413, 415, 418, 422, 423, 429, 500, 502, 503, 504} {
		want, ok := codes[max(code, 400)]
		if !ok {
			want = Forbidden
		}
		err := w.denied(fmt.Sprint("code-", code), metav1.Status{Code: code})
		if got := Of(err); got != want {
			t.Errorf("code %d: kind %d, want %d: %s", code, got, want, describe(err))
		}
	}
	w.must("POST", configMaps, plain, configMap("kept", "denies", "none"))
	w.must("PATCH", configMaps+"/kept", merge, `{"metadata":{"annotations":{"answer":"{\"code\":404,\"reason\":\"NotFound\"}"}}}`)
	if err := w.send("DELETE", configMaps+"/kept", plain, ""); Of(err) != Forbidden {
		t.Errorf("a webhook calls an object gone that it keeps: kind %d, %s", Of(err), describe(err))
	}
}

func (w *walk) policies(t *testing.T) {
	t.Helper()
	kinds := map[metav1.StatusReason]Kind{
		metav1.StatusReasonForbidden: Forbidden, metav1.StatusReasonInvalid: Invalid, metav1.StatusReasonRequestEntityTooLarge: TooLarge,
	}
	for _, reason := range reasons(t) {
		want, given := kinds[reason]
		if !given {
			if err := w.send("POST", policies+"?dryRun=All", plain, policyOf("none", reason, "")); reason != "" && Of(err) != Invalid {
				t.Errorf("a policy may deny with reason %q, which has no row here: %v", reason, err)
			}
			continue
		}
		if err := w.policy(strings.ToLower(string(reason)), reason, "", ""); Of(err) != want {
			t.Errorf("reason %q: kind %d, want %d: %s", reason, Of(err), want, describe(err))
		}
	}
	for name, c := range map[string]struct {
		kind, ref string
		want      Denial
	}{
		"kind-unknown": {`"paramKind":{"apiVersion":"none.example.org/v1","kind":"None"},`, "", ParamKindUnknown},
		"none-found":   {`"paramKind":{"apiVersion":"v1","kind":"Secret"},`, `"paramRef":{"selector":{"matchLabels":{"no":"such"}},"parameterNotFoundAction":"Deny"},`, ParamsMissing},
	} {
		err := w.policy(name, metav1.StatusReasonForbidden, c.kind, c.ref)
		if why, denial := WhyDenied(err); denial != c.want || Is(err, None, Unauthorized, Absent) {
			t.Errorf("%s: denial %d, %q: %s", name, denial, why, describe(err))
		}
	}
}

func describe(err error) string {
	s, _ := statusOf(err)
	s.Message = ""
	return fmt.Sprintf("%T %.300v %+v", err, err, s)
}

// A walk asks a real API server for each error that it can give.
type walk struct {
	*testing.T
	config *rest.Config
	client rest.Interface
}

func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{T: t, config: cluster.ForTest(t, "fates").Config()}
	w.client = clientFor(t, w.config, nil)
	webhook := httptest.NewTLSServer(http.HandlerFunc(denies))
	t.Cleanup(webhook.Close)
	w.webhook("denies", webhook.URL+"/", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: webhook.Certificate().Raw}), 30)
	w.until("the webhook denies", func() bool {
		return strings.HasPrefix(fmt.Sprint(w.denied("probe", metav1.Status{})), "admission webhook")
	})
	return w
}

// clientFor returns a client that sends what it is told to, and follows no redirect.
func clientFor(t *testing.T, config *rest.Config, change func(*rest.Config)) rest.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS = -1
	if change != nil {
		change(config)
	}
	hc, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	admin, err := kubernetes.NewForConfigAndClient(config, hc)
	if err != nil {
		t.Fatal(err)
	}
	return admin.CoreV1().RESTClient()
}

// Paths and content types of requests.
const (
	configMaps = "/api/v1/namespaces/default/configmaps"
	custom     = "/apis/example.org/v1/namespaces/default/widgets"
	hooks      = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	policies   = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	bindings   = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"

	plain = "application/json"
	merge = "application/merge-patch+json"
	apply = "application/apply-patch+yaml"
)

func (w *walk) send(verb, uri, kind, body string) error {
	_, err := w.answer(verb, uri, kind, body)
	return err
}

func (w *walk) answer(verb, uri, kind, body string) (map[string]any, error) {
	r := w.client.Verb(verb).RequestURI(uri).SetHeader("Content-Type", kind).MaxRetries(0)
	if body != "" {
		r = r.Body([]byte(body))
	}
	result := r.Do(w.Context())
	data, _ := result.Raw()
	out := map[string]any{}
	_ = json.Unmarshal(data, &out)
	return out, result.Error()
}

// must sends what has to succeed.
func (w *walk) must(verb, uri, kind, body string) map[string]any {
	w.Helper()
	out, err := w.answer(verb, uri, kind, body)
	if err != nil {
		w.Fatalf("%s %s: %v", verb, uri, err)
	}
	return out
}

func (w *walk) until(what string, done func() bool) {
	w.Helper()
	if err := wait.PollUntilContextTimeout(w.Context(), 100*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return done(), nil }); err != nil {
		w.Fatalf("%s: %v", what, err)
	}
}

// configMap is one with an annotation that tells the webhook what to answer.
func configMap(name, label, answer string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"for":%q},"annotations":{"answer":%q}},"data":{"x":"1"}}`, name, label, answer)
}

// denied is what an API server says to the creation of an object that a webhook denies with an answer.
func (w *walk) denied(name string, answer metav1.Status) error {
	text, err := json.Marshal(answer)
	if err != nil {
		w.Fatal(err)
	}
	return w.send("POST", configMaps, plain, configMap(name, "denies", string(text)))
}

// denies is a webhook that denies as an object asks for.
func denies(rw http.ResponseWriter, r *http.Request) {
	review := admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	raw := review.Request.Object.Raw
	if raw == nil {
		raw = review.Request.OldObject.Raw
	}
	object := unstructured.Unstructured{}
	answer := &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{}}
	answer.Allowed = object.UnmarshalJSON(raw) != nil || json.Unmarshal([]byte(object.GetAnnotations()["answer"]), answer.Result) != nil
	review.Response, review.Request = answer, nil
	rw.Header().Set("Content-Type", plain)
	_ = json.NewEncoder(rw).Encode(review)
}

// webhook has ConfigMaps with a label judged at an address, within so many seconds.
func (w *walk) webhook(name, address string, ca []byte, timeout int) {
	w.Helper()
	w.must("POST", hooks, plain, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
		"name":%q,"clientConfig":{"url":%q,"caBundle":%q},"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","DELETE"],"resources":["configmaps"]}],
		"objectSelector":{"matchLabels":{"for":%q}},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":%d}]}`,
		name, name+".example.org", address, base64.StdEncoding.EncodeToString(ca), name, timeout))
}

// policy is what an API server says to an object that a policy denies with a reason, or for want of
// parameters: kind and ref are those fields of the policy and of its binding.
func (w *walk) policy(name string, reason metav1.StatusReason, kind, ref string) (denied error) {
	w.Helper()
	name = "policy-" + name
	w.must("POST", policies, plain, policyOf(name, reason, kind))
	w.must("POST", bindings, plain, fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{%s
		"policyName":%q,"validationActions":["Deny"]}}`, name, ref, name))
	w.until("the policy "+name+" denies", func() bool {
		denied = w.send("POST", configMaps+"?dryRun=All", plain, configMap("b", name, ""))
		return denied != nil
	})
	return denied
}

func policyOf(name string, reason metav1.StatusReason, kind string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{%s
		"matchConstraints":{"objectSelector":{"matchLabels":{"for":%q}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"false","reason":%q,"message":"metadata.uid is not what I like"}]}}`, name, kind, name, reason)
}

// An answer is one of a real API server, and the row that it should have.
type answer struct {
	name string
	want Kind
	ask  func() error
}

func (w *walk) rows() []answer {
	w.prepare()
	send := func(verb, uri, kind, body string) func() error {
		return func() error { return w.send(verb, uri, kind, body) }
	}
	as := func(change func(*rest.Config), verb, uri, kind, body string) func() error {
		return func() error {
			other := *w
			other.client = clientFor(w.T, w.config, change)
			return other.send(verb, uri, kind, body)
		}
	}
	far := w.must("GET", configMaps, plain, "")["metadata"].(map[string]any)["resourceVersion"].(string) + "000000"
	large := strings.Repeat("x", 1<<20)
	return []answer{
		{"no server", Unreachable, as(func(c *rest.Config) { c.Host = "https://127.0.0.1:1" }, "GET", configMaps, plain, "")},
		{"no such credential", Unauthorized, as(func(c *rest.Config) { c.BearerToken = "no" }, "GET", configMaps, plain, "")},
		{"no right", Forbidden, as(func(c *rest.Config) { c.Impersonate.UserName = "nobody" }, "GET", configMaps, plain, "")},
		{"no right to create", Forbidden, as(func(c *rest.Config) { c.Impersonate.UserName = "nobody" }, "PATCH", configMaps+"/a?fieldManager=two", apply, configMap("a", "", ""))},
		{"quota", Forbidden, send("POST", "/api/v1/namespaces/full/configmaps", plain, configMap("a", "", ""))},
		{"namespace goes", Terminating, send("POST", "/api/v1/namespaces/going/configmaps", plain, configMap("a", "", ""))},
		{"no object", Absent, send("GET", configMaps+"/none", plain, "")},
		{"no object to delete", Absent, send("DELETE", configMaps+"/none", plain, "")},
		{"no namespace", Absent, send("POST", "/api/v1/namespaces/none/configmaps", plain, configMap("a", "", ""))},
		{"no namespace to apply in", Absent, send("PATCH", "/api/v1/namespaces/none/configmaps/a?fieldManager=two", apply, configMap("a", "", ""))},
		{"no group", Unserved, send("GET", "/apis/none.example.org/v1/namespaces/default/widgets/a", plain, "")},
		{"no version", Unserved, send("GET", "/apis/example.org/v9/namespaces/default/widgets/a", plain, "")},
		{"no kind", Unserved, send("GET", "/apis/example.org/v1/namespaces/default/gadgets/a", plain, "")},
		{"no subresource of an object that is there", Absent, send("PATCH", custom+"/a/status?fieldManager=two", apply, widget("a", `{}`))},
		{"no such verb", NotAllowed, send("PATCH", configMaps, merge, `{}`)},
		{"no such form of answer", NotAcceptable, func() error {
			return w.client.Get().AbsPath(configMaps).SetHeader("Accept", "image/png").Do(w.Context()).Error()
		}},
		{"no such form of request", Unsupported, send("PATCH", configMaps+"/a", "text/plain", "x")},
		{"it exists", Exists, send("POST", configMaps, plain, configMap("a", "", ""))},
		{"another version", Conflict, send("PATCH", configMaps+"/a", merge, `{"metadata":{"resourceVersion":"1"},"data":{"x":"2"}}`)},
		{"another version to apply to", Conflict, send("PATCH", configMaps+"/a?fieldManager=one", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","resourceVersion":"1"},"data":{"x":"2"}}`)},
		{"another object to delete", Conflict, send("DELETE", configMaps+"/a", plain, `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"11111111-1111-1111-1111-111111111111"}}`)},
		{"fields of others", Contested, send("PATCH", configMaps+"/a?fieldManager=two", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"2"}}`)},
		{"another object", Replaced, send("PATCH", configMaps+"/a?fieldManager=one", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","uid":"11111111-1111-1111-1111-111111111111"},"data":{"x":"1"}}`)},
		{"another object to patch", Replaced, send("PATCH", configMaps+"/a", merge, `{"metadata":{"uid":"11111111-1111-1111-1111-111111111111"}}`)},
		{"too old a version", Expired, w.watchFromOne},
		{"a version to come", Ahead, send("GET", configMaps+"?resourceVersionMatch=NotOlderThan&resourceVersion="+far, plain, "")},
		{"not valid", Invalid, send("POST", custom, plain, widget("b", `{"size":true}`))},
		{"not valid to apply", Invalid, send("PATCH", custom+"/b?fieldManager=one", apply, widget("b", `{"size":"much too long"}`))},
		{"no such field", Undeclared, send("PATCH", custom+"/b?fieldManager=one", apply, widget("b", `{"colour":"red"}`))},
		{"no such field of a built-in kind", Undeclared, send("PATCH", configMaps+"/a?fieldManager=one", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"colour":"red"}`)},
		{"another type", Invalid, send("PATCH", custom+"/b?fieldManager=one", apply, widget("b", `{"size":{"x":1}}`))},
		{"a list in place of a map", Invalid, send("PATCH", configMaps+"/a?fieldManager=one", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":["x"]}`)},
		{"no JSON", Malformed, send("POST", configMaps, plain, `{`)},
		{"another kind", Malformed, send("POST", configMaps, plain, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"b"}}`)},
		{"a request too large", TooLarge, send("POST", custom, plain, widget("b", `{"text":"`+strings.Repeat(large, 4)+`"}`))},
		{"too large for the store", TooLarge, send("PATCH", custom+"/b?fieldManager=one", apply, widget("b", `{"text":"`+large+large[:len(large)*3/4]+`"}`))},
		{"too large for the way to the store", TooLarge, send("PATCH", custom+"/b?fieldManager=one", apply, widget("b", `{"text":"`+large+large+`"}`))},
		{"a value that names the UID", Invalid, send("PATCH", configMaps+"/a?fieldManager=one", apply, configMap("a", "metadata.uid!", ""))},
		{"annotations too large", Invalid, send("PATCH", configMaps+"/a?fieldManager=one", apply, configMap("a", "", large))},
		{"too many requests", Overloaded, func() error {
			return w.denied("b", metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests})
		}},
		{"the answer to a write is lost", Failing, w.loseAnswer},
		{"a webhook is down", Broken, send("POST", configMaps, plain, configMap("b", "down", ""))},
		{"an aggregated server is down", Failing, send("GET", "/apis/down.example.org/v1/namespaces/default/things", plain, "")},
		{"a document that has changed", Unreachable, send("GET", "/openapi/v3/api/v1?hash=OLD", plain, "")},
	}
}

// loseAnswer writes by way of a proxy that waits no longer for the answer than the write takes.
func (w *walk) loseAnswer() error {
	other := *w
	other.client = clientFor(w.T, w.config, func(c *rest.Config) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper { return impatient{next} })
	})
	err := other.send("POST", configMaps, plain, configMap("lost", "", ""))
	if read := w.send("GET", configMaps+"/lost", plain, ""); read != nil {
		w.Errorf("nothing was written: %v", read)
	}
	return err
}

type impatient struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (p impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := p.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	_ = resp.Body.Close()
	resp.StatusCode, resp.Status, resp.Header = http.StatusGatewayTimeout, "504 Gateway Timeout", http.Header{"Content-Type": {"text/html"}}
	resp.Body = io.NopCloser(strings.NewReader("<html><h1>504 Gateway Time-out</h1></html>"))
	return resp, nil
}

// watchFromOne begins a watch at the first version of a cluster, which that of a new kind does not reach back to.
func (w *walk) watchFromOne() error {
	events, err := w.client.Get().RequestURI(custom + "?watch=true&resourceVersion=1").Watch(w.Context())
	if err != nil {
		return err
	}
	defer events.Stop()
	return apierrors.FromObject((<-events.ResultChan()).Object)
}

func widget(name, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":%q},"spec":%s}`, name, spec)
}

// prepare makes what rows ask about.
func (w *walk) prepare() {
	w.Helper()
	w.must("PATCH", configMaps+"/a?fieldManager=one", apply, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}`)
	for name, finalizers := range map[string]string{"full": `[]`, "going": `["example.org/stays"]`} {
		w.must("POST", "/api/v1/namespaces", plain, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		w.must("POST", "/api/v1/namespaces/"+name+"/secrets", plain, `{"metadata":{"name":"a","finalizers":`+finalizers+`}}`)
	}
	w.must("DELETE", "/api/v1/namespaces/going", plain, "")
	w.must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", plain, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.org"},"spec":{
		"group":"example.org","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{
		"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"string","maxLength":5},"text":{"type":"string"}}}}}}}]}}`)
	w.until("widgets are served", func() bool { return w.send("GET", custom, plain, "") == nil })
	w.until("widgets are known to applies", func() bool {
		return w.send("PATCH", custom+"/a?fieldManager=one", apply, widget("a", `{"size":"s"}`)) == nil
	})
	w.must("POST", "/api/v1/namespaces/full/resourcequotas", plain, `{"metadata":{"name":"none"},"spec":{"hard":{"count/configmaps":"0"}}}`)
	w.until("the quota is known", func() bool {
		return w.send("POST", "/api/v1/namespaces/full/configmaps?dryRun=All", plain, configMap("b", "", "")) != nil
	})
	w.webhook("down", "https://127.0.0.1:1/", nil, 1)
	w.until("the webhook that is down is asked", func() bool { return w.send("POST", configMaps+"?dryRun=All", plain, configMap("b", "down", "")) != nil })
	w.must("POST", "/api/v1/namespaces/default/services", plain, `{"metadata":{"name":"down"},"spec":{"ports":[{"port":443}]}}`)
	w.must("POST", "/apis/apiregistration.k8s.io/v1/apiservices", plain, `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.down.example.org"},"spec":{
		"group":"down.example.org","version":"v1","groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"name":"down","namespace":"default"}}}`)
	w.until("the aggregated server is known", func() bool {
		return !Is(w.send("GET", "/apis/down.example.org/v1/namespaces/default/things", plain, ""), Unserved, Absent)
	})
}
