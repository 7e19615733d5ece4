// SPDX-License-Identifier: Apache-2.0

package prune

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// A Document tells which fields the objects of an API version have. Nil knows nothing.
type Document struct {
	Components struct {
		Schemas map[string]*node `json:"schemas"`
	} `json:"components"`
	kinds map[string]*node
}

// A node is a schema. One that names no fields allows all: those of built-in kinds say so
// of arbitrary objects, and it loses nothing.
type node struct {
	Ref        string                         `json:"$ref"`
	AllOf      []*node                        `json:"allOf"`
	Properties map[string]*node               `json:"properties"`
	Items      *node                          `json:"items"`
	Additional additional                     `json:"additionalProperties"`
	Preserve   bool                           `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded   bool                           `json:"x-kubernetes-embedded-resource"`
	Default    json.RawMessage                `json:"default"` // of which Same takes notice
	Kinds      []struct{ Group, Kind string } `json:"x-kubernetes-group-version-kind"`
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

// Parse reads an OpenAPI v3 document.
func Parse(data []byte) (*Document, error) {
	d := &Document{kinds: map[string]*node{}}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, err
	}
	for _, n := range d.Components.Schemas {
		for _, kind := range n.Kinds {
			if n.Properties != nil {
				n.Properties["metadata"] = &node{} // all API servers know the same ones
				d.kinds[kind.Group+"/"+kind.Kind] = n
			}
		}
	}
	return d, nil
}

func (d *Document) root(kind string) *node {
	if d == nil {
		return nil
	}
	return d.kinds[kind]
}

// Same reports whether two documents say the same of a kind, as far as they say it in its
// own schema. An empty kind is one that is not known yet: they have to say the same of all.
func (d *Document) Same(other *Document, kind string) bool {
	if kind == "" {
		return d != nil && other != nil && reflect.DeepEqual(d.kinds, other.kinds)
	}
	return reflect.DeepEqual(d.root(kind), other.root(kind))
}

// Prune returns object without the fields that its kind, as "group/Kind", does not have,
// and whether it had any; the object itself, which is not changed, if it had none.
func (d *Document) Prune(object map[string]any, kind string) (map[string]any, bool) {
	root := d.root(kind)
	if root == nil {
		return object, false
	}
	return d.object(object, root)
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
		n = d.Components.Schemas[strings.TrimPrefix(n.Ref, "#/components/schemas/")]
	}
	return n
}
