// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/crdcompat"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/mark"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An installation is the part of a pass that is about the CRD of the bound API.
type installation struct {
	*pass
	wanted *unstructured.Unstructured // the CRD of the export
	live   *unstructured.Unstructured // the CRD that is there; nil if there is none
}

// readSchema finds out whether the export can be installed: it is what was agreed to,
// and no CRD is in its way.
func (p *installation) readSchema(ctx context.Context) (bool, error) {
	var err error
	if p.wanted, err = crd.NewCRD(p.binding.Name, &p.export.Spec); err != nil {
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportInvalid, "The provider's APIServiceExport is refused: "+cluster.Explain(err)+"."))
	}
	crd.DropDefaults(p.wanted, permission.HandedOver(p.binding.Spec.PermissionClaims))
	p.own(p.wanted)
	if p.live, err = cluster.Get[unstructured.Unstructured](ctx, p.app.Calls.Resource(cluster.CRDs), p.wanted.GetName()); err != nil {
		return false, fmt.Errorf("read CRD %s: %w", p.wanted.GetName(), err)
	}
	if p.live == nil {
		return true, nil
	}
	ours, err := p.owns(ctx, p.live)
	switch {
	case err != nil:
		return false, err
	case !ours:
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonForeignCustomResourceDefinition,
			fmt.Sprintf("The CRD %s is there already and was not made for this binding. It is left as it is; delete it, or the binding.", p.live.GetName())))
	case p.live.GetDeletionTimestamp() != nil:
		return p.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonCustomResourceDefinitionTerminating,
			fmt.Sprintf("The CRD %s is being deleted with all its objects. They are held: nothing is deleted in the Control Plane Cluster. Once it is gone it is made anew.", p.live.GetName())))
	}
	return true, nil
}

// installSchema makes the CRD say what the export says. A refused change leaves the
// objects in step under the schema that is there.
func (p *installation) installSchema(ctx context.Context) (bool, error) {
	dropped, err := p.app.servedNames.DropNames(p.app.discovery(), p.live, p.wanted)
	if err != nil {
		return false, err
	}
	ok, err := p.putSchema(ctx)
	if c := p.verdict.found[v1alpha1.ConditionSchemaInSync]; ok && c.Status == metav1.ConditionTrue && len(dropped) > 0 {
		c.Message = "Left out of the CRD, since they stand for something else in this cluster: " + strings.Join(dropped, ", ") + "."
		p.verdict.set(c)
	}
	return ok, err
}

// putSchema makes the CRD, or changes the one that is there.
func (p *installation) putSchema(ctx context.Context) (bool, error) {
	if p.live == nil {
		made, err := p.app.Calls.Resource(cluster.CRDs).Create(ctx, p.wanted, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
		if err != nil {
			return p.refused(v1alpha1.ReasonCustomResourceDefinitionCreateFailed, err)
		}
		logr.FromContextOrDiscard(ctx).Info("CRD created")
		return p.established(made)
	}
	same, err := crd.SameSpec(p.live, p.wanted)
	if err != nil {
		return false, err
	}
	var stays v1alpha1.Condition
	if !same {
		if stays, err = p.adoptSchema(ctx, p.live, p.wanted); err != nil {
			return false, err
		}
		if same = stays.Type != ""; !same {
			p.record.schemaChanged = time.Now() // one that is refused counts too
		}
	}
	if owner, ok := mark.Get(p.live); !same || !ok || owner != mark.Of(p.binding) || (p.key.Namespace != "" && p.lacksReference(p.live)) {
		if p.live, err = p.update(ctx, p.live, p.wanted); err != nil {
			return p.refused(v1alpha1.ReasonCustomResourceDefinitionUpdateFailed, err)
		}
	}
	ok, err := p.established(p.live)
	if ok && stays.Type != "" {
		p.verdict.set(stays)
	}
	return ok, err
}

// own records on the CRD which binding it was made for: for programs of other makes
// with an owner reference too.
func (p *installation) own(crd *unstructured.Unstructured) {
	mark.Put(crd, mark.Of(p.binding))
	if p.lacksReference(crd) {
		others := slices.DeleteFunc(crd.GetOwnerReferences(), toBinding)
		crd.SetOwnerReferences(append(others, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding",
			Name: p.binding.Name, UID: p.binding.UID, Controller: new(true),
		}))
	}
}

// lacksReference tells whether the CRD is to have an owner reference and has it not. One to a
// namespaced binding says to Klutch's programs whose the CRD is, and nothing to the garbage
// collector. What has another controller keeps that one.
func (p *installation) lacksReference(crd *unstructured.Unstructured) bool {
	wanted := p.key.Namespace == "" || p.crdOwnerReferences || madeByUpdate(p.binding)
	return wanted && !slices.ContainsFunc(crd.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.UID == p.binding.UID || !toBinding(o) && o.Controller != nil && *o.Controller
	})
}

func toBinding(o metav1.OwnerReference) bool {
	return o.Kind == "APIServiceBinding" && o.APIVersion == v1alpha1.GroupVersion.String()
}

// madeByUpdate tells a binding that Klutch's command line tool may have made: ours applies it.
func madeByUpdate(b *v1alpha1.APIServiceBinding) bool {
	return slices.ContainsFunc(b.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil &&
			strings.Contains(e.FieldsV1.GetRawString(), `"f:kubeconfigSecretRef"`)
	})
}

