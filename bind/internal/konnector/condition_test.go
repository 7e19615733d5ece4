// SPDX-License-Identifier: Apache-2.0

package konnector

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// short is a condition without its times.
func short(conditions []v1alpha1.Condition) []string {
	var out []string
	for _, c := range conditions {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s=%s %s@%d %s", c.Type, c.Status, c.Reason, c.ObservedGeneration, c.Message)))
	}
	return out
}

func TestVerdict(t *testing.T) {
	bad := failed(v1alpha1.ConditionConnected, "Bad", "It is bad.")
	allTrue := func(generation int64) []v1alpha1.Condition {
		var all []v1alpha1.Condition
		for _, c := range order {
			if optional(c) {
				continue
			}
			ok := v1alpha1.True(c)
			ok.ObservedGeneration = generation
			all = v1alpha1.SetCondition(all, ok)
		}
		return v1alpha1.Summarize(all, generation)
	}
	for name, tc := range map[string]struct {
		before []v1alpha1.Condition
		found  []v1alpha1.Condition
		want   []string
	}{
		"new, nothing known": {nil, []v1alpha1.Condition{pending("SecretValid", "Reading.")}, []string{
			"Ready=False Pending@2 Waits for what comes before it.",
			"Connected=False Pending@2 Waits for what comes before it.", "Heartbeating=False Pending@2 Waits for what comes before it.",
			"InformersSynced=False Pending@2 Waits for what comes before it.", "SchemaInSync=False Pending@2 Waits for what comes before it.",
			"SecretValid=False Pending@2 Reading.",
		}},
		"restarted, nothing known": {allTrue(2), []v1alpha1.Condition{pending("SecretValid", "Reading.")}, short(allTrue(2))},
		"blocked": {allTrue(2), []v1alpha1.Condition{v1alpha1.True("SecretValid"), bad}, []string{
			"Ready=False Bad@2 It is bad.", "Connected=False Bad@2 It is bad.", "Heartbeating=False Pending@2 Waits for Connected.",
			"InformersSynced=False Pending@2 Waits for Connected.", "SchemaInSync=False Pending@2 Waits for Connected.", "SecretValid=True @2",
		}},
		"of another generation": {allTrue(1), []v1alpha1.Condition{
			v1alpha1.True("SecretValid"), v1alpha1.True("Connected"), v1alpha1.True("SchemaInSync"), v1alpha1.True("Heartbeating"), pending("InformersSynced", "Reading."),
		}, []string{
			"Ready=False Pending@2 Reading.", "Connected=True @2", "Heartbeating=True @2", "InformersSynced=False Pending@2 Reading.", "SchemaInSync=True @2", "SecretValid=True @2",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVerdict()
			for _, c := range tc.found {
				v.set(c)
			}
			status := &v1alpha1.APIServiceBindingStatus{Conditions: tc.before}
			v.apply(status, 2)
			if diff := cmp.Diff(tc.want, short(status.Conditions)); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			again := status.DeepCopy()
			v.apply(again, 2)
			if diff := cmp.Diff(status, again); diff != "" {
				t.Errorf("conditions flap (-first +second):\n%s", diff)
			}
		})
	}
}

// P8: a provider that never ends an answer has a binding stay Ready for a minute after a
// start, and no longer.
func TestP8EndlessWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		record := &bindingRecord{}
		status := &v1alpha1.APIServiceBindingStatus{}
		ready := func() {
			v := newVerdict()
			for _, t := range order {
				v.set(v1alpha1.True(t))
			}
			record.judgeWait(v, 0)
			v.apply(status, 1)
		}
		look := func(c v1alpha1.Condition) (again time.Duration, ready string) {
			v := newVerdict()
			v.set(c)
			again = record.judgeWait(v, 0)
			v.apply(status, 1)
			return again, v1alpha1.FindCondition(status.Conditions, v1alpha1.ConditionReady).Message
		}
		reading := pending(v1alpha1.ConditionInformersSynced, "Reading.")
		for range 2 {
			ready()
			if again, ready := look(reading); again != unknownGrace || ready != "" {
				t.Errorf("at first: again in %s, %q", again, ready)
			}
			time.Sleep(unknownGrace / 2)
			if again, ready := look(reading); again != unknownGrace/2 || ready != "" {
				t.Errorf("then: again in %s, %q", again, ready)
			}
			time.Sleep(unknownGrace / 2)
			if _, ready := look(reading); ready == "" {
				t.Error("a minute later it is Ready, and nothing is read")
			}
		}
	})
}

