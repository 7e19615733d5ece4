// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

const sick = "postgresqlinstances.anynines.com"

// A ward is an App Cluster with one binding, and the Control Plane Cluster behind it.
type ward struct {
	*testing.T
	app, tenant *fakeAPI
}

// newWard is one in which all is well at noon.
func newWard(t *testing.T) *ward {
	t.Helper()
	w := &ward{t, newFakeAPI(t, nil), newFakeAPI(t, nil)}
	w.tenant.objects = map[string]any{group + "/namespaces/cluster-a/clusterbindings/cluster": map[string]any{
		"kind": "ClusterBinding", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": "cluster"},
		"status": map[string]any{"lastHeartbeatTime": "2026-07-01T11:58:00Z", "heartbeatInterval": "5m0s"},
	}}
	w.app.objects = map[string]any{
		group:        served(true),
		bindingsPath: list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", binding(sick, "Data Services", condition("Ready", "True", "", ""), condition("Connected", "True", "", ""))),
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews": map[string]any{
			"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "status": map[string]any{"allowed": true},
		},
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + sick: map[string]any{
			"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": map[string]any{"name": sick},
			"spec": map[string]any{"group": "anynines.com", "names": map[string]any{"plural": "postgresqlinstances"}, "versions": []any{map[string]any{"name": "v1", "served": true}}},
		},
	}
	w.lease("2026-07-01T11:59:58.000000Z")
	w.instance("")
	w.token(time.Date(2026, 7, 1, 12, 40, 0, 0, time.UTC))
	return w
}

// instance is the one object of the bound API.
func (w *ward) instance(deleted string) {
	meta := map[string]any{"name": "orders", "namespace": "shop", "finalizers": []any{"klutch.anynines.com/syncer"}}
	if deleted != "" {
		meta["deletionTimestamp"] = deleted
	}
	w.app.objects["/apis/anynines.com/v1/postgresqlinstances"] = list("PostgresqlInstanceList", "anynines.com/v1",
		map[string]any{"kind": "PostgresqlInstance", "apiVersion": "anynines.com/v1", "metadata": meta})
}

// crowd is a dozen objects that are over quota, each a minute longer than the one before; the
// binding counts them.
func (w *ward) crowd() {
	var all []any
	for n := range 12 {
		all = append(all, map[string]any{"kind": "PostgresqlInstance", "apiVersion": "anynines.com/v1", "metadata": map[string]any{
			"name": fmt.Sprintf("db-%d", n), "namespace": "shop", "finalizers": []any{"klutch.anynines.com/syncer"}, "creationTimestamp": "2026-07-01T09:00:00Z",
			"annotations": map[string]any{klutchsync.MessageAnnotation: "TargetForbidden: exceeded quota"},
			"managedFields": []any{map[string]any{
				"manager": "klutch", "operation": "Apply", "apiVersion": "anynines.com/v1", "time": fmt.Sprintf("2026-07-01T11:%02d:00Z", 58-n), "fieldsType": "FieldsV1",
				"fieldsV1": map[string]any{"f:metadata": map[string]any{"f:annotations": map[string]any{"f:" + klutchsync.MessageAnnotation: map[string]any{}}}},
			}},
		}})
	}
	w.app.objects["/apis/anynines.com/v1/postgresqlinstances"] = list("PostgresqlInstanceList", "anynines.com/v1", all...)
	behind := condition("ObjectsSynced", "False", "ObjectsNotSynced", "12 not in step: 12 TargetForbidden. kubectl bind status "+sick+" lists them.")
	ready := condition("Ready", "True", "ObjectsNotSynced", behind["message"].(string))
	w.app.objects[bindingsPath] = list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", binding(sick, "Data Services", ready, condition("Connected", "True", "", ""), behind))
}

// Of many objects that are not in step those are named that have been so for longest, by
// doctor and by status of their binding.
func TestManyNotInStep(t *testing.T) {
	w := newWard(t)
	w.crowd()
	config := w.app.kubeconfig(t)
	for file, args := range map[string][]string{"doctor-many.txt": {"doctor"}, "status-many.txt": {"status", sick}, "status-counted.txt": {"status"}} {
		r := terminal{}.run(t.Context(), append(args, "--kubeconfig", config)...).replaced(w.app.URL, "https://app.example.com", w.tenant.URL, "https://tenant.example.com")
		golden(t, file, r.String())
	}
	if r := (terminal{}).run(t.Context(), "status", sick, "-o", "wide", "--kubeconfig", config); strings.Count(r.out, "TargetForbidden   exceeded quota") != 12 || strings.Contains(r.errOut, "more") {
		t.Errorf("-o wide shows not all: %s", r)
	}
	const path = "/apis/anynines.com/v1/postgresqlinstances"
	all := w.app.objects[path].(map[string]any)["items"].([]any)
	for left, want := range map[int]string{11: "counts 12, and 1 of them does not say why itself.", 10: "counts 12, and 2 of them do not say why themselves."} {
		w.app.objects[path] = list("PostgresqlInstanceList", "anynines.com/v1", all[:left]...)
		if r := (terminal{}).run(t.Context(), "status", sick, "--kubeconfig", config); !strings.Contains(r.errOut, want) {
			t.Errorf("%d of 12: %s", left, r)
		}
	}
}

