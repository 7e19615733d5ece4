// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// A terminal is what a command line is typed into.
type terminal struct {
	stdin string
	env   map[string]string
	start func(program string, args ...string) error
	whole bool   // commands in hints are shown with their flags
	until string // the words after which the person gives up; empty: they wait
}

type result struct {
	code        int
	out, errOut string
}

// String is what golden files hold.
func (r result) String() string {
	return fmt.Sprintf("exit code %d\n--- stdout\n%s--- stderr\n%s", r.code, r.out, r.errOut)
}

func (m terminal) run(ctx context.Context, args ...string) result { //nolint:contextcheck // a deadline is of its parent
	var out, errOut bytes.Buffer
	s := system{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(m.stdin), Out: &out, ErrOut: &errOut},
		getenv:    func(key string) string { return m.env[key] },
		now:       func() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) },
		start:     m.start,
	}
	if s.start == nil {
		s.start = func(string, ...string) error { return os.ErrNotExist }
	}
	if m.until != "" {
		passed := make(chan struct{})
		ctx, s.ErrOut = deadline{ctx, passed}, hearing{&errOut, m.until, sync.OnceFunc(func() { close(passed) })}
	}
	code := run(ctx, s, args)
	if m.whole {
		return result{code, out.String(), errOut.String()}
	}
	short := func(said string) string { return pasted.ReplaceAllString(said, "$1") }
	return result{code, short(out.String()), short(errOut.String())}
}

// pasted are the flags that commands in hints have from the command line: see TestPasteable.
var pasted = regexp.MustCompile(`(kubectl(?: bind)?)(?: --(?:kubeconfig|backend-certificate-authority|context)=\S+)+`)

// A deadline passes when it is told to, and not by the clock.
type deadline struct {
	context.Context //nolint:containedctx // a deadline is a context
	passed          chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// hearing calls then once words are written.
type hearing struct {
	io.Writer
	words string
	then  func()
}

func (h hearing) Write(text []byte) (int, error) {
	n, err := h.Writer.Write(text)
	if bytes.Contains(text, []byte(h.words)) {
		h.then()
	}
	return n, err
}

// replaced hides what differs from run to run.
func (r result) replaced(pairs ...string) result {
	replacer := strings.NewReplacer(pairs...)
	r.out, r.errOut = replacer.Replace(r.out), replacer.Replace(r.errOut)
	return r
}

// A recorder keeps the requests that a server got.
type recorder struct {
	mu       sync.Mutex
	requests []string
}

func (r *recorder) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.requests = append(r.requests, req.Method+" "+req.URL.Path+query(req.URL))
		r.mu.Unlock()
		next.ServeHTTP(w, req)
	})
}

func query(u *url.URL) string {
	if u.Query().Has("dryRun") {
		return "?dryRun=" + u.Query().Get("dryRun")
	}
	return ""
}

// writes are the requests that could change something.
func (r *recorder) writes() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var w []string
	for _, req := range r.requests {
		if !strings.HasPrefix(req, "GET ") && !strings.HasSuffix(req, "?dryRun=All") {
			w = append(w, req)
		}
	}
	return w
}

// fakeAPI is an API server that holds what the map says, by path, and nothing else.
type fakeAPI struct {
	*httptest.Server
	recorder
	objects map[string]any
	warning string
	sent    any // the last one
}

func newFakeAPI(t *testing.T, objects map[string]any) *fakeAPI {
	t.Helper()
	a := &fakeAPI{objects: objects}
	a.Server = httptest.NewTLSServer(a.wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if a.warning != "" {
			w.Header().Set("Warning", `299 - "`+a.warning+`"`)
		}
		o, ok := a.objects[r.URL.Path]
		if !ok && r.URL.Path == "/version" {
			o, ok = map[string]any{"major": "1", "minor": "36", "gitVersion": "v1.36.3"}, true
		}
		if r.Method != http.MethodGet { // say yes, forget it
			ok = json.NewDecoder(r.Body).Decode(&o) == nil
			a.mu.Lock()
			a.sent = o
			a.mu.Unlock()
		}
		if fixed, is := a.objects[r.Method+" "+r.URL.Path]; is {
			o, ok = fixed, true
		}
		if !ok {
			o = failure(http.StatusNotFound, "NotFound", r.URL.Path+" not found")
		}
		if m, is := o.(map[string]any); is && m["kind"] == "Status" {
			w.WriteHeader(m["code"].(int))
		}
		_ = json.NewEncoder(w).Encode(o)
	})))
	t.Cleanup(a.Close)
	return a
}

// failure is the answer of an API server that refuses.
func failure(code int, reason, message string) map[string]any {
	return map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message}
}

