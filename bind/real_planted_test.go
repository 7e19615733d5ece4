// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/internal/test/testplatform"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A plantedFault is something that goes wrong with a binding of widgets that works.
type plantedFault struct {
	name        string
	plant, heal func(t *testing.T, w *world, service, x string)
	check       string // of doctor
	says, next  string // in the message and the hint of its finding
	condition   string // of the binding; empty where no konnector can tell
	reason      string
	skew        time.Duration // of the clock here
	event       string        // on a widget, which it keeps from being in step
	told        string        // by kubectl bind status
	does        string        // the next step, in the message of the condition
	waits       string        // the reason of the Event on a widget made or edited meanwhile, as no Sync runs
	works       bool          // the API works all the same: status ends with 0, not with 3
}

// objectFault is one that keeps a widget from being in step. Finding is what doctor says, and
// what to do.
func objectFault(name, reason string, finding [2]string, plant, heal func(t *testing.T, w *world, service, x string)) plantedFault {
	return plantedFault{
		name: name, plant: plant, heal: heal, check: "objects", says: finding[0], next: finding[1],
		condition: v1alpha1.ConditionObjectsSynced, reason: v1alpha1.ReasonObjectsNotSynced, event: "Warning " + reason, told: "1 not in step: 1 " + reason, does: "kubectl bind status " + widgets + " lists them",
	}
}

// secretFault is f by a change of the kubeconfig Secret: plant changes a good kubeconfig, or
// returns nothing for no Secret.
func secretFault(f plantedFault, plant func(w *world, good string) string) plantedFault {
	write := func(t *testing.T, w *world, data []byte) {
		t.Helper()
		w.app.apply(t, secret(v1alpha1.Namespace, w.secret, data))
	}
	f.plant = func(t *testing.T, w *world, _, _ string) {
		t.Helper()
		if bad := plant(w, string(w.kubeconfig(t))); bad != "" {
			write(t, w, []byte(bad))
		} else {
			w.app.delete(t, secretsGVR, v1alpha1.Namespace, w.secret)
		}
	}
	f.heal = func(t *testing.T, w *world, _, _ string) {
		t.Helper()
		write(t, w, w.kubeconfig(t))
	}
	return f
}

// leaseFault is the Lease that a konnector leaves which is killed or stopped.
func leaseFault(name, says, holder string, ago time.Duration) plantedFault {
	write := func(holder string, ago time.Duration) func(*testing.T, *world, string, string) {
		return func(t *testing.T, w *world, _, _ string) {
			t.Helper()
			w.app.apply(t, object("coordination.k8s.io/v1", "Lease", v1alpha1.Namespace, v1alpha1.LeaseName, map[string]any{"spec": map[string]any{
				"holderIdentity": holder, "leaseDurationSeconds": int64(15), "renewTime": time.Now().Add(-ago).UTC().Format("2006-01-02T15:04:05.000000Z"),
			}}))
		}
	}
	return plantedFault{name: name, check: "konnector", says: says, told: "KonnectorSilent", next: "get pods", plant: write(holder, ago), heal: write("replica-2", -time.Hour)}
}

// absent waits until the control plane does not have an object any more.
func (w *world) absent(t *testing.T, gvr schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	eventually(t, func() error {
		_, err := w.controlPlane.dyn.Resource(gvr).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("%s is there still: %w", name, err)
	})
}

// tokenIsOver waits until the control plane does not take the konnector's token any more: an API server keeps for
// ten seconds that it did.
func (w *world) tokenIsOver(t *testing.T) {
	t.Helper()
	held, err := w.app.kube.CoreV1().Secrets(v1alpha1.Namespace).Get(t.Context(), w.secret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(held.Data[v1alpha1.KubeconfigKey])
	if err != nil {
		t.Fatal(err)
	}
	konnector, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := konnector.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the token is taken still: %w", err)
		}
		return nil
	})
}

func create(t *testing.T, w *world, x string) {
	t.Helper()
	w.app.apply(t, widget("team", x, map[string]any{"size": int64(1)}))
}

