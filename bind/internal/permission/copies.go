// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Copies are the copies of an owner's objects that the Sync of a binding made, in one cluster.
type Copies struct {
	Meta       metadata.Interface
	Binding    string
	Owner      v1alpha1.Owner
	Namespaces []string
	Legacy     bool                                                               // those too that a legacy konnector wrote, which name no binding
	Stays      func(context.Context, *metav1.PartialObjectMetadata) (bool, error) // of a copy; nil for none
}

// Remove deletes the copies of a resource that this binding made, and gives up
// the ones that others want too. It returns in which namespaces the konnector may not list them.
func (from Copies) Remove(ctx context.Context, resource schema.GroupVersionResource) (removed int, unseen []string, err error) {
	for _, namespace := range from.Namespaces {
		ctx, cancel := context.WithTimeout(ctx, cluster.CallTimeout)
		defer cancel()
		found, err := from.in(ctx, resource, namespace)
		if fates.Is(err, fates.Forbidden) {
			unseen = append(unseen, namespace)
			continue
		}
		if err != nil {
			return removed, unseen, err
		}
		for i := range found {
			o := &found[i]
			ours, others := copiedBy(from.Binding, from.Owner, o)
			if !ours && (!from.Legacy || !legacycopy.Is(o, string(from.Owner))) {
				continue
			}
			if from.Stays != nil {
				if stays, err := from.Stays(ctx, o); err != nil {
					return removed, unseen, err
				} else if stays {
					continue
				}
			}
			if err := removeCopy(ctx, from.Meta.Resource(resource).Namespace(o.Namespace), o, from.Binding, others); err != nil && !fates.Is(err, fates.Absent, fates.Unserved) {
				return removed, unseen, fmt.Errorf("remove the copy %s/%s of %s: %w", o.Namespace, o.Name, resource.GroupResource(), err)
			}
			removed++
		}
	}
	return removed, unseen, nil
}

// in lists what may be copies in a namespace.
func (from Copies) in(ctx context.Context, resource schema.GroupVersionResource, namespace string) (found []metav1.PartialObjectMetadata, err error) {
	opts := metav1.ListOptions{Limit: copiesPage}
	if !from.Legacy {
		opts.LabelSelector = v1alpha1.BoundAnnotation + "=true"
	}
	for {
		list, err := from.Meta.Resource(resource).Namespace(namespace).List(ctx, opts)
		if fates.Is(err, fates.Terminating, fates.Absent, fates.Unserved) {
			return found, nil
		}
		if err != nil {
			return nil, fmt.Errorf("look for copies of %s: %w", resource.GroupResource(), err)
		}
		for _, o := range list.Items {
			if cluster.IsCopy(&o) {
				found = append(found, o)
			}
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return found, nil
		}
	}
}

const copiesPage = 500 // objects a request

// OfLegacy are the names of the copies of a resource that a legacy konnector wrote, and that
// nothing has taken over, where the konnector may list them.
func (from Copies) OfLegacy(ctx context.Context, resource schema.GroupVersionResource) (names []string, err error) {
	from.Legacy = true
	for _, namespace := range from.Namespaces {
		found, err := from.in(ctx, resource, namespace)
		if err != nil && !fates.Is(err, fates.Forbidden) {
			return nil, err
		}
		for i := range found {
			if o := &found[i]; legacycopy.Is(o, string(from.Owner)) {
				names = append(names, resource.GroupResource().String()+" "+o.Namespace+"/"+o.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// removeCopy removes a copy in the version that was seen or, if it is shared, what
// says that this binding wants it.
func removeCopy(ctx context.Context, client metadata.ResourceInterface, o *metav1.PartialObjectMetadata, binding string, shared bool) error {
	if !shared {
		return client.Delete(ctx, o.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.ResourceVersion}})
	}
	others := cluster.Without(o.ManagedFields, func(manager string) bool { return manages(manager, binding) })
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion, "managedFields": others}})
	if err != nil {
		return fmt.Errorf("patch of managed fields: %w", err)
	}
	_, err = client.Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: v1alpha1.FieldManager})
	return err
}

// copiedBy tells whether o is a copy of an object of owner's that the Sync of a
// binding made, and whether that of another binding did too.
func copiedBy(binding string, owner v1alpha1.Owner, o *metav1.PartialObjectMetadata) (ours, others bool) {
	marks := cluster.CopyMarksOf(o)
	if !marks.IsOf(owner) {
		return false, false
	}
	for _, manager := range marks.Managers {
		ours = ours || manages(manager, binding)
		others = others || !manages(manager, binding)
	}
	return ours, others
}

// manages tells whether a Sync's field manager is that of a binding. The long ones are
// cut and have a hash instead of the rest.
func manages(manager, binding string) bool {
	const short = 60
	name, ok := strings.CutPrefix(manager, v1alpha1.GroupVersion.Group+"/")
	return ok && (name == binding || len(binding) > short && len(name) > short && strings.HasPrefix(name, binding[:short]))
}
