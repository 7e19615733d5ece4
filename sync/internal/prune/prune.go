// SPDX-License-Identifier: Apache-2.0

package prune

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A Document tells which fields the objects of a resource have. Nil knows nothing.
type Document struct {
	schemas map[string]*node
	root    *node // of the resource; nil if the document does not have it
	plain   bool  // the resource has no status subresource
}

// A published document is what is read of the OpenAPI v3 document of an API version.
type published struct {
	Paths      map[string]struct{ Get operation } `json:"paths"`
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
}

// An operation is one of a path, and which kind it is about.
type operation struct {
	Kind kind `json:"x-kubernetes-group-version-kind"`
}

type kind struct{ Group, Kind string }

// A node is a schema. A node that names no fields allows all fields: the schemas of built-in kinds describe arbitrary
// objects so, and then nothing is lost.
type node struct {
	Ref        string           `json:"$ref"`
	AllOf      []*node          `json:"allOf"`
	Properties map[string]*node `json:"properties"`
	Items      *node            `json:"items"`
	Additional additional       `json:"additionalProperties"`
	Preserve   bool             `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded   bool             `json:"x-kubernetes-embedded-resource"`
	MapType    string           `json:"x-kubernetes-map-type"`
	Default    json.RawMessage  `json:"default"` // of which Same takes notice
	Kinds      []kind           `json:"x-kubernetes-group-version-kind"`
}

// additional is the schema of fields without a name of their own: a schema or a boolean.
type additional struct{ node *node }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true":
		a.node = &node{}
	case "false", "null":
	default:
		return json.Unmarshal(data, &a.node)
	}
	return nil
}

// Parse reads what the OpenAPI v3 document of an API version says of resource.
func Parse(data []byte, resource schema.GroupVersionResource) (*Document, error) {
	p := &published{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, err
	}
	d := &Document{schemas: p.Components.Schemas}
	is, known := p.kind(resource)
	d.plain = known && !p.serves(resource, "/{name}/status")
	for _, n := range d.schemas {
		if n.Properties == nil {
			continue
		}
		if known && slices.Contains(n.Kinds, is) {
			d.root = n
		}
		if len(n.Kinds) > 0 {
			n.Properties["metadata"] = &node{} // all API servers know the same ones
		}
	}
	return d, nil
}

// kind is that of the objects of resource, by the paths at which they are read.
func (p *published) kind(resource schema.GroupVersionResource) (is kind, known bool) {
	for _, path := range pathsOf(resource) {
		if at, served := p.Paths[path]; served {
			return at.Get.Kind, true
		}
	}
	return kind{}, false
}

// serves reports whether there is something below where the objects of resource are.
func (p *published) serves(resource schema.GroupVersionResource, below string) bool {
	return slices.ContainsFunc(pathsOf(resource), func(path string) bool {
		_, served := p.Paths[path+below]
		return served
	})
}

// pathsOf are where objects of resource may be.
func pathsOf(resource schema.GroupVersionResource) []string {
	root := "/" + pathOf(resource.GroupVersion())
	return []string{root + "/namespaces/{namespace}/" + resource.Resource, root + "/" + resource.Resource}
}

// pathOf is where an API version is served, and the name of its document.
func pathOf(version schema.GroupVersion) string {
	if version.Group == "" {
		return "api/" + version.Version
	}
	return "apis/" + version.String()
}

// Same reports whether two documents say the same of the resource, as far as they say it in
// its own schema.
func (d *Document) Same(other *Document) bool {
	return d.isPlain() == other.isPlain() && reflect.DeepEqual(d.of(), other.of())
}

func (d *Document) isPlain() bool { return d != nil && d.plain }

func (d *Document) of() *node {
	if d == nil {
		return nil
	}
	return d.root
}

// Prune returns object without the fields that its kind does not have, and whether it had
// any; the object itself, which is not changed, if it had none.
func (d *Document) Prune(object map[string]any) (map[string]any, bool) {
	if d.of() == nil {
		return object, false
	}
	return d.object(object, d.root)
}

// Atomic implements fields.Schema.
func (d *Document) Atomic(path []string) bool {
	n := d.at(path)
	return n != nil && n.MapType == "atomic"
}

// at is the schema at a path, in which an empty name is that of the items of a list; nil if
// there is none.
func (d *Document) at(path []string) *node {
	n := d.of()
	for _, name := range path {
		if n = d.resolve(n); n == nil {
			return nil
		}
		if name == "" {
			n = n.Items
		} else {
			n, _ = n.field(name)
		}
	}
	return d.resolve(n)
}

func (d *Document) value(value any, n *node) (any, bool) {
	n = d.resolve(n)
	object, isObject := value.(map[string]any)
	list, isList := value.([]any)
	switch {
	case n != nil && isObject:
		return d.object(object, n)
	case n != nil && isList:
		return d.list(list, n)
	default:
		return value, false
	}
}

func (d *Document) object(object map[string]any, n *node) (out map[string]any, pruned bool) {
	if n.Properties == nil && n.Additional.node == nil {
		return object, false
	}
	out = object
	for name, before := range object {
		sub, known := n.field(name)
		after, less := d.value(before, sub)
		if known && !less {
			continue
		}
		if !pruned {
			out, pruned = maps.Clone(object), true
		}
		if out[name] = after; !known {
			delete(out, name)
		}
	}
	return out, pruned
}

func (d *Document) list(list []any, n *node) (out []any, pruned bool) {
	out = list
	for i, before := range list {
		after, less := d.value(before, n.Items)
		if less && !pruned {
			out, pruned = slices.Clone(list), true
		}
		if less {
			out[i] = after
		}
	}
	return out, pruned
}

// field is the schema of a field, nil if that leaves it open, and whether it is known.
func (n *node) field(name string) (sub *node, known bool) {
	if sub, known = n.Properties[name]; known {
		return sub, true
	}
	isMeta := name == "apiVersion" || name == "kind" || name == "metadata"
	return n.Additional.node, n.Additional.node != nil || n.Preserve || n.Embedded && isMeta
}

// resolve follows references.
func (d *Document) resolve(n *node) *node {
	for n != nil && (n.Ref != "" || len(n.AllOf) == 1 && n.Properties == nil) {
		if n.Ref == "" {
			n = n.AllOf[0]
			continue
		}
		n = d.schemas[strings.TrimPrefix(n.Ref, "#/components/schemas/")]
	}
	return n
}

// LeftOut names, in order, the fields of an object that pruned lacks, at most some of them.
func LeftOut(object, pruned map[string]any) []string { return leftOut(nil, "", object, pruned) }

// maxLeftOut is how many fields are named.
const maxLeftOut = 5

func leftOut(out []string, path string, before, after any) []string {
	switch b := before.(type) {
	case map[string]any:
		a, _ := after.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(b)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			if len(out) == maxLeftOut {
				return out
			} else if value, kept := a[name]; kept {
				out = leftOut(out, below, b[name], value)
			} else {
				out = append(out, below)
			}
		}
	case []any:
		a, _ := after.([]any)
		for i := range min(len(a), len(b)) {
			out = leftOut(out, fmt.Sprintf("%s[%d]", path, i), b[i], a[i])
		}
	}
	return out
}
