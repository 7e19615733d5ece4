// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	requestGrace  = time.Minute      // for what may still come: a CRD, a right
	requestRetry  = 5 * time.Second  // where no event tells
	requestRetain = 10 * time.Minute // of an answered request
)

// reasonClusterScoped is why a cluster-scoped API is not exported.
const reasonClusterScoped = "ClusterScoped"

// requests answer APIServiceExportRequests.
type requests struct {
	clients

	external       string // where people log in
	requests       cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExportRequest]
	services       *services
	schemas        *schemas
	rights         *rights
	caches         *caches
	authorizations *authorizations
}

// reconcile answers an APIServiceExportRequest with the exports that it asks
// for, or says why not. An answered request is deleted after a while.
func (r *requests) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	request, ok := lookup(r.requests, key)
	if !ok || request.DeletionTimestamp != nil {
		return 0, nil
	}
	if r.caches.leaving(key.Namespace) {
		return 0, nil
	}
	if answered(request) {
		return r.prune(ctx, request)
	}
	err := r.grant(ctx, request)
	refused := asRefusal(err)
	if err != nil && refused == nil {
		return 0, err
	}
	wait := refused != nil && refused.temporary && time.Since(request.CreationTimestamp.Time) < requestGrace
	err = status.Write(ctx, r.dyn.Resource(requestResource).Namespace(key.Namespace), request, func(o *v1alpha1.APIServiceExportRequest) {
		answer(o, refused, wait)
	})
	switch {
	case err != nil:
		return 0, err
	case wait:
		return requestRetry, nil
	case refused != nil:
		audit.Record(ctx, "request refused", "tenant", key.Namespace, "request", key.Name, "reason", refused.reason)
	}
	return 0, nil // the event of the answer brings us back
}

func answered(o *v1alpha1.APIServiceExportRequest) bool {
	return o.Status.Phase == v1alpha1.RequestSucceeded || o.Status.Phase == v1alpha1.RequestFailed
}

// answer writes the outcome into the status of o.
func answer(o *v1alpha1.APIServiceExportRequest, refused *refusal, wait bool) {
	condition := v1alpha1.True(v1alpha1.ConditionExportsReady)
	switch {
	case refused == nil:
		o.Status.Phase = v1alpha1.RequestSucceeded
	case wait:
		condition = v1alpha1.False(v1alpha1.ConditionExportsReady, v1alpha1.SeverityWarning, refused.reason, refused.message)
	default:
		condition = v1alpha1.False(v1alpha1.ConditionExportsReady, v1alpha1.SeverityError, refused.reason, refused.message)
		o.Status.Phase = v1alpha1.RequestFailed
	}
	condition.ObservedGeneration = o.Generation
	o.Status.Conditions = v1alpha1.Summarize(v1alpha1.SetCondition(o.Status.Conditions, condition), o.Generation)
	if o.Status.Phase == v1alpha1.RequestFailed {
		o.Status.TerminalMessage = v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionExportsReady).Message
	}
}

// answeredAt is when a request was answered, which may be long after it was made.
func answeredAt(o *v1alpha1.APIServiceExportRequest) time.Time {
	if c := v1alpha1.FindCondition(o.Status.Conditions, v1alpha1.ConditionExportsReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return o.CreationTimestamp.Time
}

// prune deletes a request that whoever made it has had time to read the answer of.
func (r *requests) prune(ctx context.Context, request *v1alpha1.APIServiceExportRequest) (time.Duration, error) {
	if left := requestRetain - time.Since(answeredAt(request)); left > 0 {
		return left, nil
	}
	err := r.dyn.Resource(requestResource).Namespace(request.Namespace).Delete(ctx, request.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &request.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return 0, fmt.Errorf("delete answered request: %w", err)
	}
	return 0, nil
}

// grant checks all that is asked for, then makes the exports. Its error is a *refusal
// or a *rightError where the tenant should know.
func (r *requests) grant(ctx context.Context, request *v1alpha1.APIServiceExportRequest) error {
	var exports []*v1alpha1.APIServiceExport
	err := r.check(ctx, request, func(export *v1alpha1.APIServiceExport) { exports = append(exports, export) })
	if err != nil {
		return err
	}
	if _, err := r.rights.check(ctx, rules(exports)); err != nil {
		return err
	}
	for _, export := range exports {
		if err := r.publish(ctx, export); err != nil {
			return err
		}
	}
	return nil
}

func (r *requests) check(ctx context.Context, request *v1alpha1.APIServiceExportRequest, ok func(*v1alpha1.APIServiceExport)) error {
	if len(request.Spec.Resources) > maxAsked {
		return refuse(reasonTooMany, fmt.Sprintf("a request may ask for %d APIs at most", maxAsked))
	}
	tenant, err := r.authorizations.record(ctx, request.Namespace)
	if err != nil {
		return err
	}
	services, err := r.services.catalog.Services(ctx)
	if err != nil {
		return err
	}
	for _, wanted := range request.Spec.Resources {
		name := wanted.String()
		service, offered := find(services, name)
		if !offered {
			return refuse(v1alpha1.ReasonNotOffered, name+" is not on offer: there is no APIServiceExportTemplate for it")
		}
		if err := r.checkService(ctx, tenant, service); err != nil {
			return err
		}
		export, err := r.newExport(ctx, request.Namespace, service)
		if err != nil {
			return err
		}
		ok(export)
	}
	return nil
}

// checkService says whether a tenant may have a service, at this moment.
func (r *requests) checkService(ctx context.Context, tenant *record, s Service) error {
	if !slices.Contains(tenant.Services, s.Name()) {
		return refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf(
			"%s was not chosen at a login of this tenant: run kubectl bind %s --service %s", s.Name(), r.external, s.Name()))
	}
	return r.services.authorize(ctx, tenant, s)
}

