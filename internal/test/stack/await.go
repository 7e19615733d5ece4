// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// An Object is one object of one cluster, there or not.
type Object struct {
	Cluster   *cluster.Cluster
	Resource  schema.GroupVersionResource
	Namespace string // empty for cluster-scoped objects
	Name      string
}

// String names the object for people: "postgresqlinstances shop/db".
func (o Object) String() string {
	if o.Namespace == "" {
		return fmt.Sprintf("%s %s", o.Resource.Resource, o.Name)
	}
	return fmt.Sprintf("%s %s/%s", o.Resource.Resource, o.Namespace, o.Name)
}

// Client reads and writes objects of o's resource and namespace as the administrator.
func (o Object) Client() (dynamic.ResourceInterface, error) {
	config := o.Cluster.Config()
	config.QPS = -1
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if o.Namespace == "" {
		return dyn.Resource(o.Resource), nil
	}
	return dyn.Resource(o.Resource).Namespace(o.Namespace), nil
}

// Get reads the object.
func (o Object) Get(ctx context.Context) (*unstructured.Unstructured, error) {
	c, err := o.Client()
	if err != nil {
		return nil, err
	}
	return c.Get(ctx, o.Name, metav1.GetOptions{})
}

// A Condition says whether an object is as it should be. It gets nil for an object
// that is not there.
type Condition func(u *unstructured.Unstructured) bool

// Gone holds for an object that is not there.
func Gone(u *unstructured.Unstructured) bool { return u == nil }

// There holds for an object that is there.
func There(u *unstructured.Unstructured) bool { return u != nil }

// Field holds when the field at path has the value.
func Field(value any, path ...string) Condition {
	return func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		got, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		return got == value
	}
}

// True holds when the object has a condition of the type with status True.
func True(conditionType string) Condition {
	return func(u *unstructured.Unstructured) bool {
		if u == nil {
			return false
		}
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range all {
			if m, ok := c.(map[string]any); ok && m["type"] == conditionType {
				return m["status"] == "True"
			}
		}
		return false
	}
}

// Await watches until the condition holds, and returns the object as it was then.
// The error of a wait in vain tells how the object was last seen.
func (o Object) Await(ctx context.Context, patience time.Duration, cond Condition) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not within %s", patience))
	defer cancel()
	c, err := o.Client()
	if err != nil {
		return nil, err
	}
	var last *unstructured.Unstructured
	for {
		done, err := o.follow(ctx, c, cond, &last)
		switch {
		case done:
			return last, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%s in %s: %w; last seen:\n%s", o, o.Cluster.Name(), errors.Join(context.Cause(ctx), err), describe(last))
		}
		select { // the API server may be away for a while
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// follow watches until the condition holds or the watch ends.
func (o Object) follow(ctx context.Context, c dynamic.ResourceInterface, cond Condition, last **unstructured.Unstructured) (bool, error) {
	one := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", o.Name).String()}
	list, err := c.List(ctx, one)
	if apierrors.IsNotFound(err) { // the resource itself is not there
		*last = nil
		return cond(nil), nil
	}
	if err != nil {
		return false, err
	}
	*last = nil
	if len(list.Items) > 0 {
		*last = &list.Items[0]
	}
	if cond(*last) {
		return true, nil
	}
	one.ResourceVersion = list.GetResourceVersion()
	w, err := c.Watch(ctx, one)
	if err != nil {
		return false, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if !ok {
			return false, nil
		}
		if *last = u; e.Type == watch.Deleted {
			*last = nil
		}
		if cond(*last) {
			return true, nil
		}
	}
	return false, nil
}

func describe(u *unstructured.Unstructured) string {
	if u == nil {
		return "  (not there)"
	}
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(u.Object, "data")
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
