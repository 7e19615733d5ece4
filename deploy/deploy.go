// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the manifests of the backend and of the konnector: plain
// YAML in the folders beside this file, for kubectl and Kustomize as much as for
// programs that install them.
//
//	for _, object := range deploy.Konnector("example.org/konnector:v1.2.0") {
//		// apply object to the App Cluster, in this order
//	}
package deploy

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed backend/*.yaml konnector/*.yaml adoption/*.yaml prefixed/*.yaml klutch-konnectors/*.yaml
var files embed.FS

// image stands in the manifests for that of the program.
const image = "IMAGE"

// Backend returns what runs the backend in the Control Plane Cluster with the given
// image, the namespace first.
func Backend(image string) []*unstructured.Unstructured { return objects("backend", image) }

// Konnector returns what runs the konnector in the App Cluster with the given image,
// the namespace first.
func Konnector(image string) []*unstructured.Unstructured { return objects("konnector", image) }

// Adoption returns what lets the backend adopt tenants of Klutch's backend.
func Adoption() []*unstructured.Unstructured { return objects("adoption", "") }

// Prefixed returns what lets the backend offer cluster-scoped APIs of these names,
// "<resource>.<group>": the objects that all of them share, and the objects of each.
func Prefixed(apis ...string) (all []*unstructured.Unstructured) {
	all = read("prefixed/prefixed.yaml", strings.NewReplacer())
	for _, api := range apis {
		plural, group, _ := strings.Cut(api, ".")
		all = append(all, read("prefixed/kind.yaml", strings.NewReplacer("PLURAL", plural, "GROUP", group))...)
	}
	return all
}

// KlutchKonnectors returns what lets the backend have every tenant use Klutch's konnector.
func KlutchKonnectors() []*unstructured.Unstructured { return objects("klutch-konnectors", "") }

// objects reads a folder. The files are part of the program, so that one that cannot
// be read is a mistake of ours: it panics.
func objects(folder, program string) (all []*unstructured.Unstructured) {
	names, err := fs.Glob(files, folder+"/*.yaml")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		all = append(all, read(name, strings.NewReplacer("image: "+image, "image: "+program))...)
	}
	slices.SortStableFunc(all, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return all
}

// read reads a file, with the words replaced that stand for others.
func read(name string, words *strings.Replacer) (all []*unstructured.Unstructured) {
	data, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(words.Replace(doc)), &u.Object); err != nil {
			panic(fmt.Errorf("%s: %w", name, err))
		}
		if u.GetKind() != "Kustomization" && len(u.Object) > 0 {
			all = append(all, u)
		}
	}
	return all
}

func rank(u *unstructured.Unstructured) int {
	if u.GetKind() == "Namespace" {
		return 0
	}
	return 1
}
