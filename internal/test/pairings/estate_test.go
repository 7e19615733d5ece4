// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// within is how long twenty changes of each sort may take to the other side.
const within = time.Minute

// An estate is a Klutch installation: two tenants of one App Cluster with 20 claims and a Secret
// for each, in 4 namespaces with a ConfigMap of the person's, and an object of a cluster-scoped kind.
type estate struct {
	*installation

	app       *side
	pairings  []*pairing // one a tenant
	konnector *program   // Klutch's

	claims, objects   []place
	originals, copies []place // Secrets
	settings, carried []place // ConfigMaps of the App Cluster, and their copies
	gear, gearObject  place

	moves  int            // of the backend: odd is over, even is back
	tokens map[string]int // all that were seen: after how many moves

	claimsOf map[string]string // ADOPTED and UNCLAIMED of FROM-KLUTCH.md
}

// TestEstate takes a whole installation from Klutch's programs to ours and back, twice, by the
// commands of FROM-KLUTCH.md. In each state what changes arrives on the other side within
// seconds. Nothing is made anew, and in the end nothing of ours is left that has no owner.
func TestEstate(t *testing.T) {
	cluster.Long(t)
	t.Parallel()
	e := newEstate(t, 20)
	e.works(t, "begin")
	e.deletes(t, "begin")
	before := e.inventory(t)
	for n := range 2 {
		was := e.identities(t)
		e.over(t, n)
		e.unchanged(t, was)
		e.works(t, fmt.Sprint("over-", n))
		e.deletes(t, fmt.Sprint("over-", n))
		was = e.identities(t)
		e.back(t)
		e.unchanged(t, was)
		e.works(t, fmt.Sprint("back-", n))
		e.deletes(t, fmt.Sprint("back-", n))
	}
	if diff := cmp.Diff(before, e.inventory(t)); diff != "" {
		t.Errorf("left of ours, or lost of Klutch's (-before +after):\n%s", diff)
	}
	e.end(t)
	e.ended(t, func(int) bool { return true })
}

func newEstate(t *testing.T, claims int) *estate {
	t.Helper()
	in := install(t)
	e := &estate{installation: in, app: newSide(t, in.App), tokens: map[string]int{}, claimsOf: map[string]string{}}
	for _, p := range []*stack.Process{in.Konnector, in.Backend} {
		e.app.must(t, p.Stop())
	}
	e.control.apply(t, offersOf(their)...)
	e.control.apply(t, template(their, "gears", map[string]any{"clusterScopedIsolation": "Prefixed", "permissionClaims": gearClaims()}), template(their, "wheels", map[string]any{}))
	e.control.apply(t, klutchsOffers(byKlutch+their)...)
	e.app.apply(t, object("v1", "Namespace", "", v1alpha1.Namespace, nil), klutchsCRD())
	for _, u := range deploy.Konnector("konnector") {
		if kind := u.GetKind(); kind != "Namespace" && kind != "ServiceAccount" {
			e.app.must(t, e.app.of(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
		}
	}
	for _, u := range deploy.Prefixed("comets."+ours, "comets."+byKlutch+ours) { // no tenant here has those
		e.control.must(t, e.control.of(u).Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}))
	}
	e.app.must(t, e.app.kube.CoordinationV1().Leases(v1alpha1.Namespace).Delete(t.Context(), v1alpha1.LeaseName, metav1.DeleteOptions{})) // of ours, which has been here
	e.types(t, e.app, "kubectl apply --server-side --force-conflicts --field-manager klutch -f klutch-konnector.yaml", "")
	e.konnector = run(t, newKlutchKonnector(e.app).pass)
	for i, group := range []string{their, byKlutch + their} { // of which only the first has templates of ours
		p := &pairing{app: e.app, control: e.control, group: group, person: []string{stack.Developer, stack.Guest}[i], konnector: e.konnector}
		p.tenant = in.bound(t, e.app, func() { in.bindByKlutchs(t, p, in.klutchCLI(p)) })
		e.pairings = append(e.pairings, p)
		place{e.control, clustersGVR, p.tenant, "cluster"}.patch(t, `{"metadata":{"finalizers":["example.org/of-others"]}}`)
	}
	for i := range claims {
		p := e.pairings[i%2]
		e.add(t, p, fmt.Sprint("shop-", i%4), fmt.Sprint("db-", i), labelled)
	}
	first := e.pairings[0]
	e.gear, e.gearObject = first.place(e.app, "gears", "", "kept"), first.place(e.control, "gears", "", first.tenant+"-kept")
	e.gear.create(t, labelled(map[string]any{"spec": map[string]any{"size": "small"}}))
	e.gearObject.has(t, "small", "spec", "size")
	return e
}

