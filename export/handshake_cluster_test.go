// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP27Handshake runs the roads to a tenant that are not the browser's against a
// real API server. Its steps share the audit log that the last one reads.
func TestP27Handshake(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{Handshake: Handshake{
		Machines:  auth.Providers{must(auth.New(auth.Config{Issuer: w.issuer.URL(), ClientID: "klutch", Audiences: []string{"klutch-machines"}}))},
		LegacyCLI: true,
		Devices:   DeviceConfigMaps{Client: must(kubernetes.NewForConfig(w.config)), Namespace: "klutch-backend"},
	}})
	for _, step := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"a machine binds several APIs at once", machineBinds},
		{"the legacy CLI gets a token that dies soon", legacyBinds},
		{"two replicas serve one login, and redeem one code once", twoReplicas},
		{"P27 audit", auditLog},
		{"census", census},
		{"what is on offer", offerIsTold},
		{"a login on another device", deviceBinds},
		{"P12 no tenant escapes a review by asking for much", asksForMuch},
	} {
		if !t.Run(step.name, func(t *testing.T) { w.t = t; step.run(t, w) }) {
			return
		}
	}
}

// asksForMuch logs in with so much in the session that no groups fit beside it. They
// are recorded all the same, since what they allow is reviewed by them.
func asksForMuch(t *testing.T, w *world) {
	t.Helper()
	asked := []string{"widgets.example.org"}
	for i := range 9 {
		asked = append(asked, fmt.Sprintf("x%d.%s", i, strings.Repeat("y", 100)))
	}
	ada := w.tenant("ada", "much", asked...)
	r, _, err := w.exporter.tenants.Records.Read(t.Context(), ada.namespace)
	if err != nil || !slices.Equal(r.Identity.Groups, users["ada"].Groups) {
		t.Errorf("record: %+v %v", r, err)
	}
}

// offerIsTold: a login that asks what is on offer makes nothing, hands out no credential, and
// leaves those that there are as they were.
func offerIsTold(t *testing.T, w *world) {
	t.Helper()
	before := w.tenant("grace", "one", "widgets.example.org")
	spaces := func() int {
		return len(must(w.admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})).Items)
	}
	n := spaces()
	ask := func(user, cluster string) auth.Grant {
		t.Helper()
		return must(auth.Login(t.Context(), auth.LoginOptions{
			AuthorizeURL: w.url + "/authorize", Issuer: w.url, ClientID: handshake.ClientID, Params: url.Values{"c": {cluster}}, Scopes: []string{v1alpha1.ScopeOffer},
			Open: func(target string) error {
				_, err := testissuer.NewBrowser(testissuer.BrowserOptions{Username: user, Password: users[user].Password}).Visit(t.Context(), target)
				return err
			},
		}))
	}
	for _, c := range []struct{ user, cluster, tenant, chosen string }{
		{"grace", "one", before.namespace, "widgets.example.org"}, {"grace", "two", "", ""}, {"grace", "", "", ""}, {"ada", "one", "", ""},
	} {
		g := ask(c.user, c.cluster)
		answer := w.redeem(g, nil)
		var got v1alpha1.OfferResponse
		if err := json.Unmarshal([]byte(answer.Body), &got); err != nil || answer.Status != http.StatusOK || strings.Contains(answer.Body, "kubeconfig") {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		var names []string
		chosen := ""
		for _, s := range got.Services {
			names = append(names, s.Name)
			if s.Chosen {
				chosen += s.Name
			}
		}
		if diff := cmp.Diff([]string{"gadgets.example.org", "widgets.example.org"}, slices.Sorted(slices.Values(names))); diff != "" {
			t.Errorf("services (-want +got):\n%s", diff)
		}
		if got.Tenant != c.tenant || chosen != c.chosen || got.Person.Subject != c.user || !slices.Equal(got.Person.Groups, users[c.user].Groups) {
			t.Errorf("of %s: tenant %q, chosen %q, person %+v", c.user, got.Tenant, chosen, got.Person)
		}
		if again := w.redeem(g, nil); again.Status != http.StatusBadRequest || !strings.Contains(again.Body, "has been used") {
			t.Errorf("the second time: %d %s", again.Status, again.Body)
		}
		if stolen := w.redeem(ask(c.user, c.cluster), func(form url.Values) { form.Set("code_verifier", strings.Repeat("x", 43)) }); stolen.Status != http.StatusBadRequest {
			t.Errorf("another program: %d %s", stolen.Status, stolen.Body)
		}
	}
	var ticked []string
	b := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "grace", Password: users["grace"].Password, Decide: func(f *testissuer.Form) {
		if strings.HasSuffix(f.Action, "/bind") {
			ticked = f.Fields["service"]
		}
	}})
	_, err := auth.Login(t.Context(), auth.LoginOptions{
		AuthorizeURL: w.url + "/authorize", Issuer: w.url, ClientID: handshake.ClientID, Params: url.Values{"c": {"one"}},
		Open: func(target string) error { _, err := b.Visit(t.Context(), target); return err },
	})
	if diff := cmp.Diff([]string{"widgets.example.org"}, ticked); diff != "" || err != nil {
		t.Errorf("%v; ticked (-want +got):\n%s", err, diff)
	}
	if now := spaces(); now != n {
		t.Errorf("%d namespaces, %d before", now, n)
	}
	if _, err := before.kube.CoreV1().ServiceAccounts(before.namespace).List(t.Context(), metav1.ListOptions{}); apierrors.IsUnauthorized(err) {
		t.Error("the credential before it is refused")
	}
	if got := w.get("/authorize?response_type=code&scope=everything"); got.Status != http.StatusBadRequest {
		t.Errorf("another scope: %d %s", got.Status, got.Body)
	}
}

