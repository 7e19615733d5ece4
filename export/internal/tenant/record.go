// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// RecordKey is the key of a record in its Secret.
const RecordKey = "tenant.json"

// A Record is what our side remembers of a tenant.
type Record struct {
	Identity auth.Identity `json:"identity"`
	Cluster  string        `json:"cluster"`
	// LoggedIn is when the holder last logged in, or bound as a machine.
	LoggedIn time.Time `json:"loggedIn,omitzero"`
	// Services were chosen at logins and allowed then, by name.
	Services []string `json:"services"`
	// Redeemed one-time codes and when they may be forgotten.
	Redeemed map[string]time.Time `json:"redeemed,omitempty"`
}

// errNoRecord says that a namespace is not a tenant's.
var errNoRecord = errors.New("is not a tenant of this backend")

// What logins and controllers write at once meets conflicts. A login goes on for seconds, since a person waits
// for it (manyWriters); a pass of a controller tries a few times, and package queue then has it come back ever
// more rarely, so that a write which is answered 409 for hours holds no worker (fewWriters).
var (
	manyWriters = wait.Backoff{Steps: 30, Duration: 10 * time.Millisecond, Factor: 1.3, Jitter: 1, Cap: time.Second}
	fewWriters  = wait.Backoff{Steps: 4, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 1}
)

// retried calls write until its error is none to try again after, at that pace, or until ctx is done: retry.OnError
// of client-go sleeps on then.
func retried(ctx context.Context, pace wait.Backoff, again func(error) bool, write func() error) (err error) {
	ended := wait.ExponentialBackoffWithContext(ctx, pace, func(context.Context) (bool, error) {
		err = write()
		return !again(err), nil
	})
	if err == nil {
		return ended
	}
	return err
}

// records keeps a record of each tenant in a Secret of its namespace.
type records struct{ Clients }

// Read returns the record of a tenant and the Secret that holds it; the error wraps
// errNoRecord where there is none.
func (s *records) Read(ctx context.Context, namespace string) (*Record, *corev1.Secret, error) {
	secret, err := s.Kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.TenantRecordSecret, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		return nil, nil, fmt.Errorf("namespace %s %w", namespace, errNoRecord)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	r := &Record{}
	if err := json.Unmarshal(secret.Data[RecordKey], r); err != nil {
		return nil, nil, fmt.Errorf("read record of tenant %s: %w", namespace, err)
	}
	return r, secret, nil
}

// Update writes what change makes of the record, unless change fails or
// changes nothing. Change is called again when another writer was faster.
func (s *records) Update(ctx context.Context, namespace string, change func(*Record) error) error {
	return retried(ctx, manyWriters, conflicting, func() error {
		r, secret, err := s.Read(ctx, namespace)
		if errors.Is(err, errNoRecord) {
			r, secret, err = &Record{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantRecordSecret, Namespace: namespace}}, nil
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

func (s *records) write(ctx context.Context, r *Record, secret *corev1.Secret) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record of tenant %s: %w", secret.Namespace, err)
	}
	if string(secret.Data[RecordKey]) == string(data) {
		return nil
	}
	secret.Data = map[string][]byte{RecordKey: data}
	if err := s.put(ctx, secret); err != nil {
		return fmt.Errorf("write record of tenant %s: %w", secret.Namespace, err)
	}
	return nil
}

func conflicting(err error) bool { return fates.Is(err, fates.Conflict, fates.Exists) }

// ErrRedeemed says that a one-time code is good for nothing any more.
var ErrRedeemed = errors.New("the code has been used")

// Redeemable returns ErrRedeemed if a one-time code was used, or its tenant is gone.
func (s *records) Redeemable(ctx context.Context, namespace, code string) error {
	r, _, err := s.Read(ctx, namespace)
	if errors.Is(err, errNoRecord) {
		return ErrRedeemed
	}
	if err != nil {
		return err
	}
	return r.redeemable(code)
}

func (r *Record) redeemable(code string) error {
	if _, used := r.Redeemed[code]; used || r.Cluster == "" {
		return ErrRedeemed
	}
	return nil
}

// Redeem uses a code up, once, whichever replica is asked: the write is refused if
// another one wrote in between. Until is when the code may be forgotten.
func (s *records) Redeem(ctx context.Context, namespace, code string, until time.Time) error {
	return s.Update(ctx, namespace, func(r *Record) error {
		if err := r.redeemable(code); err != nil {
			return err
		}
		maps.DeleteFunc(r.Redeemed, func(_ string, until time.Time) bool { return time.Now().After(until) })
		if r.Redeemed == nil {
			r.Redeemed = map[string]time.Time{}
		}
		r.Redeemed[code] = until.UTC().Truncate(time.Second)
		return nil
	})
}
