// SPDX-License-Identifier: Apache-2.0

package servicebroker_test

import (
	"context"
	"flag"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/examples/servicebroker"
	"github.com/klutch-go/sdk/examples/servicebroker/osb"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
)

var rest = flag.Duration("rest", 5*time.Second, "how long nothing may be written at rest")

// TestOnCluster: the sample claims of the catalogue on a real API server, and its silence.
func TestOnCluster(t *testing.T) {
	control := cluster.ForTest(t, "broker")
	p := newPlatform(t, true)
	if err := stack.Apply(t.Context(), control, catalog.CRDs()...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := &servicebroker.Controller{Broker: osb.Broker{URL: p.broker.URL}, Client: dynamic.NewForConfigOrDie(control.Config()), Pause: 50 * time.Millisecond}
	claims := catalog.Claims()[:2]
	if err := stack.Apply(t.Context(), control, claims...); err != nil {
		t.Fatal(err)
	}
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	objects := []stack.Object{
		{Cluster: control, Resource: instances, Namespace: "default", Name: "orders"},
		{Cluster: control, Resource: bindings, Namespace: "default", Name: "orders-api"},
		{Cluster: control, Resource: secrets, Namespace: "default", Name: "orders-api-service-binding"},
	}
	var seen []*unstructured.Unstructured
	for i, state := range []string{"Running", "Created"} {
		seen = append(seen, await(t, objects[i], stack.Field(state, "status", "managed", "state")))
	}
	seen = append(seen, await(t, objects[2], stack.There))
	time.Sleep(*rest)
	for i, o := range objects {
		if u := await(t, o, stack.There); u.GetResourceVersion() != seen[i].GetResourceVersion() {
			t.Errorf("%s was written at rest", o)
		}
	}
	for _, o := range objects[:2] {
		client, err := o.Client()
		if err == nil {
			err = client.Delete(t.Context(), o.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		await(t, o, stack.Gone)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.made)+len(p.going) > 0 {
		t.Errorf("the broker has %v, and does %v", p.made, p.going)
	}
}

func await(t *testing.T, o stack.Object, c stack.Condition) *unstructured.Unstructured {
	t.Helper()
	u, err := o.Await(t.Context(), 2*time.Minute, c)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
