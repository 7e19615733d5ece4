// SPDX-License-Identifier: Apache-2.0

// Package status writes the status of objects that have more than one writer.
//
//	err := status.Write(ctx, client.Resource(gvr).Namespace(ns), seen, func(o *v1alpha1.APIServiceExport) {
//		o.Status.Conditions = v1alpha1.SetCondition(o.Status.Conditions, c)
//	})
package status

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/typed"
)

// attempts is how often a write is tried against other writers.
const attempts = 5

// Write makes the status of an object what change makes of it. Seen is the object
// as last read, from a cache perhaps; it is not modified. Client is that of its
// resource and namespace.
//
// Nothing is sent if change has no effect. Otherwise only the fields that differ are
// patched, on condition that the object is still the one that was read. If another
// writer was faster the object is read again and change is called anew, so it must
// depend on nothing but its argument. An object that is gone, or has been replaced,
// needs no status: that is not an error.
func Write[T any, P typed.Object[T]](ctx context.Context, client dynamic.ResourceInterface, seen P, change func(P)) error {
	name, uid := seen.GetName(), seen.GetUID()
	var conflict error
	for range attempts {
		patch, err := diff(seen, change)
		if err != nil || patch == nil {
			return err
		}
		_, err = client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if fates.Is(err, fates.Conflict) {
			conflict = err
			seen, err = read[T, P](ctx, client, seen.GetName())
		} else if err == nil {
			return nil
		}
		switch {
		case fates.Is(err, fates.Absent, fates.Unserved):
			return nil
		case err != nil:
			return fmt.Errorf("status of %s: %w", name, err)
		case seen.GetUID() != uid:
			return nil
		}
	}
	return fmt.Errorf("status of %s: other writers were faster %d times: %w", name, attempts, conflict)
}

func read[T any, P typed.Object[T]](ctx context.Context, client dynamic.ResourceInterface, name string) (P, error) {
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return typed.Decode[T, P](u)
}

// diff returns a merge patch from seen's status to the changed one, or nil if they
// are the same.
func diff[T any, P typed.Object[T]](seen P, change func(P)) ([]byte, error) {
	before, err := encode(seen)
	if err != nil {
		return nil, err
	}
	changed, ok := seen.DeepCopyObject().(P)
	if !ok {
		return nil, fmt.Errorf("%T copies itself as another type", seen)
	}
	change(changed)
	after, err := encode(changed)
	if err != nil {
		return nil, err
	}
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	if err != nil {
		return nil, fmt.Errorf("compare status of %s: %w", seen.GetName(), err)
	}
	if string(patch) == "{}" {
		return nil, nil
	}
	return precondition(seen, patch)
}

// encode returns an object with nothing but o's status.
func encode(o any) ([]byte, error) {
	all, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	var only struct {
		Status json.RawMessage `json:"status,omitempty"`
	}
	if err := json.Unmarshal(all, &only); err != nil {
		return nil, fmt.Errorf("encode %T: %w", o, err)
	}
	return json.Marshal(only)
}

// precondition adds what the API server refuses the patch by if seen is outdated.
func precondition(seen metav1.Object, patch []byte) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(patch, &m); err != nil {
		return nil, fmt.Errorf("patch of %s: %w", seen.GetName(), err)
	}
	m["metadata"] = map[string]any{"uid": seen.GetUID(), "resourceVersion": seen.GetResourceVersion()}
	return json.Marshal(m)
}
