// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A knowledge is what an API server knows of the fields of a resource. It answers
// an apply of other ones with an error, not with a warning; so they are left out
// until it knows them.
type knowledge struct {
	cluster  *Cluster
	resource schema.GroupVersionResource
	doubt    chan struct{}     // the schema may have changed
	changed  func(url string)  // called when it has
	share    *kubeconfig.Share // of what may be kept; nil without bounds

	mu       sync.Mutex
	kind     string // of the objects, with its group; empty until there is one
	url      string // of the document, with its hash; empty as long as there is none
	document *document
	partial  bool // something was left out since that was read
}

func newKnowledge(c *Cluster, resource schema.GroupVersionResource, changed func(string)) *knowledge {
	return &knowledge{
		cluster: c, resource: resource, doubt: make(chan struct{}, 1), changed: changed,
		share: c.stores.Budget.Share("the schema of " + resource.Resource),
	}
}

// partialPause is between looks at a schema that leaves something out.
const partialPause = 10 * time.Second

// run follows the schema until ctx is done. That it has changed shows when watches
// end, and a moment later in the document.
func (k *knowledge) run(ctx context.Context) {
	defer k.share.Close()
	for k.cluster.raw != nil {
		pauses := []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 15 * time.Second}
		select {
		case <-ctx.Done():
			return
		case <-k.soon():
			pauses = pauses[:1]
		case <-k.doubt:
		}
		for _, pause := range pauses {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				k.look(ctx)
			}
		}
	}
}

// soon is when to look without a reason: while something is left out.
func (k *knowledge) soon() <-chan time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.partial {
		return nil
	}
	return time.After(partialPause)
}

func (k *knowledge) look(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx).WithValues("resource", k.resource.String())
	changed, err := k.read(ctx)
	if err != nil {
		log.V(1).Info("schema cannot be read", "reason", err.Error())
	}
	if changed {
		log.Info("schema has changed")
		k.changed(k.url)
	}
}

// indexTries is how often the index of documents is read: one of a document that has
// changed since leads to a redirect, which is not followed.
const indexTries = 3

// read reads the schema if it is another one than before. A document that is not
// there, because nothing is served, or not yet, leaves what is known as it is.
func (k *knowledge) read(ctx context.Context) (changed bool, err error) {
	for range indexTries {
		if changed, err = k.tryRead(ctx); err == nil {
			break
		}
	}
	return changed, err
}

func (k *knowledge) tryRead(ctx context.Context) (changed bool, err error) {
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	data, err := k.fetch(ctx, "/openapi/v3")
	if err == nil {
		err = json.Unmarshal(data, &index)
	}
	if err != nil {
		return false, err
	}
	path := "apis/" + k.resource.Group + "/" + k.resource.Version
	if k.resource.Group == "" {
		path = "api/" + k.resource.Version
	}
	url := index.Paths[path].URL
	if url == "" || url == k.url {
		return false, nil
	}
	if data, err = k.fetch(ctx, url); err != nil {
		return false, err
	}
	if err := k.share.Document(data); err != nil {
		return false, err
	}
	d := &document{}
	if err := json.Unmarshal(data, d); err != nil {
		return false, err
	}
	d.index()
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.document
	k.url, k.document, k.partial = url, d, false
	return !reflect.DeepEqual(before.root(k.kind), d.root(k.kind)), nil // other kinds may have changed
}

func (k *knowledge) fetch(ctx context.Context, uri string) ([]byte, error) {
	data, err := k.cluster.raw.Get().RequestURI(uri).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read the schema: %w", err)
	}
	return data, nil
}

// begin reads the schema before anything is written. What cannot be read is not
// waited for: then nothing is left out, and it is looked for again soon.
func (k *knowledge) begin(ctx context.Context) {
	if k.cluster.raw == nil {
		return
	}
	if _, err := k.read(ctx); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("schema cannot be read, so that fields which only one side knows keep objects back", "reason", err.Error())
		signal(k.doubt)
	}
}

