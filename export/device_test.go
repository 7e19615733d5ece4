// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// deviceMemory is a store of one process that counts.
type deviceMemory struct {
	mu             sync.Mutex
	values         map[string][]byte
	creates, reads int
}

func (m *deviceMemory) Create(_ context.Context, key string, value []byte, _ time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.creates++
	if _, ok := m.values[key]; ok {
		return auth.ErrDeviceTaken
	}
	if m.values == nil {
		m.values = map[string][]byte{}
	}
	m.values[key] = bytes.Clone(value)
	return nil
}

func (m *deviceMemory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if value, ok := m.values[key]; ok {
		return value, nil
	}
	return nil, auth.ErrDevicePending
}

func (m *deviceMemory) used() (int, int, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.values), m.creates, m.reads
}

func openDeviceCounter(t *testing.T, tune ...func(*Options)) (*counter, *deviceMemory) {
	t.Helper()
	store := &deviceMemory{}
	return openCounter(t, append(tune, func(o *Options) { o.Handshake.Devices = store })...), store
}

// A terminal is a program on a machine without a browser.
type terminal struct {
	verifier string
	device   oauth2.DeviceAuthResponse
	do       func(method, path, body string, header ...string) reply
}

// newTerminal begins a login with what kubectl-bind asks for, after change.
func newTerminal(t *testing.T, do func(method, path, body string, header ...string) reply, services []string, change ...string) *terminal {
	t.Helper()
	term := &terminal{verifier: oauth2.GenerateVerifier(), do: do}
	form := url.Values{
		"client_id": {handshake.ClientID}, "state": {"s-1"}, "c": {"c1"}, "service": services,
		"code_challenge": {oauth2.S256ChallengeFromVerifier(term.verifier)}, "code_challenge_method": {"S256"},
	}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
	}
	answer := do(http.MethodPost, "/device", form.Encode())
	if answer.Status != http.StatusOK || json.Unmarshal([]byte(answer.Body), &term.device) != nil {
		t.Fatalf("begin: %d %s", answer.Status, answer.Body)
	}
	return term
}

// poll asks for the answer once, and returns the error code.
func (term *terminal) poll(change ...string) (reply, string) {
	form := url.Values{
		"grant_type": {handshake.DeviceGrantType}, "client_id": {handshake.ClientID},
		"device_code": {term.device.DeviceCode}, "code_verifier": {term.verifier},
	}
	for i := 0; i < len(change); i += 2 {
		form.Set(change[i], change[i+1])
	}
	answer := term.do(http.MethodPost, "/token", form.Encode())
	var said handshake.OAuthError
	_ = json.Unmarshal([]byte(answer.Body), &said) // or it is no error
	return answer, said.Code
}

// deviceSignIn types the code, signs in with a name and a password, and confirms the code.
func deviceSignIn(t *testing.T, b *testissuer.Browser, base, code string, who [2]string) *testissuer.Page {
	t.Helper()
	page := must(b.Get(t.Context(), base+"/device"))
	page.Forms[0].Fields.Set("user_code", " "+strings.ToLower(strings.ReplaceAll(code, "-", " ")))
	page = must(b.Submit(t.Context(), page.Forms[0]))
	if !strings.Contains(page.Body, code) || !strings.Contains(page.Body, `href="/authorize?user_code=`+code) {
		t.Fatalf("no way to sign in:\n%s", page.Body)
	}
	page = must(b.Get(t.Context(), base+"/authorize?user_code="+code))
	page.Forms[0].Fields.Set("username", who[0])
	page.Forms[0].Fields.Set("password", who[1])
	page = must(b.Submit(t.Context(), page.Forms[0]))
	if page.URL.Path != "/device" || !strings.Contains(page.Body, code) {
		t.Fatalf("signed in: %s %d\n%s", page.URL.Path, page.Status, page.Body)
	}
	return page
}

// confirm presses the button below the code. The page then waits for the terminal,
// which a browser would do for ever: only one request is sent.
func confirm(t *testing.T, c *counter, b *testissuer.Browser, code string) reply {
	t.Helper()
	return c.do(http.MethodPost, "/device/claim", url.Values{"code": {code}}.Encode(), "Origin", c.url, "Cookie", sessionOf(t, b, c.url))
}

