// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"slices"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// An older konnector beside ours: it creates and updates whole objects under a
// manager of its own, records no source, and has our finalizer.

// oldPass makes the older konnector look at one object and write once.
func (s *sim) oldPass() {
	name := []cache.ObjectName{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}}[s.rng.IntN(3)]
	source := s.get(sideSource, name)
	if source == nil {
		return
	}
	target := s.get(sideTarget, op{name: name}.target())
	if what := s.oldStep(source.DeepCopy(), target.DeepCopy()); what != "" {
		s.note("old konnector %s %s", what, name)
	}
}

func (s *sim) oldStep(source, target *unstructured.Unstructured) string {
	sources, targets := s.things(sideSource, source.GetNamespace()), s.things(sideTarget, s.at(sideTarget, source.GetNamespace()))
	opts := metav1.UpdateOptions{FieldManager: "konnector"}
	going := source.GetDeletionTimestamp() != nil
	held := slices.Contains(source.GetFinalizers(), klutchsync.DefaultFinalizer)
	bound := annotation(target, klutchsync.BoundAnnotation) == "true"
	switch {
	case going && !held, target != nil && !bound:
		return ""
	case going && target == nil:
		source.SetFinalizers(slices.DeleteFunc(source.GetFinalizers(), func(f string) bool { return f == klutchsync.DefaultFinalizer }))
		_, _ = sources.Update(s.ctx, source, opts)
		return "lets go of"
	case going:
		_ = targets.Delete(s.ctx, target.GetName(), metav1.DeleteOptions{})
		return "deletes the target of"
	case !held:
		source.SetFinalizers(append(source.GetFinalizers(), klutchsync.DefaultFinalizer))
		_, _ = sources.Update(s.ctx, source, opts)
		return "holds"
	case target == nil:
		_, _ = targets.Create(s.ctx, oldTarget(source), metav1.CreateOptions{FieldManager: "konnector"})
		return "makes the target of"
	case !cmp.Equal(oldTarget(source).Object["spec"], target.Object["spec"]):
		target.Object["spec"] = oldTarget(source).Object["spec"]
		_, _ = targets.Update(s.ctx, target, opts)
		return "updates the target of"
	case target.Object["status"] != nil && !cmp.Equal(source.Object["status"], target.Object["status"]):
		source.Object["status"] = target.Object["status"]
		_, _ = sources.UpdateStatus(s.ctx, source, opts)
		return "gives a status to"
	}
	return ""
}

func oldTarget(source *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": source.GetAPIVersion(), "kind": source.GetKind(), "spec": source.DeepCopy().Object["spec"],
	}}
	out.SetName(source.GetName())
	out.SetLabels(source.GetLabels())
	out.SetAnnotations(map[string]string{klutchsync.BoundAnnotation: "true"})
	return out
}
