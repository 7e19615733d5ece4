// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

// memory is a store for one replica.
type memory struct{ values sync.Map }

func (m *memory) Create(_ context.Context, key string, value []byte, _ time.Time) error {
	if _, taken := m.values.LoadOrStore(key, value); taken {
		return auth.ErrDeviceTaken
	}
	return nil
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	value, ok := m.values.Load(key)
	if !ok {
		return nil, auth.ErrDevicePending
	}
	return value.([]byte), nil
}

// backend is a Klutch backend that grants every request.
func backend(t *testing.T, issuer *testissuer.Issuer) (base string, devices *auth.Devices) {
	t.Helper()
	site := http.NewServeMux()
	server := httptest.NewServer(site)
	t.Cleanup(server.Close)
	sealer, err := auth.NewSealer([]byte(rand.Text() + rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	devices, err = auth.NewDevices(sealer, &memory{}, auth.DevicesOptions{VerificationURL: server.URL + "/device", Interval: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	provider, err := auth.New(auth.Config{Issuer: issuer.URL(), ClientID: "klutch", Audiences: []string{"machines"}})
	if err != nil {
		t.Fatal(err)
	}
	site.HandleFunc("POST /device", func(w http.ResponseWriter, r *http.Request) {
		answer, err := devices.Begin(r.PostFormValue("code_challenge"), []byte(r.PostFormValue("c")+" "+strings.Join(r.PostForm["service"], " ")))
		reply(w, answer, err)
	})
	site.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		_, answer, err := devices.Poll(r.Context(), r.PostFormValue("device_code"), r.PostFormValue("code_verifier"))
		reply(w, json.RawMessage(answer), err)
	})
	site.HandleFunc("POST /bind-noninteractive", func(w http.ResponseWriter, r *http.Request) {
		id, err := auth.Providers{provider}.VerifyMachine(r.Context(), auth.BearerToken(r), "klutch/bind")
		if err != nil {
			status, authenticate := auth.BearerChallenge(err)
			w.Header().Set("WWW-Authenticate", authenticate)
			w.WriteHeader(status)
			return
		}
		body, err := io.ReadAll(r.Body)
		reply(w, map[string]any{"for": id.Subject, "asked": json.RawMessage(body)}, err)
	})
	return server.URL, devices
}

func reply(w http.ResponseWriter, answer any, err error) {
	if refused, ok := errors.AsType[*auth.Error](err); ok {
		w.WriteHeader(http.StatusBadRequest)
		answer = map[string]string{"error": refused.Code}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func startIssuer(t *testing.T) *testissuer.Issuer {
	t.Helper()
	return testissuer.Start(t, testissuer.Options{Clients: map[string]testissuer.Client{
		"ci":    {Secret: "secret", Scopes: []string{"klutch/bind"}, Audiences: []string{"machines"}},
		"other": {Secret: "secret", Scopes: []string{"klutch/bind"}, Audiences: []string{"others"}},
	}})
}

func TestAPersonConfirmsElsewhere(t *testing.T) {
	base, devices := backend(t, startIssuer(t))
	talk := make(prompt, 1)
	var person sync.WaitGroup
	person.Go(func() { confirm(t, devices, <-talk) })
	response, err := run(t.Context(), []string{base, "cluster", "postgresqls.example.com"}, auth.MachineOptions{}, talk)
	person.Wait()
	if err != nil || string(response) != "{\"yes\":\"cluster postgresqls.example.com\"}\n" {
		t.Errorf("run = %s, %v", response, err)
	}
}

// prompt is what the program says, once.
type prompt chan string

func (p prompt) Write(text []byte) (int, error) {
	p <- string(text)
	return len(text), nil
}

// confirm does what a person and the backend's page do.
func confirm(t *testing.T, devices *auth.Devices, said string) {
	t.Helper()
	code := regexp.MustCompile(`enter (\S+)`).FindStringSubmatch(said)
	if code == nil {
		t.Errorf("the program said %q", said)
		return
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		device, err := devices.Claim(t.Context(), strings.ToLower(code[1]), "https://issuer/ada")
		if errors.Is(err, auth.ErrDevicePending) {
			<-again.C
			continue
		}
		if err == nil {
			answer, _ := json.Marshal(map[string]string{"yes": string(device.Request)})
			err = devices.Answer(t.Context(), device, answer)
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
}

func TestAMachineLogsInByItself(t *testing.T) {
	issuer := startIssuer(t)
	base, _ := backend(t, issuer)
	for client, want := range map[string]string{
		"ci":    `{"asked":{"apis":[{"group":"example.com","resource":"postgresqls"}],"clusterID":"cluster"},"for":"ci"}`,
		"other": "the backend says 401 Unauthorized",
	} {
		machine := auth.MachineOptions{Issuer: issuer.URL(), ClientID: client, ClientSecret: "secret", Scopes: []string{"klutch/bind"}}
		response, err := run(t.Context(), []string{base, "cluster", "postgresqls.example.com"}, machine, io.Discard)
		got := strings.TrimSpace(string(response))
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("run as %s = %s, want %s", client, got, want)
		}
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{nil, {"http://klutch.example.com", "cluster", "a.b"}, {"https://klutch.example.com"}} {
		if _, err := run(t.Context(), args, auth.MachineOptions{}, io.Discard); err == nil {
			t.Errorf("run(%q) succeeded", args)
		}
	}
}
