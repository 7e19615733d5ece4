// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	gadgets   = "gadgets.example.org"
	impostor  = "impostors.example.org"
	sprockets = "sprockets.example.org"
	password  = "swordfish-7f3a"
)

// A provider offers more than was agreed to, and something other than what its name
// says; a neighbour in the App Cluster binds with a Secret that is not theirs. Once all
// of it was judged, the App Cluster has what its owner agreed to, and nothing secret was
// said on the way.
func TestP9P21P24Konnector(t *testing.T) {
	w := newWorld(t)
	w.anythingGoes(t)
	widget := read(t, "testdata/widgets.yaml")[0]
	w.offer(t, widget.DeepCopy())
	w.offer(t, renamed(widget, "gadgets", "Gadget"))
	other := renamed(widget, "clusterroles", "ClusterRole")
	other.SetName(impostor)
	other.SetNamespace(tenant)
	other.Object["spec"].(map[string]any)["group"] = "rbac.authorization.k8s.io"
	w.controlPlane.apply(t, other)

	access := w.kubeconfig(t)
	w.app.apply(t, secret(v1alpha1.Namespace, w.secret, access), object("v1", "Namespace", "", "neighbour", nil))
	said := &record{}
	defer w.run(t, bind.Options{}, said.logger())()
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	w.bind(t, widgets, secretsClaim)
	w.bind(t, impostor)
	w.allow(t, widgets)
	w.app.apply(t, neighbours(widgets, v1alpha1.Namespace), neighbours(gadgets, v1alpha1.Namespace), neighbours(impostor, "neighbour"))
	w.firstComer(t, access)

	w.ready(t, widgets)
	w.condition(t, impostor, v1alpha1.ConditionReady, v1alpha1.ReasonAPIServiceExportInvalid)
	for name, reason := range map[string]string{
		widgets: v1alpha1.ReasonKubeconfigSecretInvalid, gadgets: v1alpha1.ReasonKubeconfigSecretInvalid, impostor: v1alpha1.ReasonKubeconfigSecretInvalid, sprockets: v1alpha1.ReasonKubeconfigSecretInvalid,
	} {
		w.conditionIn(t, "neighbour", name, reason)
	}
	w.hasJust(t, "apiservicebindings.klutch.anynines.com", widgets)
	theirs, ours := get[unstructured.Unstructured](t, w.controlPlane, crdsGVR, "", widgets), get[unstructured.Unstructured](t, w.app, crdsGVR, "", widgets)
	if diff := cmp.Diff(theirs.Object["spec"], ours.Object["spec"]); diff != "" {
		t.Errorf("what was agreed to (-control plane +app):\n%s", diff)
	}
	w.credentialTravels(t)
	k, err := kubeconfig.Read(access)
	if err != nil {
		t.Fatal(err)
	}
	said.secret(t, w, k.Token[:100], k.Token[len(k.Token)-100:], base64.StdEncoding.EncodeToString(access)[200:300], password, base64.StdEncoding.EncodeToString([]byte(password)))
}

// anythingGoes has the provider's CRD of exports take what ours refuses.
func (w *world) anythingGoes(t *testing.T) {
	t.Helper()
	crd := v1alpha1.CRDs()["apiserviceexports.klutch.anynines.com"]
	versions := crd.Object["spec"].(map[string]any)["versions"].([]any)
	delete(versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any), "x-kubernetes-validations")
	w.controlPlane.apply(t, crd)
}

func renamed(export *unstructured.Unstructured, plural, kind string) *unstructured.Unstructured {
	u := export.DeepCopy()
	u.SetName(plural + ".example.org")
	u.Object["spec"].(map[string]any)["names"] = map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)}
	return u
}

// firstComer has a user of a namespace wait with a binding of their own, of which the
// konnector may read the Secret, until an administrator gives rights on an API.
func (w *world) firstComer(t *testing.T, access []byte) {
	t.Helper()
	w.offer(t, renamed(read(t, "testdata/widgets.yaml")[0], "sprockets", "Sprocket"))
	w.app.apply(t, secret("neighbour", w.secret, access),
		object("rbac.authorization.k8s.io/v1", "Role", "neighbour", "konnector", map[string]any{
			"rules": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get", "list", "watch"}}},
		}),
		object("rbac.authorization.k8s.io/v1", "RoleBinding", "neighbour", "konnector", map[string]any{
			"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "konnector"},
			"subjects": []any{map[string]any{"kind": "ServiceAccount", "namespace": v1alpha1.Namespace, "name": "konnector"}},
		}), neighbours(sprockets, "neighbour"))
	w.app.apply(t, bind.Rights(get[v1alpha1.APIServiceExport](t, w.controlPlane, exportsGVR, tenant, sprockets).Spec, nil)...)
}

