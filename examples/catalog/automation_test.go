// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
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
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A shop is a service namespace with an automation at work.
type shop struct {
	*world
	t         *testing.T
	namespace string
}

func (w *world) shop(t *testing.T) *shop {
	t.Helper()
	return &shop{w, t, w.namespace(t)}
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
func (s *shop) order(state automation.State, object *unstructured.Unstructured) *unstructured.Unstructured {
	s.t.Helper()
	s.apply(s.t, s.namespace, object)
	return s.awaitState(state, object.GetKind(), object.GetName())
}

func (s *shop) awaitState(state automation.State, kind, name string) *unstructured.Unstructured {
	s.t.Helper()
	return s.await(s.t, resource(kind), s.namespace, name, func(u *unstructured.Unstructured) bool {
		return u != nil && managedOf(u)["state"] == string(state) &&
			conditionOf(u, automation.Ready)["observedGeneration"] == u.GetGeneration()
	})
}

func (s *shop) awaitGone(gvr schema.GroupVersionResource, name string) {
	s.t.Helper()
	s.await(s.t, gvr, s.namespace, name, func(u *unstructured.Unstructured) bool { return u == nil })
}

func managedOf(u *unstructured.Unstructured) map[string]any {
	m, _, _ := unstructured.NestedMap(u.Object, "status", "managed")
	return m
}

func (s *shop) configMap(name string) *corev1.ConfigMap {
	s.t.Helper()
	cm, err := s.core.CoreV1().ConfigMaps(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return cm
}

func (s *shop) secret(name string) *corev1.Secret {
	s.t.Helper()
	secret, err := s.core.CoreV1().Secrets(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func (s *shop) patchConfigMap(name, patch string) {
	s.t.Helper()
	if _, err := s.core.CoreV1().ConfigMaps(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// Write puts contents into the instance orders, as an application would.
func (s *shop) write(contents string) {
	s.t.Helper()
	s.patchConfigMap("orders-state", `{"data":{"contents":"`+contents+`"}}`)
}

func (s *shop) wantCondition(u *unstructured.Unstructured, kind, status, reason, message string) {
	s.t.Helper()
	got := conditionOf(u, kind)
	delete(got, "lastTransitionTime")
	want := map[string]any{"type": kind, "status": status, "reason": reason, "observedGeneration": u.GetGeneration()}
	if message != "" {
		want["message"] = message
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s %s (-want +got):\n%s", u.GetName(), kind, diff)
	}
}

func (w *world) testAutomation(t *testing.T) {
	w.automate(t, nil)
	for name, test := range map[string]func(*shop){
		"the sample claims, from order to deletion": (*shop).testSamples,
		"a plan change":                  (*shop).testPlanChange,
		"a change that is refused":       (*shop).testRefusedChange,
		"a binding before its instance":  (*shop).testBindingFirst,
		"an instance made anew":          (*shop).testInstanceAnew,
		"a restore before its backup":    (*shop).testRestoreFirst,
		"a restore into another service": (*shop).testRestoreElsewhere,
		"key value":                      (*shop).testKeyvalue,
		"orders":                         (*shop).testOrders,
		"a service that is not offered":  (*shop).testNotOffered,
		"a name that is taken":           (*shop).testNameTaken,
		"a write that is refused":        (*shop).testRefusedWrite,
		"deletion waits":                 (*shop).testDeletionWaits,
		"a namespace goes":               (*shop).testNamespaceGoes,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(w.shop(t))
		})
	}
}

func (s *shop) testSamples() {
	sample := catalog.Claims()
	instance := s.order(automation.Running, sample[0])
	state := s.configMap("orders-state")
	if diff := cmp.Diff(map[string]any{
		"state": "Running", "clusterStatus": "Running", "readyReplicas": int64(1),
		"createdAt":         state.CreationTimestamp.UTC().Format("2006-01-02T15:04:05Z"),
		"serviceInstanceID": state.Data["serviceInstanceID"],
		"service":           "a9s-postgresql14", "plan": "postgresql-single-nano",
	}, managedOf(instance)); diff != "" {
		s.t.Errorf("instance (-want +got):\n%s", diff)
	}
	s.wantCondition(instance, automation.Ready, "True", "Available", "")
	s.wantCondition(instance, automation.Synced, "True", "ReconcileSuccess", "")

	binding := s.order(automation.Created, sample[1])
	s.wantCredentials(binding, "orders-api-service-binding", "postgresql", "5432")

	s.write("42 orders")
	backup := s.order(automation.Completed, sample[2])
	s.write("the migration went wrong")
	restore := s.order(automation.Completed, sample[3])
	if got := s.configMap("orders-state").Data["contents"]; got != "42 orders" {
		s.t.Errorf("contents after restore: %q", got)
	}
	if managedOf(backup)["backupID"] == nil || managedOf(backup)["backupID"] != managedOf(restore)["backupID"] {
		s.t.Errorf("backup %v, restore %v", managedOf(backup), managedOf(restore))
	}
	for _, object := range sample {
		s.delete(s.t, resource(object.GetKind()), s.namespace, object.GetName())
		s.awaitGone(resource(object.GetKind()), object.GetName())
	}
	s.wantNothingLeft()
}

func (s *shop) wantCredentials(binding *unstructured.Unstructured, name, scheme, port string) {
	s.t.Helper()
	secret := s.secret(name)
	if diff := cmp.Diff(map[string]any{
		"state": "Created", "implemented": true, "serviceBindingID": secret.Annotations["anynines.com/service-binding-id"],
		"secret": map[string]any{"name": name, "namespace": s.namespace},
	}, managedOf(binding)); diff != "" {
		s.t.Errorf("binding (-want +got):\n%s", diff)
	}
	data := func(key string) string { return string(secret.Data[key]) }
	uri, err := url.Parse(data("uri"))
	if err != nil {
		s.t.Fatal(err)
	}
	password, _ := uri.User.Password()
	got := []string{uri.Scheme, uri.User.Username(), password, uri.Host, uri.Path}
	want := []string{scheme, data("username"), data("password"), data("host") + ":" + port, "/" + data("database")}
	if diff := cmp.Diff(want, got); diff != "" || len(password) < 20 {
		s.t.Errorf("uri (-want +got):\n%s", diff)
	}
}

func (s *shop) wantNothingLeft() {
	s.t.Helper()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=" + automation.Manager}
	secrets, err := s.core.CoreV1().Secrets(s.namespace).List(s.t.Context(), ours)
	if err != nil {
		s.t.Fatal(err)
	}
	maps, err := s.core.CoreV1().ConfigMaps(s.namespace).List(s.t.Context(), ours)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(secrets.Items)+len(maps.Items) > 0 {
		s.t.Errorf("left behind: %d Secrets, %d ConfigMaps", len(secrets.Items), len(maps.Items))
	}
}

func (s *shop) testPlanChange() {
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.write("keep me")
	before := s.configMap("orders-state")
	instance := s.order(automation.Running, named("PostgresqlInstance", "orders", with(postgres(), fields{"plan": "postgresql-replica-big"})))
	after := s.configMap("orders-state")
	if got := managedOf(instance); got["plan"] != "postgresql-replica-big" || got["readyReplicas"] != int64(3) {
		s.t.Errorf("status: %v", got)
	}
	before.Data["plan"] = "postgresql-replica-big"
	if diff := cmp.Diff(before.Data, after.Data); diff != "" {
		s.t.Errorf("state (-want +got):\n%s", diff)
	}
}

func (s *shop) testRefusedChange() {
	tooMany := with(postgres(), fields{"parameters": fields{"maxConnections": int64(101)}})
	const why = "maxConnections is 101, but plan postgresql-single-small allows 100"
	refused := s.order(automation.Failed, named("PostgresqlInstance", "fresh", tooMany))
	s.wantCondition(refused, automation.Synced, "False", automation.TooManyConnections, why)
	s.wantCondition(refused, automation.Ready, "False", automation.TooManyConnections, why)

	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	running := s.order(automation.Running, named("PostgresqlInstance", "orders", tooMany))
	s.wantCondition(running, automation.Synced, "False", automation.TooManyConnections, why)
	s.wantCondition(running, automation.Ready, "True", "Available", "")

	healed := s.order(automation.Running, named("PostgresqlInstance", "fresh", with(tooMany, fields{"plan": "postgresql-single-big"})))
	s.wantCondition(healed, automation.Synced, "True", "ReconcileSuccess", "")
}

func (s *shop) testBindingFirst() {
	early := s.order(automation.Failed, named("ServiceBinding", "api", instanceOf("postgresql")))
	s.wantCondition(early, automation.Ready, "False", automation.InstanceNotFound, "there is no PostgresqlInstance orders in this namespace")
	s.wantCondition(early, automation.Synced, "False", automation.InstanceNotFound, "there is no PostgresqlInstance orders in this namespace")
	s.apply(s.t, s.namespace, named("PostgresqlInstance", "orders", postgres()))
	s.awaitState(automation.Created, "ServiceBinding", "api")
	s.secret("api-service-binding")
}

func (s *shop) testInstanceAnew() {
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.order(automation.Created, named("ServiceBinding", "api", instanceOf("postgresql")))
	before := s.secret("api-service-binding")
	s.delete(s.t, resource("PostgresqlInstance"), s.namespace, "orders")
	s.awaitState(automation.Failed, "ServiceBinding", "api")
	s.awaitGone(secrets, "api-service-binding")
	s.apply(s.t, s.namespace, named("PostgresqlInstance", "orders", postgres()))
	s.awaitState(automation.Created, "ServiceBinding", "api")
	if after := s.secret("api-service-binding"); string(after.Data["password"]) == string(before.Data["password"]) {
		s.t.Error("a new instance took over the old one's credentials")
	}
}

var secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

func (s *shop) testRestoreFirst() {
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.write("good")
	early := s.order(automation.Failed, named("Restore", "undo", restore()))
	s.wantCondition(early, automation.Synced, "False", automation.BackupNotFound, "there is no Backup b in this namespace")
	s.apply(s.t, s.namespace, named("Backup", "b", instanceOf("postgresql")))
	s.awaitState(automation.Completed, "Restore", "undo")

	s.delete(s.t, resource("Backup"), s.namespace, "b")
	s.awaitGone(resource("Backup"), "b")
	done := s.awaitState(automation.Completed, "Restore", "undo")
	s.wantCondition(done, automation.Ready, "True", "Available", "")
}

func (s *shop) testRestoreElsewhere() {
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.order(automation.Running, named("PostgresqlInstance", "older", with(postgres(), fields{"service": "a9s-postgresql13"})))
	s.order(automation.Completed, named("Backup", "b", instanceOf("postgresql")))
	refused := s.order(automation.Failed, named("Restore", "down", with(restore(), fields{"instanceRef": "older"})))
	s.wantCondition(refused, automation.Synced, "False", automation.ServiceMismatch,
		"a backup of a9s-postgresql14 cannot be restored into a9s-postgresql13")
}

func (s *shop) testKeyvalue() {
	a9s := func(kind string, spec fields) fields {
		return with(spec, fields{"compositionRef": composition("a9s-" + kind)})
	}
	s.order(automation.Running, named("KeyvalueInstance", "orders", keyvalue("keyvalue-single-nano-ssl")))
	binding := s.order(automation.Created, named("ServiceBinding", "api", a9s("servicebinding", instanceOf("keyvalue"))))
	s.wantCredentials(binding, "api-service-binding", "rediss", "6379")
	s.write("carts")
	s.order(automation.Completed, named("Backup", "b", a9s("backup", instanceOf("keyvalue"))))
	s.write("")
	s.order(automation.Completed, named("Restore", "undo", a9s("restore", fields{"backupRef": "b", "serviceInstanceType": "keyvalue"})))
	if got := s.configMap("orders-state").Data["contents"]; got != "carts" {
		s.t.Errorf("contents after restore: %q", got)
	}
}

// testOrders orders what is in orders of each data service that the automation carries out.
func (s *shop) testOrders() {
	for _, order := range catalog.Orders() {
		service, instance := instanceType(order.GetKind())
		if !instance {
			service, _, _ = unstructured.NestedString(order.Object, "spec", "serviceInstanceType")
		}
		switch {
		case !slices.Contains(automation.Offered(), service):
		case instance:
			s.t.Log(order.GetKind(), "is ordered")
			s.order(automation.Running, order)
		default:
			s.order(automation.Created, order)
			credentials := s.secret(order.GetName() + "-service-binding").Data
			if credentials["uri"] == nil {
				s.t.Errorf("%s has no uri", order.GetName())
			}
			s.t.Logf("%s has credentials for %s", order.GetName(), credentials["host"])
		}
	}
}

func (s *shop) testNotOffered() {
	spec := with(instanceOf("mongodb"), fields{"compositionRef": composition("a9s-servicebinding")})
	refused := s.order(automation.Failed, named("ServiceBinding", "api", spec))
	s.wantCondition(refused, automation.Synced, "False", automation.ServiceNotOffered, "serviceInstanceType mongodb is not on offer")
}

func (s *shop) testNameTaken() {
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "api-service-binding"}, StringData: map[string]string{"mine": "yes"}}
	if _, err := s.core.CoreV1().Secrets(s.namespace).Create(s.t.Context(), theirs, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	refused := s.order(automation.Failed, named("ServiceBinding", "api", instanceOf("postgresql")))
	s.wantCondition(refused, automation.Synced, "False", automation.NameTaken, "the name api-service-binding is taken by something else")
	s.delete(s.t, resource("ServiceBinding"), s.namespace, "api")
	s.awaitGone(resource("ServiceBinding"), "api")
	if got := s.secret("api-service-binding"); string(got.Data["mine"]) != "yes" || len(got.Data) != 1 {
		s.t.Errorf("a foreign Secret was touched: %d keys", len(got.Data))
	}
}

// testRefusedWrite: what keeps the automation from its work stands on the claim, until it does not.
func (s *shop) testRefusedWrite() {
	label := func(value string) {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, v1alpha1.TenantLabel, value)
		if _, err := s.core.CoreV1().Namespaces().Patch(s.t.Context(), s.namespace, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			s.t.Fatal(err)
		}
	}
	label("null") // it is no service namespace any more
	refused := s.order(automation.Failed, named("PostgresqlInstance", "orders", postgres()))
	for _, kind := range []string{automation.Synced, automation.Ready} {
		if c := conditionOf(refused, kind); c["reason"] != automation.Refused || !strings.Contains(fmt.Sprint(c["message"]), "may write only in service namespaces") {
			s.t.Errorf("%s: %v", kind, c)
		}
	}
	label(`"tenant"`)
	s.awaitState(automation.Running, "PostgresqlInstance", "orders")
}

func (s *shop) testDeletionWaits() {
	s.order(automation.Running, named("PostgresqlInstance", "orders", postgres()))
	s.patchConfigMap("orders-state", `{"metadata":{"finalizers":["example.com/slow"]}}`)
	s.delete(s.t, resource("PostgresqlInstance"), s.namespace, "orders")
	waiting := s.awaitState(automation.Deleting, "PostgresqlInstance", "orders")
	s.wantCondition(waiting, automation.Ready, "False", "Deleting", "waiting until orders-state is gone")
	s.patchConfigMap("orders-state", `{"metadata":{"finalizers":null}}`)
	s.awaitGone(resource("PostgresqlInstance"), "orders")
	s.wantNothingLeft()
}

func (s *shop) testNamespaceGoes() {
	for i, state := range []automation.State{automation.Running, automation.Created, automation.Completed, automation.Completed} {
		s.order(state, catalog.Claims()[i])
	}
	if err := s.core.CoreV1().Namespaces().Delete(s.t.Context(), s.namespace, metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.await(s.t, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", s.namespace,
		func(u *unstructured.Unstructured) bool { return u == nil })
}

// testRestart stops the automation, takes away its caches, and starts
// it again: nothing that is random changes, and nothing is done twice.
func (w *world) testRestart(t *testing.T) {
	stop := w.automate(t, nil)
	s := w.shop(t)
	sample := catalog.Claims()
	s.order(automation.Running, sample[0])
	s.write("42 orders")
	before := []*unstructured.Unstructured{
		s.awaitState(automation.Running, "PostgresqlInstance", "orders"),
		s.order(automation.Created, sample[1]),
		s.order(automation.Completed, sample[2]),
		s.order(automation.Completed, sample[3]),
	}
	password := s.secret("orders-api-service-binding").Data["password"]
	s.write("43 orders")
	stop()
	for _, object := range before {
		s.forget(object)
	}
	stop = w.automate(t, nil)
	s.wantSame(before, managedOf)
	if diff := cmp.Diff(password, s.secret("orders-api-service-binding").Data["password"]); diff != "" {
		t.Error("the password changed")
	}
	if got := s.configMap("orders-state").Data["contents"]; got != "43 orders" {
		t.Errorf("restored a second time: %q", got)
	}
	s.wantIdleStart(stop, before)
}

// wantSame waits for the states of objects as they were and compares what of says about them.
func (s *shop) wantSame(before []*unstructured.Unstructured, of func(*unstructured.Unstructured) map[string]any) {
	s.t.Helper()
	for _, object := range before {
		state := automation.State(fmt.Sprint(managedOf(object)["state"]))
		after := s.awaitState(state, object.GetKind(), object.GetName())
		if diff := cmp.Diff(of(object), of(after)); diff != "" {
			s.t.Errorf("%s (-before +after):\n%s", object.GetKind(), diff)
		}
	}
}

// wantIdleStart: a start that finds everything done changes nothing. A claim that is
// new to it shows that it has been through the old ones.
func (s *shop) wantIdleStart(stop func(), objects []*unstructured.Unstructured) {
	s.t.Helper()
	stop()
	var before []*unstructured.Unstructured
	for _, o := range objects {
		state := automation.State(fmt.Sprint(managedOf(o)["state"]))
		before = append(before, s.awaitState(state, o.GetKind(), o.GetName()))
	}
	s.automate(s.t, nil)
	s.order(automation.Running, named("PostgresqlInstance", "another", postgres()))
	s.wantSame(before, func(u *unstructured.Unstructured) map[string]any {
		return map[string]any{"resourceVersion": u.GetResourceVersion()}
	})
}

// Forget removes the status of object.
func (s *shop) forget(object *unstructured.Unstructured) {
	s.t.Helper()
	patch := []byte(`{"status":null}`)
	_, err := s.dyn.Resource(resource(object.GetKind())).Namespace(s.namespace).
		Patch(s.t.Context(), object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Fatal(err)
	}
}
