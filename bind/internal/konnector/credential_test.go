// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestNewCredential: with a new token nothing is asked of a tenant before a look has shown whose it is,
// however long that takes; of another tenant nothing is asked at all.
func TestNewCredential(t *testing.T) {
	for name, replaced := range map[string]bool{"of the same tenant": false, "of another one of that name": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				w.keep(false)
				w.run()
				time.Sleep(10 * time.Second)
				if now := w.heartbeat.snapshot(); !w.heartbeat.isWell() || now.tenant == "" {
					t.Fatalf("before: %+v", now)
				}
				if replaced {
					namespaces := w.controlPlane.Client().Resource(cluster.NamespacesResource)
					if err := namespaces.Delete(t.Context(), "tenant", metav1.DeleteOptions{}); err != nil {
						t.Fatal(err)
					}
					w.put(namespaces.Create(t.Context(), object("v1", "Namespace", "tenant"), metav1.CreateOptions{}))
				}
				var looks, asks atomic.Int64
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					switch {
					case r.Resource == cluster.NamespacesResource:
						time.Sleep(5 * time.Second)
						defer looks.Add(1)
					case r.Verb == "create":
						if asks.Add(1); looks.Load() == 0 {
							t.Error("asks before it has looked")
						}
					}
					return do()
				})
				(&session{heartbeat: w.heartbeat, token: w.heartbeat.token}).use("t2")
				w.meet("team")
				time.Sleep(6 * time.Second)
				synctest.Wait()
				reason := w.heartbeat.snapshot().refused.Reason
				if want := (map[bool]string{true: v1alpha1.ReasonControlPlaneReplaced}[replaced]); reason != want || replaced == (asks.Load() > 0) {
					t.Errorf("refused: %q, and asked %d times", reason, asks.Load())
				}
			})
		})
	}
}