func labelled(rest map[string]any) map[string]any {
	rest["metadata"] = map[string]any{"labels": map[string]any{"tier": "db", "example.org/tier": "db"}}
	return rest
}

// add makes a claim, and the provider's Secret for it, with labels or without: those of a Secret
// Klutch's konnector copies, and ours does not, as this claim names none.
func (e *estate) add(t *testing.T, p *pairing, app, name string, dressed func(map[string]any) map[string]any) {
	t.Helper()
	service := p.tenant + "-" + app
	if !slices.ContainsFunc(e.settings, func(o place) bool { return o.namespace == app }) {
		e.app.apply(t, object("v1", "Namespace", "", app, nil))
		mine := p.claimed(e.app, configMapsGVR, app, "settings")
		mine.create(t, dressed(map[string]any{"data": map[string]any{"password": ""}}))
		e.settings, e.carried = append(e.settings, mine), append(e.carried, p.claimed(e.control, configMapsGVR, service, "settings"))
	}
	claim, there := p.place(e.app, "widgets", app, name), p.place(e.control, "widgets", service, name)
	claim.create(t, labelled(map[string]any{"spec": map[string]any{"size": "small"}}))
	there.has(t, "small", "spec", "size")
	original := p.claimed(e.control, secretsGVR, service, name+"-creds")
	original.create(t, dressed(map[string]any{"data": map[string]any{"password": ""}}))
	e.claims, e.objects = append(e.claims, claim), append(e.objects, there)
	e.originals, e.copies = append(e.originals, original), append(e.copies, p.claimed(e.app, secretsGVR, app, name+"-creds"))
}

// over has our programs take the place of Klutch's. The people bind again, each time by the
// other CLI, and a claim in a new namespace goes up.
func (e *estate) over(t *testing.T, n int) {
	t.Helper()
	e.konnector.stop()
	if n == 0 {
		e.backend.stop()
		e.foreseenThere(t, false)
	}
	e.backendOver(t)
	if n == 0 {
		e.page(t, e.app, "## Beforehand", nil)
		e.page(t, e.control, "## Beforehand", nil)
		e.foreseen(t)
		e.foreseenThere(t, true)
	}
	e.konnectorOver(t)
	for i, p := range e.pairings {
		e.bindsAgain(t, p, e.BackendURL, i == n%2)
	}
	e.add(t, e.pairings[n%2], fmt.Sprint("late-", n), fmt.Sprint("late-", n), func(rest map[string]any) map[string]any { return rest })
}

// back has Klutch's programs take the place of ours.
func (e *estate) back(t *testing.T) {
	t.Helper()
	e.app.must(t, e.Konnector.Stop())
	e.backendBack(t)
	for _, p := range e.pairings {
		if err := (&klutchCLI{e.app, e.klutchs.url, e.visitor(p)}).bind(t.Context(), "widgets."+p.group); err != nil {
			t.Fatalf("Klutch's kubectl bind: %v", err)
		}
	}
	e.konnectorBack(t)
}

func (e *estate) backendOver(t *testing.T) {
	t.Helper()
	e.backend.stop()
	e.page(t, e.control, "## The backend: over", nil) // --prefixed-apis name $APIS since install
	e.Backend.Args = append(e.Backend.Args, "--adopt-klutch-tenants=all")
	e.app.must(t, e.Backend.Start(t.Context()))
	e.moves++
}

func (e *estate) backendBack(t *testing.T) {
	t.Helper()
	e.app.must(t, e.Backend.Stop())
	e.Backend.Args = e.Backend.Args[:len(e.Backend.Args)-1]
	e.page(t, e.control, "## The backend: back", e.pairings) // and takes deploy/adoption away
	e.backend = run(t, e.klutchs.pass)
	e.moves++
}

