// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/catalog/automation"
)

// A shop is a service namespace with an automation at work.
type shop struct {
	*world
	namespace string
}

func (w *world) shop(t *testing.T) *shop {
	t.Helper()
	return &shop{w, w.namespace(t)}
}

func resource(kind string) schema.GroupVersionResource {
	return resourceOf(named(kind, "", nil))
}

func named(kind, name string, spec fields) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: claim(kind, spec)}
	u.SetName(name)
	return u
}

// Order applies a claim and waits until the automation has said state about it.
func (s *shop) order(t *testing.T, state automation.State, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	s.apply(t, s.namespace, object)
	return s.awaitState(t, state, object.GetKind(), object.GetName())
}

func (s *shop) awaitState(t *testing.T, state automation.State, kind, name string) *unstructured.Unstructured {
	t.Helper()
	return s.await(t, resource(kind), s.namespace, name, func(u *unstructured.Unstructured) bool {
		return u != nil && managedOf(u)["state"] == string(state) &&
			conditionOf(u, automation.Ready)["observedGeneration"] == u.GetGeneration()
	})
}

func (s *shop) awaitGone(t *testing.T, gvr schema.GroupVersionResource, name string) {
	t.Helper()
	s.await(t, gvr, s.namespace, name, func(u *unstructured.Unstructured) bool { return u == nil })
}

func managedOf(u *unstructured.Unstructured) map[string]any {
	m, _, _ := unstructured.NestedMap(u.Object, "status", "managed")
	return m
}

