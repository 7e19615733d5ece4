// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// store answers with objects, page by page, or with an error.
type store struct {
	specs []map[string]any
	err   error
}

func (s store) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, from := &unstructured.UnstructuredList{}, 0
	_, _ = fmt.Sscan(opts.Continue, &from)
	for i := from; i < len(s.specs); i++ {
		if int64(len(list.Items)) == opts.Limit {
			list.SetContinue(fmt.Sprint(i))
			break
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "a"}, "spec": s.specs[i],
		}})
	}
	return list, s.err
}

func TestKeptRules(t *testing.T) {
	api := func(rule string) string {
		return "type: object, properties: {service: {type: string, maxLength: 20}, plan: {type: string, default: small, maxLength: 20}, " +
			"all: {type: array, maxItems: 900, items: {type: string, maxLength: 20}}}, x-kubernetes-validations: [" + rule + "]"
	}
	many := make([]map[string]any, maxJudged+1)
	for i := range many {
		many[i] = map[string]any{"service": "pg15"}
	}
	large := map[string]any{"service": "pg15", "all": []any{}}
	for range 900 {
		large["all"] = append(large["all"].([]any), "x")
	}
	last := append(append([]map[string]any{}, many[:page+1]...), map[string]any{"service": "mysql"})
	for name, test := range map[string]struct {
		rule string
		in   store
		held bool
	}{
		"nothing is there":                 {"{rule: \"self.service in ['pg15', 'pg17']\"}", store{}, false},
		"one more in an enumeration":       {"{rule: \"self.service in ['pg15', 'pg17']\"}", store{specs: many[:3]}, false},
		"one that is there is left out":    {"{rule: \"self.service in ['pg17']\"}", store{specs: many[:3]}, true},
		"one of the second page":           {"{rule: \"self.service in ['pg15', 'pg17']\"}", store{specs: last}, true},
		"immutable, which no object tells": {"{rule: \"self.service == oldSelf.service\"}", store{specs: many[:3]}, true},
		"about a field that has a default": {"{rule: \"self.plan == 'small'\"}", store{specs: many[:3]}, false},
		"no CEL":                           {"{rule: \"self.service ===\"}", store{specs: many[:3]}, true},
		"too many":                         {"{rule: \"self.service in ['pg15', 'pg17']\"}", store{specs: many}, true},
		"unreadable":                       {"{rule: \"self.service in ['pg15', 'pg17']\"}", store{err: errors.New("no")}, true},
		"too costly":                       {"{rule: \"self.all.all(a, self.all.all(b, self.all.all(c, a == b || c == a)))\"}", store{specs: []map[string]any{large}}, true},
	} {
		before, after := apiOf(api("{rule: \"self.service in ['pg15']\"}")), apiOf(api(test.rule))
		changes := Only(Compare(before, after), Change.Breaking)
		if len(changes) != 1 || changes[0].Effect != Ruled && !strings.Contains(test.rule, "oldSelf") {
			t.Fatalf("%s: %v", name, changes)
		}
		if held := len(DropKeptRules(t.Context(), changes, after, test.in)) > 0; held != test.held {
			t.Errorf("%s: held %v, want %v", name, held, test.held)
		}
	}
	others := []Change{{Effect: Removed, What: "version v1 is gone"}, {Effect: Ruled}}
	if got := DropKeptRules(t.Context(), others, apiOf(api("{rule: \"true\"}")), store{}); len(got) != 1 || !strings.Contains(List(got), "v1 is gone") {
		t.Errorf("left: %v", got)
	}
}

// large answers with as many objects as there may be, each as large as an API server stores one. It notes how
// large an answer was at most.
type large struct {
	count, most int
	text        string
}

func (l *large) List(_ context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error) {
	list, from := &unstructured.UnstructuredList{}, 0
	_, _ = fmt.Sscan(opts.Continue, &from)
	to := min(l.count, from+int(opts.Limit))
	for range to - from {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "spec": map[string]any{"plan": "small", "text": l.text}}})
	}
	if to < l.count {
		list.SetContinue(fmt.Sprint(to))
	}
	l.most = max(l.most, (to-from)*len(l.text))
	return list, nil
}

// Who makes objects decides how large they are: an answer that has them does not take the memory of a program
// that has 512 MB.
func TestP8JudgedObjectsAreLarge(t *testing.T) {
	api := func(rule string) string {
		return "type: object, properties: {plan: {type: string, maxLength: 20}, text: {type: string}}, x-kubernetes-validations: [" + rule + "]"
	}
	before, after := apiOf(api("{rule: \"self.plan in ['small']\"}")), apiOf(api("{rule: \"self.plan in ['small', 'large']\"}"))
	objects := &large{count: 1000, text: strings.Repeat("x", 3<<19)}
	if held := DropKeptRules(t.Context(), Only(Compare(before, after), Change.Breaking), after, objects); len(held) > 0 {
		t.Errorf("held: %s", List(held))
	}
	if objects.most > 16<<20 {
		t.Errorf("an answer had %d MB", objects.most>>20)
	}
}