func (e *estate) konnectorOver(t *testing.T) {
	t.Helper()
	e.konnector.stop()
	e.page(t, e.app, "## The konnector: over", nil)
	e.app.must(t, e.Konnector.Start(t.Context()))
	for _, p := range e.pairings {
		p.konnector = nil
	}
}

func (e *estate) konnectorBack(t *testing.T) {
	t.Helper()
	e.page(t, e.app, "## The konnector: back", nil)
	e.konnector = run(t, newKlutchKonnector(e.app).pass)
	for _, p := range e.pairings {
		p.konnector = e.konnector
	}
}

// bindsAgain has the person of a tenant bind its APIs once more: by our CLI, which gives our konnector
// its rights, or by Klutch's, after which they are granted.
func (e *estate) bindsAgain(t *testing.T, p *pairing, backend string, byOurs bool) {
	t.Helper()
	names := []string{"widgets." + p.group, "gears." + p.group}
	switch {
	case byOurs && backend == e.BackendURL:
		succeeds(t, e.bindAt(t, p, backend, names[0], "--service", names[1], "--adopt", "5", "--timeout", "3m"))
	case byOurs: // Klutch's gives one at a time
		succeeds(t, e.bindAt(t, p, backend, names[0], "--adopt", "5", "--timeout", "3m"))
		succeeds(t, e.bindAt(t, p, backend, names[1], "--accept-claim", names[1]+"/secrets", "--accept-claim", names[1]+"/configmaps", "--timeout", "3m"))
	default:
		for _, name := range names {
			if err := (&klutchCLI{e.app, backend, e.visitor(p)}).bind(t.Context(), name); err != nil {
				t.Fatalf("Klutch's kubectl bind %s: %v", name, err)
			}
			if p.konnector == nil {
				p.grant(t, name)
			}
		}
	}
}

// page types the commands of a section of FROM-KLUTCH.md; those with $TENANT for each tenant.
func (e *estate) page(t *testing.T, at *side, section string, tenants []*pairing) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/FROM-KLUTCH.md")
	at.must(t, err)
	_, rest, found := strings.Cut(string(text), section+"\n")
	rest, _, _ = strings.Cut(rest, "\n## ")
	parts := strings.Split(rest, "```sh\n")
	if !found || len(parts) < 2 {
		t.Fatalf("no commands in %s", section)
	}
	for _, part := range parts[1:] {
		block, _, _ := strings.Cut(part, "```")
		if strings.Contains(block, "doctor --takeover") {
			block = strings.TrimSpace(block) + " || test $? -eq 3"
		}
		if !strings.Contains(block, "$TENANT") {
			e.types(t, at, block, "")
			continue
		}
		for _, p := range tenants {
			e.types(t, at, block, p.tenant)
		}
	}
}

// types runs commands in the checkout.
func (e *estate) types(t *testing.T, at *side, commands, tenant string) {
	t.Helper()
	manifests, err := filepath.Abs("../../../deploy/testdata/klutch-konnector.yaml")
	at.must(t, err)
	commands = strings.NewReplacer("IMAGE", "example.com/konnector:v1", "klutch-konnector.yaml", manifests).Replace(commands)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // kubectl delete waits for ever
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-e", "-o", "pipefail", "-c", commands)
	cmd.Dir, cmd.WaitDelay = "../../..", time.Second
	cmd.Env = append(os.Environ(), "TENANT="+tenant, fmt.Sprintf("APIS=gears.%[1]s gears.%[2]s%[1]s", their, byKlutch), "KUBECONFIG="+at.Kubeconfig(), "PATH="+filepath.Join(e.Dir, "bin")+":"+os.Getenv("PATH"))
	offered := fmt.Sprintf("widgets.%[1]s gears.%[1]s", byKlutch+their)
	cmd.Env = append(cmd.Env, "OFFERED="+offered, "PEOPLE=oidc:guests")
	for name, of := range e.claimsOf {
		cmd.Env = append(cmd.Env, name+"="+of)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v\n%s", commands, err, out)
	}
}