func sessionOf(t *testing.T, b *testissuer.Browser, base string) string {
	t.Helper()
	cookies := b.Cookies(base)
	if len(cookies) != 1 || cookies[0].Name != sessionCookie {
		t.Fatalf("cookies: %v", cookies)
	}
	return cookies[0].String()
}

func TestDeviceIsRefused(t *testing.T) {
	c, store := openDeviceCounter(t)
	term := newTerminal(t, c.do, nil)
	for name, test := range map[string]struct {
		change []string
		want   string
	}{
		"no person has come yet": {nil, "authorization_pending"},
		"another program":        {[]string{"code_verifier", oauth2.GenerateVerifier()}, "invalid_grant"},
		"made up":                {[]string{"device_code", "x"}, "invalid_grant"},
		"another client":         {[]string{"client_id", "x"}, "invalid_client"},
		"another grant":          {[]string{"grant_type", "password"}, "unsupported_grant_type"},
	} {
		if answer, got := term.poll(test.change...); got != test.want || answer.Status != http.StatusBadRequest || answer.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %d %s, want %s", name, answer.Status, got, test.want)
		}
	}
	good := url.Values{"client_id": {handshake.ClientID}, "state": {"s"}, "c": {"c1"}, "code_challenge": {challenge}, "code_challenge_method": {"S256"}}
	for name, change := range map[string][]string{
		"no PKCE": {"code_challenge", ""}, "plain PKCE": {"code_challenge_method", "plain"}, "no state": {"state", ""},
		"no cluster": {"c", ""}, "other client": {"client_id", "x"}, "service": {"service", "a b"},
	} {
		form := url.Values{}
		for key := range good {
			form.Set(key, good.Get(key))
		}
		form.Set(change[0], change[1])
		if answer := c.do(http.MethodPost, "/device", form.Encode()); answer.Status != http.StatusBadRequest || !strings.Contains(answer.Body, "invalid_request") {
			t.Errorf("%s: %d %s", name, answer.Status, answer.Body)
		}
	}
	if kept, creates, _ := store.used(); kept+creates != 0 {
		t.Errorf("strangers wrote %d values in %d writes", kept, creates)
	}
	if answer := c.do(http.MethodGet, "/export", ""); !strings.Contains(answer.Body, `"deviceURL":"`+c.url+`/device"`) {
		t.Errorf("discovery: %s", answer.Body)
	}
}

func TestNoDevicesWithoutAStore(t *testing.T) {
	c := openCounter(t)
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if answer := c.do(method, "/device", ""); answer.Status != http.StatusNotFound {
			t.Errorf("%s: %d", method, answer.Status)
		}
	}
	if answer := c.do(http.MethodPost, "/token", "grant_type="+url.QueryEscape(handshake.DeviceGrantType)); !strings.Contains(answer.Body, "unsupported_grant_type") {
		t.Errorf("token: %s", answer.Body)
	}
	if answer := c.do(http.MethodGet, "/export", ""); strings.Contains(answer.Body, "deviceURL") {
		t.Errorf("discovery: %s", answer.Body)
	}
}

