// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"maps"
	"slices"
	"strings"
	"unique"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/sync/internal/slim"
	"github.com/klutch-go/sdk/sync/internal/travel"
)

// A source may have other writers: Syncs to other targets, each with a finalizer of its own,
// and controllers with conditions of their own in its status.

// firstOther is the finalizer of the Sync that came before this one, and writes the status
// and the messages of the source; empty if this one does.
func (o *observer) firstOther(source *unstructured.Unstructured) string {
	if first := slim.FirstFinalizer(source, o.names); first != o.opts.Finalizer {
		return first
	}
	return ""
}

// isCopy reports whether a source is a target of this Sync, as it may be where source and
// target are one cluster.
func (o *observer) isCopy(source *unstructured.Unstructured) bool {
	from, ok := originIn(o.names.Source, source)
	if !ok || from.Cluster != o.guard.SourceUID || !o.oneCluster && o.guard.SourceUID != o.guard.TargetUID || renamesNothing(o.opts.Mapper) {
		return false
	}
	name, mapped := targetName(o.opts.Mapper, cache.NewObjectName(from.Namespace, from.Name), false)
	return mapped && name == cache.MetaObjectToName(source)
}

// maxTypes bounds what is remembered of the conditions of one status.
const maxTypes = 1 << 10

// conditionTypes are those of a status, sorted.
func conditionTypes(status map[string]any) (types []string) {
	conditions, _ := status["conditions"].([]any)
	for _, c := range conditions {
		types = append(types, conditionType(c))
	}
	slices.Sort(types)
	return types
}

func conditionType(condition any) string {
	m, _ := condition.(map[string]any)
	kind, _ := m["type"].(string)
	return kind
}

// wrote notes what was sent as a status, and what became of it.
func (s *sourceStatus) wrote(p *pair, got map[string]any) {
	if s.listed == p.sources {
		s.contest.Wrote(travel.Hash(p.give))
	} else {
		s.contest.Renewed(travel.Hash(p.give))
	}
	types := strings.Join(conditionTypes(got), "\n")
	if s.types = unique.Make(types); len(types) > maxTypes {
		s.types = unique.Handle[string]{}
	}
}

// withOthers adds to a status those conditions that others have put on the source since we
// wrote it, of types that the target does not have: where the API server keeps conditions as
// one value, ours would take them away.
func (s *sourceStatus) withOthers(give map[string]any, source *unstructured.Unstructured) map[string]any {
	if s.types == (unique.Handle[string]{}) {
		return give
	}
	is, _ := source.Object["status"].(map[string]any)
	ours, theirs := strings.Split(s.types.Value(), "\n"), conditionTypes(is)
	s.others = slices.DeleteFunc(s.others, func(kind string) bool { return !slices.Contains(theirs, kind) })
	for _, kind := range theirs {
		if !slices.Contains(ours, kind) && !slices.Contains(s.others, kind) {
			s.others = append(s.others, kind)
		}
	}
	return add(give, is, s.others)
}

// add returns give with the conditions of is that have these types, and not one of give's.
func add(give, is map[string]any, types []string) map[string]any {
	have := conditionTypes(give)
	conditions, _ := is["conditions"].([]any)
	others := slices.DeleteFunc(slices.Clone(conditions), func(c any) bool {
		return !slices.Contains(types, conditionType(c)) || slices.Contains(have, conditionType(c))
	})
	if len(others) == 0 {
		return give
	}
	out := maps.Clone(give)
	if out == nil {
		out = map[string]any{}
	}
	mine, _ := give["conditions"].([]any)
	out["conditions"] = slices.Concat(mine, others)
	return out
}