func (s *side) delete(t *testing.T, gvr schema.GroupVersionResource, namespace, name string) {
	t.Helper()
	if err := s.dyn.Resource(gvr).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// webhookFault is a webhook of the platform that does not work: an API server waits for it for some seconds.
// An empty url is one that takes requests and does not answer.
func webhookFault(name, says, url string, seconds int64) plantedFault {
	return objectFault(name, "TargetUnavailable", [2]string{says, "its operators can look"}, func(t *testing.T, w *world, service, x string) {
		t.Helper()
		client := map[string]any{"url": url}
		if url == "" {
			ends := make(chan struct{})
			silent := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ends }))
			t.Cleanup(func() {
				close(ends)
				silent.Close()
			})
			client["url"] = silent.URL
			client["caBundle"] = base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: silent.Certificate().Raw}))
		}
		w.controlPlane.apply(t, object("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "", "down", map[string]any{"webhooks": []any{map[string]any{
			"name": "down.example.org", "clientConfig": client, "rules": []any{creations()},
			"sideEffects": "None", "admissionReviewVersions": []any{"v1"}, "timeoutSeconds": seconds,
		}}}))
		w.refuses(t, service, x)
		create(t, w, x)
	}, func(t *testing.T, w *world, _, _ string) {
		t.Helper()
		w.controlPlane.delete(t, webhooksGVR, "", "down")
	})
}

// refuses waits until the API server of the platform takes no widget of that name: it learns of quotas, policies and
// webhooks a while after they are there.
func (w *world) refuses(t *testing.T, service, name string) {
	t.Helper()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := w.controlPlane.dyn.Resource(widgetsGVR).Namespace(service).Create(ctx, widget(service, name, map[string]any{"size": int64(1)}), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("widget %s would be created", name)
		}
		return nil
	})
}

// creations are those of widgets, as rules of admission name them.
func creations() map[string]any {
	return map[string]any{"apiGroups": []any{"example.org"}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"widgets"}}
}

