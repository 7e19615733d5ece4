// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// allSecrets is as much as a claim can ask for.
func allSecrets(owner string) map[string]any {
	return map[string]any{
		"resource": "secrets", "version": "v1", "required": true, "state": "Accepted",
		"selector": map[string]any{"owner": owner, "names": []any{"*"}, "namespaces": []any{"*"}},
	}
}

// planted are Secrets that a platform would like to have in namespaces of an App
// Cluster.
var planted = map[string]string{
	"payroll": "salaries-of-next-year", "kube-system": "bootstrap-token-abcdef", "kube-public": "cluster-info", v1alpha1.Namespace: "a-kubeconfig",
}

// hostileNamespaces does what a backend does for namespaces that no App Cluster asked for. One
// of them bears the mark of a konnector.
func (w *world) hostileNamespaces(t *testing.T) {
	t.Helper()
	for namespace, name := range planted {
		manager := "platform"
		if namespace == "kube-system" {
			manager = v1alpha1.FieldManager
		}
		asked := object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", tenant, namespace, map[string]any{"spec": map[string]any{}})
		if _, err := w.controlPlane.dyn.Resource(requestedGVR).Namespace(tenant).Create(t.Context(), asked, metav1.CreateOptions{FieldManager: manager}); err != nil {
			t.Fatal(err)
		}
		service := w.serveNamespace(t, namespace, widgetRights)
		w.controlPlane.apply(t, stringSecret(service, name, "planted"))
	}
}

func stringSecret(namespace, name, value string) *unstructured.Unstructured {
	return object("v1", "Secret", namespace, name, map[string]any{"stringData": map[string]any{"password": value}})
}

// secretsIn are the names of the Secrets of a namespace.
func (s *side) secretsIn(t *testing.T, namespace string) []string {
	t.Helper()
	list, err := s.dyn.Resource(secretsGVR).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, u := range list.Items {
		names = append(names, u.GetName())
	}
	slices.Sort(names)
	return names
}

// eventuallySecrets waits until a namespace has just these Secrets.
func (s *side) eventuallySecrets(t *testing.T, namespace string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if diff := cmp.Diff(append([]string{}, want...), s.secretsIn(t, namespace)); diff != "" {
			return fmt.Errorf("secrets in %s (-want +got):\n%s", namespace, diff)
		}
		return nil
	})
}

// untouched fails the test if anything has travelled to or from a namespace that the
// platform alone has named.
func (w *world) untouched(t *testing.T) {
	t.Helper()
	for namespace, name := range planted {
		if got := w.controlPlane.secretsIn(t, tenant+"-"+namespace); !slices.Equal(got, []string{name}) {
			t.Errorf("the platform has of %s: %v", namespace, got)
		}
		if got := w.app.secretsIn(t, namespace); slices.Contains(got, name) {
			t.Errorf("the platform has put into %s: %v", namespace, got)
		}
	}
}

// An intrusion is a binding whose platform turns against its App Cluster. Each chapter builds
// on those before it.
type intrusion struct {
	*world
	said    *record
	service string // service namespace of namespace team
}

// TestP30HostileNamespaces: a platform that names namespaces as it likes gets nothing
// from them and puts nothing there, with claims on all Secrets that were agreed to.
func TestP30HostileNamespaces(t *testing.T) {
	s := &intrusion{world: newWorld(t), said: &record{}}
	s.offer(t, read(t, "testdata/widgets.yaml")[0])
	s.app.apply(t, secret(v1alpha1.Namespace, s.secret, s.kubeconfig(t)),
		object("v1", "Namespace", "", "team", nil), object("v1", "Namespace", "", "payroll", nil),
		stringSecret("payroll", "salaries", "secret"), stringSecret("team", "config", "shared"))
	s.run(t, bind.Options{NamespaceGrace: time.Second}, s.said.logger())
	eventually(t, func() error {
		_, err := s.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})
	s.hostileNamespaces(t)
	s.bind(t, widgets, allSecrets("Consumer"), allSecrets("Provider"))
	s.allow(t, widgets)
	s.condition(t, widgets, v1alpha1.ConditionInformersSynced, "")
	_ = t.Run("an honest namespace beside them", s.honest) &&
		t.Run("the binding and one audit record each tell of them", s.alarm) &&
		t.Run("an object in a closed namespace", s.closedNamespace) &&
		t.Run("another service namespace", s.otherService) &&
		t.Run("the last object goes", s.lastObject)
}

