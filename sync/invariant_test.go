// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/internal/test/fakecluster"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// A violation is an invariant that a history breaks.
type violation struct{ invariant, text string }

func (v *violation) Error() string { return v.invariant + ": " + v.text }

// A life is what the source's API server knows of one incarnation of an object.
type life struct {
	name      cache.ObjectName
	tombstone bool            // its deletion was asked for
	collided  bool            // it was deleted as its finalizer came
	copied    string          // the message that came with its manifest, of another one
	shown     *konnector      // whose watch has shown that, if there is one konnector
	to        int             // the incarnation of it
	forced    bool            // it may have gone without our release: its target is an orphan
	late      bool            // a request that another client had sent before made a target: an orphan too
	gone      time.Time       // when it vanished; zero if it has not
	freed     int             // when its target went, by a konnector, by the clock of the sight; 0 if it has not
	cluster   int             // how many clusters there were before its own
	reported  int             // number of the last status that it was given
	versions  map[string]bool // that it has had
}

// A model sees each commit, of whomever, in order, and knows what must be true.
type model struct {
	sim        *sim
	broken     *violation
	writes     int // of konnectors
	last       string
	created    int // targets, by konnectors
	deleted    int
	disasters  int // CRDs withdrawn, backups restored and clusters exchanged, on either side
	clusters   int // that were the source before this one
	begin      [2]int64
	now        [2]map[cache.ObjectName]*unstructured.Unstructured
	lives      map[string]*life
	peers      map[string]string           // UIDs of targets that an older konnector made, which records no source, and of their sources
	shared     map[string]bool             // fields of targets that are ours and their maker's, by UID and path
	wrote      [2]map[cache.ObjectName]int // of late, by konnectors, by side and source
	undone     map[cache.ObjectName]int    // of late, by rivals
	sight      *sight
	call       *call          // the one that is carried out, if any
	heldAt     map[string]int // step at which a source was told that its deletion is held, by UID
	releasedAt int            // step at which an operator last released what was held
}

func newModel(s *sim) *model {
	m := &model{sim: s, lives: map[string]*life{}, peers: map[string]string{}, shared: map[string]bool{}, wrote: [2]map[cache.ObjectName]int{{}, {}}, undone: map[cache.ObjectName]int{}, sight: newSight(), heldAt: map[string]int{}}
	for side, c := range s.clusters {
		m.begin[side] = c.Version() + 4
		m.now[side] = map[cache.ObjectName]*unstructured.Unstructured{}
	}
	return m
}

func (m *model) breaks(invariant, format string, args ...any) {
	if m.broken == nil {
		m.broken = &violation{invariant, fmt.Sprintf(format, args...)}
		m.sim.note("BROKEN %s", m.broken)
	}
}

// disaster notes that a side loses objects in a way that leaves no tombstone.
func (m *model) disaster(side int) {
	m.disasters++
	m.sim.forgetOrders()
	for _, l := range m.lives {
		l.forced = l.forced || side == sideSource
		l.late = l.late || side == sideTarget // what has been seen to be gone may come back
	}
}

// reload reads the state of a side after it was restored.
func (m *model) reload(side int) {
	objects, _ := m.sim.clusters[side].Objects(simThings)
	m.now[side] = map[cache.ObjectName]*unstructured.Unstructured{}
	for _, o := range objects {
		m.now[side][cache.MetaObjectToName(o)] = o
		if side == sideSource {
			m.life(o).forced = true
		}
	}
	for _, l := range m.lives {
		l.forced = true
		if side == sideSource && l.gone.IsZero() {
			l.gone = time.Now()
		}
	}
	for _, o := range m.now[sideSource] {
		m.life(o).gone = time.Time{}
	}
	if side == sideTarget {
		clear(m.shared) // no one can tell what is not in the backup
		for _, o := range m.now[side] {
			m.shares(o)
		}
	}
}

func (m *model) life(o *unstructured.Unstructured) *life {
	l := m.lives[string(o.GetUID())]
	if l == nil {
		l = &life{name: cache.MetaObjectToName(o), cluster: m.clusters, versions: map[string]bool{}}
		m.lives[string(o.GetUID())] = l
	}
	return l
}

func annotation(o *unstructured.Unstructured, key string) string {
	if o == nil {
		return ""
	}
	return o.GetAnnotations()[key]
}

func sourceUID(o *unstructured.Unstructured) string {
	return string(origin(o).UID)
}

func generation(o *unstructured.Unstructured) int64 {
	return origin(o).Generation
}