// neighbours is a binding of who may write them in one namespace, with a Secret in
// another or their own.
func neighbours(name, secretNamespace string) *unstructured.Unstructured {
	return object(v1alpha1.GroupVersion.String(), "APIServiceBinding", "neighbour", name, map[string]any{
		"spec": map[string]any{"kubeconfigSecretRef": map[string]any{"namespace": secretNamespace, "name": "kubeconfig", "key": v1alpha1.KubeconfigKey}},
	})
}

func (w *world) conditionIn(t *testing.T, namespace, name, reason string) {
	t.Helper()
	elsewhere := *w
	elsewhere.bindings = namespace
	elsewhere.condition(t, name, v1alpha1.ConditionReady, reason)
}

// hasJust fails the test unless these are the CRDs of the App Cluster.
func (w *world) hasJust(t *testing.T, names ...string) {
	t.Helper()
	list, err := w.app.dyn.Resource(crdsGVR).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, crd := range list.Items {
		got = append(got, crd.GetName())
	}
	slices.Sort(got)
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("CRDs of the App Cluster (-want +got):\n%s", diff)
	}
}

// credentialTravels has a claim answered with a Secret.
func (w *world) credentialTravels(t *testing.T) {
	t.Helper()
	w.app.apply(t, object("v1", "Namespace", "", "team", nil), widget("team", "one", map[string]any{"size": int64(5)}))
	service := w.serveNamespace(t, "team", widgetRights)
	w.controlPlane.apply(t, object("v1", "Secret", service, "creds", map[string]any{"stringData": map[string]any{"password": password}}))
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, w.controlPlane, widgetsGVR, service, "one")
		return err
	})
	w.controlPlane.patchStatus(t, widgetsGVR, service, "one", map[string]any{"secret": "creds"})
	eventually(t, func() error {
		got, err := find[unstructured.Unstructured](t, w.app, secretsGVR, "team", "creds")
		if err != nil {
			return err
		}
		if data, _, _ := unstructured.NestedString(got.Object, "data", "password"); data != base64.StdEncoding.EncodeToString([]byte(password)) {
			return errors.New("the copy has another password")
		}
		return nil
	})
}

// verbosity is the highest that our programs have: above it client-go logs what is sent.
const verbosity = 5

// A record is all that a konnector logs.
type record struct {
	mu   sync.Mutex
	text strings.Builder
}

func (r *record) logger() logr.Logger {
	return funcr.NewJSON(func(line string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.text.WriteString(line + "\n")
	}, funcr.Options{Verbosity: verbosity})
}

// secret fails the test if one of canaries, plain or encoded, stands in the log, an
// Event, or any object but a Secret that konnectors write.
func (r *record) secret(t *testing.T, w *world, canaries ...string) {
	t.Helper()
	r.mu.Lock()
	said := map[string]string{"log": r.text.String()}
	r.mu.Unlock()
	for _, s := range []*side{w.app, w.controlPlane} {
		for _, gvr := range []schema.GroupVersionResource{
			bindingsGVR, exportsGVR, requestedGVR, clustersGVR, widgetsGVR, crdsGVR, {Version: "v1", Resource: "events"}, {Version: "v1", Resource: "configmaps"},
		} {
			list, err := s.dyn.Resource(gvr).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				continue // not served on this side
			}
			data, err := json.Marshal(list)
			if err != nil {
				t.Fatal(err)
			}
			said[s.Name()+" "+gvr.Resource] = string(data)
		}
	}
	if len(said) < 10 || !strings.Contains(said["log"], "CRD created") || !strings.Contains(said["app events"], "Normal") {
		t.Errorf("little was said: %d places, log:\n%s", len(said), said["log"])
	}
	for where, text := range said {
		for _, canary := range canaries {
			if strings.Contains(text, canary) {
				t.Errorf("a secret stands in %s", where)
			}
		}
	}
}
