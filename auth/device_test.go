// SPDX-License-Identifier: Apache-2.0

package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/auth"
)

// refuse is a backend's refusal.
func refuse(code string) error { return &auth.Error{Code: code} }

func TestPolling(t *testing.T) {
	pending, slow := refuse("authorization_pending"), refuse("slow_down")
	gone := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	tests := map[string]struct {
		interval int64
		answers  []error // nil is a good one
		want     error
		at       []int // when polls came, in seconds
	}{
		"at once":               {interval: 2, answers: []error{nil}, at: []int{2}},
		"default interval":      {answers: []error{pending, nil}, at: []int{5, 10}},
		"pending":               {interval: 3, answers: []error{pending, pending, nil}, at: []int{3, 6, 9}},
		"slow down":             {interval: 1, answers: []error{slow, pending, slow, nil}, at: []int{1, 7, 13, 24}},
		"denied":                {interval: 1, answers: []error{pending, refuse("access_denied")}, want: &auth.Error{Code: "access_denied"}, at: []int{1, 2}},
		"expired":               {interval: 1, answers: []error{refuse("expired_token")}, want: &auth.Error{Code: "expired_token"}, at: []int{1}},
		"something else":        {interval: 1, answers: []error{refuse("invalid_client")}, want: &auth.Error{Code: "invalid_client"}, at: []int{1}},
		"backend restarts":      {interval: 1, answers: []error{pending, gone, io.ErrUnexpectedEOF, nil}, want: io.ErrUnexpectedEOF, at: []int{1, 2, 4}},
		"backend is away":       {interval: 1, answers: []error{gone, gone, gone, nil}, at: []int{1, 3, 7, 15}},
		"backend is in trouble": {interval: 1, answers: []error{auth.ErrUnavailable, refuse("temporarily_unavailable"), nil}, at: []int{1, 3, 7}},
		"bad certificate":       {interval: 1, answers: []error{errors.New("x509")}, want: errors.New("x509"), at: []int{1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start, polls := time.Now(), []int(nil)
				exchange := func(_ context.Context, form url.Values) ([]byte, error) {
					if form.Get("device_code") != "secret" || form.Get("code_verifier") != "v" || form.Get("client_id") != "cli" {
						t.Errorf("form = %v", form)
					}
					polls = append(polls, int(time.Since(start).Seconds()))
					return []byte("body"), tt.answers[len(polls)-1]
				}
				grant := auth.Grant{ClientID: "cli", Verifier: "v", Device: &oauth2.DeviceAuthResponse{DeviceCode: "secret", Interval: tt.interval, Expiry: start.Add(time.Hour)}}
				_, err := grant.Redeem(t.Context(), exchange)
				if fmt.Sprint(err) != fmt.Sprint(tt.want) {
					t.Errorf("Redeem = %v, want %v", err, tt.want)
				}
				if diff := cmp.Diff(tt.at, polls); diff != "" {
					t.Errorf("polls at (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestPollingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchange := func(context.Context, url.Values) ([]byte, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
		}
		grant := auth.Grant{Device: &oauth2.DeviceAuthResponse{Interval: 5, Expiry: time.Now().Add(10 * time.Minute)}}
		start := time.Now()
		_, err := grant.Redeem(t.Context(), exchange)
		var refused *auth.Error
		if took := time.Since(start); !errors.As(err, &refused) || refused.Code != "expired_token" || took > 12*time.Minute {
			t.Errorf("Redeem at a backend that stays away = %v after %s", err, took)
		}
		grant.Device.Expiry = time.Now().Add(10 * time.Minute)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(errors.New("bored")) })
		if _, err := grant.Redeem(ctx, exchange); err == nil || err.Error() != "wait for the person: bored" {
			t.Errorf("Redeem = %v, want the cause of the end", err)
		}
	})
}

func TestCodeIsRedeemedWithOneRequest(t *testing.T) {
	var got []url.Values
	grant := auth.Grant{Code: "c", Verifier: "v", RedirectURL: "r", State: "s", ClientID: "cli"}
	_, err := grant.Redeem(t.Context(), func(_ context.Context, form url.Values) ([]byte, error) {
		got = append(got, form)
		return nil, refuse("authorization_pending")
	})
	want := []url.Values{{"grant_type": {"authorization_code"}, "client_id": {"cli"}, "code": {"c"}, "code_verifier": {"v"}, "redirect_uri": {"r"}}}
	if diff := cmp.Diff(want, got); diff != "" || err == nil {
		t.Errorf("Redeem = %v, requests (-want +got):\n%s", err, diff)
	}
}

// answering is a server with one answer.
func answering(t *testing.T, status int, body string) (server *httptest.Server, form *url.Values) {
	t.Helper()
	form = &url.Values{}
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		*form = r.PostForm
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, strings.ReplaceAll(body, "HERE", "http://"+r.Host))
	}))
	t.Cleanup(server.Close)
	return server, form
}

