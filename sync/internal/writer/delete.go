// SPDX-License-Identifier: Apache-2.0

package writer

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// An Outcome is what an API server answers to a deletion.
type Outcome struct {
	Left *unstructured.Unstructured // the object as it stays for now; nil if that is not known
	Gone types.UID                  // of the object that is no more; empty if that is not known
}

// An answerer is a dynamic client that tells what the API server answers to a
// deletion.
type answerer interface {
	DeleteAnswer(ctx context.Context, name string, options metav1.DeleteOptions) (*unstructured.Unstructured, error)
}

// Remove deletes a target as options say. The dynamic client keeps to itself what the API
// server answers, which spares a look: beside it goes a request of our own.
func (w *Writer) Remove(ctx context.Context, name cache.ObjectName, options metav1.DeleteOptions) (Outcome, error) {
	objects := w.Targets.Namespace(name.Namespace)
	if objects, ok := objects.(answerer); ok {
		answer, err := objects.DeleteAnswer(ctx, name.Name, options)
		return outcomeOf(answer), err
	}
	if w.Raw != nil {
		answer, err := w.deleteRaw(ctx, name, options)
		return outcomeOf(answer), err
	}
	return Outcome{}, objects.Delete(ctx, name.Name, options)
}

func (w *Writer) deleteRaw(ctx context.Context, name cache.ObjectName, options metav1.DeleteOptions) (*unstructured.Unstructured, error) {
	options.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(options)
	if err != nil {
		return nil, err
	}
	path := []string{"apis", w.Resource.Group, w.Resource.Version}
	if w.Resource.Group == "" {
		path = []string{"api", w.Resource.Version}
	}
	if name.Namespace != "" {
		path = append(path, "namespaces", name.Namespace)
	}
	result := w.Raw.Delete().AbsPath(append(path, w.Resource.Resource, name.Name)...).
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
func outcomeOf(answer *unstructured.Unstructured) (o Outcome) {
	if answer == nil {
		return o
	}
	uid, _, _ := unstructured.NestedString(answer.Object, "details", "uid")
	switch {
	case answer.GetDeletionTimestamp() != nil && len(answer.GetFinalizers()) > 0:
		o.Left = answer
	case answer.GetAPIVersion() == "v1" && answer.GetKind() == "Status" && answer.Object["status"] == metav1.StatusSuccess:
		o.Gone = types.UID(uid)
	}
	return o
}
