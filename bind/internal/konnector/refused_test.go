// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/servicenamespace"
	"github.com/klutch-go/sdk/internal/controller"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestNamespaceRefused: a service namespace that the tenant cannot ask for, for whatever reason, while
// the control plane works otherwise, is told with the reason, and costs less and less; once one is
// granted, which one fewer of them may lead to, all are.
func TestNamespaceRefused(t *testing.T) {
	const namespaces = 20
	for _, answer := range fakecluster.Answers() {
		request := fakecluster.Request{Verb: "create", Resource: cluster.APIServiceNamespaces, Object: cache.NewObjectName("tenant", "team")}
		err := answer.Err(request)
		t.Run(strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				var mu sync.Mutex
				refused, asked, looks := true, 0, 0
				made := map[string]bool{}
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					mu.Lock()
					defer mu.Unlock()
					if r.Verb != "create" {
						looks++
						return do()
					}
					if asked++; refused {
						return err
					}
					made[r.Object.Name] = true
					return do()
				})
				for i := range namespaces {
					w.meet("team" + strconv.Itoa(i))
				}
				w.run()
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if fates.IsRefused(err) != (w.namespaces.Ready().Status == metav1.ConditionFalse) {
					t.Errorf("after ten seconds %+v", w.namespaces.Ready())
				}
				time.Sleep(25 * time.Second) // some answers ask for thirty
				synctest.Wait()
				c := w.namespaces.Ready()
				why := "(" + cluster.Explain(err)
				if c.Reason != v1alpha1.ReasonServiceNamespaceRefused || !strings.Contains(c.Message, "team0 "+why) || !strings.Contains(w.namespaces.Why("team7"), why[1:]) || w.namespaces.Why("other") != "" {
					t.Errorf("%+v, %s", c, w.namespaces.Why("team7"))
				}
				if hidden := strings.Contains(c.Message, "no watch shows it"); hidden != (answer.Kind == fates.Exists) {
					t.Errorf("an APIServiceNamespace that is there and not shown: %t, and %+v", answer.Kind == fates.Exists, c)
				}
				if c := w.heartbeat.snapshot().connected(); c.Status != metav1.ConditionTrue {
					t.Errorf("the control plane works, and %+v", c)
				}
				most := 30 * namespaces
				if answer.Kind.Longest() < fates.Forbidden.Longest() { // it may be over any time
					most = 120 * namespaces
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				mu.Lock()
				if asked > most || looks > 400 {
					t.Errorf("asked %d times in an hour for %d namespaces, and looked at the tenant %d times", asked, namespaces, looks)
				}
				refused = false
				mu.Unlock()
				w.namespaces.Freed(nil)
				time.Sleep(time.Second)
				synctest.Wait()
				if mu.Lock(); len(made) != namespaces {
					t.Errorf("%d of %d namespaces are asked for", len(made), namespaces)
				}
				mu.Unlock()
				if c := w.namespaces.Ready(); c.Status != metav1.ConditionTrue || w.namespaces.Why("team7") != "" {
					t.Errorf("afterwards %+v, %s", c, w.namespaces.Why("team7"))
				}
			})
		})
	}
}