func origin(o *unstructured.Unstructured) klutchsync.Origin {
	if o == nil {
		return klutchsync.Origin{}
	}
	from, _ := klutchsync.OriginOf(o)
	return from
}

// commit checks one change.
func (m *model) commit(side int, c fakecluster.Commit) {
	ours := c.Request.View != ""
	if ours {
		m.writes++
		m.last = fmt.Sprintf("%s: %s %s %s/%s %s", c.Request.View, sideName(side), c.Request.Verb, c.Resource.Resource, c.Request.Subresource, c.Request.Object)
		m.public(side, c)
	}
	if ours && c.Resource == simThings {
		name := cache.MetaObjectToName(c.After)
		if side == sideTarget {
			name = m.sim.source(name)
		}
		m.wrote[side][name]++
	}
	switch {
	case ofSecond(c.After):
		return // finalSecond looks at what there is
	case c.Resource == simThings && side == sideSource:
		m.commitSource(c, ours)
	case c.Resource == simThings:
		m.commitTarget(c, ours)
	case c.Resource == simSecrets && ours:
		m.commitCopy(c)
	}
	if c.Resource != simThings {
		return
	}
	if name := cache.MetaObjectToName(c.After); c.Kind == watch.Deleted {
		delete(m.now[side], name)
	} else {
		m.now[side][name] = c.After
	}
}

func holds(o *unstructured.Unstructured) bool {
	return o != nil && slices.Contains(o.GetFinalizers(), klutchsync.DefaultFinalizer)
}

func (m *model) commitSource(c fakecluster.Commit, ours bool) {
	l := m.life(c.After)
	l.versions[c.After.GetResourceVersion()] = true
	if c.After.GetDeletionTimestamp() != nil || c.Kind == watch.Deleted {
		l.tombstone = true
	}
	if holds(c.Before) && (!holds(c.After) || c.Kind == watch.Deleted) {
		if ours {
			m.released(c.After)
		} else {
			l.forced = true
		}
	}
	if c.Kind == watch.Deleted {
		l.gone = time.Now()
	}
	if !ours {
		return
	}
	m.noteHeld(c.After)
	if m.sim.late {
		m.forgetMessage(l.name)
	}
	if c.Kind == watch.Added {
		m.breaks("I9", "a konnector created the source %s", l.name)
		return
	}
	if diff := beyond(c.Before, c.After, false); diff != "" {
		m.breaks("I9", "a konnector changed %s of the source %s", diff, l.name)
	}
	m.statusGiven(l, c)
}

// released checks that a source is let go only when nothing is left of it.
func (m *model) released(source *unstructured.Unstructured) {
	m.destructive("the finalizer was taken off " + source.GetName())
	m.lets(m.call, source)
	for name, t := range m.now[sideTarget] {
		if sourceUID(t) == string(source.GetUID()) && !m.life(source).late {
			m.breaks("I3", "the finalizer was taken off %s while %s was there", source.GetName(), name)
		}
	}
}

// statusGiven checks that a status comes from the source's own target, in order.
func (m *model) statusGiven(l *life, c fakecluster.Commit) {
	if gocmp.Equal(c.Before.Object["status"], c.After.Object["status"]) {
		return
	}
	uid, n, ok := tokenOf(c.After.Object["status"])
	if !ok {
		return
	}
	if from := cmp.Or(m.sim.origins[uid], m.peers[uid]); from != string(c.After.GetUID()) && !m.alike(from, l, c.Before.GetResourceVersion()) {
		m.breaks("I5", "%s %s was given the status of %s, which was made from %s", l.name, c.After.GetUID(), uid, from)
	}
	observed, _, _ := unstructured.NestedInt64(c.After.Object, "status", "observedGeneration")
	if m.disasters == 0 && !m.sim.plan.has("old konnector beside new") && observed > c.After.GetGeneration() {
		m.breaks("I7", "%s observes generation %d of %d", l.name, observed, c.After.GetGeneration())
	}
	if m.ordered() && n < l.reported {
		m.breaks("I7", "%s was given status %d after %d", l.name, n, l.reported)
	}
	l.reported = n
}

// alike reports whether a source in another cluster had the same name and version as l has: API
// servers tell nothing else apart when a status is written.
func (m *model) alike(uid string, l *life, version string) bool {
	other := m.lives[uid]
	return other != nil && other.cluster != l.cluster && other.name == l.name && other.versions[version]
}