func plantedFaults() []plantedFault {
	quota := map[string]any{"count/" + widgets: "1"}
	noWidget := map[string]any{"expression": "object.metadata.name != 'policy'", "message": "no such widget here"}
	return []plantedFault{
		objectFault("quota", "TargetForbidden", [2]string{"exceeded quota", "quota, a policy or a right of the platform"}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			w.controlPlane.apply(t, object("v1", "ResourceQuota", service, "few", map[string]any{"spec": map[string]any{"hard": quota}}))
			w.controlPlane.patchStatus(t, quotasGVR, service, "few", map[string]any{"hard": quota, "used": quota})
			w.refuses(t, service, x)
			create(t, w, x)
		}, func(t *testing.T, w *world, service, _ string) {
			t.Helper()
			w.controlPlane.delete(t, quotasGVR, service, "few")
		}),
		objectFault("policy", "TargetRefused", [2]string{"no such widget here", "Change the object to what the message asks for"}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			w.controlPlane.apply(t,
				object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy", "", "no-x", map[string]any{"spec": map[string]any{
					"matchConstraints": map[string]any{"resourceRules": []any{creations()}}, "validations": []any{noWidget},
				}}),
				object("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding", "", "no-x", map[string]any{"spec": map[string]any{"policyName": "no-x", "validationActions": []any{"Deny"}}}))
			w.refuses(t, service, x)
			create(t, w, x)
		}, func(t *testing.T, w *world, _, _ string) {
			t.Helper()
			w.controlPlane.delete(t, policyBindingsGVR, "", "no-x")
		}),
		webhookFault("webhook down", "webhook", "https://127.0.0.1:1/", 1),
		webhookFault("webhook that hangs", "no answer has come for 5s", "", 30),
		objectFault("foreign object of the name", "TargetConflict", [2]string{"belongs to someone else", "choose another name"}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			w.controlPlane.apply(t, widget(service, x, map[string]any{"size": int64(7)}))
			create(t, w, x)
		}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			w.controlPlane.delete(t, widgetsGVR, service, x)
		}),
		objectFault("stuck finalizer", "TargetTerminating", [2]string{"example.org/hold", "finalizers that the message names"}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			create(t, w, x)
			w.travelled(t, service, x)
			w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, x), map[string]any{"metadata": map[string]any{"finalizers": []any{"example.org/hold"}}})
			w.app.delete(t, widgetsGVR, "team", x)
		}, func(t *testing.T, w *world, service, x string) {
			t.Helper()
			w.controlPlane.patch(t, widgetsGVR, cache.NewObjectName(service, x), map[string]any{"metadata": map[string]any{"finalizers": nil}})
		}),
		objectFault("namespace of the targets gone", "TargetForbidden", [2]string{`in the namespace "` + tenant + `-team"`, "may be gone on the platform"}, func(t *testing.T, w *world, service, x string) { // the tenant's rights go with it
			t.Helper()
			w.app.delete(t, widgetsGVR, "team", "one") // or it is told that what it held is gone
			w.absent(t, widgetsGVR, service, "one")
			w.controlPlane.delete(t, namespacesGVR, "", service)
			w.absent(t, namespacesGVR, "", service)
			create(t, w, x)
		}, func(t *testing.T, w *world, _, _ string) {
			t.Helper()
			w.serveNamespace(t, "team", widgetRights)
		}),
		{
			name: "foreign CRD", check: "binding", says: "is there already and was not made for this binding", next: "kubectl delete crd " + widgets,
			condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonForeignCustomResourceDefinition, told: "ForeignCustomResourceDefinition", does: "kubectl delete crd " + widgets, waits: v1alpha1.ReasonForeignCustomResourceDefinition,
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.app.patch(t, crdsGVR, cache.NewObjectName("", widgets), map[string]any{"metadata": map[string]any{
					"annotations": map[string]any{v1alpha1.BindingAnnotation: nil}, "ownerReferences": nil,
				}})
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
				w.app.patch(t, crdsGVR, cache.NewObjectName("", widgets), map[string]any{"metadata": map[string]any{
					"annotations": map[string]any{v1alpha1.BindingAnnotation: b.Namespace + "/" + b.Name + "/" + string(b.UID)},
				}})
			},
		},
		leaseFault("konnector killed", "it has not renewed its Lease", "replica-1", time.Minute),
		leaseFault("konnector stopped", "it was stopped", "", time.Second),
		{
			name: "clock behind the konnector's", check: "heartbeat", says: "ahead of the clock here", next: "at the clocks", skew: -time.Hour, works: true,
			told:  "behind the konnector's, so that ages and words about tokens may be wrong", // by its Lease, which kubectl bind status compares with its own clock
			plant: leaseFault("", "", "replica-2", -time.Hour).plant, heal: leaseFault("", "", "replica-2", 0).heal,
		},
		{
			name: "clock ahead of the konnector's", check: "heartbeat", says: "old", next: "at the clocks", skew: time.Hour, works: true,
			plant: func(*testing.T, *world, string, string) {}, heal: func(*testing.T, *world, string, string) {},
		},
		{
			name: "control plane that hangs", check: "control-plane", says: "no answer in time", next: "can be reached from here",
			condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonControlPlaneUnreachable, told: "ControlPlaneUnreachable", does: "kubectl bind doctor",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				p := testplatform.Start(t, w.controlPlane.Config())
				data, err := p.Kubeconfig(tenant, w.controlPlane.token(t, tenant, v1alpha1.TenantServiceAccount)).Write()
				if err != nil {
					t.Fatal(err)
				}
				p.Fault(func(*http.Request) bool { return true }, testplatform.Hang())
				w.app.apply(t, secret(v1alpha1.Namespace, w.secret, data))
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
			},
		},
		{
			name: "token revoked", check: "control-plane", says: "does not accept the token", next: "Run kubectl bind repair",
			condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonTokenRevoked, told: "TokenRevoked", does: "Run kubectl bind repair",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.delete(t, accountsGVR, tenant, v1alpha1.TenantServiceAccount)
				w.tokenIsOver(t)
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.apply(t, object("v1", "ServiceAccount", tenant, v1alpha1.TenantServiceAccount, nil))
				w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
			},
		},
		{
			name: "rights of the kind taken away", check: "binding", says: "MissingRights", next: "Run kubectl bind repair",
			condition: v1alpha1.ConditionInformersSynced, reason: v1alpha1.ReasonMissingRights, told: "MissingRights", does: "kubectl bind repair",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.app.delete(t, rolesGVR, "", "klutch-bind-konnector-"+widgets)
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.allow(t, widgets)
			},
		},
		secretFault(plantedFault{name: "Secret deleted", check: "secret", says: "it is not there", next: "Run kubectl bind repair URL", condition: v1alpha1.ConditionSecretValid, reason: v1alpha1.ReasonKubeconfigSecretNotFound, told: "KubeconfigSecretNotFound", does: "kubectl bind repair", waits: v1alpha1.ReasonKubeconfigSecretNotFound},
			func(*world, string) string { return "" }),
		secretFault(plantedFault{name: "Secret that is no kubeconfig", check: "secret", says: "contexts has not exactly one entry", next: "Delete that Secret, then run kubectl bind repair URL", condition: v1alpha1.ConditionSecretValid, reason: v1alpha1.ReasonKubeconfigSecretInvalid, told: "KubeconfigSecretInvalid", does: "kubectl bind repair", waits: v1alpha1.ReasonKubeconfigSecretInvalid},
			func(*world, string) string { return "kind: Config" }),
		secretFault(plantedFault{name: "wrong CA", check: "control-plane", says: "certificate", next: "The CA of the kubeconfig is not that of the server", condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonControlPlaneUnreachable, told: "ControlPlaneUnreachable", does: "kubectl bind repair"},
			func(w *world, good string) string {
				return strings.ReplaceAll(good, encodedCA(w.controlPlane.Config().CAData), encodedCA(w.app.Config().CAData))
			}),
		secretFault(plantedFault{name: "wrong address", check: "control-plane", says: "connection refused", next: "https://127.0.0.1:1 can be reached from here", condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonControlPlaneUnreachable, told: "ControlPlaneUnreachable", does: "kubectl bind doctor"},
			func(w *world, good string) string {
				return strings.ReplaceAll(good, w.controlPlane.URL(), "https://127.0.0.1:1")
			}),
		{
			name: "claim refused", check: "binding", says: "The claim on secrets is required and was rejected", next: "kubectl bind claims " + widgets,
			condition: v1alpha1.ConditionClaimsInSync, reason: v1alpha1.ReasonUnsupportedClaim, told: "UnsupportedClaim", does: "kubectl bind claims",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				claim := map[string]any{"resource": "secrets", "version": "v1", "required": true, "selector": map[string]any{"owner": "Provider", "references": []any{map[string]any{"path": "status.secret"}}}}
				answered := maps.Clone(claim)
				answered["state"] = string(v1alpha1.ClaimRejected)
				w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"permissionClaims": []any{answered}}})
				w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"permissionClaims": []any{claim}}})
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"permissionClaims": nil}})
				w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"permissionClaims": nil}})
			},
		},
		{
			name: "accepted claim that no provider gets", check: "claims", says: "is refused all the same", next: "kubectl bind claims " + widgets,
			condition: v1alpha1.ConditionClaimsInSync, reason: v1alpha1.ReasonRefusedClaim, told: "RefusedClaim", does: "kubectl bind claims",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"permissionClaims": []any{map[string]any{
					"group": "rbac.authorization.k8s.io", "resource": "roles", "version": "v1", "state": string(v1alpha1.ClaimAccepted),
					"selector": map[string]any{"owner": "Provider", "references": []any{map[string]any{"path": "status.role"}}},
				}}}})
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.app.patch(t, bindingsGVR, cache.NewObjectName(w.bindings, widgets), map[string]any{"spec": map[string]any{"permissionClaims": nil}})
			},
		},
		{
			name: "service withdrawn", check: "binding", says: "The provider has no APIServiceExport " + widgets, next: "The platform does not offer this API any more",
			condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonAPIServiceExportNotFound, told: "APIServiceExportNotFound", does: "kubectl bind unbind " + widgets, waits: v1alpha1.ReasonAPIServiceExportNotFound,
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.delete(t, exportsGVR, tenant, widgets)
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.offer(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
			},
		},
		{
			name: "tenant removed", check: "control-plane", says: "the platform has removed this cluster's tenant", next: "Run kubectl bind repair",
			condition: v1alpha1.ConditionConnected, reason: v1alpha1.ReasonTenantGone, told: "TenantGone", does: "kubectl bind repair",
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.patch(t, clustersGVR, cache.NewObjectName(tenant, "cluster"), map[string]any{"metadata": map[string]any{"finalizers": []any{"example.org/hold"}}})
				w.controlPlane.delete(t, clustersGVR, tenant, "cluster")
				eventually(t, func() error {
					return w.doctorSays(t, plantedFault{check: "control-plane", says: "removes this cluster's tenant", next: "spec.deletionPolicy of the ClusterBinding"})
				})
				w.controlPlane.delete(t, accountsGVR, tenant, v1alpha1.TenantServiceAccount)
				w.tokenIsOver(t)
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.patch(t, clustersGVR, cache.NewObjectName(tenant, "cluster"), map[string]any{"metadata": map[string]any{"finalizers": nil}})
				w.absent(t, clustersGVR, tenant, "cluster")
				w.controlPlane.apply(t, read(t, filepath.Join("testdata", "tenant.yaml"))...)
				w.app.apply(t, secret(v1alpha1.Namespace, w.secret, w.kubeconfig(t)))
			},
		},
		{
			name: "unanswered claim", check: "claims", says: "secrets", next: "kubectl bind claims " + widgets,
			condition: v1alpha1.ConditionClaimsInSync, reason: v1alpha1.ReasonNewClaims, told: "NewClaims", does: "kubectl bind claims", works: true,
			plant: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				claim := map[string]any{"resource": "secrets", "version": "v1", "selector": map[string]any{"owner": "Provider", "references": []any{map[string]any{"path": "status.secret"}}}}
				w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"permissionClaims": []any{claim}}})
			},
			heal: func(t *testing.T, w *world, _, _ string) {
				t.Helper()
				w.controlPlane.patch(t, exportsGVR, cache.NewObjectName(tenant, widgets), map[string]any{"spec": map[string]any{"permissionClaims": nil}})
			},
		},
	}
}

