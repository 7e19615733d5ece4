// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/stack"
)

//go:embed widgets.yaml
var offer string

// The resources of the benchmark differ in nothing but their names.
const (
	group   = "bench.example.org"
	version = "v1"

	widgets = "widgets"
	gadgets = "gadgets" // has a binding of its own
	gizmos  = "gizmos"  // is not bound
)

// bound are the resources that have bindings.
func bound() (all []schema.GroupVersionResource) {
	for _, resource := range []string{widgets, gadgets} {
		all = append(all, schema.GroupVersionResource{Group: group, Version: version, Resource: resource})
	}
	return all
}

// kindFor is the kind of a resource.
func kindFor(resource string) string {
	return strings.ToUpper(resource[:1]) + strings.TrimSuffix(resource[1:], "s")
}

// offered are a CRD and what it takes to offer it.
func offered(resource string) ([]*unstructured.Unstructured, error) {
	singular := strings.TrimSuffix(resource, "s")
	return manifests(strings.NewReplacer("widget", singular, "Widget", kindFor(resource)).Replace(offer))
}

// manifests are the objects of a text in YAML.
func manifests(text string) (objects []*unstructured.Unstructured, err error) {
	for doc := range strings.SplitSeq(text, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			return nil, fmt.Errorf("manifest: %w", err)
		}
		objects = append(objects, u)
	}
	return objects, nil
}

// bindAll offers the APIs and binds them, as a platform team and a developer would.
func bindAll(ctx context.Context, s *stack.Stack) error {
	var args []string
	for _, r := range bound() {
		objects, err := offered(r.Resource)
		if err != nil {
			return err
		}
		if err := stack.Apply(ctx, s.Control, objects...); err != nil {
			return err
		}
		args = append(args, "--service", r.GroupResource().String())
	}
	if out := s.Bind(ctx, stack.Developer, args...); out.Code != 0 {
		return fmt.Errorf("kubectl bind ended with exit code %d:\n%s", out.Code, out.Stderr)
	}
	unbound, err := offered(gizmos)
	if err != nil {
		return err
	}
	return stack.Apply(ctx, s.App, unbound[0])
}
