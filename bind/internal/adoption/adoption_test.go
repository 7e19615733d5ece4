// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// However many objects a provider makes beyond the limit, one look says for all of them that there
// is no room; once there is some, they become claims.
func TestBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 5
		p := newProvider(t, 300)
		terms := Terms{Offered: true, Limit: limit}
		if n := p.during(5*time.Minute, terms); n != limit {
			t.Errorf("%d objects were adopted", n)
		}
		p.reads = 0
		p.during(10*time.Minute, terms)
		if c, _ := p.tracker.Condition("widgets.example.org", terms, time.Now()); p.reads > 60 || c.Reason != v1alpha1.ReasonAdoptionLimit {
			t.Errorf("%d requests in ten minutes beyond the limit, and %+v", p.reads, c)
		}
		terms.Limit += 20
		if n := p.during(5*time.Minute, terms); n != 20 {
			t.Errorf("%d more were adopted once there was room", n)
		}
	})
}

// Without an agreement a provider's objects cost no more than the others that are refused: one request in
// fates.Share, however many they are.
func TestWithoutAnAgreement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(t, mostWaiting)
		p.during(2*time.Hour, Terms{Offered: true})
		p.reads = 0
		p.during(2*time.Hour, Terms{Offered: true})
		if most := int(2*time.Hour/fates.Share) + mostWaiting; p.reads == 0 || p.reads > most {
			t.Errorf("%d requests in two hours, and %d is the most", p.reads, most)
		}
	})
}

// A provider has made objects that the Sync has found.
type provider struct {
	*testing.T
	tracker *Tracker
	clients Clients
	reads   int
}

func newProvider(t *testing.T, objects int) *provider {
	t.Helper()
	resource := schema.GroupVersionResource{Group: "example.org", Version: "v1", Resource: "widgets"}
	widgets := fakecluster.Resource{GroupVersionResource: resource, Kind: "Widget"}
	app, platform := fakecluster.New(widgets), fakecluster.New(widgets)
	create(t, app.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}), "v1", "Namespace", "team")
	create(t, platform.Client().Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}), "v1", "Namespace", "service")
	p := &provider{T: t, tracker: New(func() {}), clients: Clients{Claims: app.Client().Resource(resource), Counted: app.Metadata().Resource(resource), Objects: platform.Client().Resource(resource)}}
	for i := range objects {
		name := fmt.Sprintf("made-%03d", i)
		create(t, platform.Client().Resource(resource).Namespace("service"), "example.org/v1", "Widget", name)
		p.tracker.Found(t.Context(), cache.NewObjectName("team", name), cache.NewObjectName("service", name))
	}
	count := func(_ context.Context, _ fakecluster.Request, do func() error) error { p.reads++; return do() }
	app.Intercept(count)
	platform.Intercept(count)
	return p
}

// during looks as often as it is due, for a time, and counts what becomes a claim.
func (p *provider) during(d time.Duration, terms Terms) (adopted int) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		adopted += len(p.tracker.Look(p.Context(), terms, p.clients))
		_, again := p.tracker.Condition("widgets.example.org", terms, time.Now())
		time.Sleep(max(again, time.Second))
	}
	return adopted
}

func create(t *testing.T, client dynamic.ResourceInterface, version, kind, name string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind}}
	u.SetName(name)
	if _, err := client.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