// newExport returns the export of a service, which it does not store yet.
func (r *requests) newExport(ctx context.Context, namespace string, s Service) (*v1alpha1.APIServiceExport, error) {
	if s.Scope == v1alpha1.ClusterScope {
		return nil, refuse(reasonClusterScoped, s.Name()+" is cluster-scoped, and App Clusters can have namespaced APIs alone: what one tenant has could not be kept from the others. "+adviceUnfit)
	}
	crd, err := r.schemas.get(ctx, s.Name())
	switch {
	case apierrors.IsNotFound(err):
		return nil, refuseForNow(v1alpha1.ReasonCRDNotFound, fmt.Sprintf("the Control Plane Cluster has no CustomResourceDefinition %s", s.Name()))
	case errors.Is(err, crdcompat.ErrNoVersion):
		return nil, refuseForNow(v1alpha1.ReasonCRDInvalid, err.Error())
	case err != nil:
		return nil, err
	}
	claims, err := claimsHash(s.PermissionClaims)
	if err != nil {
		return nil, err
	}
	return &v1alpha1.APIServiceExport{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExport"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name(), Namespace: namespace, Annotations: map[string]string{
			v1alpha1.SourceSpecHashAnnotation: crd.hash, v1alpha1.SourceClaimsHashAnnotation: claims,
		}},
		Spec: v1alpha1.APIServiceExportSpec{
			APIServiceExportCRDSpec: *crd.spec,
			InformerScope:           v1alpha1.NamespacedScope,
			PermissionClaims:        s.PermissionClaims,
		},
	}, nil
}

func (r *requests) publish(ctx context.Context, export *v1alpha1.APIServiceExport) error {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(export)
	if err != nil {
		return fmt.Errorf("encode export %s: %w", export.Name, err)
	}
	_, err = r.dyn.Resource(exportResource).Namespace(export.Namespace).Create(ctx, &unstructured.Unstructured{Object: u}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		r.authorizations.forget(export.Namespace) // it may be on offer to its tenant again
		return nil
	}
	if err != nil {
		return fmt.Errorf("create export %s: %w", export.Name, err)
	}
	audit.Record(ctx, "exported", "tenant", export.Namespace, "service", export.Name)
	return nil
}

// askingFor are the open requests that ask for a CRD.
func (r *requests) askingFor(crd metav1.Object) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, obj := range r.requests.GetStore().List() {
		request, ok := obj.(*v1alpha1.APIServiceExportRequest)
		if ok && !answered(request) && asksFor(request, crd.GetName()) {
			keys = append(keys, cache.MetaObjectToName(request))
		}
	}
	return keys
}

// exportsAskedFor are the exports that a request leads to.
func exportsAskedFor(o metav1.Object) (keys []cache.ObjectName) {
	if request, ok := o.(*v1alpha1.APIServiceExportRequest); ok && answered(request) {
		for _, r := range request.Spec.Resources {
			keys = append(keys, cache.NewObjectName(request.Namespace, r.String()))
		}
	}
	return keys
}

func asksFor(request *v1alpha1.APIServiceExportRequest, name string) bool {
	return slices.ContainsFunc(request.Spec.Resources, func(r v1alpha1.APIServiceExportRequestResource) bool {
		return r.String() == name
	})
}
