// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

// whatGoesWrong is the list of perturbations that the engine is designed for, and
// the kinds of ops and traits that do each.
var whatGoesWrong = []struct{ perturbation, kinds string }{
	{"crash after every write, before and after its response", "crash"}, // each in turn: TestCrashAtEachWrite
	{"each informer lagging, independently", "lag"},
	{"time travel to an older snapshot at reconnect", "time travel"},
	{"a hidden event", "hidden event"},
	{"delete and recreate inside one watch gap", "recreated in a gap"},
	{"duplicate delivery", "duplicate event"},
	{"409, 429, 500, timeout with and without effect", "409 conflict, 429 throttled, 500 internal, 503 unavailable, timeout, read fails"},
	{"410 and relist", "410 gone, watch ends"},
	{"an empty list with 200", "empty list"},
	{"403 on list", "list forbidden"},
	{"CRD gone and back with another schema", "CRD gone, CRD back, CRD back with another schema"},
	{"normalising webhook", "normalising webhook"},
	{"provider controller that edits our field", "target drifts, target deleted, target taken"},
	{"API server restored from a backup", "restored from a backup"},
	{"endpoint that is now another cluster", "another cluster"},
	{"clock skew", "clock skew"},
	{"two konnectors", "two konnectors"},
	{"lease lost during a request", "lease lost"},
	{"namespace terminating", "namespace terminates, namespace unmapped, namespace mapped"},
	{"a foreign finalizer that blocks the target", "target held, source held"},
	{"our finalizer removed by hand", "finalizer removed by hand"},
	{"credential expired", "credential expired, outage"},
	{"rebind under the same name", "rebind"},
	{"old konnector beside new", "old konnector beside new"},
	{"more deletions than are plausible", "few deletions, all deleted"},
	{"a field leaves the target's schema and comes back", "field leaves the target, fields return to the target"},
	{"a field leaves the source's schema and comes back", "field leaves the source, fields return to the source"},
	{"a field of the status unknown on the source", "status field unknown on the source"},
	{"schemas that cannot be read", "schemas unreadable"},
	{"schemas that cannot be read for an hour", "schemas readable"},
	{"DELETE and our finalizer's patch both succeed", "deleted as its finalizer comes"},
	{"any error of the table of fates", "write answered, read answered, refused for an hour, " + copyWrites.name + " refused for an hour, " + offers.name + " refused for an hour, " + strings.Join(stretches("a while"), ", ")},
	{"any error of the table of fates, for long", strings.Join(stretches("an hour"), ", ")},
	{"objects that change all the time while requests about them are refused", wishesMove},
	{"a manager or admission policy that undoes or strips at each write", "a manager insists, a policy strips, our annotation stripped, our annotations stripped, a manager insists for an hour, a policy strips for an hour, a policy strips all for an hour"},
	{"a controller that changes back a message, a status or a copy at each write", "a message is taken off for an hour, a status is changed back for an hour, copies are changed back for an hour"},
	{"an automation that takes our marks off a source at each write", "the finalizer is taken off for an hour, the record is taken off for an hour"},
	{"an owner who deletes each target anew", "an owner deletes, an owner deletes for an hour, losses over restarts"},
	{"a side that falls silent", "a side falls silent"},
	{"a log of deletions that survives restarts, without the last save", "deletion log"},
	{"a process restarted after each few deletions", "deletions over restarts"},
	{"API servers that send no bookmarks", "no bookmarks"},
	{"two Syncs of one source", "a second Sync"},
	{"source and target in one cluster", withinSource},
	{"another controller's condition on the source", "another's condition"},
	{"a deletion that waits for the provider", "a deletion that is held"},
	{"the source cluster lost and set up again", "source cluster set up again"},
	{"a target made anew from its manifest", "target made anew from its manifest"},
	{"an embedding program that answers with errors, once, for a while and for long", programLapses()},
	{"Secrets that users bring, change and take away, in namespaces to which access is given", "key, forget-key, " + secretsOfSource + ", " + accessByNamespace},
	{"a target that a stranger owns as well, or a Sync under another name", "a stranger makes what the source asks for, bound under another name, the user removes all that may be left out"},
	{"a source copied with what konnectors wrote to it", "a source is copied with its manifest"},
	{"maps that become empty", "a user tags, a user takes all tags off, a user drops the map of tags, a provider tags, a provider reports in a map, a provider empties the map"},
	{"a kind that loses its status subresource, and gains one", "the source has no status subresource, the target has no status subresource"},
	{"a kind that is taken away", "kind taken away, kind offered again, a kind that is taken away for an hour"},
}

// stretches are the names of all refusals of a length.
func stretches(length string) (names []string) {
	for _, scope := range scopes {
		names = append(names, scope.name+" refused for "+length)
	}
	return names
}

