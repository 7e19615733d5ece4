// SPDX-License-Identifier: Apache-2.0

package servicenamespace

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// P30: however many namespaces a provider names, nothing is mapped, each is told of
// once, and the log stays readable.
func TestP30ManyUnrequestedNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var records []string
		ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) { records = append(records, args) }, funcr.Options{}))
		room := 100
		n := New(Config{
			Grace:      time.Minute,
			WhileOurs:  func(f controller.Func) controller.Func { return f },
			Recordable: func(context.Context) bool { room--; return room >= 0 },
		})
		defer n.Queue.ShutDown()
		look := func(want time.Duration) {
			t.Helper()
			for i := range 1000 {
				asked := &v1alpha1.APIServiceNamespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("space-", i)}}
				asked.Status.Namespace = "service-" + asked.Name
				if again, err := n.unmapped(ctx, asked); err != nil || again != want {
					t.Fatalf("again in %s: %v, want %s", again, err, want)
				}
				if service, mapped := n.Mapper.Of(asked.Name); mapped {
					t.Fatalf("%s is mapped to %s", asked.Name, service)
				}
			}
		}
		look(time.Minute)
		if len(records) > 0 || n.Ready().Status != metav1.ConditionTrue {
			t.Errorf("told before a Sync could meet an object: %q", records)
		}
		time.Sleep(time.Minute)
		look(0)
		look(0)
		if len(records) != 100 {
			t.Errorf("%d audit records", len(records))
		}
		if c := n.Ready(); c.Reason != v1alpha1.ReasonUninvitedNamespace || !strings.Contains(c.Message, "and 997 more") {
			t.Errorf("%+v", c)
		}
		for i := range 1000 {
			n.requested(fmt.Sprint("space-", i))
		}
		if c := n.Ready(); c.Status != metav1.ConditionTrue || len(n.unrequested.seen) > 0 {
			t.Errorf("%+v", c)
		}
	})
}

// Who made an APIServiceNamespace is told by its managed fields.
func TestRequestedHere(t *testing.T) {
	for manager, want := range map[string]bool{v1alpha1.FieldManager: true, "konnector": true, "platform": false, "": false, "konnector-of-others": false} {
		asked := &v1alpha1.APIServiceNamespace{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager}}}}
		if got := requestedHere(asked); got != want {
			t.Errorf("%q: %t", manager, got)
		}
	}
}