// token puts a kubeconfig into the Secret, with a token that ends then.
func (w *ward) token(expiry time.Time) {
	w.Helper()
	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, expiry.Unix()))
	k := &kubeconfig.Kubeconfig{Server: w.tenant.URL, CAData: pemOf(w.tenant.Server), Namespace: "cluster-a", Token: "e30." + claims + ".c2VjcmV0"}
	data, err := k.Write()
	if err != nil {
		w.Fatal(err)
	}
	w.secret(data)
}

func (w *ward) secret(data []byte) {
	w.app.objects["/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde"] = map[string]any{
		"kind": "Secret", "apiVersion": "v1", "data": map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(data)},
	}
}

// lease is when the konnector renewed its Lease last.
func (w *ward) lease(renewed string) {
	w.app.objects["/apis/coordination.k8s.io/v1/namespaces/klutch-bind/leases/klutch-bind"] = map[string]any{
		"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "spec": map[string]any{"holderIdentity": "konnector-0", "renewTime": renewed},
	}
}

// Of a binding whose konnector has died nothing is known, whatever it said last.
func TestSilentKonnector(t *testing.T) {
	w := newWard(t)
	w.lease("2026-07-01T11:59:00.000000Z")
	config := w.app.kubeconfig(t)
	for file, args := range map[string][]string{"status-dead.txt": {"status"}, "status-dead-json.txt": {"status", sick, "-o", "jsonpath={.status.conditions[?(@.type==\"Ready\")]}"}} {
		golden(t, file, terminal{}.run(t.Context(), append(args, "--kubeconfig", config)...).String())
	}
}

// A konnector that works and whose clock differs from the one here is told, since ages are wrong then.
func TestStatusTellsOfClocks(t *testing.T) {
	for renewed, want := range map[string]string{
		"11:59:58": "", "12:00:50": "",
		"13:00:00": "The clock here is 1h0m0s behind the konnector's",
		"11:00:0":  " ahead of the konnector's",
	} {
		w, asked := newWard(t), 0
		next := w.app.Config.Handler
		w.app.Config.Handler = http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/leases/klutch-bind") { // it is renewed all the time
				asked++
				w.lease("2026-07-01T" + (renewed + fmt.Sprint(asked))[:8] + ".000000Z")
			}
			next.ServeHTTP(answer, r)
		})
		r := terminal{}.run(t.Context(), "status", "--kubeconfig", w.app.kubeconfig(t))
		if says := strings.Contains(r.errOut, "The clock here"); r.code != exitOK || says != (want != "") || !strings.Contains(r.errOut, want) {
			t.Errorf("renewed at %s: %s", renewed, r)
		}
	}
}

// A watch of bindings prints them again when their konnector dies and when it is back, and only then.
func TestWatchOfSilentKonnector(t *testing.T) {
	w, shown := newWard(t), &strings.Builder{}
	p := &plugin{system: system{now: func() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }}, talk: io.Discard}
	p.Out = shown
	config, err := clientcmd.BuildConfigFromFlags("", w.app.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	watch := &statusWatch{plugin: p, config: config, out: newOutput(&cobra.Command{})}
	for _, step := range []struct{ renewed, want string }{
		{"2026-07-01T11:59:58.000000Z", ""},
		{"2026-07-01T11:59:00.000000Z", "Unknown"},
		{"2026-07-01T11:58:00.000000Z", ""},
		{"2026-07-01T11:59:58.000000Z", "True"},
	} {
		shown.Reset()
		w.lease(step.renewed)
		if err := watch.listen(t.Context()); err != nil || !strings.Contains(shown.String(), step.want) || (shown.Len() > 0) != (step.want != "") {
			t.Errorf("%+v: %v\n%s", step, err, shown)
		}
	}
}

