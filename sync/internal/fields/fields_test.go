// SPDX-License-Identifier: Apache-2.0

package fields_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/sync/internal/fields"
)

func object(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	return u
}

// Of maps and lists that are to be empty just what is held, and by no other manager, is taken away,
// one part after another.
func TestEmptied(t *testing.T) {
	for name, test := range map[string]struct {
		want, ours, others, object string
		pointers                   []string
	}{
		"a map": {
			want: `{"size":"small","backup":{},"new":{}}`, object: `{"size":"small","backup":{"hour":1,"to":{"bucket":"b","key":"k"}}}`,
			ours:     `{"f:size":{},"f:backup":{".":{},"f:hour":{},"f:to":{"f:bucket":{},"f:key":{}}}}`,
			others:   `{"f:backup":{"f:to":{"f:key":{}}}}`,
			pointers: []string{"/v/backup/hour", "/v/backup/to/bucket"},
		},
		"a map that was empty before": {want: `{"backup":{}}`, ours: `{"f:backup":{}}`, object: `{"backup":{}}`},
		"a map with null":             {want: `{"m":{}}`, object: `{"m":{"a":null,"b":1}}`, ours: `{"f:m":{"f:a":{},"f:b":{}}}`, pointers: []string{"/v/m/a", "/v/m/b"}},
		"empty lists alone": {
			want: `{"m":{"l":[],"p":{"l":[]}}}`, object: `{"m":{"a":1,"l":["x"],"p":{"b":1,"c":1}}}`,
			ours: `{"f:m":{"f:a":{},"f:l":{"v:\"x\"":{}},"f:p":{"f:b":{},"f:c":{}}}}`, others: `{"f:m":{"f:p":{"f:c":{}}}}`, pointers: []string{"/v/m/a", "/v/m/l/0", "/v/m/p/b"},
		},
		"an empty list and an empty map": {want: `{"m":{"l":[],"p":{}}}`, object: `{"m":{"a":1}}`, ours: `{"f:m":{"f:a":{}}}`},
		"a map in an item": {
			want: `{"l":[{"name":"b","labels":{}},{"name":"a","labels":{"x":"1"}}]}`, object: `{"l":[{"name":"a","labels":{"x":"1"}},{"name":"b","labels":{"a/b":"1"}}]}`,
			ours:     `{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{},"f:labels":{"f:x":{}}},"k:{\"name\":\"b\"}":{".":{},"f:name":{},"f:labels":{"f:a/b":{}}}}}`,
			pointers: []string{"/v/l/1/labels/a~1b"},
		},
		"a list of items": {
			want: `{"l":[]}`, object: `{"l":[{"name":"a"},{"name":"b"},{"name":"c"}]}`,
			ours:     `{"f:l":{"k:{\"name\":\"a\"}":{".":{},"f:name":{}},"k:{\"name\":\"b\"}":{"f:name":{},"f:x":{}},"k:{\"name\":\"c\"}":{".":{},"f:name":{}}}}`,
			others:   `{"f:l":{"k:{\"name\":\"b\"}":{".":{},"f:name":{}}}}`,
			pointers: []string{"/v/l/2", "/v/l/0"},
		},
		"a set":                         {want: `{"s":[]}`, object: `{"s":["a","b","c"]}`, ours: `{"f:s":{"v:\"a\"":{},"v:\"c\"":{}}}`, others: `{"f:s":{"v:\"b\"":{}}}`, pointers: []string{"/v/s/2", "/v/s/0"}},
		"a set of numbers":              {want: `{"s":[]}`, object: `{"s":[1,2]}`, ours: `{"f:s":{"v:1":{},"v:2":{}}}`, pointers: []string{"/v/s/1", "/v/s/0"}},
		"an atomic list":                {want: `{"s":[]}`, object: `{"s":["a"]}`, ours: `{"f:s":{}}`},
		"what its schema has lost":      {want: `{"m":{}}`, object: `{"m":{}}`, ours: `{"f:m":{"f:a":{}}}`},
		"a list that others hold whole": {want: `{"l":[]}`, object: `{"l":[{"name":"a"}]}`, ours: `{"f:l":{"k:{\"name\":\"a\"}":{".":{}}}}`, others: `{"f:l":{}}`, pointers: []string{"/v/l/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			parse := func(text string) (m map[string]any) {
				if text == "" {
					return nil
				}
				return object(t, `{"apiVersion":"v1","kind":"X","v":`+text+`}`).Object["v"].(map[string]any)
			}
			set := func(text string) fields.Set { return fields.Set{"f:v": parse(text)} }
			emptied := set(test.ours).Emptied(map[string]any{"v": parse(test.want)}, set(test.others))
			if got := emptied.Pointers(map[string]any{"v": parse(test.object)}, ""); !slices.Equal(got, test.pointers) {
				t.Errorf("Pointers %q of %v, want %q", got, emptied, test.pointers)
			}
		})
	}
}