func (w *world) get(path string) reply {
	w.t.Helper()
	return send(w.t, must(http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.url+path, http.NoBody)))
}

func machineBinds(t *testing.T, w *world) {
	t.Helper()
	token := must(w.issuer.AccessToken("ada", "klutch-machines"))
	body := `{"clusterID": "robot", "apis": [{"group": "example.org", "resource": "widgets"}, {"group": "example.org", "resource": "gadgets"}]}`
	answer := w.post("/bind-noninteractive", body, "Content-Type", "application/json", "Authorization", "Bearer "+token)
	if answer.Status != http.StatusOK || answer.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", answer.Status, answer.Body)
	}
	ada := w.client(answer.Body)
	if want := (tenant.Holder{Issuer: w.issuer.URL(), Subject: "ada", Cluster: "robot"}).Namespace("cluster"); ada.namespace != want {
		t.Errorf("tenant %s, want %s", ada.namespace, want)
	}
	var names []string
	for _, raw := range ada.response.Requests {
		var r v1alpha1.APIServiceExportRequestResponse
		if err := json.Unmarshal(raw.Raw, &r); err != nil {
			t.Fatal(err)
		}
		names = append(names, r.ObjectMeta.Name)
	}
	if diff := cmp.Diff([]string{"gadgets.example.org", "widgets.example.org"}, names); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if got := ada.request("all", names...); got.Status.Phase != v1alpha1.RequestSucceeded {
		t.Errorf("request: %+v", got.Status)
	}
	if answer := w.post("/bind-noninteractive", strings.Replace(body, "gadgets", "gizmos", 1), "Authorization", "Bearer "+token); answer.Status != http.StatusForbidden {
		t.Errorf("not allowed: %d %s", answer.Status, answer.Body)
	}
	if answer := w.post("/bind-noninteractive", body, "Authorization", "Bearer "+must(w.issuer.AccessToken("ada", "other"))); answer.Status != http.StatusUnauthorized {
		t.Errorf("wrong audience: %d %s", answer.Status, answer.Body)
	}
}

func (w *world) post(path, body string, header ...string) reply {
	w.t.Helper()
	req := must(http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+path, strings.NewReader(body)))
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return send(w.t, req)
}

// client reads a BindingResponse.
func (w *world) client(body string) *tenantClient {
	w.t.Helper()
	c := &tenantClient{w: w, response: &v1alpha1.BindingResponse{}}
	if err := json.Unmarshal([]byte(body), c.response); err != nil {
		w.t.Fatal(err)
	}
	k := must(kubeconfig.Read(c.response.Kubeconfig))
	c.namespace, c.config = k.Namespace, k.RESTConfig()
	c.kube = must(kubernetes.NewForConfig(c.config))
	c.dyn = must(dynamic.NewForConfig(c.config))
	return c
}

