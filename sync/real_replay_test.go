// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	gosync "sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	klutchsync "github.com/klutch-go/sdk/sync"
)

var (
	replaySeed = flag.Uint64("replay", 0, "the one plan that TestRealReplay replays and prints")
	replayed   = flag.Int("replays", 0, "number of plans that TestRealReplay replays, up to 300: it takes minutes")
)

const (
	replays   = 300 // plans that are chosen
	together  = 100 // at once
	patience  = 4 * time.Minute
	stillness = time.Second // without a write is a rest
)

// replayable are the kinds of ops that can be done to real API servers or to the
// lines to them, and how.
var replayable = map[string]func(*rerun, op){
	"create": played, "update": played, "unset": played, "label": played, "delete": played, "invalid": played,
	"invalid create": played, "status": played, "late-init": played, "secret": played, "forget-secret": played,
	"message": (*rerun).force, "all deleted": (*rerun).deleteAll,
	"target deleted": played, "target taken": played, "target drifts": played, "target held": played, "source held": played,
	"finalizer removed by hand": (*rerun).force, "recreated in a gap": (*rerun).inGap,
	"namespace unmapped": played, "namespace mapped": played,
	"409 conflict": armed, "429 throttled": armed, "500 internal": armed, "503 unavailable": armed, "timeout": armed, "read fails": armed,
	"list forbidden": shut, "credential expired": shut, "outage": shut,
	"410 gone": (*rerun).gone, "watch ends": (*rerun).cut, "lag": (*rerun).lag,
	"crash": (*rerun).crash, "rebind": (*rerun).rebind, "lease lost": (*rerun).loseLease,
}

// replayableTraits are those of histories that can be replayed.
var replayableTraits = []string{
	"two konnectors", "mapped", "adopt", "drift reported", "loss reported", "targets kept", "orphans deleted", "few deletions",
}

// replayPlans are the plans to replay: of those in which enough goes wrong, and all that
// can be replayed, the first ones that each have something that few before have.
func replayPlans(t *testing.T) (out []simPlan) {
	t.Helper()
	out = []simPlan{newPlan(9754), newPlan(17450)} // a source is deleted whose target is held, which is rare
	count := map[string]int{}
	for seed := uint64(1); len(out) < replays && seed < 9754; seed++ {
		p := newPlan(seed)
		wrong, ok := p.wrongs()
		if ok && len(wrong) > 1 && slices.ContainsFunc(wrong, func(kind string) bool { return count[kind] < replays/15 }) {
			out = append(out, p)
			for _, kind := range wrong {
				count[kind]++
			}
		}
	}
	t.Logf("%d plans: %v", len(out), count)
	for _, kind := range append(slices.Collect(maps.Keys(replayable)), replayableTraits...) {
		if !usual(kind) && count[kind] < 5 {
			t.Errorf("%q comes in %d plans", kind, count[kind])
		}
	}
	return out
}

// wrongs are what goes wrong in p, and whether all of p can be replayed.
func (p simPlan) wrongs() (kinds []string, ok bool) {
	kinds = slices.DeleteFunc(slices.Clone(p.traits), func(kind string) bool { return kind == "a minute as it is" }) // nor is there another one here
	ok = !slices.ContainsFunc(kinds, func(kind string) bool { return !slices.Contains(replayableTraits, kind) })
	for _, o := range p.ops {
		ok = ok && replayable[o.kind] != nil
		if !usual(o.kind) {
			kinds = append(kinds, o.kind)
		}
	}
	return kinds, ok
}

func usual(kind string) bool {
	return slices.ContainsFunc(workload(), func(g generator) bool { return g.kind == kind })
}

