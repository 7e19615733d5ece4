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

// Of maps that are to be empty just what is held, and by nobody else, is taken away.
func TestEmptied(t *testing.T) {
	want := map[string]any{"spec": map[string]any{"size": "small", "backup": map[string]any{}, "new": map[string]any{}}}
	held := fields.Set{"f:spec": map[string]any{"f:size": map[string]any{}, "f:backup": map[string]any{
		".": map[string]any{}, "f:hour": map[string]any{}, "f:to": map[string]any{"f:bucket": map[string]any{}, "f:key": map[string]any{}},
	}}}
	others := fields.Set{"f:spec": map[string]any{"f:backup": map[string]any{"f:to": map[string]any{"f:key": map[string]any{}}}}}
	nothing := map[string]any{"spec": map[string]any{"backup": map[string]any{"hour": nil, "to": map[string]any{"bucket": nil}}}}
	if diff := cmp.Diff(nothing, held.Emptied(want, others)); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	alone := map[string]any{"spec": map[string]any{"backup": map[string]any{}}}
	if patch := (fields.Set{"f:spec": map[string]any{"f:backup": map[string]any{}}}).Emptied(alone, nil); len(patch) > 0 {
		t.Errorf("a map that was empty before is emptied: %v", patch)
	}
	list := fields.Set{"f:spec": map[string]any{"f:backup": map[string]any{"f:to": map[string]any{`k:{"name":"x"}`: map[string]any{"f:key": map[string]any{}}}}}}
	shared := fields.Set{"f:spec": map[string]any{"f:backup": map[string]any{"f:to": map[string]any{}}}}
	if patch := list.Emptied(alone, shared); len(patch) > 0 {
		t.Errorf("items of a shared list are named in a merge patch: %v", patch)
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