// What a provider can make long stays short (P25).
func TestHostileMessage(t *testing.T) {
	v := newVerdict()
	v.set(failed("Connected", "Bad", strings.Repeat("ü", 1<<20)))
	status := &v1alpha1.APIServiceBindingStatus{}
	v.apply(status, 1)
	for _, c := range status.Conditions {
		if len(c.Message) > cluster.MaxMessage+len("…") {
			t.Errorf("%s has %d bytes", c.Type, len(c.Message))
		}
	}
}

func TestAway(t *testing.T) {
	port := 40000
	// Each dial has another port of its own, which must not show.
	op := func(err error) error {
		port++
		return &url.Error{Op: "Get", URL: "https://api/x?secret", Err: &net.OpError{
			Op: "read", Net: "tcp", Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 443}, Err: err,
		}}
	}
	for name, tc := range map[string]struct {
		err    func() error
		reason string // "" means that it is not away
		says   string
	}{
		"fine":          {func() error { return nil }, "", ""},
		"not found":     {func() error { return apierrors.NewNotFound(cluster.APIServiceBindings.GroupResource(), "a") }, "", ""},
		"forbidden":     {func() error { return apierrors.NewForbidden(cluster.APIServiceBindings.GroupResource(), "a", nil) }, "", ""},
		"conflict":      {func() error { return apierrors.NewConflict(cluster.APIServiceBindings.GroupResource(), "a", nil) }, "", ""},
		"unauthorized":  {func() error { return apierrors.NewUnauthorized("no") }, v1alpha1.ReasonTokenRevoked, "Run kubectl bind repair"},
		"reset":         {func() error { return op(syscall.ECONNRESET) }, v1alpha1.ReasonControlPlaneUnreachable, "read: connection reset by peer."},
		"no such host":  {func() error { return op(&net.DNSError{Err: "no such host", Name: "api", Server: "10.0.0.53:53"}) }, v1alpha1.ReasonControlPlaneUnreachable, "look up api: no such host."},
		"timeout":       {func() error { return context.DeadlineExceeded }, v1alpha1.ReasonControlPlaneUnreachable, "no answer in time. It is tried again by itself; kubectl bind doctor says"},
		"another CA":    {func() error { return &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}} }, v1alpha1.ReasonControlPlaneUnreachable, "Run kubectl bind repair, which writes the right CA"},
		"server broken": {func() error { return apierrors.NewInternalError(errors.New("etcd")) }, v1alpha1.ReasonControlPlaneUnreachable, "etcd"},
		"overloaded":    {func() error { return apierrors.NewTooManyRequests("slow down", 1) }, v1alpha1.ReasonControlPlaneUnreachable, "slow down"},
	} {
		t.Run(name, func(t *testing.T) {
			wrap := func() error {
				if err := tc.err(); err != nil {
					return fmt.Errorf("read: %w", err)
				}
				return nil
			}
			c, is := away("https://api", wrap())
			again, _ := away("https://api", wrap())
			if is != (tc.reason != "") || c.Reason != tc.reason || !strings.Contains(c.Message, tc.says) {
				t.Errorf("got %+v", c)
			}
			if c != again {
				t.Errorf("messages differ:\n%s\n%s", c.Message, again.Message)
			}
			if strings.Contains(c.Message, "secret") {
				t.Errorf("a query shows: %s", c.Message)
			}
		})
	}
}

func TestValidVersion(t *testing.T) {
	for v, want := range map[string]metav1.ConditionStatus{"v1.2.3": "True", "v0.0.0": "True", "1.2.3-rc.1": "True", "dev": "False", "": "False"} {
		if got := validVersion(v).Status; got != want {
			t.Errorf("%q: %s, want %s", v, got, want)
		}
	}
}

