// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var lease = Lease{Namespace: "ns", Name: "lease"}

func as(identity string) Lease {
	l := lease
	l.Identity = identity
	return l
}

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	l, err := client.CoordinationV1().Leases(lease.Namespace).Get(context.WithoutCancel(t.Context()), lease.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Of two replicas one works; when it ends, the other takes over at once, but not
// before the work of the first has ended.
func TestOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var working, most atomic.Int32
		work := func(ctx context.Context) error {
			most.Store(max(most.Load(), working.Add(1)))
			<-ctx.Done()
			time.Sleep(3 * time.Second) // winding up takes a while
			working.Add(-1)
			return nil
		}
		var wg sync.WaitGroup
		run := func(identity string) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			wg.Go(func() {
				if err := Run(ctx, client, as(identity), work); err != nil {
					t.Error(err)
				}
			})
			return cancel
		}
		stopA := run("a")
		synctest.Wait()
		stopB := run("b")
		time.Sleep(time.Minute)
		if got := holder(t, client); got != "a" {
			t.Errorf("holder is %q, want a", got)
		}
		stopA()
		time.Sleep(8 * time.Second) // less than the lease takes to run out
		if got := holder(t, client); got != "b" || working.Load() != 1 {
			t.Errorf("holder is %q with %d at work, want b and 1", got, working.Load())
		}
		stopB()
		wg.Wait()
		if got := holder(t, client); got != "" {
			t.Errorf("holder is %q after the end, want none", got)
		}
		if most.Load() != 1 {
			t.Errorf("%d at work at once", most.Load())
		}
	})
}

// A replica that loses the lease stops working, and works again when it is back.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var broken atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return broken.Load(), nil, errors.New("API server away")
		})
		var working, terms atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- Run(ctx, client, as("a"), func(ctx context.Context) error {
				working.Add(1)
				terms.Add(1)
				<-ctx.Done()
				working.Add(-1)
				return ctx.Err()
			})
		}()
		time.Sleep(time.Second)
		broken.Store(true)
		time.Sleep(leaseDuration)
		if working.Load() != 0 {
			t.Error("still at work after the lease has run out")
		}
		broken.Store(false)
		time.Sleep(time.Minute)
		if working.Load() != 1 || terms.Load() != 2 {
			t.Errorf("%d at work in term %d, want 1 and 2", working.Load(), terms.Load())
		}
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// What ends of its own accord ends Run, and the lease is free.
func TestEndOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		want := errors.New("done for")
		if err := Run(t.Context(), client, as("a"), func(context.Context) error { return want }); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if got := holder(t, client); got != "" {
			t.Errorf("holder is %q, want none", got)
		}
	})
}

// A replica that never gets the lease ends with ctx and leaves the holder alone.
func TestNeverLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, seconds, now := "other", int32(3600), metav1.NewMicroTime(time.Now())
		client := fake.NewClientset(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &other, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := Run(ctx, client, as("a"), func(context.Context) error { return errors.New("must not be called") })
		if err != nil || holder(t, client) != other {
			t.Errorf("got %v, holder %q", err, holder(t, client))
		}
	})
}
