// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/namespaces"
)

// A doorkeeper gives access to the Secrets of the source, one namespace at a time.
type doorkeeper struct {
	mu     gosync.Mutex
	closed map[string]error // namespaces that it gives no access to
	open   map[string]bool
	said   []string // what it was asked, once in a row
	strays []string // requests that would have been refused
}

func (d *doorkeeper) access(_ context.Context, namespace string, wanted bool) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if word := fmt.Sprint(namespace, " ", wanted); !slices.Contains(d.said, word) {
		d.said = append(d.said, word)
	}
	if err := d.closed[namespace]; err != nil && wanted {
		return false, err
	}
	d.open[namespace] = wanted
	return wanted, nil
}

// admit refuses requests on Secrets of the source as RBAC does.
func (d *doorkeeper) admit(_ context.Context, r fakecluster.Request, do func() error) error {
	d.mu.Lock()
	open := d.open[r.Object.Namespace]
	if r.Resource == secrets && !open {
		d.strays = append(d.strays, r.Verb+" "+r.Object.String())
	}
	d.mu.Unlock()
	if r.Resource == secrets && !open {
		return forbidden(r)
	}
	return do()
}

func (d *doorkeeper) set(namespace string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed[namespace] = err
}

// shut takes access away, as does whoever deletes a RoleBinding.
func (d *doorkeeper) shut(namespace string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[namespace] = false
}

func (d *doorkeeper) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.said))
}

// admitted has a Sync run whose access to Secrets of the source is given by d.
func (b *bench) admitted(d *doorkeeper, related ...Related) (s *Sync, stop func()) {
	b.Helper()
	// What the test itself does is not held against the Sync.
	view := b.fakeSource.View(d.admit)
	from, err := NewClusterForClients(view.Client(), view.Metadata())
	if err != nil {
		b.Fatal(err)
	}
	if s, err = New(from, b.to, widgets, Options{Mapper: b.table, Workers: 4, Related: related, RelatedAccess: d.access}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := start(func() error { return s.Run(ctx) })
	return s, func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

var handedOut = Related{Resource: secrets, From: TargetSide, References: []string{"status.secret"}}

// P32: a namespace without access holds up its own related objects, and nothing else:
// neither bound objects, statuses nor deletions, there or in other namespaces.
func TestP32NamespaceWithoutAccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &doorkeeper{open: map[string]bool{}, closed: map[string]error{b.sourceNS: errors.New("not yet")}}
		b.namespace(b.source, "other")
		b.namespace(b.target, "svc-other")
		b.table.Set("other", "svc-other")
		s, stop := b.admitted(d, handedOut)
		defer stop()
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.secret(b.target, "svc-other", "creds", "cGFzcw==")
		b.claim(widgets, "Widget", "a")
		b.claim(widgets, "Widget", "doomed")
		b.create(b.source, "other", object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"b"},"spec":{}}`))
		b.settle()
		b.names(widgets, "a", `"creds"`)
		b.merge(b.target, "svc-other", "b", `{"status":{"secret":"creds"}}`, "status")
		b.delete(b.source, b.sourceNS, "doomed")
		b.settle()
		if b.targetOf("doomed") != nil || b.get(b.source, b.sourceNS, "doomed") != nil {
			t.Error("a deletion is held up")
		}
		if got := field(b.get(b.source, b.sourceNS, "a"), "status", "secret"); got != "creds" {
			t.Errorf("status has %v", got)
		}
		if b.copied("creds") != nil || b.getSecret(b.source, "other", "creds") == nil {
			t.Error("the Secret of the namespace with access has not arrived, or the other has")
		}
		if st := s.Status(); !st.Synced || st.Err != nil || !cmp.Equal(st.Unreadable, map[string]string{b.sourceNS: "not yet"}) {
			t.Errorf("status is %+v", st)
		}
		d.set(b.sourceNS, nil)
		b.settle()
		time.Sleep(waitPause)
		b.settle()
		if b.copied("creds") == nil || len(s.Status().Unreadable) != 0 {
			t.Errorf("copy %v, status %+v", b.copied("creds"), s.Status())
		}
		if len(d.strays) != 0 {
			t.Errorf("requests without access: %q", d.strays)
		}
	})
}

// P32: access is given back once neither bound objects nor copies are left, and what is
// left of a time before a restart is found.
func TestP32AccessIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &doorkeeper{open: map[string]bool{}}
		b.namespace(b.source, "empty")
		_, stop := b.admitted(d, handedOut)
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		if b.copied("creds") == nil {
			t.Fatal("no copy")
		}
		stop()
		b.merge(b.source, b.sourceNS, "a", `{"metadata":{"finalizers":null}}`)
		b.delete(b.source, b.sourceNS, "a")
		b.delete(b.target, b.targetNS, "a")
		b.deleteSecret(b.target, b.targetNS, "creds")
		_, stop = b.admitted(d, handedOut)
		defer stop()
		b.settle()
		if b.copied("creds") != nil {
			t.Error("a copy of before the restart is left")
		}
		if diff := cmp.Diff([]string{b.sourceNS + " true"}, d.asked()); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		time.Sleep(2*namespaces.Idle + time.Minute)
		if diff := cmp.Diff([]string{b.sourceNS + " false", b.sourceNS + " true"}, d.asked()); diff != "" {
			t.Errorf("asked later (-want +got):\n%s", diff)
		}
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		if b.copied("creds") == nil {
			t.Error("no copy after access was given back and taken again")
		}
		if len(d.strays) != 0 {
			t.Errorf("requests without access: %q", d.strays)
		}
	})
}

// P32: access that somebody takes away is asked for again.
func TestP32AccessIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &doorkeeper{open: map[string]bool{}}
		s, stop := b.admitted(d, handedOut)
		defer stop()
		b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
		b.secret(b.target, b.targetNS, "later", "cGFzcw==")
		b.claim(widgets, "Widget", "a")
		b.names(widgets, "a", `"creds"`)
		d.shut(b.sourceNS)
		b.names(widgets, "a", `"later"`)
		time.Sleep(time.Minute)
		b.settle()
		if b.copied("later") == nil || b.copied("creds") != nil || b.message("a") != "" {
			t.Errorf("copies %v, %v; message %q; status %+v", b.copied("later"), b.copied("creds"), b.message("a"), s.Status())
		}
	})
}

// P32: originals of the source are read where access is given, and nowhere else.
func TestP32AccessToOriginals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &doorkeeper{open: map[string]bool{}}
		b.namespace(b.source, "private")
		_, stop := b.admitted(d, Related{Resource: secrets, From: SourceSide})
		defer stop()
		b.secret(b.source, b.sourceNS, "config", "b25l")
		b.secret(b.source, "private", "config", "b25l")
		b.claim(widgets, "Widget", "a")
		b.settle()
		if b.getSecret(b.target, b.targetNS, "config") == nil {
			t.Error("the secret of a namespace with bound objects did not go up")
		}
		if slices.Contains(d.asked(), "private true") || len(d.strays) != 0 {
			t.Errorf("asked %q, requests without access %q", d.asked(), d.strays)
		}
	})
}