// works changes every object on the side that says how it is, and waits for it on the other one.
// Each token of another state is refused, but for Klutch's in a state of Klutch's, whose backend
// makes the same one again for the same account.
func (e *estate) works(t *testing.T, state string) {
	t.Helper()
	claims, objects := append(slices.Clone(e.claims), e.gear), append(slices.Clone(e.objects), e.gearObject)
	data := func(text string) string { return fmt.Sprintf(`{"data":{"password":%q}}`, text) }
	encoded := base64Of([]byte(state))
	began := time.Now()
	for i, claim := range claims {
		claim.patch(t, fmt.Sprintf(`{"spec":{"size":%q}}`, state))
		objects[i].patch(t, fmt.Sprintf(`{"status":{"state":%q}}`, state), "status")
	}
	for _, original := range e.originals {
		original.patch(t, data(encoded))
	}
	for _, mine := range e.settings {
		mine.patch(t, data(state))
	}
	for _, arriving := range []struct {
		what   string
		places []place
		value  string
		path   []string
	}{
		{"rotated Secrets", e.copies, encoded, []string{"data", "password"}},
		{"specs", objects, state, []string{"spec", "size"}},
		{"statuses", claims, state, []string{"status", "state"}},
		{"ConfigMaps of the App Cluster", e.carried, state, []string{"data", "password"}},
	} {
		for _, o := range arriving.places {
			o.has(t, arriving.value, arriving.path...)
		}
		if took := time.Since(began); took > within {
			t.Errorf("%s: %d %s arrived only after %s", state, len(arriving.places), arriving.what, took)
		} else {
			t.Logf("%s: %d %s arrived within %s", state, len(arriving.places), arriving.what, took.Round(100*time.Millisecond))
		}
	}
	e.ended(t, func(made int) bool { return made != e.moves && (made%2 != 0 || e.moves%2 != 0) })
	for _, token := range e.credentials(t) {
		if _, known := e.tokens[token]; !known {
			e.tokens[token] = e.moves
		}
	}
}

// deletes makes a claim with a Secret for each tenant, and has both sides delete what they made: what
// stands for it goes.
func (e *estate) deletes(t *testing.T, state string) {
	t.Helper()
	for _, p := range e.pairings {
		app := fmt.Sprint("shop-", slices.Index(e.pairings, p)) // which has claims of the tenant
		service := p.tenant + "-" + app
		claim, object := p.place(e.app, "widgets", app, state), p.place(e.control, "widgets", service, state)
		original, copied := p.claimed(e.control, secretsGVR, service, state), p.claimed(e.app, secretsGVR, app, state)
		claim.create(t, map[string]any{"spec": map[string]any{"size": "small"}})
		object.has(t, "small", "spec", "size")
		original.create(t, map[string]any{"data": map[string]any{"password": base64Of([]byte(state))}})
		copied.has(t, base64Of([]byte(state)), "data", "password")
		original.delete(t)
		copied.gone(t)
		claim.delete(t)
		claim.gone(t)
		object.gone(t)
	}
}

// credentials are the tokens in the Secrets of both sides.
func (e *estate) credentials(t *testing.T) (all []string) {
	t.Helper()
	for _, at := range []*side{e.app, e.control} {
		list, err := at.kube.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
		at.must(t, err)
		for _, secret := range list.Items {
			if token := string(secret.Data["token"]); token != "" {
				all = append(all, token)
			}
			if config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"]); err == nil {
				all = append(all, config.BearerToken)
			}
		}
	}
	if len(all) < len(e.pairings) {
		t.Fatalf("%d tokens for %d tenants", len(all), len(e.pairings))
	}
	return all
}

// ended waits until each token that was seen after such a number of moves is refused.
func (e *estate) ended(t *testing.T, such func(moves int) bool) {
	t.Helper()
	for token, made := range e.tokens {
		if !such(made) {
			continue
		}
		config := rest.AnonymousClientConfig(e.control.Config())
		config.BearerToken = token
		client, err := kubernetes.NewForConfig(config)
		e.control.must(t, err)
		eventually(t, func(ctx context.Context) error {
			_, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			if !apierrors.IsUnauthorized(err) {
				return fmt.Errorf("a token from after %d moves is still good after %d: %w", made, e.moves, err)
			}
			return nil
		})
	}
}

