// SPDX-License-Identifier: Apache-2.0

// Package yardstick has what the benchmark measures the konnector beside. Run is "ideal": it does the least
// work that moves a spec up, a status down and a deletion through, and is not safe in any way. RunSync is "sync":
// the engine without all that the konnector and the backend add to it.
package yardstick

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// A yardstick moves specs up, statuses down and deletions through with the fewest
// requests, and remembers, checks and survives nothing.
type yardstick struct {
	app, control dynamic.Interface
	spaces       spaces
	errs         chan error

	mu          sync.Mutex
	namespaces  map[string]bool
	generations map[types.UID]int64
	statuses    map[types.UID]string
}

// Options are where a yardstick works.
type Options struct {
	App, ControlPlane string  // kubeconfigs
	QPS               float64 // rate limit of each client; negative means none
	Tenant            string  // tenant namespace, with the rights of which Run works; empty: an administrator's
	Resources         []schema.GroupVersionResource
}

// Run is the yardstick, until ctx is done.
func Run(ctx context.Context, o Options) error {
	var clients []dynamic.Interface
	for _, path := range []string{o.App, o.ControlPlane} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			return err
		}
		if config.QPS = float32(o.QPS); o.QPS > 0 {
			config.Burst = 2 * int(o.QPS)
		}
		c, err := dynamic.NewForConfig(config)
		if err != nil {
			return err
		}
		clients = append(clients, c)
	}
	return run(ctx, clients[0], clients[1], o)
}

const (
	manager = "ideal"
	workers = 32
)

func run(ctx context.Context, app, control dynamic.Interface, o Options) error {
	spaces, err := spacesOf(ctx, control, o.Tenant)
	if err != nil {
		return err
	}
	k := &yardstick{
		app: app, control: control, spaces: spaces, errs: make(chan error, 1),
		namespaces: map[string]bool{}, generations: map[types.UID]int64{}, statuses: map[types.UID]string{},
	}
	jobs := make(chan func() error, 100_000)
	for range workers {
		go k.work(ctx, jobs)
	}
	for _, r := range o.Resources {
		err := follow(ctx, app.Resource(r), func(u *unstructured.Unstructured) {
			jobs <- func() error { return k.up(ctx, r, u) }
		})
		if err != nil {
			return err
		}
		for _, c := range spaces.watched(control.Resource(r)) {
			err := follow(ctx, c, func(u *unstructured.Unstructured) {
				jobs <- func() error { return k.down(ctx, r, u) }
			})
			if err != nil {
				return err
			}
		}
	}
	select {
	case err := <-k.errs:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (k *yardstick) work(ctx context.Context, jobs <-chan func() error) {
	for job := range jobs {
		if err := job(); err != nil && ctx.Err() == nil {
			select {
			case k.errs <- err:
			default:
			}
		}
	}
}

// follow calls f for every object that is there, and for every event but deletions
// until ctx is done.
func follow(ctx context.Context, c dynamic.ResourceInterface, f func(u *unstructured.Unstructured)) error {
	list, err := c.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	for i := range list.Items {
		f(&list.Items[i])
	}
	go func() {
		for version := list.GetResourceVersion(); ctx.Err() == nil; {
			w, err := c.Watch(ctx, metav1.ListOptions{ResourceVersion: version})
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			for e := range w.ResultChan() {
				if u, ok := e.Object.(*unstructured.Unstructured); ok {
					version = u.GetResourceVersion()
					if e.Type != watch.Deleted {
						f(u)
					}
				}
			}
		}
	}()
	return nil
}

func (k *yardstick) up(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured) error {
	name := u.GetName()
	namespace, err := k.spaces.target(u.GetNamespace())
	if err != nil {
		return err
	}
	if u.GetDeletionTimestamp() != nil {
		if err := k.control.Resource(r).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
		return k.setFinalizers(ctx, r, u)
	}
	if seen := k.swapGeneration(u); seen == u.GetGeneration() {
		return nil
	}
	if err := k.ensureNamespace(ctx, namespace); err != nil {
		return err
	}
	if len(u.GetFinalizers()) == 0 {
		if err := k.setFinalizers(ctx, r, u, "ideal.example/sync"); err != nil {
			return err
		}
	}
	return apply(ctx, k.control.Resource(r).Namespace(namespace), u, "spec")
}

func (k *yardstick) down(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured) error {
	namespace, ours := k.spaces.source(u.GetNamespace())
	status, ok := u.Object["status"]
	if !ours || !ok || u.GetDeletionTimestamp() != nil || !k.swapStatus(u.GetUID(), status) {
		return nil
	}
	return apply(ctx, k.app.Resource(r).Namespace(namespace), u, "status", "status")
}

// setFinalizers replaces the finalizers of an object of the App Cluster.
func (k *yardstick) setFinalizers(ctx context.Context, r schema.GroupVersionResource, u *unstructured.Unstructured, finalizers ...string) error {
	data, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = k.app.Resource(r).Namespace(u.GetNamespace()).
		Patch(ctx, u.GetName(), types.MergePatchType, data, metav1.PatchOptions{FieldManager: manager})
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
	_, err = to.Patch(ctx, u.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: manager, Force: new(true)}, sub...)
	return err
}

func (k *yardstick) swapGeneration(u *unstructured.Unstructured) (seen int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen = k.generations[u.GetUID()]
	k.generations[u.GetUID()] = u.GetGeneration()
	return seen
}

func (k *yardstick) swapStatus(uid types.UID, status any) (changed bool) {
	data, _ := json.Marshal(status)
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = k.statuses[uid] != string(data)
	k.statuses[uid] = string(data)
	return changed
}

func (k *yardstick) ensureNamespace(ctx context.Context, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.namespaces[name] || k.spaces != nil {
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
