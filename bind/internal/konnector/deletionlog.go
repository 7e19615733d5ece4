// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// deletionLogs keep what the Syncs of the bindings have deleted of late, in annotations of
// the kubeconfig Secrets: those the konnector may write, and no other program need.
type deletionLogs struct {
	mu    sync.Mutex
	texts map[cache.ObjectName]string // by binding, as last written; the cache may be older
}

// of is that of a binding which uses a Secret.
func (all *deletionLogs) of(binding cache.ObjectName, secret *kubeconfigSecret) klutchsync.DeletionLog {
	key := deletionsKey(binding.Name)
	return klutchsync.DeletionLog{
		Text: all.text(binding, secret, key),
		Save: func(ctx context.Context, text string) error {
			err := secret.annotate(ctx, key, text)
			if err == nil {
				all.note(binding, text)
			}
			return err
		},
	}
}

func (all *deletionLogs) text(binding cache.ObjectName, secret *kubeconfigSecret, key string) string {
	all.mu.Lock()
	defer all.mu.Unlock()
	if text, known := all.texts[binding]; known {
		return text
	}
	if held := secret.stored(); held != nil {
		return held.GetAnnotations()[key]
	}
	return ""
}

func (all *deletionLogs) note(binding cache.ObjectName, text string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.texts == nil {
		all.texts = map[cache.ObjectName]string{}
	}
	all.texts[binding] = text
}

func (all *deletionLogs) forget(binding cache.ObjectName) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.texts, binding)
}

// deletionsKey is the annotation of a binding: names of bindings may be longer than those
// of annotations.
func deletionsKey(binding string) string {
	const most = 63
	if len(binding) > most {
		sum := sha256.Sum256([]byte(binding))
		binding = hex.EncodeToString(sum[:16])
	}
	return v1alpha1.DeletionsAnnotationPrefix + binding
}

// annotate sets an annotation of the Secret, or removes it for "".
func (s *kubeconfigSecret) annotate(ctx context.Context, key, text string) error {
	held := s.stored()
	if held == nil {
		return errors.New("the kubeconfig Secret is not there")
	}
	var value any
	if text != "" {
		value = text
	}
	err := s.patch(ctx, map[string]any{"metadata": map[string]any{"uid": held.GetUID(), "annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("write annotation %s of Secret %s of the App Cluster: %w", key, s.name, err)
	}
	return nil
}