// identities are what stays of objects, with whichever programs: what the people and the
// provider wrote, labels included, the status, and which object it is.
func (e *estate) identities(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, o := range slices.Concat(e.claims, e.copies, e.objects, e.originals, e.settings, e.carried, []place{e.gear, e.gearObject}, e.frame()) {
		u, err := o.client().Get(t.Context(), o.name, metav1.GetOptions{})
		o.must(t, err)
		labels := u.GetLabels()
		maps.DeleteFunc(labels, func(key, _ string) bool {
			return strings.HasPrefix(key, "klutch.anynines.com/") || key == "pod-security.kubernetes.io/enforce"
		})
		state := ""
		if o.gvr.Group != v1alpha1.GroupVersion.Group {
			state = fmt.Sprint(u.GetFinalizers(), text(u, "status", "state"), text(u, "data", "password"))
		}
		all[o.Name()+" "+o.String()] = fmt.Sprint(u.GetUID(), labels, state)
	}
	return all
}

// frame is what the programs make around the claims.
func (e *estate) frame() (all []place) {
	for _, p := range e.pairings {
		all = append(all, place{e.control, namespacesGVR, "", p.tenant}, place{e.control, clustersGVR, p.tenant, "cluster"})
		for _, plural := range []string{"widgets", "gears"} {
			name := plural + "." + p.group
			all = append(all, place{e.control, exportsGVR, p.tenant, name}, place{e.app, bindingsGVR, v1alpha1.Namespace, name}, place{e.app, crdsGVR, "", name})
		}
	}
	for _, o := range e.objects {
		tenant, app, _ := e.split(o.namespace)
		all = append(all, place{e.control, namespacesGVR, "", o.namespace}, place{e.control, requestedGVR, tenant, app})
	}
	return all
}

// split tells whose a service namespace is, and for which namespace of the App Cluster.
func (e *estate) split(service string) (tenant, app string, ok bool) {
	for _, p := range e.pairings {
		if app, ok = strings.CutPrefix(service, p.tenant+"-"); ok {
			return p.tenant, app, true
		}
	}
	return "", "", false
}

func (e *estate) unchanged(t *testing.T, was map[string]string) {
	t.Helper()
	now := e.identities(t)
	maps.DeleteFunc(now, func(key, _ string) bool { _, old := was[key]; return !old }) // made since
	if diff := cmp.Diff(was, now); diff != "" {
		t.Fatalf("something was made anew, or lost or won a label, a status or a finalizer (-before +after):\n%s", diff)
	}
}

// inventory is what gives rights, or keeps objects from going, on both sides.
func (e *estate) inventory(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	rbac, admission := "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
	for _, at := range []*side{e.app, e.control} {
		for _, gvr := range []schema.GroupVersionResource{
			namespacesGVR, secretsGVR,
			{Version: "v1", Resource: "serviceaccounts"},
			{Version: "v1", Resource: "resourcequotas"},
			{Group: rbac, Version: "v1", Resource: "roles"},
			{Group: rbac, Version: "v1", Resource: "rolebindings"},
			{Group: rbac, Version: "v1", Resource: "clusterroles"},
			{Group: rbac, Version: "v1", Resource: "clusterrolebindings"},
			{Group: admission, Version: "v1", Resource: "validatingadmissionpolicies"},
			{Group: admission, Version: "v1", Resource: "validatingadmissionpolicybindings"},
			bindingsGVR, crdsGVR, clustersGVR, requestedGVR, exportsGVR,
		} {
			list, err := at.dyn.Resource(gvr).List(t.Context(), metav1.ListOptions{})
			if !apierrors.IsNotFound(err) {
				at.must(t, err)
			} else {
				continue
			}
			for _, u := range list.Items {
				labels := u.GetLabels()
				maps.DeleteFunc(labels, func(key, _ string) bool {
					return key == "app.kubernetes.io/managed-by" || // of kubeconfig Secrets that our CLI renewed
						strings.HasSuffix(key, "tier") // of Secrets, which identities compare
				})
				if stays(&u) {
					continue
				}
				key := at.Name() + " " + gvr.Resource + " " + u.GetNamespace() + "/" + u.GetName()
				value := fmt.Sprint(u.GetFinalizers(), labels, u.Object["rules"], u.Object["roleRef"], u.Object["subjects"])
				all[key] = value
			}
		}
	}
	return likened(all)
}

// likened drops what came with the namespaces late-N if it is as what was before with shop-N.
func likened(all map[string]string) map[string]string {
	for n := range 2 {
		late := fmt.Sprint("late-", n)
		like := strings.NewReplacer(late+"-creds", fmt.Sprintf("db-%d-creds", n), late, fmt.Sprint("shop-", n)).Replace
		maps.DeleteFunc(all, func(key, value string) bool { return strings.Contains(key, late) && all[like(key)] == like(value) })
	}
	return all
}

