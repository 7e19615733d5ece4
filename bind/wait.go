// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// until calls done with the object as it is, then with each change of it, until
// done returns true or an error, or ctx ends. A nil object is one that is not there.
func until[T any](ctx context.Context, r dynamic.ResourceInterface, name string, done func(*T) (bool, error)) error {
	for {
		end, err := untilWatchEnds(ctx, r, name, func(u *unstructured.Unstructured) (bool, error) {
			if u == nil {
				return done(nil)
			}
			o, err := decode[T](u)
			if err != nil {
				return false, err
			}
			return done(o)
		})
		switch {
		case end:
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("wait for %s: %w", name, context.Cause(ctx))
		case err != nil && !passing(err):
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return fmt.Errorf("wait for %s: %w", name, err)
		}
	}
}

func untilWatchEnds(ctx context.Context, r dynamic.ResourceInterface, name string, done func(*unstructured.Unstructured) (bool, error)) (end bool, err error) {
	u, err := r.Get(ctx, name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, err
	}
	version := ""
	if err == nil {
		version = u.GetResourceVersion()
	} else {
		u = nil
	}
	if ok, err := done(u); ok || err != nil {
		return true, err
	}
	w, err := r.Watch(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: version})
	if err != nil {
		return false, err
	}
	defer w.Stop()
	return untilDone(w, done)
}

func untilDone(w watch.Interface, done func(*unstructured.Unstructured) (bool, error)) (end bool, err error) {
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error || !ok:
			return false, nil // read it again
		case e.Type == watch.Bookmark:
			continue
		case e.Type == watch.Deleted:
			u = nil
		}
		if ok, err := done(u); ok || err != nil {
			return true, err
		}
	}
	return false, nil
}

// passing errors are those of an API server that may be back soon.
func passing(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= 500 || apierrors.IsTooManyRequests(err) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

// retry calls fn for some ten seconds while again says so.
func retry(ctx context.Context, again func(error) bool, fn func() error) error {
	for range 20 {
		err := fn()
		if err == nil || !again(err) {
			return err
		}
		if end := pause(ctx, 500*time.Millisecond); end != nil {
			return fmt.Errorf("%w: %w", err, end)
		}
	}
	return fn()
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
