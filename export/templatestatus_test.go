// SPDX-License-Identifier: Apache-2.0

package export

import (
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A template of another group carries no condition of ours. The log says once what it lacks,
// and again when that is something else, or when it comes back.
func TestForeignTemplateIsLoggedOnce(t *testing.T) {
	lines := 0
	ctx := logr.NewContext(t.Context(), funcr.New(func(string, string) { lines++ }, funcr.Options{}))
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example-backend.klutch.anynines.com/v1alpha1", "kind": "APIServiceExportTemplate",
		"metadata": map[string]any{"name": "widgets", "uid": "1"},
	}}
	broken := func(message string) v1alpha1.Condition {
		return v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityError, v1alpha1.ReasonSchemaMissing, message)
	}
	c := &control{}
	for i, step := range []struct {
		ready v1alpha1.Condition
		lines int
	}{{broken("no CRD"), 1}, {broken("no CRD"), 1}, {broken("another one"), 2}, {v1alpha1.True(v1alpha1.ConditionReady), 2}, {broken("another one"), 3}} {
		if err := c.noteTemplate(ctx, u, step.ready); err != nil || lines != step.lines {
			t.Errorf("after look %d: %d lines, want %d, %v", i, lines, step.lines, err)
		}
	}
}
