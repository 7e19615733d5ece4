// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// records keeps a record of each tenant in a Secret of its namespace.
type records struct{ clients }

func (s *records) read(ctx context.Context, namespace string) (*record, *corev1.Secret, error) {
	secret, err := s.kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.TenantRecordSecret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil, fmt.Errorf("namespace %s %w", namespace, errNoRecord)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	r := &record{}
	if err := json.Unmarshal(secret.Data[recordKey], r); err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	return r, secret, nil
}

// update writes what change makes of the record, unless change fails or
// changes nothing. Change is called again when another writer was faster.
func (s *records) update(ctx context.Context, namespace string, change func(*record) error) error {
	return retry.OnError(manyWriters, conflicting, func() error {
		r, secret, err := s.read(ctx, namespace)
		if errors.Is(err, errNoRecord) {
			r, secret, err = &record{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: namespace}}, nil
		}
		if err != nil {
			return err
		}
		if err := change(r); err != nil {
			return err
		}
		return s.write(ctx, r, secret)
	})
}

func (s *records) write(ctx context.Context, r *record, secret *corev1.Secret) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of tenant %s: %w", secret.Namespace, err)
	}
	if string(secret.Data[recordKey]) == string(data) {
		return nil
	}
	secret.Data = map[string][]byte{recordKey: data}
	if err := s.put(ctx, secret); err != nil {
		return fmt.Errorf("write record of tenant %s: %w", secret.Namespace, err)
	}
	return nil
}

func conflicting(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// holderOf returns the holder of a tenant namespace, if ns is one: its name has to
// be the one that follows from the holder. Only who may write namespaces can make one.
func holderOf(ns metav1.Object) (holder, bool) {
	var h holder
	if err := json.Unmarshal([]byte(ns.GetAnnotations()[v1alpha1.HolderAnnotation]), &h); err != nil {
		return holder{}, false
	}
	name := ns.GetName()
	prefix := name[:max(0, strings.LastIndex(name, "-"))]
	return h, ns.GetLabels()[v1alpha1.TenantLabel] == name && h.namespace(prefix) == name
}
