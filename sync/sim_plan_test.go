// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

// A simPlan is what happens in a history besides what the konnectors do. It
// follows from its seed; when each thing happens does too.
type simPlan struct {
	seed       uint64
	konnectors int
	webhook    bool // the target's API server normalises what it stores
	related    bool // Secrets travel
	mapped     bool // targets are watched by namespace
	conflict   klutchsync.ConflictPolicy
	drift      klutchsync.DriftPolicy
	lost       klutchsync.LostPolicy
	deletion   klutchsync.DeletionPolicy
	ops        []op
}

// An op is one thing that happens.
type op struct {
	kind string
	name cache.ObjectName // of a source
	n    int
	act  func(*sim, op)
	skip bool // taken out while a failing plan is shrunk
}

func (o op) String() string { return fmt.Sprintf("%s %s (%d)", o.kind, o.name, o.n) }
func (o op) do(s *sim)      { o.act(s, o) }

func (o op) target() cache.ObjectName {
	return cache.NewObjectName("svc-"+o.name.Namespace, o.name.Name)
}

// A generator is a kind of op and how often it comes.
type generator struct {
	kind   string
	weight int
	act    func(*sim, op)
}

func newPlan(seed uint64) simPlan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := simPlan{seed: seed, konnectors: 1, conflict: klutchsync.ConflictFail, drift: klutchsync.DriftCorrect, lost: klutchsync.LostRecreate, deletion: klutchsync.DeletionDelete}
	one := func(in int) bool { return r.IntN(in) == 0 }
	if one(6) {
		p.konnectors = 2
	}
	p.webhook, p.related, p.mapped = one(6), one(5), one(8)
	if one(4) {
		p.conflict = klutchsync.ConflictAdopt
	}
	if one(4) {
		p.drift = klutchsync.DriftReport
	}
	if one(6) {
		p.lost = klutchsync.LostReport
	}
	if one(6) {
		p.deletion = klutchsync.DeletionOrphan
	}
	p.ops = append(p.ops, op{"create", cache.NewObjectName("a", "x"), r.IntN(1000), doCreate, false})
	for range 3 + r.IntN(7) {
		p.ops = append(p.ops, generate(r, workload()))
	}
	for range r.IntN(5) {
		at := 1 + r.IntN(len(p.ops))
		p.ops = slices.Insert(p.ops, at, generate(r, perturbations()))
	}
	return p
}

// has reports whether something of these kinds happens.
func (p simPlan) has(kinds ...string) bool {
	return slices.ContainsFunc(p.ops, func(o op) bool { return !o.skip && slices.Contains(kinds, o.kind) })
}

func generate(r *rand.Rand, from []generator) op {
	total := 0
	for _, g := range from {
		total += g.weight
	}
	n := r.IntN(total)
	i := slices.IndexFunc(from, func(g generator) bool { n -= g.weight; return n < 0 })
	slots := []cache.ObjectName{{Namespace: "a", Name: "x"}, {Namespace: "a", Name: "x"}, {Namespace: "a", Name: "y"}, {Namespace: "b", Name: "x"}}
	return op{from[i].kind, slots[r.IntN(len(slots))], r.IntN(1000), from[i].act, false}
}

func (p simPlan) options(table *klutchsync.Namespaces) klutchsync.Options {
	o := klutchsync.Options{Binding: "sim", Mapper: table, Workers: 8, Conflict: p.conflict, Drift: p.drift, Lost: p.lost, Deletion: p.deletion}
	if p.related {
		o.Related = []klutchsync.Related{{Resource: simSecrets, From: klutchsync.TargetSide, References: []string{"status.secret"}}}
	}
	if p.mapped {
		o.TargetScope = klutchsync.ScopeMapped
	}
	return o
}