// ordered reports whether statuses have to arrive in order: with two konnectors,
// or one that starts from an old list, an old one may come by, and is put right.
func (m *model) ordered() bool { return m.disasters == 0 && m.sim.strict() }

func (m *model) commitTarget(c fakecluster.Commit, ours bool) {
	name := cache.MetaObjectToName(c.After)
	uid := sourceUID(c.After)
	if uid != "" && c.Kind != watch.Deleted {
		m.sim.origins[string(c.After.GetUID())] = uid
		m.shares(c.After)
	}
	if !ours {
		if c.Kind == watch.Added && annotation(c.After, klutchsync.BoundAnnotation) == "true" && uid == "" {
			if source := m.now[sideSource][m.sim.source(name)]; source != nil {
				m.peers[string(c.After.GetUID())] = string(source.GetUID())
			}
		}
		return
	}
	if c.Kind == watch.Deleted || c.After.GetDeletionTimestamp() != nil && c.Before.GetDeletionTimestamp() == nil {
		m.targetDeleted(name, c)
		return
	}
	if source := m.now[sideSource][m.sim.source(name)]; uid == "" && source != nil && m.keeps(c.After, string(source.GetUID())) &&
		(m.sim.plan.Conflict == klutchsync.ConflictAdopt || m.inherits(c.After, source)) {
		m.sim.origins[string(c.After.GetUID())] = string(source.GetUID()) // it was taken over, and does not say so yet, or others have taken that off
	}
	m.targetApplied(name, uid, c)
}

// keeps reports whether what we applied to a target for a source is held for it, under whatever name
// the binding has had.
func (m *model) keeps(target *unstructured.Unstructured, source string) bool {
	return slices.ContainsFunc([]string{"sim", "renamed"}, func(binding string) bool {
		keeper := "klutch.anynines.com/" + binding + "/" + source[max(0, len(source)-12):]
		return heldBy(target, keeper, "f:spec") || heldBy(target, keeper, "f:metadata")
	})
}

// targetDeleted checks that a target is deleted because its source was.
func (m *model) targetDeleted(name cache.ObjectName, c fakecluster.Commit) {
	m.deleted++
	uid := sourceUID(c.Before)
	if uid == "" {
		uid = cmp.Or(m.sim.origins[string(c.Before.GetUID())], m.peers[string(c.Before.GetUID())])
	}
	l := m.lives[uid]
	m.destructive(name.String() + " was deleted")
	if l != nil && c.Kind == watch.Deleted {
		l.freed = m.sight.clock
	}
	switch {
	case l == nil:
		m.breaks("I2", "%s was deleted, which is not ours", name)
	case m.sim.plan.Orphans == klutchsync.OrphanDelete && m.orphaned(l):
	case !l.tombstone:
		m.breaks("I2", "%s was deleted although its source %s lives", name, uid)
	case m.sim.plan.Deletion == klutchsync.DeletionOrphan:
		m.breaks("I2", "%s was deleted although policy keeps it", name)
	}
}

// orphaned reports whether a source has vanished, from the cluster of today, so
// long ago that its target may be judged.
func (m *model) orphaned(l *life) bool {
	return !l.gone.IsZero() && l.cluster == m.clusters && time.Since(l.gone) >= 10*time.Minute
}

// destructive checks that a konnector that takes something away could see both sides.
func (m *model) destructive(what string) {
	if side := m.call.unseen; side != "" {
		m.breaks("I11", "%s by a konnector that could not see the %s", what, side)
	}
}

func (m *model) targetApplied(name cache.ObjectName, uid string, c fakecluster.Commit) {
	if c.Before == nil {
		m.created++
		m.orders(name, uid, string(c.After.GetUID()))
		for other, t := range m.now[sideTarget] {
			if sourceUID(t) == uid {
				m.breaks("I4", "%s was made beside %s, both from %s", name, other, uid)
			}
		}
	}
	if uid != "" && sourceUID(c.Before) != uid {
		m.made(name, uid, c)
	}
	if before := m.madeFrom(c.Before); c.Before != nil && before != uid && uid != "" && !m.adopts(c.Before) && (before != "" || m.peers[string(c.Before.GetUID())] == "" || older(c.Before, m.now[sideSource][m.sim.source(name)])) {
		m.breaks("I9", "%s, made from %q, was taken over by %s", name, before, uid)
	}
	if c.Before != nil && uid != "" && sourceUID(c.Before) == uid && generation(c.After) < generation(c.Before) && !editedBehind(c.Before, generation(c.After)) {
		m.breaks("I6", "%s went from generation %d of its source back to %d", name, generation(c.Before), generation(c.After))
	}
	if diff := beyond(c.Before, c.After, true); diff != "" {
		m.breaks("I9", "a konnector changed %s of the target %s", diff, name)
	}
	before := deniedParts(c.Before)
	for part, has := range deniedParts(c.After) {
		if has && !before[part] {
			m.breaks("I16", "%s was given the %s of the source", name, part)
		}
	}
}

