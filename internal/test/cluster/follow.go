// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"slices"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Follow calls each with every change of the objects of client from now on, however often a watch ends, until stop is
// called, which waits for the last call.
func Follow(ctx context.Context, client dynamic.ResourceInterface, each func(change watch.EventType, u *unstructured.Unstructured)) (stop func(), err error) {
	now, err := client.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	events, err := watchtools.NewRetryWatcherWithContext(ctx, now.GetResourceVersion(), &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range events.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				each(e.Type, u)
			}
		}
	}()
	return func() { cancel(); <-done }, nil
}

// Collisions counts the objects of client whose DELETE met the patch that adds finalizer, so that both succeeded, until
// stop is called, which waits for the last; counted returns how many there were so far. Such an object ends with the
// finalizer and without a deletionTimestamp.
func Collisions(ctx context.Context, client dynamic.ResourceInterface, finalizer string) (counted func() int, stop func(), err error) {
	var n atomic.Int64
	stop, err = Follow(ctx, client, func(change watch.EventType, u *unstructured.Unstructured) {
		if change == watch.Deleted && u.GetDeletionTimestamp() == nil && slices.Contains(u.GetFinalizers(), finalizer) {
			n.Add(1)
		}
	})
	return func() int { return int(n.Load()) }, stop, err
}