func (s *intrusion) honest(t *testing.T) {
	s.app.apply(t, widget("team", "one", map[string]any{"size": int64(5)}))
	s.service = s.serveNamespace(t, "team", widgetRights)
	s.controlPlane.apply(t, stringSecret(s.service, "creds", "handed out"))
	s.controlPlane.eventuallySecrets(t, s.service, "config", "creds")
	s.app.eventuallySecrets(t, "team", "config", "creds")
	s.untouched(t)
}

func (s *intrusion) alarm(t *testing.T) {
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonUninvitedNamespace, "in: klutch-bind, kube-public, payroll. They are not used")
	s.said.mu.Lock()
	defer s.said.mu.Unlock()
	for _, namespace := range []string{v1alpha1.Namespace, "kube-public", "payroll"} {
		if n := s.said.records("namespace not asked for, left alone", `"namespace":"`+namespace+`"`); n != 1 {
			t.Errorf("%d audit records of %s", n, namespace)
		}
	}
}

// records counts the audit records of a message that have this in them too.
func (r *record) records(message, with string) (n int) {
	for line := range strings.Lines(r.text.String()) {
		if strings.Contains(line, `"logger":"audit"`) && strings.Contains(line, `"msg":"`+message+`"`) && strings.Contains(line, with) {
			n++
		}
	}
	return n
}

func (s *intrusion) closedNamespace(t *testing.T) {
	s.app.apply(t, stringSecret("kube-public", "own", "secret"), widget("kube-public", "one", map[string]any{"size": int64(5)}))
	eventually(t, func() error {
		_, err := find[unstructured.Unstructured](t, s.controlPlane, widgetsGVR, tenant+"-kube-public", "one")
		return err
	})
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonUninvitedNamespace, "in: klutch-bind, payroll. They")
	s.app.apply(t, stringSecret("team", "later", "shared"))
	s.controlPlane.eventuallySecrets(t, s.service, "config", "creds", "later")
	s.untouched(t)
}

// otherService has the platform lead a namespace elsewhere while it has objects.
func (s *intrusion) otherService(t *testing.T) {
	s.controlPlane.patchStatus(t, requestedGVR, tenant, "team", map[string]any{"namespace": tenant + "-payroll"})
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonServiceNamespaceRefused,
		"team (its service namespace is cluster-abc-team, and the provider says now that it is cluster-abc-payroll")
	s.app.apply(t, stringSecret("team", "last", "shared"))
	s.controlPlane.eventuallySecrets(t, s.service, "config", "creds", "last", "later")
	s.untouched(t)
	s.controlPlane.patchStatus(t, requestedGVR, tenant, "team", map[string]any{"namespace": s.service})
	s.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonUninvitedNamespace)
}

func (s *intrusion) lastObject(t *testing.T) {
	if err := s.app.dyn.Resource(widgetsGVR).Namespace("team").Delete(t.Context(), "one", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.app.eventuallySecrets(t, "team", "config", "last", "later")
	s.controlPlane.eventuallySecrets(t, s.service, "creds")
	s.untouched(t)
}

// forged is a copy of a kubeconfig as a Sync of another binding leaves it, with labels
// that say that kubectl bind has made it.
func forged(name string, data []byte) *unstructured.Unstructured {
	u := secret(v1alpha1.Namespace, name, data)
	u.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "kubectl-bind", v1alpha1.BoundAnnotation: "true"})
	u.SetAnnotations(map[string]string{
		v1alpha1.BoundAnnotation: "true", v1alpha1.ResourceOwnerAnnotation: "Provider",
		"klutch.anynines.com/source": `{"uid":"u","namespace":"` + tenant + `","name":"` + name + `"}`,
	})
	return u
}

