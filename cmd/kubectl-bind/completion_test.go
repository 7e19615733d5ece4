// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArguments(t *testing.T) {
	for _, c := range []struct{ argv, want []string }{
		{[]string{"kubectl-bind", "status"}, []string{"status"}},
		{[]string{"/usr/bin/kubectl-bind"}, []string{}},
		{[]string{"/usr/bin/kubectl_complete-bind", "status", ""}, []string{"__complete", "status", ""}},
		{[]string{"kubectl_complete-bind.exe", ""}, []string{"__complete", ""}},
	} {
		if diff := cmp.Diff(c.want, arguments(c.argv)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.argv, diff)
		}
	}
}

// kubectl reads candidates, a line each, and then what a shell may do besides.
func TestCompletion(t *testing.T) {
	app := newFakeAPI(t, map[string]any{group: served(true), bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
		binding("things.example.com", "Fake"))}).kubeconfig(t)
	for _, c := range []struct {
		name, want string
		line       []string
	}{
		{"a command", "status\tShow the APIs that are bound, and whether they work\n:4\n", []string{"sta"}},
		{"a binding", "things.example.com\n:4\n", []string{"status", "--kubeconfig", app, ""}},
		{"a binding to remove", "things.example.com\n:4\n", []string{"unbind", "--kubeconfig", app, "th"}},
		{"nothing more", ":4\n", []string{"unbind", "--kubeconfig", app, "things.example.com", ""}},
		{"no cluster", ":1\n", []string{"status", "--kubeconfig", "/nonexistent", ""}},
	} {
		argv := append([]string{completer}, c.line...)
		if r := (terminal{}).run(t.Context(), arguments(argv)...); r.code != exitOK || r.out != c.want {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}
