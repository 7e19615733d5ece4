// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Keys of an instance's state, and of a snapshot of it.
const (
	idKey         = "serviceInstanceID"
	serviceKey    = "service"
	planKey       = "plan"
	parametersKey = "parameters"
	exposeKey     = "expose"
	contentsKey   = "contents"
	backupIDKey   = "backupID"
	sizeKey       = "sizeBytes"
)

// Instance makes the state of an instance, or changes it to what c asks for now. A
// change that is refused leaves the instance as it runs.
func (w *world) instance(ctx context.Context, c claim) (managed, error) {
	state, found, err := find(ctx, w.configMaps(c), c)
	if err != nil {
		return nil, err
	}
	if err := refuseInstance(c); err != nil {
		if !found {
			return nil, err
		}
		m, runErr := w.runningOf(ctx, c, state)
		return m, cmp.Or(runErr, err)
	}
	if !found {
		state, err = w.provision(ctx, c)
	} else {
		state, err = w.change(ctx, c, state)
	}
	if err != nil {
		return nil, err
	}
	return w.runningOf(ctx, c, state)
}

// runningOf sees to it that the instance runs, and describes it.
func (w *world) runningOf(ctx context.Context, c claim, state *corev1.ConfigMap) (managed, error) {
	server, err := w.serverOf(ctx, typeOf(c), state)
	if err != nil {
		return nil, err
	}
	m := running(state)
	if server != nil {
		at := server.Endpoint()
		m["host"], m["port"], m["version"] = at.Host, at.Port, at.Version
	}
	return m, nil
}

func (w *world) provision(ctx context.Context, c claim) (*corev1.ConfigMap, error) {
	state := &corev1.ConfigMap{ObjectMeta: c.madeMeta(), Data: ordered(c)}
	state.Data[idKey] = w.newID(c, typeOf(c))
	state.Data[contentsKey] = ""
	state, err := w.configMaps(c).Create(ctx, state, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("provision: %w", err)
	}
	return state, nil
}

// Change brings plan and parameters of a running instance in line with c.
func (w *world) change(ctx context.Context, c claim, state *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	data := maps.Clone(state.Data)
	maps.Copy(data, ordered(c))
	if maps.Equal(data, state.Data) {
		return state, nil
	}
	state.Data = data
	state, err := w.core.ConfigMaps(c.GetNamespace()).Update(ctx, state, metav1.UpdateOptions{})
	if err != nil {
		return nil, fmt.Errorf("change: %w", err)
	}
	return state, nil
}

// Ordered is the part of an instance's state that its claim decides.
func ordered(c claim) map[string]string {
	parameters, _, _ := unstructured.NestedMap(c.Object, "spec", "parameters")
	text, err := json.Marshal(parameters)
	if err != nil { // cannot be: it came as JSON
		panic(err)
	}
	return map[string]string{
		serviceKey:    c.text("spec", "service"),
		planKey:       c.text("spec", "plan"),
		exposeKey:     c.text("spec", "expose"),
		parametersKey: string(text),
	}
}

// Running describes an instance by its state: as it runs, not as it was ordered.
func running(state *corev1.ConfigMap) managed {
	replicas := int64(1)
	if strings.Contains(state.Data[planKey], "-replica-") {
		replicas = 3
	}
	return managed{
		"state": string(Running), "clusterStatus": string(Running), "readyReplicas": replicas,
		"createdAt":         state.CreationTimestamp.UTC().Format(time.RFC3339),
		"serviceInstanceID": state.Data[idKey],
		"service":           state.Data[serviceKey], "plan": state.Data[planKey],
	}
}

// refuseInstance returns the mistakes of an instance that a schema does not see.
func refuseInstance(c claim) error {
	service, plan := c.text("spec", "service"), c.text("spec", "plan")
	family, rest, _ := strings.Cut(plan, "-")
	if !strings.HasPrefix(strings.TrimPrefix(service, "a9s-"), family) {
		return refuse(PlanMismatch, "plan %s is not one of service %s", plan, service)
	}
	wanted, _, _ := unstructured.NestedInt64(c.Object, "spec", "parameters", "maxConnections")
	if limit := connections(rest); wanted > limit {
		return refuse(TooManyConnections, "maxConnections is %d, but plan %s allows %d", wanted, plan, limit)
	}
	return nil
}

// Connections returns how many connections a plan without its family allows, such
// as single-nano or replica-big-ssl.
func connections(plan string) int64 {
	return map[string]int64{"nano": 50, "small": 100, "medium": 200, "big": 500}[size(plan)]
}

// size of a plan without its family.
func size(plan string) string {
	_, plan, _ = strings.Cut(plan, "-")
	size, _, _ := strings.Cut(plan, "-")
	return size
}