// madeFrom is the source of a target, also if others have taken off what says so: what we hold of
// its fields shows it, too.
func (m *model) madeFrom(target *unstructured.Unstructured) string {
	if target == nil {
		return ""
	}
	if from := m.sim.origins[string(target.GetUID())]; sourceUID(target) == "" && from != "" && m.keeps(target, from) {
		return from
	}
	return sourceUID(target)
}

// adopts reports whether konnectors take over what others made, or a target of the source cluster
// that was lost.
func (m *model) adopts(target *unstructured.Unstructured) bool {
	return m.sim.plan.Conflict == klutchsync.ConflictAdopt || m.sim.former != "" && origin(target).Cluster == m.sim.former
}

// editedBehind reports whether a target says of itself that its source was seen to be behind
// it, in a generation before the one now.
func editedBehind(target *unstructured.Unstructured, now int64) bool {
	text, _, _ := strings.Cut(annotation(target, klutchsync.BehindAnnotation), "/")
	seen, err := strconv.ParseInt(text, 10, 64)
	return err == nil && seen < now
}

// deniedParts are those parts of an object that must not be brought to a target.
func deniedParts(o *unstructured.Unstructured) map[string]bool {
	if o == nil {
		return nil
	}
	_, tracked := o.GetAnnotations()["argocd.argoproj.io/tracking-id"]
	_, labelled := o.GetLabels()["app.kubernetes.io/instance"]
	_, refers, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", "resourceRef")
	return map[string]bool{"annotation": tracked, "label": labelled, "reference": refers}
}

// made checks that a target is made, or taken over, only for a source that waits for it. What a
// process that has died, or another konnector, had sent cannot be called back.
func (m *model) made(name cache.ObjectName, uid string, c fakecluster.Commit) {
	l := m.lives[uid]
	if l == nil {
		m.breaks("I9", "%s was made from %q, which never was", name, uid)
		return
	}
	source := m.now[sideSource][l.name]
	if source != nil && string(source.GetUID()) == uid && holds(source) && source.GetDeletionTimestamp() == nil {
		return
	}
	l.late = l.late || m.sim.late || len(m.sim.konnectors) > 1
	if !l.late && !l.forced && (source == nil || string(source.GetUID()) != uid || !holds(source)) {
		m.breaks("I3", "%s was made for %s, which had been let go", name, uid)
	}
}

// beyond names what differs between two states of an object that a konnector has
// no business with.
func beyond(before, after *unstructured.Unstructured, target bool) string {
	if before == nil {
		before = &unstructured.Unstructured{Object: map[string]any{}}
	}
	b, a := foreignParts(before, target), foreignParts(after, target)
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if !gocmp.Equal(a[key], b[key]) {
			return fmt.Sprintf("%s (%v to %v)", key, b[key], a[key])
		}
	}
	return ""
}

// foreignParts are those parts of an object that are not a konnector's.
func foreignParts(o *unstructured.Unstructured, target bool) map[string]any {
	theirs := func(key string) bool { return !strings.HasPrefix(key, "klutch.anynines.com/") }
	provider := func(key string) bool { return strings.HasPrefix(key, "provider/") }
	out := map[string]any{
		"finalizers": fmt.Sprint(slices.DeleteFunc(slices.Clone(o.GetFinalizers()), func(f string) bool { return !target && !theirs(f) })),
	}
	if target {
		out["late-initialised fields"], _, _ = unstructured.NestedString(o.Object, "spec", "late")
		out["labels"] = chosen(o.GetLabels(), provider)
		out["annotations"] = chosen(o.GetAnnotations(), provider)
		out["status"] = o.Object["status"]
		return out
	}
	out["spec"], out["labels"] = o.Object["spec"], fmt.Sprint(o.GetLabels())
	out["annotations"] = chosen(o.GetAnnotations(), theirs)
	return out
}

func chosen(in map[string]string, ok func(string) bool) string {
	out := map[string]string{}
	for k, v := range in {
		if ok(k) {
			out[k] = v
		}
	}
	return fmt.Sprint(out)
}

