// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestHalves moves the two halves of an installation one after the other, over and back, and in
// both orders: what changes arrives in each state, and nothing is made anew. An API that is bound
// meanwhile stays bound on the way back.
func TestHalves(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	e := newEstate(t, 4)
	first, second := e.pairings[0], e.pairings[1]
	adopted := []struct{ here, there place }{}
	for i, p := range e.pairings {
		here, there := e.adoptedByKlutch(t, p, fmt.Sprint("shop-", i))
		adopted = append(adopted, struct{ here, there place }{here, there})
	}
	e.works(t, "begin")
	was := e.identities(t)
	in := func(state string) {
		t.Helper()
		e.unchanged(t, was)
		e.works(t, state)
		was = e.identities(t)
	}

	e.backendOver(t)
	e.deaf(t, first) // under Klutch's konnector
	e.control.label(t, second.tenant)
	e.bindsAgain(t, second, e.BackendURL, false)
	e.bindsAgain(t, first, e.BackendURL, true)
	in("backend over, before the konnector")

	e.Konnector.Args = append(e.Konnector.Args, "--crd-owner-references")
	e.konnectorOver(t)
	e.bindsAgain(t, first, e.BackendURL, true)
	e.bindsAgain(t, second, e.BackendURL, false)
	succeeds(t, e.Kubectl(t.Context(), nil, "claims", "widgets."+second.group, "--adopt", "5", "--yes"))
	for _, o := range adopted {
		o.here.patch(t, `{"spec":{"size":"edited"}}`)
		o.there.has(t, "edited", "spec", "size")
		o.there.patch(t, `{"status":{"state":"followed"}}`, "status")
		o.here.has(t, "followed", "status", "state")
	}
	succeeds(t, e.bindAt(t, first, e.BackendURL, "wheels."+first.group, "--timeout", "3m"))
	e.claim(t, first, "wheels", "shop-0", "wheel")
	in("konnector over, after the backend")

	forgotten := e.forgotten(t, first) // stops our konnector
	e.konnectorBack(t)                 // our backend has them labelled still
	forgotten(t)
	in("konnector back, before the backend")

	e.konnector.stop()
	e.backendBack(t)
	e.bindsAgain(t, first, e.klutchs.url, false)
	e.bindsAgain(t, second, e.klutchs.url, false)
	if err := (&klutchCLI{e.app, e.klutchs.url, e.visitor(first)}).bind(t.Context(), "wheels."+first.group); err != nil {
		t.Fatalf("Klutch's kubectl bind of an API that was bound meanwhile: %v", err)
	}
	e.konnector = run(t, newKlutchKonnector(e.app).pass)
	in("backend back, after the konnector")

	e.konnectorOver(t)
	e.bindsAgain(t, first, e.klutchs.url, true)
	e.bindsAgain(t, second, e.klutchs.url, false)
	in("konnector over, before the backend")

	e.backendOver(t)
	e.bindsAgain(t, first, e.BackendURL, true)
	e.bindsAgain(t, second, e.BackendURL, false)
	in("backend over, after the konnector")

	e.backendBack(t)
	e.bindsAgain(t, first, e.klutchs.url, true)
	e.bindsAgain(t, second, e.klutchs.url, false)
	in("backend back, before the konnector")

	e.app.must(t, e.Konnector.Stop())
	e.konnectorBack(t)
	in("konnector back, after the backend")
}

// claim makes a claim of any kind in a namespace that has a service namespace.
func (e *estate) claim(t *testing.T, p *pairing, plural, app, name string) {
	t.Helper()
	here, there := p.place(e.app, plural, app, name), p.place(e.control, plural, p.tenant+"-"+app, name)
	here.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	there.has(t, "small", "spec", "size")
	e.claims, e.objects = append(e.claims, here), append(e.objects, there)
}

