// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"cmp"
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
	"k8s.io/apimachinery/pkg/runtime"
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
	pass   *pass
	wanted *unstructured.Unstructured // the CRD of the export
	live   *unstructured.Unstructured // the CRD that is there; nil if there is none
}

// readSchema finds out whether the export can be installed: it is valid and about the API that the binding is named
// after, and no CRD is in its way.
func (i *installation) readSchema(ctx context.Context) (bool, error) {
	var err error
	if i.wanted, err = crd.NewCRD(i.pass.binding.Name, &i.pass.export.Spec); err != nil {
		return i.pass.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonAPIServiceExportInvalid, "The provider's APIServiceExport is refused: "+cluster.Explain(err)+"."))
	}
	crd.DropDefaults(i.wanted, permission.HandedOver(i.pass.binding.Spec.PermissionClaims))
	i.own(i.wanted)
	if i.live, err = cluster.Get[unstructured.Unstructured](ctx, i.pass.app.Calls.Resource(cluster.CRDs), i.wanted.GetName()); err != nil {
		return false, fmt.Errorf("read CRD %s: %w", i.wanted.GetName(), err)
	}
	if i.live == nil {
		return true, nil
	}
	ours, err := i.owns(ctx, i.live)
	switch {
	case err != nil:
		return false, err
	case !ours:
		return i.pass.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonForeignCustomResourceDefinition,
			fmt.Sprintf("The CRD %s is there already and was not made for this binding. It is left as it is. %s.", i.live.GetName(), cluster.ForeignCRD(i.live.GetName()))))
	case i.live.GetDeletionTimestamp() != nil:
		return i.pass.block(failed(v1alpha1.ConditionConnected, v1alpha1.ReasonCustomResourceDefinitionTerminating,
			fmt.Sprintf("The CRD %s is being deleted with all its objects. Nothing is deleted in the Control Plane Cluster. Once it is gone it is made anew.", i.live.GetName())))
	}
	return true, nil
}

// installSchema makes the CRD say what the export says. While a change is refused, objects are
// synced under the schema that is there.
func (i *installation) installSchema(ctx context.Context) (bool, error) {
	dropped, err := i.pass.app.servedNames.DropNames(ctx, i.pass.app.discovery(), i.live, i.wanted)
	if err != nil {
		return false, err
	}
	ok, err := i.putSchema(ctx)
	if c := i.pass.verdict.found[v1alpha1.ConditionSchemaInSync]; ok && c.Status == metav1.ConditionTrue && len(dropped) > 0 {
		c.Message = "Left out of the CRD, since they stand for something else in this cluster: " + strings.Join(dropped, ", ") + "."
		i.pass.verdict.set(c)
	}
	return ok, err
}

// putSchema makes the CRD, or changes the one that is there.
func (i *installation) putSchema(ctx context.Context) (bool, error) {
	if i.live == nil {
		return i.createCRD(ctx)
	}
	published := i.wanted.DeepCopy() // as the provider has it
	change, err := crd.ChangeHash(i.live, published)
	if err != nil {
		return false, err
	}
	held, paced, err := i.chooseSchema(ctx, change)
	if err != nil {
		return false, err
	}
	if !paced {
		if taken, err := i.changeCRD(ctx, change); err != nil {
			return false, err
		} else if !taken {
			return i.stay()
		}
	}
	ok, err := i.established(i.live)
	switch {
	case !ok || err != nil:
		return ok, err
	case paced && i.pass.record.schemaRefused.change == change:
		return i.stay()
	case paced:
		i.pass.verdict.set(v1alpha1.False(v1alpha1.ConditionSchemaInSync, v1alpha1.SeverityInfo, v1alpha1.ReasonSchemaChangeWaits,
			fmt.Sprintf("The provider's newest schema waits: the CRD is changed every %s at most. Objects are synced under the schema that is here.", i.pass.schemaInterval)))
		return true, nil
	}
	return true, i.tellHeld(published, held)
}

// createCRD makes the CRD.
func (i *installation) createCRD(ctx context.Context) (bool, error) {
	made, err := i.pass.app.Calls.Resource(cluster.CRDs).Create(ctx, i.wanted, metav1.CreateOptions{FieldManager: v1alpha1.FieldManager})
	if i.isTold(ctx, "", err) {
		i.refused(v1alpha1.ReasonCustomResourceDefinitionCreateFailed, err)
	}
	if err != nil {
		return false, fmt.Errorf("create CRD %s: %w", i.wanted.GetName(), err)
	}
	logr.FromContextOrDiscard(ctx).Info("CRD created")
	return i.established(made)
}