// commitCopy checks that a secret's content reaches only the copy of that secret.
func (m *model) commitCopy(c fakecluster.Commit) {
	name := cache.MetaObjectToName(c.After)
	owner, _, _ := unstructured.NestedString(c.After.Object, "data", "owner")
	if c.Kind != watch.Deleted && owner != "" && owner != "canary/"+sourceUID(c.After) {
		m.breaks("I5", "secret %s has the content of %s, and says that it is from %s", name, owner, sourceUID(c.After))
	}
	if c.Kind == watch.Deleted {
		m.copyDeleted(c.Before)
	}
	if c.Before != nil && sourceUID(c.Before) == "" {
		m.breaks("I9", "secret %s, which is someone else's, was changed", name)
	}
}

// public checks that nothing secret gets where people look.
func (m *model) public(side int, c fakecluster.Commit) {
	for key, v := range c.After.GetAnnotations() {
		if strings.Contains(v, "canary") {
			m.breaks("I14", "annotation %s on the %s has secret content", key, sideName(side))
		}
	}
	if c.Resource == simThings && strings.Contains(fmt.Sprint(c.After.Object["status"]), "canary") {
		m.breaks("I14", "a status has secret content")
	}
}

// final says what is not as it should be once everything has come to rest.
func (m *model) final() string {
	for _, name := range sorted(m.now[sideSource]) {
		if problem := m.finalSource(name, m.now[sideSource][name]); problem != "" {
			return fmt.Sprintf("%s: %s", name, problem)
		}
	}
	for _, name := range sorted(m.now[sideTarget]) {
		t := m.now[sideTarget][name]
		uid := sourceUID(t)
		if l := m.lives[uid]; uid != "" && !l.forced && !l.late && !m.exists(uid) {
			return fmt.Sprintf("I3: %s is an orphan of %s", name, uid)
		}
	}
	if problem := m.left(); problem != "" {
		return problem
	}
	if problem := m.finalSecond(); problem != "" {
		return problem
	}
	return cmp.Or(m.finalCopies(), m.finalKeys())
}

func (m *model) exists(uid string) bool {
	for _, o := range m.now[sideSource] {
		if string(o.GetUID()) == uid {
			return true
		}
	}
	return false
}

