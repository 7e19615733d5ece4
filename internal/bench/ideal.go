// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/stack"
)

// ideal is the yardstick: it moves specs up, statuses down and deletions through
// with the fewest requests, and remembers, checks and survives nothing.
type ideal struct {
	app, control dynamic.Interface
	errs         chan error

	mu          sync.Mutex
	namespaces  map[string]bool
	generations map[types.UID]int64
	statuses    map[types.UID]string
}

const (
	idealManager = "ideal"
	idealPrefix  = "ideal-" // before the namespace of the App Cluster
	idealWorkers = 32
)

func runIdeal(ctx context.Context, app, control dynamic.Interface) error {
	k := &ideal{
		app: app, control: control, errs: make(chan error, 1),
		namespaces: map[string]bool{}, generations: map[types.UID]int64{}, statuses: map[types.UID]string{},
	}
	jobs := make(chan func() error, 100_000)
	for range idealWorkers {
		go func() {
			for job := range jobs {
				if err := job(); err != nil && ctx.Err() == nil {
					select {
					case k.errs <- err:
					default:
					}
				}
			}
		}()
	}
	for _, side := range []struct {
		client dynamic.Interface
		do     func(context.Context, *unstructured.Unstructured) error
	}{{app, k.up}, {control, k.down}} {
		err := follow(ctx, side.client, func(deleted bool, u *unstructured.Unstructured) {
			if !deleted {
				jobs <- func() error { return side.do(ctx, u) }
			}
		})
		if err != nil {
			return err
		}
	}
	select {
	case err := <-k.errs:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (k *ideal) up(ctx context.Context, u *unstructured.Unstructured) error {
	namespace, name := idealPrefix+u.GetNamespace(), u.GetName()
	if u.GetDeletionTimestamp() != nil {
		if err := k.control.Resource(widgets).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		return k.setFinalizers(ctx, u, nil)
	}
	if seen := k.swapGeneration(u); seen == u.GetGeneration() {
		return nil
	}
	if err := k.ensureNamespace(ctx, namespace); err != nil {
		return err
	}
	if len(u.GetFinalizers()) == 0 {
		if err := k.setFinalizers(ctx, u, []string{"ideal.example/sync"}); err != nil {
			return err
		}
	}
	return apply(ctx, k.control.Resource(widgets).Namespace(namespace), u, "spec")
}

func (k *ideal) down(ctx context.Context, u *unstructured.Unstructured) error {
	namespace, ours := strings.CutPrefix(u.GetNamespace(), idealPrefix)
	status, ok := u.Object["status"]
	if !ours || !ok || u.GetDeletionTimestamp() != nil || !k.swapStatus(u.GetUID(), status) {
		return nil
	}
	return apply(ctx, k.app.Resource(widgets).Namespace(namespace), u, "status", "status")
}

// setFinalizers replaces the finalizers of an object of the App Cluster.
func (k *ideal) setFinalizers(ctx context.Context, u *unstructured.Unstructured, finalizers []string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = k.app.Resource(widgets).Namespace(u.GetNamespace()).
		Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: idealManager})
	return err
}

// apply applies one field of u, to its counterpart in the namespace of to.
func apply(ctx context.Context, to dynamic.ResourceInterface, u *unstructured.Unstructured, field string, sub ...string) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": map[string]any{"name": u.GetName()}, field: u.Object[field],
	})
	if err != nil {
		return err
	}
	_, err = to.Patch(ctx, u.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: idealManager, Force: new(true)}, sub...)
	return err
}

func (k *ideal) swapGeneration(u *unstructured.Unstructured) (seen int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen = k.generations[u.GetUID()]
	k.generations[u.GetUID()] = u.GetGeneration()
	return seen
}

func (k *ideal) swapStatus(uid types.UID, status any) (changed bool) {
	data, _ := json.Marshal(status)
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = k.statuses[uid] != string(data)
	k.statuses[uid] = string(data)
	return changed
}

func (k *ideal) ensureNamespace(ctx context.Context, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.namespaces[name] {
		return nil
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}}
	_, err := k.control.Resource(stack.Namespaces).Create(ctx, u, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	k.namespaces[name] = true
	return nil
}