// of is the schema of u; nil if it is not known.
func (k *knowledge) of(u *unstructured.Unstructured) (*document, *fields) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kind = k.resource.Group + "/" + u.GetKind()
	return k.document, k.document.root(k.kind)
}

// prune returns u without the fields that are not known.
func (k *knowledge) prune(u *unstructured.Unstructured) *unstructured.Unstructured {
	d, root := k.of(u)
	if root == nil {
		return u
	}
	out := maps.Clone(u.Object)
	delete(out, "metadata") // all API servers know the same ones
	p := pruner{document: d}
	if out = p.pruneObject(out, root); p.dropped {
		k.leftOut()
	}
	out["metadata"] = u.Object["metadata"]
	return &unstructured.Unstructured{Object: out}
}

func (k *knowledge) leftOut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.partial {
		k.partial = true
		signal(k.doubt)
	}
}

// A document is the part of an OpenAPI v3 document that tells which fields there are.
type document struct {
	Components struct {
		Schemas map[string]*fields `json:"schemas"`
	} `json:"components"`
	kinds map[string]*fields
}

// fields is a schema. One that names none allows all: those of built-in kinds say
// so of arbitrary objects, and it loses nothing.
type fields struct {
	Ref        string                         `json:"$ref"`
	AllOf      []*fields                      `json:"allOf"`
	Properties map[string]*fields             `json:"properties"`
	Items      *fields                        `json:"items"`
	Additional additional                     `json:"additionalProperties"`
	Preserve   bool                           `json:"x-kubernetes-preserve-unknown-fields"`
	Embedded   bool                           `json:"x-kubernetes-embedded-resource"`
	Default    json.RawMessage                `json:"default"`
	Kinds      []struct{ Group, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// additional is the schema of fields without a name of their own: a schema or a
// boolean.
type additional struct{ fields *fields }

// UnmarshalJSON implements json.Unmarshaler.
func (a *additional) UnmarshalJSON(data []byte) error {
	switch string(data) {
	case "true":
		a.fields = &fields{}
	case "false", "null":
	default:
		return json.Unmarshal(data, &a.fields)
	}
	return nil
}

// index finds the schemas of kinds.
func (d *document) index() {
	d.kinds = map[string]*fields{}
	for _, f := range d.Components.Schemas {
		for _, kind := range f.Kinds {
			if f.Properties != nil {
				d.kinds[kind.Group+"/"+kind.Kind] = f
			}
		}
	}
}

func (d *document) root(kind string) *fields {
	if d == nil {
		return nil
	}
	return d.kinds[kind]
}

// resolve follows references.
func (d *document) resolve(f *fields) *fields {
	for f != nil && (f.Ref != "" || len(f.AllOf) == 1 && f.Properties == nil) {
		if f.Ref == "" {
			f = f.AllOf[0]
			continue
		}
		f = d.Components.Schemas[strings.TrimPrefix(f.Ref, "#/components/schemas/")]
	}
	return f
}

// A pruner leaves out what a document does not know.
type pruner struct {
	*document
	dropped bool // something was left out
}

// prune returns value without the fields that f does not know.
func (p *pruner) prune(value any, f *fields) any {
	f = p.resolve(f)
	if f == nil {
		return value
	}
	switch v := value.(type) {
	case map[string]any:
		return p.pruneObject(v, f)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = p.prune(item, f.Items)
		}
		return out
	default:
		return value
	}
}

func (p *pruner) pruneObject(object map[string]any, f *fields) map[string]any {
	if f.Properties == nil && f.Additional.fields == nil {
		return object
	}
	out := maps.Clone(object)
	for name, value := range object {
		sub, known := f.Properties[name]
		switch {
		case known:
			out[name] = p.prune(value, sub)
		case f.Additional.fields != nil:
			out[name] = p.prune(value, f.Additional.fields)
		case f.Preserve:
		case f.Embedded && (name == "apiVersion" || name == "kind" || name == "metadata"):
		default:
			delete(out, name)
			p.dropped = true
		}
	}
	return out
}
