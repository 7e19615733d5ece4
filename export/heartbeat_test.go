// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

func TestHealthy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	minute := &metav1.Duration{Duration: time.Minute}
	at := func(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(d)} }
	for name, test := range map[string]struct {
		status v1alpha1.ClusterBindingStatus
		reason string
		again  time.Duration
	}{
		"never":       {v1alpha1.ClusterBindingStatus{}, v1alpha1.ReasonFirstHeartbeatPending, 45 * time.Second},
		"no interval": {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(0)}, v1alpha1.ReasonHeartbeatIntervalMissing, 0},
		"now":         {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(0), HeartbeatInterval: minute}, "", 121 * time.Second},
		"one missed":  {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(-119 * time.Second), HeartbeatInterval: minute}, "", 2 * time.Second},
		"two missed":  {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(-120 * time.Second), HeartbeatInterval: minute}, v1alpha1.ReasonHeartbeatTimeout, 58*time.Minute + time.Second},
		"token ended": {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(-time.Hour), HeartbeatInterval: minute}, v1alpha1.ReasonCredentialEnded, 0},
		"ahead":       {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(10 * time.Second), HeartbeatInterval: minute}, "", 131 * time.Second},
		"too far":     {v1alpha1.ClusterBindingStatus{LastHeartbeatTime: at(11 * time.Second), HeartbeatInterval: minute}, v1alpha1.ReasonHeartbeatTimeDrift, 2 * time.Second},
	} {
		test.status.ClusterUID = "that of ours"
		c, again := tenant.Healthy(now, &v1alpha1.ClusterBinding{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(-time.Second)}, Status: test.status}, tenant.Terms{Life: time.Hour})
		if c.Reason != test.reason || again != test.again || (c.Status == metav1.ConditionTrue) != (test.reason == "") {
			t.Errorf("%s: %+v again %s", name, c, again)
		}
	}
}

// A still is a Control Plane Cluster in memory with one tenant and one of the
// controllers. It is for what the passing of time alone brings about.
type still struct {
	*testing.T
	*fakecluster.Cluster
	kube   *fake.Clientset // for Secrets and access reviews
	tenant string

	typed kubernetes.Interface // in place of kube, where the cluster serves also what gives rights
}

func newStill(t *testing.T) *still {
	t.Helper()
	s := &still{t, fakecluster.New(
		fakecluster.Resource{GroupVersionResource: tenant.ClusterBindingResource, Kind: "ClusterBinding"},
		fakecluster.Resource{GroupVersionResource: tenant.RequestResource, Kind: "APIServiceExportRequest", Plain: true},
		fakecluster.Resource{GroupVersionResource: offer.CRDResource, Kind: "CustomResourceDefinition", Cluster: true},
		fakecluster.Resource{GroupVersionResource: tenant.ExportResource, Kind: "APIServiceExport"},
		fakecluster.Resource{GroupVersionResource: templateResource, Kind: "APIServiceExportTemplate"},
	), fake.NewClientset(), "", nil}
	s.tenant = s.settle("ada")
	return s
}