// TestSecretReadAgain: once the kubeconfig Secret can be watched again, the binding says what it is worth,
// also where nothing has happened to it meanwhile.
func TestSecretReadAgain(t *testing.T) {
	for name, there := range map[string]bool{"no Secret": false, "one that is of no use": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				app := fakecluster.New()
				client := app.Client()
				var refused atomic.Bool
				refused.Store(true)
				app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == cluster.Secrets && r.Verb == "watch" && refused.Load() {
						time.Sleep(time.Second) // after the list
						return apierrors.NewForbidden(r.Resource.GroupResource(), "", nil)
					}
					return do()
				})
				if there {
					if _, err := client.Resource(cluster.NamespacesResource).Create(t.Context(), object("v1", "Namespace", v1alpha1.Namespace), metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
					if _, err := client.Resource(cluster.Secrets).Namespace(v1alpha1.Namespace).Create(t.Context(), object("v1", "Secret", "kubeconfig"), metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				c := newConnection(&shared{app: &appCluster{
					Clients:  cluster.Clients{Calls: client, Watches: client},
					bindings: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{indexSecret: bySecret}),
				}}, cache.NewObjectName(v1alpha1.Namespace, "kubeconfig"))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.run(ctx) }()
				time.Sleep(time.Hour)
				_, worth := c.secret.read()
				before, _ := c.state()
				if before == worth || before.Status != metav1.ConditionFalse {
					t.Errorf("while it may not be watched: %+v", before)
				}
				refused.Store(false)
				time.Sleep(time.Minute)
				if now, _ := c.state(); now != worth {
					t.Errorf("%+v, want %+v", now, worth)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestUnreadableSecretIsTold: a binding says why its Secret cannot be read, whatever the App Cluster answers, and goes on
// once it can be.
func TestUnreadableSecretIsTold(t *testing.T) {
	for _, answer := range fakecluster.Answers() {
		refusal := answer.Err(fakecluster.Request{Resource: cluster.Secrets, Verb: "list"})
		if answer.Kind == fates.Forbidden || answer.Kind == fates.Terminating || answer.Kind == fates.None {
			continue // the konnector lacks a right, which is said in other words
		}
		t.Run(refusal.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				app := fakecluster.New()
				var refused atomic.Bool
				refused.Store(true)
				app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Resource == cluster.Secrets && refused.Load() {
						return refusal
					}
					return do()
				})
				c := newConnection(&shared{app: &appCluster{
					Clients:  cluster.Clients{Calls: app.Client(), Watches: app.Client()},
					bindings: cache.NewSharedIndexInformer(&cache.ListWatch{}, &unstructured.Unstructured{}, 0, cache.Indexers{indexSecret: bySecret}),
				}}, cache.NewObjectName(v1alpha1.Namespace, "kubeconfig"))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- c.run(ctx) }()
				time.Sleep(5 * time.Minute)
				if said, _ := c.state(); !strings.Contains(said.Message, "Secret klutch-bind/kubeconfig cannot be read: ") {
					t.Errorf("it is told as %+v", said)
				}
				refused.Store(false)
				time.Sleep(15 * time.Minute)
				if said, _ := c.state(); isPending(said) {
					t.Errorf("once it can be read: %+v", said)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestWaitsArePaced: what people wait for is looked at often for a while, and then as often as all else: a
// platform may never end it. That another App Cluster gives the tenant up is heard of at once.
func TestWaitsArePaced(t *testing.T) {
	for name, wait := range map[string]func(w *beatingWorld, waits bool){
		"another App Cluster holds the tenant": func(w *beatingWorld, waits bool) {
			holder := map[bool]string{true: "other", false: "app"}[waits]
			b, err := w.controlPlane.Client().Resource(cluster.ClusterBindings).Namespace("tenant").Patch(
				w.Context(), v1alpha1.ClusterBindingName, types.MergePatchType, []byte(`{"status":{"clusterUID":"`+holder+`"}}`), metav1.PatchOptions{}, "status")
			w.put(b, err)
			w.heartbeat.tenantChanged(b)
		},
		"the next credential is not made": func(w *beatingWorld, waits bool) {
			secrets := w.controlPlane.Client().Resource(cluster.Secrets).Namespace("tenant")
			u, err := secrets.Get(w.Context(), "kubeconfig", metav1.GetOptions{})
			w.put(u, err)
			if waits {
				u.Object["held"], u.Object["data"] = u.Object["data"], nil
			} else {
				u.Object["data"] = u.Object["held"]
			}
			w.put(secrets.Update(w.Context(), u, metav1.UpdateOptions{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBeatingWorld(t)
				w.keep(false)
				w.run()
				time.Sleep(10 * time.Second)
				wait(w, true)
				w.heartbeat.lookNow()
				var looks atomic.Int64
				w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
					if r.Verb == "get" && r.Resource == cluster.ClusterBindings {
						looks.Add(1)
					}
					return do()
				})
				time.Sleep(20 * time.Second)
				if n := looks.Swap(0); n < 6 || w.heartbeat.isWell() {
					t.Errorf("%d looks in the first twenty seconds, and all is well: %t", n, w.heartbeat.isWell())
				}
				time.Sleep(time.Hour)
				if n := looks.Load(); n < 230 || n > 250 {
					t.Errorf("%d looks in an hour", n)
				}
				wait(w, false)
				time.Sleep(time.Second)
				synctest.Wait()
				if heard := w.heartbeat.isWell(); !heard && w.heartbeat.snapshot().refused.Type != "" {
					t.Errorf("not heard of: %+v", w.heartbeat.snapshot())
				}
				time.Sleep(probeEvery)
				if !w.heartbeat.isWell() {
					t.Errorf("in the end: %+v", w.heartbeat.snapshot())
				}
			})
		})
	}
}

// TestWatchRefused: that the exports of a tenant, which were listed, may not be watched any more is told: what
// the provider changes does not arrive. Objects go on meanwhile.
func TestWatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		w.keep(false)
		w.controlPlane.Serve(fakecluster.Resource{GroupVersionResource: cluster.APIServiceExports, Kind: "APIServiceExport"})
		var permitted atomic.Bool
		w.controlPlane.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Resource == cluster.APIServiceExports && r.Verb == "watch" && !permitted.Load() {
				return apierrors.NewForbidden(r.Resource.GroupResource(), "", nil)
			}
			return do()
		})
		exports := cluster.Objects(w.controlPlane.Client(), cluster.APIServiceExports, "tenant")
		exports.Told = w.heartbeat.readable(true)
		informer := exports.Informer(cache.Indexers{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); informer.RunWithContext(ctx) }()
		w.run()
		time.Sleep(time.Minute)
		if c := w.heartbeat.snapshot().connected(); !informer.HasSynced() || c.Reason != v1alpha1.ReasonStepFailed || c.Severity != v1alpha1.SeverityError {
			t.Errorf("while it is refused: %+v", c)
		}
		permitted.Store(true)
		time.Sleep(time.Minute)
		if c := w.heartbeat.snapshot().connected(); c.Status != metav1.ConditionTrue {
			t.Errorf("once it is permitted: %+v", c)
		}
		cancel()
		<-done
	})
}

