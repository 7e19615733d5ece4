// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestChanged: what vanishes at rest was written, as what is made and what is changed.
func TestChanged(t *testing.T) {
	before := map[string]string{"a": "1", "b": "1", "c": "1"}
	after := map[string]string{"a": "1", "b": "2", "d": "1"}
	want := []string{"b: 1, then 2", "c: 1, then none", "d: none, then 1"}
	if have := changed(before, after); !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
}

// TestOfferedAgain: on clusters that stay, the next run finds the offers of the one before.
func TestOfferedAgain(t *testing.T) {
	s := &Stack{Control: cluster.ForTest(t, "control-plane"), Dir: tempdir.ForTest(t, "stack")}
	s.App = s.Control
	var types []*unstructured.Unstructured
	for _, crd := range v1alpha1.CRDs() {
		types = append(types, crd)
	}
	if err := errors.Join(Build(t.Context(), filepath.Join(s.Dir, "bin")), Apply(t.Context(), s.Control, types...)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.offer(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
