// SPDX-License-Identifier: Apache-2.0

package offer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/export/internal/expiring"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/status"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Exports keep APIServiceExports what their CRDs and services say.
type Exports struct {
	tenant.Clients

	Review         time.Duration // how often the right to an export is checked
	Breaking       v1alpha1.BreakingChanges
	Exports        cache.TypedSharedIndexInformer[*v1alpha1.APIServiceExport]
	Services       *Services
	Schemas        *Schemas
	Rights         *tenant.Rights
	Caches         *tenant.Caches
	Authorizations *tenant.Authorizations
	Logins         *tenant.Logins

	judgments expiring.Cache[judgment] // by export
}

// A judgment says which part of a change an export takes over, and which changes are held.
type judgment struct {
	of   string                            // the change
	next *v1alpha1.APIServiceExportCRDSpec // nil if nothing is taken over
	held []crdcompat.Change
}

// Reconcile lets changes of a CRD and of its template flow into exports, and
// withdraws the exports that are not on offer to their tenant any more. When one of them is
// gone the export stays and says so: an absence is no wish to delete what App
// Clusters made of it.
func (e *Exports) Reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	export, ok := tenant.Lookup(e.Exports, key)
	if !ok || export.DeletionTimestamp != nil {
		e.judgments.Forget(key.String())
		return 0, nil
	}
	if _, ok, err := e.Caches.HolderIn(ctx, key.Namespace); !ok {
		return 0, err
	}
	found, failed := e.judge(ctx, export)
	if len(found) == 0 {
		return 0, failed
	}
	silence := e.Caches.Silence(key.Namespace)
	err := status.Write(ctx, e.Dyn.Resource(tenant.ExportResource).Namespace(key.Namespace), export, func(o *v1alpha1.APIServiceExport) {
		o.Status.Conditions = slices.DeleteFunc(o.Status.Conditions, func(c v1alpha1.Condition) bool {
			return len(silence) == 0 && c.Type == v1alpha1.ConditionConnected && c.Reason == v1alpha1.ReasonFirstHeartbeatPending
		})
		for _, condition := range slices.Concat(silence, found) {
			condition.ObservedGeneration = o.Generation
			o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, condition)
		}
		o.Status.Conditions = v1alpha1.Summarize(o.Status.Conditions, o.Generation)
	})
	return cmp.Or(e.Authorizations.Due(key.Namespace), wait.Jitter(e.Review, tenant.ReviewSpread)), errors.Join(failed, err)
}

// judge brings an export in line with its service and its CRD, and returns what is known of it then:
// nothing if it is too early to tell of an error. What is not known stays as it was.
func (e *Exports) judge(ctx context.Context, export *v1alpha1.APIServiceExport) ([]v1alpha1.Condition, error) {
	offered, service, err := e.offered(ctx, export)
	if err == nil {
		err = e.noteOffered(ctx, export, offered)
	}
	if err != nil {
		return told(unseen(ctx, err)), err
	}
	inSync, failed := e.refresh(ctx, export, service)
	if failed != nil && inSync.Type == "" {
		return nil, failed
	}
	login, err := e.Logins.Conditions(ctx, export.Namespace)
	if failed == nil && err != nil {
		inSync = unseen(ctx, err)
	}
	return slices.Concat(login, told(offered), told(inSync)), cmp.Or(failed, err)
}

// told is a list of a condition, unless that is the zero Condition.
func told(c v1alpha1.Condition) []v1alpha1.Condition {
	if c.Type == "" {
		return nil
	}
	return []v1alpha1.Condition{c}
}

// refresh makes an export what its CRD and its service say, and tells whether it is.
// An export whose service is not on offer keeps its claims. A change that an API server does not
// take is an error, and a condition once people are to be told.
func (e *Exports) refresh(ctx context.Context, export *v1alpha1.APIServiceExport, service *Service) (v1alpha1.Condition, error) {
	r := &revision{}
	condition, err := e.reviseSchema(ctx, export, service, r)
	if err != nil {
		return unseen(ctx, err), err
	}
	if service != nil {
		if export.Spec.LostInstances != service.LostInstances {
			r.change("policy for lost instances changed", map[string]any{"lostInstances": orNull(service.LostInstances)})
		}
		if export.Spec.Adoption != service.Adoption {
			r.change("word on adoption changed", map[string]any{"adoption": orNull(service.Adoption)})
		}
		claims, err := e.reviseClaims(ctx, export, *service, r)
		if err != nil {
			return unseen(ctx, err), err
		}
		if condition.Status == metav1.ConditionTrue {
			condition = claims
		}
	}
	if err = e.revise(ctx, export, r); err != nil {
		condition = untaken(ctx, err)
	}
	return condition, err
}

