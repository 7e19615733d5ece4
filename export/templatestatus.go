// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// serviceKey is the API that a template offers.
func serviceKey(template metav1.Object) []cache.ObjectName {
	u, ok := template.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	return []cache.ObjectName{cache.NewObjectName("", selected(u).String())}
}

// reconcileTemplates tells the templates of an API which of them offers it.
func (c *control) reconcileTemplates(ctx context.Context, service cache.ObjectName) (time.Duration, error) {
	catalog, ok := c.catalog.(templates)
	if !ok {
		return 0, nil // which does not go by templates
	}
	all, err := catalog.list(ctx)
	if err != nil {
		return 0, err
	}
	var first *unstructured.Unstructured
	for i := range all {
		u := &all[i]
		if selected(u).String() != service.Name {
			continue
		}
		if first == nil {
			first = u
		}
		if err := c.noteShadow(ctx, u, first); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// noteShadow says on a template whether it is the one that offers its API. One of a
// foreign group has no such condition.
func (c *control) noteShadow(ctx context.Context, u, first *unstructured.Unstructured) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("template", cache.MetaObjectToName(u).String(), "group", u.GroupVersionKind().Group)
	ready := v1alpha1.True(v1alpha1.ConditionReady)
	if u != first {
		ready = v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, v1alpha1.ReasonShadowed, fmt.Sprintf(
			"%s is offered by the template %s of %s, which is older: this one has no effect", selected(u), cache.MetaObjectToName(first), first.GroupVersionKind().Group))
	}
	ready.ObservedGeneration = u.GetGeneration()
	if u.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
		if u != first {
			log.Info("template is shadowed", "reason", ready.Message)
		}
		return nil
	}
	template := &v1alpha1.APIServiceExportTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, template); err != nil {
		return fmt.Errorf("decode template %s: %w", cache.MetaObjectToName(u), err)
	}
	was := v1alpha1.FindCondition(template.Status.Conditions, v1alpha1.ConditionReady)
	if u == first && was == nil || was != nil && was.Status == ready.Status && was.Message == ready.Message {
		return nil
	}
	err := status.Write(ctx, c.clients.Dyn.Resource(templateResource).Namespace(template.Namespace), template, func(o *v1alpha1.APIServiceExportTemplate) {
		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, ready)
	})
	switch {
	case fates.Is(err, fates.Forbidden): // a role from before templates had a status
		log.Info("the status of a template cannot be written", "reason", err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("template %s: %w", cache.MetaObjectToName(u), err)
	}
	log.Info("template has changed", "ready", string(ready.Status), "reason", ready.Message)
	return nil
}
