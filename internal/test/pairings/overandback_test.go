// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An estate is what a tenant of Klutch's backend has: 20 claims with a Secret each in 4
// namespaces, and a cluster-scoped one at the end.
type estate struct {
	pairing

	claims, objects   []place
	originals, copies []place // Secrets
}

// overAndBack has our konnector take the place of Klutch's, and the other way round, twice.
// In each state what changes arrives on the other side, and nothing is made anew. In the end
// all can be deleted and unbound, and no right is left.
func overAndBack(t *testing.T, s *stack.Stack, p pairing, pass func(context.Context) error) {
	t.Helper()
	double := run(t, pass)
	e := newEstate(t, p)
	e.works(t, "begin")
	was := e.identities(t)
	for _, u := range deploy.Konnector("konnector") {
		p.app.apply(t, u)
	}
	ours := konnectorOf(t, s, p.app)
	for n := range 2 {
		double.stop()
		p.app.must(t, ours.Start(t.Context()))
		e.works(t, fmt.Sprint("over-", n))
		e.unchanged(t, was)
		p.app.must(t, ours.Stop())
		double = run(t, pass)
		e.works(t, fmt.Sprint("back-", n))
		e.unchanged(t, was)
	}
	for _, name := range []string{"anchor", "made"} { // of the five
		e.claims, e.objects = append(e.claims, p.place(p.app, "widgets", team, name)), append(e.objects, p.place(p.control, "widgets", p.tenant()+"-"+team, name))
	}
	for _, o := range slices.Concat(e.claims, e.originals) {
		o.delete(t)
	}
	for _, o := range slices.Concat(e.claims, e.objects, e.originals, e.copies) {
		o.gone(t)
	}
	e.unbound(t, s)
}

func newEstate(t *testing.T, p pairing) *estate {
	t.Helper()
	e := &estate{pairing: p}
	labelled := func(rest map[string]any) map[string]any {
		rest["metadata"] = map[string]any{"labels": map[string]any{"tier": "db"}}
		return rest
	}
	add := func(claim, object place) {
		claim.create(t, labelled(map[string]any{"spec": map[string]any{"size": "small"}}))
		e.claims, e.objects = append(e.claims, claim), append(e.objects, object)
	}
	for i := range 20 {
		app, name := fmt.Sprint("shop-", i%4), fmt.Sprint("db-", i)
		service := p.tenant() + "-" + app
		p.app.apply(t, object("v1", "Namespace", "", app, nil))
		add(p.place(p.app, "widgets", app, name), p.place(p.control, "widgets", service, name))
		e.originals = append(e.originals, p.claimed(p.control, secretsGVR, service, name+"-creds"))
		e.copies = append(e.copies, p.claimed(p.app, secretsGVR, app, name+"-creds"))
	}
	add(p.place(p.app, "gears", "", "kept"), p.place(p.control, "gears", "", p.tenant()+"-kept"))
	for i, original := range e.originals {
		e.objects[i].has(t, "small", "spec", "size")
		original.create(t, labelled(map[string]any{"data": map[string]any{"password": ""}}))
	}
	return e
}

// works changes every object on the side that says how it is, and waits for it on the other one.
func (e *estate) works(t *testing.T, state string) {
	t.Helper()
	began := time.Now()
	for i, claim := range e.claims {
		claim.patch(t, fmt.Sprintf(`{"spec":{"size":%q}}`, state))
		e.objects[i].patch(t, fmt.Sprintf(`{"status":{"state":%q}}`, state), "status")
	}
	for _, original := range e.originals {
		original.patch(t, fmt.Sprintf(`{"data":{"password":%q}}`, base64Of([]byte(state))))
	}
	for _, copied := range e.copies {
		copied.has(t, base64Of([]byte(state)), "data", "password")
	}
	t.Logf("%s: 20 rotated Secrets arrived within %s", state, time.Since(began).Round(100*time.Millisecond))
	for i, claim := range e.claims {
		claim.has(t, state, "status", "state")
		e.objects[i].has(t, state, "spec", "size")
	}
}

// identities are what stays of objects, with either konnector.
func (e *estate) identities(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for side, places := range map[string][]place{"app": slices.Concat(e.claims, e.copies), "control plane": slices.Concat(e.objects, e.originals)} {
		for _, o := range places {
			u, err := o.client().Get(t.Context(), o.name, metav1.GetOptions{})
			o.must(t, err)
			labels := u.GetLabels()
			maps.DeleteFunc(labels, func(key, _ string) bool { return strings.Contains(key, "klutch.anynines.com/") })
			all[side+" "+o.String()] = fmt.Sprint(u.GetUID(), labels, u.GetFinalizers())
		}
	}
	return all
}

func (e *estate) unchanged(t *testing.T, was map[string]string) {
	t.Helper()
	if diff := cmp.Diff(was, e.identities(t)); diff != "" {
		t.Fatalf("something was made anew, or lost or won a label or finalizer (-before +after):\n%s", diff)
	}
}

// unbound gives up both APIs with our CLI, after which no right of theirs is left in the App
// Cluster.
func (e *estate) unbound(t *testing.T, s *stack.Stack) {
	t.Helper()
	at := *s
	at.App = e.app.Cluster
	rights := func() (left []string) {
		for _, resource := range []string{"clusterroles", "clusterrolebindings", "rolebindings"} {
			list, err := e.app.dyn.Resource(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: resource}).List(t.Context(), metav1.ListOptions{})
			e.app.must(t, err)
			for _, u := range list.Items {
				if strings.Contains(u.GetName(), e.group) {
					left = append(left, resource+" "+u.GetNamespace()+"/"+u.GetName())
				}
			}
		}
		return left
	}
	if len(rights()) == 0 {
		t.Error("there were no rights")
	}
	// What Klutch's token is bound to only the platform can delete, which the last command says.
	for _, c := range []struct {
		plural string
		code   int
		says   string
	}{{"widgets", 0, ""}, {"gears", 1, "or, where Klutch's own backend runs, that namespace"}} {
		out := at.Kubectl(t.Context(), nil, "unbind", c.plural+"."+e.group)
		if out.Code != c.code || !strings.Contains(out.Stderr, c.says) {
			t.Errorf("kubectl bind unbind %s: exit code %d, want %d\n%s%s", c.plural, out.Code, c.code, out.Stdout, out.Stderr)
		}
	}
	if left := rights(); len(left) > 0 {
		t.Errorf("left in the App Cluster:\n%s", strings.Join(left, "\n"))
	}
}

// konnectorOf is our konnector for another App Cluster, with the rights that it is shipped with.
func konnectorOf(t *testing.T, s *stack.Stack, app *side) *stack.Process {
	t.Helper()
	kubeconfig, err := stack.Account(t.Context(), app.Cluster, t.TempDir(), v1alpha1.Namespace, "konnector")
	app.must(t, err)
	health, err := cluster.FreeAddress(t.Context())
	app.must(t, err)
	k := &stack.Process{
		Name: "konnector-of-another", Path: filepath.Join(s.Dir, "bin", "konnector"), Dir: s.Dir, Ready: "http://" + health + "/healthz",
		Args: []string{"--kubeconfig", kubeconfig, "--health-address", health, "--lease-namespace", v1alpha1.Namespace},
		Env:  []string{"POD_NAME=konnector-0"},
	}
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("our konnector:\n%s", k.LastWords())
		}
	})
	return k
}