// P3: a user code is its first taker's, who has to be signed in and to confirm it,
// and what a person has not confirmed gets nowhere.
func TestP3DeviceBelongsToWhoConfirmedIt(t *testing.T) {
	c, _ := openDeviceCounter(t)
	term := newTerminal(t, c.do, []string{"widgets.example.org"})
	code := term.device.UserCode
	ada, many := c.browser("ada", "engine"), c.browser("many", "groups")
	deviceSignIn(t, ada, c.url, code, [2]string{"ada", "engine"})
	deviceSignIn(t, many, c.url, code, [2]string{"many", "groups"})
	if page := must(ada.Get(t.Context(), c.url+"/services")); page.URL.Path != "/device" {
		t.Errorf("services before the code is confirmed: %s", page.Body)
	}
	session := sessionOf(t, ada, c.url)
	if answer := c.do(http.MethodPost, "/bind", "service=widgets.example.org&code="+code, "Cookie", session); answer.Status != http.StatusConflict {
		t.Errorf("bind before the code is confirmed: %d", answer.Status)
	}
	if answer := c.do(http.MethodPost, "/device/claim", "code=BCDFG-HJKLM", "Cookie", session); answer.Status != http.StatusConflict {
		t.Errorf("another code: %d", answer.Status)
	}
	if _, got := term.poll(); got != "authorization_pending" {
		t.Errorf("poll: %s", got)
	}
	if answer := confirm(t, c, ada, code); answer.Status != http.StatusOK || !strings.Contains(answer.Body, "Waiting for your terminal") || answer.Header.Get("Refresh") != handshake.DeviceRefresh {
		t.Errorf("confirmed: %d %s", answer.Status, answer.Body)
	}
	if answer := confirm(t, c, many, code); answer.Status != http.StatusNotFound {
		t.Errorf("another person: %d %s", answer.Status, answer.Body)
	}
	if _, got := term.poll(); got != "authorization_pending" { // it says what it asks for
		t.Errorf("poll: %s", got)
	}
	answer := confirm(t, c, ada, code)
	if answer.Status != http.StatusSeeOther || answer.Header.Get("Location") != "/services" {
		t.Fatalf("the terminal has spoken: %d %s", answer.Status, answer.Body)
	}
	page := c.do(http.MethodGet, "/services", "", "Cookie", sessionCookie+"="+answer.Cookies[0].Value)
	if !strings.Contains(page.Body, code) || !strings.Contains(page.Body, " checked") {
		t.Errorf("services: %d %s", page.Status, page.Body)
	}
	out := c.do(http.MethodPost, "/logout", "", "Cookie", sessionCookie+"="+answer.Cookies[0].Value)
	if _, got := term.poll(); out.Status != http.StatusOK || got != "access_denied" {
		t.Errorf("after the person signed out: %d %s", out.Status, got)
	}
}

// A program without a browser learns the same as one that listens.
func TestDeviceAsksForWhatCannotBeHad(t *testing.T) {
	c, _ := openDeviceCounter(t)
	for service, want := range map[string]struct{ code, says string }{
		"gizmos.example.org":     {"access_denied", "not allowed you to bind gizmos.example.org"},
		"nothing.example.org":    {"invalid_scope", "does not offer nothing.example.org"},
		"continents.example.org": {"invalid_scope", "App Clusters cannot have continents.example.org"},
	} {
		term := newTerminal(t, c.do, []string{service})
		b := c.browser("ada", "engine")
		deviceSignIn(t, b, c.url, term.device.UserCode, [2]string{"ada", "engine"})
		confirm(t, c, b, term.device.UserCode)
		term.poll()
		if answer := confirm(t, c, b, term.device.UserCode); answer.Header.Get("Location") != "/done" {
			t.Errorf("%s: %d %s", service, answer.Status, answer.Body)
		}
		if answer, got := term.poll(); got != want.code || !strings.Contains(answer.Body, want.says) {
			t.Errorf("%s: %s %s", service, got, answer.Body)
		}
	}
}

// P17: a login at the issuer that is cancelled, or refused there, leaves the terminal waiting
// that shows the code, since more people than its owner may know that. The page says so, and
// offers to sign in again.
func TestP17DeviceIsCancelled(t *testing.T) {
	c, store := openDeviceCounter(t)
	term := newTerminal(t, c.do, []string{"widgets.example.org"})
	code, b := term.device.UserCode, c.browser("ada", "engine")
	c.issuer.Misbehave(testissuer.Faults{AuthorizeError: "access_denied"})
	page := must(b.Get(t.Context(), c.url+"/authorize?user_code="+code))
	checkPage(t, "cancelled", page.Body)
	again := "/authorize?user_code=" + code
	if page.Status != http.StatusForbidden || !strings.Contains(page.Body, "The terminal that shows the code "+code+" still waits") || !strings.Contains(page.Body, `href="`+again+`">Sign in again`) {
		t.Errorf("cancelled: %d %s", page.Status, page.Body)
	}
	if _, got := term.poll(); got != "authorization_pending" {
		t.Errorf("poll: %s", got)
	}
	if kept, creates, _ := store.used(); kept+creates != 0 {
		t.Errorf("a stranger wrote %d values in %d writes", kept, creates)
	}
	c.issuer.Misbehave(testissuer.Faults{})
	deviceSignIn(t, b, c.url, code, [2]string{"ada", "engine"})
	confirm(t, c, b, code)
	term.poll()
	if answer := confirm(t, c, b, code); answer.Header.Get("Location") != "/services" {
		t.Errorf("signed in again: %d %s", answer.Status, answer.Body)
	}
}

