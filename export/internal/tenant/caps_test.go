// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A quota that kube-controller-manager leaves uncounted, after a CRD has come back, is counted soon, and asked for
// less and less where it cannot be; its limits stay.
func TestQuotaIsRecounted(t *testing.T) {
	for name, countable := range map[string]bool{"countable": true, "not countable": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playRecount(t, countable) })
		})
	}
}

func playRecount(t *testing.T, countable bool) {
	t.Helper()
	const count = corev1.ResourceName("count/trinkets.example.org")
	kube, resource := fake.NewClientset(), corev1.SchemeGroupVersion.WithResource("resourcequotas")
	crds := cache.NewSharedIndexInformer(&cache.ListWatch{}, &metav1.PartialObjectMetadata{}, 0, nil)
	if err := crds.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "trinkets.example.org", CreationTimestamp: metav1.NewTime(time.Now().Add(-3 * time.Minute)),
	}}); err != nil {
		t.Fatal(err)
	}
	q := &quotas{Clients: Clients{Kube: kube}, opts: &Options{Pauses: UsualPauses()}, caches: &Caches{CRDs: crds}}
	updates := 0
	kube.PrependReactor("update", "resourcequotas", func(a clienttesting.Action) (bool, runtime.Object, error) {
		updates++
		o, _ := a.(clienttesting.UpdateAction).GetObject().(*corev1.ResourceQuota)
		if _, limited := o.Spec.Hard[count]; !limited {
			t.Error("for a moment there is no limit")
		}
		if o.Status.Hard = o.Spec.Hard; countable && updates > 3 { // the first time it cannot yet
			o.Status.Used = o.Spec.Hard
		}
		return true, o, kube.Tracker().Update(resource, o, "team")
	})
	ensure := func() (again time.Duration) {
		again, err := q.Ensure(t.Context(), "team", map[string]int{"trinkets.example.org": 5}, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := kube.CoreV1().ResourceQuotas("team").Get(t.Context(), v1alpha1.CapsQuota, metav1.GetOptions{})
		if limit := got.Spec.Hard[count]; err != nil || limit.Value() != 5 {
			t.Fatalf("%v: the quota has the limits %v", err, got.Spec.Hard)
		}
		return again
	}
	began, looks := time.Now(), 0
	for again := ensure(); again > 0 && time.Since(began) < 3*time.Hour; again = ensure() {
		time.Sleep(again)
		looks++
	}
	took := time.Since(began)
	switch {
	case countable && (took > time.Minute || updates != 4):
		t.Errorf("counted after %v and %d updates", took, updates)
	case !countable && (took < 3*time.Hour || looks < 15 || looks > 30):
		t.Errorf("%d looks in %v", looks, took)
	}
}