func legacyBinds(t *testing.T, w *world) {
	t.Helper()
	got := make(chan string, 1)
	cli := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.URL.Query().Get("response") }))
	defer cli.Close()
	b := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "ada", Password: users["ada"].Password})
	page, err := b.Get(t.Context(), w.url+"/authorize?s=abc123&c=xyz789&u="+url.QueryEscape(cli.URL+"/callback"))
	if err != nil {
		t.Fatal(err)
	}
	page.Forms[0].Fields.Set("username", "ada")
	page.Forms[0].Fields.Set("password", users["ada"].Password)
	if page, err = b.Submit(t.Context(), page.Forms[0]); err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`<a class="widgets" href="([^"]+)"`).FindStringSubmatch(page.Body)
	if link == nil {
		t.Fatalf("no link in\n%s", page.Body)
	}
	if _, err := b.Get(t.Context(), w.url+strings.ReplaceAll(link[1], "&amp;", "&")); err != nil {
		t.Fatal(err)
	}
	data, err := base64.StdEncoding.DecodeString(<-got)
	if err != nil {
		t.Fatal(err)
	}
	ada := w.client(string(data))
	if id := ada.response.Authentication.OAuth2CodeGrant; id.SessionID != "abc123" || len(ada.response.Requests) != 1 {
		t.Errorf("response: %+v", ada.response)
	}
	if left := time.Until(expiry(t, ada.config.BearerToken)); left > tenant.MinTokenTTL {
		t.Errorf("the token lives for %s", left)
	}
	secret, err := ada.kube.CoreV1().Secrets(ada.namespace).Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
	if err != nil { // as the konnector does at first
		t.Fatal(err)
	}
	if strings.Contains(string(secret.Data[v1alpha1.KubeconfigKey]), ada.config.BearerToken) {
		t.Error("the token that was sent is the one that is renewed")
	}
}

func expiry(t *testing.T, token string) time.Time {
	t.Helper()
	payload := must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]))
	var claims struct {
		Exp int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil {
		t.Fatal(err)
	}
	return time.Unix(claims.Exp, 0)
}

// twoReplicas answers each request of a login by another replica.
func twoReplicas(t *testing.T, w *world) {
	t.Helper()
	opts := w.exporter.opts
	front, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	first, second := w.exporter.Handler(), must(New(w.config, opts)).Handler()
	var turn int
	var codes []int
	gateway := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		turn++
		ctx := logr.NewContext(r.Context(), funcr.New(w.log.add, funcr.Options{}))
		[]http.Handler{first, second}[turn%2].ServeHTTP(rw, r.WithContext(ctx))
	}))
	defer gateway.Close()
	direct := http.DefaultTransport.(*http.Transport).Clone()
	b := testissuer.NewBrowser(testissuer.BrowserOptions{
		Username: "grace", Password: users["grace"].Password,
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == front.Host {
				r = r.Clone(r.Context())
				r.URL.Host = strings.TrimPrefix(gateway.URL, "http://")
				r.Host = r.URL.Host
				if r.Header.Get("Origin") != "" {
					r.Header.Set("Origin", gateway.URL)
				}
			}
			return direct.RoundTrip(r)
		}),
	})
	g, err := auth.Login(t.Context(), auth.LoginOptions{
		AuthorizeURL: w.url + "/authorize", Issuer: w.url, ClientID: handshake.ClientID, Params: url.Values{"c": {"c1"}, "service": {"widgets.example.org"}},
		Open: func(target string) error { _, err := b.Visit(t.Context(), target); return err },
	})
	if err != nil {
		t.Fatal(err)
	}
	if turn < 5 {
		t.Fatalf("the gateway saw %d requests", turn)
	}
	form := url.Values{"grant_type": {"authorization_code"}, "client_id": {handshake.ClientID}, "code": {g.Code}, "code_verifier": {g.Verifier}, "redirect_uri": {g.RedirectURL}}
	for range 3 {
		resp, err := gateway.Client().PostForm(gateway.URL+"/token", form)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		codes = append(codes, resp.StatusCode)
	}
	if !slices.Equal(codes, []int{200, 400, 400}) {
		t.Errorf("one code at two replicas: %v", codes)
	}
}

