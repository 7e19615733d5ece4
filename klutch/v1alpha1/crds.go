// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed crds/*.yaml
var crds embed.FS

// CRDs returns the CustomResourceDefinitions of the stored kinds, apiextensions/v1,
// by name. The caller owns them.
func CRDs() map[string]*unstructured.Unstructured {
	all := map[string]*unstructured.Unstructured{}
	files, _ := fs.Glob(crds, "crds/*.yaml")
	for _, f := range files {
		u, err := readCRD(f)
		if err != nil {
			panic(err) // embedded at build time and read by a test
		}
		all[u.GetName()] = u
	}
	return all
}

func readCRD(file string) (*unstructured.Unstructured, error) {
	data, err := crds.ReadFile(file)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(data, &u.Object); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	return u, nil
}
