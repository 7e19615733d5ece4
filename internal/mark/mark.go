// SPDX-License-Identifier: Apache-2.0

// Package mark records, on an object of our own side, the binding that it was
// made for. An owner reference would make the garbage collector delete what a binding
// leaves behind, or, where the binding is namespaced and the object is not, report it.
package mark

import (
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// An Owner is one incarnation of a binding.
type Owner struct {
	cache.ObjectName
	UID types.UID
}

// Of returns the Owner that o itself is.
func Of(o metav1.Object) Owner { return Owner{cache.MetaObjectToName(o), o.GetUID()} }

// Put marks o as made for owner.
func Put(o metav1.Object, owner Owner) {
	annotations := map[string]string{}
	maps.Copy(annotations, o.GetAnnotations())
	annotations[v1alpha1.BindingAnnotation] = owner.Namespace + "/" + owner.Name + "/" + string(owner.UID)
	o.SetAnnotations(annotations)
}

// Get returns the Owner that o was made for, if it is marked.
func Get(o metav1.Object) (owner Owner, ok bool) {
	parts := strings.Split(o.GetAnnotations()[v1alpha1.BindingAnnotation], "/")
	if len(parts) != 3 || parts[1] == "" || parts[2] == "" {
		return Owner{}, false
	}
	return Owner{cache.NewObjectName(parts[0], parts[1]), types.UID(parts[2])}, true
}
