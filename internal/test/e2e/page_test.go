// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer/chromium"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestP11RealBrowser(t *testing.T) {
	f := features.New("services are chosen in a real browser").
		Assess("with a keyboard, and without scripts", step("real-browser", chosenByKeyboard)).
		Feature()
	testenv.Test(t, f)
}

func chosenByKeyboard(w world) {
	chosen := []string{"lamps", "vases"}
	for _, plural := range append(chosen, "chairs") {
		w.apply(w.s.Control, curiosity(plural))
		w.apply(w.s.Control, offer(plural)...)
	}
	page := chromium.Start(w.T, chromium.Options{Trust: w.certificate()})
	heard, done := w.bind()
	page.Open(heard("https://"))

	page.Await(`document.activeElement.name == "username"`)
	page.Type(stack.Developer)
	page.Press("Tab")
	page.Type(stack.Password)
	page.Press("Enter")
	page.Await(`document.title.startsWith("Choose services") && document.readyState == "complete"`)
	page.Await(`document.body.innerText.includes("caching") && !!document.querySelector("a[href='https://valkey.io/docs/']")`) // of the key-value store's template
	var code string
	page.Eval(`document.querySelector("dd .code").innerText`, &code)
	for _, plural := range chosen {
		page.PressUntil("Tab", 30, `document.activeElement.value == "`+plural+`.example.org"`)
		page.Press("Space")
	}
	page.PressUntil("Tab", 30, `document.activeElement.matches("form[action='/bind'] button")`)
	page.Press("Enter")
	page.Await(`document.querySelector("h1")?.innerText.startsWith("The login is complete")`)

	w.said(<-done, exitOK, code)
	for _, plural := range chosen {
		w.await(w.binding(plural+".example.org"), stack.True(v1alpha1.ConditionReady))
	}
	if _, err := w.binding("chairs.example.org").Get(w.ctx); err == nil {
		w.Error("what was not chosen is bound")
	}
	if complaints := page.Complaints(); len(complaints) > 0 {
		w.Errorf("the browser complains:\n%s", strings.Join(complaints, "\n"))
	}
	w.through(page.URLs(), "/authorize?", "/callback?", "/services", "/bind", "/done", "/callback?")
}

// through fails the test unless the URLs have these paths in this order, and none a secret.
func (w world) through(urls []string, paths ...string) {
	w.Helper()
	token := w.credential()
	for _, u := range urls {
		if len(paths) > 0 && strings.Contains(u, paths[0]) {
			paths = paths[1:]
		}
		if strings.Contains(u, token) || strings.Contains(u, "password") {
			w.Errorf("a URL carries a secret: %.60s…", u)
		}
	}
	if len(paths) > 0 {
		w.Errorf("the browser has not been to %s: %q", paths, urls)
	}
}

// bind runs kubectl bind. Heard returns the first line that begins with a prefix.
func (w world) bind(args ...string) (heard func(prefix string) string, done <-chan stack.Output) {
	lines, out := make(chan string, 100), make(chan stack.Output, 1)
	go func() {
		out <- w.s.BindHearing(w.ctx, func(line string) { lines <- line }, args...)
		close(lines)
	}()
	return func(prefix string) string {
		w.Helper()
		for line := range lines {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
		w.Fatalf("kubectl bind ended and did not say %q: %+v", prefix, <-out)
		return ""
	}, out
}

func (w world) binding(name string) stack.Object {
	return stack.Object{Cluster: w.s.App, Resource: v1alpha1.Resource("apiservicebindings"), Namespace: v1alpha1.Namespace, Name: name}
}

func (w world) certificate() *x509.Certificate {
	w.Helper()
	data, err := os.ReadFile(w.s.BackendCA)
	w.must(err)
	block, _ := pem.Decode(data)
	cert, err := x509.ParseCertificate(block.Bytes)
	w.must(err)
	return cert
}

// curiosity is a CRD such as that of trinkets.
func curiosity(plural string) *unstructured.Unstructured {
	u := trinketCRD()
	u.SetName(plural + ".example.org")
	singular := strings.TrimSuffix(plural, "s")
	kind := strings.ToUpper(singular[:1]) + singular[1:]
	u.Object["spec"].(map[string]any)["names"] = map[string]any{"plural": plural, "singular": singular, "kind": kind, "listKind": kind + "List"}
	return u
}
