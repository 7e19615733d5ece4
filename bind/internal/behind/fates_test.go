// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var widgets = schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}

// Whatever an API server answers for as long as it does: within 15 seconds a claim that is not
// in step for it has an Event, and its binding counts it.
func TestEachFateIsTold(t *testing.T) {
	const told = 15 * time.Second
	asks := map[string]struct {
		target bool // it is the target's API server that refuses
		meets  func(fakecluster.Request) bool
	}{
		"the target":          {true, func(r fakecluster.Request) bool { return r.Verb == "apply" }},
		"reads of the target": {true, func(r fakecluster.Request) bool { return r.Verb == "apply" || r.Verb == "get" }},
		"the status":          {false, func(r fakecluster.Request) bool { return r.Subresource == "status" }},
		"the finalizer":       {false, func(r fakecluster.Request) bool { return r.Verb == "patch" && r.Subresource == "" }},
	}
	for _, answer := range fakecluster.Answers() {
		for name, ask := range asks {
			err := answer.Err(fakecluster.Request{Resource: widgets})
			t.Run(name+"/"+strings.ReplaceAll(err.Error(), "/", " "), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					source, target := fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"}), fakecluster.New(fakecluster.Resource{GroupVersionResource: widgets, Kind: "Widget"})
					refuse := func(ctx context.Context, r fakecluster.Request, do func() error) error {
						if r.Resource == widgets && ask.meets(r) {
							return answer.Err(r)
						}
						return do()
					}
					l := NewLedger(func() {})
					end := run(t, source, target, l)
					defer end()
					create(t, source, "before")
					time.Sleep(5 * time.Second)
					if ask.target {
						target.Intercept(refuse)
					} else {
						source.Intercept(refuse)
					}
					create(t, source, "orders")
					if name == "the status" {
						time.Sleep(time.Second)
						patch := []byte(`{"status":{"phase":"Ready"}}`)
						if _, err := target.Client().Resource(widgets).Namespace("default").Patch(t.Context(), "orders", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
							t.Fatal(err)
						}
					}
					var events []string
					for began := time.Now(); time.Since(began) < told; time.Sleep(time.Second) {
						news, _ := l.News(time.Now())
						for _, n := range news {
							events = append(events, n.Object.Name+" "+n.Type)
						}
					}
					counted, _ := l.Condition("widgets.example.org", time.Now())
					if !slices.Contains(events, "orders Warning") || counted.Status == metav1.ConditionTrue {
						t.Errorf("Events %q, %s: %s", events, counted.Status, counted.Message)
					}
				})
			})
		}
	}
}

// run syncs widgets until the returned function is called.
func run(t *testing.T, source, target *fakecluster.Cluster, l *Ledger) (end func()) {
	t.Helper()
	from, err := klutchsync.NewClusterForClients(source.Client(), source.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	to, err := klutchsync.NewClusterForClients(target.Client(), target.Metadata())
	if err != nil {
		t.Fatal(err)
	}
	s, err := klutchsync.New(from, to, widgets, klutchsync.Options{Mapper: klutchsync.Identity(), Hooks: klutchsync.Hooks{Reported: l.Report}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func create(t *testing.T, c *fakecluster.Cluster, name string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": "small"}}}
	u.SetName(name)
	if _, err := c.Client().Resource(widgets).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