// changeCRD makes the CRD that is there the wanted one. A change that the App Cluster's API server
// does not take is an error until people are to be told; then the CRD stays, and taken is false.
func (i *installation) changeCRD(ctx context.Context, change string) (taken bool, err error) {
	same, err := crd.SameSpec(i.live, i.wanted)
	if err != nil || same && !i.unmarked() {
		return true, err
	}
	next, err := i.update(ctx, i.live, i.wanted)
	if err != nil && !i.isTold(ctx, change, err) {
		return false, err
	}
	if !same || err != nil { // one that is refused counts too
		i.pass.record.schemaChanged = time.Now()
	}
	if err != nil {
		i.pass.record.schemaRefused.count(change, err)
		i.pass.lookAgain(i.untilNextSchema(time.Now(), change))
		return false, nil
	}
	i.live, i.pass.record.schemaRefused = next, refusedSchema{}
	return true, nil
}

// own records on the CRD which binding it was made for: for programs of other makes
// with an owner reference too.
func (i *installation) own(crd *unstructured.Unstructured) {
	mark.Put(crd, mark.Of(i.pass.binding))
	if i.lacksReference(crd) {
		others := slices.DeleteFunc(crd.GetOwnerReferences(), toBinding)
		crd.SetOwnerReferences(append(others, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding",
			Name: i.pass.binding.Name, UID: i.pass.binding.UID, Controller: new(true),
		}))
	}
}

// lacksReference tells whether the CRD is to have an owner reference and has it not. One to a
// namespaced binding says to Klutch's programs whose the CRD is, and nothing to the garbage
// collector. A CRD with another controller keeps that.
func (i *installation) lacksReference(crd *unstructured.Unstructured) bool {
	wanted := i.pass.key.Namespace == "" || i.pass.crdOwnerReferences || madeByUpdate(i.pass.binding)
	return wanted && !slices.ContainsFunc(crd.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
		return o.UID == i.pass.binding.UID || !toBinding(o) && o.Controller != nil && *o.Controller
	})
}

// unmarked tells whether the CRD that is there does not say yet which binding it was made for.
func (i *installation) unmarked() bool {
	owner, ok := mark.Get(i.live)
	return !ok || owner != mark.Of(i.pass.binding) || i.pass.key.Namespace != "" && i.lacksReference(i.live)
}

func toBinding(o metav1.OwnerReference) bool {
	return o.Kind == "APIServiceBinding" && o.APIVersion == v1alpha1.GroupVersion.String()
}

// madeByUpdate tells a binding that the legacy CLI may have made: ours applies it.
func madeByUpdate(b *v1alpha1.APIServiceBinding) bool {
	return slices.ContainsFunc(b.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		return e.Operation == metav1.ManagedFieldsOperationUpdate && e.Subresource == "" && e.FieldsV1 != nil &&
			strings.Contains(e.FieldsV1.GetRawString(), `"f:kubeconfigSecretRef"`)
	})
}

// owns tells whether the CRD was made for this binding, or for one that is gone.
func (i *installation) owns(ctx context.Context, crd *unstructured.Unstructured) (bool, error) {
	byReference := func(o metav1.OwnerReference) bool { return toBinding(o) && o.UID == i.pass.binding.UID }
	if slices.ContainsFunc(crd.GetOwnerReferences(), byReference) {
		return true, nil
	}
	owner, ok := mark.Get(crd)
	if !ok || owner == mark.Of(i.pass.binding) {
		return ok, nil
	}
	if (owner.Namespace == "") != (i.pass.key.Namespace == "") {
		return true, nil // of a time when bindings had the other scope
	}
	uid, err := cluster.UIDOf(ctx, i.pass.app.Calls, cluster.APIServiceBindings, owner.ObjectName)
	if err != nil && !fates.Is(err, fates.Absent, fates.Unserved) {
		return false, fmt.Errorf("look for the binding of CRD %s: %w", crd.GetName(), err)
	}
	return uid != owner.UID, nil
}

// update replaces the spec of live and nothing else but what records the binding. Owner
// references to a cluster-scoped one stay as they were made: the garbage collector reads
// them. It fails if live has changed meanwhile.
func (i *installation) update(ctx context.Context, live, wanted *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	next := live.DeepCopy()
	next.Object["spec"] = wanted.Object["spec"]
	crd.PutIsolation(next, crd.Isolation(wanted))
	mark.Put(next, mark.Of(i.pass.binding))
	if i.pass.key.Namespace != "" {
		i.own(next)
	}
	written, err := i.pass.app.Calls.Resource(cluster.CRDs).Update(ctx, next, metav1.UpdateOptions{FieldManager: v1alpha1.FieldManager})
	if err != nil {
		return nil, err
	}
	if written.GetGeneration() != live.GetGeneration() {
		logr.FromContextOrDiscard(ctx).Info("CRD changed")
	}
	return written, nil
}

