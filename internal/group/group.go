// SPDX-License-Identifier: Apache-2.0

// Package group runs parts that only work together, such as informers, controllers and
// servers, until the first one ends.
package group

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Run runs all parts until the first one ends, then cancels the others and waits for
// them. It returns their errors, without those of the cancellation.
func Run(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			defer cancel()
			if err := part(ctx); ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
				errs[i] = err
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Informer is a part that runs inf.
func Informer(inf cache.SharedIndexInformer) func(context.Context) error {
	return func(ctx context.Context) error {
		inf.RunWithContext(ctx)
		return nil
	}
}

// Idle is a part that has nothing to do.
func Idle(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
