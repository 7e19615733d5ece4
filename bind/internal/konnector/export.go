// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	objectstatus "github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// exports are the APIServiceExports of a tenant namespace.
type exports struct {
	*shared

	informer cache.SharedIndexInformer
	queue    *controller.Controller // tells the provider of them
	said     pace                   // of the queue
	client   dynamic.ResourceInterface
	tenant   string           // the tenant namespace
	secret   cache.ObjectName // that leads there

	mu     sync.Mutex
	untold map[string]string // why the provider is not told of an export, by the name of that
}

func newExports(h *heartbeat, informer cache.SharedIndexInformer) *exports {
	e := &exports{
		shared: h.shared, informer: informer, said: newPace(), untold: map[string]string{}, tenant: h.place.Namespace, secret: h.secret.name,
		client: h.calls.Resource(cluster.APIServiceExports).Namespace(h.place.Namespace),
	}
	e.queue = controller.New("export-status", e.telling(h.whileOurs(e.reconcile)), controller.Options{Patience: patience})
	return e
}

// get returns the export that a binding of the given name is about; nil if there
// is none.
func (e *exports) get(name string) (*v1alpha1.APIServiceExport, error) {
	u := cluster.Stored(e.informer, cache.NewObjectName(e.tenant, name))
	if u == nil {
		return nil, nil //nolint:nilnil // absence in a cache is a value
	}
	if err := checkLists(u); err != nil {
		return nil, err
	}
	return cluster.Decode[v1alpha1.APIServiceExport](u)
}

// mostItems bounds the lists of an export, as its CRD does. A platform's own CRD need not, and each pass reads them.
const mostItems = 64

// checkLists reports a list of an export that is longer than its CRD allows.
func checkLists(export *unstructured.Unstructured) error {
	for _, path := range [][]string{
		{"spec", "permissionClaims"},
		{"spec", "versions"},
		{"spec", "names", "shortNames"},
		{"spec", "names", "categories"},
		{"status", "conditions"},
		{"status", "storedVersions"},
	} {
		list, _, _ := unstructured.NestedFieldNoCopy(export.Object, path...)
		if items, _ := list.([]any); len(items) > mostItems {
			return fmt.Errorf("%s has %d items; %d are possible", strings.Join(path, "."), len(items), mostItems)
		}
	}
	return nil
}

// of is the export that a binding, or a CRD, is about.
func (e *exports) of(o metav1.Object) []cache.ObjectName {
	return []cache.ObjectName{cache.NewObjectName(e.tenant, o.GetName())}
}

// telling is fn, of which the bindings of an export hear why it fails.
func (e *exports) telling(fn controller.Func) controller.Func {
	return func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
		again, err := fn(ctx, key)
		switch {
		case ctx.Err() != nil, errors.Is(err, controller.ErrBusy):
		case err == nil:
			e.tell(key.Name, "")
		case fates.IsTold(ctx, err):
			e.tell(key.Name, cluster.Explain(err))
		}
		return again, err
	}
}

// tell has the bindings of an export say why the provider is not told of it, or with an empty why that
// it is, if that is new.
func (e *exports) tell(name, why string) {
	e.mu.Lock()
	before := e.untold[name]
	if delete(e.untold, name); why != "" {
		e.untold[name] = why
	}
	e.mu.Unlock()
	if before == why {
		return
	}
	for _, b := range e.bindingsOf(name) {
		e.bindings.Add(b)
	}
}

// beating is Heartbeating of a binding whose connection says c.
func (e *exports) beating(binding string, c v1alpha1.Condition) v1alpha1.Condition {
	e.mu.Lock()
	defer e.mu.Unlock()
	if why := e.untold[binding]; why != "" && c.Status == metav1.ConditionTrue {
		return warned(c.Type, v1alpha1.ReasonStepFailed, "The provider is not told how its API fares here: "+why+". It is tried again by itself.")
	}
	return c
}

// reconcile tells the provider how its API fares in the App Cluster.
func (e *exports) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	if !e.said.TryAccept() {
		return pacePause, controller.ErrBusy
	}
	seen, err := e.get(key.Name)
	if err != nil || seen == nil {
		return 0, err
	}
	binding, err := e.bindingOf(key.Name)
	if err != nil {
		return 0, err
	}
	crd, err := cluster.ReadCRD(ctx, e.app.Calls, key.Name)
	if err != nil {
		return 0, err
	}
	return 0, objectstatus.Write(ctx, e.client, seen, func(o *v1alpha1.APIServiceExport) { reportExport(o, binding, crd) })
}