// isTold reports whether people are to be told that the App Cluster's API server does not take a
// CRD, or a change of one: also where it has been told before of that change.
func (i *installation) isTold(ctx context.Context, change string, err error) bool {
	return fates.IsTold(ctx, err) || fates.Is(err, fates.Replaced) || err != nil && change != "" && i.pass.record.schemaRefused.change == change
}

// refused says what the App Cluster's API server has against the CRD.
func (i *installation) refused(reason string, err error) {
	message := fmt.Sprintf("The App Cluster's API server %s the CRD %s: %s", fates.Of(err).Word(), i.pass.binding.Name, cluster.Explain(err))
	i.pass.verdict.set(failed(v1alpha1.ConditionConnected, reason, message))
	i.pass.verdict.set(failed(v1alpha1.ConditionSchemaInSync, reason, message))
}

// stay keeps the CRD, since the App Cluster's API server did not take the change to all that the
// provider wants. The condition says so until the API server takes it, also while it is not asked.
func (i *installation) stay() (bool, error) {
	here, err := crd.SpecOf(i.live)
	if err != nil {
		return false, err
	}
	ok, err := i.established(i.live)
	if err != nil {
		return false, err
	}
	i.under(here)
	i.refused(v1alpha1.ReasonCustomResourceDefinitionUpdateFailed, i.pass.record.schemaRefused.err)
	return ok, nil
}

// established waits until objects can be served.
func (i *installation) established(u *unstructured.Unstructured) (bool, error) {
	crd, err := cluster.Decode[apiextensionsv1.CustomResourceDefinition](u)
	if err != nil {
		return false, err
	}
	if c := apihelpers.FindCRDCondition(crd, apiextensionsv1.NamesAccepted); c != nil && c.Status == apiextensionsv1.ConditionFalse {
		i.pass.verdict.set(failed(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonCustomResourceDefinitionNamesRefused, fmt.Sprintf("The CRD %s is not served: %s", crd.Name, c.Message)))
		return false, nil
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		i.pass.verdict.set(pending(v1alpha1.ConditionSchemaInSync, "The App Cluster is about to serve the API."))
		return false, nil
	}
	i.pass.verdict.set(v1alpha1.True(v1alpha1.ConditionSchemaInSync))
	return true, nil
}

// chooseSchema puts the schema to install into i.wanted, and into the export that objects are synced
// under. held: what the binding's owner has to consent to. paced: the CRD was changed a moment ago,
// so that nothing is changed yet.
func (i *installation) chooseSchema(ctx context.Context, change string) (held []crdcompat.Change, paced bool, err error) {
	if same, err := crd.SameSpec(i.live, i.wanted); same && !i.unmarked() || err != nil {
		return nil, false, err
	}
	here, err := crd.SpecOf(i.live)
	if err != nil {
		return nil, false, err
	}
	now := time.Now()
	wait := i.untilNextSchema(now, change)
	if unjudged := i.untilJudged(now, change); unjudged > 0 {
		i.keepSchema(here, max(wait, unjudged))
		return nil, true, nil
	}
	if held, err = i.holdSchema(ctx, here, change, wait > 0); err != nil {
		return nil, false, err
	}
	same, err := crd.SameSpec(i.live, i.wanted)
	if paced = (!same || i.unmarked()) && err == nil && wait > 0; paced {
		i.keepSchema(here, wait)
	}
	return held, paced, err
}

// keepSchema leaves the CRD as it is for a while.
func (i *installation) keepSchema(here *v1alpha1.APIServiceExportCRDSpec, wait time.Duration) {
	i.pass.lookAgain(wait)
	i.wanted.Object["spec"] = i.live.Object["spec"]
	crd.PutIsolation(i.wanted, crd.Isolation(i.live))
	i.under(here)
}

// untilJudged is how long a change has to wait until it is judged, since another one was judged a moment ago.
func (i *installation) untilJudged(now time.Time, change string) time.Duration {
	j := &i.pass.record.judged
	if j.change == "" || j.change == change || i.accepts(change) {
		return 0
	}
	return i.pass.schemaInterval - now.Sub(j.made)
}

