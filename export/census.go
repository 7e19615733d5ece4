// SPDX-License-Identifier: Apache-2.0

package export

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Census says how many tenants, exports and templates there are.
type Census struct{ Tenants, Exports, Templates Count }

// A Count is how many there are, and how many of them are ready.
type Count struct{ Ready, NotReady int }

func (c *Count) add(conditions []v1alpha1.Condition) {
	if v1alpha1.IsTrue(conditions, v1alpha1.ConditionReady) {
		c.Ready++
	} else {
		c.NotReady++
	}
}

// Census counts from the caches of Run, without I/O. It reports false while Run does
// not run here, or has not seen everything yet.
func (e *Exporter) Census() (Census, bool) {
	var census Census
	c := e.running.Load()
	if c == nil || !c.caches.ClusterBindings.HasSynced() || !c.caches.Exports.HasSynced() {
		return census, false
	}
	for _, obj := range c.caches.ClusterBindings.GetStore().List() {
		if o, ok := obj.(*v1alpha1.ClusterBinding); ok && o.Name == v1alpha1.ClusterBindingName {
			census.Tenants.add(o.Status.Conditions)
		}
	}
	for _, obj := range c.caches.Exports.GetStore().List() {
		if o, ok := obj.(*v1alpha1.APIServiceExport); ok {
			census.Exports.add(o.Status.Conditions)
		}
	}
	for _, obj := range c.templates.GetStore().List() {
		var o v1alpha1.APIServiceExportTemplate
		if u, ok := obj.(*unstructured.Unstructured); ok && runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &o) == nil {
			census.Templates.add(o.Status.Conditions)
		}
	}
	return census, true
}