// A binding has an Event when it becomes Ready, and none when a Ready that stays has something
// to say: that would be told as if its objects had come in step.
func TestReadyIsToldOnce(t *testing.T) {
	recorder := record.NewFakeRecorder(9)
	k, b := &Konnector{events: recorder}, &v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.org"}}
	behind := v1alpha1.True(v1alpha1.ConditionReady)
	behind.Reason = v1alpha1.ReasonObjectsNotSynced
	waits := v1alpha1.False(v1alpha1.ConditionReady, v1alpha1.SeverityInfo, v1alpha1.ReasonPending, "")
	ready := v1alpha1.True(v1alpha1.ConditionReady)
	story := []v1alpha1.Condition{waits, ready, behind, ready, waits, behind}
	for n, c := range story[1:] {
		k.tell(b, story[n:n+1], []v1alpha1.Condition{c})
	}
	if told := len(recorder.Events); told != 2 {
		t.Errorf("told %d times, want 2", told)
	}
}

// That a tenant is gone stays so while its control plane is not reached, or takes no token; not when
// it answers, and not of another one.
func TestGoneStays(t *testing.T) {
	const server = "https://platform.example.com"
	gone := tenantGone(server)
	unreachable := failed(v1alpha1.ConditionConnected, v1alpha1.ReasonControlPlaneUnreachable, "no answer")
	revoked := failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTokenRevoked, "not accepted")
	held := failed(v1alpha1.ConditionConnected, v1alpha1.ReasonTenantHeldByAnotherCluster, "held")
	up := v1alpha1.True(v1alpha1.ConditionConnected)
	for name, c := range map[string]struct{ before, now, want v1alpha1.Condition }{
		"unreachable":         {gone, unreachable, gone},
		"revoked":             {gone, revoked, gone},
		"back":                {gone, up, up},
		"another's":           {gone, held, held},
		"not yet known":       {gone, pending(v1alpha1.ConditionConnected, "Connecting."), pending(v1alpha1.ConditionConnected, "Connecting.")},
		"never gone":          {up, unreachable, unreachable},
		"gone from elsewhere": {tenantGone("https://other.example.com"), unreachable, unreachable},
	} {
		b := &v1alpha1.APIServiceBinding{Status: v1alpha1.APIServiceBindingStatus{Conditions: []v1alpha1.Condition{c.before}}}
		if got := unlessGone(b, server, c.now); got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// What keeps copies from being what they should be, and no object can say, is said by ClaimsInSync.
func TestCopiesInSync(t *testing.T) {
	ok := v1alpha1.True(v1alpha1.ConditionClaimsInSync)
	refused := klutchsync.Status{Untold: []string{"an API server does not permit the copy secrets team/creds of the target cluster's"}}
	both := refused
	both.Taken = []string{"secrets team/own"}
	for name, tc := range map[string]struct {
		before v1alpha1.Condition
		left   []string
		state  klutchsync.Status
		want   string
	}{
		"nothing":           {ok, nil, klutchsync.Status{}, "ClaimsInSync=True @0"},
		"nothing is known":  {v1alpha1.Condition{}, nil, klutchsync.Status{}, "= @0"},
		"a copy is refused": {ok, nil, refused, "ClaimsInSync=False CopiesRefused@0 Related objects do not arrive as they should: an API server does not permit the copy secrets team/creds of the target cluster's."},
		"a name is taken too, and one is left": {ok, []string{"secrets team/old"}, both, "ClaimsInSync=False CopiesLeftAlone@0 Related objects do not arrive, since other objects have their names: secrets team/own. Delete or rename those. " +
			"Related objects do not arrive as they should: an API server does not permit the copy secrets team/creds of the target cluster's. " +
			" Copies that Klutch's konnector made are left, which have no original on the other side: secrets team/old. Delete them if nothing needs them."},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, short([]v1alpha1.Condition{copiesInSync(tc.before, tc.left, tc.state)})[0]); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
}
