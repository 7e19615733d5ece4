// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/limit"
	"github.com/klutch-go/sdk/internal/queue"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Times of a request.
const (
	requestGrace  = time.Minute      // for what may still come: a CRD, a right
	requestRetry  = 5 * time.Second  // where no event tells
	RequestRetain = 10 * time.Minute // of an answered request
	CrowdedRetain = 15 * time.Second // of one where there are crowd or more
)

// crowd is how many requests of a tenant bring its cap near.
const crowd = tenant.MaxRequests / 2

// Requests answer APIServiceExportRequests.
type Requests struct {
	tenant.Clients

	External       string // where people log in
	Requests       cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExportRequest]
	Services       *Services
	Schemas        *Schemas
	Rights         *tenant.Rights
	Caches         *tenant.Caches
	Authorizations *tenant.Authorizations
	Looks          *limit.Limiter // at the requests of each tenant; nil is without a limit
}

// Reconcile answers an APIServiceExportRequest with the exports that it asks
// for, or says why not. An answered request is deleted after a while.
func (r *Requests) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	request, ok := tenant.Lookup(r.Requests, key)
	if !ok || request.DeletionTimestamp != nil {
		return 0, nil
	}
	if foreign, err := r.Caches.IsForeign(ctx, key.Namespace); foreign || err != nil || r.Caches.Leaving(key.Namespace) {
		return 0, err
	}
	if Answered(request) {
		return r.prune(ctx, request)
	}
	if wait := r.Looks.Take(key.Namespace); wait > 0 { // a tenant deletes its requests, too, so that no quota ends them
		return wait, queue.ErrBusy
	}
	err := r.grant(ctx, request)
	refused := tenant.AsRefusal(err)
	switch {
	case err == nil || refused != nil:
	case !fates.IsTold(ctx, err):
		return 0, err
	default: // the tenant need not know what the backend cannot do
		refused = tenant.RefuseForNow(v1alpha1.ReasonStepFailed, "the platform cannot look at it: the log of its backend says why", err)
		refused.Lasts = true
	}
	wait := refused != nil && waits(request, refused)
	err = status.Write(ctx, r.Dyn.Resource(tenant.RequestResource).Namespace(key.Namespace), request, func(o *v1alpha1.APIServiceExportRequest) {
		Answer(o, refused, wait)
	})
	switch {
	case err != nil:
		return 0, err
	case wait && refused.Lasts:
		return 0, refused.Err
	case wait:
		return requestRetry, nil
	case refused != nil:
		audit.Record(ctx, "request refused", "tenant", key.Namespace, "request", key.Name, "reason", refused.Reason)
	}
	return 0, nil // the event of the answer brings us back
}

// waits reports whether a request may be granted yet: a missing CRD may come for a while, and what
// an API server cannot take now it may take any time.
func waits(request *v1alpha1.APIServiceExportRequest, refused *tenant.RefusalError) bool {
	return refused.Temporary && (refused.Lasts || time.Since(request.CreationTimestamp.Time) < requestGrace)
}

// Answered tells whether a request has its answer.
func Answered(o *v1alpha1.APIServiceExportRequest) bool {
	return o.Status.Phase == v1alpha1.RequestSucceeded || o.Status.Phase == v1alpha1.RequestFailed
}

// Answer writes the outcome into the status of o.
func Answer(o *v1alpha1.APIServiceExportRequest, refused *tenant.RefusalError, wait bool) {
	condition := v1alpha1.True(v1alpha1.ConditionExportsReady)
	switch {
	case refused == nil:
		o.Status.Phase = v1alpha1.RequestSucceeded
	case wait:
		condition = v1alpha1.False(v1alpha1.ConditionExportsReady, v1alpha1.SeverityWarning, refused.Reason, refused.Message)
	default:
		condition = v1alpha1.False(v1alpha1.ConditionExportsReady, v1alpha1.SeverityError, refused.Reason, refused.Message)
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

// prune deletes an answered request, once its tenant has had time to read the answer: less
// where the tenant has so many that it could soon make no more.
func (r *Requests) prune(ctx context.Context, request *v1alpha1.APIServiceExportRequest) (time.Duration, error) {
	retain := RequestRetain
	if keys, err := r.Requests.GetIndexer().IndexKeys(cache.NamespaceIndex, request.Namespace); err == nil && len(keys) >= crowd {
		retain = CrowdedRetain
	}
	if left := retain - time.Since(answeredAt(request)); left > 0 {
		return min(left, CrowdedRetain), nil
	}
	err := r.Dyn.Resource(tenant.RequestResource).Namespace(request.Namespace).Delete(ctx, request.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &request.UID}})
	if !fates.Is(err, fates.None, fates.Absent, fates.Unserved, fates.Conflict) {
		return 0, fmt.Errorf("delete answered request: %w", err)
	}
	return 0, nil
}

// grant checks all that is asked for, then makes the exports. Its error is a *RefusalError
// or a *rightError where the tenant should know.
func (r *Requests) grant(ctx context.Context, request *v1alpha1.APIServiceExportRequest) error {
	var exports []*v1alpha1.APIServiceExport
	err := r.check(ctx, request, func(export *v1alpha1.APIServiceExport) { exports = append(exports, export) })
	if err != nil {
		return err
	}
	if err := r.Rights.CheckExports(ctx, exports); err != nil {
		return err
	}
	for _, export := range exports {
		if err := r.publish(ctx, export); err != nil {
			return err
		}
	}
	return nil
}

