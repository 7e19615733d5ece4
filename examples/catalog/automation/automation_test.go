// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

func newClaim(kindName string, spec map[string]any) claim {
	k, _ := kindOf(kindName)
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetName("orders")
	u.SetNamespace("shop")
	u.SetGeneration(3)
	return claim{k, u}
}

// TestPlans: the name of a plan says how many servers it has, and what it allows.
func TestPlans(t *testing.T) {
	for name, c := range map[string]struct {
		plan             string
		wanted, replicas int64
		want             string
	}{
		"fits":                       {"postgresql-single-nano", 50, 1, ""},
		"nothing asked":              {"postgresql-single-nano", 0, 1, ""},
		"too many":                   {"postgresql-single-nano", 51, 1, TooManyConnections},
		"suffixes do not count":      {"postgresql-replica-big-ssl-bionic", 500, 3, ""},
		"suffixes do not help":       {"postgresql-replica-big-ssl-bionic", 501, 3, TooManyConnections},
		"a cluster":                  {"mariadb-cluster-small", 100, 3, ""},
		"two words before the shape": {"prometheus2-grafana10-single-small", 100, 1, ""},
		"no size":                    {"postgresql-single", 0, 1, PlanMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			err := Refuse(newClaim("PostgresqlInstance", map[string]any{
				"plan": c.plan, "parameters": map[string]any{"maxConnections": c.wanted},
			}).Unstructured)
			got := ""
			if h, ok := errors.AsType[*hold](err); ok {
				got = h.reason
			}
			if got != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
			m := running(&corev1.ConfigMap{Data: map[string]string{planKey: c.plan}})
			if m["readyReplicas"] != c.replicas {
				t.Errorf("%v replicas, want %d", m["readyReplicas"], c.replicas)
			}
		})
	}
}

func TestStatusOf(t *testing.T) {
	start := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	condition := func(kind, status, reason, message, since string) map[string]any {
		m := map[string]any{"type": kind, "status": status, "reason": reason, "lastTransitionTime": since, "observedGeneration": int64(3)}
		if message != "" {
			m["message"] = message
		}
		return m
	}
	const first, second = "2026-06-01T12:00:00Z", "2026-06-01T12:01:00Z"
	c := newClaim("PostgresqlInstance", nil)
	for _, step := range []struct {
		name  string
		m     managed
		h     *hold
		after time.Duration
		want  []any
	}{
		{"refused", nil, &hold{Failed, "Bad", "no"}, 0, []any{
			condition(Ready, "False", "Bad", "no", first), condition(Synced, "False", "Bad", "no", first),
		}},
		{"refused for another reason: no transition", nil, &hold{Failed, "Worse", "no"}, time.Second, []any{
			condition(Ready, "False", "Worse", "no", first), condition(Synced, "False", "Worse", "no", first),
		}},
		{"waits", nil, &hold{Pending, "Later", "soon"}, time.Minute, []any{
			condition(Ready, "False", "Later", "soon", first), condition(Synced, "True", "ReconcileSuccess", "", second),
		}},
		{"runs", managed{"state": "Running"}, nil, time.Minute, []any{
			condition(Ready, "True", "Available", "", second), condition(Synced, "True", "ReconcileSuccess", "", second),
		}},
		{"runs on", managed{"state": "Running"}, nil, time.Hour, []any{
			condition(Ready, "True", "Available", "", second), condition(Synced, "True", "ReconcileSuccess", "", second),
		}},
		{"runs, but a change is refused", managed{"state": "Running"}, &hold{Failed, "Bad", "no"}, time.Minute, []any{
			condition(Ready, "True", "Available", "", second), condition(Synced, "False", "Bad", "no", second),
		}},
	} {
		status := statusOf(c, step.m, step.h, start.Add(step.after))
		if diff := cmp.Diff(step.want, status["conditions"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
		c.Object["status"] = status
	}
}

func TestReferencesOf(t *testing.T) {
	for name, c := range map[string]struct {
		spec map[string]any
		want []string
	}{
		"instance":            {map[string]any{"service": "a9s-postgresql14"}, nil},
		"binding":             {map[string]any{"instanceRef": "a", "serviceInstanceType": "postgresql"}, []string{"postgresqlinstances/shop/a"}},
		"other type":          {map[string]any{"instanceRef": "a", "serviceInstanceType": "keyvalue"}, []string{"keyvalueinstances/shop/a"}},
		"type not offered":    {map[string]any{"instanceRef": "a", "serviceInstanceType": "mongodb"}, nil},
		"restore":             {map[string]any{"backupRef": "b", "instanceRef": "a", "serviceInstanceType": "postgresql"}, []string{"backups/shop/b", "postgresqlinstances/shop/a"}},
		"restore of a backup": {map[string]any{"backupRef": "b", "serviceInstanceType": "postgresql"}, []string{"backups/shop/b"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := referencesOf(newClaim("Restore", c.spec).Unstructured)
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("err %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCredentialsAreRandom(t *testing.T) {
	at := engine.Endpoint{Scheme: "postgresql", Host: "host", Port: "5432"}
	a, b := credentials(at, "dana"), credentials(at, "dana")
	for _, key := range []string{"password", "uri"} {
		if a[key] == b[key] {
			t.Errorf("%s is always %s", key, a[key])
		}
	}
}

// A notebook is an engine that notes the orders it is given.
type notebook struct {
	engine.Engine

	orders []engine.Order
}

func (e *notebook) Run(_ context.Context, o engine.Order) (engine.Server, error) {
	e.orders = append(e.orders, o)
	return nil, nil //nolint:nilnil // it is not used
}

// TestStaleOrders: a claim that has read the state of an instance before it changed does not order
// the server as it was, nor one that is being removed.
func TestStaleOrders(t *testing.T) {
	state := func(plan string) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "orders-state", Namespace: "shop", OwnerReferences: []metav1.OwnerReference{{UID: "u", Controller: new(true)}}},
			Data:       map[string]string{planKey: plan, parametersKey: "{}"},
		}
	}
	going, others := state("postgresql-single-big"), state("postgresql-single-big")
	going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	others.OwnerReferences[0].UID = "v"
	for name, c := range map[string]struct {
		now  *corev1.ConfigMap
		want []int // connections of each order
	}{
		"changed": {state("postgresql-single-big"), []int{500}},
		"going":   {going, nil},
		"another": {others, nil},
		"gone":    {&corev1.ConfigMap{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := &notebook{}
			w := &world{core: fake.NewClientset(c.now).CoreV1(), engines: map[string]engine.Engine{"postgresql": e}}
			_, err := w.serverOf(t.Context(), "postgresql", state("postgresql-single-nano"))
			var got []int
			for _, o := range e.orders {
				got = append(got, o.Connections)
			}
			if h, held := errors.AsType[*hold](err); !cmp.Equal(got, c.want) || held != (c.want == nil) || held && h.reason != InstanceNotReady {
				t.Errorf("ordered %v, want %v; %v", got, c.want, err)
			}
		})
	}
}