// adoptedByKlutch has Klutch's konnector make a claim, in a namespace, for an object of the provider,
// and doctor tell what marks it needs.
func (e *estate) adoptedByKlutch(t *testing.T, p *pairing, app string) (here, there place) {
	t.Helper()
	here, there = p.place(e.app, "widgets", app, "adopted"), p.place(e.control, "widgets", p.tenant+"-"+app, "adopted")
	there.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	here.has(t, "small", "spec", "size")
	e.claimsOf["ADOPTED"] += fmt.Sprintf(" widgets.%s/%s/adopted/%s", p.group, app, there.uid(t))
	e.takeover(t, e.app, "widgets."+p.group)("objects", false, app+"/adopted: left alone, since Klutch's konnector made the claim")
	return here, there
}

// forgotten takes a claim away without its object, as who takes a finalizer off does. Klutch's
// konnector would delete the object. By the page it makes a claim of it.
func (e *estate) forgotten(t *testing.T, p *pairing) (comesBack func(*testing.T)) {
	t.Helper()
	here, there := p.place(e.app, "widgets", "shop-0", "forgotten"), p.place(e.control, "widgets", p.tenant+"-shop-0", "forgotten")
	here.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	there.has(t, "small", "spec", "size")
	e.app.must(t, e.Konnector.Stop())
	uid := there.uid(t)
	here.delete(t)
	here.patch(t, `{"metadata":{"finalizers":null}}`)
	here.gone(t)
	e.claimsOf["UNCLAIMED"] = fmt.Sprintf("widgets.%s/%s/%s", p.group, there.namespace, there.name)
	e.takeover(t, e.app, "widgets."+p.group)("objects", false, "shop-0/forgotten: have no claim, so that Klutch's konnector deletes them")
	e.page(t, e.control, "## The konnector: before it goes back", nil)
	return func(t *testing.T) {
		t.Helper()
		here.has(t, "small", "spec", "size")
		if there.uid(t) != uid {
			t.Errorf("%s was made anew", there)
		}
	}
}

// deaf has a person bind at our backend while Klutch's konnector stays, before the label lets that
// in: its conditions stay as they are, and are not believed.
func (e *estate) deaf(t *testing.T, p *pairing) {
	t.Helper()
	name := "widgets." + p.group
	out := e.bindAt(t, p, e.BackendURL, name, "--timeout", "75s")
	if words := "is of Klutch's konnector, which waits until it may list Secrets"; out.Code != 3 || !strings.Contains(out.Stderr, words) {
		t.Errorf("exit code %d, want 3, and %q\n%s%s", out.Code, words, out.Stdout, out.Stderr)
	}
	e.control.lacking(t, p.tenant)
	if out := e.Kubectl(t.Context(), nil, "status"); out.Code != 3 || !strings.Contains(out.Stderr, "says: the last heartbeat, of ") {
		t.Errorf("status: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
	}
	e.control.label(t, p.tenant)
}

// TestRevokedOnTheWay has a person reject a claim at the first bind under our konnector: the copies
// that Klutch's made go, although ours never had a right on them. On a second tour another claim
// is rejected while Klutch's konnector runs.
func TestRevokedOnTheWay(t *testing.T) {
	t.Parallel()
	e := newEstate(t, 2)
	first, second := e.pairings[0], e.pairings[1]
	name := "widgets." + first.group
	for i, original := range e.originals {
		original.patch(t, fmt.Sprintf(`{"data":{"password":%q}}`, base64Of([]byte("copied"))))
		e.copies[i].has(t, base64Of([]byte("copied")), "data", "password")
	}
	e.gear.delete(t) // for which Secrets are copied everywhere
	e.gear.gone(t)
	e.konnectorOver(t)
	// Both others claim Secrets, too: the konnector has to know where they have objects.
	gears := "gears." + first.group
	succeeds(t, e.bindAt(t, first, e.klutchs.url, gears, "--accept-claim", gears+"/secrets", "--accept-claim", gears+"/configmaps", "--timeout", "3m"))
	e.bindsAgain(t, second, e.klutchs.url, true)
	e.copies[0].has(t, base64Of([]byte("copied")), "data", "password") // as nothing was asked yet
	succeeds(t, e.bindAt(t, first, e.klutchs.url, name, "--reject-claim", name+"/secrets", "--accept-claim", name+"/configmaps", "--timeout", "3m"))
	e.copies[0].gone(t)
	eventually(t, func(ctx context.Context) error {
		u, err := place{e.app, bindingsGVR, v1alpha1.Namespace, name}.client().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		b := &v1alpha1.APIServiceBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, b); err != nil {
			return err
		}
		if !v1alpha1.IsTrue(b.Status.Conditions, v1alpha1.ConditionClaimsInSync) {
			return fmt.Errorf("%+v", b.Status.Conditions)
		}
		return nil
	})
	if _, err := e.copies[1].client().Get(t.Context(), e.copies[1].name, metav1.GetOptions{}); err != nil {
		t.Errorf("the copy of another tenant, with its consent: %v", err)
	}

	e.app.must(t, e.Konnector.Stop())
	e.konnectorBack(t)
	e.add(t, second, "late", "late", labelled) // where ours never had a right
	original, late := e.originals[len(e.originals)-1], e.copies[len(e.copies)-1]
	original.patch(t, fmt.Sprintf(`{"data":{"password":%q}}`, base64Of([]byte("copied"))))
	late.has(t, base64Of([]byte("copied")), "data", "password")
	answered := claims()
	answered[0].(map[string]any)["state"], answered[1].(map[string]any)["state"] = "Rejected", "Accepted"
	spec, err := json.Marshal(map[string]any{"spec": map[string]any{"permissionClaims": answered}})
	e.app.must(t, err)
	place{e.app, bindingsGVR, v1alpha1.Namespace, "widgets." + second.group}.patch(t, string(spec))
	e.konnectorOver(t)
	e.copies[1].gone(t)
	late.gone(t)
}