// bindingOf returns the binding of the given name that uses this connection.
func (e *exports) bindingOf(name string) (*v1alpha1.APIServiceBinding, error) {
	for _, n := range e.bindingsOf(name) {
		if b, err := e.app.binding(n); b != nil || err != nil {
			return b, err
		}
	}
	return nil, nil //nolint:nilnil // absence in a cache is a value
}

// reportExport fills in the konnector's part of the status and leaves the rest.
func reportExport(e *v1alpha1.APIServiceExport, binding *v1alpha1.APIServiceBinding, crd *apiextensionsv1.CustomResourceDefinition) {
	// Those of a CRD that is not there any more must not stay.
	e.Status.Conditions = slices.DeleteFunc(e.Status.Conditions, func(c v1alpha1.Condition) bool {
		return slices.Contains(crdConditions[:], apiextensionsv1.CustomResourceDefinitionConditionType(c.Type)) &&
			(crd == nil || apihelpers.FindCRDCondition(crd, apiextensionsv1.CustomResourceDefinitionConditionType(c.Type)) == nil)
	})
	for _, c := range exportConditions(binding, crd) {
		c.ObservedGeneration = e.Generation
		e.Status.Conditions = v1alpha1.SetCondition(e.Status.Conditions, c)
	}
	if binding != nil && crd != nil {
		e.Status.AcceptedNames = new(v1alpha1.CRDNames(crd.Status.AcceptedNames))
		e.Status.StoredVersions = crd.Status.StoredVersions
	}
	e.Status.Conditions = v1alpha1.Summarize(e.Status.Conditions, e.Generation)
}

// crdConditions are the conditions that a CRD can have.
var crdConditions = [...]apiextensionsv1.CustomResourceDefinitionConditionType{
	apiextensionsv1.Established, apiextensionsv1.NamesAccepted, apiextensionsv1.Terminating,
	apiextensionsv1.NonStructuralSchema, apiextensionsv1.KubernetesAPIApprovalPolicyConformant,
}

func exportConditions(binding *v1alpha1.APIServiceBinding, crd *apiextensionsv1.CustomResourceDefinition) []v1alpha1.Condition {
	if binding == nil {
		return []v1alpha1.Condition{
			v1alpha1.False(v1alpha1.ConditionConnected, v1alpha1.SeverityInfo, v1alpha1.ReasonAPIServiceBindingNotFound, "No APIServiceBinding uses this export."),
			v1alpha1.False(v1alpha1.ConditionConsumerInSync, v1alpha1.SeverityInfo, "NA", "No APIServiceBinding uses this export."),
		}
	}
	inSync := pending(v1alpha1.ConditionConsumerInSync, "The schema is not in the App Cluster yet.")
	if c := v1alpha1.FindCondition(binding.Status.Conditions, v1alpha1.ConditionSchemaInSync); c != nil {
		inSync = *c
		inSync.Type = v1alpha1.ConditionConsumerInSync
	}
	conditions := []v1alpha1.Condition{v1alpha1.True(v1alpha1.ConditionConnected), inSync}
	if crd == nil {
		return conditions
	}
	for _, c := range crd.Status.Conditions {
		conditions = append(conditions, fromCRD(c))
	}
	return conditions
}

func fromCRD(c apiextensionsv1.CustomResourceDefinitionCondition) v1alpha1.Condition {
	out := v1alpha1.Condition{Type: string(c.Type), Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: cluster.Clip(c.Message)}
	if out.Status != metav1.ConditionTrue {
		out.Severity = v1alpha1.SeverityError
	}
	return out
}

// bindingsWith are the bindings that an export is about.
func (e *exports) bindingsWith(o metav1.Object) []cache.ObjectName { return e.bindingsOf(o.GetName()) }

// bindingsOf returns the bindings of the given name that use this connection.
func (e *exports) bindingsOf(name string) []cache.ObjectName {
	var found []cache.ObjectName
	for _, b := range e.app.lookup(indexSecret, e.secret.String()) {
		if b.Name == name {
			found = append(found, b)
		}
	}
	return found
}