func TestLoginDevice(t *testing.T) {
	server, form := answering(t, http.StatusOK, `{"device_code":"d","user_code":"BCDFG-HJKLM","verification_uri":"HERE/device","expires_in":600,"interval":3}`)
	var shown *oauth2.DeviceAuthResponse
	grant, err := auth.LoginDevice(t.Context(), auth.DeviceOptions{
		DeviceURL: server.URL, ClientID: "cli", Params: url.Values{"c": {"cluster"}, "service": {"a", "b"}},
		Prompt: func(d *oauth2.DeviceAuthResponse) { shown = d },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := url.Values{
		"client_id": {"cli"}, "state": {grant.State}, "c": {"cluster"}, "service": {"a", "b"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(grant.Verifier)}, "code_challenge_method": {"S256"},
	}
	if diff := cmp.Diff(want, *form); diff != "" {
		t.Errorf("device request (-want +got):\n%s", diff)
	}
	if shown != grant.Device || shown.UserCode != "BCDFG-HJKLM" || shown.Interval != 3 || shown.VerificationURI != server.URL+"/device" {
		t.Errorf("shown = %+v", shown)
	}
	if left := time.Until(shown.Expiry); left < 9*time.Minute || left > 10*time.Minute {
		t.Errorf("expires in %s, want ten minutes", left)
	}
}

func TestP19LoginDeviceShowsNothingStrange(t *testing.T) {
	good := map[string]any{"device_code": "d", "user_code": "u", "verification_uri": "HERE/device", "verification_uri_complete": "HERE/device?user_code=u"}
	tests := map[string]struct {
		status      int
		name, value string
		want        string
	}{
		"good":                            {},
		"no device code":                  {name: "device_code", want: "invalid_response: not a device authorization response"},
		"no user code":                    {name: "user_code", want: "invalid_response: not a device authorization response"},
		"no place to go":                  {name: "verification_uri", want: "invalid_response: nothing to show to the person"},
		"another place":                   {name: "verification_uri", value: "https://evil.example/", want: "invalid_response: the person is sent to another place"},
		"another place, whole":            {name: "verification_uri_complete", value: "https://evil.example/", want: "invalid_response: the person is sent to another place"},
		"another scheme":                  {name: "verification_uri", value: "javascript:alert(1)", want: "invalid_response: the person is sent to another place"},
		"a user at another place":         {name: "verification_uri", value: "HERE@evil.example/", want: "invalid_response: the person is sent to another place"},
		"a code that clears the terminal": {name: "user_code", value: "\x1b[2J", want: "invalid_response: nothing to show to the person"},
		"a code that turns the text":      {name: "user_code", value: "\u202eX", want: "invalid_response: nothing to show to the person"},
		"a URL that turns the text":       {name: "verification_uri", value: "HERE/\u202e", want: "invalid_response: the person is sent to another place"},
		"a redirect":                      {status: http.StatusSeeOther, want: "invalid_response: HTTP status 303"},
		"no such endpoint":                {status: http.StatusNotFound, want: "invalid_response: HTTP status 404"},
		"too many":                        {status: http.StatusTooManyRequests, want: "slow_down"},
		"in trouble":                      {status: http.StatusBadGateway, want: "issuer unavailable: HTTP status 502 Bad Gateway"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			answer := maps.Clone(good)
			if tt.name != "" {
				answer[tt.name] = tt.value
			}
			body, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			if tt.status == 0 {
				tt.status = http.StatusOK
			}
			server, _ := answering(t, tt.status, string(body))
			shown := false
			_, err = auth.LoginDevice(t.Context(), auth.DeviceOptions{DeviceURL: server.URL, Prompt: func(*oauth2.DeviceAuthResponse) { shown = true }})
			if message(err) != tt.want || shown != (err == nil) {
				t.Errorf("LoginDevice = %v (prompted: %t), want %q", err, shown, tt.want)
			}
		})
	}
}

func TestLoginDeviceRefusesBadOptions(t *testing.T) {
	for name, opts := range map[string]auth.DeviceOptions{
		"plain http":      {DeviceURL: "http://backend.example.com/device"},
		"nothing":         {},
		"a fixed state":   {DeviceURL: "https://backend.example.com/device", Params: url.Values{"state": {"x"}}},
		"another client":  {DeviceURL: "https://backend.example.com/device", Params: url.Values{"client_id": {"x"}}},
		"another PKCE":    {DeviceURL: "https://backend.example.com/device", Params: url.Values{"code_challenge": {"x"}}},
		"user in the URL": {DeviceURL: "https://a:b@backend.example.com/device"},
	} {
		if _, err := auth.LoginDevice(t.Context(), opts); err == nil {
			t.Errorf("LoginDevice with %s succeeded", name)
		}
	}
}
