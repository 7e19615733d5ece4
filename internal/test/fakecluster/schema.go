// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// prune drops from o what s does not know, and reports whether that was anything.
func (s Schema) prune(o *unstructured.Unstructured) (dropped bool) {
	for top, value := range o.Object {
		known, ok := s[top]
		switch fields, _ := value.(map[string]any); {
		case s == nil, top == "apiVersion", top == "kind", top == "metadata":
		case !ok:
			delete(o.Object, top)
			dropped = true
		default:
			before := len(fields)
			maps.DeleteFunc(fields, func(name string, _ any) bool { return !slices.Contains(known, name) })
			dropped = dropped || len(fields) < before
		}
	}
	return dropped
}

// properties are those of the resource in its OpenAPI document.
func (r Resource) properties() map[string]any {
	open := map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	out := map[string]any{"apiVersion": map[string]any{"type": "string"}, "kind": map[string]any{"type": "string"}, "metadata": open}
	for top, known := range r.Schema {
		fields := map[string]any{}
		for _, name := range known {
			fields[name] = open
			if top == "spec" && slices.Contains(r.Atomic, name) {
				fields[name] = map[string]any{"x-kubernetes-preserve-unknown-fields": true, "x-kubernetes-map-type": "atomic"}
			}
		}
		out[top] = map[string]any{"type": "object", "properties": fields}
	}
	return out
}

// Reshape gives a resource another schema, as a change of its CRD does. Its watches
// end, and do not go on from where they were. Its objects are read with the fields
// that the schema knows, in the versions that they have: what it does not know is
// there again with the next schema that does, unless they are written meanwhile. Its
// document follows after late. Where late is negative the document comes first, as that of a busy API
// server: what is asked meanwhile is answered under the former schema, and the watches that there are
// then end a second later, and show until then what is written as the former schema has it.
func (c *Cluster) Reshape(gvr schema.GroupVersionResource, to Schema, late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	if s == nil {
		return
	}
	if late < 0 {
		s.change(-late)
		s.former.Schema = to
		due := s.published
		time.AfterFunc(-late, func() { changeOver(c, s, due, to) })
		return
	}
	s.change(late)
	c.version++ // the CRD's
	s.reshape(to, c.version)
	for _, w := range s.watchers {
		w.Stop()
	}
}

// changeOver has s be served under the schema that is due, unless something else became of it.
func changeOver(c *Cluster, s *served, due time.Time, to Schema) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served[s.GroupVersionResource] != s || s.published != due {
		return
	}
	watchers, former := slices.Clone(s.watchers), s.Schema
	for _, w := range watchers {
		w.mu.Lock()
		show := w.show
		w.show = func(o *unstructured.Unstructured) runtime.Object { return show(former.pruned(o)) }
		w.mu.Unlock()
	}
	c.version++
	s.reshape(to, c.version)
	time.AfterFunc(time.Second, func() {
		for _, w := range watchers {
			w.Stop()
		}
	})
}

// reshape has the objects of s be read under another schema, since a version.
func (s *served) reshape(to Schema, since int64) {
	s.Schema, s.since = to, since
	for name, o := range s.objects {
		s.show(name, s.stored(name, o))
	}
}

// Simplify takes the status subresource from a resource, or gives it back, as a change of its CRD
// does. Its watches go on, and its document follows after late.
func (c *Cluster) Simplify(gvr schema.GroupVersionResource, plain bool, late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.served[gvr]
	s.change(late)
	s.Plain = plain
	clear(s.managers)
}

// change has the document tell of the resource as it was until late has passed.
func (s *served) change(late time.Duration) {
	s.former, s.published = s.document(), time.Now().Add(late)
}

// document is the resource as its document tells of it.
func (s *served) document() Resource {
	if time.Now().Before(s.published) {
		return s.former
	}
	return s.Resource
}

// show makes an object be read as the schema says.
func (s *served) show(name cache.ObjectName, o *unstructured.Unstructured) {
	s.objects[name] = o
	delete(s.hidden, name)
	if shown := o.DeepCopy(); s.Schema.prune(shown) {
		s.objects[name], s.hidden[name] = shown, o
	}
}

// stored is an object with what the schema hides.
func (s *served) stored(name cache.ObjectName, o *unstructured.Unstructured) *unstructured.Unstructured {
	if h := s.hidden[name]; h != nil {
		return h
	}
	return o
}

// shown is o, or a copy of it without what the schema does not know.
func (s *served) shown(o *unstructured.Unstructured) *unstructured.Unstructured {
	if s.Schema == nil {
		return o
	}
	return s.Schema.pruned(o)
}

// pruned is a copy of o without what s does not know.
func (s Schema) pruned(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	s.prune(o)
	return o
}