// Plans of the simulator on two real API servers, through lines that fail, with the
// same end: go test ./sync -run TestRealReplay -replays 300, or -replay with a seed.
func TestRealReplay(t *testing.T) {
	t.Parallel()
	all := replayPlans(t) // each time, to see that they cover everything
	all = all[:min(*replayed, len(all))]
	if *replaySeed > 0 {
		all = []simPlan{newPlan(*replaySeed)}
		if _, ok := all[0].wrongs(); !ok {
			t.Fatalf("cannot be replayed: %s", all[0])
		}
	}
	if len(all) == 0 {
		t.Skip("runs with -replays or -replay")
	}
	stage := newStage(t)
	next := make(chan simPlan)
	var wg gosync.WaitGroup
	for range together {
		wg.Go(func() {
			for p := range next {
				stage.play(t, p)
			}
		})
	}
	for _, p := range all {
		next <- p
	}
	close(next)
	wg.Wait()
	t.Logf("%d writes of konnectors; what requests met: %v", stage.writes, stage.met)
}

// A rerun is a history that is not simulated: a plan that happens to two namespaces
// of real API servers, each of which a konnector sees as a cluster of its own.
type rerun struct {
	*sim
	stage      *stage
	ns         string
	began      time.Time
	crews      []*crew
	namespaces *klutchsync.Namespaces
	wg         gosync.WaitGroup // of what happens beside the plan

	mu       gosync.Mutex // guards the sim and all below
	passed   chan struct{}
	sending  int // writes on their way
	wrote    time.Time
	cuts     [2]*ending       // of the watches of a side
	lags     [2]chan struct{} // closed when the watches of a side go on
	overtime bool             // something that was sent may arrive late
	made     map[types.UID]map[string]bool
	given    map[types.UID]map[types.UID]bool
	latest   map[string]int64
}

// play replays one plan.
func (g *stage) play(t *testing.T, p simPlan) {
	t.Helper()
	r := g.newReplay(t, p)
	if broken := r.run(); broken != nil {
		t.Errorf("%s\n%s\nsource: %s\ntarget: %s\nseed %d: %v", p, strings.Join(r.trace, "\n"), r.dump(sideSource), r.dump(sideTarget), p.seed, broken)
	} else if *replaySeed > 0 {
		t.Logf("%s\n%s", p, strings.Join(r.trace, "\n"))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writes += r.model.writes
}

func (g *stage) newReplay(t *testing.T, p simPlan) *rerun {
	t.Helper()
	s := &sim{plan: p, ctx: t.Context(), rng: rand.New(rand.NewPCG(p.seed, 3)), users: g.users, origins: map[string]string{}}
	s.model = &model{sim: s, lives: map[string]*life{}, peers: map[string]string{}, sight: newSight(), heldAt: map[string]int{}}
	r := &rerun{
		sim: s, stage: g, namespaces: klutchsync.NewNamespaces(nil), ns: "r" + strconv.FormatUint(p.seed, 10), began: time.Now(), wrote: time.Now(), passed: make(chan struct{}, 1000),
		made: map[types.UID]map[string]bool{}, given: map[types.UID]map[types.UID]bool{}, latest: map[string]int64{},
	}
	for side := range s.model.now {
		s.model.now[side] = map[cache.ObjectName]*unstructured.Unstructured{}
		r.cuts[side], r.lags[side] = newEnding(), make(chan struct{})
		close(r.lags[side])
		g.makeNamespace(t, side, s.at(side, r.ns))
	}
	r.namespaces.Set(r.ns, s.at(sideTarget, r.ns))
	for i, o := range p.ops {
		p.ops[i].name = cache.NewObjectName(r.ns, o.name.Namespace+o.name.Name)
	}
	g.mu.Lock()
	g.reruns[r.ns] = r
	g.mu.Unlock()
	for range p.konnectors {
		r.hire()
	}
	return r
}

// run lets the plan happen, and what follows from it.
func (r *rerun) run() *violation {
	defer r.stop()
	for deadline := time.Now().Add(patience); !r.crews[0].synced() && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	for _, o := range r.plan.ops {
		r.pause()
		r.tell("%s", o)
		replayable[o.kind](r, o)
	}
	r.heal()
	if r.converge() {
		r.rest()
	}
	r.originsKnown()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model.broken
}

// tell notes what happens.
func (r *rerun) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noted(format, args...)
}