// TestP31CopiedKubeconfig: a Secret that a platform planted beside the kubeconfigs is
// neither chosen by the next bind, nor used by the konnector, nor removed with a
// binding, whatever it says of itself.
func TestP31CopiedKubeconfig(t *testing.T) {
	w := newWorld(t)
	export := read(t, "testdata/widgets.yaml")[0]
	w.offer(t, export)
	access := w.kubeconfig(t)
	w.app.apply(t, forged("a-planted", w.elsewhere(t, access)), secret(v1alpha1.Namespace, "b-unmarked", w.elsewhere(t, access)))
	w.run(t, bind.Options{})
	eventually(t, func() error {
		_, err := w.app.dyn.Resource(bindingsGVR).List(t.Context(), metav1.ListOptions{})
		return err
	})

	w.install(t, access)
	ref := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets).Spec.KubeconfigSecretRef
	if !strings.HasPrefix(ref.Name, "kubeconfig-") {
		t.Errorf("kubectl bind chose secret %s", ref.Name)
	}
	w.install(t, access)
	if again := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets).Spec.KubeconfigSecretRef; again != ref {
		t.Errorf("kubectl bind chose secret %s and then %s", ref.Name, again.Name)
	}
	w.ready(t, widgets)

	w.secret = "a-planted"
	w.bind(t, gadgets)
	w.condition(t, gadgets, v1alpha1.ConditionSecretValid, v1alpha1.ReasonKubeconfigSecretInvalid, "a-planted is refused: it is a copy of what a platform handed out", "delete that Secret first")
	if _, err := bind.Install(t.Context(), w.app.Config(), installOptions("gadgets", access, bind.DryRunClient)); err == nil || !strings.Contains(err.Error(), "a-planted") {
		t.Errorf("kubectl bind, where a binding uses a copy: %v", err)
	}
	var said []string
	if err := bind.Remove(t.Context(), w.app.Config(), gadgets, bind.RemoveOptions{Progress: func(line string) { said = append(said, line) }}); !errors.Is(err, bind.ErrNotRevoked) {
		t.Error(err)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "Left secret klutch-bind/a-planted and its token") {
		t.Errorf("kubectl bind remove says:\n%s", text)
	}
	get[unstructured.Unstructured](t, w.app, secretsGVR, v1alpha1.Namespace, "a-planted")
}

// elsewhere is a kubeconfig for the same server and tenant, with another token.
func (w *world) elsewhere(t *testing.T, data []byte) []byte {
	t.Helper()
	k, err := kubeconfig.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	k.Token = w.controlPlane.token(t, tenant, "default")
	if data, err = k.Write(); err != nil {
		t.Fatal(err)
	}
	return data
}

func installOptions(resource string, access []byte, dryRun bind.DryRun) bind.InstallOptions {
	return bind.InstallOptions{
		Kubeconfig: access, DryRun: dryRun,
		Requests: []v1alpha1.APIServiceExportRequest{{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExportRequest"},
			Spec: v1alpha1.APIServiceExportRequestSpec{Resources: []v1alpha1.APIServiceExportRequestResource{{
				GroupResource: v1alpha1.GroupResource{Group: "example.org", Resource: resource}, Versions: []string{"v1"},
			}}},
		}},
		Answer: func(_ context.Context, claims []bind.Claim) error {
			for i := range claims {
				claims[i].State = v1alpha1.ClaimAccepted
			}
			return nil
		},
	}
}

// install binds as kubectl bind does, with a backend that grants all.
func (w *world) install(t *testing.T, access []byte, change ...func(*bind.InstallOptions)) {
	t.Helper()
	opts := installOptions("widgets", access, "")
	for _, c := range change {
		c(&opts)
	}
	w.granted(t, func() error {
		_, err := bind.Install(t.Context(), w.app.Config(), opts)
		return err
	})
}

// granted grants all that install asks the tenant for, until it ends.
func (w *world) granted(t *testing.T, install func() error) {
	t.Helper()
	requests := w.controlPlane.dyn.Resource(v1alpha1.Resource("apiserviceexportrequests")).Namespace(tenant)
	done := make(chan error, 1)
	go func() { done <- install() }()
	eventually(t, func() error {
		list, err := requests.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, r := range list.Items {
			w.controlPlane.patchStatus(t, v1alpha1.Resource("apiserviceexportrequests"), tenant, r.GetName(), map[string]any{"phase": "Succeeded"})
		}
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return nil
		default:
			return fmt.Errorf("still installing, %d requests", len(list.Items))
		}
	})
}
