// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
)

// An outcome is what an API server answers to a deletion.
type outcome struct {
	left *unstructured.Unstructured // the object as it stays for now; nil if that is not known
	gone types.UID                  // of the object that is no more; empty if that is not known
}

// An answerer is a dynamic client that tells what the API server answers to a
// deletion.
type answerer interface {
	DeleteAnswer(ctx context.Context, name string, options metav1.DeleteOptions) (*unstructured.Unstructured, error)
}

// delete deletes an object. The dynamic client keeps to itself what the API server
// answers, which spares a look: beside it goes a request of our own.
func (c *Cluster) delete(ctx context.Context, resource schema.GroupVersionResource, name cache.ObjectName, options metav1.DeleteOptions) (outcome, error) {
	client := c.writes.Resource(resource).Namespace(name.Namespace)
	if client, ok := client.(answerer); ok {
		answer, err := client.DeleteAnswer(ctx, name.Name, options)
		return outcomeOf(answer), err
	}
	if c.raw != nil {
		answer, err := c.deleteRaw(ctx, resource, name, options)
		return outcomeOf(answer), err
	}
	return outcome{}, client.Delete(ctx, name.Name, options)
}

func (c *Cluster) deleteRaw(ctx context.Context, resource schema.GroupVersionResource, name cache.ObjectName, options metav1.DeleteOptions) (*unstructured.Unstructured, error) {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	path := []string{"apis", resource.Group, resource.Version}
	if resource.Group == "" {
		path = []string{"api", resource.Version}
	}
	if name.Namespace != "" {
		path = append(path, "namespaces", name.Namespace)
	}
	result := c.raw.Delete().AbsPath(append(path, resource.Resource, name.Name)...).
		SetHeader("Accept", runtime.ContentTypeJSON).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	answer := &unstructured.Unstructured{}
	data, err := result.Raw()
	if err == nil {
		err = json.Unmarshal(data, answer)
	}
	if err != nil {
		return nil, fmt.Errorf("answer to a deletion: %w", err)
	}
	return answer, nil
}

// outcomeOf reads an answer: the object, or that the one with a UID was deleted.
func outcomeOf(answer *unstructured.Unstructured) (o outcome) {
	if answer == nil {
		return o
	}
	uid, _, _ := unstructured.NestedString(answer.Object, "details", "uid")
	switch {
	case answer.GetDeletionTimestamp() != nil && len(answer.GetFinalizers()) > 0:
		o.left = answer
	case answer.GetAPIVersion() == "v1" && answer.GetKind() == "Status" && answer.Object["status"] == metav1.StatusSuccess:
		o.gone = types.UID(uid)
	}
	return o
}

// absent reports whether err says that an object is not there, rather than that
// its resource is not served.
func absent(err error) bool { return fates.Is(err, fates.Absent) }
