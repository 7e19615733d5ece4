// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// Reserved are groups that no provider may define kinds of, nor in their subdomains.
var Reserved = [...]string{"k8s.io", "kubernetes.io", v1alpha1.GroupVersion.Group}

// CheckGroup refuses the groups of Kubernetes itself and of Klutch.
func CheckGroup(group string) error {
	if !strings.Contains(group, ".") {
		return fmt.Errorf("group %q is one of Kubernetes itself", group)
	}
	for _, r := range Reserved {
		if group == r || strings.HasSuffix(group, "."+r) {
			return fmt.Errorf("group %q is reserved", group)
		}
	}
	return nil
}

const (
	// maxSchema is the size of all versions together: what etcd takes, with room for
	// the rest.
	maxSchema = 1 << 20
	// maxNested is how deep objects and lists of a schema are nested, of which a field takes two: to
	// compare and name a field costs as much as it is deep.
	maxNested = 200
)

// checkExport holds what comes from the other side against the binding that the
// App Cluster's owner agreed to.
func checkExport(binding string, spec *v1alpha1.APIServiceExportSpec) error {
	resource := schema.GroupResource{Group: spec.Group, Resource: spec.Names.Plural}
	switch {
	case resource.String() != binding:
		return fmt.Errorf("it is about %s, the binding about %s", resource, binding)
	case spec.Names.Kind == "":
		return errors.New("it names no kind")
	case spec.Scope != v1alpha1.NamespacedScope && spec.Scope != v1alpha1.ClusterScope:
		return fmt.Errorf("scope %q is neither Namespaced nor Cluster", spec.Scope)
	case spec.Scope == v1alpha1.ClusterScope && !isolates(spec.ClusterScopedIsolation):
		return fmt.Errorf("clusterScopedIsolation %q is not supported, only Prefixed and Namespaced are", spec.ClusterScopedIsolation)
	}
	if err := CheckGroup(spec.Group); err != nil {
		return err
	}
	return checkVersions(spec.Versions)
}

// isolates reports whether objects can be synced under it.
func isolates(i v1alpha1.Isolation) bool {
	return i == v1alpha1.IsolationPrefixed || i == v1alpha1.IsolationNamespaced
}

func checkVersions(versions []v1alpha1.APIServiceExportVersion) error {
	served, stored, size := 0, 0, 0
	names := map[string]bool{}
	for _, v := range versions {
		if names[v.Name] {
			return fmt.Errorf("version %q is there twice", v.Name)
		}
		names[v.Name] = true
		size += len(v.Schema.OpenAPIV3Schema.Raw)
		if depthOf(v.Schema.OpenAPIV3Schema.Raw) > maxNested {
			return fmt.Errorf("its schema is nested deeper than %d", maxNested)
		}
		if v.Served {
			served++
		}
		if v.Storage {
			stored++
		}
	}
	switch {
	case served == 0:
		return errors.New("no version is served")
	case stored != 1:
		return fmt.Errorf("%d versions are the storage version, not one", stored)
	case size > maxSchema:
		return fmt.Errorf("its schemas have %d bytes, more than %d", size, maxSchema)
	}
	return nil
}

// depthOf is how deep JSON is, up to one more than maxNested.
func depthOf(data []byte) (deepest int) {
	decoder, depth := json.NewDecoder(bytes.NewReader(data)), 0
	for deepest <= maxNested {
		token, err := decoder.Token()
		if err != nil {
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return deepest
}