// stays tells of what kubectl bind wrote for each API, which is there until kubectl bind unbind.
func stays(u *unstructured.Unstructured) bool {
	return strings.HasPrefix(u.GetName(), "klutch-bind-") && strings.HasSuffix(u.GetName(), their)
}

// end deletes all claims, unbinds with our CLI, and has the platform end the tenants, as that
// asks for: nothing hangs, and no right is left.
func (e *estate) end(t *testing.T) {
	t.Helper()
	claims, objects := slices.Concat(e.claims, []place{e.gear}), slices.Concat(e.objects, []place{e.gearObject})
	for _, o := range slices.Concat(claims, e.originals, e.settings) {
		o.delete(t)
	}
	for _, o := range slices.Concat(claims, objects, e.originals, e.copies, e.carried) {
		o.gone(t)
	}
	e.konnector.stop() // its Deployment is as it was
	for _, p := range e.pairings {
		p.unbound(t, e.Stack)
	}
	e.backend.stop()
	for _, p := range e.pairings {
		place{e.control, clustersGVR, p.tenant, "cluster"}.patch(t, `{"metadata":{"finalizers":null}}`)
		tenant := place{e.control, namespacesGVR, "", p.tenant}
		tenant.delete(t)
		tenant.gone(t)
	}
}

// unbound gives up both APIs with our CLI, after which no right of theirs is left in the App
// Cluster.
func (p *pairing) unbound(t *testing.T, s *stack.Stack) {
	t.Helper()
	rights := func() (left []string) {
		for resource, group := range map[string]string{
			"clusterroles": "rbac.authorization.k8s.io", "clusterrolebindings": "rbac.authorization.k8s.io", "rolebindings": "rbac.authorization.k8s.io",
			"validatingadmissionpolicies": "admissionregistration.k8s.io", "validatingadmissionpolicybindings": "admissionregistration.k8s.io",
		} {
			list, err := p.app.dyn.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).List(t.Context(), metav1.ListOptions{})
			p.app.must(t, err)
			for _, u := range list.Items {
				if strings.HasSuffix(u.GetName(), "s."+p.group) {
					left = append(left, resource+" "+u.GetNamespace()+"/"+u.GetName())
				}
			}
		}
		return left
	}
	if had := strings.Join(rights(), "\n"); !strings.Contains(had, "clusterroles ") || !strings.Contains(had, "validatingadmissionpolicies ") {
		t.Errorf("there were no rights, or no policies:\n%s", had)
	}
	// What Klutch's token is bound to only the platform can delete, which the last command says.
	for _, c := range []struct {
		plural string
		code   int
		says   string
	}{{"widgets", 0, ""}, {"gears", 1, "end when the platform team deletes the namespace " + p.tenant}} {
		out := s.Kubectl(t.Context(), nil, "unbind", c.plural+"."+p.group)
		if out.Code != c.code || !strings.Contains(out.Stderr, c.says) || strings.Contains(out.Stderr, "Klutch's konnector runs here") != (c.code != 0) {
			t.Errorf("kubectl bind unbind %s: exit code %d, want %d\n%s%s", c.plural, out.Code, c.code, out.Stdout, out.Stderr)
		}
	}
	if left := rights(); len(left) > 0 {
		t.Errorf("left in the App Cluster:\n%s", strings.Join(left, "\n"))
	}
}

// bindAt runs our CLI for the one service at a backend, where the person clicks on its link if
// the backend answers through the browser.
func (in *installation) bindAt(t *testing.T, p *pairing, backend, service string, args ...string) stack.Output {
	t.Helper()
	at, v := *in.Stack, in.visitor(p)
	at.App = p.app.Cluster
	if backend == at.BackendURL {
		return at.Bind(t.Context(), v.name, append([]string{"--service", service}, args...)...)
	}
	said := make(chan error, 1)
	out := at.Kubectl(t.Context(), stack.OnURL(func(url string) { said <- v.click(context.WithoutCancel(t.Context()), url, service) }),
		append([]string{backend, "--skip-konnector", "--no-browser", "--yes"}, args...)...)
	select {
	case err := <-said:
		p.app.must(t, err)
	default:
	}
	return out
}
