// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// What meets one conflict after the other ends with its context, in the midst of a pause too.
func TestConflictsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, writes := fake.NewClientset(), 0
		client.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			writes++
			return true, nil, apierrors.NewConflict(corev1.Resource("secrets"), "tenant", errors.New("another one was faster"))
		})
		ctx, stop := context.WithCancel(t.Context())
		begun, update := time.Now(), make(chan error, 1)
		go func() {
			update <- (&records{Clients{Kube: client}}).Update(ctx, "t", func(r *Record) error { r.Cluster = "1"; return nil })
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		before := writes
		stop()
		if err := <-update; err == nil || writes != before || time.Since(begun) != time.Second {
			t.Errorf("%d writes, and %d after %s: %v", before, writes-before, time.Since(begun), err)
		}
		if err := (&records{Clients{Kube: client}}).Update(ctx, "t", func(r *Record) error { r.Cluster = "1"; return nil }); err == nil || writes != before {
			t.Errorf("once it has ended: %v", err)
		}
	})
}