// Who asks for the status of an object hears of which binding it is.
func TestStatusOfObject(t *testing.T) {
	w := newWard(t)
	w.app.objects["/apis/anynines.com/v1/postgresqlinstances"] = list("PostgresqlInstanceList", "anynines.com/v1", instanceOf("shop", "orders", 1, nil), instanceOf("", "gear", 1, nil))
	for name, want := range map[string]string{
		"orders": "shop/orders is an object of " + sick + ". Look at: kubectl bind status " + sick + ", and at: kubectl -n shop describe " + sick + " orders",
		"gear":   "gear is an object of " + sick + ". Look at: kubectl bind status " + sick + ", and at: kubectl describe " + sick + " gear",
		"absent": "absent: no such binding",

		"postgresqlInstance": "Did you mean: " + sick + "?",
	} {
		r := terminal{}.run(t.Context(), "status", name, "--kubeconfig", w.app.kubeconfig(t))
		if r.code != exitError || !strings.Contains(r.errOut, want) || !strings.Contains(r.errOut, "no such binding") || name == "absent" && strings.Contains(r.errOut, "is an object") {
			t.Errorf("%s: %s", name, r)
		}
	}
}

// A login at a platform that has made the tenant anew leaves the Secret to the install, which writes
// token and tenant at once: with the token alone the konnector would say ControlPlaneReplaced.
func TestRenewOfATenantMadeAnew(t *testing.T) {
	for known, renewed := range map[string]bool{"before": false, "now": true, "": true} {
		w := newWard(t)
		const secret = "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde"
		w.tenant.objects["/api/v1/namespaces/cluster-a"] = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "cluster-a", "uid": "now"}}
		held := w.app.objects[secret].(map[string]any)
		held["metadata"] = map[string]any{"name": "kubeconfig-abcde", "annotations": map[string]any{v1alpha1.TenantUIDAnnotation: known}}
		w.app.objects["PATCH "+secret] = held
		data, err := base64.StdEncoding.DecodeString(held["data"].(map[string]any)["kubeconfig"].(string))
		if err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", w.app.kubeconfig(t))
		if err != nil {
			t.Fatal(err)
		}
		secrets, err := bind.Renew(t.Context(), config, "", data)
		if err != nil || (len(secrets) > 0) != renewed || (len(w.app.writes()) > 0) != renewed {
			t.Errorf("of tenant %q: renewed %v, wrote %v, %v", known, secrets, w.app.writes(), err)
		}
	}
}

// offered is a template of an API x; made says when it was made.
func offered(name, made string, conditions ...any) map[string]any {
	return map[string]any{
		"kind": "APIServiceExportTemplate", "apiVersion": "klutch.anynines.com/v1alpha1",
		"metadata": map[string]any{"namespace": "services", "name": name, "creationTimestamp": made},
		"spec":     map[string]any{"apiServiceSelector": map[string]any{"group": "example.org", "resource": "x"}},
		"status":   map[string]any{"conditions": conditions},
	}
}

// unheard is a tenant that was adopted under Klutch's konnector, whose conditions and heartbeat
// have stayed.
func (w *ward) unheard() {
	status := w.tenant.objects[group+"/namespaces/cluster-a/clusterbindings/cluster"].(map[string]any)["status"].(map[string]any)
	c := condition("Healthy", "False", "FirstHeartbeatPending", "the last heartbeat is of Klutch's konnector")
	c["severity"] = "Warning"
	status["conditions"] = []any{c}
}

// Conditions that another konnector has left are not believed before the platform hears one.
func TestUnheard(t *testing.T) {
	w := newWard(t)
	w.app.objects[bindingsPath+"/"+sick] = binding(sick, "Data Services", condition("Ready", "True", "", ""), condition("Connected", "True", "", ""))
	config, err := clientcmd.BuildConfigFromFlags("", w.app.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	wait := func(patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, err := bind.WaitReady(ctx, config, []string{sick}, nil)
		return err
	}
	heard := wait(time.Minute)
	w.unheard()
	if unheard := wait(10 * time.Second); heard != nil || !errors.Is(unheard, bind.ErrNotReady) || !strings.Contains(unheard.Error(), "the last heartbeat is of Klutch's konnector") {
		t.Errorf("heard: %v, unheard: %v", heard, unheard)
	}
	r := terminal{}.run(t.Context(), "status", "--kubeconfig", w.app.kubeconfig(t))
	if r.code != exitNotReady || !strings.Contains(r.String(), "the platform of "+sick+" says: the last heartbeat is of Klutch's konnector") {
		t.Errorf("status: %s", r)
	}
}

// All platforms of the bindings that are shown are asked at once, and no others.
func TestUnheardBesideOneThatHangs(t *testing.T) {
	w, asked := newWard(t), make(chan struct{})
	w.unheard()
	answer := w.tenant.Config.Handler
	w.tenant.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		close(asked)
		answer.ServeHTTP(rw, r)
	})
	together := false
	hangs := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-asked:
			together = true
		case <-r.Context().Done():
		}
	}))
	defer hangs.Close()
	const secrets, other = "/api/v1/namespaces/klutch-bind/secrets/kubeconfig-", "backups.anynines.com"
	w.app.objects[secrets+"other"] = map[string]any{"kind": "Secret", "apiVersion": "v1", "data": map[string]any{
		"kubeconfig": base64.StdEncoding.EncodeToString(tenantKubeconfig(t, hangs, "cluster-b")),
	}}
	first := binding(other, "Other", condition("Ready", "True", "", ""), condition("Connected", "True", "", ""))
	first["spec"].(map[string]any)["kubeconfigSecretRef"].(map[string]any)["name"] = "kubeconfig-other"
	w.app.objects[bindingsPath] = list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", first,
		binding(sick, "Data Services", condition("Ready", "True", "", ""), condition("Connected", "True", "", "")))
	config := w.app.kubeconfig(t)
	if r := (terminal{}).run(t.Context(), "status", "--kubeconfig", config); !together || !strings.Contains(r.errOut, "the platform of "+sick+" says: ") {
		t.Errorf("together: %v, %s", together, r)
	}
	if r := (terminal{}).run(t.Context(), "status", other, "--kubeconfig", config); r.code != exitOK || len(w.tenant.requests) != 1 {
		t.Errorf("of the other: asked %v, %s", w.tenant.requests, r)
	}
}