// TestBeside has Klutch's backend run beside ours, as it does while people move: it serves all
// tenants of the Control Plane Cluster. The page says what that does to those of ours.
func TestBeside(t *testing.T) {
	t.Parallel()
	e := newEstate(t, 2)
	first, second := e.pairings[0], e.pairings[1]
	e.klutchs.serveAll()
	e.backend.stop()
	e.backendOver(t)
	e.backend = run(t, e.klutchs.pass)
	e.konnectorOver(t)
	e.bindsAgain(t, first, e.BackendURL, true) // adopted; the other one stays
	e.bindsAgain(t, second, e.klutchs.url, false)
	other := &pairing{app: e.app, control: e.control, group: ours, person: stack.Colleague}
	e.app.apply(t, object("v1", "Namespace", "", "beside", nil))
	other.tenant = e.bound(t, e.app, func() {
		succeeds(t, e.bindAt(t, other, e.BackendURL, "widgets."+ours, "--adopt", "5", "--timeout", "3m"))
	})
	life := func(name string) {
		t.Helper()
		other.life(t, other.place(e.app, "widgets", "beside", name), other.place(e.control, "widgets", other.tenant+"-beside", name))
	}
	life("one")
	e.works(t, "beside")

	// Klutch's backend may be the first to make a service namespace.
	e.app.must(t, e.Backend.Stop())
	e.app.apply(t, object("v1", "Namespace", "", "beside-2", nil))
	here, there := other.place(e.app, "widgets", "beside-2", "kept"), other.place(e.control, "widgets", other.tenant+"-beside-2", "kept")
	here.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
	service := place{e.control, namespacesGVR, "", there.namespace}
	service.isAnew(t, "")
	e.app.must(t, e.Backend.Start(t.Context()))
	service.has(t, other.tenant, "metadata", "labels", v1alpha1.TenantLabel)
	there.has(t, "small", "spec", "size")

	bindings := schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	wide := func(p *pairing) place { return place{e.control, bindings, "", "klutch-binder-" + p.tenant} }
	for _, p := range []*pairing{first, second, other} { // those of ours too
		eventually(t, func(ctx context.Context) error {
			_, err := wide(p).client().Get(ctx, wide(p).name, metav1.GetOptions{})
			return err
		})
	}
	e.backend.stop()
	e.page(t, e.control, "## Both backends at once", nil)
	for _, p := range []*pairing{first, other} {
		wide(p).gone(t)
	}
	if _, err := wide(second).client().Get(t.Context(), wide(second).name, metav1.GetOptions{}); err != nil {
		t.Errorf("what Klutch's own tenant has: %v", err)
	}
	life("two")
}