// kubeconfig writes the file for an administrator of the server.
func (a *fakeAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	c := clientcmdapi.NewConfig()
	c.Clusters["app"] = &clientcmdapi.Cluster{Server: a.URL, CertificateAuthorityData: pemOf(a.Server)}
	c.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: "admin"}
	c.Contexts["app"] = &clientcmdapi.Context{Cluster: "app", AuthInfo: "me"}
	c.CurrentContext = "app"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func list(kind, apiVersion string, items ...any) map[string]any {
	return map[string]any{"kind": kind, "apiVersion": apiVersion, "items": items, "metadata": map[string]any{}}
}

const (
	group        = "/apis/klutch.anynines.com/v1alpha1"
	bindingsPath = group + "/namespaces/klutch-bind/apiservicebindings"
)

// served is discovery for APIServiceBindings.
func served(namespaced bool) map[string]any {
	return map[string]any{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "klutch.anynines.com/v1alpha1",
		"resources": []any{map[string]any{"name": "apiservicebindings", "namespaced": namespaced, "kind": "APIServiceBinding", "verbs": []any{"get", "list"}}},
	}
}

func binding(name, provider string, conditions ...any) map[string]any {
	return map[string]any{
		"kind": "APIServiceBinding", "apiVersion": "klutch.anynines.com/v1alpha1",
		"metadata": map[string]any{"name": name, "namespace": "klutch-bind", "creationTimestamp": "2026-07-01T09:00:00Z", "generation": 1},
		"spec": map[string]any{
			"kubeconfigSecretRef": map[string]any{"name": "kubeconfig-abcde", "namespace": "klutch-bind", "key": "kubeconfig"},
			"permissionClaims":    []any{map[string]any{"resource": "secrets", "version": "v1", "state": "Accepted", "required": true}},
		},
		"status": map[string]any{"providerPrettyName": provider, "conditions": conditions},
	}
}

func condition(kind, status, reason, message string) map[string]any {
	c := map[string]any{"type": kind, "status": status, "lastTransitionTime": "2026-07-01T10:00:00Z"}
	if reason != "" {
		c["severity"], c["reason"], c["message"] = "Error", reason, message
	}
	return c
}

// A table, and what a hostile provider writes into it (P19).
func TestP19Status(t *testing.T) {
	app := newFakeAPI(t, map[string]any{group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
		binding("postgresqlinstances.anynines.com", "Data Services", condition("Ready", "True", "", ""), condition("Connected", "True", "", "")),
		binding("backups.anynines.com", "Evil\x1b[31m\r\u202eInc", condition("Ready", "False", "APIServiceExportNotFound", "gone\x1b[2J\n\u2066x "+strings.Repeat("long ", 2000))),
		binding("restores.anynines.com", ""),
	)})
	kubeconfig := app.kubeconfig(t)
	for _, c := range []struct {
		golden string
		args   []string
	}{
		{"status.txt", []string{"status"}},
		{"status-wide.txt", []string{"status", "-o", "wide"}},
		{"status-one.txt", []string{"status", "postgresqlinstances.anynines.com"}},
		{"status-name.txt", []string{"status", "-o", "name"}},
		{"status-yaml.txt", []string{"status", "postgresqlinstances.anynines.com", "-o", "yaml"}},
		{"status-jsonpath.txt", []string{"status", "-o", `jsonpath={.items[*].metadata.name}{"\n"}`}},
		{"status-unknown.txt", []string{"status", "nothing.example.com"}},
	} {
		t.Run(c.golden, func(t *testing.T) {
			golden(t, c.golden, terminal{}.run(t.Context(), append(c.args, "--kubeconfig", kubeconfig)...).String())
		})
	}
}

func TestStatusOfNothing(t *testing.T) {
	for name, objects := range map[string]map[string]any{
		"no CRD":      {},
		"no bindings": {group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1")},
	} {
		t.Run(name, func(t *testing.T) {
			r := terminal{}.run(t.Context(), "status", "--kubeconfig", newFakeAPI(t, objects).kubeconfig(t))
			if r.code != exitOK || r.out != "" || !strings.Contains(r.errOut, "Nothing is bound") {
				t.Errorf("got %v", r)
			}
		})
	}
}

// Where bindings are cluster-scoped, that is spoken.
func TestStatusOfClusterScopedBindings(t *testing.T) {
	app := newFakeAPI(t, map[string]any{group: served(false), group + "/apiservicebindings": list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
		binding("things.example.com", "Old", condition("Ready", "True", "", ""), condition("Connected", "True", "", "")))})
	r := terminal{}.run(t.Context(), "status", "-o", "name", "--kubeconfig", app.kubeconfig(t))
	if r.code != exitOK || r.out != "apiservicebinding.klutch.anynines.com/things.example.com\n" {
		t.Errorf("got %v", r)
	}
}