// untaken says why an export is not what its CRD says; the zero Condition if it is too early for that.
func untaken(ctx context.Context, err error) v1alpha1.Condition {
	if !fates.IsTold(ctx, err) && !fates.Is(err, fates.Replaced) {
		return v1alpha1.Condition{}
	}
	severity := v1alpha1.SeverityWarning // it may be over any time, and rights may be about to come
	if fates.Of(err).Word() == fates.Refuses {
		severity = v1alpha1.SeverityError
	}
	return outdated(severity, v1alpha1.ReasonCustomResourceDefinitionUpdateFailed, tenant.Against("it", err))
}

// unseen says that what an export follows cannot be read, and why; the zero Condition if it is too early
// for that.
func unseen(ctx context.Context, err error) v1alpha1.Condition {
	if !fates.IsTold(ctx, err) {
		return v1alpha1.Condition{}
	}
	return outdated(v1alpha1.SeverityWarning, v1alpha1.ReasonStepFailed, tenant.Against("a look at what it follows", err))
}

func outdated(severity v1alpha1.Severity, reason, message string) v1alpha1.Condition {
	return v1alpha1.False(v1alpha1.ConditionProviderInSync, severity, reason, message)
}

// reviseSchema takes over into the spec what of the CRD does not break what App Clusters rely
// on, and all of it where the template allows that.
func (e *Exports) reviseSchema(ctx context.Context, export *v1alpha1.APIServiceExport, service *Service, r *revision) (v1alpha1.Condition, error) {
	now, err := e.Schemas.get(ctx, export.Name)
	switch {
	case fates.Is(err, fates.Absent):
		return outdated(v1alpha1.SeverityError, v1alpha1.ReasonCRDNotFound, fmt.Sprintf("the Control Plane Cluster has no CustomResourceDefinition %s", export.Name)), nil
	case errors.Is(err, crdcompat.ErrNoVersion):
		return outdated(v1alpha1.SeverityError, v1alpha1.ReasonCRDInvalid, err.Error()), nil
	case err != nil:
		return v1alpha1.Condition{}, err
	}
	spec := isolated(now.spec, export.Spec.ClusterScopedIsolation)
	switch {
	case spec.Scope != export.Spec.Scope:
		return outdated(v1alpha1.SeverityError, v1alpha1.ReasonCRDInvalid, fmt.Sprintf("the scope of CustomResourceDefinition %s was %s and is %s", export.Name, export.Spec.Scope, spec.Scope)), nil
	case export.Annotations[v1alpha1.SourceSpecHashAnnotation] == now.hash:
		e.judgments.Forget(cache.MetaObjectToName(export).String())
		return v1alpha1.True(v1alpha1.ConditionProviderInSync), nil
	}
	if e.holds(service) {
		if v := e.judgment(ctx, export, now, spec); len(v.held) > 0 {
			if v.next != nil {
				hash, err := crdcompat.Hash(v.next)
				if err != nil {
					return v1alpha1.Condition{}, err
				}
				r.schema(v.next, hash)
			}
			return outdated(v1alpha1.SeverityWarning, v1alpha1.ReasonBreakingChangeHeld, heldMessage(v.held, service)), nil
		}
	}
	r.schema(spec, now.hash)
	return v1alpha1.True(v1alpha1.ConditionProviderInSync), nil
}

// judgment judges the change of an export to spec, which is now's, anew at each review. A rule is judged by all
// that the tenant has of the API, and the statuses that the tenant writes lead here.
func (e *Exports) judgment(ctx context.Context, export *v1alpha1.APIServiceExport, now publication, spec *v1alpha1.APIServiceExportCRDSpec) judgment {
	key, of := cache.MetaObjectToName(export).String(), fmt.Sprintf("%s %d %s", export.UID, export.Generation, now.hash)
	judged := func() judgment {
		v, _ := e.judgments.Get(key, time.Now().Add(e.Review/2), func() (judgment, error) { // before the next review
			here := &export.Spec.APIServiceExportCRDSpec
			next, held := crdcompat.Hold(ctx, here, spec, crdcompat.Change.Breaking, e.instances(export, now.spec)...)
			if crdcompat.Same(here, next) {
				next = nil
			}
			return judgment{of, next, held}, nil
		})
		return v
	}
	v := judged()
	if v.of != of {
		e.judgments.Forget(key)
		v = judged()
	}
	return v
}

