// SPDX-License-Identifier: Apache-2.0

package yardstick

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// spaces are the service namespaces of a tenant, by the namespace of the App Cluster. Nil is
// what an administrator has: any namespace, of a name that begins with prefix.
type spaces map[string]string

const prefix = "ideal-"

// spacesOf reads those of a tenant, which is empty for an administrator.
func spacesOf(ctx context.Context, control dynamic.Interface, tenant string) (s spaces, err error) {
	if tenant == "" {
		return s, nil
	}
	list, err := control.Resource(v1alpha1.Resource("apiservicenamespaces")).Namespace(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("service namespaces: %w", err)
	}
	s = spaces{}
	for _, u := range list.Items {
		if name, _, _ := unstructured.NestedString(u.Object, "status", "namespace"); name != "" {
			s[u.GetName()] = name
		}
	}
	return s, nil
}

// watched is where the objects of the Control Plane Cluster are watched: by a tenant in each service namespace.
func (s spaces) watched(c dynamic.NamespaceableResourceInterface) (all []dynamic.ResourceInterface) {
	if s == nil {
		return append(all, c)
	}
	for _, space := range s {
		all = append(all, c.Namespace(space))
	}
	return all
}

// target is the namespace of the Control Plane Cluster that belongs to one of the App Cluster.
func (s spaces) target(source string) (string, error) {
	if s == nil {
		return prefix + source, nil
	}
	if space, ok := s[source]; ok {
		return space, nil
	}
	return "", fmt.Errorf("namespace %s has no service namespace", source)
}

// source is the namespace of the App Cluster that belongs to one of the Control Plane Cluster, if one does.
func (s spaces) source(target string) (source string, ours bool) {
	if s == nil {
		return strings.CutPrefix(target, prefix)
	}
	for source, space := range s {
		if space == target {
			return source, true
		}
	}
	return "", false
}