// Klutch's konnector writes Ready as soon as it has read the Secret, whatever comes of it.
func TestStatusOfReadyBySecretAlone(t *testing.T) {
	app := newFakeAPI(t, map[string]any{group: served(false), group + "/apiservicebindings": list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
		binding("things.example.com", "", condition("SecretValid", "True", "", ""), condition("Ready", "True", "", "")))})
	r := terminal{}.run(t.Context(), "status", "--kubeconfig", app.kubeconfig(t))
	if r.code != exitNotReady || !strings.Contains(r.out, "Unknown") || !strings.Contains(r.out, "not connected yet") {
		t.Errorf("got %v", r)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"frobnicate"}, `"frobnicate" is neither a command nor the URL of a backend`},
		{[]string{"--frobnicate"}, "unknown flag: --frobnicate"},
		{[]string{"https://a/export", "https://b/export"}, "one argument at most"},
		{[]string{"https://a/export", "--dry-run=maybe"}, "neither none, client nor server"},
		{[]string{"https://a/export", "--dry-run"}, "name the services with --service"},
		{[]string{"https://a/export", "-o", "xml"}, "xml"},
		{[]string{"https://a/export", "--service", "databases"}, "RESOURCE.GROUP"},
		{[]string{"https://a/export", "--konnector-image", "a", "--skip-konnector"}, "exclude each other"},
		{[]string{"https://a/export", "--timeout", "soon"}, "invalid"},
		{[]string{"https://a/export", "-n", "default"}, "bindings live in namespace klutch-bind"},
		{[]string{"apiservice"}, "-f FILE is missing"},
		{[]string{"apiservice", "-f", "x"}, "--remote-kubeconfig"},
		{[]string{"apiservice", "x"}, `unknown argument "x"`},
		{[]string{"status", "a", "b"}, "one argument at most"},
		{[]string{"unbind"}, "name one binding"},
		{[]string{"unbind"}, "See 'kubectl bind unbind --help'."},
		{[]string{"claims", "--yes"}, "name the binding"},
		{[]string{"frobnicate", "https://a/export"}, `"frobnicate" is neither`},
		{[]string{"konnector", "manifests"}, "--image is missing"},
		{[]string{"doctor", "-o", "yaml"}, "only json"},
		{[]string{"version", "-o", "xml"}, "neither json nor yaml"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			r := terminal{}.run(t.Context(), c.args...)
			if r.code != exitUsage || r.out != "" || !strings.Contains(r.errOut, c.want) {
				t.Errorf("got %v, want %q", r, c.want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	r := terminal{}.run(t.Context(), "--help")
	home, _ := os.UserHomeDir()
	golden(t, "help.txt", r.replaced(home, "~").String())
	for _, command := range []string{"claims", "konnector", "status"} {
		golden(t, "help-"+command+".txt", terminal{}.run(t.Context(), command, "--help").replaced(home, "~").String())
	}
	if r := (terminal{}).run(t.Context(), "version"); r.code != exitOK || !regexp.MustCompile(`^kubectl-bind v\d+\.\d+\.\d+`).MatchString(r.out) {
		t.Errorf("version: %v", r)
	}
	if r := (terminal{}).run(t.Context(), "completion", "bash"); r.code != exitOK || !strings.Contains(r.out, "bash completion") {
		t.Errorf("completion: exit code %d", r.code)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := (terminal{}).run(ctx, "https://127.0.0.1:1/export", "--dry-run", "--service", "a.example.com"); r.code != exitInterrupted || !strings.Contains(r.errOut, "interrupted") {
		t.Errorf("got %v", r)
	}
}

// A server that is not a backend is recognised, and the message says what to do.
func TestNotABackend(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html>"))
	}))
	defer page.Close()
	nothing := httptest.NewServer(http.NotFoundHandler())
	defer nothing.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	secret := httptest.NewTLSServer(nil)
	secret.Config.ErrorLog = nil
	defer secret.Close()
	for _, c := range []struct{ name, url string }{
		{"page", page.URL + "/export"},
		{"404", nothing.URL + "/export"},
		{"refused", closed.URL + "/export"},
		{"authority", secret.URL + "/export"},
		{"plain", "http://klutch.example.com/export"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := terminal{}.run(t.Context(), c.url, "--dry-run", "--service", "things.example.com")
			u, _ := url.Parse(c.url)
			golden(t, "not-a-backend-"+c.name+".txt", r.replaced(c.url, "URL", u.Host, "HOST").String())
		})
	}
}