func sorted(objects map[cache.ObjectName]*unstructured.Unstructured) []cache.ObjectName {
	return slices.SortedFunc(maps.Keys(objects), func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
}

// finalSource says what is wrong with a source and its target.
func (m *model) finalSource(name cache.ObjectName, source *unstructured.Unstructured) string {
	if source.GetDeletionTimestamp() != nil {
		return "is still being deleted"
	}
	target := m.now[sideTarget][cache.NewObjectName(m.sim.at(sideTarget, name.Namespace), name.Name)]
	message := m.says(name, source)
	drifted := target != nil && differs(source, target, m.sim) != ""
	// What an older konnector or a maker has written, and a webhook has changed, is held by that one with another content than ours.
	drifted = drifted || m.sim.plan.has("normalising webhook") && (heldByOld(target, "f:spec", "f:color") || heldByMaker(target, "f:spec", "f:color"))
	reportsDrift := message == string(klutchsync.ReasonDrifted) && m.sim.plan.Drift == klutchsync.DriftReport && drifted
	if want := m.reason(source, target); want != "" && !reportsDrift {
		if message != string(want) {
			return fmt.Sprintf("says %q, not %s", message, want)
		}
		if said := annotation(source, klutchsync.MessageAnnotation); want == klutchsync.ReasonVanished && !secondWrites(source) && !strings.Contains(said, klutchsync.RefusedReturn+"the target cluster refuses ") {
			return fmt.Sprintf("says %q, not that its target is refused", said)
		}
		if want != klutchsync.ReasonFields { // with all else it is in step
			return ""
		}
		message = ""
	}
	switch {
	case reportsDrift:
		return ""
	case message != "":
		return fmt.Sprintf("says %q without need (%s)", message, annotation(source, klutchsync.MessageAnnotation))
	case target == nil:
		return "has no target"
	case !holds(source):
		return "has a target, and not our finalizer"
	}
	if diff := differs(source, target, m.sim); diff != "" {
		return diff
	}
	if secondWrites(source) {
		return ""
	}
	return statusDiffers(source, target, m.sim.narrow[sideSource])
}

// says is the reason that a source says, or that is reported of it where a second Sync writes its
// messages: that it does is a reason by itself.
func (m *model) says(name cache.ObjectName, source *unstructured.Unstructured) string {
	if secondWrites(source) {
		return strings.TrimSuffix(string(m.sim.why(name)), string(klutchsync.ReasonShared))
	}
	message, _, _ := strings.Cut(annotation(source, klutchsync.MessageAnnotation), ":")
	return message
}

// reason is what must keep a source from being in step, if anything does.
func (m *model) reason(source, target *unstructured.Unstructured) klutchsync.Reason {
	size, _, _ := unstructured.NestedString(source.Object, "spec", "size")
	mine := target != nil && (m.madeFrom(target) == string(source.GetUID()) || m.inherits(target, source))
	slot := target == nil || sourceUID(target) == "" || origin(target).Name == source.GetName() &&
		origin(target).Namespace == source.GetNamespace() && (origin(target).Cluster == m.sim.identity(sideSource) || origin(target).Cluster == m.sim.former && m.sim.former != "")
	p := m.sim.plan
	switch {
	case target != nil && !mine && (!m.adopts(target) || !slot):
		return klutchsync.ReasonConflict
	case target == nil && p.Lost == klutchsync.LostReport && strings.HasSuffix(annotation(source, klutchsync.TargetAnnotation), "/"+string(source.GetUID())):
		return klutchsync.ReasonLost
	case mine && generation(target) > source.GetGeneration() && !editedBehind(target, source.GetGeneration()):
		return klutchsync.ReasonStale
	case (size == "huge" || m.undeclared(source)) && target == nil && m.lost(source):
		return klutchsync.ReasonVanished // and it is not taken again
	case size == "huge", m.undeclared(source):
		return klutchsync.ReasonRefused
	case p.has("schemas unreadable") && m.sim.narrow[sideSource] == "secret" && reportsSecret(target):
		return klutchsync.ReasonStatus
	case m.keyTaken(source):
		return klutchsync.ReasonRelated
	case m.sim.narrow[sideTarget] == "color" && has(source, "color"):
		return klutchsync.ReasonFields
	}
	return ""
}

// lost reports whether a source that has no target had one, as its status or its message shows.
func (m *model) lost(source *unstructured.Unstructured) bool {
	uid := string(source.GetUID())
	of := func(made string) bool { return made == uid }
	_, _, served := tokenOf(source.Object["status"])
	says := strings.HasPrefix(annotation(source, klutchsync.MessageAnnotation), string(klutchsync.ReasonVanished))
	return (served || says) && (slices.ContainsFunc(slices.Collect(maps.Values(m.sim.origins)), of) || slices.ContainsFunc(slices.Collect(maps.Values(m.peers)), of))
}

// undeclared reports whether a source has a field that its target's schema has lost, and konnectors
// cannot see that.
func (m *model) undeclared(source *unstructured.Unstructured) bool {
	return m.sim.plan.has("schemas unreadable") && m.sim.narrow[sideTarget] == "color" && has(source, "color")
}

// inherits reports whether there is evidence that a target which names no source was
// made from this one by an older konnector: its mark, too, which others may have taken off. Of two
// sources of one name within a minute none can tell which one it was.
func (m *model) inherits(target, source *unstructured.Unstructured) bool {
	return m.peers[string(target.GetUID())] != "" && sourceUID(target) == "" && holds(source) && annotation(target, klutchsync.BoundAnnotation) == "true" &&
		annotation(target, klutchsync.OrphanedAnnotation) == "" && !older(target, source) && !begunFor(target, source)
}

// begunFor reports whether a Sync has begun to take a target over for another source, and has not come as
// far as to name it: a backup may hold that.
func begunFor(target, source *unstructured.Unstructured) bool {
	return slices.ContainsFunc(target.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		parts := strings.Split(entry.Manager, "/")
		return len(parts) == 3 && parts[0] == "klutch.anynines.com" && parts[2] != "status" && parts[2] != "related" && !strings.HasSuffix(string(source.GetUID()), parts[2])
	})
}

// older reports whether the clocks say that a target is older than its source: if
// it does not say itself what it was made from, it is not taken over then.
func older(target, source *unstructured.Unstructured) bool {
	return source != nil && sourceUID(target) == "" && target.GetCreationTimestamp().Add(time.Minute).Before(source.GetCreationTimestamp().Time)
}

func has(o *unstructured.Unstructured, field string) bool {
	_, ok, _ := unstructured.NestedFieldNoCopy(o.Object, "spec", field)
	return ok
}