// atomic is a schema with these atomic objects.
type atomic []string

func (a atomic) Atomic(path []string) bool { return slices.Contains(a, strings.Join(path, " ")) }

func TestOwn(t *testing.T) {
	for name, test := range map[string]struct {
		fields, value string
		want          bool
	}{
		"all there":              {`{"f:a":{},"f:b":{"f:c":{}}}`, `{"a":1,"b":{"c":2}}`, true},
		"more than asked":        {`{"f:a":{},"f:b":{}}`, `{"a":1}`, true},
		"field gone":             {`{"f:b":{}}`, `{"a":1,"b":1}`, false},
		"nested field gone":      {`{"f:b":{"f:d":{}}}`, `{"b":{"c":2,"d":1}}`, false},
		"nothing left":           {`{"f:b":{}}`, `{"b":{"c":2}}`, false},
		"atomic map":             {`{"f:ref":{}}`, `{"ref":{"c":2}}`, true},
		"atomic map in a list":   {`{"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:ref":{}}}}`, `{"l":[{"name":"x","ref":{"c":2}}]}`, true},
		"empty object":           {`{"f:b":{}}`, `{"b":{}}`, true},
		"null":                   {`{}`, `{"b":null}`, true},
		"atomic list":            {`{"f:l":{}}`, `{"l":[1,2]}`, true},
		"map list":               {`{"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:name":{},"f:p":{}}}}`, `{"l":[{"name":"x","p":1}]}`, true},
		"map list, field gone":   {`{"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}}}}`, `{"l":[{"name":"x","p":1}]}`, false},
		"map list, item gone":    {`{"f:l":{"k:{\"name\":\"x\"}":{".":{},"f:name":{}}}}`, `{"l":[{"name":"x"},{"name":"y"}]}`, false},
		"map list, numeric key":  {`{"f:l":{"k:{\"port\":80}":{".":{},"f:port":{}}}}`, `{"l":[{"port":80}]}`, true},
		"map list, two defaults": {`{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}},"k:{\"port\":80,\"protocol\":\"UDP\"}":{".":{},"f:port":{},"f:protocol":{}}}}`, `{"l":[{"port":80,"protocol":"UDP"},{"port":80}]}`, true},
		"set":                    {`{"f:l":{"v:\"a\"":{},"v:\"b\"":{}}}`, `{"l":["a","b"]}`, true},
		"set, item gone":         {`{"f:l":{"v:\"a\"":{}}}`, `{"l":["a","b"]}`, false},
		"map list, default key":  {`{"f:l":{"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{}}}}`, `{"l":[{"port":80}]}`, true},
		"map list, foreign item": {`{"f:l":{"k:{\"name\":\"x\"}":{"f:name":{}},"k:{\"name\":\"z\"}":{"f:name":{}}}}`, `{"l":[{"name":"x"}]}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			var set map[string]any
			if err := json.Unmarshal([]byte(test.fields), &set); err != nil {
				t.Fatal(err)
			}
			value := object(t, `{"apiVersion":"v1","kind":"X","v":`+test.value+`}`).Object["v"]
			if got := (fields.Set{"f:v": set}).Own(map[string]any{"v": value}, atomic{"v ref", "v l  ref"}); got != test.want {
				t.Errorf("Own = %t", got)
			}
		})
	}
}

// A list of a megabyte is gone through once, not once for each of its items: that takes half
// a minute.
func TestOwnLongList(t *testing.T) {
	const items = 20_000
	held, list := map[string]any{}, make([]any, items)
	for i := range items {
		held[fmt.Sprintf(`k:{"port":%d,"protocol":"TCP"}`, i)] = map[string]any{".": map[string]any{}, "f:port": map[string]any{}}
		list[i] = map[string]any{"port": int64(i)}
	}
	began := time.Now()
	if !(fields.Set{"f:v": map[string]any{"f:l": held}}).Own(map[string]any{"v": map[string]any{"l": list}}, nil) {
		t.Error("not owned")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a look at %d items took %v", items, took)
	}
}

// What is ours is taken off the entries of others, which keep the rest as it is.
func TestAlone(t *testing.T) {
	const marks = `{"f:metadata":{"f:annotations":{"f:example.org/mark":{}}}}`
	const ours = `{"f:metadata":{"f:annotations":{},"f:labels":{"f:team":{}}},"f:spec":{".":{},"f:size":{},"f:ports":{"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:port":{}}},"f:tags":{"v:\"a\"":{}}}}`
	for name, test := range map[string]struct{ theirs, left string }{
		"nothing shared": {`{"f:spec":{"f:late":{},"f:deep":{".":{},"f:x":{}}}}`, `{"f:spec":{"f:late":{},"f:deep":{".":{},"f:x":{}}}}`},
		"some shared": {
			`{"f:metadata":{"f:labels":{".":{},"f:team":{},"f:theirs":{}}},"f:spec":{".":{},"f:size":{},"f:late":{},"f:deep":{".":{},"f:x":{}},"f:ports":{".":{},"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:port":{},"f:extra":{}}},"f:tags":{"v:\"a\"":{},"v:\"b\"":{}}}}`,
			`{"f:metadata":{"f:labels":{".":{},"f:theirs":{}}},"f:spec":{".":{},"f:late":{},"f:deep":{".":{},"f:x":{}},"f:ports":{".":{},"k:{\"name\":\"http\"}":{".":{},"f:extra":{}}},"f:tags":{"v:\"b\"":{}}}}`,
		},
		"all shared":             {ours, ``},
		"an empty map of both":   {`{"f:metadata":{"f:annotations":{}}}`, ``},
		"a mark in a map":        {`{"f:metadata":{"f:annotations":{"f:example.org/mark":{},"f:theirs":{}}}}`, `{"f:metadata":{"f:annotations":{"f:theirs":{}}}}`},
		"a map as a whole":       {`{"f:metadata":{"f:labels":{}},"f:spec":{"f:size":{}}}`, `{"f:metadata":{"f:labels":{}}}`},
		"of a status, all of it": {`{"f:spec":{"f:size":{}},"f:status":{"f:phase":{}}}`, `{"f:status":{"f:phase":{}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(text string) (s fields.Set) {
				if err := json.Unmarshal([]byte(text), &s); err != nil {
					t.Fatal(err)
				}
				return s
			}
			entry := map[string]any{"manager": "theirs", "operation": "Update", "fieldsV1": map[string]any(set(test.theirs))}
			obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"managedFields": []any{entry}}}}
			var want []any
			if test.left != "" {
				want = []any{map[string]any{"manager": "theirs", "operation": "Update", "fieldsV1": map[string]any(set(test.left))}}
			}
			if diff := cmp.Diff(want, fields.Alone(obj, func(fields.Entry) bool { return true }, set(ours), set(marks))); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
}

