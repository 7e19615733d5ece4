// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/auth"
)

// visit is a browser that follows where it is sent.
func visit(t *testing.T) func(string) error {
	t.Helper()
	return func(target string) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
}

func TestLogin(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var shown, code string
	r, err := c.Login(t.Context(), p, LoginOptions{
		ClusterID: "abc123", Services: []string{"things.example.com", "others.example.com"}, Open: visit(t),
		Prompt: func(u, c string) { shown, code = u, c },
	})
	if err != nil {
		t.Fatal(err)
	}
	if string(r.Kubeconfig) != "the kubeconfig" || len(r.Requests) != 1 {
		t.Errorf("response = %+v", r)
	}
	want := url.Values{"c": {"abc123"}, "service": {"things.example.com", "others.example.com"}, "client_id": {"kubectl-bind"}, "response_type": {"code"}, "code_challenge_method": {"S256"}}
	got := maps.Clone(b.asked)
	for k := range got {
		if want[k] == nil {
			delete(got, k)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("authorize query (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(shown, b.URL+"/authorize?") || code != auth.DisplayCode(b.asked.Get("code_challenge")) {
		t.Errorf("prompt showed %q with code %q", shown, code)
	}
}

func TestLoginRefused(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Login(t.Context(), p, LoginOptions{Open: func(target string) error {
		u, _ := url.Parse(target)
		answer := url.Values{"error": {"access_denied"}, "error_description": {"not you"}, "state": {u.Query().Get("state")}, "iss": {b.URL}}
		return visit(t)(u.Query().Get("redirect_uri") + "?" + answer.Encode())
	}})
	e, ok := errors.AsType[*auth.Error](err)
	if !ok || e.Code != "access_denied" || e.Description != "not you" {
		t.Errorf("error = %v", err)
	}
}

func TestLoginAbandoned(t *testing.T) {
	b := newFakeBackend(t)
	c := mustClient(t, b.URL)
	p, err := c.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Login(ctx, p, LoginOptions{}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for the browser") {
		t.Errorf("error = %v", err)
	}
}

func TestRedeem(t *testing.T) {
	reply := func(change func(map[string]any)) func(http.ResponseWriter, url.Values, string) {
		return func(w http.ResponseWriter, _ url.Values, state string) {
			r := bindingResponse(state)
			change(r)
			writeJSON(w, r)
		}
	}
	for _, c := range []struct {
		name  string
		token func(http.ResponseWriter, url.Values, string)
		want  string
	}{
		{"another login's answer", func(w http.ResponseWriter, _ url.Values, _ string) { writeJSON(w, bindingResponse("other")) }, "belongs to another login"},
		{"no login in the answer", reply(func(r map[string]any) { delete(r, "authentication") }), "belongs to another login"},
		{"another kind", reply(func(r map[string]any) { r["kind"] = "Secret" }), "no BindingResponse"},
		{"another version", reply(func(r map[string]any) { r["apiVersion"] = "v1alpha1" }), "no BindingResponse"},
		{"no kubeconfig", reply(func(r map[string]any) { delete(r, "kubeconfig") }), "no kubeconfig"},
		{"not JSON", func(w http.ResponseWriter, _ url.Values, _ string) { _, _ = io.WriteString(w, "<html>\x1b[2J") }, "answer of the backend refused"},
		{"invalid grant", func(w http.ResponseWriter, _ url.Values, _ string) {
			w.WriteHeader(http.StatusBadRequest)
			writeJSON(w, map[string]any{"error": "invalid_grant", "error_description": "used\x1b[2J"})
		}, "invalid_grant: used?[2J"},
		{"server error", func(w http.ResponseWriter, _ url.Values, _ string) {
			http.Error(w, "oops", http.StatusInternalServerError)
		}, "500 Internal Server Error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newFakeBackend(t)
			b.token = c.token
			client := mustClient(t, b.URL)
			p, err := client.Discover(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.Login(t.Context(), p, LoginOptions{Open: visit(t)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want %q", err, c.want)
			}
		})
	}
}

// A token endpoint that redirects would have the code sent elsewhere.
func TestP8RedeemFollowsNothing(t *testing.T) {
	b := newFakeBackend(t)
	var followed atomic.Bool
	b.token = func(w http.ResponseWriter, form url.Values, _ string) {
		followed.Store(followed.Load() || form.Get("again") != "")
		w.Header().Set("Location", "/token?again=1")
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	client := mustClient(t, b.URL)
	p, err := client.Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Redeem(t.Context(), p, auth.Grant{Code: "c", Verifier: "v", State: "s"}); !errors.Is(err, ErrResponse) || followed.Load() {
		t.Errorf("error = %v, followed %v", err, followed.Load())
	}
}
