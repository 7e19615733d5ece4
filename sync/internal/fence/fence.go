// SPDX-License-Identifier: Apache-2.0

// Package fence asks, before anything is taken away for good, whether the clusters are
// those that we know, and no older than what we saw of them.
//
// An endpoint is a name, and another cluster may answer under it: one that was rebuilt, a
// kubeconfig that was exchanged, an etcd that was restored from a backup. All that is seen
// there is true and means nothing for what was synced before. So a [Fence] reads who both
// clusters are after the deletionTimestamp that a deletion relies on was seen, and once more before
// the finalizer goes. A cluster is the UID of one of its namespaces, by default kube-system;
// with it the fence looks whether the definition of the source's resource is being deleted,
// which API servers mark before they mark its objects.
//
// A look is three small requests at once. Asked for each deletion they would be more than
// the deletions are, so that one look serves all who asked before it began ([Fence.Now]);
// cached for a time it would prove nothing of what came after it.
//
// A store that goes back in time belongs to a cluster that was restored ([Fence.Read]). That
// is a net and no proof: a restored API server may have overtaken what we saw of it.
package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/watchstore"
)

// A Cluster is one of the two.
type Cluster struct {
	Name string                                   // source or target, for people
	UID  types.UID                                // as it was at first; empty if that may not be read
	Read func(context.Context) (types.UID, error) // reads it live
}

// A ReplacedError says that a cluster is another one than it was.
type ReplacedError struct {
	Cluster string
	Was, Is types.UID
}

// Error implements error.
func (e *ReplacedError) Error() string {
	return fmt.Sprintf("%s cluster was %s and is %s", e.Cluster, e.Was, e.Is)
}

// A Fence looks at two clusters for all who ask at the same time. It is safe for concurrent
// use.
type Fence struct {
	clusters  []Cluster
	vanishing func(context.Context) (bool, error)
	latest    func() string

	mu      sync.Mutex
	clock   uint64 // rises with each look that begins and each call of Now
	began   uint64 // its reading when the last look began
	found   finding
	err     error
	running chan struct{} // closed when the look that runs has ended

	storesMu sync.Mutex
	stores   map[any]string // the latest version of each that was seen
}

// A finding is what a look has shown.
type finding struct {
	uids      []types.UID // of the clusters; empty if they may not be read
	vanishing bool
	seen      string // version of the sources that had been seen before
}

// New returns a Fence around source and target. Vanishing reads whether the sources'
// resource is being deleted, latest is the version of the sources that the store has seen.
func New(source, target Cluster, vanishing func(context.Context) (bool, error), latest func() string) *Fence {
	return &Fence{clusters: []Cluster{source, target}, vanishing: vanishing, latest: latest, stores: map[any]string{}}
}

// Vanishing reads whether a custom resource is being deleted, and all its objects with it.
// What is no custom resource, or may not be read, is not known to be; nor without a client.
func Vanishing(client metadata.Interface, resource schema.GroupVersionResource) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		if resource.Group == "" || client == nil {
			return false, nil
		}
		crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
		crd, err := client.Resource(crds).Get(ctx, resource.GroupResource().String(), metav1.GetOptions{})
		switch {
		case fates.Is(err, fates.Forbidden, fates.Absent, fates.Unserved):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read resource definition: %w", err)
		}
		return crd.GetDeletionTimestamp() != nil, nil
	}
}

// Serving reads whether an API server takes new objects of a resource, and answers why not;
// without a client, or where that may not be read, it is not known. While the definition of a
// resource is being deleted discovery lists it without "create". It is served until its last
// object has gone, and an apply makes another one still.
func Serving(server rest.Interface, resource schema.GroupVersionResource) func(context.Context) (why string, err error) {
	at := "/apis/" + resource.GroupVersion().String()
	if resource.Group == "" {
		at = "/api/" + resource.Version
	}
	return func(ctx context.Context) (string, error) {
		if server == nil {
			return "", nil
		}
		data, err := server.Get().AbsPath(at).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
		switch {
		case fates.Is(err, fates.Forbidden):
			return "", nil
		case fates.Is(err, fates.Absent, fates.Unserved): // its text is no list
			data = nil
		case err != nil:
			return "", fmt.Errorf("read resources: %w", err)
		}
		return notServed(data, resource)
	}
}