// What no entry has is found as deep as maps go, and in no list that an entry has. Empty lists and maps
// can be claimed by no one.
func TestUnclaimed(t *testing.T) {
	leaf := map[string]any{}
	claims := fields.Set{"f:status": map[string]any{"f:phase": leaf, "f:used": map[string]any{"f:a": leaf}, "f:conditions": map[string]any{`k:{"type":"Ready"}`: leaf}, "f:whole": leaf}}
	status := map[string]any{
		"phase": "Ready", "note": "left", "used": map[string]any{"a": "1", "b": "2"}, "whole": map[string]any{"c": "3"},
		"conditions": []any{map[string]any{"type": "Ready"}, map[string]any{"type": "Audited"}}, "items": []any{}, "map": map[string]any{}, "none": nil,
	}
	want := fields.Set{"f:status": map[string]any{"f:note": leaf, "f:used": map[string]any{"f:b": leaf}}}
	if diff := cmp.Diff(want, claims.Unclaimed(map[string]any{"status": status})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What an object does not have is beyond it; of a list, and of what is owned as a whole, the parts are not looked at.
func TestBeyond(t *testing.T) {
	var owned map[string]any
	if err := json.Unmarshal([]byte(`{"f:data":{".":{},"f:a":{},"f:b":{}},"f:type":{},"f:l":{"k:{\"n\":1}":{"f:x":{}}},"f:gone":{"f:x":{}},"f:flat":{"f:x":{}}}`), &owned); err != nil {
		t.Fatal(err)
	}
	object := map[string]any{"data": map[string]any{"a": "1"}, "type": "Opaque", "l": []any{}, "flat": "text"}
	want := fields.Set{"f:data": map[string]any{"f:b": map[string]any{}}, "f:gone": map[string]any{}, "f:flat": map[string]any{"f:x": map[string]any{}}}
	if diff := cmp.Diff(want, fields.Set(owned).Beyond(object)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
