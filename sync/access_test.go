// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/sync/internal/namespaces"
)

// A doorkeeper gives access to the Secrets of the source, one namespace at a time.
type doorkeeper struct {
	mu     gosync.Mutex
	closed map[string]error // namespaces that it gives no access to
	open   map[string]bool
	asks   int
	said   []string        // what it was asked, once in a row
	strays []string        // requests that would have been refused
	unreal map[string]bool // namespaces whose access it gives, and which it has not
	keeps  error           // why it takes no access back
	broken error           // what an API server answers to lists and watches
}

func (d *doorkeeper) access(_ context.Context, namespace string, wanted bool) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks++
	if word := fmt.Sprint(namespace, " ", wanted); !slices.Contains(d.said, word) {
		d.said = append(d.said, word)
	}
	if err := d.closed[namespace]; err != nil && wanted {
		return false, err
	}
	if !wanted && d.keeps != nil {
		return false, d.keeps
	}
	d.open[namespace] = wanted && !d.unreal[namespace]
	return wanted, nil
}

// admit refuses requests on Secrets of the source as RBAC does.
func (d *doorkeeper) admit(_ context.Context, r fakecluster.Request, do func() error) error {
	d.mu.Lock()
	open, broken := d.open[r.Object.Namespace], d.broken
	if r.Resource == secrets && (r.Verb == "list" || r.Verb == "watch") && broken != nil {
		d.mu.Unlock()
		return broken
	}
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

// hollow has the access that it gives to a namespace not work, or work.
func (d *doorkeeper) hollow(namespace string, unreal bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unreal[namespace], d.open[namespace] = unreal, d.open[namespace] || !unreal && d.closed[namespace] == nil
}

// fail has API servers fail to list, and itself to take access back.
func (d *doorkeeper) fail(lists, keeps error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broken, d.keeps = lists, keeps
}

// asksIn is how often it is asked while that passes.
func (d *doorkeeper) asksIn(while time.Duration) int {
	d.mu.Lock()
	before := d.asks
	d.mu.Unlock()
	time.Sleep(while)
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.asks - before
}

// shut takes access away, as a person does who deletes a RoleBinding.
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

// P32: access that fails after a restart is asked for until the copies of sources that have gone meanwhile
// are taken back, on either side.
func TestP32AccessToWhatIsLeft(t *testing.T) {
	for side, related := range map[Side]Related{SourceSide: {Resource: secrets, From: SourceSide, Names: []string{"creds"}}, TargetSide: handedOut} {
		t.Run(string(side), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				d := &doorkeeper{open: map[string]bool{}, closed: map[string]error{}}
				_, stop := b.admitted(d, related)
				original, copied := b.source, func() bool { return b.getSecret(b.target, b.targetNS, "creds") != nil }
				in := b.sourceNS
				if side == TargetSide {
					original, in, copied = b.target, b.targetNS, func() bool { return b.copied("creds") != nil }
				}
				b.secret(original, in, "creds", "cGFzcw==")
				b.claim(widgets, "Widget", "a")
				b.names(widgets, "a", `"creds"`)
				if !copied() {
					t.Fatal("no copy")
				}
				stop()
				b.merge(b.source, b.sourceNS, "a", `{"metadata":{"finalizers":null}}`)
				b.delete(b.source, b.sourceNS, "a")
				b.delete(b.target, b.targetNS, "a")
				d.set(b.sourceNS, errors.New("no answer"))
				_, stop = b.admitted(d, related)
				defer stop()
				time.Sleep(time.Hour)
				if n := d.asksIn(time.Hour); n < 6 || n > 60 {
					t.Errorf("access was asked for %d times in an hour", n)
				}
				d.set(b.sourceNS, nil)
				time.Sleep(11 * time.Minute)
				if copied() {
					t.Error("the copy of before the restart is left")
				}
				time.Sleep(2*namespaces.Idle + time.Minute)
				if d.mu.Lock(); d.open[b.sourceNS] {
					t.Error("access was not given back")
				}
				d.mu.Unlock()
			})
		})
	}
}

// I19: access that was refused to a namespace which is mapped and holds nothing is asked for again rarely,
// and not at all where no copy can be left, or a policy waits for a source.
func TestI19AccessToNothing(t *testing.T) {
	noParams := errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no params found for policy binding")
	up := Related{Resource: secrets, From: SourceSide, Names: []string{"*"}}
	for name, c := range map[string]struct {
		related Related
		refused error
		most    int
	}{
		"copies would be on the target": {up, errors.New("no answer"), 0},
		"a policy waits for a source":   {handedOut, noParams, 0},
		"copies may be on the source":   {handedOut, errors.New("no answer"), 60},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				d := &doorkeeper{open: map[string]bool{}, closed: map[string]error{b.sourceNS: c.refused}}
				s, stop := b.admitted(d, c.related)
				defer stop()
				time.Sleep(time.Hour)
				if n := d.asksIn(time.Hour); n > c.most || n == 0 && c.most > 0 {
					t.Errorf("access was asked for %d times in an hour", n)
				}
				if told := s.Status().Unreadable; len(told) > 0 {
					t.Errorf("told: %v", told)
				}
			})
		})
	}
}

