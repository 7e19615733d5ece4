// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/crd"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Options are those of a konnector, complete; see the Options of package bind.
type Options struct {
	Version           string
	HeartbeatInterval time.Duration
	NamespaceGrace    time.Duration
	SchemaInterval    time.Duration
	Sync              func(binding string, opts *klutchsync.Options)
}

// A Konnector is one Run of a bind.Konnector.
type Konnector struct {
	opts     Options
	app      *appCluster
	source   *klutchsync.Cluster
	set      *klutchsync.Set // by namespace/name of the binding
	bindings *controller.Controller
	events   record.EventRecorder
	log      logr.Logger

	wg sync.WaitGroup // of connections

	embedding sync.Mutex // held while the embedding program is called

	mu          sync.Mutex
	uses        map[cache.ObjectName]cache.ObjectName // the Secret of each binding
	connections map[cache.ObjectName]*connection      // by Secret
	records     map[cache.ObjectName]*bindingRecord   // by binding
}

// A bindingRecord is what is remembered of a binding from one pass to the next. Passes of one
// binding follow each other, so that only the map of records needs the lock.
type bindingRecord struct {
	running       string    // the fingerprint of the Sync that runs; empty while none does
	version       string    // in which it runs, or ran
	everywhere    bool      // the konnector has the rights of its claims in all namespaces
	consent       consent   // that has been carried out
	schemaChanged time.Time // when its CRD was last changed
	waitsSince    time.Time // when it began to wait for an answer; zero if it does not
	released      *string   // of held deletions: the last word of its owner; nil before the first pass
	pace          pace      // of passes
}

// recordOf returns that of a binding.
func (a *Konnector) recordOf(binding cache.ObjectName) *bindingRecord {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.records[binding]
	if r == nil {
		r = &bindingRecord{pace: newPace()}
		a.records[binding] = r
	}
	return r
}

// New does no I/O.
func New(config *rest.Config, opts Options) (*Konnector, error) {
	app, err := newAppCluster(config)
	if err != nil {
		return nil, err
	}
	source, err := klutchsync.NewCluster(config)
	if err != nil {
		return nil, err
	}
	a := &Konnector{
		opts: opts, app: app, source: source,
		uses:        map[cache.ObjectName]cache.ObjectName{},
		connections: map[cache.ObjectName]*connection{},
		records:     map[cache.ObjectName]*bindingRecord{},
	}
	a.bindings = cluster.NewController("binding", a.paced, 16)
	a.set = klutchsync.NewSet(klutchsync.SetOptions{Changed: a.changed})
	return a, a.watch()
}

func (a *Konnector) watch() error {
	if _, err := a.bindings.Watch(a.app.bindings, controller.Self); err != nil {
		return err
	}
	_, err := a.bindings.Watch(a.app.crds, func(o metav1.Object) []cache.ObjectName { return a.app.lookup(indexName, o.GetName()) })
	return err
}

// Run works until ctx is done and all that it started has ended.
func (a *Konnector) Run(ctx context.Context) error {
	defer a.app.close()
	defer a.bindings.ShutDown() // which may never run
	if err := a.app.prepare(ctx); err != nil {
		return nil // it only ends with ctx
	}
	a.log = logr.FromContextOrDiscard(ctx)
	a.log.Info("konnector started", "version", a.opts.Version)
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: a.app.kube.CoreV1().Events("")})
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	a.events = broadcaster.NewRecorder(scheme, corev1.EventSource{Component: "konnector"})
	defer a.wg.Wait()
	return group.Run(ctx, group.Informer(a.app.bindings), group.Informer(a.app.crds), group.Informer(a.app.namespaces), a.set.Run, a.bindings.Run)
}

// changed is called with the name of a Sync whose state may have changed.
func (a *Konnector) changed(name string) {
	if key, err := cache.ParseObjectName(name); err == nil {
		a.bindings.Add(key)
	}
}

// touch asks for a look at all bindings of a Secret.
func (a *Konnector) touch(secret cache.ObjectName) {
	for _, b := range a.app.lookup(indexSecret, secret.String()) {
		a.bindings.Add(b)
	}
}

// connect returns the connection over secret, and ends the one that the binding used
// before if it is unused now.
func (a *Konnector) connect(ctx context.Context, binding, secret cache.ObjectName) *connection {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, ok := a.uses[binding]; ok && before != secret {
		a.release(binding)
	}
	a.uses[binding] = secret
	c := a.connections[secret]
	if c == nil {
		c = newConnection(a, secret)
		ctx, c.stop = context.WithCancel(ctx) // that of Run: a call of reconcile has none of its own
		a.connections[secret] = c
		a.wg.Go(func() {
			if err := c.run(ctx); err != nil {
				a.log.Error(err, "connection ended", "secret", secret.String())
			}
		})
	}
	return c
}

