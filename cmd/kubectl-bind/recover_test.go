// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/bind"
)

// lostOf is a ward whose App Cluster was set up again: the cluster "lost" had ordered two
// databases, of which one has a claim here that asks for something else.
func lostOf(t *testing.T) *ward {
	t.Helper()
	w := newWard(t)
	const system = "/api/v1/namespaces/kube-system"
	w.app.objects[system] = map[string]any{"kind": "Namespace", "apiVersion": "v1", "metadata": map[string]any{"name": "kube-system", "uid": "again"}}
	w.app.objects[bindingsPath+"/"+sick] = binding(sick, "Data Services")
	w.app.objects["PATCH "+bindingsPath+"/"+sick] = binding(sick, "Data Services")
	spec := w.app.objects["/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+sick].(map[string]any)["spec"].(map[string]any)
	spec["scope"] = "Namespaced"
	w.app.objects["/apis/anynines.com/v1/namespaces/shop/postgresqlinstances/orders"] = instanceOf("shop", "orders", 7, nil)
	w.tenant.objects[group+"/namespaces/cluster-a/apiservicenamespaces"] = list("APIServiceNamespaceList", "klutch.anynines.com/v1alpha1", map[string]any{
		"kind": "APIServiceNamespace", "apiVersion": "klutch.anynines.com/v1alpha1", "metadata": map[string]any{"name": "shop", "namespace": "cluster-a"},
		"status": map[string]any{"namespace": "cluster-a-shop"},
	})
	w.leave(made("lost", "orders"), made("lost", "stock"))
	return w
}

func instanceOf(namespace, name string, size int, annotations map[string]any) map[string]any {
	return map[string]any{
		"kind": "PostgresqlInstance", "apiVersion": "anynines.com/v1", "spec": map[string]any{"size": size},
		"metadata": map[string]any{"name": name, "namespace": namespace, "annotations": annotations},
	}
}

// made is what stands for a claim of a cluster on the control plane.
func made(cluster, name string) map[string]any {
	from := mustJSON(map[string]any{"uid": "u-" + name, "cluster": cluster, "namespace": "shop", "name": name})
	return instanceOf("cluster-a-shop", name, 5, map[string]any{"klutch.anynines.com/source": from})
}

// leave is what is left on the control plane.
func (w *ward) leave(objects ...any) {
	w.tenant.objects["/apis/anynines.com/v1/namespaces/cluster-a-shop/postgresqlinstances"] = list("PostgresqlInstanceList", "anynines.com/v1", objects...)
}

// What would be taken up is listed before, with what changes and what has no claim; without
// consent, or while the platform says that the old cluster lives, nothing is written.
func TestP35RecoverAsks(t *testing.T) {
	table := []string{"shop", "orders", "spec.size: 5 → 7", "stock", "stays: it has no object here"}
	for name, test := range map[string]struct {
		args  []string
		stdin string
		harm  func(*ward)
		code  int
		shows []string // on stdout
		says  string   // on stderr
		lost  string   // that the consent names; empty for none
	}{
		"dry run":     {[]string{"--dry-run"}, "", nil, exitOK, table, "Of App Cluster lost: 1 of 2 objects", ""},
		"asks":        {nil, "yes\n", nil, exitOK, table, "Is that cluster gone for good", "lost"},
		"no":          {nil, "no\n", nil, exitOK, table, "Nothing was changed", ""},
		"no answer":   {nil, "", nil, exitOK, table, "Nothing was changed", ""},
		"yes":         {[]string{"--yes"}, "", nil, exitOK, table, "takes up what App Cluster lost had ordered", "lost"},
		"yes and dry": {[]string{"--yes", "--dry-run"}, "", nil, exitUsage, nil, "--yes does not go with --dry-run", ""},
		"yaml":        {[]string{"-o", "yaml"}, "", nil, exitUsage, nil, "only json is known", ""},
		"several": {
			[]string{"--yes"},
			"", func(w *ward) { w.leave(made("lost", "orders"), made("older", "stock")) }, exitUsage, nil,
			"name one of the lost App Clusters with --from: lost, older", "",
		},
		"one of several": {
			[]string{"--yes", "--from", "older"},
			"", func(w *ward) { w.leave(made("lost", "orders"), made("older", "stock")) }, exitOK,
			[]string{"stock"},
			"Of App Cluster older: 0 of 1 objects", "older",
		},
		"none such": {[]string{"--yes", "--from", "other"}, "", nil, exitUsage, nil, "--from=other: of that cluster nothing is left", ""},
		"nothing":   {[]string{"--yes"}, "", func(w *ward) { w.leave(made("again", "orders"), instanceOf("cluster-a-shop", "theirs", 1, nil)) }, exitOK, nil, "Nothing is left of another App Cluster", ""},
		"still held": {[]string{"--yes"}, "", func(w *ward) {
			w.tenant.objects[group+"/namespaces/cluster-a/clusterbindings/cluster"].(map[string]any)["status"].(map[string]any)["clusterUID"] = "lost"
		}, exitConflict, nil, "it has to clear status.clusterUID", ""},
		"may not list": {[]string{"--yes"}, "", func(w *ward) {
			w.tenant.objects["/apis/anynines.com/v1/namespaces/cluster-a-shop/postgresqlinstances"] = failure(403, "Forbidden", "you cannot list")
		}, exitDenied, nil, "you cannot list", ""},
		"hostile": {[]string{"--dry-run"}, "", func(w *ward) { w.leave(made("lo\x1b[2Jst\u202e", "orders")) }, exitOK, []string{"orders"}, "1 of 1 objects", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := lostOf(t)
			if test.harm != nil {
				test.harm(w)
			}
			r := terminal{stdin: test.stdin}.run(t.Context(), append([]string{"recover", sick, "--kubeconfig", w.app.kubeconfig(t)}, test.args...)...)
			if r.code != test.code || !strings.Contains(r.errOut, test.says) {
				t.Errorf("exit code %d, want %d and %q:\n%s", r.code, test.code, test.says, r)
			}
			for _, word := range test.shows {
				if !strings.Contains(r.out, word) {
					t.Errorf("does not show %q:\n%s", word, r)
				}
			}
			if test.shows == nil && r.out != "" || strings.ContainsAny(r.String(), "\x1b\u202e") {
				t.Errorf("shows\n%q", r)
			}
			w.consented(test.lost)
		})
	}
}

