// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// offered says whether an export may go on: whether its service is on offer and the
// holder of the tenant may bind it. Service is nil if it is not on offer.
func (e *Exports) offered(ctx context.Context, export *v1alpha1.APIServiceExport) (condition v1alpha1.Condition, service *Service, err error) {
	found, ok, err := e.Services.named(ctx, export.Name)
	if err != nil {
		return condition, nil, err
	}
	if !ok {
		return withdraw(v1alpha1.ReasonNotOffered, export.Name+" is not on offer any more"), nil, nil
	}
	if unfit := e.Services.Prefixed.Unfit(found); unfit != "" && tenant.IsPrefixed(export) {
		return withdraw(ReasonClusterScoped, unfit), &found, nil
	}
	err = e.stillMay(ctx, export.Namespace, found)
	if refused, ok := errors.AsType[*tenant.RefusalError](err); ok {
		return withdraw(refused.Reason, refused.Message), &found, nil
	}
	return v1alpha1.True(v1alpha1.ConditionOffered), &found, err
}

func withdraw(reason, message string) v1alpha1.Condition {
	return v1alpha1.False(v1alpha1.ConditionOffered, v1alpha1.SeverityError, reason, message+": nothing of it can be made or changed any more; what there is stays, and can be deleted as long as its kind is served")
}

// noteOffered remembers on an export whether it may be used. Its tenant writes into
// its status too, so that no right can depend on a condition.
func (e *Exports) noteOffered(ctx context.Context, export *v1alpha1.APIServiceExport, offered v1alpha1.Condition) error {
	reason, event := any(nil), "export offered again" // null takes the annotation away
	if offered.Status == metav1.ConditionFalse {
		reason, event = offered.Reason, "export withdrawn"
	}
	if was, ok := export.Annotations[v1alpha1.WithdrawnAnnotation]; ok == (reason != nil) && (!ok || was == reason) {
		return nil
	}
	err := e.Patch(ctx, tenant.ExportResource, export, map[string]any{"annotations": map[string]any{v1alpha1.WithdrawnAnnotation: reason}}, nil)
	if err != nil {
		return fmt.Errorf("annotate export %s: %w", export.Name, err)
	}
	audit.Record(ctx, event, "tenant", export.Namespace, "service", export.Name, "reason", cmp.Or(offered.Reason, "Offered"))
	return nil
}

// reviseClaims takes over the claims of a service, if the backend can pass on what
// they ask for. What the App Cluster does about them its owner decides.
func (e *Exports) reviseClaims(ctx context.Context, export *v1alpha1.APIServiceExport, service Service, r *revision) (v1alpha1.Condition, error) {
	inSync := v1alpha1.True(v1alpha1.ConditionProviderInSync)
	hash, err := claimsHash(service.PermissionClaims)
	if err != nil || export.Annotations[v1alpha1.SourceClaimsHashAnnotation] == hash {
		return inSync, err
	}
	wanted := export.DeepCopy()
	wanted.Spec.PermissionClaims = service.PermissionClaims
	err = e.Rights.CheckExports(ctx, []*v1alpha1.APIServiceExport{wanted})
	switch refused := tenant.AsRefusal(err); {
	case refused != nil:
		inSync = outdated(v1alpha1.SeverityWarning, refused.Reason, "the claims of the service changed and are not taken over: "+refused.Message)
		return inSync, nil //nolint:nilerr // the condition says it
	case err != nil:
		return v1alpha1.Condition{}, err
	}
	r.claims(service.PermissionClaims, hash)
	return inSync, nil
}

func claimsHash(claims []v1alpha1.PermissionClaim) (string, error) {
	data, err := json.Marshal(claims)
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// A revision is what is to change in the spec of an export.
type revision struct {
	annotations map[string]string
	spec        map[string]any
	events      []string // for the audit log
}

func (r *revision) add(event, annotation, hash string, fields map[string]any) {
	r.change(event, fields)
	r.annotations[annotation] = hash
}

func (r *revision) change(event string, fields map[string]any) {
	if r.annotations == nil {
		r.annotations, r.spec = map[string]string{}, map[string]any{}
	}
	maps.Copy(r.spec, fields)
	r.events = append(r.events, event)
}

// orNull is what a merge patch takes for a field that may be empty.
func orNull[T ~string](value T) any {
	if value == "" {
		return nil
	}
	return value
}

func (r *revision) claims(claims []v1alpha1.PermissionClaim, hash string) {
	r.add("claims changed", v1alpha1.SourceClaimsHashAnnotation, hash, map[string]any{"permissionClaims": claims})
}

// OfService are the exports of a service whose offer has changed.
func (e *Exports) OfService(service string) []cache.ObjectName {
	e.Services.Offers.Forget("")
	e.Authorizations.ForgetService(service)
	return e.named(service)
}

// stillMay says whether the holder of a tenant may bind a service.
func (e *Exports) stillMay(ctx context.Context, namespace string, s Service) error {
	return e.Authorizations.Check(ctx, namespace, s.Name(), func(r *tenant.Record) error { return e.Services.authorize(ctx, r, s) })
}