// differs names what the source says and its target does not, or the other way
// round.
func differs(source, target *unstructured.Unstructured, s *sim) string {
	if uid := sourceUID(target); uid != string(source.GetUID()) {
		return fmt.Sprintf("its target is made from %q", uid)
	}
	left := s.plan.Deletion == klutchsync.DeletionOrphan && s.plan.Conflict == klutchsync.ConflictAdopt // of a target that was released, and is adopted now, all stays
	for _, field := range []string{"size", "color"} {
		want, wanted, _ := unstructured.NestedString(source.Object, "spec", field)
		have, had, _ := unstructured.NestedString(target.Object, "spec", field)
		wanted = wanted && (s.narrow[sideTarget] != field || s.plan.has("schemas unreadable"))
		if !wanted {
			want = ""
		}
		if field == "color" && s.plan.has("normalising webhook") {
			want = strings.ToLower(want)
		}
		if !wanted && (left || strings.HasPrefix(have, "drift-") || have == "red" || s.plan.Drift == klutchsync.DriftReport && heldByOld(target, "f:spec", "f:"+field)) {
			continue // what the user no longer asks for, or never did, and a provider has set, is the provider's
		}
		if !wanted && s.model.theirs(target, []string{"f:spec", "f:" + field}) {
			continue
		}
		if want != have || wanted != had {
			return fmt.Sprintf("%s is %q on the target, not %q", field, have, want)
		}
	}
	if diff := s.model.tagsDiffer(source, target, left); diff != "" {
		return diff
	}
	if want, have := source.GetLabels()["tier"], target.GetLabels()["tier"]; want != have && (want != "" || !left && !s.model.theirs(target, simFields[2])) {
		return fmt.Sprintf("label is %q on the target, not %q", have, want)
	}
	for _, key := range []string{"team", "note"} {
		want, have := annotation(source, key), annotation(target, key)
		if want == "" && (left || s.model.theirs(target, []string{"f:metadata", "f:annotations", "f:" + key})) {
			continue
		}
		if want != have {
			return fmt.Sprintf("annotation %s is %q on the target, not %q", key, have, want)
		}
	}
	if have := generation(target); have != source.GetGeneration() {
		return fmt.Sprintf("the target is of generation %d, not %d", have, source.GetGeneration())
	}
	return ""
}

// heldByOld reports whether an older konnector holds a field, which stays as long
// as it is not taken over.
func heldByOld(o *unstructured.Unstructured, path ...string) bool {
	return heldBy(o, "konnector", path...)
}

// simFields are those of things that users set.
var simFields = [][]string{
	{"f:spec", "f:size"},
	{"f:spec", "f:color"},
	{"f:metadata", "f:labels", "f:tier"},
	{"f:metadata", "f:annotations", "f:team"},
	{"f:metadata", "f:annotations", "f:note"},
	{"f:spec", "f:tags", "f:k0"},
	{"f:spec", "f:tags", "f:k1"},
}

// heldBy reports whether a manager whose name begins with one holds a field.
func heldBy(o *unstructured.Unstructured, manager string, path ...string) bool {
	if o == nil {
		return false
	}
	all, _, _ := unstructured.NestedFieldNoCopy(o.Object, "metadata", "managedFields")
	entries, _ := all.([]any)
	return slices.ContainsFunc(entries, func(e any) bool {
		entry := e.(map[string]any)
		_, ok, _ := unstructured.NestedFieldNoCopy(entry, append([]string{"fieldsV1"}, path...)...)
		return ok && strings.HasPrefix(entry["manager"].(string), manager)
	})
}

// statusDiffers names what the target reports and the source does not; unknown is a
// field that the source cannot have.
func statusDiffers(source, target *unstructured.Unstructured, unknown string) string {
	if diff := reportDiffers(source, target, unknown); diff != "" {
		return diff
	}
	seen, reported, _ := unstructured.NestedInt64(target.Object, "status", "observedGeneration")
	have, _, _ := unstructured.NestedInt64(source.Object, "status", "observedGeneration")
	if reported && seen == target.GetGeneration() && have != source.GetGeneration() {
		return fmt.Sprintf("status.observedGeneration is %d, not %d", have, source.GetGeneration())
	}
	return ""
}

