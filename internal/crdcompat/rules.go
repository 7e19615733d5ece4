// SPDX-License-Identifier: Apache-2.0

package crdcompat

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// What judging the rules of one API may cost, in the units of API servers: a second's
// work is 10 million. A schema is a stranger's, and so are its rules.
const (
	callLimit  = 1_000_000
	costBudget = 30_000_000

	maxJudged = 2000 // objects
	// page is how many objects are held at once. A tenant that makes them decides that each has 1.5 MB, as much as an API
	// server stores of one, and takes up to ten times that once it is decoded.
	page = 5
)

// A Lister lists objects that exist, of one namespace or of all.
type Lister interface {
	List(ctx context.Context, opts metav1.ListOptions) (*unstructured.UnstructuredList, error)
}

// DropKeptRules drops from changes what is new about rules if all objects that exist keep all
// rules of after. The text of a rule does not tell whether it is wider than another one. What
// cannot be read or judged, or costs too much, leaves changes as they are.
func DropKeptRules(ctx context.Context, changes []Change, after *v1alpha1.APIServiceExportCRDSpec, objects ...Lister) []Change {
	if !slices.ContainsFunc(changes, func(c Change) bool { return c.Effect == Ruled }) {
		return changes
	}
	judges, err := newJudges(after)
	if err != nil {
		return changes
	}
	seen, budget := 0, int64(costBudget)
	for _, in := range objects {
		for opts := (metav1.ListOptions{Limit: page}); ; {
			list, err := in.List(ctx, opts)
			if seen += listed(list); err != nil || seen > maxJudged {
				return changes
			}
			for i := range list.Items {
				if !keeps(ctx, judges, &list.Items[i], &budget) {
					return changes
				}
			}
			if opts.Continue = list.GetContinue(); opts.Continue == "" {
				break
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(changes), func(c Change) bool { return c.Effect == Ruled })
}

func listed(list *unstructured.UnstructuredList) int {
	if list == nil {
		return 0
	}
	return len(list.Items)
}

// A judge evaluates the rules of one version as API servers do.
type judge struct {
	schema *structural.Structural
	rules  *cel.Validator // nil if there are none
}

func newJudges(spec *v1alpha1.APIServiceExportCRDSpec) (all []judge, err error) {
	for _, v := range spec.Versions {
		props, whole := &apiextensionsv1.JSONSchemaProps{}, &apiextensions.JSONSchemaProps{}
		if err := json.Unmarshal(v.Schema.OpenAPIV3Schema.Raw, props); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", v.Name, err)
		}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(props, whole, nil); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", v.Name, err)
		}
		schema, err := structural.NewStructural(whole)
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", v.Name, err)
		}
		all = append(all, judge{schema, cel.NewValidator(schema, true, callLimit)})
	}
	return all, nil
}

// keeps reports whether an object that does not change keeps the rules of all versions.
func keeps(ctx context.Context, judges []judge, u *unstructured.Unstructured, budget *int64) bool {
	for _, j := range judges {
		if j.rules == nil {
			continue
		}
		object := runtime.DeepCopyJSON(u.Object)
		defaulting.Default(object, j.schema)
		errs, left := j.rules.Validate(ctx, nil, j.schema, object, object, *budget)
		if *budget = left; len(errs) > 0 || left < 0 {
			return false
		}
	}
	return true
}
