// SPDX-License-Identifier: Apache-2.0

//go:build unix

package bind_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A quota of the platform on APIServiceNamespaces is told on the binding and on the claims that
// wait, costs less and less, and once it is raised all namespaces are asked for.
func TestQuotaOnNamespaces(t *testing.T) {
	const namespaces = 20
	w, _, _ := newBehind(t)
	count := "count/" + requestedGVR.GroupResource().String()
	asked := func() int {
		list, err := w.controlPlane.dyn.Resource(requestedGVR).Namespace(tenant).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	quota := func(most int) {
		t.Helper()
		looks := 0
		eventually(t, func() error { // kube-controller-manager learns of a new kind twice a minute, and counts what has changed
			if looks++; looks%20 == 1 {
				hard := map[string]any{count: strconv.Itoa(most), "count/configmaps": strconv.Itoa(1000 + looks)}
				w.controlPlane.apply(t, object("v1", "ResourceQuota", tenant, "few", map[string]any{"spec": map[string]any{"hard": hard}}))
			}
			u := get[unstructured.Unstructured](t, w.controlPlane, quotasGVR, tenant, "few")
			got, _, _ := unstructured.NestedString(u.Object, "status", "hard", count)
			if used, _, _ := unstructured.NestedString(u.Object, "status", "used", count); got != strconv.Itoa(most) || used != strconv.Itoa(asked()) { // the quota controller may count late
				return fmt.Errorf("the quota is %+v", u.Object["status"])
			}
			return nil
		})
	}
	quota(1)
	for i := range namespaces {
		name := "crowd" + strconv.Itoa(i)
		w.app.apply(t, object("v1", "Namespace", "", name, nil), widget(name, "one", map[string]any{"size": int64(1)}))
	}
	w.condition(t, widgets, v1alpha1.ConditionNamespacesReady, v1alpha1.ReasonServiceNamespaceRefused, "exceeded quota", "and 17 more")
	eventually(t, func() error {
		events, err := w.app.kube.CoreV1().Events("crowd7").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=one"})
		if err == nil && (len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "exceeded quota: few")) {
			err = fmt.Errorf("%+v", events.Items)
		}
		return err
	})
	before := w.refusals(t)
	<-time.After(time.Minute) // of requests
	if n := w.refusals(t) - before; n > 8*namespaces {
		t.Errorf("%d requests in a minute for %d namespaces", n, namespaces)
	}
	if n := asked(); n != 1 {
		t.Errorf("%d namespaces are asked for beyond a quota of one", n)
	}
	quota(100)
	began := time.Now()
	eventually(t, func() error {
		if asked() < 1+namespaces {
			return errors.New("not all namespaces are asked for")
		}
		return nil
	})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("asked for %s after the quota was raised", took)
	}
	w.travelled(t, w.serveNamespace(t, "crowd7", widgetRights), "one")
	w.condition(t, widgets, v1alpha1.ConditionNamespacesReady, "")
}

var refusedCreate = regexp.MustCompile(`(?m)^apiserver_request_total\{code="403",.*resource="apiservicenamespaces".*verb="POST".*\} (\d+)$`)

// refusals counts how often the control plane refused an APIServiceNamespace.
func (w *world) refusals(t *testing.T) (n int) {
	t.Helper()
	metrics, err := w.controlPlane.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range refusedCreate.FindAllStringSubmatch(string(metrics), -1) {
		count, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		n += count
	}
	if n == 0 {
		t.Error("the control plane has refused nothing")
	}
	return n
}