// TestNamespacesWhileAway: while no API server of the control plane works, the connection is what
// people hear of; once one does, what waits is asked for within seconds.
func TestNamespacesWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		w.run()
		time.Sleep(time.Second)
		w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			return fakecluster.Answers()[0].Err(r)
		})
		w.meet("team")
		time.Sleep(time.Hour)
		synctest.Wait()
		if c := w.heartbeat.snapshot().connected(); c.Reason != v1alpha1.ReasonControlPlaneUnreachable || w.namespaces.Ready().Status != metav1.ConditionTrue {
			t.Errorf("%+v, %+v", c, w.namespaces.Ready())
		}
		w.controlPlane.Intercept(nil)
		time.Sleep(2 * awayEvery)
		synctest.Wait()
		if _, err := w.controlPlane.Client().Resource(cluster.APIServiceNamespaces).Namespace("tenant").Get(t.Context(), "team", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// TestSecretUnkept: that the App Cluster does not take a credential, or the mark of the tenant, into the
// kubeconfig Secret is told as that, without its words, which may have the content: the control plane is
// there, hears the heartbeat, and is worked with; and once the App Cluster takes it, that is written without
// a word.
func TestSecretUnkept(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "patch", Resource: cluster.Secrets, Object: cache.NewObjectName("klutch-bind", "kubeconfig")})
		for name, rotates := range map[string]bool{"tenant ": false, "credential ": true} {
			t.Run(name+strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newBeatingWorld(t)
					app := w.keep(rotates)
					var refused atomic.Bool
					var asked, looked atomic.Int64
					refused.Store(true)
					app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
						if r.Verb == "patch" && refused.Load() {
							asked.Add(1)
							return err
						}
						return do()
					})
					w.controlPlane.Intercept(func(_ context.Context, _ fakecluster.Request, do func() error) error { looked.Add(1); return do() })
					w.run()
					time.Sleep(time.Minute)
					synctest.Wait()
					now := w.heartbeat.snapshot()
					if c := now.connected(); c.Status != metav1.ConditionTrue || now.admitted == "" {
						t.Errorf("the control plane works, and %+v", now)
					}
					quiet := !rotates && answer.Kind == fates.Conflict // who was faster may have recorded it
					if told := now.beating.Reason == v1alpha1.ReasonKubeconfigSecretUpdateFailed && strings.Contains(now.beating.Message, cluster.Explain(fates.Withheld(err))); told == quiet {
						t.Errorf("%+v", now.beating)
					}
					if said, is := fates.Message(err); is && strings.Contains(now.beating.Message, said) {
						t.Errorf("the API server's words are told: %s", now.beating.Message)
					}
					if beaten := w.heartbeat.beaten.Load(); beaten == nil {
						t.Error("the platform has not heard of the konnector")
					}
					time.Sleep(10 * time.Minute)
					synctest.Wait()
					if asked, looked := asked.Load(), looked.Load(); asked > 60 || looked > 400 {
						t.Errorf("asked %d times in ten minutes, and the control plane %d times", asked, looked)
					}
					refused.Store(false)
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					if c := w.heartbeat.snapshot().beating; c.Status != metav1.ConditionTrue {
						t.Errorf("afterwards %+v", c)
					}
					u, err := app.Client().Resource(cluster.Secrets).Namespace("klutch-bind").Get(t.Context(), "kubeconfig", metav1.GetOptions{})
					if err != nil || u.GetAnnotations()[v1alpha1.TenantUIDAnnotation] == "" {
						t.Errorf("%v, %v", u, err)
					}
					if k, err := cluster.ReadSecret(u); err != nil || (k.Token == "t2") != rotates {
						t.Errorf("%+v, %v", k, err)
					}
				})
			})
		}
	}
}

// keep gives the heartbeat a kubeconfig Secret in an App Cluster, with a watch of it; the control plane
// offers another token if rotates, else the same.
func (w *beatingWorld) keep(rotates bool) (app *fakecluster.Cluster) {
	w.Helper()
	app = fakecluster.New()
	w.put(app.Client().Resource(cluster.NamespacesResource).Create(w.Context(), object("v1", "Namespace", "klutch-bind"), metav1.CreateOptions{}))
	w.offer(w.Context(), app.Client(), "klutch-bind", "t")
	w.offer(w.Context(), w.controlPlane.Client(), "tenant", map[bool]string{true: "t2", false: "t"}[rotates])
	w.heartbeat.secret = &kubeconfigSecret{
		name: cache.NewObjectName("klutch-bind", "kubeconfig"), calls: app.Client(), rotations: newRarePace(),
		informer: cluster.Objects(app.Client(), cluster.Secrets, "klutch-bind").Informer(cache.Indexers{}),
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.heartbeat.secret.informer.RunWithContext(ctx)
	}()
	w.Cleanup(func() { cancel(); <-done })
	cache.WaitForCacheSync(ctx.Done(), w.heartbeat.secret.informer.HasSynced)
	return app
}