var (
	regexpSecret = regexp.MustCompile(`kubeconfig-[a-z0-9]{5}\b`)
	regexpLogin  = regexp.MustCompile(`https://\S*/authorize\?\S+`)
	regexpCode   = regexp.MustCompile(`[A-Z]{4}-[A-Z]{4}`)
)

func newTestPlugin(stdin string) *plugin {
	return &plugin{system: system{now: time.Now}, answers: bufio.NewReader(strings.NewReader(stdin)), talk: io.Discard}
}

// Commands in hints, errors and findings lead where this command line led.
func TestPasteable(t *testing.T) {
	p := &plugin{flags: genericclioptions.NewConfigFlags(true), ca: "its ca.pem"}
	*p.flags.KubeConfig, *p.flags.Context = "app.yaml", "o'app"
	const kubeconfig, flags, ca = " --kubeconfig=app.yaml", ` --kubeconfig=app.yaml --context='o'\''app'`, ` --backend-certificate-authority='its ca.pem'`
	for text, want := range map[string]string{
		"Run kubectl bind repair: it writes":                  "Run kubectl bind" + flags + ca + " repair: it writes",
		"Run: kubectl bind https://klutch.example.com":        "Run: kubectl bind" + flags + ca + " https://klutch.example.com",
		"kubectl bind URL, and sign out":                      "kubectl bind" + flags + ca + " URL, and sign out",
		"Look: kubectl -n klutch-bind get pods. Or so":        "Look: kubectl" + flags + " -n klutch-bind get pods. Or so",
		"kubectl delete crd a.b, kubectl bind unbind a.b":     "kubectl" + flags + " delete crd a.b, kubectl bind" + flags + " unbind a.b",
		"What there is: kubectl config get-contexts":          "What there is: kubectl" + kubeconfig + " config get-contexts",
		"operators, for whom kubectl bind doctor says":        "operators, for whom kubectl bind doctor says",
		"See 'kubectl bind status --help'.":                   "See 'kubectl bind status --help'.",
		"kubectl bind has not made it; run it again":          "kubectl bind has not made it; run it again",
		"kubectl -n tenant patch clusterbinding (theirs)":     "kubectl -n tenant patch clusterbinding (theirs)",
		"the backend: kubectl apply -k deploy/backend":        "the backend: kubectl apply -k deploy/backend",
		"kubectl bind" + flags + " status is as it was put":   "kubectl bind" + flags + " status is as it was put",
		"See kubectl bind status. It says: run kubectl get a": "See kubectl bind" + flags + " status. It says: run kubectl get a",
	} {
		if got := pasteable(p, text); got != want {
			t.Errorf("%s\n got %s\nwant %s", text, got, want)
		}
	}
	*p.flags.Impersonate, *p.flags.ImpersonateUID, *p.flags.ImpersonateGroup, *p.flags.ImpersonateUserExtra = "me", "7", []string{"a", "b c"}, []string{"k=v"}
	if got, want := pasteable(p, "kubectl get a"), "kubectl"+flags+" --as=me --as-uid=7 --as-group=a --as-group='b c' --as-user-extra='k=v' get a"; got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	for _, c := range rootCommand(p).Commands() {
		if text := "kubectl bind " + c.Name(); c.Name() != "version" && pasteable(p, text) == text {
			t.Errorf("%s does not lead anywhere", text)
		}
	}
}

// What a command says to do next is a command that leads to the same cluster.
func TestHintsCanBePasted(t *testing.T) {
	app := newFakeAPI(t, nil).kubeconfig(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status", "--context", "nowhere"}, "kubectl --kubeconfig=" + app + " config get-contexts"},
		{[]string{"unbind"}, "kubectl bind --kubeconfig=" + app + " status lists them"},
	} {
		if got := (terminal{whole: true}).run(t.Context(), append(c.args, "--kubeconfig", app)...); !strings.Contains(got.errOut, c.want) {
			t.Errorf("%v: %s", c.args, got)
		}
	}
	for want, args := range map[string][]string{ // flags may stand before a command
		"Nothing is bound in this cluster yet": {"--kubeconfig=" + app, "status"},
		"open /nonexistent/ca.pem":             {"--kubeconfig=" + app, "--backend-certificate-authority=/nonexistent/ca.pem", "services", "https://klutch.example.org"},
	} {
		if got := (terminal{}).run(t.Context(), args...); !strings.Contains(got.errOut, want) {
			t.Errorf("%v: %s", args, got)
		}
	}
}