// notServed says why the resource takes no new objects, by what discovery says of its group.
func notServed(data []byte, resource schema.GroupVersionResource) (why string, err error) {
	var list metav1.APIResourceList
	if err := json.Unmarshal(data, &list); len(data) > 0 && err != nil {
		return "", fmt.Errorf("read resources: %w", err)
	}
	for _, r := range list.APIResources {
		switch {
		case r.Name != resource.Resource:
		case slices.Contains(r.Verbs, "create"):
			return "", nil
		default:
			return fmt.Sprintf("the target cluster is taking %s away", resource.GroupResource()), nil
		}
	}
	return fmt.Sprintf("the target cluster does not serve %s any more", resource.GroupResource()), nil
}

// Now reads the counter: a look with a higher reading began later.
func (f *Fence) Now() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock++
	return f.clock
}

// Confirm makes sure that the clusters are the ones that were known at first, by a look that
// began after since, or after the store had seen version; empty for none. Otherwise the
// error is a *ReplacedError. Vanishing says that all sources are being deleted as a whole.
func (f *Fence) Confirm(ctx context.Context, since uint64, version string) (vanishing bool, err error) {
	found, err := f.after(ctx, since, version)
	if err != nil {
		return false, err
	}
	for i, c := range f.clusters {
		if uid := found.uids[i]; uid != c.UID {
			return found.vanishing, &ReplacedError{c.Name, c.UID, uid}
		}
	}
	return found.vanishing, nil
}

// after returns the outcome of a look that is late enough.
func (f *Fence) after(ctx context.Context, since uint64, version string) (finding, error) {
	for {
		f.mu.Lock()
		if f.began > since || f.err == nil && f.found.covers(version) {
			defer f.mu.Unlock()
			return f.found, f.err
		}
		running := f.running
		if running == nil {
			f.begin(ctx) // unlocks
			continue
		}
		f.mu.Unlock()
		select {
		case <-ctx.Done():
			return finding{}, ctx.Err()
		case <-running:
			// Simulated histories take turns where this is logged.
			logr.FromContextOrDiscard(ctx).V(5).Info("a look at the clusters has ended")
		}
	}
}

// covers reports whether the look began when the store had seen version.
func (f finding) covers(version string) bool {
	return version != "" && (f.seen == version || watchstore.Newer(f.seen, version))
}

func (f *Fence) begin(ctx context.Context) {
	running := make(chan struct{})
	f.running = running
	f.clock++
	began := f.clock
	f.mu.Unlock()
	found, err := f.look(ctx)
	f.mu.Lock()
	f.began, f.found, f.err, f.running = began, found, err, nil
	f.mu.Unlock()
	close(running)
}

// look reads all at once.
func (f *Fence) look(ctx context.Context) (finding, error) {
	found := finding{seen: f.latest(), uids: make([]types.UID, len(f.clusters))}
	errs := make([]error, len(f.clusters)+1)
	var wg sync.WaitGroup
	for i, c := range f.clusters {
		if c.UID == "" {
			continue
		}
		wg.Go(func() { found.uids[i], errs[i] = c.Read(ctx) })
	}
	wg.Go(func() { found.vanishing, errs[len(f.clusters)] = f.vanishing(ctx) })
	wg.Wait()
	return found, errors.Join(errs...)
}

// Read calls get, which reads a store and returns its version, empty if that is not known.
// It reports whether the store has gone back in time since it was read before: then what
// get has read is of another history.
func (f *Fence) Read(store any, get func() (version string)) (behind bool) {
	f.storesMu.Lock()
	defer f.storesMu.Unlock()
	version := get()
	if version == "" {
		return false
	}
	if watchstore.Newer(f.stores[store], version) {
		return true
	}
	f.stores[store] = version
	return false
}