// Each planted fault is found by doctor within 15 seconds and told by the binding within a
// minute, and by kubectl bind status, with the next step; when it is gone all say so.
func TestPlantedFaults(t *testing.T) {
	cluster.Long(t)
	w, service, _ := newBehind(t)
	plugin := buildPlugin(t)
	status := plugin.on(t, w.app, "status")
	for _, f := range plantedFaults() {
		ok := t.Run(f.name, func(t *testing.T) {
			x := strings.ToLower(strings.ReplaceAll(f.name, " ", "-"))
			if f.waits != "" {
				create(t, w, x+"-old") // a name of its own: Events of those before it last
				w.travelled(t, service, x+"-old")
			}
			f.plant(t, w, service, x)
			began := time.Now()
			eventually(t, func() error { return w.doctorSays(t, f) })
			found := time.Since(began)
			if found > 15*time.Second {
				t.Errorf("doctor finds it after %s", found)
			}
			eventually(t, func() error {
				b := get[v1alpha1.APIServiceBinding](t, w.app, bindingsGVR, w.bindings, widgets)
				if c := v1alpha1.FindCondition(b.Status.Conditions, f.condition); f.condition != "" && (c == nil || c.Reason != f.reason || !strings.Contains(c.Message, f.does)) {
					return fmt.Errorf("%s is %+v, want reason %s and %q", f.condition, c, f.reason, f.does)
				}
				return nil
			})
			eventually(t, func() error { return f.status(status) })
			told := time.Since(began)
			if told > time.Minute {
				t.Errorf("status and the binding tell it after %s", told)
			}
			t.Logf("doctor after %s, status after %s", found, told)
			if f.event != "" {
				w.hears(t, x, f.event)
				w.inTime(t, x, f.event, began)
			}
			if f.waits != "" {
				w.waits(t, plugin, x, "Warning "+f.waits)
			}
			f.heal(t, w, service, x)
			if f.condition != "" {
				w.condition(t, widgets, f.condition, "")
			}
			w.ready(t, widgets)
			for _, name := range []string{x, x + "-old"} {
				mine := w.app.dyn.Resource(widgetsGVR).Namespace("team") // most faults have none; all of them are more than the breaker lets pass
				eventually(t, func() error {                             // else its instance may stay, and its deletion be held
					u, err := mine.Get(t.Context(), name, metav1.GetOptions{})
					switch {
					case apierrors.IsNotFound(err):
						return nil
					case err == nil && len(u.GetFinalizers()) == 0:
						return errors.New("the konnector has not taken the widget up again")
					}
					return err
				})
				_ = mine.Delete(t.Context(), name, metav1.DeleteOptions{})
				eventually(t, func() error {
					u, err := mine.Get(t.Context(), name, metav1.GetOptions{})
					if apierrors.IsNotFound(err) {
						return nil
					}
					if err != nil {
						return err
					}
					if _, word, held := strings.Cut(u.GetAnnotations()[klutchsync.MessageAnnotation], klutchsync.ReleaseAnnotation+"="); held {
						patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, klutchsync.ReleaseAnnotation, word)
						_, _ = mine.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
					}
					return errors.New("the widget is still there")
				})
			}
			eventually(t, func() error {
				if finding, err := w.finding(t, f.check, ""); err == nil && !finding.OK {
					return fmt.Errorf("%+v", finding)
				}
				return status(0, "True")
			})
		})
		if !ok {
			return
		}
	}
	t.Run("template without kind", func(t *testing.T) { templateWithoutKind(t, plugin) })
}