// noted is tell with mu held. A step is 20 ms.
func (r *rerun) noted(format string, args ...any) {
	r.step = int(time.Since(r.began) / (20 * time.Millisecond))
	r.note(format, args...)
}

func (r *rerun) breaks(invariant, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step = int(time.Since(r.began) / (20 * time.Millisecond))
	r.model.breaks(invariant, format, args...)
}

// pause lets some writes pass before what comes next, or some time if there are none.
func (r *rerun) pause() {
	n := r.rng.IntN(5)
	limit := time.After(time.Duration(500+r.rng.IntN(2500)) * time.Millisecond)
	for len(r.passed) > 0 {
		<-r.passed
	}
	for range n {
		select {
		case <-r.passed:
		case <-limit:
			return
		}
	}
}

// heal ends what stands in the way.
func (r *rerun) heal() {
	r.mu.Lock()
	r.noted("all faults end")
	r.calm = true
	r.mu.Unlock()
	r.wg.Wait()
	for side := range r.users {
		r.resume(side)
		r.cutAll(side, false)
		r.letGo(side)
	}
	r.namespaces.Set(r.ns, r.at(sideTarget, r.ns))
}

// letGo takes the finalizers of others off all objects of a side.
func (r *rerun) letGo(side int) {
	for _, u := range r.objects(side) {
		keep := slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return strings.HasPrefix(f, "other/") })
		if len(keep) == len(u.GetFinalizers()) {
			continue
		}
		for {
			u.SetFinalizers(keep)
			_, err := r.things(side, u.GetNamespace()).Update(r.ctx, u, metav1.UpdateOptions{FieldManager: "other"})
			if !apierrors.IsConflict(err) || r.ctx.Err() != nil {
				break
			}
			if u = r.get(side, cache.MetaObjectToName(u)); u == nil {
				break
			}
			keep = slices.DeleteFunc(slices.Clone(u.GetFinalizers()), func(f string) bool { return strings.HasPrefix(f, "other/") })
		}
	}
}

// objects are those that are on a side now.
func (r *rerun) objects(side int) (out []*unstructured.Unstructured) {
	list, err := r.things(side, r.at(side, r.ns)).List(r.ctx, metav1.ListOptions{})
	if err != nil {
		r.breaks("I1", "the %s cannot be read: %v", sideName(side), err)
		return nil
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// converge waits until all is as it should be.
func (r *rerun) converge() bool {
	deadline := time.Now().Add(patience)
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		r.quiet(deadline)
		problem := r.problem()
		if problem == "" || r.broken() {
			return problem == ""
		}
		if time.Now().After(deadline) {
			r.breaks("I1", "does not converge: %s", problem)
			return false
		}
		if r.plan.has("few deletions", "orphans deleted") {
			for _, c := range r.staff() {
				c.release()
			}
		}
		time.Sleep(pause)
	}
}

func (r *rerun) broken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.model.broken != nil
}

// problem says what is not as it should be, by what the API servers say now.
func (r *rerun) problem() string {
	sides := [2][]*unstructured.Unstructured{r.objects(sideSource), r.objects(sideTarget)}
	r.mu.Lock()
	defer r.mu.Unlock()
	for side, objects := range sides {
		r.model.now[side] = map[cache.ObjectName]*unstructured.Unstructured{}
		for _, u := range objects {
			r.model.now[side][cache.MetaObjectToName(u)] = u
			if uid := sourceUID(u); side == sideTarget && uid != "" && r.model.lives[uid] == nil {
				r.model.lives[uid] = &life{}
			}
		}
	}
	for _, l := range r.model.lives {
		l.late = r.belated()
	}
	return r.model.final()
}

// belated reports whether something may arrive that was sent long ago, by a konnector that
// does not wait for it.
func (r *rerun) belated() bool { return r.overtime || len(r.crews) > 1 }

