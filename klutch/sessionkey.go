// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/hourly"
)

const (
	sessionSecret  = "klutch-backend-session"
	sessionKeySize = 32
	sessionKeyName = "20060102T150405Z" // of an entry: when the key was made

	sessionKeyLife = 7 * 24 * time.Hour // then there is a new one
	keySettle      = 10 * time.Minute   // a new key opens at once, and seals when every replica knows it
	keyOverlap     = 2 * time.Hour      // longer than anything lives that was sealed with the one before
	keyReload      = time.Minute
)

// A keyring is the session keys of all replicas, in a Secret, each entry a key.
// Whichever replica comes first makes a new one when the newest is too old.
type keyring struct {
	client    kubernetes.Interface
	namespace string
	life      time.Duration // less than zero is for good
	current   atomic.Pointer[auth.Sealer]
	failing   atomic.Int64 // the fates.Kind of the last load
}

// run follows the Secret until ctx is done. The keys that are known stay in use while
// the Secret cannot be read.
func (k *keyring) run(ctx context.Context) error {
	return group.Run(ctx, func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) { k.note(ctx, k.load(ctx)) }, keyReload)
		return nil
	}, func(ctx context.Context) error {
		hourly.Log(ctx, "session keys are not kept up to date", k.failed)
		return nil
	})
}

// note logs how a load went, if the one before went another way.
func (k *keyring) note(ctx context.Context, err error) {
	kind := fates.Of(err)
	if ctx.Err() != nil || k.failing.Swap(int64(kind)) == int64(kind) {
		return
	}
	if log := logr.FromContextOrDiscard(ctx); err != nil {
		log.Error(err, "session keys are not kept up to date, retrying")
	} else {
		log.Info("session keys are up to date again")
	}
}

// failed has the Secret by what its API server says, if the last load failed.
func (k *keyring) failed() map[string]int {
	if kind := fates.Kind(k.failing.Load()); kind != fates.None {
		return map[string]int{kind.Word().String(): 1}
	}
	return nil
}

// load makes, reads and rotates the keys. A backend that may not write the Secret
// leaves the rotation to one that may: it takes up the keys that are there, and returns the error.
func (k *keyring) load(ctx context.Context) error {
	secret, err := sessionSecretOf(ctx, k.client, k.namespace)
	if err != nil {
		return err
	}
	var unwritten error
	if data, changed := rotated(secret.Data, time.Now(), k.life); changed {
		next := secret.DeepCopy()
		next.Data = data
		next, err = k.client.CoreV1().Secrets(k.namespace).Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			secret = next
			logr.FromContextOrDiscard(ctx).WithName("audit").Info("session keys rotated", "keys", len(secret.Data))
		case !fates.Is(err, fates.Conflict): // another replica was faster
			unwritten = fmt.Errorf("rotate session keys: %w", fates.Withheld(err))
		}
	}
	sealer, err := auth.NewSealer(sealingOrder(secret.Data, time.Now())...)
	if err != nil {
		return fmt.Errorf("session keys: %w", err)
	}
	k.current.Store(sealer)
	return unwritten
}

// sessionSecretOf makes or finds the Secret with the session keys.
func sessionSecretOf(ctx context.Context, client kubernetes.Interface, namespace string) (*corev1.Secret, error) {
	secrets := client.CoreV1().Secrets(namespace)
	got, err := secrets.Get(ctx, sessionSecret, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		got, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: sessionSecret},
			Data:       withNewKey(nil, time.Now()),
		}, metav1.CreateOptions{})
		err = fates.Withheld(err)
	}
	if fates.Is(err, fates.Exists) {
		got, err = secrets.Get(ctx, sessionSecret, metav1.GetOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("session keys: %w", err)
	}
	return got, nil
}

func withNewKey(data map[string][]byte, now time.Time) map[string][]byte {
	key := make([]byte, sessionKeySize)
	_, _ = rand.Read(key) // it never fails
	next := map[string][]byte{now.UTC().Format(sessionKeyName): key}
	maps.Copy(next, data)
	return next
}

// made is when a key was made. An operator may name one as they like: it counts as
// very old, so it seals at once.
func made(name string) time.Time {
	at, _ := time.Parse(sessionKeyName, name)
	return at
}

// newestFirst are the names of the keys.
func newestFirst(data map[string][]byte) []string {
	return slices.SortedFunc(maps.Keys(data), func(a, b string) int {
		if order := made(b).Compare(made(a)); order != 0 {
			return order
		}
		return strings.Compare(b, a)
	})
}

// sealing is the name of the key that seals: the newest that every replica knows,
// or the oldest if there is none.
func sealing(names []string, now time.Time) string {
	for _, name := range names {
		if !made(name).After(now.Add(-keySettle)) {
			return name
		}
	}
	return names[len(names)-1]
}

// sealingOrder are the keys, the one that seals first.
func sealingOrder(data map[string][]byte, now time.Time) [][]byte {
	names := newestFirst(data)
	if len(names) == 0 {
		return nil
	}
	first := sealing(names, now)
	keys := [][]byte{data[first]}
	for _, name := range names {
		if name != first {
			keys = append(keys, data[name])
		}
	}
	return keys
}

// rotated returns data with a new key if the newest is older than life, and without
// those with which nothing can be sealed any more. It reports whether that differs.
func rotated(data map[string][]byte, now time.Time, life time.Duration) (map[string][]byte, bool) {
	names := newestFirst(data)
	if life < 0 || len(names) == 0 {
		return data, false
	}
	next := maps.Clone(data)
	first := sealing(names, now)
	if made(first).Before(now.Add(-keySettle - keyOverlap)) {
		for _, name := range names[slices.Index(names, first)+1:] {
			delete(next, name)
		}
	}
	if made(names[0]).Before(now.Add(-life)) {
		next = withNewKey(next, now)
	}
	return next, len(next) != len(data) || made(names[0]).Before(now.Add(-life))
}
