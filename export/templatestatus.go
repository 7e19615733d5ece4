// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/exporttemplate"
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
	return []cache.ObjectName{cache.NewObjectName("", exporttemplate.Selected(u).String())}
}

// storedTemplates are those of our templates that offer an API, as a watch has shown them.
func (c *control) storedTemplates(service string) (all []*unstructured.Unstructured) {
	for _, obj := range c.templates.GetStore().List() {
		if u, ok := obj.(*unstructured.Unstructured); ok && exporttemplate.Selected(u).String() == service {
			all = append(all, u)
		}
	}
	return all
}

// noteUnread says on a template that it is not known whether tenants can have its API, and why, once
// people are to be told.
func (c *control) noteUnread(ctx context.Context, u *unstructured.Unstructured, err error) error {
	if !fates.IsTold(ctx, err) {
		return nil
	}
	return c.noteTemplate(ctx, u, v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityWarning, v1alpha1.ReasonStepFailed, tenant.Against("a look at what it offers", err)))
}

// offering is the API of a CRD, if one of our templates offers it.
func (c *control) offering(crd metav1.Object) []cache.ObjectName {
	for _, obj := range c.templates.GetStore().List() {
		if u, ok := obj.(*unstructured.Unstructured); ok && exporttemplate.Selected(u).String() == crd.GetName() {
			return serviceKey(u)
		}
	}
	return nil
}

const (
	brokenTemplateReview = 10 * time.Second // at first
	soundTemplateReview  = 5 * time.Minute  // of rights, which no watch shows
)

// A trouble is why tenants cannot have an API, and since when.
type trouble struct {
	ready v1alpha1.Condition
	since time.Time
}

// templateReview is how soon the templates of an API are looked at again: ever more rarely where the same
// is in the way for long.
func (c *control) templateReview(service string, ready v1alpha1.Condition) time.Duration {
	if ready.Status == metav1.ConditionTrue {
		c.broken.Delete(service)
		return soundTemplateReview
	}
	now := trouble{ready, time.Now()}
	if known, _ := c.broken.LoadOrStore(service, now); known.(trouble).ready == ready {
		now = known.(trouble)
	}
	c.broken.Store(service, now)
	return min(max(brokenTemplateReview, time.Since(now.since)/4), soundTemplateReview)
}

// reconcileTemplates tells the templates of an API which of them offers it, and whether
// tenants can have it.
func (c *control) reconcileTemplates(ctx context.Context, service cache.ObjectName) (time.Duration, error) {
	catalog, ok := c.catalog.(templates)
	if !ok {
		return 0, nil // which does not go by templates
	}
	all, err := exporttemplate.List(ctx, catalog.dyn, templateResource)
	if err != nil {
		for _, u := range c.storedTemplates(service.Name) {
			err = errors.Join(err, c.noteUnread(ctx, u, err))
		}
		return 0, err
	}
	all = slices.DeleteFunc(all, func(u unstructured.Unstructured) bool { return exporttemplate.Selected(&u).String() != service.Name })
	if len(all) == 0 {
		c.broken.Delete(service.Name)
		return 0, nil
	}
	first := &all[0]
	ready, err := c.judgeTemplate(ctx, catalog, first)
	if err == nil {
		err = c.noteTemplate(ctx, first, ready)
	} else {
		err = errors.Join(err, c.noteUnread(ctx, first, err))
	}
	for i := 1; i < len(all) && err == nil; i++ {
		err = c.noteTemplate(ctx, &all[i], v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, v1alpha1.ReasonShadowed, fmt.Sprintf(
			"%s is offered by the template %s of %s, which is older: this one has no effect", service.Name, cache.MetaObjectToName(first), first.GroupVersionKind().Group)))
	}
	return c.templateReview(service.Name, ready), err
}

// judgeTemplate is Ready of a template that no other one shadows.
func (c *control) judgeTemplate(ctx context.Context, catalog templates, u *unstructured.Unstructured) (v1alpha1.Condition, error) {
	broken := func(reason, message string) v1alpha1.Condition {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, reason, message)
	}
	s, err := catalog.service(ctx, u)
	if errors.Is(err, errUnreadable) {
		return broken(v1alpha1.ReasonSchemaMissing, err.Error()), nil
	}
	if err != nil {
		return v1alpha1.Condition{}, err
	}
	if !s.Available() {
		return broken(v1alpha1.ReasonSchemaMissing, "there is no CustomResourceDefinition "+s.Name()+" that serves a version: install what the service is made of, or correct the name"), nil
	}
	found, err := offer.GetCRD(ctx, catalog.dyn, s.Name())
	if err != nil {
		return v1alpha1.Condition{}, err
	}
	crd, err := crdcompat.Decode(found)
	if err != nil {
		return v1alpha1.Condition{}, err
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || crd.DeletionTimestamp != nil {
		return broken(v1alpha1.ReasonNotEstablished, "the CustomResourceDefinition "+s.Name()+" does not work: kubectl describe crd "+s.Name()), nil
	}
	if unfit := c.services.Prefixed.Unfit(offer.Service(s)); unfit != "" {
		return broken(v1alpha1.ReasonClusterScoped, unfit), nil
	}
	wanted := &v1alpha1.APIServiceExport{Spec: v1alpha1.APIServiceExportSpec{PermissionClaims: s.PermissionClaims}}
	wanted.Spec.Group, wanted.Spec.Names.Plural, wanted.Spec.Scope = s.Resource.Group, s.Resource.Resource, s.Scope
	err = c.requests.Rights.CheckExports(ctx, []*v1alpha1.APIServiceExport{wanted})
	if refused := tenant.AsRefusal(err); refused != nil {
		return broken(refused.Reason, refused.Message), nil //nolint:nilerr // the condition says it
	}
	ready := v1alpha1.True(v1alpha1.ConditionReady)
	if offer.Service(s).Shared() {
		ready.Message = "tenants of " + s.Name() + " can read each other's objects"
	}
	return ready, err
}

// noteTemplate says on a template whether tenants can have its API. One of a foreign group
// has no such condition.
func (c *control) noteTemplate(ctx context.Context, u *unstructured.Unstructured, ready v1alpha1.Condition) error {
	log := logr.FromContextOrDiscard(ctx).WithValues("template", cache.MetaObjectToName(u).String(), "group", u.GroupVersionKind().Group)
	ready.ObservedGeneration = u.GetGeneration()
	if u.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
		said := ready.Reason + ": " + ready.Message
		if before, _ := c.said.Swap(u.GetUID(), said); before != said && ready.Status != metav1.ConditionTrue {
			log.Info("template does not work", "reason", ready.Reason, "message", ready.Message)
		}
		return nil
	}
	template := &v1alpha1.APIServiceExportTemplate{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, template); err != nil {
		return fmt.Errorf("decode template %s: %w", cache.MetaObjectToName(u), err)
	}
	was := v1alpha1.FindCondition(template.Status.Conditions, v1alpha1.ConditionReady)
	if was != nil && was.Status == ready.Status && was.Message == ready.Message && was.ObservedGeneration == ready.ObservedGeneration {
		return nil
	}
	err := status.Write(ctx, c.clients.Dyn.Resource(templateResource).Namespace(template.Namespace), template, func(o *v1alpha1.APIServiceExportTemplate) {
		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, ready)
	})
	if err != nil { // as with a role from before templates had a status
		return fmt.Errorf("template %s: %w", cache.MetaObjectToName(u), err)
	}
	if ready.Status != metav1.ConditionTrue {
		log.Info("template does not work", "reason", ready.Reason, "message", ready.Message)
	} else {
		log.Info("template works")
	}
	return nil
}