// P6, P7: without a login there are only the pages that ask for one, and no GET and
// no other site changes anything.
func TestP6P7DeviceRoutes(t *testing.T) {
	c, store := openDeviceCounter(t)
	code := newTerminal(t, c.do, nil).device.UserCode
	s := &handshake.Server{Opts: &handshake.Options{Devices: store}}
	for _, r := range s.DeviceRoutes() {
		method, path, _ := strings.Cut(r.Pattern, " ")
		if answer := c.do(method, path, ""); r.Login && answer.Status != http.StatusUnauthorized {
			t.Errorf("%s without a login: %d", r.Pattern, answer.Status)
		}
		if method == http.MethodPost {
			if answer := c.do(method, path, "x=y", "Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"); answer.Status != http.StatusForbidden {
				t.Errorf("%s from another site: %d", r.Pattern, answer.Status)
			}
		}
	}
	b := c.browser("ada", "engine")
	deviceSignIn(t, b, c.url, code, [2]string{"ada", "engine"})
	for _, path := range []string{"/device", "/device?user_code=" + code, "/services", "/done"} {
		if _, err := b.Get(t.Context(), c.url+path); err != nil {
			t.Error(err)
		}
	}
	if kept, creates, _ := store.used(); kept+creates != 0 {
		t.Errorf("%d values, %d writes", kept, creates)
	}
}

// P10: who guesses user codes is stopped before anything is looked up, and after a
// few tries altogether; who polls too often is told to slow down.
func TestP10DeviceGuesses(t *testing.T) {
	c, store := openDeviceCounter(t, func(o *Options) { o.Handshake.Limits.PerSubject = 5 })
	b := c.browser("ada", "engine")
	const guess = "BCDFG-HJKLM"
	deviceSignIn(t, b, c.url, guess, [2]string{"ada", "engine"})
	statuses := map[int]int{}
	for range 10 {
		statuses[confirm(t, c, b, guess).Status]++
	}
	if statuses[http.StatusNotFound] != 4 || statuses[http.StatusTooManyRequests] != 6 { // signing in was one
		t.Errorf("guesses: %v", statuses)
	}
	if _, creates, reads := store.used(); creates != 0 || reads > 11 { // whether the session has ended
		t.Errorf("guesses cost %d writes and %d reads", creates, reads)
	}
	codes := map[string]int{}
	term := newTerminal(t, c.do, nil)
	for range handshake.DevicePolls + 5 {
		_, code := term.poll()
		codes[code]++
	}
	if codes["authorization_pending"] < handshake.DevicePolls || codes["slow_down"] == 0 {
		t.Errorf("polls: %v", codes)
	}
}

func TestP11DevicePages(t *testing.T) {
	c, _ := openDeviceCounter(t)
	code := newTerminal(t, c.do, nil).device.UserCode
	b := c.browser("ada", "engine")
	pages := map[string]string{
		"ask":     c.do(http.MethodGet, "/device", "").Body,
		"wrong":   c.do(http.MethodGet, "/device?user_code=%3Cscript%3E", "").Body,
		"sign in": c.do(http.MethodGet, "/device?user_code="+code, "").Body,
		"confirm": deviceSignIn(t, b, c.url, code, [2]string{"ada", "engine"}).Body,
		"wait":    confirm(t, c, b, code).Body,
	}
	for name, want := range map[string]string{
		"ask": `name="user_code"`, "wrong": "not a code", "sign in": "Sign in", "confirm": "Ada &lt;b&gt;", "wait": "about to say",
	} {
		checkPage(t, name, pages[name])
		if !strings.Contains(pages[name], want) {
			t.Errorf("%s: no %q in\n%s", name, want, pages[name])
		}
	}
}

