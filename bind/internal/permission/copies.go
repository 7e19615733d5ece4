// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/legacycopy"
	"github.com/klutch-go/sdk/internal/text"
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

// Remove deletes the copies of a resource that this binding made, and gives up its share of
// copies that other bindings want too. If an API server refuses to delete one, the rest is deleted all the same.
// Remove returns the namespaces in which the konnector may not list copies.
func (from Copies) Remove(ctx context.Context, resource schema.GroupVersionResource) (removed int, unseen []string, err error) {
	var refused fates.Refusals
	for _, namespace := range from.Namespaces {
		n, err := from.removeIn(ctx, resource, namespace, &refused)
		removed += n
		if fates.Is(err, fates.Forbidden) && errors.Is(err, errUnlisted) {
			unseen = append(unseen, namespace)
			continue
		}
		if err := refused.Keep(err); err != nil {
			return removed, unseen, err
		}
	}
	return removed, unseen, refused.Err()
}

func (from Copies) removeIn(ctx context.Context, resource schema.GroupVersionResource, namespace string, refused *fates.Refusals) (removed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.CallTimeout)
	defer cancel()
	for o, err := range from.in(ctx, resource, namespace) {
		if err != nil {
			return removed, err
		}
		ours, others := copiedBy(from.Binding, from.Owner, o)
		if !ours && (!from.Legacy || !legacycopy.Is(o, string(from.Owner))) {
			continue
		}
		if from.Stays != nil {
			if stays, err := from.Stays(ctx, o); err != nil {
				return removed, err
			} else if stays {
				continue
			}
		}
		err = removeCopy(ctx, from.Meta.Resource(resource).Namespace(o.Namespace), o, from.Binding, others)
		if fates.Is(err, fates.None, fates.Absent, fates.Unserved) {
			removed++
			continue
		}
		if err := refused.Keep(unremoved(o, resource, err)); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// unremoved says which copy an API server does not remove, without its words: they may have the content.
func unremoved(o *metav1.PartialObjectMetadata, resource schema.GroupVersionResource, err error) error {
	return fates.Reworded(fates.Silent(err), fmt.Sprintf("the API server %s the removal of the copy %s/%s of %s", fates.Of(err).Word(), o.Namespace, o.Name, resource.GroupResource()))
}

// errUnlisted says that copies cannot be listed.
var errUnlisted = errors.New("look for copies")

// in are what may be copies in a namespace. A page of them is held at a time: what the other side
// lists may have no end.
func (from Copies) in(ctx context.Context, resource schema.GroupVersionResource, namespace string) iter.Seq2[*metav1.PartialObjectMetadata, error] {
	return func(yield func(*metav1.PartialObjectMetadata, error) bool) {
		opts := metav1.ListOptions{Limit: copiesPage}
		if !from.Legacy {
			opts.LabelSelector = v1alpha1.BoundAnnotation + "=true"
		}
		for {
			list, err := from.Meta.Resource(resource).Namespace(namespace).List(ctx, opts)
			if fates.Is(err, fates.Terminating, fates.Absent, fates.Unserved) {
				return
			}
			if err != nil {
				yield(nil, fmt.Errorf("%w of %s: %w", errUnlisted, resource.GroupResource(), err))
				return
			}
			for i := range list.Items {
				if o := &list.Items[i]; cluster.IsCopy(o) && !yield(o, nil) {
					return
				}
			}
			if opts.Continue = list.Continue; opts.Continue == "" {
				return
			}
		}
	}
}

const (
	copiesPage  = 500 // objects a request
	mostLegacy  = 1000
	longestName = 600 // of a resource, a namespace and an object
)

// OfLegacy are the names of the copies of a resource that a legacy konnector wrote, and that
// nothing has taken over, where the konnector may list them: a thousand at most.
func (from Copies) OfLegacy(ctx context.Context, resource schema.GroupVersionResource) (names []string, err error) {
	from.Legacy = true
	for _, namespace := range from.Namespaces {
		found, err := from.ofLegacyIn(ctx, resource, namespace)
		if err != nil && !fates.Is(err, fates.Forbidden) {
			return nil, err
		}
		names = append(names, found[:min(len(found), mostLegacy-len(names))]...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func (from Copies) ofLegacyIn(ctx context.Context, resource schema.GroupVersionResource, namespace string) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cluster.CallTimeout)
	defer cancel()
	for o, err := range from.in(ctx, resource, namespace) {
		switch {
		case err != nil:
			return nil, err
		case !legacycopy.Is(o, string(from.Owner)):
		case len(names) == mostLegacy:
			return names, nil
		default:
			names = append(names, text.Clip(resource.GroupResource().String()+" "+o.Namespace+"/"+o.Name, longestName))
		}
	}
	return names, nil
}

// removeCopy deletes a copy in the version that was seen or, if other bindings share it, removes this
// binding's mark from it.
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
