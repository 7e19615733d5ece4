// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestDevice: the terminal is on a machine without a browser.
func TestDevice(t *testing.T) {
	testenv.Test(t, features.New("a login on another device").Assess("binds what is chosen there", step("device", boundOnAnotherDevice)).Feature())
}

func boundOnAnotherDevice(w world) {
	const plural = "radios"
	w.apply(w.s.Control, curiosity(plural))
	w.apply(w.s.Control, offer(plural)...)
	heard, done := w.bind("--device", "--service", plural+".example.org")
	page, words := heard("https://"), strings.Fields(heard("Enter the code "))
	code := words[3]

	browser := w.s.Browser(stack.Developer)
	typed, err := browser.Get(w.ctx, page)
	w.must(err)
	typed.Forms[0].Fields.Set("user_code", strings.ToLower(code))
	asked, err := browser.Submit(w.ctx, typed.Forms[0])
	w.must(err)
	if !strings.Contains(asked.Body, `href="/authorize?user_code=`+code+`"`) {
		w.Fatalf("no way to sign in: %s", asked.Body)
	}
	last, err := browser.Visit(w.ctx, w.s.BackendURL+"/authorize?user_code="+code)
	w.must(err)
	if !strings.Contains(last.Body, "Your terminal goes on") {
		w.Fatalf("%s: %s", last.URL, last.Body)
	}
	w.said(<-done, exitOK, code)
	w.await(w.binding(plural+".example.org"), stack.True(v1alpha1.ConditionReady))
	w.through(browser.URLs(), "/device", "/authorize?", "/callback?", "/device", "/services", "/bind", "/done")
}