// waits makes a widget and edits the one that is there while no Sync runs: both are told, and kubectl
// bind status lists them.
func (w *world) waits(t *testing.T, plugin plugin, name, event string) {
	t.Helper()
	began := time.Now()
	create(t, w, name)
	w.app.patch(t, widgetsGVR, cache.NewObjectName("team", name+"-old"), map[string]any{"spec": map[string]any{"size": int64(2)}})
	list := plugin.on(t, w.app, "status", widgets)
	for _, waiting := range []string{name, name + "-old"} {
		w.hears(t, waiting, event)
		w.inTime(t, waiting, event, began)
		eventually(t, func() error { return list(3, waiting, strings.TrimPrefix(event, "Warning ")) })
	}
}

// inTime looks that a widget had its Event within 15 seconds.
func (w *world) inTime(t *testing.T, name, event string, began time.Time) {
	t.Helper()
	events, err := w.app.kube.CoreV1().Events("team").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if took := e.FirstTimestamp.Sub(began); e.Type+" "+e.Reason == event && took > 15*time.Second {
			t.Errorf("%s: %s after %s", name, event, took)
		}
	}
}

// doctorSays is an error as long as doctor does not say what it should of a fault.
func (w *world) doctorSays(t *testing.T, f plantedFault) error {
	t.Helper()
	finding, err := w.findingAt(t, time.Now().Add(f.skew), f.check, "")
	if err == nil && (finding.OK || !strings.Contains(finding.Message, f.says) || !strings.Contains(finding.Hint, f.next)) {
		err = fmt.Errorf("%+v", finding)
	}
	return err
}

