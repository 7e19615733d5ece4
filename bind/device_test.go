// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// newDeviceBackend is a fake one that knows other devices, and the document that
// says so.
func newDeviceBackend(t *testing.T) (*fakeBackend, *v1alpha1.BindingProvider) {
	t.Helper()
	b := newFakeBackend(t)
	rest := b.Config.Handler
	b.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/device" {
			rest.ServeHTTP(w, r)
			return
		}
		_ = r.ParseForm()
		b.asked = r.PostForm
		writeJSON(w, map[string]any{
			"device_code": "secret", "user_code": "BCDFG-HJKLM", "interval": 1, "expires_in": 600,
			"verification_uri": b.URL + "/device", "verification_uri_complete": b.URL + "/device?user_code=BCDFG-HJKLM",
		})
	})
	p, err := mustClient(t, b.URL).Discover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	codeGrant(p).DeviceURL = b.URL + "/device"
	return b, p
}

func refuseToken(w http.ResponseWriter, code string) {
	w.WriteHeader(http.StatusBadRequest)
	writeJSON(w, map[string]any{"error": code})
}

func TestLoginOnAnotherDevice(t *testing.T) {
	b, p := newDeviceBackend(t)
	polls := 0
	b.token = func(w http.ResponseWriter, form url.Values, state string) {
		polls++
		switch {
		case form.Get("device_code") != "secret" || oauth2.S256ChallengeFromVerifier(form.Get("code_verifier")) != b.asked.Get("code_challenge"):
			refuseToken(w, "invalid_grant")
		case polls == 1:
			refuseToken(w, "authorization_pending")
		default:
			writeJSON(w, bindingResponse(state))
		}
	}
	var shown []string
	r, err := mustClient(t, b.URL).Login(t.Context(), p, LoginOptions{
		ClusterID: "abc123", Services: []string{"things.example.com", "others.example.com"}, Device: true,
		Prompt: func(u, code string) { shown = append(shown, u, code) },
		Open:   func(string) error { t.Error("a browser was opened"); return nil },
	})
	if err != nil || string(r.Kubeconfig) != "the kubeconfig" || polls != 2 {
		t.Fatalf("Login = %+v, %v after %d polls", r, err, polls)
	}
	if diff := cmp.Diff([]string{b.URL + "/device", "BCDFG-HJKLM"}, shown); diff != "" {
		t.Errorf("prompt (-want +got):\n%s", diff)
	}
	if b.asked.Get("c") != "abc123" || b.asked.Get("client_id") != ClientID || len(b.asked["service"]) != 2 {
		t.Errorf("device request: %v", b.asked)
	}
}

func TestLoginOnAnotherDeviceEndsBadly(t *testing.T) {
	for name, c := range map[string]struct {
		token func(http.ResponseWriter, url.Values, string)
		want  error
		words string
	}{
		"refused":                {func(w http.ResponseWriter, _ url.Values, _ string) { refuseToken(w, "access_denied") }, nil, "access_denied"},
		"expired":                {func(w http.ResponseWriter, _ url.Values, _ string) { refuseToken(w, "expired_token") }, nil, "expired_token"},
		"another login's answer": {func(w http.ResponseWriter, _ url.Values, _ string) { writeJSON(w, bindingResponse("other")) }, ErrResponse, "another login"},
		"abandoned": {func(w http.ResponseWriter, _ url.Values, _ string) {
			refuseToken(w, "authorization_pending")
		}, context.DeadlineExceeded, "wait for the person"},
	} {
		t.Run(name, func(t *testing.T) {
			b, p := newDeviceBackend(t)
			b.token = c.token
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			_, err := mustClient(t, b.URL).Login(ctx, p, LoginOptions{Device: true, Prompt: func(string, string) {
				if name == "abandoned" {
					cancel(context.DeadlineExceeded)
				}
			}})
			if err == nil || !strings.Contains(err.Error(), c.words) || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("error = %v, want %q", err, c.words)
			}
			if _, refused := errors.AsType[*auth.Error](err); refused != (c.want == nil) {
				t.Errorf("error = %v, of OAuth: %t", err, refused)
			}
		})
	}
}

// A document cannot send a login to another place, even if it was not discovered.
func TestP8LoginOnAnotherDeviceStaysOnOrigin(t *testing.T) {
	for deviceURL, want := range map[string]error{
		"":                                  ErrNoDevice,
		"http://127.0.0.2:1/device":         ErrNotBackend,
		"https://evil.example/device":       ErrNotBackend,
		"http://a@127.0.0.1:1/device":       ErrNotBackend,
		"javascript:alert(1)":               ErrNotBackend,
		"http://127.0.0.1:1.evil.example/x": ErrNotBackend,
	} {
		b, p := newDeviceBackend(t)
		codeGrant(p).DeviceURL = deviceURL
		_, err := mustClient(t, b.URL).Login(t.Context(), p, LoginOptions{Device: true, Prompt: func(string, string) { t.Error("prompted") }})
		if !errors.Is(err, want) || b.asked != nil {
			t.Errorf("at %q: error = %v, want %v", deviceURL, err, want)
		}
	}
}