// P32: access that cannot be given back is ever more rarely tried to be, and what comes meanwhile has it.
func TestP32AccessThatStays(t *testing.T) {
	for why, err := range map[string]error{"no answer": errors.New("no answer"), "not admitted": forbidden(fakecluster.Request{}), "cannot be mended": fates.ErrTerminal} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				d := &doorkeeper{open: map[string]bool{}}
				_, stop := b.admitted(d, handedOut)
				defer stop()
				come := func() {
					b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
					b.claim(widgets, "Widget", "a")
					b.names(widgets, "a", `"creds"`)
					if b.copied("creds") == nil {
						t.Error("no copy")
					}
				}
				leave := func() {
					b.delete(b.source, b.sourceNS, "a")
					b.deleteSecret(b.target, b.targetNS, "creds")
				}
				come()
				d.fail(nil, err)
				leave()
				time.Sleep(2*namespaces.Idle + time.Minute)
				if n := d.asksIn(time.Hour); n < 1 || n > 60 { // two after each list of a fake that sends no bookmarks
					t.Errorf("access was given back %d times in an hour", n)
				}
				come()
				leave()
				d.fail(nil, nil)
				time.Sleep(time.Hour)
				if d.mu.Lock(); d.open[b.sourceNS] {
					t.Error("access was not given back")
				}
				d.mu.Unlock()
				come()
			})
		})
	}
}

// I18: where access was given, and an API server fails all the same, that is told.
func TestI18AccessThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		d := &doorkeeper{open: map[string]bool{}}
		d.fail(apierrors.NewInternalError(errors.New("etcdserver: no leader "+strings.Repeat("x", 100<<10))), nil)
		s, stop := b.admitted(d, handedOut)
		defer stop()
		b.claim(widgets, "Widget", "a")
		time.Sleep(time.Minute)
		if why := s.Status().Unreadable[b.sourceNS]; !strings.Contains(why, "no leader") || len(why) > 1<<10 {
			t.Errorf("told %d bytes: %.200q", len(why), why)
		}
		d.fail(nil, nil)
		time.Sleep(time.Minute)
		if st := s.Status(); len(st.Unreadable) != 0 || st.Err != nil {
			t.Errorf("told %+v", st)
		}
	})
}

// P32: access that a person takes away is asked for again.
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

// P32: an admission policy refuses access until it knows the bound kind, half a minute after a bind: the
// copies are there within ten seconds, however many other namespaces wait that hold nothing.
func TestP32AccessOfANewKind(t *testing.T) {
	for _, after := range []time.Duration{10 * time.Second, 21 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			d := &doorkeeper{open: map[string]bool{}, closed: map[string]error{}}
			d.set(b.sourceNS, errors.New("the policy does not know the kind"))
			for n := range 2 * fates.Few {
				empty := fmt.Sprint("empty-", n)
				d.set(empty, errors.New("the policy does not know the kind"))
				b.namespace(b.source, empty)
				b.table.Set(empty, "svc-"+empty)
			}
			_, stop := b.admitted(d, handedOut)
			defer stop()
			b.secret(b.target, b.targetNS, "creds", "cGFzcw==")
			b.claim(widgets, "Widget", "a")
			b.names(widgets, "a", `"creds"`)
			time.Sleep(after)
			d.set(b.sourceNS, nil)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if b.copied("creds") == nil {
				t.Errorf("no copy ten seconds after access could be had, which took %v", after)
			}
		})
	}
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

// requestsOfAsk is what it costs a konnector to ask for access: a read, a review and a write.
const requestsOfAsk = 3

// I19: access that is refused, or is granted and does not work, is asked for ever more rarely, however
// many namespaces there are. Once it can be had, all have it within a minute, and nothing tells of it.
func TestI19AccessIsPaced(t *testing.T) {
	t.Parallel()
	for why, refuse := range map[string]func(d *doorkeeper, namespace string){
		"refused":  func(d *doorkeeper, namespace string) { d.set(namespace, errors.New("a policy does not admit it")) },
		"not real": func(d *doorkeeper, namespace string) { d.hollow(namespace, true) },
	} {
		t.Run(why, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 100
				b := newBench(t)
				d := &doorkeeper{open: map[string]bool{}, closed: map[string]error{}, unreal: map[string]bool{}}
				var namespaces []string
				for n := range most {
					namespaces = append(namespaces, fmt.Sprint("team-", n))
					refuse(d, namespaces[n])
				}
				b.open(namespaces...)
				for _, namespace := range namespaces {
					b.create(b.source, namespace, object(t, `{"apiVersion":"example.org/v1","kind":"Widget","metadata":{"name":"a"},"spec":{}}`))
				}
				s, stop := b.admitted(d, Related{Resource: secrets, From: TargetSide, Names: []string{"*"}})
				defer stop()
				time.Sleep(time.Hour)
				if n := d.asksIn(time.Hour) * requestsOfAsk; n > 3600 || n == 0 {
					t.Errorf("%d requests in an hour", n)
				}
				if n := len(s.Status().Unreadable); n != most {
					t.Errorf("%d namespaces are told, not %d", n, most)
				}
				for _, namespace := range namespaces {
					d.set(namespace, nil)
					d.hollow(namespace, false)
				}
				time.Sleep(time.Minute)
				b.settle()
				for _, namespace := range namespaces {
					if b.getSecret(b.source, namespace, "down") == nil {
						t.Errorf("no copy in namespace %s", namespace)
					}
				}
				if len(s.Status().Unreadable) != 0 {
					t.Errorf("told: %v", s.Status().Unreadable)
				}
			})
		})
	}
}