// deviceBinds is a whole login on another device, with the shipped rights, and what
// it leaves behind.
func deviceBinds(t *testing.T, w *world) {
	t.Helper()
	do := func(method, path, body string, header ...string) reply {
		return w.post(path, body, append(header, "Content-Type", "application/x-www-form-urlencoded")...)
	}
	before := w.kept()
	term := newTerminal(t, do, []string{"widgets.example.org"})
	b := testissuer.NewBrowser(testissuer.BrowserOptions{Username: "grace", Password: users["grace"].Password})
	page := deviceSignIn(t, b, w.url, term.device.UserCode, [2]string{"grace", users["grace"].Password})
	if answer := do(http.MethodPost, "/device/claim", url.Values{"code": {term.device.UserCode}}.Encode(), "Cookie", sessionOf(t, b, w.url)); answer.Status != http.StatusOK {
		t.Fatalf("claim: %d %s", answer.Status, answer.Body)
	}
	if answer, code := term.poll(); code != "authorization_pending" {
		t.Fatalf("poll: %s", answer.Body)
	}
	page = must(b.Submit(t.Context(), page.Forms[0]))
	if page.URL.Path != "/services" {
		t.Fatalf("%s %s", page.URL, page.Body)
	}
	if page = must(b.Submit(t.Context(), page.Forms[0])); page.URL.Path != "/done" || !strings.Contains(page.Body, "Your terminal goes on") {
		t.Fatalf("%s %s", page.URL, page.Body)
	}
	answer, _ := term.poll()
	if answer.Status != http.StatusOK {
		t.Fatalf("poll: %d %s", answer.Status, answer.Body)
	}
	grace := w.client(answer.Body)
	if id := grace.response.Authentication.OAuth2CodeGrant; id.SessionID != "s-1" || len(grace.response.Requests) != 1 {
		t.Errorf("response: %+v", grace.response)
	}
	if _, err := grace.kube.CoreV1().Secrets(grace.namespace).Get(t.Context(), v1alpha1.KubeconfigSecretName, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if answer, code := term.poll(); code != "invalid_grant" {
		t.Errorf("the answer is given twice: %d %s", answer.Status, answer.Body)
	}
	for _, visited := range b.URLs() {
		if strings.Contains(visited, term.device.DeviceCode) || strings.Contains(visited, term.verifier) {
			t.Errorf("P2: %s", visited)
		}
	}
	if left := w.kept() - before; left != 4 { // three of the device, and that the session has ended
		t.Errorf("%d objects are kept of a login", left)
	}
	deviceLeftovers(t, w)
}

// kept is how many objects the backend keeps of logins.
func (w *world) kept() int {
	w.t.Helper()
	return len(must(w.admin.CoreV1().ConfigMaps("klutch-backend").List(w.t.Context(), metav1.ListOptions{LabelSelector: v1alpha1.DeviceLoginLabel})).Items)
}

func deviceLeftovers(t *testing.T, w *world) {
	t.Helper()
	backend := must(kubernetes.NewForConfig(w.config))
	store := DeviceConfigMaps{Client: backend, Namespace: "klutch-backend"}
	before := w.kept()
	if _, err := store.sweep(t.Context(), time.Now()); err != nil || w.kept() != before {
		t.Errorf("swept what is in use: %d left of %d, %v", w.kept(), before, err)
	}
	if _, err := store.sweep(t.Context(), time.Now().Add(time.Hour)); err != nil || w.kept() != 0 {
		t.Errorf("%d left, %v", w.kept(), err)
	}
	// The second lock: RBAC would allow both.
	deleted := backend.CoreV1().ConfigMaps("klutch-backend").Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{})
	_, made := backend.CoreV1().ConfigMaps("klutch-backend").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	for what, err := range map[string]error{"delete another ConfigMap": deleted, "make another ConfigMap": made} {
		if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDeviceConfigMapsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		store := DeviceConfigMaps{Client: client, Namespace: "backend"}
		client.PrependReactor("list", "configmaps", inPages(t, client))
		var refused atomic.Bool
		client.PrependReactor("delete", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			name := action.(clienttesting.DeleteAction).GetName()
			return refused.CompareAndSwap(false, true), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), name, errors.New("a policy"))
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- store.Run(ctx) }()
		lives := map[string]time.Duration{"a": time.Minute, "b": time.Hour, "z": time.Minute}
		for n := range 3 * devicePage {
			lives[fmt.Sprint("c", n)] = time.Hour
		}
		for key, life := range lives {
			if err := store.Create(t.Context(), key, []byte(key), time.Now().Add(life)); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Create(t.Context(), "b", []byte("x"), time.Now()); err != auth.ErrDeviceTaken { //nolint:errorlint // the contract
			t.Errorf("taken: %v", err)
		}
		time.Sleep(deviceSweep + time.Second)
		left := must(client.Tracker().List(corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "backend")).(*corev1.ConfigMapList)
		if n := len(left.Items); !refused.Load() || n != len(lives)-1 {
			t.Errorf("%d are left, of which one may not be deleted", n)
		}
		time.Sleep(deviceSweep)
		for _, key := range []string{"a", "z"} {
			if _, err := store.Get(t.Context(), key); err != auth.ErrDevicePending { //nolint:errorlint // the contract
				t.Errorf("expired: %v", err)
			}
		}
		if value, err := store.Get(t.Context(), "b"); string(value) != "b" || err != nil {
			t.Errorf("not expired: %q %v", value, err)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Device logins that an API server does not let the backend delete are looked at ever more rarely, and soon
// after that is over they are gone.
func TestDeviceConfigMapsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		store := DeviceConfigMaps{Client: client, Namespace: "backend"}
		var asked atomic.Int32
		var over atomic.Bool
		client.PrependReactor("delete", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			asked.Add(1)
			return !over.Load(), nil, apierrors.NewForbidden(corev1.Resource("configmaps"), action.(clienttesting.DeleteAction).GetName(), errors.New("a policy"))
		})
		for n := range 10 {
			if err := store.Create(t.Context(), fmt.Sprint(n), nil, time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- store.Run(ctx) }()
		time.Sleep(3 * time.Hour)
		asked.Store(0)
		time.Sleep(3 * time.Hour)
		if n := asked.Load(); n != 30 {
			t.Errorf("in three hours ten ConfigMaps were to be deleted %d times", n)
		}
		over.Store(true)
		time.Sleep(time.Hour)
		if err := store.Create(t.Context(), "another", nil, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(deviceSweep + time.Second)
		left := must(client.Tracker().List(corev1.SchemeGroupVersion.WithResource("configmaps"), corev1.SchemeGroupVersion.WithKind("ConfigMap"), "backend")).(*corev1.ConfigMapList)
		if len(left.Items) > 0 {
			t.Errorf("%d are left", len(left.Items))
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// inPages answers lists as API servers do, in pages, of which none may be long.
func inPages(t *testing.T, client *fake.Clientset) clienttesting.ReactionFunc {
	t.Helper()
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		list := action.(clienttesting.ListActionImpl)
		if n := list.ListOptions.Limit; n <= 0 || n > 100 {
			t.Errorf("a list of up to %d", n)
		}
		found, err := client.Tracker().List(list.GetResource(), list.GetKind(), list.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		page := found.(*corev1.ConfigMapList)
		page.Items = slices.DeleteFunc(page.Items, func(m corev1.ConfigMap) bool { return m.Name <= list.ListOptions.Continue })
		slices.SortFunc(page.Items, func(a, b corev1.ConfigMap) int { return strings.Compare(a.Name, b.Name) })
		if most := int(list.ListOptions.Limit); most > 0 && len(page.Items) > most {
			page.Continue, page.Items = page.Items[most-1].Name, page.Items[:most]
		}
		return true, page, nil
	}
}

// A login on another device that cannot go on says which command begins another one, or where to enter the code
// of a terminal that still waits: a command without --device prints no code, and a page that is loaded again
// after a pause may have lost its login.
func TestDeviceLeadsOn(t *testing.T) {
	c, _ := openDeviceCounter(t)
	code := newTerminal(t, c.do, nil).device.UserCode
	ada, many := c.browser("ada", "engine"), c.browser("many", "groups")
	deviceSignIn(t, ada, c.url, code, [2]string{"ada", "engine"})
	deviceSignIn(t, many, c.url, code, [2]string{"many", "groups"})
	confirm(t, c, ada, code)
	for what, test := range map[string]struct {
		page reply
		want string
	}{
		"a code that is over":      {confirm(t, c, many, code), "Run kubectl bind " + c.url + " --device and enter the code that it prints at " + c.url + "/device."},
		"a callback that is over":  {c.do(http.MethodGet, "/callback?code=x&state=y", ""), "If kubectl bind --device still waits, enter its code at " + c.url + "/device."},
		"a session that has ended": {c.do(http.MethodGet, "/services", ""), "If kubectl bind --device still waits, enter its code at " + c.url + "/device."},
	} {
		if !strings.Contains(test.page.Body, test.want) {
			t.Errorf("%s: %d %s", what, test.page.Status, test.page.Body)
		}
	}
}