// offer puts a kubeconfig with a token into the Secret of a cluster.
func (w *beatingWorld) offer(ctx context.Context, client dynamic.Interface, namespace, token string) {
	w.Helper()
	k := w.heartbeat.place
	k.Token = token
	data, err := k.Write()
	if err != nil {
		w.Fatal(err)
	}
	u := object("v1", "Secret", "kubeconfig")
	u.Object["data"] = map[string]any{"kubeconfig": base64.StdEncoding.EncodeToString(data)}
	secrets := client.Resource(cluster.Secrets).Namespace(namespace)
	if _, err = secrets.Create(ctx, u, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		_, err = secrets.Update(ctx, u, metav1.UpdateOptions{})
	}
	if err != nil && ctx.Err() == nil {
		w.Error(err)
	}
}

// A beatingWorld is a tenant namespace "tenant" with a heartbeat, and what asks for service
// namespaces there.
type beatingWorld struct {
	*testing.T
	controlPlane *fakecluster.Cluster
	heartbeat    *heartbeat
	namespaces   *servicenamespace.Keeper
}

func newBeatingWorld(t *testing.T) *beatingWorld {
	t.Helper()
	w := &beatingWorld{T: t, controlPlane: fakecluster.New(
		fakecluster.Resource{GroupVersionResource: cluster.APIServiceNamespaces, Kind: "APIServiceNamespace"},
		fakecluster.Resource{GroupVersionResource: cluster.ClusterBindings, Kind: "ClusterBinding"},
	)}
	calls := w.controlPlane.Client()
	w.put(calls.Resource(cluster.NamespacesResource).Create(t.Context(), object("v1", "Namespace", "tenant"), metav1.CreateOptions{}))
	tenants := object(v1alpha1.GroupVersion.String(), "ClusterBinding", v1alpha1.ClusterBindingName)
	tenants.Object["spec"] = map[string]any{"kubeconfigSecretRef": map[string]any{"name": "kubeconfig"}}
	w.put(calls.Resource(cluster.ClusterBindings).Namespace("tenant").Create(t.Context(), tenants, metav1.CreateOptions{}))
	secrets := object("v1", "Secret", "kubeconfig")
	secrets.Object["data"] = map[string]any{"kubeconfig": "bm9uZQ=="}
	w.put(calls.Resource(cluster.Secrets).Namespace("tenant").Create(t.Context(), secrets, metav1.CreateOptions{}))
	place := kubeconfig.Kubeconfig{Server: "https://control-plane", Namespace: "tenant", Token: "t"}
	_, token, err := place.Rotating()
	if err != nil {
		t.Fatal(err)
	}
	app := fakecluster.New()
	shared := &shared{
		app:  &appCluster{uid: "app", bindings: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)},
		opts: Options{HeartbeatInterval: 5 * time.Minute, Version: "v1.0.0"},
	}
	secret := &kubeconfigSecret{informer: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)}
	w.heartbeat = newHeartbeat(shared, secret, place, token, calls)
	w.namespaces = servicenamespace.New(servicenamespace.Config{
		App: cluster.Metas(app.Metadata(), cluster.NamespacesResource).Informer(cache.Indexers{}), Calls: calls, Tenant: "tenant",
		Asked: cluster.Objects(calls, cluster.APIServiceNamespaces, "tenant").Informer(cache.Indexers{}), Grace: time.Minute,
		WhileOurs: w.heartbeat.whileOurs, Patience: patience, Touch: func() {},
	})
	return w
}

