// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	deviceNamePrefix = "klutch-device-"
	deviceValue      = "value"
	deviceSweep      = 5 * time.Minute
	rareDeviceSweep  = time.Hour
	devicePage       = 50 // ConfigMaps that a sweep holds in memory: each may have the groups of a person
)

// DeviceConfigMaps is an [auth.DeviceStore] for all replicas of a backend: a
// ConfigMap for each key. They need not be Secrets, since values are sealed, and so
// the backend needs no right to read the Secrets around them.
type DeviceConfigMaps struct {
	// Client may create, get, list and delete ConfigMaps in Namespace.
	Client kubernetes.Interface
	// Namespace is that of the backend itself: no tenant may read or write there.
	Namespace string
}

// Create implements [auth.DeviceStore].
func (d DeviceConfigMaps) Create(ctx context.Context, key string, value []byte, expiry time.Time) error {
	_, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: deviceNamePrefix + key, Labels: map[string]string{v1alpha1.DeviceLoginLabel: "true", tenant.ManagedBy: tenant.UserAgent},
			Annotations: map[string]string{v1alpha1.ExpiresAnnotation: expiry.UTC().Format(time.RFC3339)},
		},
		BinaryData: map[string][]byte{deviceValue: value},
		Immutable:  new(true),
	}, metav1.CreateOptions{})
	if fates.Is(err, fates.Exists) {
		return auth.ErrDeviceTaken
	}
	if err != nil {
		return fmt.Errorf("keep a device login: %w", err)
	}
	return nil
}

// Get implements [auth.DeviceStore]. It reads what is there now, never a cache.
func (d DeviceConfigMaps) Get(ctx context.Context, key string) ([]byte, error) {
	got, err := d.Client.CoreV1().ConfigMaps(d.Namespace).Get(ctx, deviceNamePrefix+key, metav1.GetOptions{})
	if fates.Is(err, fates.Absent) {
		return nil, auth.ErrDevicePending
	}
	if err != nil {
		return nil, fmt.Errorf("look up a device login: %w", err)
	}
	return got.BinaryData[deviceValue], nil
}

// Run removes what has expired, every five minutes until ctx is done, and ever more rarely where an API
// server lets it remove none: every hour at least. Any number of replicas may run it.
func (d DeviceConfigMaps) Run(ctx context.Context) error {
	for pause := deviceSweep; ; pause = min(2*pause, rareDeviceSweep) {
		deleted, err := d.sweep(ctx, time.Now())
		if err == nil || deleted > 0 {
			pause = deviceSweep
		}
		if err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "device logins that have expired", "next", pause.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// sweep deletes the expired logins. If the API server refuses to delete one, the rest is deleted all the same.
func (d DeviceConfigMaps) sweep(ctx context.Context, now time.Time) (deleted int, kept error) {
	maps := d.Client.CoreV1().ConfigMaps(d.Namespace)
	opts := metav1.ListOptions{LabelSelector: v1alpha1.DeviceLoginLabel + "=true", Limit: devicePage}
	for {
		page, err := maps.List(ctx, opts)
		if err != nil {
			return deleted, errors.Join(kept, err)
		}
		for _, m := range page.Items {
			expiry, err := time.Parse(time.RFC3339, m.Annotations[v1alpha1.ExpiresAnnotation])
			if err == nil && now.Before(expiry) {
				continue
			}
			err = maps.Delete(ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &m.UID}})
			switch {
			case err == nil:
				deleted++
			case fates.Is(err, fates.Absent, fates.Conflict):
			case !fates.IsRefused(err):
				return deleted, errors.Join(kept, err) // so it would be with the others
			case kept == nil:
				kept = err
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return deleted, kept
		}
	}
}