func (r *Requests) check(ctx context.Context, request *v1alpha1.APIServiceExportRequest, ok func(*v1alpha1.APIServiceExport)) error {
	if len(request.Spec.Resources) > MaxAsked {
		return tenant.Refuse(tenant.ReasonTooMany, fmt.Sprintf("a request may ask for %d APIs at most", MaxAsked))
	}
	holder, err := r.Authorizations.Record(ctx, request.Namespace)
	if err != nil {
		return err
	}
	services, err := r.Services.Catalog.Services(ctx)
	if err != nil {
		return err
	}
	for _, wanted := range request.Spec.Resources {
		name := wanted.String()
		service, offered := Find(services, name)
		if !offered {
			return tenant.Refuse(v1alpha1.ReasonNotOffered, name+" is not on offer: there is no APIServiceExportTemplate for it")
		}
		if err := r.checkService(ctx, holder, service); err != nil {
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
func (r *Requests) checkService(ctx context.Context, holder *tenant.Record, s Service) error {
	if !slices.Contains(holder.Services, s.Name()) {
		return tenant.Refuse(v1alpha1.ReasonNotAuthorized, fmt.Sprintf(
			"%s was not chosen at a login of this tenant: run kubectl bind %s --service %s", s.Name(), r.External, s.Name()))
	}
	return r.Services.authorize(ctx, holder, s)
}

// newExport returns the export of a service, which it does not store yet.
func (r *Requests) newExport(ctx context.Context, namespace string, s Service) (*v1alpha1.APIServiceExport, error) {
	if unfit := r.Services.Prefixed.Unfit(s); unfit != "" {
		return nil, tenant.Refuse(ReasonClusterScoped, unfit+". "+AdviceUnfit)
	}
	crd, err := r.Schemas.get(ctx, s.Name())
	switch {
	case fates.Is(err, fates.Absent):
		return nil, tenant.RefuseForNow(v1alpha1.ReasonCRDNotFound, fmt.Sprintf("the Control Plane Cluster has no CustomResourceDefinition %s", s.Name()), err)
	case errors.Is(err, crdcompat.ErrNoVersion):
		return nil, tenant.RefuseForNow(v1alpha1.ReasonCRDInvalid, err.Error(), nil)
	case err != nil:
		return nil, err
	}
	claims, err := claimsHash(s.PermissionClaims)
	if err != nil {
		return nil, err
	}
	spec := isolated(crd.spec, s.Isolation)
	return &v1alpha1.APIServiceExport{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceExport"},
		ObjectMeta: metav1.ObjectMeta{Name: s.Name(), Namespace: namespace, Annotations: map[string]string{
			v1alpha1.SourceSpecHashAnnotation: crd.hash, v1alpha1.SourceClaimsHashAnnotation: claims,
		}},
		Spec: v1alpha1.APIServiceExportSpec{
			APIServiceExportCRDSpec: *spec,
			InformerScope:           spec.Scope, // of a cluster-scoped API no other is valid
			ClusterScopedIsolation:  s.Isolation,
			PermissionClaims:        s.PermissionClaims,
			LostInstances:           s.LostInstances,
			Adoption:                s.Adoption,
		},
	}, nil
}

func (r *Requests) publish(ctx context.Context, export *v1alpha1.APIServiceExport) error {
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(export)
	if err != nil {
		return fmt.Errorf("encode export %s: %w", export.Name, err)
	}
	_, err = r.Dyn.Resource(tenant.ExportResource).Namespace(export.Namespace).Create(ctx, &unstructured.Unstructured{Object: u}, metav1.CreateOptions{})
	if fates.Is(err, fates.Exists) {
		r.Authorizations.Forget(export.Namespace) // it may be on offer to its tenant again
		return nil
	}
	if fates.IsTold(ctx, err) {
		refused := tenant.RefuseForNow(v1alpha1.ReasonAPIServiceExportInvalid, tenant.Against("the APIServiceExport "+export.Name, err), err)
		refused.Lasts = !fates.IsRefused(err)
		return refused
	}
	if err != nil {
		return fmt.Errorf("create export %s: %w", export.Name, err)
	}
	audit.Record(ctx, "exported", "tenant", export.Namespace, "service", export.Name)
	return nil
}

// AskingFor are the open requests that ask for a CRD.
func (r *Requests) AskingFor(crd metav1.Object) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, obj := range r.Requests.GetStore().List() {
		request, ok := obj.(*v1alpha1.APIServiceExportRequest)
		if ok && !Answered(request) && asksFor(request, crd.GetName()) {
			keys = append(keys, cache.MetaObjectToName(request))
		}
	}
	return keys
}

// ExportsAskedFor are the exports that a request leads to.
func ExportsAskedFor(o metav1.Object) (keys []cache.ObjectName) {
	if request, ok := o.(*v1alpha1.APIServiceExportRequest); ok && Answered(request) {
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
