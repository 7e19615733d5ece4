// SPDX-License-Identifier: Apache-2.0

package travel

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
)

// Differences lists, a line for each field in the order of their names, what changes of a target
// when source takes it up: the fields that source sets to something else, and the fields that a
// manager of domain has set and source does not. Metadata and status are not compared.
func Differences(source, target *unstructured.Unstructured, domain string) []string {
	var d differences
	for key, want := range body(source) {
		d.compare(key, want, target.Object[key])
	}
	ours := fields.By(target, func(e fields.Entry) bool { return e.Subresource == "" && strings.HasPrefix(e.Manager, domain) })
	d.removed("", ours, body(source), body(target))
	slices.Sort(d)
	return d
}

// body is what of an object travels.
func body(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for key, value := range u.Object {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, key) {
			out[key] = value
		}
	}
	return out
}

type differences []string

func (d *differences) compare(path string, want, have any) {
	wanted, isMap := want.(map[string]any)
	if had, ok := have.(map[string]any); isMap && ok {
		for key, value := range wanted {
			d.compare(path+"."+key, value, had[key])
		}
		return
	}
	if !reflect.DeepEqual(want, have) {
		d.add(path, have, want)
	}
}

// removed adds the fields that we hold of have, and that are not in want.
func (d *differences) removed(path string, held fields.Set, want, have map[string]any) {
	for name, sub := range held {
		key, isField := strings.CutPrefix(name, "f:")
		value, there := have[key]
		if !isField || !there {
			continue
		}
		wanted, stays := want[key]
		below, _ := sub.(map[string]any)
		had, isMap := value.(map[string]any)
		inner, _ := wanted.(map[string]any)
		switch {
		case isMap && len(below) > 0:
			d.removed(path+key+".", below, inner, had)
		case !stays:
			d.add(path+key, value, nil)
		}
	}
}

func (d *differences) add(path string, have, want any) {
	*d = append(*d, fmt.Sprintf("%s: %s → %s", path, short(have), short(want)))
}

// short is a value on one line.
func short(value any) string {
	const most = 60
	data, err := json.Marshal(value)
	switch {
	case value == nil || err != nil:
		return "none"
	case len(data) > most:
		return strings.ToValidUTF8(string(data[:most]), "") + "…"
	}
	return string(data)
}
