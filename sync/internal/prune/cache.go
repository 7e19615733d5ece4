// SPDX-License-Identifier: Apache-2.0

// Package prune leaves out of an object what the schema of the side that takes it does
// not know.
//
// The two clusters may serve different schemas of one kind, for a while or for good.
// Server-side apply answers a field that is not declared with an error, not with a warning:
// one new field would keep each object that has it out of step. So a [Cache] keeps what an
// API server publishes as OpenAPI v3, and prunes by that. The document is read at the start,
// when a watch begins or a write is refused, and while something is left out after ten seconds, and
// then after pauses that double up to ten minutes: a schema that changes ends the watch. Where it cannot be
// read nothing is left out, and the refusal is told to people; where it cannot be read any more, what
// is left out is told as it was known. A document is taken only under the hash that was asked for: a newer one under an older hash
// would never be read again.
//
// The library for it, apiextensions-apiserver's pruning.PruneWithOptions, was tried. It
// changes the object that it is given, and what it is given is shared with the store, so
// that each look at an object begins with a deep copy: 4 to 5 times the time, and 10 600
// bytes in 62 pieces against 48 in 2 (BenchmarkPrune), since a [Document] that finds nothing to
// leave out, as nearly always, copies nothing. It also needs structural schemas, which built-in
// kinds do not have, and to make one of a document takes half the lines of pruning by it.
package prune

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/kubeconfig"
)

// A Cache is what one API server knows of the fields of a resource. Create it with
// NewCache.
type Cache struct {
	server   rest.Interface
	resource schema.GroupVersionResource
	share    *kubeconfig.Share
	changed  func(version string)
	doubt    chan struct{}

	mu       sync.Mutex
	version  string // of the document; empty as long as there is none
	changes  int    // how often the schema of the resource has changed
	document *Document
	partial  time.Time // when something was first left out by this document; zero if nothing was
	looked   time.Time // when the server was last asked for another document
}

// NewCache returns a Cache that has read nothing and prunes nothing. Without a server that
// stays so. Share bounds what may be kept; nil is no bound. Changed is called when the
// schema of the resource has changed, with the document's version.
func NewCache(server rest.Interface, resource schema.GroupVersionResource, share *kubeconfig.Share, changed func(version string)) *Cache {
	return &Cache{server: server, resource: resource, share: share, changed: changed, doubt: make(chan struct{}, 1)}
}

// Doubt has the schema looked at soon: it may have changed.
func (c *Cache) Doubt() {
	select {
	case c.doubt <- struct{}{}:
	default:
	}
}

// patience is how long Load waits for a server.
const patience = 5 * time.Second

// Load reads the schema before objects are listed or written. What cannot be read soon is
// not waited for, but looked for again.
func (c *Cache) Load(ctx context.Context) {
	if c.server == nil {
		return
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := c.read(limited); err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Info("schema cannot be read, so that fields which only one side knows keep objects back", "reason", err.Error())
		c.Doubt()
	}
}

// Pause is the first one between looks at a schema that leaves something out, and longest the last.
const (
	Pause   = 10 * time.Second
	longest = 10 * time.Minute
)

// sure is how long after the first field was left out a look shows that the schema which
// knows it is not just being published, and unread how long after it a look does that fails.
const (
	sure   = 5 * time.Second
	unread = 20 * time.Second
)

// Run follows the schema until ctx is done. That it has changed shows when watches end, and
// a moment later in the document.
func (c *Cache) Run(ctx context.Context) {
	defer c.share.Close()
	for quiet := 0; c.server != nil; quiet++ {
		pauses := []time.Duration{500 * time.Millisecond, 2 * time.Second, 5 * time.Second, 15 * time.Second}
		select {
		case <-ctx.Done():
			return
		case <-c.soon(min(Pause<<min(quiet, 6), longest)):
			pauses = pauses[:1]
		case <-c.doubt:
			quiet = -1
		}
		for _, pause := range pauses {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
				c.look(ctx)
			}
		}
	}
}

// soon is when to look without a reason: while something is left out.
func (c *Cache) soon(pause time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial.IsZero() {
		return nil
	}
	return time.After(pause)
}

func (c *Cache) look(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx).WithValues("resource", c.resource.String())
	changed, err := c.read(ctx)
	if err != nil {
		log.V(1).Info("schema cannot be read", "reason", err.Error())
		c.fails()
	}
	if changed {
		log.Info("schema has changed")
		c.changed(c.version)
	}
}

// tries is how often the index of documents is read, and tryPause how long after the first
// time, doubled each time: one of a document that has changed since leads to a redirect,
// which is not followed, and documents change several times while CRDs are installed.
const (
	tries    = 4
	tryPause = 200 * time.Millisecond
)

// read reads the schema if it is another one than before. A document that is not there,
// because nothing is served, or not yet, leaves what is known as it is.
func (c *Cache) read(ctx context.Context) (changed bool, err error) {
	for i := range tries {
		if changed, err = c.tryRead(ctx); err == nil || i == tries-1 {
			break
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(tryPause << i):
		}
	}
	return changed, err
}

func (c *Cache) tryRead(ctx context.Context) (changed bool, err error) {
	documents, err := openapi.NewClientWithContext(c.server).PathsWithContext(ctx)
	if err != nil {
		return false, err
	}
	latest := documents[pathOf(c.resource.GroupVersion())]
	if latest == nil || latest.ServerRelativeURL() == c.version {
		c.same()
		return false, nil
	}
	data, err := latest.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err == nil {
		err = c.share.Document(data)
	}
	if err != nil {
		return false, err
	}
	d, err := Parse(data, c.resource)
	if err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.document
	c.version, c.document, c.partial, c.looked = latest.ServerRelativeURL(), d, time.Time{}, time.Time{}
	if changed = !d.Same(before); changed { // else other kinds have
		c.changes++
	}
	return changed, nil
}

// same notes that the server has no other document.
func (c *Cache) same() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked = time.Now()
}

// fails notes that the server could not be asked. What it leaves out is not kept from people for
// as long as that lasts.
func (c *Cache) fails() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.partial) >= unread {
		c.looked = time.Now()
	}
}

// Sure reports whether the server still leaves out what it did, as far as that can be known: that no
// newer schema is about to be published, which knows it.
func (c *Cache) Sure() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.partial.IsZero() && c.looked.Sub(c.partial) >= sure
}

// Prune returns u, which is not changed, without the fields that are not known.
func (c *Cache) Prune(u *unstructured.Unstructured) *unstructured.Unstructured {
	pruned, dropped := c.latest().Prune(u.Object)
	if !dropped {
		return u
	}
	c.dropped()
	return &unstructured.Unstructured{Object: pruned}
}

// Atomic implements fields.Schema.
func (c *Cache) Atomic(path []string) bool { return c.latest().Atomic(path) }

// Has reports whether objects of the resource have a field, and whether that is known.
func (c *Cache) Has(path []string) (has, known bool) {
	d := c.latest()
	return d.at(path) != nil, d.of() != nil
}

// Plain reports whether the resource has no status subresource, as far as that is known.
func (c *Cache) Plain() (plain, known bool) {
	d := c.latest()
	return d.isPlain(), d.of() != nil
}

// Changes is how often the schema has changed, as far as that is known.
func (c *Cache) Changes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changes
}

func (c *Cache) latest() *Document {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.document
}

// dropped has the schema looked at until it knows what was left out.
func (c *Cache) dropped() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.partial.IsZero() {
		c.partial = time.Now()
		c.Doubt()
	}
}