func TestDoctor(t *testing.T) {
	for name, harm := range map[string]func(*ward){
		"well": func(*ward) {},
		"json": func(*ward) {},
		"ill": func(w *ward) {
			w.token(time.Date(2026, 7, 1, 12, 1, 0, 0, time.UTC))
			w.instance("2026-07-01T11:00:00Z")
			w.tenant.objects[group+"/namespaces/cluster-a/clusterbindings/cluster"].(map[string]any)["status"].(map[string]any)["lastHeartbeatTime"] = "2026-07-01T09:00:00Z"
			maps.DeleteFunc(w.app.objects, func(path string, _ any) bool {
				return path == "/apis/coordination.k8s.io/v1/namespaces/klutch-bind/leases/klutch-bind" || path == "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
			})
			w.app.objects[bindingsPath] = list("APIServiceBindingList", "klutch.anynines.com/v1alpha1",
				binding(sick, "Data Services", condition("Ready", "False", "Evil", "x"), condition("Connected", "False", "Evil", "no\x1b[2J\r\u202e")))
		},
		"exec":   func(w *ward) { w.secret([]byte("users: [{name: a, user: {exec: {command: id}}}]\n")) },
		"silent": func(w *ward) { w.tenant.Close() },
		"young": func(w *ward) {
			w.tenant.objects[group+"/namespaces/cluster-a/clusterbindings/cluster"].(map[string]any)["status"] = map[string]any{}
		},
		"fast": func(w *ward) {
			w.tenant.objects[group+"/namespaces/cluster-a/clusterbindings/cluster"].(map[string]any)["status"].(map[string]any)["lastHeartbeatTime"] = "2026-07-01T13:00:00Z"
			asked := condition("ClaimsInSync", "True", "NewClaims", "The provider makes claims that were not answered: configmaps.")
			w.app.objects[bindingsPath] = list("APIServiceBindingList", "klutch.anynines.com/v1alpha1", binding(sick, "Data Services", condition("Ready", "True", "", ""), condition("Connected", "True", "", ""), asked))
		},
		"dead": func(w *ward) { w.lease("2026-07-01T11:59:00.000000Z") },
		"platform": func(w *ward) { // a Control Plane Cluster, in which nothing is bound
			w.app.objects[bindingsPath] = list("APIServiceBindingList", "klutch.anynines.com/v1alpha1")
			w.app.objects[group+"/apiserviceexporttemplates"] = list("APIServiceExportTemplateList", "klutch.anynines.com/v1alpha1",
				offered("sound", "2026-07-01T09:00:00Z", condition("Ready", "True", "", "")),
				offered("kindless", "2026-07-01T09:00:00Z", condition("Ready", "False", "SchemaMissing", "there is no CustomResourceDefinition x.example.org")),
				offered("unseen", "2026-07-01T11:58:00Z"), offered("new", "2026-07-01T11:59:55Z"))
		},
		"unheard":   (*ward).unheard,
		"forbidden": func(w *ward) { w.app.objects[bindingsPath] = failure(403, "Forbidden", "you cannot list bindings") },
		"away":      func(w *ward) { w.app.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWard(t)
			config := w.app.kubeconfig(t)
			harm(w)
			args := []string{"doctor", "--kubeconfig", config}
			if name == "json" {
				args = append(args, "-o", "json")
			}
			r := terminal{}.run(t.Context(), args...).replaced(w.app.URL, "https://app.example.com", w.tenant.URL, "https://tenant.example.com")
			golden(t, "doctor-"+name+".txt", r.String())
			for _, sent := range append(w.app.writes(), w.tenant.writes()...) {
				if sent != "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
					t.Errorf("wrote %s", sent)
				}
			}
		})
	}
}
