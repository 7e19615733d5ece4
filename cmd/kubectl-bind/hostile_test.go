// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const wardSecret = "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde"

// held has the Secret of the binding say where it came from, and returns its kubeconfig.
func (w *ward) held(annotations map[string]any) []byte {
	held := w.app.objects[wardSecret].(map[string]any)
	held["metadata"] = map[string]any{"name": "kubeconfig-abcde", "namespace": "klutch-bind", "uid": "s", "annotations": annotations}
	w.app.objects["PATCH "+wardSecret] = held
	data, err := base64.StdEncoding.DecodeString(held["data"].(map[string]any)["kubeconfig"].(string))
	if err != nil {
		w.Fatal(err)
	}
	return data
}

// renew is bind.Renew after a login at a backend.
func (w *ward) renew(ctx context.Context, backend string, data []byte) error {
	w.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", w.app.kubeconfig(w.T))
	if err != nil {
		w.Fatal(err)
	}
	_, err = bind.Renew(ctx, config, backend, data)
	return err
}

// A backend says that its kubeconfig leads to the tenant at another platform, whose Secret does not say
// where it came from. That platform does not take the token: its Secret stays.
func TestP13RenewsWhatTheTenantTakes(t *testing.T) {
	for known, refusal := range map[string]map[string]any{
		"":    failure(401, "Unauthorized", "no such token"),
		"now": failure(403, "Forbidden", "a token of another tenant"),
	} {
		t.Run("tenant "+known, func(t *testing.T) {
			t.Parallel()
			w := newWard(t)
			w.tenant.objects["/api/v1/namespaces/cluster-a"] = refusal
			w.tenant.objects[group+"/namespaces/cluster-a/apiserviceexports/"+sick] = refusal
			data := w.held(map[string]any{v1alpha1.TenantUIDAnnotation: known})
			if err := w.renew(t.Context(), "https://hostile.example/export", data); err != nil || len(w.app.writes()) > 0 {
				t.Errorf("wrote %v, %v", w.app.writes(), err)
			}
		})
	}
}

// A machine between that has a certificate of the same CA for another name is not that platform.
func TestP13RenewsWhatTrustsTheSameName(t *testing.T) {
	w := newWard(t)
	data := w.held(nil)
	other := strings.Replace(string(data), "server: ", "tls-server-name: localhost\n    server: ", 1)
	for said, want := range map[string]string{string(data): "[PATCH " + wardSecret + "]", other: "[]"} {
		before := len(w.app.writes())
		if err := w.renew(t.Context(), "https://hostile.example/export", []byte(said)); err != nil || fmt.Sprint(w.app.writes()[before:]) != want {
			t.Errorf("with %s wrote %v, %v", said, w.app.writes()[before:], err)
		}
	}
}

// The login has ended the credential before it: who gives up then has the next one all the same.
func TestP13RenewsThoughInterrupted(t *testing.T) {
	const backend = "https://klutch.example.com/export"
	w := newWard(t)
	data := w.held(map[string]any{v1alpha1.BackendAnnotation: backend})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.renew(ctx, backend, data); err != nil || fmt.Sprint(w.app.writes()) != "[PATCH "+wardSecret+"]" {
		t.Errorf("wrote %v, %v", w.app.writes(), err)
	}
}

// A repair binds what it has said, whatever a backend grants beside it.
func TestP20RepairBindsWhatIsBound(t *testing.T) {
	w, backend := newWard(t), newFakeBackend(t)
	backend.kubeconfig = w.held(map[string]any{v1alpha1.BackendAnnotation: backend.URL + "/export"})
	backend.grants = []string{"others.example.com"}
	w.app.objects["/api/v1/namespaces/klutch-bind"] = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "klutch-bind", "uid": "u"}}
	w.app.objects["/api/v1/namespaces/klutch-bind/secrets"] = list("SecretList", "v1", w.app.objects[wardSecret])
	r := backend.browser(t, "").run(t.Context(), "repair", "--kubeconfig", w.app.kubeconfig(t), "--backend-certificate-authority", backend.authority(t))
	if r.code != exitError || !strings.Contains(r.errOut, "Left out others.example.com") || !strings.Contains(r.errOut, "not bound again") || len(w.tenant.writes()) > 0 {
		t.Errorf("asked the platform for %v, %v", w.tenant.writes(), r)
	}
}

// A request for a service that was asked for and one that was not is for the first of them, and no
// success without any.
func TestChooseOfOneRequest(t *testing.T) {
	both := requestFor("things.example.com")
	both.Spec.Resources = append(both.Spec.Resources, requestFor("others.example.com").Spec.Resources...)
	l := &login{plugin: newTestPlugin(""), services: []string{"things.example.com"}}
	chosen, err := l.choose([]v1alpha1.APIServiceExportRequest{both})
	if err != nil || len(chosen) != 1 || fmt.Sprint(serviceNames(chosen[0])) != "[things.example.com]" {
		t.Errorf("chosen %v, %v", chosen, err)
	}
}

// P20: --yes says all that it has agreed to.
func TestP20YesSaysAll(t *testing.T) {
	claims := mixed()[:1]
	claims[0].Selector = v1alpha1.ResourceSelector{}
	for n := range 100 {
		claims[0].Selector.Names = append(claims[0].Selector.Names, fmt.Sprintf("secret-of-a-name-that-takes-room-%d", n))
	}
	p, talk := newTestPlugin(""), &strings.Builder{}
	p.talk = talk
	if err := p.answer(claimAnswers{yes: true})(t.Context(), claims); err != nil || !strings.Contains(talk.String(), "-99") {
		t.Errorf("said %q, %v", talk, err)
	}
}
