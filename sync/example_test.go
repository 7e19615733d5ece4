// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"context"
	"fmt"
	gosync "sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// cluster returns a cluster in memory, and the server behind it.
func cluster() (*klutchsync.Cluster, *fakecluster.Cluster) {
	server := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
	c, err := klutchsync.NewClusterForClients(server.Client(), server.Metadata())
	if err != nil {
		fmt.Println(err)
	}
	return c, server
}

func create(c *fakecluster.Cluster, namespace, name string) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": "small"},
	}}
	u.SetName(name)
	if _, err := c.Client().Resource(widgets).Namespace(namespace).Create(context.Background(), u, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
}

// A Sync makes a target for each source.
func ExampleNew() {
	source, app := cluster()
	target, control := cluster()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := klutchsync.New(source, target, widgets, klutchsync.Options{
		Binding: "widgets",
		Hooks: klutchsync.Hooks{Done: func(_ context.Context, r klutchsync.Result) {
			if len(r.Steps) > 0 {
				fmt.Println(r.Source, r.Steps)
				cancel()
			}
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	create(app, "default", "a")
	if err := s.Run(ctx); err != nil {
		fmt.Println(err)
	}
	u, err := control.Client().Resource(widgets).Namespace("default").Get(context.Background(), "a", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(u.Object["spec"])
	// Output:
	// default/a [add-finalizer create]
	// map[size:small]
}

// An argument that cannot work is found before anything runs.
func ExampleNew_mistake() {
	source, _ := cluster()
	target, _ := cluster()
	_, err := klutchsync.New(source, target, widgets, klutchsync.Options{TargetScope: klutchsync.ScopeMapped})
	fmt.Println(err)
	// Output: sync: TargetScope Mapped needs a mapper of namespaces
}

// A Cluster is described as for any Kubernetes client.
func ExampleNewCluster() {
	_, err := klutchsync.NewCluster(&rest.Config{Host: "https://control-plane.example.org"})
	fmt.Println(err)
	_, err = klutchsync.NewCluster(nil)
	fmt.Println(err)
	// Output:
	// <nil>
	// sync: config is nil
}

// Clients that exist already do as well.
func ExampleNewClusterForClients() {
	fake := fakecluster.New()
	_, err := klutchsync.NewClusterForClients(fake.Client(), fake.Metadata())
	fmt.Println(err)
	// Output: <nil>
}

// Each source namespace gets a namespace of its own on the target, when it is
// wanted.
func ExampleNewNamespaces() {
	table := klutchsync.NewNamespaces(func(source string) { fmt.Println("wanted for", source) })
	object := cache.NewObjectName("team", "db")
	_, ok := table.Target(object)
	fmt.Println(ok)
	table.Set("team", "cluster-x7k2p-team")
	target, _ := table.Target(object)
	fmt.Println(target)
	// Output:
	// wanted for team
	// false
	// cluster-x7k2p-team/db
}

// Cluster-scoped objects of different tenants get different prefixes.
func ExamplePrefix() {
	target, _ := klutchsync.Prefix("x7k2p-").Target(cache.NewObjectName("", "db"))
	fmt.Println(target)
	// Output: x7k2p-db
}

// Syncs of a Set come and go while it runs.
func ExampleNewSet() {
	source, app := cluster()
	target, _ := cluster()
	made := make(chan string, 1)
	s, err := klutchsync.New(source, target, widgets, klutchsync.Options{Hooks: klutchsync.Hooks{
		Wrote: func(_ context.Context, w klutchsync.Write) {
			if w.Step == "create" {
				made <- w.Object.String()
			}
		},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	set := klutchsync.NewSet(klutchsync.SetOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- set.Run(ctx) }()
	set.Put("widgets", s)
	create(app, "default", "a")
	fmt.Println("made", <-made)
	set.Remove("widgets")
	_, ok := set.State("widgets")
	fmt.Println(ok)
	cancel()
	fmt.Println(<-done)
	// Output:
	// made default/a
	// false
	// <nil>
}

// once runs s until it is told that what the example waits for is done.
func once(s *klutchsync.Sync, done <-chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	var wg gosync.WaitGroup
	wg.Go(func() {
		defer cancel()
		select {
		case <-done:
		case <-ctx.Done():
		}
	})
	if err := s.Run(ctx); err != nil {
		fmt.Println(err)
	}
	wg.Wait()
}

func namespace(c *fakecluster.Cluster, name string) {
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(name)
	resource := schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	if _, err := c.Client().Resource(resource).Create(context.Background(), ns, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
}

func show(c *fakecluster.Cluster, namespace, name string) {
	u, err := c.Client().Resource(widgets).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(namespace+"/"+name, u.Object["spec"])
}

// made tells when a Sync has made a target, or has taken one over.
func made(done chan<- struct{}) klutchsync.Hooks {
	return klutchsync.Hooks{Done: func(_ context.Context, r klutchsync.Result) {
		for _, step := range r.Steps {
			if step == "create" || step == "force" {
				done <- struct{}{}
			}
		}
	}}
}

// Several App Clusters meet in one control plane, each in namespaces of its own.
func Example_tenants() {
	target, control := cluster()
	for _, tenant := range []string{"ada", "bob"} {
		source, app := cluster()
		create(app, "default", "db")
		namespaces := klutchsync.NewNamespaces(nil)
		namespaces.Set("default", tenant+"-default")
		namespace(control, tenant+"-default")
		done := make(chan struct{}, 10)
		s, err := klutchsync.New(source, target, widgets, klutchsync.Options{Binding: tenant, Mapper: namespaces, Hooks: made(done)})
		if err != nil {
			fmt.Println(err)
			return
		}
		once(s, done)
	}
	show(control, "ada-default", "db")
	show(control, "bob-default", "db")
	// Output:
	// ada-default/db map[size:small]
	// bob-default/db map[size:small]
}

// Objects that exist already are taken over by the sources of the same name.
func Example_adopt() {
	source, app := cluster()
	target, control := cluster()
	create(app, "default", "db")
	create(control, "default", "db")
	done := make(chan struct{}, 10)
	s, err := klutchsync.New(source, target, widgets, klutchsync.Options{Conflict: klutchsync.ConflictAdopt, Hooks: made(done)})
	if err != nil {
		fmt.Println(err)
		return
	}
	once(s, done)
	u, err := control.Client().Resource(widgets).Namespace("default").Get(context.Background(), "db", metav1.GetOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	origin, _ := klutchsync.OriginOf(u)
	fmt.Println("made from", origin.Namespace+"/"+origin.Name)
	// Output: made from default/db
}

// Hooks tell what was written, and what keeps an object from being in step.
func Example_observe() {
	source, app := cluster()
	target, control := cluster()
	create(app, "default", "db")
	create(control, "default", "db") // another owner's
	reported := make(chan struct{}, 10)
	s, err := klutchsync.New(source, target, widgets, klutchsync.Options{Hooks: klutchsync.Hooks{
		Wrote: func(_ context.Context, w klutchsync.Write) {
			fmt.Println("wrote", w.Side, w.Step, w.Object)
			if w.Step == "set-message" {
				reported <- struct{}{}
			}
		},
		Reported: func(_ context.Context, r klutchsync.Report) { fmt.Println("reported", r.Source, r.Reason) },
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	once(s, reported)
	// Output:
	// reported default/db TargetConflict
	// wrote Source set-message default/db
}
