// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// A put says what of a snapshot is put back.
type put struct {
	keys  []string
	lists func(was, is []any) []any // what becomes of two lists; nil if the old one comes back
}

// back returns is with what was there below some keys, or without what was not there.
func (p put) back(was, is any, keys []string) any {
	if len(keys) == 0 {
		old, _ := was.([]any)
		now, _ := is.([]any)
		if p.lists != nil && len(old) > 0 && len(now) > 0 {
			return p.lists(old, now)
		}
		return runtime.DeepCopyJSONValue(was)
	}
	return with(is, keys[0], p.back(child(was, keys[0]), child(is, keys[0]), keys[1:]))
}

// child is what is at a key of a map, or the version of that name; nil if there is none.
func child(in any, key string) any {
	switch in := in.(type) {
	case map[string]any:
		return in[key]
	case []any:
		if i := slices.IndexFunc(in, named(key)); i >= 0 {
			return in[i]
		}
	}
	return nil
}

// with puts a value where child finds it; nil removes what is there.
func with(in any, key string, value any) any {
	switch in := in.(type) {
	case map[string]any:
		if value == nil {
			delete(in, key)
		} else {
			in[key] = value
		}
		return in
	case []any:
		i := slices.IndexFunc(in, named(key))
		switch {
		case i >= 0 && value != nil:
			in[i] = value
		case value != nil:
			return append(in, value)
		}
		return in
	case nil:
		if value != nil {
			return map[string]any{key: value}
		}
	}
	return in
}

func named(name string) func(any) bool {
	return func(v any) bool {
		m, _ := v.(map[string]any)
		return m["name"] == name
	}
}

// union is all that is in either list.
func union(was, is []any) []any {
	known := identities(is)
	for _, v := range was {
		if !known[identity(v)] {
			is = append(is, v)
		}
	}
	return is
}

// common is what of a list was there before.
func common(was, is []any) []any {
	known := identities(was)
	return slices.DeleteFunc(is, func(v any) bool { return !known[identity(v)] })
}

func identities(all []any) map[string]bool {
	known := make(map[string]bool, len(all))
	for _, v := range all {
		known[identity(v)] = true
	}
	return known
}

func identity(v any) string {
	data, _ := json.Marshal(v) // what was read from JSON
	return string(data)
}