// programLapses are the names of all failures of an embedding program.
func programLapses() string {
	var names []string
	for _, of := range programAsks {
		names = append(names, of+" fails once", of+" fails for a while", of+" fails for an hour")
	}
	return strings.Join(names, ", ")
}

// Everything that can go wrong does, in one history of a thousand at least.
func TestEveryPerturbation(t *testing.T) {
	const histories = 20_000
	count := map[string]int{}
	for seed := uint64(1); seed <= histories; seed++ {
		p := newPlan(seed)
		for _, kind := range p.traits {
			count[kind]++
		}
		for _, o := range append(p.ops, p.hour) {
			count[o.kind]++
		}
	}
	listed := map[string]bool{}
	for _, wrong := range whatGoesWrong {
		var counts []string
		for _, kind := range split(wrong.kinds) {
			listed[kind] = true
			counts = append(counts, fmt.Sprintf("%s %d", kind, count[kind]))
			if count[kind] < histories/1000 {
				t.Errorf("%s: %q comes %d times in %d histories", wrong.perturbation, kind, count[kind], histories)
			}
		}
		t.Logf("%s: %s", wrong.perturbation, strings.Join(counts, ", "))
	}
	for _, g := range slices.Concat(perturbations(), schemaChanges(), losses(), answers(), spells(), hours(), restores(), meddling(), embedded(), strangers(), shapes()) {
		if !listed[g.kind] {
			t.Errorf("%q is not in the list", g.kind)
		}
	}
}

// perturbations are what goes wrong, each by name.
func perturbations() []generator {
	return []generator{
		{"crash", 8, func(s *sim, o op) { s.crash(s.konnector(o)) }},
		{"lag", 6, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				s.lagging[w.place] = s.step + 10 + o.n%60
			}
		}},
		{"time travel", 4, doTimeTravel},
		{"hidden event", 3, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				s.hidden = append(s.hidden, w.place)
			}
		}},
		{"recreated in a gap", 4, doGap},
		{"duplicate event", 1, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				w.Repeat()
			}
		}},
		{"409 conflict", 1, arm("conflict", "none")},
		{"429 throttled", 1, arm("throttled", "none")},
		{"500 internal", 2, arm("internal", "none", "done", "late")},
		{"503 unavailable", 1, arm("unavailable", "none")},
		{"timeout", 3, arm("timeout", "none", "done", "late")},
		{"read fails", 3, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: []string{"throttled", "internal", "unavailable", "timeout"}[o.n%4], effect: "none", reads: true})
		}},
		{"410 gone", 5, func(s *sim, o op) { s.expireOne(o) }},
		{"watch ends", 2, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				w.Stop()
			}
		}},
		{"empty list", 3, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "empty"})
			s.expireOne(o)
		}},
		{"list forbidden", 3, func(s *sim, o op) { s.window(o, "forbidden"); s.expireOne(o) }},
		{"credential expired", 2, func(s *sim, o op) { s.window(o, "expired"); s.expireOne(o) }},
		{"outage", 3, func(s *sim, o op) { s.window(o, "outage"); s.expireOne(o) }},
		{"target deleted", 4, func(s *sim, o op) {
			_ = s.things(sideTarget, o.target().Namespace).Delete(s.ctx, o.name.Name, metav1.DeleteOptions{})
		}},
		{"target taken", 3, doForeign},
		{"target drifts", 5, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(`{"spec":{"size":"drift-%d"}}`, o.n%5))
		}},
		{"target held", 4, func(s *sim, o op) { s.hold(sideTarget, o.target()) }},
		{"source held", 2, func(s *sim, o op) { s.hold(sideSource, o.name) }},
		{"finalizer removed by hand", 3, doForce},
		{"namespace terminates", 2, doTerminate},
		{"namespace unmapped", 2, func(s *sim, o op) { s.spaces.end(o.name.Namespace) }},
		{"namespace mapped", 2, func(s *sim, o op) { s.spaces.serve(o.name.Namespace) }},
		{"CRD gone", 2, doWithdraw},
		{"CRD back", 1, func(s *sim, _ op) { s.serveAgain("") }},
		{"CRD back with another schema", 2, func(s *sim, o op) {
			doWithdraw(s, o)
			s.serveAgain("color")
		}},
		{"restored from a backup", 2, doRestore},
		{"another cluster", 2, doReplace},
		{"clock skew", 2, func(s *sim, o op) {
			s.clusters[o.n%2].Skew([]time.Duration{time.Hour, -time.Hour, 20 * time.Second}[o.n%3])
		}},
		{"rebind", 2, doRebind},
		{"lease lost", 3, doLoseLease},
		{"all deleted", 2, doDeleteAll},
	}
}

// arm makes the next write meet a fault, with one of these effects.
func arm(kind string, effects ...string) func(*sim, op) {
	return func(s *sim, o op) {
		s.faults = append(s.faults, fault{kind: kind, effect: effects[o.n%len(effects)]})
	}
}