// declared refuses an apply of what the schema does not know.
func (s *served) declared(o *unstructured.Unstructured) error {
	if s.Schema == nil || equality.Semantic.DeepEqual(o.Object, s.Schema.pruned(o).Object) {
		return nil
	}
	return apierrors.NewInternalError(errors.New("failed to create typed patch object: field not declared in schema"))
}

// Schemas is a client for the OpenAPI documents of the resources that have a schema.
func (v *View) Schemas() rest.Interface {
	config := &rest.Config{Host: "http://fake", QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs}}
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, &http.Client{Transport: documents{v}, CheckRedirect: stay})
	if err != nil {
		panic(err) // no argument of ours can be wrong
	}
	return c
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// documents answers requests for documents, which are reads of a resource called openapi, and for what discovery
// says of a group and version, which are reads of one called apis.
type documents struct{ view *View }

// RoundTrip implements http.RoundTripper.
func (d documents) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Request: r}
	resource := "apis"
	if strings.HasPrefix(r.URL.Path, documentsPath) {
		resource = "openapi"
	}
	request := Request{Verb: "get", Resource: schema.GroupVersionResource{Resource: resource}, Object: cache.NewObjectName("", path.Base(r.URL.Path))}
	err := d.view.ask(r.Context(), request, func(ctx context.Context, request Request) error {
		return d.view.cluster.ask(ctx, request, func() error {
			if resource == "apis" {
				answer.Body = io.NopCloser(bytes.NewReader(d.view.cluster.resources(r.URL.Path)))
				return nil
			}
			body, moved := d.view.cluster.document(strings.TrimPrefix(r.URL.RequestURI(), documentsPath))
			answer.Body = io.NopCloser(bytes.NewReader(body))
			if moved != "" {
				answer.StatusCode = http.StatusMovedPermanently
				answer.Header.Set("Location", moved)
			}
			return nil
		})
	})
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		status := refused.Status()
		answer.StatusCode, answer.Body, err = int(status.Code), io.NopCloser(bytes.NewReader(encoded(status))), nil
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

const documentsPath = "/openapi/v3"

// Leave has discovery say that a resource takes no new objects, or that it takes them again,
// as while its CRD is being deleted.
func (c *Cluster) Leave(gvr schema.GroupVersionResource, leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.served[gvr]; s != nil {
		s.leaving = leaving
	}
}

// resources is what discovery says of a group and version.
func (c *Cluster) resources(at string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list metav1.APIResourceList
	for _, s := range inOrder(c) {
		verbs := metav1.Verbs{"delete", "get", "list", "watch", "create", "patch", "update"}
		if s.leaving {
			verbs = verbs[:4]
		}
		if at == "/apis/"+s.GroupVersion().String() {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: s.GroupVersionResource.Resource, Kind: s.Kind, Verbs: verbs})
		}
	}
	return encoded(list)
}

// document is that of a group and version, with its hash, or where it is if that is
// another one; or the list of all, if there is none.
func (c *Cluster) document(of string) (body []byte, moved string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	paths := map[string]any{}
	for at, d := range published(inOrder(c)) {
		data := encoded(map[string]any{"paths": d.paths, "components": map[string]any{"schemas": d.schemas}})
		hash := fnv.New64a()
		_, _ = hash.Write(data)
		uri := fmt.Sprintf("%s?hash=%x", at, hash.Sum64())
		paths[at[1:]] = map[string]any{"serverRelativeURL": documentsPath + uri}
		switch asked, _, _ := strings.Cut(of, "?"); {
		case of == uri:
			return data, ""
		case asked == at:
			return nil, documentsPath + uri
		}
	}
	return encoded(map[string]any{"paths": paths}), ""
}

// A document is what is published of an API version.
type document struct{ paths, schemas map[string]any }

// published are the documents of all kinds that have a schema, by group and version.
func published(all []*served) map[string]document {
	out := map[string]document{}
	for _, s := range all {
		if s.Schema == nil {
			continue
		}
		at := "/apis/" + s.GroupVersion().String()
		if out[at].paths == nil {
			out[at] = document{paths: map[string]any{}, schemas: map[string]any{}}
		}
		kind := map[string]any{"group": s.Group, "version": s.Version, "kind": s.Kind}
		path := at + "/" + s.GroupVersionResource.Resource
		out[at].paths[path] = map[string]any{"get": map[string]any{"x-kubernetes-group-version-kind": kind}}
		if !s.document().Plain {
			out[at].paths[path+"/{name}/status"] = map[string]any{}
		}
		out[at].schemas[s.Kind] = map[string]any{"properties": s.document().properties(), "x-kubernetes-group-version-kind": []any{kind}}
	}
	return out
}

func encoded(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps of texts can be encoded
	}
	return data
}
