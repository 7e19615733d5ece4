// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP13P27Removal: an operator deletes the ClusterBinding of a tenant. Without a
// policy nothing is lost; with one, it is what the policy says; many at once wait.
func TestP13P27Removal(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{RemovalsAtOnce: 1})
	patient, doomed, orphaned, bystander := w.settle("ada", "c1"), w.settle("ada", "c2"), w.settle("ada", "c3"), w.settle("grace", "c1")
	robbed := w.settle("grace", "c2")
	w.beat()
	before := w.versionsOf(bystander.namespace)
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"a stolen token dies with its tenant", func() { stolenToken(w.t, robbed) }},
		{"without a policy it waits for the App Cluster", func() { removalWaits(w.t, patient) }},
		{"two at once are held", func() { removalHeld(w.t, doomed, orphaned) }},
		{"Delete takes everything", func() { removalDeletes(w.t, doomed) }},
		{"Orphan keeps what is there, for the same App Cluster", func() { removalOrphans(w.t, orphaned) }},
		{"no other tenant is touched", func() {
			if diff := cmp.Diff(before, w.versionsOf(bystander.namespace)); diff != "" {
				w.t.Errorf("(-before +after):\n%s", diff)
			}
			bystander.widget(w.t)
		}},
		{"P27 it is in the audit log", func() {
			for _, event := range []string{"credential revoked", "objects deleted", "service namespace kept", "tenant removed"} {
				if !strings.Contains(w.log.String(), `"msg"="`+event+`"`) {
					w.t.Errorf("no record of %q", event)
				}
			}
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) { w.t = t; step.run() }) {
			return
		}
	}
}

// settle returns a tenant with a widget.
func (w *world) settle(user, clusterID string) *tenantClient {
	w.t.Helper()
	c := w.tenant(user, clusterID, "widgets.example.org")
	c.request("first", "widgets.example.org")
	c.mirror("team-a")
	widget := object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}")
	w.eventually("widget", func(ctx context.Context) (bool, error) {
		_, err := c.dyn.Resource(widgets).Namespace(c.namespace+"-team-a").Create(ctx, widget, metav1.CreateOptions{})
		return err == nil, nil
	})
	return c
}

// widget fails the test if the tenant cannot see its widget.
func (c *tenantClient) widget(t *testing.T) {
	t.Helper()
	if _, err := c.dyn.Resource(widgets).Namespace(c.namespace+"-team-a").Get(t.Context(), "w", metav1.GetOptions{}); err != nil {
		t.Errorf("the widget of %s: %v", c.namespace, err)
	}
}

// versionsOf are those of what a tenant has, but for its heartbeat.
func (w *world) versionsOf(tenant string) map[string]string {
	w.t.Helper()
	own := map[string]string{}
	for name, version := range w.settled() {
		if strings.Contains(name, " "+tenant) {
			own[name] = version
		}
	}
	if len(own) < 8 {
		w.t.Fatalf("%d objects of a tenant", len(own))
	}
	return own
}

// remove does what an operator does.
func (c *tenantClient) remove(t *testing.T, policy v1alpha1.DeletionPolicy) {
	t.Helper()
	if policy != "" {
		c.policy(t, policy)
	}
	if err := c.w.dyn.Resource(tenant.ClusterBindingResource).Namespace(c.namespace).Delete(t.Context(), "cluster", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *tenantClient) policy(t *testing.T, policy v1alpha1.DeletionPolicy) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, policy)
	if _, err := c.w.dyn.Resource(tenant.ClusterBindingResource).Namespace(c.namespace).Patch(t.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (c *tenantClient) awaitsRemoval(reason, text string) {
	c.w.t.Helper()
	until(c.w, "clusterbindings", c.namespace, "cluster", func(o *v1alpha1.ClusterBinding) bool {
		c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionRemoved)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, text)
	})
}

func (c *tenantClient) isGone(namespace string) {
	c.w.t.Helper()
	c.w.eventually(namespace+" is gone", func(ctx context.Context) (bool, error) {
		_, err := c.w.admin.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
}

func removalWaits(t *testing.T, c *tenantClient) {
	t.Helper()
	c.remove(t, "")
	c.awaitsRemoval(tenant.ReasonObjectsRemain, "widgets.example.org are left in "+c.namespace+"-team-a")
	c.widget(t) // it works as before
	if _, _, err := c.w.login("ada", "c1", "widgets.example.org"); err == nil || !strings.Contains(err.Error(), "temporarily_unavailable") {
		t.Errorf("login of a tenant that is being removed: %v", err)
	}
	if err := c.dyn.Resource(widgets).Namespace(c.namespace+"-team-a").Delete(t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.isGone(c.namespace + "-team-a")
	c.isGone(c.namespace)
}

func removalHeld(t *testing.T, both ...*tenantClient) {
	t.Helper()
	both[0].remove(t, v1alpha1.DeletionPolicyDelete)
	both[1].remove(t, v1alpha1.DeletionPolicyOrphan)
	for _, c := range both {
		c.awaitsRemoval(v1alpha1.ReasonRemovalHeld, "2 tenants are being removed at once, more than 1")
		c.widget(t)
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1alpha1.ReleaseAnnotation)
	for _, c := range both {
		_, err := c.w.dyn.Resource(tenant.ClusterBindingResource).Namespace(c.namespace).Patch(t.Context(), "cluster", types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func removalDeletes(t *testing.T, c *tenantClient) {
	t.Helper()
	c.isGone(c.namespace + "-team-a")
	c.isGone(c.namespace)
	c.w.eventually("old token is refused", func(ctx context.Context) (bool, error) {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err), nil
	})
}

func removalOrphans(t *testing.T, c *tenantClient) {
	t.Helper()
	c.isGone(c.namespace)
	own := c.namespace + "-team-a"
	if _, err := c.w.dyn.Resource(widgets).Namespace(own).Get(t.Context(), "w", metav1.GetOptions{}); err != nil {
		t.Fatalf("the widget did not stay: %v", err)
	}
	if _, err := c.w.admin.RbacV1().RoleBindings(own).Get(t.Context(), v1alpha1.TenantRoleBinding, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("rights of a tenant that is gone: %v", err)
	}
	*c = *c.w.tenant("ada", "c3", "widgets.example.org")
	c.request("first", "widgets.example.org")
	if got := c.mirror("team-a"); got != own {
		t.Errorf("service namespace %s, want %s", got, own)
	}
	c.w.eventually("the widget is back", func(ctx context.Context) (bool, error) {
		_, err := c.dyn.Resource(widgets).Namespace(own).Get(ctx, "w", metav1.GetOptions{})
		return err == nil, nil
	})
}