// accepts reports whether the binding's owner has agreed to that very change.
func (i *installation) accepts(change string) bool {
	return i.pass.binding.Annotations[v1alpha1.AcceptSchemaAnnotation] == change
}

// holdSchema leaves out of wanted what would change what is valid or kept here, unless the
// binding's owner has agreed to that very change. With waits the CRD was changed too recently to be changed in this
// pass: the last judgment of this change holds then, however old it is.
func (i *installation) holdSchema(ctx context.Context, here *v1alpha1.APIServiceExportCRDSpec, change string, waits bool) ([]crdcompat.Change, error) {
	if i.accepts(change) {
		return nil, nil
	}
	judged := &i.pass.record.judged
	if !judged.holds(change, waits) {
		theirs, err := crd.SpecOf(i.wanted)
		if err != nil {
			return nil, err
		}
		objects := i.pass.app.Calls.Resource(schema.GroupVersionResource{Group: here.Group, Version: here.Versions[0].Name, Resource: here.Names.Plural})
		next, held := crdcompat.Hold(ctx, here, theirs, crdcompat.Change.NeedsConsent, objects)
		judged.note(change, next, append(i.movesTargets(), held...), i.pass.schemaInterval)
	}
	next, held := judged.spec, judged.held
	if len(held) == 0 {
		return nil, nil
	}
	i.under(next)
	merged, err := crd.NewCRD(i.pass.binding.Name, &i.pass.export.Spec)
	if err != nil { // it is too large
		merged = i.live
		i.under(here)
	}
	i.wanted.Object["spec"] = runtime.DeepCopyJSONValue(merged.Object["spec"])
	crd.PutIsolation(i.wanted, crd.Isolation(merged))
	crd.DropDefaults(i.wanted, permission.HandedOver(i.pass.binding.Spec.PermissionClaims)) // the old ones, too
	return held, nil
}

// under has objects be synced under another schema than that of the export, and where their targets have been.
func (i *installation) under(spec *v1alpha1.APIServiceExportCRDSpec) {
	other := *i.pass.export
	other.Spec.APIServiceExportCRDSpec = *spec
	other.Spec.ClusterScopedIsolation = cmp.Or(crd.Isolation(i.live), other.Spec.ClusterScopedIsolation)
	i.pass.export = &other
}

// movesTargets is the change of isolation that would give every object another target: a new and empty one,
// beside its present one.
func (i *installation) movesTargets() []crdcompat.Change {
	from, to := crd.Isolation(i.live), crd.Isolation(i.wanted)
	if from == "" || to == "" || from == to {
		return nil
	}
	return []crdcompat.Change{{Effect: crdcompat.Removed, What: fmt.Sprintf(
		"clusterScopedIsolation was %s and is %s: every object would be made anew, empty, and what it had would stay behind", from, to)}}
}

// tellHeld says what of the published CRD is not taken over, and how to consent to
// it: to the change of the CRD that is there now.
func (i *installation) tellHeld(published *unstructured.Unstructured, held []crdcompat.Change) error {
	if len(held) == 0 {
		return nil
	}
	hash, err := crd.ChangeHash(i.live, published)
	if err != nil {
		return err
	}
	i.pass.record.judged.change = hash // the part that was taken over changes the hash, and the same part is held as before
	i.pass.verdict.set(warned(v1alpha1.ConditionSchemaInSync, v1alpha1.ReasonSchemaChangeHeld, heldSchema(i.pass.key, hash, held)))
	return nil
}

func heldSchema(binding cache.ObjectName, hash string, held []crdcompat.Change) string {
	namespace := ""
	if binding.Namespace != "" {
		namespace = " -n " + binding.Namespace
	}
	return fmt.Sprintf("A part of the provider's new schema is not taken over; objects are synced under the schema that is here. To take it over: kubectl annotate apiservicebinding%s %s --overwrite %s=%s. It would change what is valid or kept here: %s.",
		namespace, binding.Name, v1alpha1.AcceptSchemaAnnotation, hash, crdcompat.List(held))
}

// untilNextSchema is how long the CRD of a binding has to stay as it is before a change: the longer,
// the more often that very change was refused.
func (i *installation) untilNextSchema(now time.Time, change string) time.Duration {
	if i.pass.record.schemaChanged.IsZero() {
		return 0
	}
	every := i.pass.schemaInterval
	if refused := &i.pass.record.schemaRefused; refused.change == change {
		every = max(every, min(every<<min(refused.times-1, 10), fates.Of(refused.err).Longest()))
	}
	return every - now.Sub(i.pass.record.schemaChanged)
}
