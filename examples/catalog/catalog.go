// SPDX-License-Identifier: Apache-2.0

// Package catalog is an example of what a platform team puts into its Control
// Plane Cluster to offer data services: the APIs themselves, the templates that
// offer them, the rights that go with them, and sample claims to hand to developers.
//
//	for _, object := range slices.Concat(catalog.CRDs(), catalog.Roles(), catalog.Templates()) {
//		// apply object to the Control Plane Cluster, in this order
//	}
//
// Everything is plain YAML in the folders beside this file, for kubectl as much as
// for Go. Package automation carries out the claims.
package catalog

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Namespace holds the templates and the automation's service account.
const Namespace = "data-services"

//go:embed crds templates roles services claims orders application
var files embed.FS

// CRDs returns the CustomResourceDefinitions of the data services.
func CRDs() []*unstructured.Unstructured { return objects("crds") }

// Templates returns the APIServiceExportTemplates that offer the data services.
func Templates() []*unstructured.Unstructured { return objects("templates") }

// Roles returns the namespace of the catalog, the automation's service account and
// rights, the rights that the backend passes on to tenants, and the role of people
// who may bind.
func Roles() []*unstructured.Unstructured { return objects("roles") }

// Services returns what a service broker or another automation of yours offers besides
// PostgreSQL and key value: of each data service its CRD, its template and the rights
// that the backend passes on to tenants.
func Services() []*unstructured.Unstructured { return objects("services") }

// Orders returns, for each data service but PostgreSQL, an instance and a binding to it,
// without a namespace.
func Orders() []*unstructured.Unstructured { return objects("orders") }

// Claims returns one claim of each kind that the README shows, without a
// namespace: an instance, a binding to it, a backup of it, and a restore.
func Claims() []*unstructured.Unstructured { return objects("claims") }

// Application returns a Deployment with the credentials of the sample ServiceBinding in
// its environment.
func Application() []*unstructured.Unstructured { return objects("application") }

// Objects returns the objects of one folder, by file name and then by place in the
// file. The files are part of the program, so that one that cannot be read is a
// mistake of ours: it panics.
func objects(folder string) []*unstructured.Unstructured {
	names, err := fs.Glob(files, folder+"/*.yaml")
	if err != nil {
		panic(err)
	}
	var out []*unstructured.Unstructured
	for _, name := range names {
		data, err := files.ReadFile(name)
		if err != nil {
			panic(err)
		}
		out = append(out, decode(name, data)...)
	}
	return out
}

func decode(name string, data []byte) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		object := &unstructured.Unstructured{}
		text, err := yaml.YAMLToJSON(document)
		if err == nil {
			err = object.UnmarshalJSON(text) // with whole numbers, as an API server reads them
		}
		if err != nil {
			panic(fmt.Sprintf("%s: %v", name, err))
		}
		out = append(out, object)
	}
	return out
}
