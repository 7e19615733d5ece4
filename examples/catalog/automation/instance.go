// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	if err := Refuse(c.Unstructured); err != nil {
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

// A size is what a word in the name of a plan stands for, such as big in postgresql-replica-big-ssl.
type size struct{ connections, memoryMegaBytes int }

var sizes = map[string]size{"nano": {50, 16}, "small": {100, 32}, "medium": {200, 64}, "big": {500, 128}}

// sizeOf returns the size of a plan; false when its name has none.
func sizeOf(plan string) (size, bool) {
	for word := range strings.SplitSeq(plan, "-") {
		if s, ok := sizes[word]; ok {
			return s, true
		}
	}
	return size{}, false
}

// replicasOf returns how many servers a plan has.
func replicasOf(plan string) int64 {
	if strings.Contains(plan, "-replica-") || strings.Contains(plan, "-cluster-") {
		return 3
	}
	return 1
}

// Running describes an instance by its state: as it runs, not as it was ordered.
func running(state *corev1.ConfigMap) managed {
	return managed{
		"state": string(Running), "clusterStatus": string(Running), "readyReplicas": replicasOf(state.Data[planKey]),
		"createdAt":         state.CreationTimestamp.UTC().Format(time.RFC3339),
		"serviceInstanceID": state.Data[idKey],
		"service":           state.Data[serviceKey], "plan": state.Data[planKey],
	}
}

// Refuse returns the mistakes of an instance that its schema does not see.
func Refuse(instance *unstructured.Unstructured) error {
	plan := claim{Unstructured: instance}.text("spec", "plan")
	allowed, ok := sizeOf(plan)
	if !ok {
		return refuse(PlanMismatch, "plan %s has no size: one of %s", plan, strings.Join(slices.Sorted(maps.Keys(sizes)), ", "))
	}
	wanted, _, _ := unstructured.NestedInt64(instance.Object, "spec", "parameters", "maxConnections")
	if wanted > int64(allowed.connections) {
		return refuse(TooManyConnections, "maxConnections is %d, but plan %s allows %d", wanted, plan, allowed.connections)
	}
	return nil
}
