// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// deletionLogs are the deletionLogs of the bindings.
type deletionLogs struct {
	mu  sync.Mutex
	all map[cache.ObjectName]*deletionLog
}

// of is that of a binding which uses a Secret.
func (l *deletionLogs) of(binding cache.ObjectName, secret *kubeconfigSecret) *deletionLog {
	log := l.get(binding)
	log.use(secret)
	return log
}

func (l *deletionLogs) get(binding cache.ObjectName) *deletionLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[cache.ObjectName]*deletionLog{}
	}
	if l.all[binding] == nil {
		l.all[binding] = &deletionLog{key: deletionsKey(binding.Name)}
	}
	return l.all[binding]
}

func (l *deletionLogs) forget(binding cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, binding)
}

// A deletionLog keeps over restarts what the Sync of a binding has deleted of late, and which
// release of held deletions was carried out last. It is an annotation of the kubeconfig
// Secret, which the konnector may write, and no other program needs.
type deletionLog struct {
	key string

	mu     sync.Mutex // held while the Secret is written
	secret *kubeconfigSecret
	read   bool
	kept   keptDeletions // as last written; the cache may be older
}

// keptDeletions is the annotation, in JSON.
type keptDeletions struct {
	Released *string `json:"released,omitempty"` // the binding's annotation at the last release, empty if there was none; nil if no pass has looked at it
	Log      string  `json:"log,omitempty"`      // of the Sync
}

func (l *deletionLog) use(secret *kubeconfigSecret) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.secret = secret
	if stored := secret.stored(); !l.read && stored != nil {
		l.kept, l.read = readDeletions(stored.GetAnnotations()[l.key]), true
	}
}

// readDeletions reads the annotation. Konnectors of before kept the log alone.
func readDeletions(text string) (kept keptDeletions) {
	if json.Unmarshal([]byte(text), &kept) != nil {
		return keptDeletions{Log: text}
	}
	return kept
}

// forSync is the part of the Sync.
func (l *deletionLog) forSync() klutchsync.DeletionLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	return klutchsync.DeletionLog{Text: l.kept.Log, Save: func(ctx context.Context, text string) error {
		return l.write(ctx, func(kept *keptDeletions) { kept.Log = text })
	}}
}

// released is what the binding's annotation was at the last release; nil before the first look.
func (l *deletionLog) released() *string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Released
}

// seen keeps the annotation of a binding without a release.
func (l *deletionLog) seen(ctx context.Context, annotation string) error {
	return l.write(ctx, func(kept *keptDeletions) { kept.Released = &annotation })
}

// empty keeps that a release was carried out: deletions are counted anew.
func (l *deletionLog) empty(ctx context.Context, annotation string) error {
	return l.write(ctx, func(kept *keptDeletions) { *kept = keptDeletions{Released: &annotation} })
}

func (l *deletionLog) write(ctx context.Context, change func(*keptDeletions)) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.kept
	change(&kept)
	text, err := json.Marshal(kept)
	if err == nil {
		err = l.secret.annotate(ctx, l.key, string(text))
	}
	if err == nil {
		l.kept, l.read = kept, true
	}
	return err
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