// quiet waits until nothing has been written for a while, and counts what has.
func (r *rerun) quiet(deadline time.Time) (writes int) {
	for {
		r.mu.Lock()
		left := stillness - time.Since(r.wrote)
		if r.sending > 0 {
			left = stillness
		}
		writes = r.model.writes
		r.mu.Unlock()
		if left <= 0 || time.Now().After(deadline) {
			return writes
		}
		time.Sleep(left)
	}
}

// rest checks that what has come to rest needs no writes, which a restart shows. The
// one before it sees to what would be tried again now and then.
func (r *rerun) rest() {
	if !r.restart() || !r.converge() {
		return
	}
	deadline := time.Now().Add(patience)
	before := r.quiet(deadline)
	if !r.restart() {
		return
	}
	if n := r.quiet(deadline) - before; n > 0 {
		r.breaks("I8", "%d writes while nothing happened, the last: %s", n, r.model.last)
	}
	if problem := r.problem(); problem != "" {
		r.breaks("I1", "does not stay converged: %s", problem)
	}
}

// restart lets the next konnectors take over, and waits until they have nothing to do.
func (r *rerun) restart() bool {
	r.tell("restart")
	for _, c := range r.staff() {
		c.again()
	}
	for _, u := range r.objects(sideSource) {
		for _, c := range r.staff() {
			if what := c.finds(cache.MetaObjectToName(u)); what != "" {
				r.breaks("I1", "%s is never left alone: %s", u.GetName(), what)
				return false
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrote = time.Now()
	return true
}

func (r *rerun) stop() {
	for _, c := range r.crews {
		c.stop()
	}
	r.wg.Wait()
}

func (r *rerun) dump(side int) (out string) {
	for _, u := range r.objects(side) {
		u.SetManagedFields(nil)
		data, _ := u.MarshalJSON()
		out += "\n" + string(data)
	}
	return out
}

// sees takes note of an event, as it happened.
func (r *rerun) sees(side int, e watch.Event, u *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if side == sideTarget {
		r.seesTarget(e, u)
		return
	}
	l := r.model.life(u)
	l.forced = l.forced || e.Type == watch.Deleted && holds(u) // or it was deleted just as it was held: an API server looks for finalizers before that
	uid, n, ok := tokenOf(u.Object["status"])
	if !ok {
		return
	}
	if r.given[u.GetUID()] == nil {
		r.given[u.GetUID()] = map[types.UID]bool{}
	}
	r.given[u.GetUID()][types.UID(uid)] = true
	if n < l.reported && !r.belated() {
		r.model.breaks("I7", "%s was given status %d after %d", u.GetName(), n, l.reported)
	}
	l.reported = n
}

func (r *rerun) seesTarget(e watch.Event, u *unstructured.Unstructured) {
	uid := sourceUID(u)
	if uid == "" {
		return
	}
	if r.made[u.GetUID()] == nil {
		r.made[u.GetUID()] = map[string]bool{}
	}
	r.made[u.GetUID()][uid] = true
	at := string(u.GetUID()) + " " + uid
	if generation(u) < r.latest[at] {
		r.model.breaks("I6", "%s went from generation %d of its source back to %d", u.GetName(), r.latest[at], generation(u))
	}
	r.latest[at] = generation(u)
	for part, has := range deniedParts(u) {
		if has && e.Type != watch.Deleted {
			r.model.breaks("I16", "%s was given the %s of the source", u.GetName(), part)
		}
	}
}

// originsKnown checks that each status came from a target of the source's own, as soon as
// that has been seen.
func (r *rerun) originsKnown() {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		problem := r.strayStatus()
		switch {
		case problem == "":
			return
		case time.Now().After(deadline):
			r.breaks("I5", "%s", problem)
			return
		}
	}
}

// strayStatus names a status that came from elsewhere than a target of its source's
// own, or from one that has not been seen yet.
func (r *rerun) strayStatus() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for source, targets := range r.given {
		for target := range targets {
			if !r.made[target][string(source)] {
				return fmt.Sprintf("%s was given the status of %s, which was made from %v", source, target, r.made[target])
			}
		}
	}
	return ""
}

// A crew is a konnector as a process: its incarnations follow each other.
type crew struct {
	rerun *rerun
	id    int
	born  int              // how many incarnations have ended; guarded by that of the rerun
	onWay gosync.WaitGroup // writes of this one

	mu      gosync.Mutex // held while one ends and another one begins
	sync    *klutchsync.Sync
	cancel  context.CancelFunc // nil if it does not run
	done    chan error
	retired bool // it has lost its lease

	looked gosync.Map // what this incarnation did when it looked at a source last
}

// hire adds a konnector.
func (r *rerun) hire() {
	r.mu.Lock()
	c := &crew{rerun: r, id: len(r.crews)}
	r.crews = append(r.crews, c)
	r.mu.Unlock()
	c.again()
}

// again lets the next incarnation take over, unless it has lost its lease.
func (c *crew) again() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	if !c.retired {
		c.begin()
	}
}

