// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A store reads and writes the objects made for claims, of one type and in one namespace.
type store[T metav1.Object] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, object T, opts metav1.CreateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

func (w *world) configMaps(c claim) store[*corev1.ConfigMap] {
	return w.core.ConfigMaps(c.GetNamespace())
}

func (w *world) secrets(c claim) store[*corev1.Secret] { return w.core.Secrets(c.GetNamespace()) }

// Find reads the object made for c. One of that name that is not c's is a hold.
func find[T metav1.Object](ctx context.Context, s store[T], c claim) (object T, found bool, err error) {
	object, err = s.Get(ctx, c.madeName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return object, false, nil
	case err != nil:
		return object, false, fmt.Errorf("read %s: %w", c.madeName(), err)
	case !metav1.IsControlledBy(object, c):
		return object, false, refuse(NameTaken, "the name %s is taken by something else", c.madeName())
	}
	return object, true, nil
}

// Remove deletes the object made for c and says whether it is gone.
func remove[T metav1.Object](ctx context.Context, s store[T], c claim) (gone bool, err error) {
	object, found, err := find(ctx, s, c)
	if _, foreign := errors.AsType[*hold](err); foreign || err == nil && !found {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	err = s.Delete(ctx, c.madeName(), metav1.DeleteOptions{Preconditions: exactly(object)})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("delete %s: %w", c.madeName(), err)
	}
	return len(object.GetFinalizers()) == 0, nil
}

// Exactly limits a deletion to the object as it was read, so that one without
// finalizers is known to be gone when the deletion succeeds.
func exactly(object metav1.Object) *metav1.Preconditions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return &metav1.Preconditions{UID: &uid, ResourceVersion: &version}
}