// auditLog compares what the steps before have left, without what differs from run
// to run.
func auditLog(t *testing.T, w *world) {
	t.Helper()
	g, _, err := w.login("grace", "c1", "widgets.example.org")
	if err != nil {
		t.Fatal(err)
	}
	w.redeem(g, nil)
	w.redeem(g, nil)
	_, _, _ = w.login("eve", "c1", "widgets.example.org")
	w.issuer.Misbehave(testissuer.Faults{AuthorizeError: "access_denied"})
	_, _, _ = w.login("eve", "c1")
	w.issuer.Misbehave(testissuer.Faults{})
	takeAway(t, w)
	text := strings.Join(w.audited(), "\n") + "\n"
	golden := filepath.Join("testdata", "audit.txt")
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, secret := range []string{"eyJ", "token:", g.Code, g.Verifier} {
		if strings.Contains(text, secret) {
			t.Errorf("%s is in the audit log:\n%s", secret, text)
		}
	}
}

// audited are the audit records, in order of their text.
func (w *world) audited() (records []string) {
	for line := range strings.Lines(w.log.String()) {
		if name, record, ok := strings.Cut(line, "audit "); ok && name == "" {
			records = append(records, w.steady(strings.TrimSpace(record)))
		}
	}
	slices.Sort(records)
	return records
}

// awaitRecord waits for an audit record that holds text.
func (w *world) awaitRecord(text string) {
	w.t.Helper()
	w.eventually("a record of "+text, func(context.Context) (bool, error) {
		return slices.ContainsFunc(w.audited(), func(record string) bool { return strings.Contains(record, text) }), nil
	})
}

// takeAway has a credential rotated, an offer withdrawn and given again, and a tenant
// removed.
func takeAway(t *testing.T, w *world) {
	t.Helper()
	namespace := func(user, cluster string) string {
		return tenant.Holder{Issuer: w.issuer.URL(), Subject: user, Cluster: cluster}.Namespace("cluster")
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RenewAfterAnnotation, time.Now().Add(-time.Minute).Format(time.RFC3339))
	if _, err := w.admin.CoreV1().Secrets(namespace("grace", "c1")).Patch(t.Context(), v1alpha1.KubeconfigSecretName, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitRecord("credential rotated")
	if err := w.dyn.Resource(templateResource).Namespace("default").Delete(t.Context(), "gadgets", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitRecord("export withdrawn")
	w.apply(templateOf("gadgets"))
	w.awaitRecord("export offered again")
	gone := &tenantClient{w: w, namespace: namespace("ada", "xyz789")}
	gone.remove(t, v1alpha1.DeletionPolicyDelete)
	w.awaitRecord("tenant removed")
	gone.isGone(gone.namespace)
}

var (
	tenantPattern = regexp.MustCompile(`cluster-[a-z2-7]{16}`)
	timePattern   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`)
	sourcePattern = regexp.MustCompile(`"(level|controller|object)"=\S+ `)
	callerPattern = regexp.MustCompile(`"request"="[A-Z2-7]{26}" "client"="127.0.0.1"`)
)

func (w *world) steady(line string) string {
	line = strings.ReplaceAll(line, w.issuer.URL(), "ISSUER")
	caller := `"request"=ID "client"=ADDRESS`
	if line = callerPattern.ReplaceAllString(line, caller); strings.Contains(line, "credential issued") { // by the login, or by a controller that was faster
		line = strings.Replace(line, caller+" ", "", 1)
	}
	line = timePattern.ReplaceAllString(line, "TIME")
	return tenantPattern.ReplaceAllString(sourcePattern.ReplaceAllString(line, ""), "TENANT")
}

func census(t *testing.T, w *world) {
	t.Helper()
	var got Census
	w.eventually("census", func(context.Context) (bool, error) {
		var ok bool
		got, ok = w.exporter.Census()
		return ok && got.Exports.Ready+got.Exports.NotReady == 2, nil
	})
	if n := got.Tenants.Ready + got.Tenants.NotReady; n != 2 {
		t.Errorf("census: %+v", got)
	}
	if _, ok := must(New(w.config, Options{})).Census(); ok {
		t.Error("one that does not run counts")
	}
}