// owns tells whether the CRD was made for this binding, or for one that is gone.
func (p *installation) owns(ctx context.Context, crd *unstructured.Unstructured) (bool, error) {
	byReference := func(o metav1.OwnerReference) bool { return toBinding(o) && o.UID == p.binding.UID }
	if slices.ContainsFunc(crd.GetOwnerReferences(), byReference) {
		return true, nil
	}
	owner, ok := mark.Get(crd)
	if !ok || owner == mark.Of(p.binding) {
		return ok, nil
	}
	if (owner.Namespace == "") != (p.key.Namespace == "") {
		return true, nil // of a time when bindings had the other scope
	}
	uid, err := cluster.UIDOf(ctx, p.app.Calls, cluster.APIServiceBindings, owner.ObjectName)
	if err != nil && !fates.Is(err, fates.Absent, fates.Unserved) {
		return false, fmt.Errorf("look for the binding of CRD %s: %w", crd.GetName(), err)
	}
	return uid != owner.UID, nil
}

// update replaces the spec of live and nothing else but what records the binding. Owner
// references to a cluster-scoped one stay as they were made: the garbage collector reads
// them. It fails if live has changed meanwhile.
func (p *installation) update(ctx context.Context, live, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	next := live.DeepCopy()
	next.Object["spec"] = wanted.Object["spec"]
	mark.Put(next, mark.Of(p.binding))
	if p.key.Namespace != "" {
		p.own(next)
	}
	written, err := p.app.Calls.Resource(cluster.CRDs).Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return nil, err
	}
	if written.GetGeneration() != live.GetGeneration() {
		logr.FromContextOrDiscard(ctx).Info("CRD changed")
	}
	return written, nil
}

// refused says what the App Cluster's API server has against the CRD. What it says
// may be cured by another export, or by other rights.
func (p *installation) refused(reason string, err error) (bool, error) {
	if !fates.Is(err, fates.Invalid, fates.Replaced, fates.Forbidden, fates.Terminating, fates.Malformed) {
		return false, err
	}
	p.again = time.Minute
	message := fmt.Sprintf("The CRD %s is refused: %s", p.binding.Name, cluster.Explain(err))
	p.verdict.set(failed(v1alpha1.ConditionConnected, reason, message))
	p.verdict.set(failed(v1alpha1.ConditionSchemaInSync, reason, message))
	return false, nil
}

// established waits until objects can be served.
func (p *installation) established(u *unstructured.Unstructured) (bool, error) {
	crd, err := cluster.Decode[apiextensionsv1.CustomResourceDefinition](u)
	if err != nil {
		return false, err
	}
	if c := apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); c != nil && c.Status == apiextensionsv1.ConditionFalse {
		p.verdict.set(failed(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonCustomResourceDefinitionNamesRefused, fmt.Sprintf("The CRD %s is not served: %s", crd.Name, c.Message)))
		return false, nil
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		p.verdict.set(pending(v1alpha1.ConditionSchemaInSync, "The App Cluster is about to serve the API."))
		return false, nil
	}
	p.verdict.set(v1alpha1.True(v1alpha1.ConditionSchemaInSync))
	return true, nil
}

// adoptSchema decides whether the provider's schema may replace the one that is there. If
// not, the condition says why, and the objects stay in step under the present one.
func (p *installation) adoptSchema(ctx context.Context, live, wanted *unstructured.Unstructured) (why v1alpha1.Condition, err error) {
	here, err := crd.SpecOf(live)
	if err != nil {
		return why, err
	}
	theirs, err := crd.SpecOf(wanted)
	if err != nil {
		return why, err
	}
	hash, err := crd.ChangeHash(live, wanted)
	if err != nil {
		return why, err
	}
	changes := crdcompat.Only(crdcompat.Compare(here, theirs), crdcompat.Change.NeedsConsent)
	objects := p.app.Calls.Resource(schema.GroupVersionResource{Group: here.Group, Version: here.Versions[0].Name, Resource: here.Names.Plural})
	changes = crdcompat.KeptRules(ctx, changes, theirs, objects)
	wait := p.untilNextSchema(time.Now())
	switch {
	case len(changes) > 0 && p.binding.Annotations[v1alpha1.AcceptSchemaAnnotation] != hash:
		why = warned(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, heldSchema(p.key, hash, changes))
	case wait > 0:
		p.again = wait
		why = v1alpha1.False(v1alpha1.ConditionSchemaInSync, v1alpha1.SeverityInfo, v1alpha1.ReasonSchemaChangeWaits,
			fmt.Sprintf("The provider's newest schema waits: the CRD is changed every %s at most. Objects are synced under the schema that is here.", p.schemaInterval))
	default:
		return why, nil
	}
	wanted.Object["spec"] = live.Object["spec"]
	under := *p.export
	under.Spec.APIServiceExportCRDSpec = *here
	p.export = &under
	return why, nil
}

func heldSchema(binding cache.ObjectName, hash string, changes []crdcompat.Change) string {
	namespace := ""
	if binding.Namespace != "" {
		namespace = " -n " + binding.Namespace
	}
	return fmt.Sprintf("The provider's new schema is not taken over; objects are synced under the one that is here. To take it over: kubectl annotate apiservicebinding%s %s --overwrite %s=%s. It would change what is valid or kept here: %s.",
		namespace, binding.Name, v1alpha1.AcceptSchemaAnnotation, hash, crdcompat.List(changes))
}

// untilNextSchema is how long the CRD of a binding has to stay as it is.
func (p *installation) untilNextSchema(now time.Time) time.Duration {
	if p.record.schemaChanged.IsZero() {
		return 0
	}
	return p.schemaInterval - now.Sub(p.record.schemaChanged)
}