// TestTokenIsNotQuoted: what the App Cluster has against a write to the kubeconfig Secret is told
// without its words, which a policy may have filled with the token: in a condition, and on each claim
// whose deletion cannot be noted there.
func TestTokenIsNotQuoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		app := w.keep(true)
		app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "patch" && r.Resource == cluster.Secrets {
				return apierrors.NewForbidden(r.Resource.GroupResource(), r.Object.Name, errors.New("ValidatingAdmissionPolicy 'quoting' with binding 'b' denied request: it has the token t2"))
			}
			return do()
		})
		w.run()
		time.Sleep(time.Minute)
		condition := w.heartbeat.snapshot().beating
		logs := &deletionLogs{}
		journal := logs.of(cache.NewObjectName("klutch-bind", "widgets.example.org"), w.heartbeat.secret).forSync().Save(t.Context(), "deleted")
		if condition.Reason != v1alpha1.ReasonKubeconfigSecretUpdateFailed || !fates.IsRefused(journal) {
			t.Fatalf("%+v, %v", condition, journal)
		}
		for _, said := range []string{condition.Message, journal.Error(), cluster.Explain(journal)} {
			if strings.Contains(said, "t2") || !strings.Contains(said, "does not permit") || !strings.Contains(said, "'quoting'") {
				t.Errorf("it is told: %s", said)
			}
		}
	})
}

// TestRotationsArePaced: a platform that offers another credential at each look has the kubeconfig Secret of the App
// Cluster written once a minute in the end, with as many audit records, and the binding says so.
func TestRotationsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		app := w.keep(true)
		var offered, written atomic.Int64
		w.controlPlane.Intercept(func(ctx context.Context, r fakecluster.Request, do func() error) error {
			time.Sleep(10 * time.Millisecond)
			if r.Verb == "get" && r.Resource == cluster.Secrets {
				w.offer(ctx, w.controlPlane.Client(), "tenant", fmt.Sprint("t", offered.Add(1)))
			}
			return do()
		})
		app.Intercept(func(_ context.Context, r fakecluster.Request, do func() error) error {
			if r.Verb == "patch" && r.Resource == cluster.Secrets {
				written.Add(1)
			}
			return do()
		})
		if _, err := w.heartbeat.secret.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(any, any) {
			if k, _ := w.heartbeat.secret.read(); k != nil { // as a connection does
				(&session{heartbeat: w.heartbeat, token: w.heartbeat.token}).use(k.Token)
			}
		}}); err != nil {
			t.Fatal(err)
		}
		w.run()
		time.Sleep(time.Hour)
		synctest.Wait()
		if written, offered := written.Load(), offered.Load(); written < 60 || written > 150 || offered > 600 {
			t.Errorf("written %d times in an hour, and looked at %d times", written, offered)
		}
		time.Sleep(probeEvery)
		if c := w.heartbeat.snapshot(); c.beating.Reason != v1alpha1.ReasonStepFailed || c.connected().Status != metav1.ConditionTrue {
			t.Errorf("it is told as %+v", c)
		}
	})
}

// TestTenantWithALongUID: a UID that no API server gives is not written into the App Cluster, and is told; the one
// that follows is recorded.
func TestTenantWithALongUID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newBeatingWorld(t)
		app := w.keep(false)
		hostile := &identified{Interface: w.heartbeat.calls}
		hostile.uid.Store(strings.Repeat("u", 200<<10))
		w.heartbeat.calls = hostile
		recorded := func() string {
			u, err := app.Client().Resource(cluster.Secrets).Namespace("klutch-bind").Get(t.Context(), "kubeconfig", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return u.GetAnnotations()[v1alpha1.TenantUIDAnnotation]
		}
		w.run()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(recorded()); n > 0 {
			t.Errorf("a UID of %d bytes is recorded", n)
		}
		if c := w.heartbeat.snapshot().connected(); c.Reason != v1alpha1.ReasonControlPlaneAnswerTooLarge || !strings.Contains(c.Message, "UID") || len(c.Message) > cluster.MaxMessage {
			t.Errorf("Connected is %.300v", c)
		}
		hostile.uid.Store("3c5be2b8")
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if uid := recorded(); uid != "3c5be2b8" {
			t.Errorf("%.50q is recorded", uid)
		}
		if c := w.heartbeat.snapshot().connected(); c.Status != metav1.ConditionTrue {
			t.Errorf("afterwards %+v", c)
		}
	})
}

// An identified client reads namespaces with that UID.
type identified struct {
	dynamic.Interface
	uid atomic.Value
}

func (c *identified) Resource(resource schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	if resource != cluster.NamespacesResource {
		return c.Interface.Resource(resource)
	}
	return &identifiedNamespaces{c.Interface.Resource(resource), c}
}

type identifiedNamespaces struct {
	dynamic.NamespaceableResourceInterface
	as *identified
}

func (n *identifiedNamespaces) Namespace(string) dynamic.ResourceInterface { return n }

func (n *identifiedNamespaces) Get(ctx context.Context, name string, o metav1.GetOptions, sub ...string) (*unstructured.Unstructured, error) {
	u, err := n.NamespaceableResourceInterface.Get(ctx, name, o, sub...)
	if uid, _ := n.as.uid.Load().(string); err == nil {
		u.SetUID(types.UID(uid))
	}
	return u, err
}