// workload is what users and providers do.
func workload() []generator {
	return []generator{
		{"create", 8, doCreate},
		{"update", 6, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"spec":{"size":"%d"}}`, o.n%4))
		}},
		{"unset", 2, func(s *sim, o op) { s.merge(sideSource, o.name, "user", `{"spec":{"size":null}}`) }},
		{"label", 2, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"metadata":{"labels":{"tier":"%d","app.kubernetes.io/instance":"argo"}}}`, o.n%3))
		}},
		{"delete", 6, func(s *sim, o op) {
			_ = s.things(sideSource, o.name.Namespace).Delete(s.ctx, o.name.Name, metav1.DeleteOptions{})
		}},
		{"invalid", 1, func(s *sim, o op) { s.merge(sideSource, o.name, "user", `{"spec":{"size":"huge"}}`) }},
		{"status", 10, doStatus},
		{"late-init", 2, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(`{"spec":{"late":"%d"},"metadata":{"labels":{"provider/x":"%d"},"annotations":{"provider/y":"%d"}}}`, o.n, o.n%3, o.n))
		}},
		{"secret", 4, doSecret},
		{"forget-secret", 2, func(s *sim, o op) {
			_ = s.users[sideTarget].Resource(simSecrets).Namespace(o.target().Namespace).Delete(s.ctx, "creds-"+o.name.Name, metav1.DeleteOptions{})
		}},
		{"message", 1, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"metadata":{"annotations":{"note":"%d"},"finalizers":null}}`, o.n))
		}},
	}
}

// perturbations are what goes wrong, each by name.
func perturbations() []generator {
	return []generator{
		{"crash", 8, func(s *sim, o op) { s.crash(s.konnector(o)) }},
		{"time travel", 4, doTimeTravel},
		{"lag", 6, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				s.lagging[w.place] = s.step + 10 + o.n%60
			}
		}},
		{"hidden event", 5, func(s *sim, o op) { s.expireOne(o) }},
		{"duplicate event", 1, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				w.Repeat()
			}
		}},
		{"watch ends", 2, func(s *sim, o op) {
			if w, ok := s.oneWatch(o); ok {
				w.Stop()
			}
		}},
		{"write fails", 8, func(s *sim, o op) { s.arm(o, false) }},
		{"read fails", 3, func(s *sim, o op) { s.arm(o, true) }},
		{"empty list", 3, func(s *sim, o op) {
			s.faults = append(s.faults, fault{kind: "empty"})
			s.expireOne(o)
		}},
		{"list forbidden", 3, func(s *sim, o op) { s.window(o, "forbidden"); s.expireOne(o) }},
		{"credential expired", 2, func(s *sim, o op) { s.window(o, "expired"); s.expireOne(o) }},
		{"outage", 3, func(s *sim, o op) { s.window(o, "outage"); s.expireOne(o) }},
		{"recreated in a gap", 4, doGap},
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
		{"namespace unmapped", 2, func(s *sim, o op) { s.namespaces.Delete(o.name.Namespace) }},
		{"namespace mapped", 2, func(s *sim, o op) { s.namespaces.Set(o.name.Namespace, "svc-"+o.name.Namespace) }},
		{"CRD gone", 2, doWithdraw},
		{"CRD back", 2, func(s *sim, _ op) {
			for side, c := range s.clusters {
				if _, served := c.Objects(simThings); !served {
					s.serve(side)
				}
			}
		}},
		{"restored from a backup", 2, doRestore},
		{"clock skew", 2, func(s *sim, o op) {
			s.clusters[o.n%2].Skew([]time.Duration{time.Hour, -time.Hour, 20 * time.Second}[o.n%3])
		}},
		{"rebind", 2, doRebind},
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
	s.windows = append(s.windows, window{kind, o.n % 2, s.step + 5 + o.n%40})
}

func (s *sim) arm(o op, reads bool) {
	f := fault{reads: reads, effect: "none"}
	f.kind = []string{"conflict", "throttled", "internal", "unavailable", "timeout", "timeout"}[o.n%6]
	if f.kind == "internal" || f.kind == "timeout" {
		f.effect = []string{"none", "done", "late"}[o.n/6%3]
	}
	if reads {
		f.effect = "none"
	}
	s.faults = append(s.faults, f)
}

func doCreate(s *sim, o op) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"spec": map[string]any{"size": fmt.Sprint(o.n % 4), "color": "Red", "resourceRef": map[string]any{"name": "composed"}},
	}}
	u.SetName(o.name.Name)
	u.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "app", "team": "red"})
	_, _ = s.things(sideSource, o.name.Namespace).Create(s.ctx, u, metav1.CreateOptions{FieldManager: "user"})
}

// doStatus makes the provider report on a target: each report has a number.
func doStatus(s *sim, o op) {
	t := s.get(sideTarget, o.target())
	if t == nil {
		return
	}
	s.token++
	secret := "null"
	if o.n%3 > 0 {
		secret = `"creds-` + o.name.Name + `"`
	}
	s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(
		`{"status":{"phase":"%s.%06d","secret":%s,"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True","observedGeneration":%d}]}}`,
		t.GetUID(), s.token, secret, t.GetGeneration(), t.GetGeneration()), "status")
}

// doSecret makes the provider write a credential, with a content that tells
// whose it is.
func doSecret(s *sim, o op) {
	ri := s.users[sideTarget].Resource(simSecrets).Namespace(o.target().Namespace)
	name := "creds-" + o.name.Name
	if have, err := ri.Get(s.ctx, name, metav1.GetOptions{}); err == nil {
		have = have.DeepCopy()
		have.Object["data"] = map[string]any{"owner": "canary/" + string(have.GetUID()), "n": fmt.Sprint(o.n)}
		_, _ = ri.Update(s.ctx, have, metav1.UpdateOptions{FieldManager: "provider"})
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}}
	u.SetName(name)
	if _, err := ri.Create(s.ctx, u, metav1.CreateOptions{FieldManager: "provider"}); err == nil {
		doSecret(s, o)
	}
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

// doGap deletes and makes an object anew while nobody looks.
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

func tokenOf(status any) (uid string, n int, ok bool) {
	m, _ := status.(map[string]any)
	phase, _ := m["phase"].(string)
	i := strings.LastIndex(phase, ".")
	if i < 0 {
		return "", 0, false
	}
	_, err := fmt.Sscanf(phase[i+1:], "%d", &n)
	return phase[:i], n, err == nil
}