// consented checks that the consent is all that was written, and names a cluster.
func (w *ward) consented(lost string) {
	w.Helper()
	var want []string
	if lost != "" {
		want = []string{"PATCH " + bindingsPath + "/" + sick}
		if sent, _ := json.Marshal(w.app.sent); string(sent) != `{"metadata":{"annotations":{"klutch.anynines.com/recover-from":"`+lost+`"}}}` {
			w.Errorf("sent %s", sent)
		}
	}
	if diff := cmp.Diff(want, append(w.app.writes(), w.tenant.writes()...)); diff != "" {
		w.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Programs get the list as JSON, and nothing is taken up unless they say so.
func TestP35RecoverJSON(t *testing.T) {
	for _, yes := range []bool{false, true} {
		w := lostOf(t)
		args, lost := []string{"recover", sick, "-o", "json", "--kubeconfig", w.app.kubeconfig(t)}, ""
		if yes {
			args, lost = append(args, "--yes"), "lost"
		}
		r := terminal{stdin: "yes\n"}.run(t.Context(), args...)
		var got []bind.Leftover
		if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != exitOK {
			t.Fatalf("%v\n%s", err, r)
		}
		want := []bind.Leftover{
			{Cluster: "lost", Namespace: "shop", Name: "orders", Claimed: true, Differences: []string{"spec.size: 5 → 7"}},
			{Cluster: "lost", Namespace: "shop", Name: "stock"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("list (-want +got):\n%s", diff)
		}
		w.consented(lost)
	}
	w := lostOf(t)
	w.leave()
	if r := (terminal{}).run(t.Context(), "recover", sick, "-o", "json", "--kubeconfig", w.app.kubeconfig(t)); r.out != "[]\n" || r.code != exitOK {
		t.Errorf("of nothing: %s", r)
	}
}
