// SPDX-License-Identifier: Apache-2.0

package automation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// Resync looks at every claim again from time to time, for what no watch reports:
// a name that was taken and now is free.
const resync = 5 * time.Minute

// References is the index of claims by the claims that they refer to.
const references = "references"

// madeInformers tell of changes to the objects that the automation made. They hold
// no content.
func madeInformers(client metadata.Interface) []cache.SharedIndexInformer {
	ours := func(o *metav1.ListOptions) { o.LabelSelector = managedByLabel + "=" + Manager }
	var out []cache.SharedIndexInformer
	for _, resource := range []string{"configmaps", "secrets"} {
		gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
		out = append(out, metadatainformer.NewFilteredMetadataInformer(client, gvr, metav1.NamespaceAll, 0, cache.Indexers{}, ours).Informer())
	}
	return out
}

// referencesOf is the index function of references.
func referencesOf(obj any) ([]string, error) {
	u, err := unstructuredOf(obj)
	if err != nil {
		return nil, err
	}
	c := claim{Unstructured: u}
	var out []string
	if ref := c.text("spec", "backupRef"); ref != "" {
		out = append(out, indexKey("backups", c.GetNamespace(), ref))
	}
	k, ok := kindOf(c.text("spec", "serviceInstanceType") + "instances")
	if ref := c.text("spec", "instanceRef"); ok && ref != "" {
		out = append(out, indexKey(k.resource, c.GetNamespace(), ref))
	}
	return out, nil
}

func indexKey(resource, namespace, name string) string {
	return resource + "/" + namespace + "/" + name
}

// Watch queues a claim when it changes, when its object changes, and when
// a claim that it refers to changes.
func (a *automation) watch() error {
	for resource, inf := range a.world.claims {
		if _, err := inf.AddEventHandler(each(func(o metav1.Object) {
			a.add(key{resource, cache.MetaObjectToName(o)})
		})); err != nil {
			return err
		}
	}
	for _, inf := range a.made {
		if _, err := inf.AddEventHandler(each(a.addOwner)); err != nil {
			return err
		}
	}
	return nil
}

// Add queues a claim and the claims that refer to it.
func (a *automation) add(k key) {
	a.queue.Add(k)
	for resource, inf := range a.world.claims {
		referring, err := inf.GetIndexer().ByIndex(references, indexKey(k.resource, k.Namespace, k.Name))
		if err != nil { // cannot be: claimInformers made the index
			panic(err)
		}
		for _, obj := range referring {
			if o, ok := obj.(metav1.Object); ok {
				a.add(key{resource, cache.MetaObjectToName(o)})
			}
		}
	}
}

func (a *automation) addOwner(o metav1.Object) {
	owner := metav1.GetControllerOf(o)
	if owner == nil {
		return
	}
	if k, ok := kindOf(owner.Kind); ok {
		a.add(key{k.resource, cache.NewObjectName(o.GetNamespace(), owner.Name)})
	}
}

// Each calls fn for everything that an informer reports.
func each(fn func(metav1.Object)) cache.ResourceEventHandler {
	handle := func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		if o, ok := obj.(metav1.Object); ok {
			fn(o)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: handle, UpdateFunc: func(_, obj any) { handle(obj) }, DeleteFunc: handle,
	}
}