// settle makes the namespace of a tenant of subject.
func (s *still) settle(subject string) string {
	s.Helper()
	h := tenant.Holder{Issuer: "https://issuer", Subject: subject, Cluster: "c1"}
	name := h.Namespace("cluster")
	ns := object("{apiVersion: v1, kind: Namespace}")
	ns.SetName(name)
	ns.SetLabels(map[string]string{v1alpha1.TenantLabel: name})
	ns.SetAnnotations(h.Annotations())
	s.put(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", ns)
	return name
}

func (s *still) put(gvr schema.GroupVersionResource, namespace string, u *unstructured.Unstructured) {
	s.Helper()
	if _, err := s.Client().Resource(gvr).Namespace(namespace).Create(s.Context(), u, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// informers are those of what the cluster serves.
func (s *still) informers(c *control) []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{c.caches.ClusterBindings, c.requests.Requests, c.caches.Owned, c.caches.CRDs, c.caches.Exports, c.templates}
	if s.typed != nil {
		all = append(all, c.caches.Namespaces, c.caches.Accounts, c.caches.Bindings, c.caches.Roles, c.caches.Entries)
	}
	return all
}

// run runs a controller and what it listens to until the test ends.
func (s *still) run(name string, opts Options) {
	s.Helper()
	if _, err := opts.complete(); err != nil {
		s.Fatal(err)
	}
	all := tenant.Clients{Kube: s.kube, Dyn: s.Client(), Meta: s.Metadata()}
	if s.typed != nil {
		all.Kube = s.typed
	}
	e := &Exporter{opts: opts, external: &url.URL{}, config: &rest.Config{}, clients: all, watches: all}
	e.assemble()
	c := must(newControl(e))
	ctx, stop := context.WithCancel(s.Context())
	ctrls := must(c.controllers())
	for other, ctrl := range ctrls {
		if other != name {
			ctrl.ShutDown()
		}
	}
	done := make(chan error, 1)
	go func() { done <- ctrls[name].Run(ctx) }()
	for _, inf := range s.informers(c) {
		go inf.RunWithContext(ctx)
	}
	s.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

// beat is a heartbeat of our konnector.
func (s *still) beat() { s.Helper(); s.beatBy(`"app"`) }

// beatBy is that of a konnector which says that its cluster is this one; Klutch's says null.
func (s *still) beatBy(clusterUID string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"status":{"heartbeatInterval":"1m0s","lastHeartbeatTime":%q,"clusterUID":%s}}`, time.Now().UTC().Format(time.RFC3339), clusterUID)
	_, err := s.Client().Resource(tenant.ClusterBindingResource).Namespace(s.tenant).Patch(s.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		s.Fatal(err)
	}
}

// label says whether the tenant may use Klutch's konnector.
func (s *still) label(value string) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.KlutchKonnectorLabel, value)
	_, err := s.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Patch(s.Context(), s.tenant, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}

// health is what is said of the konnector once everything has come to rest.
func (s *still) health() string {
	s.Helper()
	c := s.healthy()
	return fmt.Sprintf("%v %v", c["status"], c["reason"])
}

func (s *still) healthy() map[string]any {
	s.Helper()
	synctest.Wait()
	u, err := s.Client().Resource(tenant.ClusterBindingResource).Namespace(s.tenant).Get(s.Context(), "cluster", metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == v1alpha1.ConditionHealthy {
			return m
		}
	}
	return nil
}

// A konnector that was off until each token that it can have had was over is told apart: to
// wait for it is in vain. Where the platform lets a tenant use Klutch's, a token lives longer.
func TestKonnectorWithoutToken(t *testing.T) {
	for _, c := range []struct {
		klutchs bool
		until   time.Duration // when the last token ends that lives longer than others
		life    time.Duration
	}{
		{false, 0, time.Hour},
		{true, 0, 24 * time.Hour},
		{false, 5 * time.Hour, 5 * time.Hour}, // the label was removed: a token from before is still good
		{false, 90 * time.Hour, 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStill(t)
			if c.until > 0 {
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.KubeconfigSecretName, Annotations: map[string]string{
					v1alpha1.LongTokensEndAnnotation: time.Now().Add(c.until).UTC().Format(time.RFC3339),
				}}}
				if _, err := s.kube.CoreV1().Secrets(s.tenant).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if c.klutchs {
				s.label("true")
			}
			s.run("clusterbinding", Options{})
			s.put(tenant.ClusterBindingResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, finalizers: ["+v1alpha1.TenantFinalizer+"]}}"))
			s.beat()
			time.Sleep(c.life - 2*time.Second)
			if got := s.health(); got != "False HeartbeatTimeout" {
				t.Errorf("before the last token ends: %s", got)
			}
			time.Sleep(2*time.Second + lastRetry)
			if got := s.health(); got != "False CredentialEnded" {
				t.Errorf("after the last token has ended: %s", got)
			}
			s.beat() // bound again
			if got := s.health(); got != "True <nil>" {
				t.Errorf("after a new bind: %s", got)
			}
		})
	}
}

// Klutch's konnector that may not list Secrets is silent from the bind on: what it lacks, and what
// helps, is told within a minute, but where the tenant may use it already.
func TestSilentKonnectorIsTold(t *testing.T) {
	for _, klutchs := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStill(t)
			s.run("clusterbinding", Options{KlutchKonnectors: klutchs})
			binding := object("{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, finalizers: [" + v1alpha1.TenantFinalizer + "]}}")
			binding.SetCreationTimestamp(metav1.Now())
			s.put(tenant.ClusterBindingResource, s.tenant, binding)
			for _, step := range []struct {
				after time.Duration
				want  v1alpha1.Severity
			}{{0, v1alpha1.SeverityInfo}, {time.Minute, v1alpha1.SeverityWarning}} {
				time.Sleep(step.after)
				c := s.healthy()
				health := fmt.Sprint(c["reason"], c["severity"], c["message"])
				told := strings.Contains(health, "kubectl label namespace "+s.tenant+" "+v1alpha1.KlutchKonnectorLabel+"=true")
				if !strings.Contains(health, "FirstHeartbeatPending"+string(step.want)) || told != (step.after > 0 && !klutchs) {
					t.Errorf("after %s, where Klutch's konnector may be used: %t: %s", step.after, klutchs, health)
				}
			}
			s.beat()
			if health := s.health(); !strings.HasPrefix(health, "True") {
				t.Error(health)
			}
		})
	}
}

// The heartbeat that Klutch's konnector has left to an adopted tenant is none of a konnector that
// works there: it is said 45 s after the login, until ours reports, or the label lets Klutch's in.
func TestAdoptedTenantIsSilent(t *testing.T) {
	for name, next := range map[string]func(*still){
		"ours reports":         func(s *still) { s.beat() },
		"Klutch's may be used": func(s *still) { s.label("true") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStill(t)
				record := fmt.Appendf(nil, `{"loggedIn":%q}`, time.Now().UTC().Format(time.RFC3339))
				secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret}, Data: map[string][]byte{tenant.RecordKey: record}}
				if _, err := s.kube.CoreV1().Secrets(s.tenant).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				s.run("clusterbinding", Options{})
				s.put(tenant.ClusterBindingResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, finalizers: ["+v1alpha1.TenantFinalizer+"]}}"))
				s.beatBy("null")
				if c := s.healthy(); c["reason"] != v1alpha1.ReasonFirstHeartbeatPending || c["severity"] != string(v1alpha1.SeverityInfo) {
					t.Errorf("at the login: %v", c)
				}
				time.Sleep(47 * time.Second)
				c := s.healthy()
				help := "kubectl label namespace " + s.tenant + " " + v1alpha1.KlutchKonnectorLabel + "=true"
				if c["severity"] != string(v1alpha1.SeverityWarning) || !strings.Contains(fmt.Sprint(c["message"]), "is of Klutch's konnector") || !strings.Contains(fmt.Sprint(c["message"]), help) {
					t.Errorf("45 s after the login: %v", c)
				}
				next(s)
				if health := s.health(); health != "True <nil>" {
					t.Error(health)
				}
			})
		})
	}
}

// A konnector is missed by the clock, with no event to tell, whatever a gate says, and whether or not
// it is known when the tenant's last login was.
func TestHealthOnTime(t *testing.T) {
	unsure := GateFunc(func(context.Context, Tenant) error { return errors.New("out of order") })
	for name, test := range map[string]struct {
		opts Options
		late time.Duration
	}{
		"":                             {Options{}, 2 * time.Second},
		"a gate that cannot tell":      {Options{Gate: unsure}, lastRetry},
		"a record that cannot be read": {Options{MaxLoginAge: 30 * 24 * time.Hour}, lastRetry},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStill(t)
				s.kube.PrependReactor("get", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewInternalError(errors.New("cannot be decrypted"))
				})
				s.run("clusterbinding", test.opts)
				s.put(tenant.ClusterBindingResource, s.tenant, object("{apiVersion: klutch.anynines.com/v1alpha1, kind: ClusterBinding, metadata: {name: cluster, finalizers: ["+v1alpha1.TenantFinalizer+"]}}"))
				for _, step := range []struct {
					after time.Duration
					beat  bool
					want  string
				}{
					{0, false, "False FirstHeartbeatPending"},
					{time.Hour, true, "True <nil>"},
					{time.Minute, true, "True <nil>"},
					{2*time.Minute - time.Second, false, "True <nil>"},
					{time.Second + test.late, false, "False HeartbeatTimeout"},
					{time.Hour, true, "True <nil>"},
					{2*time.Minute + test.late, false, "False HeartbeatTimeout"},
				} {
					time.Sleep(step.after)
					if step.beat {
						s.beat()
					}
					if got := s.health(); got != step.want {
						t.Errorf("%+v: %s", step, got)
					}
				}
			})
		})
	}
}