func (s *sim) konnector(o op) *konnector { return s.konnectors[o.n%len(s.konnectors)] }

func (s *sim) oneWatch(o op) (simWatch, bool) {
	all := s.watches()
	if len(all) == 0 {
		return simWatch{}, false
	}
	return all[o.n%len(all)], true
}

func (s *sim) expireOne(o op) {
	if w, ok := s.oneWatch(o); ok {
		s.expire(w)
	}
}

func (s *sim) window(o op, kind string) {
	s.windows = append(s.windows, window{kind, o.n % 2, s.step + 5 + o.n%40, nil})
}

func doTimeTravel(s *sim, o op) {
	k := s.konnector(o)
	s.crash(k)
	side := o.n / 2 % 2
	now := s.clusters[side].Version()
	k.past[side] = max(1, now-int64(1+o.n%8))
}

func (s *sim) hold(side int, name cache.ObjectName) {
	if u := s.get(side, name); u != nil && u.GetDeletionTimestamp() == nil {
		s.setFinalizers(side, u, append(u.GetFinalizers(), "other/hold"))
	}
}

// doForce takes all finalizers off a source, as a user does who has had enough.
func doForce(s *sim, o op) {
	if u := s.get(sideSource, o.name); u != nil {
		s.setFinalizers(sideSource, u, nil)
	}
}

// doGap deletes and makes an object anew while no watch looks.
func doGap(s *sim, o op) {
	side, name := sideSource, o.name
	if o.n%2 == 0 {
		side, name = sideTarget, o.target()
	}
	if u := s.get(side, name); u == nil || len(u.GetFinalizers()) > 0 && o.n%3 > 0 {
		return
	}
	doForce(s, o)
	_ = s.things(side, name.Namespace).Delete(s.ctx, name.Name, metav1.DeleteOptions{})
	if side == sideSource {
		doCreate(s, o)
	} else {
		doForeign(s, o)
	}
	for _, w := range s.watches() {
		if w.side == side {
			s.expire(w)
		}
	}
}

// doForeign makes someone else take the name of a target.
func doForeign(s *sim, o op) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"late": "foreign", "color": "red"},
	}}
	u.SetName(o.name.Name)
	_, _ = s.things(sideTarget, o.target().Namespace).Create(s.ctx, u, metav1.CreateOptions{FieldManager: "stranger"})
}

func doTerminate(s *sim, o op) {
	side := o.n % 2
	ns := s.at(side, o.name.Namespace)
	_ = s.users[side].Resource(simNamespaces).Delete(s.ctx, ns, metav1.DeleteOptions{})
	s.housekeeping()
}

func doWithdraw(s *sim, o op) {
	side := o.n % 2
	if _, served := s.clusters[side].Objects(simThings); !served {
		return
	}
	s.model.disaster(side)
	s.clusters[side].Withdraw(simThings)
}

func doRestore(s *sim, o op) {
	side := o.n % 2
	c := s.clusters[side]
	if _, served := c.Objects(simThings); !served || s.model.disasters > 0 {
		return
	}
	s.model.disaster(side)
	c.Restore(max(c.Version()-int64(1+o.n%12), s.model.begin[side]))
	s.model.reload(side)
}

// doRebind ends the konnector in good order and starts it anew at once.
func doRebind(s *sim, o op) {
	k := s.konnector(o)
	s.crash(k)
	s.start(k)
}

// doReplace puts another cluster behind an endpoint. Its versions are lower than
// those of the one before, or higher.
func doReplace(s *sim, o op) {
	side := o.n % 2
	c := s.clusters[side]
	if _, served := c.Objects(simThings); !served {
		return
	}
	s.model.disaster(side)
	c.Replace(o.n%4 < 2)
	if side == sideSource {
		s.model.clusters++
	}
	for _, k := range s.konnectors {
		if k.knows[side] > 0 {
			s.model.sight.clock++
			k.moved[side] = s.model.sight.clock
		}
	}
	s.model.reload(side)
}

// doLoseLease makes a konnector lose its lease during a request: another one takes
// over at once, while the first one does not know for a while.
func doLoseLease(s *sim, o op) {
	k := s.konnector(o)
	if !k.alive() || k.until > 0 {
		return
	}
	k.until = s.step + 3 + o.n%25
	heir := &konnector{id: len(s.konnectors)}
	s.konnectors = append(s.konnectors, heir)
	s.start(heir)
}

// doDeleteAll deletes everything at once, as the removal of a folder from a
// repository does.
func doDeleteAll(s *sim, _ op) {
	objects, _ := s.clusters[sideSource].Objects(simThings)
	for _, u := range objects {
		_ = s.things(sideSource, u.GetNamespace()).Delete(s.ctx, u.GetName(), metav1.DeleteOptions{})
	}
}