// reportDiffers is statusDiffers without generations.
func reportDiffers(source, target *unstructured.Unstructured, unknown string) string {
	for _, field := range []string{"phase", "secret"} {
		if field == unknown {
			continue
		}
		want, _, _ := unstructured.NestedString(target.Object, "status", field)
		have, _, _ := unstructured.NestedString(source.Object, "status", field)
		if want != have {
			return fmt.Sprintf("status.%s is %q, not %q", field, have, want)
		}
	}
	want, _, _ := unstructured.NestedStringMap(target.Object, "status", "used")
	have, _, _ := unstructured.NestedStringMap(source.Object, "status", "used")
	if len(want) != len(have) || len(want) > 0 && !gocmp.Equal(want, have) {
		return fmt.Sprintf("status.used is %v, not %v", have, want)
	}
	return ""
}

// finalCopies says what is wrong with the copies of secrets.
func (m *model) finalCopies() string {
	if !m.sim.plan.related(klutchsync.TargetSide) {
		return ""
	}
	copies := m.secrets(sideSource, credsPrefix)
	originals := m.secrets(sideTarget, credsPrefix)
	for _, name := range sorted(originals) {
		if problem := m.finalCopy(originals[name], copies); problem != "" {
			return fmt.Sprintf("secret %s %s", name, problem)
		}
	}
	for _, name := range sorted(copies) {
		if m.leftBehind(copies[name]) {
			continue
		}
		lonely := !m.hasSource(name.Namespace)
		switch {
		case lonely && m.sim.spaces.closed(name.Namespace): // which the program clears
		case originals[cache.NewObjectName("svc-"+name.Namespace, name.Name)] == nil && !m.kept(copies[name]):
			return fmt.Sprintf("secret %s is a copy of nothing", name)
		case lonely:
			return fmt.Sprintf("secret %s is where no source is", name)
		}
	}
	return ""
}

// ofSecret is the source to which a credential belongs.
func (s *sim) ofSecret(original *unstructured.Unstructured) cache.ObjectName {
	return s.source(cache.NewObjectName(original.GetNamespace(), strings.TrimPrefix(original.GetName(), "creds-")))
}

// finalCopy returns the fault of the copy of a credential, if it has one.
func (m *model) finalCopy(original *unstructured.Unstructured, copies map[cache.ObjectName]*unstructured.Unstructured) string {
	source := m.now[sideSource][m.sim.ofSecret(original)]
	referred := ""
	if source != nil {
		referred, _, _ = unstructured.NestedString(source.Object, "status", "secret")
	}
	c := copies[m.sim.source(cache.MetaObjectToName(original))]
	switch {
	case referred == original.GetName() && m.inStep(source, m.now[sideTarget][cache.NewObjectName(original.GetNamespace(), source.GetName())]) && c == nil:
		return "has no copy"
	case c != nil && m.sim.spaces.closed(c.GetNamespace()): // as its whole namespace
		return ""
	case c != nil && m.leftBehind(c) && (source == nil || origin(c).Cluster != m.sim.identity(sideTarget)): // it stays as it is; the copy of another cluster is told as someone else's
		return ""
	case c != nil && (!m.kept(c) || referred == original.GetName()) && !gocmp.Equal(c.Object["data"], original.Object["data"]):
		return "has an old copy"
	}
	return ""
}

func (m *model) hasSource(namespace string) bool {
	for name := range m.now[sideSource] {
		if name.Namespace == namespace {
			return true
		}
	}
	return false
}

// kept reports whether a copy is of a cluster that has been exchanged, and the claim
// that it was for is there.
func (m *model) kept(c *unstructured.Unstructured) bool {
	referrer := annotation(c, klutchsync.ReferrerAnnotation)
	claim := m.now[sideSource][cache.NewObjectName(c.GetNamespace(), referrer)]
	return (claim != nil || referrer == "" && m.hasSource(c.GetNamespace())) && origin(c).Cluster != m.sim.identity(sideTarget)
}

// inStep reports whether nothing keeps a target from being made from a source, and
// from saying so: an older konnector may hold fields of it.
func (m *model) inStep(source, target *unstructured.Unstructured) bool {
	return m.reason(source, target) == "" && (target == nil || sourceUID(target) == string(source.GetUID()))
}

// credsPrefix begins the names of the credentials that a provider hands out.
const credsPrefix = "creds-"

// secrets are those of a side whose names begin so.
func (m *model) secrets(side int, prefix string) map[cache.ObjectName]*unstructured.Unstructured {
	out := map[cache.ObjectName]*unstructured.Unstructured{}
	objects, _ := m.sim.clusters[side].Objects(simSecrets)
	for _, o := range objects {
		if strings.HasPrefix(o.GetName(), prefix) {
			out[cache.MetaObjectToName(o)] = o
		}
	}
	return out
}
