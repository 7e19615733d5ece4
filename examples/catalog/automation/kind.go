// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Manager is the field manager of every status the automation writes, and the value
// of the label app.kubernetes.io/managed-by on every object it makes.
const Manager = "data-services-automation"

const managedByLabel = "app.kubernetes.io/managed-by"

// Finalizer stands on a claim for as long as the object made for it may exist.
const Finalizer = "automation.anynines.com/made"

// A kind is one of the APIs of the catalog.
type kind struct {
	name, resource string
	suffix         string // of the object made for a claim; empty: none is made
}

// Managed is the content of status.managed.
type managed map[string]any

func kinds() []kind {
	out := []kind{
		{"ServiceBinding", "servicebindings", "-service-binding"},
		{"Backup", "backups", "-snapshot"},
		{"Restore", "restores", ""},
	}
	for _, p := range products {
		name := InstanceKind(p.serviceInstanceType)
		out = append(out, kind{name, strings.ToLower(name) + "s", "-state"})
	}
	return out
}

// kindOf returns the kind of that name or with that resource.
func kindOf(name string) (kind, bool) {
	for _, k := range kinds() {
		if k.name == name || k.resource == name {
			return k, true
		}
	}
	return kind{}, false
}

func (k kind) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: k.resource}
}

func (k kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "anynines.com", Version: "v1", Kind: k.name}
}

// A product is what a serviceInstanceType stands for.
type product struct {
	serviceInstanceType string
	scheme              string // of connection URIs, as are port and database
	port                string
	database            string
}

// products are all that is on offer; the rights to them are in roles/1-automation.yaml.
var products = []product{
	{"postgresql", "postgresql", "5432", "main"},
	{"keyvalue", "rediss", "6379", "0"},
}

// InstanceKind returns the kind of the instances of a serviceInstanceType, such as KeyvalueInstance of keyvalue.
func InstanceKind(serviceInstanceType string) string {
	return strings.ToUpper(serviceInstanceType[:1]) + serviceInstanceType[1:] + "Instance"
}

// Offered are the serviceInstanceTypes that the automation carries out.
func Offered() (out []string) {
	for _, p := range products {
		out = append(out, p.serviceInstanceType)
	}
	return out
}

// A claim is an object that a developer ordered.
type claim struct {
	kind
	*unstructured.Unstructured
}

// Text returns the string at path, empty if there is none.
func (c claim) text(path ...string) string {
	s, _, _ := unstructured.NestedString(c.Object, path...)
	return s
}

func (c claim) state() State { return State(c.text("status", "managed", "state")) }

func (c claim) madeName() string { return c.GetName() + c.suffix }

// madeMeta is the metadata of the object made for c.
func (c claim) madeMeta() metav1.ObjectMeta {
	controller := true
	return metav1.ObjectMeta{
		Name: c.madeName(), Namespace: c.GetNamespace(),
		Labels:      map[string]string{managedByLabel: Manager},
		Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: c.gvk().GroupVersion().String(), Kind: c.name,
			Name: c.GetName(), UID: c.GetUID(), Controller: &controller,
		}},
	}
}
