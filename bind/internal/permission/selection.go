// SPDX-License-Identifier: Apache-2.0

package permission

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// AnyName is the name that selects all names, and all namespaces.
const AnyName = "*"

// MetadataKeys are the keys of labels and annotations that a claim names, as patterns:
// those without a prefix, which no program owns, and those of the bound API's own group. The
// others may be switches of programs that have nothing to do with it.
func MetadataKeys(group string, c v1alpha1.PermissionClaim) (labels, annotations []string) {
	named := [2][]v1alpha1.Pattern{c.Read.Labels, c.Read.Annotations}
	if c.Selector.Owner != v1alpha1.OwnerConsumer {
		named = [2][]v1alpha1.Pattern{}
		if c.Update != nil {
			named = [2][]v1alpha1.Pattern{c.Update.Labels, c.Update.Annotations}
		}
	}
	for _, match := range c.Selector.LabelSelectors {
		for key := range match {
			named[0] = append(slices.Clip(named[0]), v1alpha1.Pattern{Pattern: key})
		}
	}
	return ownKeys(group, named[0]), ownKeys(group, named[1])
}

func ownKeys(group string, patterns []v1alpha1.Pattern) (own []string) {
	for _, p := range patterns {
		prefix, name, prefixed := strings.Cut(p.Pattern, "/")
		ours := prefix == group || strings.HasSuffix(prefix, "."+group)
		if prefixed && ours && name != "" && !strings.Contains(strings.TrimSuffix(p.Pattern, AnyName), AnyName) ||
			!prefixed && p.Pattern != "" && !strings.Contains(p.Pattern, AnyName) {
			own = append(own, p.Pattern)
		}
	}
	slices.Sort(own)
	return slices.Compact(own)
}

// relatedTo returns what selects the objects of a claim: any one of its maps of
// labels is enough.
func relatedTo(group string, c v1alpha1.PermissionClaim) []klutchsync.Related {
	r := klutchsync.Related{
		Resource: schema.GroupVersionResource{Group: c.Group, Version: c.Version, Resource: c.Resource},
		From:     klutchsync.TargetSide, // the provider owns what it hands out
	}
	r.KeepLabels, r.KeepAnnotations = MetadataKeys(group, c)
	if c.Selector.Owner == v1alpha1.OwnerConsumer {
		r.From = klutchsync.SourceSide
	}
	for _, ref := range c.Selector.References {
		r.References = append(r.References, ref.Path)
	}
	if len(r.References) == 0 {
		r.Names = c.Selector.Names
	}
	if !slices.Contains(c.Selector.Namespaces, AnyName) {
		r.Namespaces = c.Selector.Namespaces
	}
	if len(c.Selector.LabelSelectors) == 0 {
		return []klutchsync.Related{r}
	}
	var each []klutchsync.Related
	for _, match := range c.Selector.LabelSelectors {
		r.Labels = labels.SelectorFromSet(match).String()
		each = append(each, r)
	}
	return each
}