func object(version, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	u.SetName(name)
	return u
}

func (w *beatingWorld) put(_ *unstructured.Unstructured, err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// meet has a Sync meet an object in a namespace of the App Cluster.
func (w *beatingWorld) meet(namespace string) {
	w.Helper()
	if err := w.namespaces.App.GetStore().Add(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		w.Fatal(err)
	}
	w.namespaces.Mapper.Target(cache.NewObjectName(namespace, "object"))
}

// run has both queues worked on until the test ends.
func (w *beatingWorld) run() {
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.heartbeat.queue.Run(ctx) })
	running.Go(func() { _ = w.namespaces.Queue.Run(ctx) })
	w.Cleanup(func() { cancel(); running.Wait() })
	w.heartbeat.lookNow()
}

// P25: what a provider says against a service namespace ends in an Event of each object there, and is
// as short as one.
func TestP25HostileRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		asked := object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", "team")
		asked.SetNamespace("tenant")
		asked.Object["status"] = map[string]any{"conditions": []any{map[string]any{
			"type": v1alpha1.ConditionReady, "status": "False", "severity": "Error", "reason": "No", "message": strings.Repeat("ü", 1<<20),
		}}}
		if err := w.namespaces.Asked.GetStore().Add(asked); err != nil {
			t.Fatal(err)
		}
		w.meet("team")
		w.run()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := len(w.namespaces.Why("team")); n == 0 || n > cluster.MaxMessage+100 {
			t.Errorf("%d bytes", n)
		}
	})
}