func (c *crew) retire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retired = true
}

func (c *crew) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

// release lets held deletions go.
func (c *crew) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sync.Release()
}

func (c *crew) synced() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sync.Status().Synced
}

// begin needs mu, as end does.
func (c *crew) begin() {
	c.looked.Clear()
	options := c.rerun.plan.Options
	options.Mapper = c.rerun.namespaces
	var y *klutchsync.Sync
	options.Hooks.Done = func(_ context.Context, r klutchsync.Result) { c.looks(y, r) }
	y, err := klutchsync.New(c.sees(sideSource), c.sees(sideTarget), simThings, options)
	if err != nil {
		panic(err) // the simulator uses the same
	}
	ctx, cancel := context.WithCancel(c.rerun.ctx)
	done := make(chan error, 1)
	c.sync, c.cancel, c.done = y, cancel, done
	go func() { done <- y.Run(ctx) }()
}

// sees is a side as this incarnation sees it.
func (c *crew) sees(side int) *klutchsync.Cluster {
	config := c.rerun.stage.lines[side]
	config.Host += fmt.Sprintf("/%s/%d/%d", c.rerun.ns, c.id, c.born)
	end, err := klutchsync.NewCluster(&config)
	if err != nil {
		panic(err) // no configuration differs from the others
	}
	return end
}

// end ends the incarnation that runs, if one does, and waits until all that it has sent
// has arrived.
func (c *crew) end() {
	if c.cancel == nil {
		return
	}
	c.cancel()
	if err := <-c.done; err != nil {
		c.rerun.breaks("I1", "a konnector gave up: %v", err)
	}
	c.cancel = nil
	c.rerun.mu.Lock()
	c.born++
	c.rerun.mu.Unlock()
	c.onWay.Wait()
}

// finds waits until the konnector finds nothing to do about a source, or says what it
// did last.
func (c *crew) finds(name cache.ObjectName) string {
	last := "not looked at"
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if did, ok := c.looked.Load(name); ok {
			if last = did.(string); last == "" { //nolint:forcetypeassert // there is nothing else
				break
			}
		}
	}
	return last
}

// looks notes what a pass did.
func (c *crew) looks(y *klutchsync.Sync, r klutchsync.Result) {
	did := strings.Join(r.Steps, ", ")
	var problem *klutchsync.ObjectError
	switch {
	case !y.Status().Synced:
		did = "not all seen"
	case errors.As(r.Err, &problem):
		did = "" // it is said, and nothing else can be done
	}
	c.looked.Store(r.Source, did)
}

// staff are the konnectors that have not lost their lease.
func (r *rerun) staff() []*crew {
	return slices.DeleteFunc(slices.Clone(r.crews), func(c *crew) bool { return c.retired })
}

// makeNamespace makes one that is not there.
func (g *stage) makeNamespace(t *testing.T, side int, name string) {
	t.Helper()
	ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	ns.SetName(name)
	if _, err := g.users[side].Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}