// status is an error as long as kubectl bind status does not say what it should of a fault, how to
// go on, and by its exit code whether the API works.
func (f plantedFault) status(status func(code int, words ...string) error) error {
	if f.works {
		return status(0, f.told)
	}
	return status(3, f.told, "What to do about it: kubectl bind doctor")
}

// A plugin is the path of the program of kubectl bind.
type plugin string

func buildPlugin(t *testing.T) plugin {
	t.Helper()
	program := filepath.Join(tempdir.ForTest(t, "kubectl-bind"), "kubectl-bind")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/klutch-go/sdk/cmd/kubectl-bind").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return plugin(program)
}

// on returns kubectl bind ARGS as a program of its own: it is an error as long as that does not
// end with a code, or does not say the words.
func (p plugin) on(t *testing.T, s *side, args ...string) func(code int, words ...string) error {
	t.Helper()
	return func(code int, words ...string) error {
		cmd := exec.CommandContext(t.Context(), string(p), append(args, "--kubeconfig", s.Kubeconfig())...)
		said, _ := cmd.CombinedOutput()                                              // with exit codes that are no mistakes
		out := strings.ReplaceAll(string(said), " --kubeconfig="+s.Kubeconfig(), "") // which commands in hints have again
		if cmd.ProcessState.ExitCode() != code || slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(out, word) }) {
			return fmt.Errorf("%s: %s, want %d and %q:\n%s", args, cmd.ProcessState, code, words, out)
		}
		return nil
	}
}

// A template whose kind is not there is found by doctor, asked about the Control Plane Cluster, and
// so is what else keeps it from being offered.
func templateWithoutKind(t *testing.T, plugin plugin) {
	t.Helper()
	platform := newSide(t, "platform")
	platform.apply(t, slices.Collect(maps.Values(v1alpha1.CRDs()))...)
	backend, err := export.New(platform.Config(), export.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- backend.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	doctor := plugin.on(t, platform, "doctor")
	platform.apply(t, object("klutch.anynines.com/v1alpha1", "APIServiceExportTemplate", "default", "widgets", map[string]any{
		"spec": map[string]any{"apiServiceSelector": map[string]any{"group": "example.org", "resource": "widgets"}},
	}))
	eventually(t, func() error { // the backend has begun, and found it
		template := get[v1alpha1.APIServiceExportTemplate](t, platform, v1alpha1.Resource("apiserviceexporttemplates"), "default", "widgets")
		if c := v1alpha1.FindCondition(template.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != v1alpha1.ReasonSchemaMissing || !strings.Contains(c.Message, widgets) {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	began := time.Now()
	eventually(t, func() error {
		return doctor(3, "SchemaMissing: there is no CustomResourceDefinition "+widgets, "template default/widgets: Look for its CRD: kubectl get crd "+widgets)
	})
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("doctor finds it after %s", took)
	}
	platform.serve(t, read(t, filepath.Join("testdata", "widgets.yaml"))[0])
	eventually(t, func() error { // the next fault of this platform
		return doctor(3, "MissingRights", "kubectl apply -k deploy/backend", "template default/widgets: Run the command of the message")
	})
}

func encodedCA(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