// TestP25FlappingPlatform: a platform that fails at every other look, and has itself looked at all the time, costs two
// looks a second, and a line in the log a minute, in which it has no more room than elsewhere. What lasts is in
// the log in the end.
func TestP25FlappingPlatform(t *testing.T) {
	for name, says := range map[string]string{
		"its name":    `{"spec":{"providerPrettyName":"` + strings.Repeat("n", 1<<16) + `"}}`,
		"its holders": `{"status":{"clusterUID":"` + strings.Repeat("u", 1<<16) + `"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				w.keep(false)
				tenants := w.controlPlane.Client().Resource(cluster.ClusterBindings).Namespace("tenant")
				w.put(tenants.Patch(t.Context(), v1alpha1.ClusterBindingName, types.MergePatchType, []byte(says), metav1.PatchOptions{}, map[bool][]string{true: {"status"}}[name == "its holders"]...))
				var looks, lines, longest atomic.Int64
				var fails atomic.Bool
				var last atomic.Value
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "get" && r.Resource == cluster.ClusterBindings && (looks.Add(1)%2 == 0 || fails.Load()) {
						return fakecluster.Answers()[0].Err(r)
					}
					time.Sleep(time.Millisecond)
					return do()
				})
				log := funcr.New(func(_, args string) {
					lines.Add(1)
					longest.Store(max(longest.Load(), int64(len(args))))
					last.Store(args)
				}, funcr.Options{})
				ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
				done := make(chan error, 1)
				go func() { done <- w.heartbeat.queue.Run(ctx) }()
				for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
					w.heartbeat.lookNow() // as events of the tenant and ends of watches do
				}
				synctest.Wait()
				if n, lines, longest := looks.Load(), lines.Load(), longest.Load(); n > 300 || lines > 15 || longest > 2*cluster.MaxMessage {
					t.Errorf("%d looks and %d lines in two minutes, with up to %d bytes", n, lines, longest)
				}
				fails.Store(true)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if said, _ := last.Load().(string); !strings.Contains(said, "control plane is away") {
					t.Errorf("the last word in the log is %.200s", said)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStepRefused: whatever the App Cluster's API server has against a step of a pass is told on the
// binding, with what it said: at once if it refuses, and else once that has lasted. It is paced, and once it
// is over the condition is that of the next step.
func TestStepRefused(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		err := answer.Err(fakecluster.Request{Verb: "get", Resource: cluster.CRDs, Object: cache.NewObjectName("", "widgets.example.org")})
		if fates.Is(err, fates.Absent, fates.Unserved) {
			continue // there is no CRD, and one is made
		}
		t.Run(strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				stop := w.serve()
				defer stop()
				var asked atomic.Int64
				var refused atomic.Bool
				refused.Store(true)
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == cluster.CRDs && refused.Load() {
						asked.Add(1)
						return err
					}
					return do()
				})
				w.konnector.bindings.Add(cache.MetaObjectToName(w.binding))
				time.Sleep(30 * time.Second)
				synctest.Wait()
				c := w.condition(v1alpha1.ConditionSchemaInSync)
				if c.Reason != v1alpha1.ReasonStepFailed || c.Severity != v1alpha1.SeverityError || !strings.Contains(c.Message, cluster.Explain(err)) {
					t.Errorf("after half a minute %+v", c)
				}
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if n := asked.Load(); n > 900 {
					t.Errorf("asked %d times in ten minutes", n)
				}
				refused.Store(false)
				time.Sleep(11 * time.Minute)
				synctest.Wait()
				if c := w.condition(v1alpha1.ConditionSchemaInSync); c.Reason == v1alpha1.ReasonStepFailed {
					t.Errorf("afterwards %+v", c)
				}
			})
		})
	}
}

// serve has the whole konnector look at the binding, over a connection that is there.
func (w *claimWorld) serve() (stop func()) {
	w.Helper()
	k, s := w.konnector, w.session
	w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.APIServiceBindings, Kind: "APIServiceBinding"})
	w.app.Serve(fakecluster.Resource{GroupVersionResource: cluster.CRDs, Kind: "CustomResourceDefinition", Cluster: true})
	w.controlPlane.Serve(fakecluster.Resource{GroupVersionResource: cluster.APIServiceExports, Kind: "APIServiceExport"})
	k.bindings, k.events = controller.New("binding", k.paced, controller.Options{Workers: passWorkers}), record.NewFakeRecorder(10_000)
	w.binding.Spec.KubeconfigSecretRef = v1alpha1.ClusterSecretKeyRef{LocalSecretKeyRef: v1alpha1.LocalSecretKeyRef{Name: "kubeconfig"}, Namespace: "klutch-bind"}
	w.binding.APIVersion, w.binding.Kind = v1alpha1.GroupVersion.String(), "APIServiceBinding"
	w.export.APIVersion, w.export.Kind, w.export.Name = w.binding.APIVersion, "APIServiceExport", w.binding.Name
	w.export.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw = []byte(`{"type":"object"}`)
	made, err := w.app.Client().Resource(cluster.APIServiceBindings).Namespace(w.binding.Namespace).Create(w.Context(), cluster.Manifest(w.binding), metav1.CreateOptions{})
	if err == nil {
		err = k.app.bindings.GetStore().Add(made)
	}
	if err == nil {
		_, err = w.controlPlane.Client().Resource(cluster.APIServiceExports).Namespace("tenant").Create(w.Context(), cluster.Manifest(w.export), metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
	place := s.place
	place.Token = "token"
	_, token, err := place.Rotating()
	s.heartbeat.shared, s.heartbeat.place, s.heartbeat.token, s.heartbeat.calls = s.shared, place, token, s.Calls
	s.exports = newExports(s.heartbeat, cluster.Objects(w.controlPlane.Client(), cluster.APIServiceExports, "tenant").Informer(cache.Indexers{}))
	if err == nil {
		_, err = s.exports.queue.Watch(s.exports.informer, controller.Self)
	}
	if err != nil {
		w.Fatal(err)
	}
	s.heartbeat.seen = snapshot{looked: "token", admitted: "token", tenant: "uid", beating: v1alpha1.True(v1alpha1.ConditionHeartbeating)}
	c := newTestConnection()
	c.valid, c.session = v1alpha1.True(v1alpha1.ConditionSecretValid), s
	k.connections = newConnections(&k.shared)
	k.connections.bySecret[cache.NewObjectName("klutch-bind", "kubeconfig")] = c
	return w.start(k.syncs.Run, group.Informer(s.namespaces.Asked), group.Informer(k.app.namespaces), group.Informer(s.exports.informer), s.exports.queue.Run, k.bindings.Run)
}

// condition is what the binding says in the App Cluster.
func (w *claimWorld) condition(of string) v1alpha1.Condition {
	w.Helper()
	b, err := cluster.Get[v1alpha1.APIServiceBinding](w.Context(), w.app.Client().Resource(cluster.APIServiceBindings).Namespace(w.binding.Namespace), w.binding.Name)
	if err != nil || b == nil {
		w.Fatal(err)
	}
	if c := v1alpha1.FindCondition(b.Status.Conditions, of); c != nil {
		return *c
	}
	return v1alpha1.Condition{}
}

// P8: a platform whose lists have no end, or are slow in any number of namespaces, or that cannot list, keeps the look for copies of Klutch's konnector
// from its end, and nothing else: what comes after it is done, it is looked ever more rarely, and told.
func TestP8EndlessCopies(t *testing.T) {
	for name, err := range map[string]error{"endless": nil, "slow": errSlow, "failing": apierrors.NewInternalError(errors.New("etcd"))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				w.owner = v1alpha1.OwnerConsumer
				defer w.run()()
				w.answer(v1alpha1.ClaimAccepted)
				synctest.Wait()
				w.look()
				for n := range 30 { // a platform may forge who asked for them
					w.ask("forged"+strconv.Itoa(n), "service"+strconv.Itoa(n))
				}
				hostile := &endless{Interface: w.session.Meta, err: err}
				w.session.Meta = hostile
				for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(5 * time.Second) {
					before := time.Now()
					w.look()
					if took := time.Since(before); took > time.Minute {
						t.Fatalf("a look takes %s", took)
					}
				}
				if hostile.lists.Load() > 20*endlessPages {
					t.Errorf("%d lists in an hour", hostile.lists.Load())
				}
				c := w.verdict.found[v1alpha1.ConditionClaimsInSync]
				if c.Status != metav1.ConditionTrue || !strings.Contains(c.Message, "Whether Klutch's konnector left copies cannot be looked at: ") {
					t.Errorf("%+v", c)
				}
				if _, said := w.verdict.found[v1alpha1.ConditionInformersSynced]; !said {
					t.Error("what comes after the look is not done")
				}
			})
		})
	}
}

// errSlow has lists end, each after nearly as long as a request may take.
var errSlow = errors.New("slow")

// An endless client lists a page after the other, a second each, or fails.
type endless struct {
	metadata.Interface
	err   error
	lists atomic.Int64
}

const endlessPages = 100

func (e *endless) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return &endlessLists{e.Interface.Resource(gvr), e}
}

type endlessLists struct {
	metadata.Getter
	of *endless
}

func (l *endlessLists) Namespace(string) metadata.ResourceInterface { return l }

func (l *endlessLists) List(ctx context.Context, _ metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	n, took := l.of.lists.Add(1), time.Second
	list := &metav1.PartialObjectMetadataList{}
	switch {
	case errors.Is(l.of.err, errSlow):
		took = cluster.CallTimeout - time.Second
	case l.of.err != nil:
		return nil, l.of.err
	case n < 100*endlessPages: // so that a test of it ends
		list.Continue = "more"
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(took):
		return list, nil
	}
}

// TestConflictsForever: a binding whose status an API server answers with a conflict however often it
// is read anew is written ever more rarely.
func TestConflictsForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		app := fakecluster.New(fakecluster.Resource{GroupVersionResource: cluster.APIServiceBindings, Kind: "APIServiceBinding"})
		k := &Konnector{
			shared:  shared{app: &appCluster{Clients: cluster.Clients{Calls: app.Client()}}},
			syncs:   newSyncs(nil, Options{}, nil),
			records: records{of: map[cache.ObjectName]*bindingRecord{}},
		}
		k.connections = newConnections(&k.shared)
		k.app.bindings = cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, nil)
		k.bindings = controller.New("binding", k.paced, controller.Options{})
		b := object(v1alpha1.GroupVersion.String(), "APIServiceBinding", "widgets.example.org")
		b.SetNamespace("elsewhere")
		w := &claimWorld{T: t}
		w.namespace(app, "elsewhere")
		made, err := app.Client().Resource(cluster.APIServiceBindings).Namespace("elsewhere").Create(t.Context(), b, metav1.CreateOptions{})
		if err == nil {
			err = k.app.bindings.GetStore().Add(made)
		}
		if err != nil {
			t.Fatal(err)
		}
		var written atomic.Int64
		app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "get" {
				return do()
			}
			written.Add(1)
			return apierrors.NewConflict(r.Resource.GroupResource(), r.Object.Name, errors.New("the object has been modified"))
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = k.bindings.Run(ctx) })
		defer running.Wait()
		defer cancel()
		k.bindings.Add(cache.MetaObjectToName(made))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := written.Load(); n < 5*60 || n > 5*300 { // five attempts each time
			t.Errorf("written %d times in an hour", n)
		}
	})
}

// TestHeartbeatWaitsAsAsked: a control plane that wants the heartbeat in a minute gets it then, and that is told.
func TestHeartbeatWaitsAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		var asked atomic.Int64
		w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource != cluster.ClusterBindings || r.Verb == "get" {
				return do()
			}
			asked.Add(1)
			return apierrors.NewTooManyRequests(`admission webhook "slow.example.org" denied the request: not now`, 60)
		})
		w.run()
		time.Sleep(10*time.Minute - time.Second)
		synctest.Wait()
		if n := asked.Load(); n < 9 || n > 10 {
			t.Errorf("asked %d times in ten minutes", n)
		}
		if c := w.heartbeat.snapshot().beating; c.Reason != v1alpha1.ReasonClusterBindingUpdateFailed {
			t.Errorf("it is told as %+v", c)
		}
	})
}

// TestLegacyLooksArePaced: the look for copies of Klutch's konnector becomes rare where it has no end: while a provider
// takes a namespace away and maps it again, and while copies stay.
func TestLegacyLooksArePaced(t *testing.T) {
	for _, flaps := range []bool{true, false} {
		t.Run(map[bool]string{true: "a namespace comes and goes", false: "copies stay"}[flaps], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newClaimWorld(t)
				var looks atomic.Int64
				w.app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "list" && r.Resource == cluster.Secrets {
						looks.Add(1)
					}
					return do()
				})
				if !flaps {
					w.putLegacy(w.app, "team", "left")
				}
				defer w.run()()
				w.answer(v1alpha1.ClaimAccepted)
				synctest.Wait()
				before, asked := looks.Load(), w.controlPlane.Client().Resource(cluster.APIServiceNamespaces).Namespace("tenant")
				for n := range 3 * 60 * 2 { // two hours
					switch {
					case !flaps:
					case n%2 == 0:
						w.ask("late", "service-late")
					default:
						if err := asked.Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					for range 2 {
						time.Sleep(10 * time.Second)
						synctest.Wait()
						w.look()
					}
				}
				if n := looks.Load() - before; n < 5 || n > 80 { // of which the Sync has some forty
					t.Errorf("%d lists in two hours", n)
				}
				if c := w.verdict.found[v1alpha1.ConditionClaimsInSync]; !flaps && !strings.Contains(c.Message, "secrets team/left") {
					t.Errorf("ClaimsInSync is %+v", c)
				}
			})
		})
	}
}