// disconnect gives up the binding's use of its connection.
func (a *Konnector) disconnect(binding cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.release(binding)
}

// release is disconnect for those who hold the lock.
func (a *Konnector) release(binding cache.ObjectName) {
	secret, ok := a.uses[binding]
	delete(a.uses, binding)
	for _, other := range a.uses {
		if other == secret {
			return
		}
	}
	if c := a.connections[secret]; ok && c != nil {
		c.stop()
		delete(a.connections, secret)
	}
}

// forget ends what a binding that is gone had running. Nothing is deleted: neither
// the CRD, nor objects on either side.
func (a *Konnector) forget(binding cache.ObjectName) {
	a.hold(binding)
	a.disconnect(binding)
	released := a.recordOf(binding).released // what was said stays said
	a.mu.Lock()
	defer a.mu.Unlock()
	if delete(a.records, binding); released != nil {
		a.records[binding] = &bindingRecord{pace: newPace(), released: released}
	}
}

// hold stops the sync of a binding and returns when it has stopped.
func (a *Konnector) hold(binding cache.ObjectName) {
	a.recordOf(binding).running = ""
	a.set.Remove(binding.String())
}

// A recipe is what the Sync of a binding is made of, besides its session.
type recipe struct {
	export  *v1alpha1.APIServiceExport
	related []klutchsync.Related
	grant   *permission.Grant // nil where related objects may be read in all namespaces
	former  types.UID         // of the App Cluster whose objects are taken up; empty if none
}

// fingerprint changes when the Sync has to be made anew.
func (r recipe) fingerprint(s *session, version schema.GroupVersionResource) (string, error) {
	spec := r.export.Spec
	data, err := json.Marshal([]any{version, spec.Scope, spec.InformerScope, r.related, r.grant != nil, r.former, s.snapshot().tenant})
	return fmt.Sprintf("%p %s", s, data), err
}

// put has the Sync of a binding run; one that runs from the same recipe goes on.
func (a *Konnector) put(binding cache.ObjectName, s *session, r recipe) error {
	known := a.recordOf(binding)
	version := crd.SyncVersion(&r.export.Spec, known.version)
	fingerprint, err := r.fingerprint(s, version)
	if err != nil {
		return err
	}
	if known.running == fingerprint {
		return nil
	}
	opts := s.options(r)
	a.embedder(binding.Name, &opts)
	sync, err := klutchsync.New(a.source, s.target, version, opts)
	if err != nil {
		return err
	}
	known.running, known.version = fingerprint, version.Version
	a.set.Put(binding.String(), sync)
	return nil
}

// embedder lets the embedding program change the options of a Sync: one call at a time.
func (a *Konnector) embedder(binding string, opts *klutchsync.Options) {
	if a.opts.Sync == nil {
		return
	}
	a.embedding.Lock()
	defer a.embedding.Unlock()
	a.opts.Sync(binding, opts)
}

// options are those of the Sync of an export of this session.
func (s *session) options(r recipe) klutchsync.Options {
	opts := klutchsync.Options{Mapper: s.namespaces.mapper, Related: slices.Clone(r.related), FormerSource: r.former, Hooks: klutchsync.Hooks{Refused: s.records.related}}
	for i := range opts.Related {
		opts.Related[i].Except = permission.ClosedPatterns()
	}
	if r.export.Spec.InformerScope == v1alpha1.NamespacedScope {
		opts.TargetScope = klutchsync.ScopeMapped
	}
	if r.grant != nil {
		opts.RelatedAccess = r.grant.Access
	}
	if r.export.Spec.Scope == v1alpha1.ClusterScope {
		opts.Mapper = klutchsync.Prefix(s.place.Namespace + "-")
		meta := tenantMeta(s.place.Namespace, s.snapshot().tenant)
		opts.TargetMeta = func(cache.ObjectName) klutchsync.Meta { return meta }
	}
	return opts
}

// tenantMeta says whose a cluster-scoped object is. The garbage collector deletes it
// with the tenant namespace.
func tenantMeta(namespace string, uid types.UID) klutchsync.Meta {
	return klutchsync.Meta{
		Annotations:     map[string]string{v1alpha1.ClusterNamespaceAnnotation: namespace},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uid}},
	}
}