// heldMessage advises what works: templates of foreign groups have no such field.
func heldMessage(breaking []crdcompat.Change, s *Service) string {
	advice := "set spec.breakingChanges of the template to Allow"
	if s != nil && s.TemplateGroup != "" && s.TemplateGroup != v1alpha1.GroupVersion.Group {
		advice = fmt.Sprintf("run: kubectl -n %s annotate apiserviceexporttemplates.%s %s %s=Allow",
			s.Template.Namespace, s.TemplateGroup, s.Template.Name, v1alpha1.BreakingChangesAnnotation)
	}
	return "of the new schema App Clusters do not get what would break theirs (" + crdcompat.List(breaking) + "): take the change back, or " + advice
}

// instances are the objects that a tenant has of an export: in each of its service namespaces, or
// among all of a cluster-scoped API.
func (e *Exports) instances(export *v1alpha1.APIServiceExport, spec *v1alpha1.APIServiceExportCRDSpec) (all []crdcompat.Lister) {
	gvr := schema.GroupVersionResource{Group: spec.Group, Version: spec.Versions[0].Name, Resource: spec.Names.Plural}
	if tenant.IsPrefixed(export) {
		return []crdcompat.Lister{prefixedInstances{e.Dyn.Resource(gvr), export.Namespace}}
	}
	for _, namespace := range e.Caches.ServiceNamespaces(export.Namespace) {
		all = append(all, e.Dyn.Resource(gvr).Namespace(namespace))
	}
	return all
}

// prefixedInstances list a tenant's own objects of a cluster-scoped API.
type prefixedInstances struct {
	crdcompat.Lister

	tenant string
}

func (p prefixedInstances) List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, err := p.Lister.List(ctx, opts)
	if err == nil {
		list.Items = slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool { return !tenant.OwnsPrefixed(p.tenant, &u) })
	}
	return list, err
}

// holds tells whether breaking changes of a service wait for the operator.
func (e *Exports) holds(s *Service) bool {
	policy := e.Breaking
	if s != nil && s.BreakingChanges != "" {
		policy = s.BreakingChanges
	}
	return policy != v1alpha1.BreakingChangesAllow
}

// schema replaces the CRD's part of an export. All its fields are always written, so
// a merge replaces them: lists are replaced whole.
func (r *revision) schema(spec *v1alpha1.APIServiceExportCRDSpec, hash string) {
	r.add("schema changed", v1alpha1.SourceSpecHashAnnotation, hash, map[string]any{
		"group": spec.Group, "names": mergeNames(spec.Names), "scope": spec.Scope, "versions": spec.Versions,
	})
}

// revise writes what is to change in an export; the rest of its spec stays.
func (e *Exports) revise(ctx context.Context, export *v1alpha1.APIServiceExport, r *revision) error {
	if len(r.events) == 0 {
		return nil
	}
	err := e.Patch(ctx, tenant.ExportResource, export, map[string]any{"annotations": r.annotations}, r.spec)
	if err != nil {
		return fmt.Errorf("update export %s: %w", export.Name, err)
	}
	for _, event := range r.events {
		audit.Record(ctx, event, "tenant", export.Namespace, "service", export.Name)
	}
	return nil
}

// mergeNames writes empty fields as null, which removes them in a merge patch.
func mergeNames(n v1alpha1.CRDNames) map[string]any {
	fields := map[string]any{"singular": nil, "shortNames": nil, "listKind": nil, "categories": nil}
	data, _ := json.Marshal(n) // strings
	_ = json.Unmarshal(data, &fields)
	return fields
}

// OfCRD are the exports of a CRD, which have its name.
func (e *Exports) OfCRD(crd metav1.Object) []cache.ObjectName {
	e.Schemas.known.Forget(crd.GetName())
	e.Services.Offers.Forget("")
	return e.named(crd.GetName())
}

func (e *Exports) named(wanted string) []cache.ObjectName {
	var keys []cache.ObjectName
	for _, key := range e.Exports.GetStore().ListKeys() {
		if name, err := cache.ParseObjectName(key); err == nil && name.Name == wanted {
			keys = append(keys, name)
		}
	}
	return keys
}