func (s *shop) configMap(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := s.core.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func (s *shop) secret(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	secret, err := s.core.CoreV1().Secrets(s.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func (s *shop) patchConfigMap(ctx context.Context, t *testing.T, name, patch string) {
	t.Helper()
	if _, err := s.core.CoreV1().ConfigMaps(s.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Write puts contents into the instance orders, as an application would.
func (s *shop) write(t *testing.T, contents string) {
	t.Helper()
	s.patchConfigMap(t.Context(), t, "orders-state", `{"data":{"contents":"`+contents+`"}}`)
}

func wantCondition(t *testing.T, u *unstructured.Unstructured, kind, status, reason, message string) {
	t.Helper()
	got := conditionOf(u, kind)
	delete(got, "lastTransitionTime")
	want := map[string]any{"type": kind, "status": status, "reason": reason, "observedGeneration": u.GetGeneration()}
	if message != "" {
		want["message"] = message
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s %s (-want +got):\n%s", u.GetName(), kind, diff)
	}
}

func (w *world) testAutomation(t *testing.T) {
	w.automate(t)
	for name, test := range map[string]func(*shop, *testing.T){
		"the sample claims, from order to deletion": (*shop).testSamples,
		"a plan change":                  (*shop).testPlanChange,
		"a change that is refused":       (*shop).testRefusedChange,
		"a binding before its instance":  (*shop).testBindingFirst,
		"an instance made anew":          (*shop).testInstanceAnew,
		"a restore before its backup":    (*shop).testRestoreFirst,
		"a restore into another service": (*shop).testRestoreElsewhere,
		"key value":                      (*shop).testKeyvalue,
		"a service that is not offered":  (*shop).testNotOffered,
		"a name that is taken":           (*shop).testNameTaken,
		"deletion waits":                 (*shop).testDeletionWaits,
		"a namespace goes":               (*shop).testNamespaceGoes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(w.shop(t), t)
		})
	}
}

func (s *shop) testSamples(t *testing.T) {
	sample := catalog.Claims()
	instance := s.order(t, automation.Running, sample[0])
	state := s.configMap(t, "orders-state")
	if diff := cmp.Diff(map[string]any{
		"state": "Running", "clusterStatus": "Running", "readyReplicas": int64(1),
		"createdAt":         state.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"),
		"serviceInstanceID": state.Data["serviceInstanceID"],
		"service":           "a9s-postgresql14", "plan": "postgresql-single-nano",
	}, managedOf(instance)); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	wantCondition(t, instance, automation.Ready, "True", "Available", "")
	wantCondition(t, instance, automation.Synced, "True", "ReconcileSuccess", "")

	binding := s.order(t, automation.Created, sample[1])
	s.wantCredentials(t, binding, "orders-api-service-binding", "postgresql", "5432")

	s.write(t, "42 orders")
	backup := s.order(t, automation.Completed, sample[2])
	s.write(t, "the migration went wrong")
	restore := s.order(t, automation.Completed, sample[3])
	if got := s.configMap(t, "orders-state").Data["contents"]; got != "42 orders" {
		t.Errorf("contents after restore: %q", got)
	}
	if managedOf(backup)["backupID"] == nil || managedOf(backup)["backupID"] != managedOf(restore)["backupID"] {
		t.Errorf("backup %v, restore %v", managedOf(backup), managedOf(restore))
	}
	for _, object := range sample {
		s.delete(t, resource(object.GetKind()), s.namespace, object.GetName())
		s.awaitGone(t, resource(object.GetKind()), object.GetName())
	}
	s.wantNothingLeft(t)
}

func (s *shop) wantCredentials(t *testing.T, binding *unstructured.Unstructured, name, scheme, port string) {
	t.Helper()
	secret := s.secret(t, name)
	if diff := cmp.Diff(map[string]any{
		"state": "Created", "implemented": true, "serviceBindingID": secret.Annotations["anynines.com/service-binding-id"],
		"secret": map[string]any{"name": name, "namespace": s.namespace},
	}, managedOf(binding)); diff != "" {
		t.Errorf("binding (-want +got):\n%s", diff)
	}
	data := func(key string) string { return string(secret.Data[key]) }
	uri, err := url.Parse(data("uri"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := uri.User.Password()
	got := []string{uri.Scheme, uri.User.Username(), password, uri.Host, uri.Path}
	want := []string{scheme, data("username"), data("password"), data("host") + ":" + port, "/" + data("database")}
	if diff := cmp.Diff(want, got); diff != "" || len(password) < 20 {
		t.Errorf("uri (-want +got):\n%s", diff)
	}
}

func (s *shop) wantNothingLeft(t *testing.T) {
	t.Helper()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=" + automation.Manager}
	secrets, err := s.core.CoreV1().Secrets(s.namespace).List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	maps, err := s.core.CoreV1().ConfigMaps(s.namespace).List(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	if len(secrets.Items)+len(maps.Items) > 0 {
		t.Errorf("left behind: %d Secrets, %d ConfigMaps", len(secrets.Items), len(maps.Items))
	}
}

func (s *shop) testPlanChange(t *testing.T) {
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.write(t, "keep me")
	before := s.configMap(t, "orders-state")
	instance := s.order(t, automation.Running, named("PostgresqlInstance", "orders", with(postgres(), fields{"plan": "postgresql-replica-big"})))
	after := s.configMap(t, "orders-state")
	if got := managedOf(instance); got["plan"] != "postgresql-replica-big" || got["readyReplicas"] != int64(3) {
		t.Errorf("status: %v", got)
	}
	before.Data["plan"] = "postgresql-replica-big"
	if diff := cmp.Diff(before.Data, after.Data); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

func (s *shop) testRefusedChange(t *testing.T) {
	tooMany := with(postgres(), fields{"parameters": fields{"maxConnections": int64(101)}})
	const why = "maxConnections is 101, but plan postgresql-single-small allows 100"
	refused := s.order(t, automation.Failed, named("PostgresqlInstance", "fresh", tooMany))
	wantCondition(t, refused, automation.Synced, "False", automation.TooManyConnections, why)
	wantCondition(t, refused, automation.Ready, "False", automation.TooManyConnections, why)

	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	running := s.order(t, automation.Running, named("PostgresqlInstance", "orders", tooMany))
	wantCondition(t, running, automation.Synced, "False", automation.TooManyConnections, why)
	wantCondition(t, running, automation.Ready, "True", "Available", "")

	healed := s.order(t, automation.Running, named("PostgresqlInstance", "fresh", with(tooMany, fields{"plan": "postgresql-single-big"})))
	wantCondition(t, healed, automation.Synced, "True", "ReconcileSuccess", "")
}

func (s *shop) testBindingFirst(t *testing.T) {
	early := s.order(t, automation.Failed, named("ServiceBinding", "api", instanceOf("postgresql")))
	wantCondition(t, early, automation.Ready, "False", automation.InstanceNotFound, "there is no PostgresqlInstance orders in this namespace")
	wantCondition(t, early, automation.Synced, "False", automation.InstanceNotFound, "there is no PostgresqlInstance orders in this namespace")
	s.apply(t, s.namespace, named("PostgresqlInstance", "orders", postgres()))
	s.awaitState(t, automation.Created, "ServiceBinding", "api")
	s.secret(t, "api-service-binding")
}

func (s *shop) testInstanceAnew(t *testing.T) {
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.order(t, automation.Created, named("ServiceBinding", "api", instanceOf("postgresql")))
	before := s.secret(t, "api-service-binding")
	s.delete(t, resource("PostgresqlInstance"), s.namespace, "orders")
	s.awaitState(t, automation.Failed, "ServiceBinding", "api")
	s.awaitGone(t, secrets, "api-service-binding")
	s.apply(t, s.namespace, named("PostgresqlInstance", "orders", postgres()))
	s.awaitState(t, automation.Created, "ServiceBinding", "api")
	if after := s.secret(t, "api-service-binding"); string(after.Data["password"]) == string(before.Data["password"]) {
		t.Error("a new instance took over the old one's credentials")
	}
}

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (s *shop) testRestoreFirst(t *testing.T) {
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.write(t, "good")
	early := s.order(t, automation.Failed, named("Restore", "undo", restore()))
	wantCondition(t, early, automation.Synced, "False", automation.BackupNotFound, "there is no Backup b in this namespace")
	s.apply(t, s.namespace, named("Backup", "b", instanceOf("postgresql")))
	s.awaitState(t, automation.Completed, "Restore", "undo")

	s.delete(t, resource("Backup"), s.namespace, "b")
	s.awaitGone(t, resource("Backup"), "b")
	done := s.awaitState(t, automation.Completed, "Restore", "undo")
	wantCondition(t, done, automation.Ready, "True", "Available", "")
}

func (s *shop) testRestoreElsewhere(t *testing.T) {
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.order(t, automation.Running, named("PostgresqlInstance", "older", with(postgres(), fields{"service": "a9s-postgresql13"})))
	s.order(t, automation.Completed, named("Backup", "b", instanceOf("postgresql")))
	refused := s.order(t, automation.Failed, named("Restore", "down", with(restore(), fields{"instanceRef": "older"})))
	wantCondition(t, refused, automation.Synced, "False", automation.ServiceMismatch,
		"a backup of a9s-postgresql14 cannot be restored into a9s-postgresql13")
}

func (s *shop) testKeyvalue(t *testing.T) {
	a9s := func(kind string, spec fields) fields {
		return with(spec, fields{"compositionRef": composition("a9s-" + kind)})
	}
	s.order(t, automation.Running, named("KeyvalueInstance", "orders", keyvalue("keyvalue-single-nano-ssl")))
	binding := s.order(t, automation.Created, named("ServiceBinding", "api", a9s("servicebinding", instanceOf("keyvalue"))))
	s.wantCredentials(t, binding, "api-service-binding", "rediss", "6379")
	s.write(t, "carts")
	s.order(t, automation.Completed, named("Backup", "b", a9s("backup", instanceOf("keyvalue"))))
	s.write(t, "")
	s.order(t, automation.Completed, named("Restore", "undo", a9s("restore", fields{"backupRef": "b", "serviceInstanceType": "keyvalue"})))
	if got := s.configMap(t, "orders-state").Data["contents"]; got != "carts" {
		t.Errorf("contents after restore: %q", got)
	}
}

func (s *shop) testNotOffered(t *testing.T) {
	spec := with(instanceOf("mongodb"), fields{"compositionRef": composition("a9s-servicebinding")})
	refused := s.order(t, automation.Failed, named("ServiceBinding", "api", spec))
	wantCondition(t, refused, automation.Synced, "False", automation.ServiceNotOffered, "serviceInstanceType mongodb is not on offer")
}

func (s *shop) testNameTaken(t *testing.T) {
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "api-service-binding"}, StringData: map[string]string{"mine": "yes"}}
	if _, err := s.core.CoreV1().Secrets(s.namespace).Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	refused := s.order(t, automation.Failed, named("ServiceBinding", "api", instanceOf("postgresql")))
	wantCondition(t, refused, automation.Synced, "False", automation.NameTaken, "the name api-service-binding is taken by something else")
	s.delete(t, resource("ServiceBinding"), s.namespace, "api")
	s.awaitGone(t, resource("ServiceBinding"), "api")
	if got := s.secret(t, "api-service-binding"); string(got.Data["mine"]) != "yes" || len(got.Data) != 1 {
		t.Errorf("somebody else's Secret was touched: %d keys", len(got.Data))
	}
}

func (s *shop) testDeletionWaits(t *testing.T) {
	s.order(t, automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.patchConfigMap(t.Context(), t, "orders-state", `{"metadata":{"finalizers":["example.com/slow"]}}`)
	s.delete(t, resource("PostgresqlInstance"), s.namespace, "orders")
	waiting := s.awaitState(t, automation.Deleting, "PostgresqlInstance", "orders")
	wantCondition(t, waiting, automation.Ready, "False", "Deleting", "waiting until orders-state is gone")
	s.patchConfigMap(t.Context(), t, "orders-state", `{"metadata":{"finalizers":null}}`)
	s.awaitGone(t, resource("PostgresqlInstance"), "orders")
	s.wantNothingLeft(t)
}

func (s *shop) testNamespaceGoes(t *testing.T) {
	for i, state := range []automation.State{automation.Running, automation.Created, automation.Completed, automation.Completed} {
		s.order(t, state, catalog.Claims()[i])
	}
	if err := s.core.CoreV1().Namespaces().Delete(t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.await(t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", s.namespace,
		func(u *unstructured.Unstructured) bool { return u == nil })
}

// TestRestart stops the automation, takes away what it could remember, and starts
// it again: nothing that is random changes, and nothing is done twice.
func (w *world) testRestart(t *testing.T) {
	stop := w.automate(t)
	s := w.shop(t)
	sample := catalog.Claims()
	s.order(t, automation.Running, sample[0])
	s.write(t, "42 orders")
	before := []*unstructured.Unstructured{
		s.awaitState(t, automation.Running, "PostgresqlInstance", "orders"),
		s.order(t, automation.Created, sample[1]),
		s.order(t, automation.Completed, sample[2]),
		s.order(t, automation.Completed, sample[3]),
	}
	password := s.secret(t, "orders-api-service-binding").Data["password"]
	s.write(t, "43 orders")
	stop()
	for _, object := range before {
		s.forget(t, object)
	}
	w.automate(t)
	for _, object := range before {
		state := automation.State(managedOf(object)["state"].(string))
		after := s.awaitState(t, state, object.GetKind(), object.GetName())
		if diff := cmp.Diff(managedOf(object), managedOf(after)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", object.GetKind(), diff)
		}
	}
	if diff := cmp.Diff(password, s.secret(t, "orders-api-service-binding").Data["password"]); diff != "" {
		t.Error("the password changed")
	}
	if got := s.configMap(t, "orders-state").Data["contents"]; got != "43 orders" {
		t.Errorf("restored a second time: %q", got)
	}
}

// Forget removes the status of object.
func (s *shop) forget(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	patch := []byte(`{"status":null}`)
	_, err := s.dyn.Resource(resource(object.GetKind())).Namespace(s.namespace).
		Patch(t.Context(), object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
