// SPDX-License-Identifier: Apache-2.0

package sync

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// A relation copies the related objects of one selector. Its keys are the names
// of originals.
type relation struct {
	Related
	engine         *engine
	paths          [][]string
	index          string // of the referrers, by the name of what they refer to
	ownerUID       func() types.UID
	owner, other   *Cluster
	original, copy *view
	referrers      *view
	queue          *lane
	key            []byte // of the HMAC: never leaves the process

	mu      sync.Mutex
	records map[cache.ObjectName]*copied
}

// copied is what a relation remembers of one object between passes.
type copied struct {
	original, copy string // versions that were found, or made, to be the same
	verified       bool   // that the copy has lost its reason has been confirmed live
	problem        string
	claims         []cache.ObjectName // that know of the problem
}

func newRelation(e *engine, p *pool, spec Related) *relation {
	r := &relation{Related: spec, engine: e, records: map[cache.ObjectName]*copied{}, key: []byte(rand.Text())}
	r.index = "references " + spec.Resource.String() + " " + strings.Join(spec.References, " ")
	for _, path := range spec.References {
		if fields, err := parsePath(path); err == nil {
			r.paths = append(r.paths, fields)
		}
	}
	r.owner, r.other, r.referrers = e.from, e.to, e.source
	r.ownerUID = func() types.UID { return e.sourceUID }
	if spec.From == TargetSide {
		r.owner, r.other, r.referrers = e.to, e.from, e.target
		r.ownerUID = func() types.UID { return e.targetUID }
	}
	r.referrers.indexes[r.index] = newIndex(r.references, r.referred)
	r.original = r.newView("related original", r.owner, "", func(n cache.ObjectName) (cache.ObjectName, bool) { return n, true })
	r.copy = r.newView("related copy", r.other, BoundAnnotation+"=true", r.ownerName)
	r.queue = p.lane("related", max(e.opts.Workers/4, 1), r.reconcile)
	return r
}

func (r *relation) newView(name string, c *Cluster, selector string, key func(cache.ObjectName) (cache.ObjectName, bool)) *view {
	return &view{
		name: name + " " + r.Resource.Resource, list: c.metadataLister(r.Resource, selector), indexes: map[string]*index{}, parts: map[string]*part{},
		moved: func() { r.remapped(); r.engine.notify() }, lost: r.engine.notify,
		changed: func(o change) {
			if k, ok := key(o.name); ok {
				r.queue.add(k, o.ofRelated())
			}
		},
	}
}

func slimRelated(obj any) (any, error) {
	if o, ok := obj.(*metav1.PartialObjectMetadata); ok {
		o.ManagedFields = nil
	}
	return obj, nil
}

func (r *relation) watch(ctx context.Context) error {
	target, source := r.copy, r.original
	if r.From == TargetSide {
		target, source = r.original, r.copy
	}
	source.add(ctx, metav1.NamespaceAll)
	return r.engine.scope(ctx, target)
}

func (r *relation) run(ctx context.Context) { r.queue.run(ctx) }

func (r *relation) close() {
	r.queue.close()
	r.original.close()
	r.copy.close()
}

// remapped queues all related objects.
func (r *relation) remapped() {
	for _, v := range []*view{r.original, r.copy} {
		for _, name := range v.keys() {
			v.changed(change{name: name, initial: true})
		}
	}
}

// referred queues what a bound object refers to.
func (r *relation) referred(name string) {
	if namespace, name, err := cache.SplitMetaNamespaceKey(name); err == nil {
		r.queue.add(cache.NewObjectName(namespace, name), classRelated)
	}
}

// references are the names of the objects that a bound object refers to.
func (r *relation) references(obj any) ([]string, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	var out []string
	for _, path := range r.paths {
		if name, _, _ := unstructured.NestedString(u.Object, path...); name != "" {
			out = append(out, cache.NewObjectName(u.GetNamespace(), name).String())
		}
	}
	return out, nil
}

// parsePath splits a path such as status.managed.secret.name.
func parsePath(path string) ([]string, error) {
	fields := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "$"), "."), ".")
	if slices.Contains(fields, "") {
		return nil, fmt.Errorf("has an empty element in path %q", path)
	}
	return fields, nil
}

func (r *relation) ownerName(copied cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.opts.Mapper.Target(copied)
	}
	return r.engine.opts.Mapper.Source(copied)
}

func (r *relation) copyName(original cache.ObjectName) (cache.ObjectName, bool) {
	if r.From == TargetSide {
		return r.engine.opts.Mapper.Source(original)
	}
	return r.engine.opts.Mapper.Target(original)
}

// selects reports whether an original is to travel, and which bound objects
// refer to it, in order of their names on the owner's side.
func (r *relation) selects(original, copied cache.ObjectName) ([]cache.ObjectName, bool) {
	sourceNamespace := original.Namespace
	if r.From == TargetSide {
		sourceNamespace = copied.Namespace
	}
	if !allows(r.Namespaces, sourceNamespace) {
		return nil, false
	}
	var referrers []cache.ObjectName
	for _, obj := range r.referrers.by(r.index, original.String()) {
		if u, ok := obj.(*unstructured.Unstructured); ok && r.bound(u) {
			referrers = append(referrers, cache.MetaObjectToName(u))
		}
	}
	slices.SortFunc(referrers, func(a, b cache.ObjectName) int { return strings.Compare(a.String(), b.String()) })
	byName := len(r.Names) > 0 && allows(r.Names, original.Name)
	return referrers, byName || len(referrers) > 0 || len(r.Names)+len(r.References) == 0
}

func allows(list []string, value string) bool {
	return len(list) == 0 || slices.Contains(list, "*") || slices.Contains(list, value)
}

// bound reports whether an object of the owner's side is one of a synced pair.
func (r *relation) bound(u *unstructured.Unstructured) bool {
	if r.From == SourceSide {
		return true
	}
	key, ok := r.engine.opts.Mapper.Source(cache.MetaObjectToName(u))
	if !ok {
		return false
	}
	obj, _, ok := r.engine.source.get(key)
	source, found := obj.(*unstructured.Unstructured)
	return ok && found && origin{cluster: r.engine.sourceUID, uid: source.GetUID(), name: key}.made(u)
}

// A relatedState is all that planRelated may look at.
type relatedState struct {
	seen     bool // both sides are known, and so are the bound objects
	selected bool
	original bool // exists
	copy     bool // exists
	ours     bool // the copy is one
	verified bool // that the original, or what refers to it, has gone was confirmed live
	settled  bool // both have the versions that were found to be the same
}

// Steps of related objects.
const (
	stepVerify   step = "verify"   // confirm live that a copy has lost its reason
	stepConflict step = "conflict" // tell that the name of a copy is taken
	stepCopy     step = "copy"     // read both, and write the copy if it differs
)

// planRelated is plan for related objects.
func planRelated(s relatedState) step {
	reason := s.selected && s.original
	switch {
	case !s.seen:
		return stepWait
	case reason && s.copy && !s.ours:
		return stepConflict
	case reason && !s.settled:
		return stepCopy
	case reason:
		return stepRest
	case !s.copy || !s.ours:
		return stepRest
	case !s.verified:
		return stepVerify
	default:
		return stepDelete
	}
}

// A transfer is one original, its copy, and the state that they are in.
type transfer struct {
	relatedState
	from      origin
	name      cache.ObjectName // of the copy
	referrers []cache.ObjectName
	original  metav1.Object
	copy      metav1.Object
}

func (r *relation) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	c := r.record(key)
	for range maxSteps {
		t, ok := r.observe(key, c)
		if !ok {
			return 0, nil
		}
		s := planRelated(t.relatedState)
		if s != stepConflict && s != stepWait && s != stepCopy {
			r.tell(c, nil, "")
		}
		if s == stepWait {
			return waitPause, nil
		}
		if s == stepRest {
			r.forget(key, t)
			return 0, nil
		}
		done, err := r.do(ctx, t, s, c)
		if c.problem != "" && err == nil {
			return livePause, nil // what is not ours is not watched
		}
		if done || err != nil {
			return 0, err
		}
	}
	return time.Second, nil
}

func (r *relation) record(key cache.ObjectName) *copied {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.records[key]
	if c == nil {
		c = &copied{}
		r.records[key] = c
	}
	return c
}

func (r *relation) forget(key cache.ObjectName, t *transfer) {
	if t.relatedState.original || t.relatedState.copy {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, key)
}

func (r *relation) observe(key cache.ObjectName, c *copied) (*transfer, bool) {
	name, ok := r.copyName(key)
	if !ok {
		return nil, false
	}
	t := &transfer{name: name}
	original, _, seenOriginal := r.original.get(key)
	copied, version, seenCopy := r.copy.get(name)
	known, _ := r.referrers.state()
	knownSources, _ := r.engine.source.state()
	t.seen = seenOriginal && seenCopy && known && knownSources
	t.referrers, t.selected = r.selects(key, name)
	t.from = origin{cluster: r.ownerUID(), name: key}
	if o, ok := original.(metav1.Object); ok {
		t.original, t.relatedState.original = o, true
		t.from.uid = o.GetUID()
	}
	if o, ok := copied.(metav1.Object); ok {
		t.copy, t.relatedState.copy = o, true
		t.ours = t.from.sameSlot(o)
		version = o.GetResourceVersion()
	}
	current := t.relatedState.copy || newer(c.copy, version)
	t.settled = t.original != nil && c.original == t.original.GetResourceVersion() && current && !newer(version, c.copy)
	t.verified = c.verified
	c.verified = false
	return t, true
}

// do does one step; done says that the next event brings us back.
func (r *relation) do(ctx context.Context, t *transfer, s step, c *copied) (done bool, err error) {
	switch s {
	case stepConflict:
		r.tell(c, t, r.conflict(t.name))
		return true, nil
	case stepVerify:
		c.verified, err = r.verify(ctx, t)
		return !c.verified, err
	case stepDelete:
		*c = copied{}
		return true, r.delete(ctx, t, t.copy.GetUID())
	default:
		return true, r.transfer(ctx, t, c)
	}
}

func (r *relation) conflict(name cache.ObjectName) string {
	return fmt.Sprintf("%s %s exists and is not a copy of %s; it is left untouched", r.Resource.GroupResource(), name, r.From.word())
}

func (s Side) word() string {
	if s == TargetSide {
		return "the target cluster's"
	}
	return "the source cluster's"
}

// verify confirms live that the original has gone, or that the bound object that
// was recorded to refer to it does so no more.
func (r *relation) verify(ctx context.Context, t *transfer) (bool, error) {
	live, err := r.owner.metadata(ctx, r.Resource, t.from.name)
	if err != nil || live == nil || string(live.GetUID()) != t.copy.GetAnnotations()[SourceUIDAnnotation] {
		return err == nil, err
	}
	referrer := t.copy.GetAnnotations()[ReferrerAnnotation]
	if t.selected {
		return false, nil // the original is there: the watch will show it
	}
	if applied, err := r.applied(ctx, t); err != nil || !applied {
		return false, err // another Sync of the same resource selects it
	}
	if referrer == "" {
		return true, nil // it was selected by name, and the selector has changed
	}
	u, err := r.owner.reader(r.engine.resource)(ctx, cache.NewObjectName(t.from.name.Namespace, referrer))
	if err != nil || u == nil {
		return err == nil, err
	}
	names, _ := r.references(u)
	return !slices.Contains(names, t.from.name.String()) || !r.bound(u), nil
}

// applied reports whether it was this Sync, and no other, that made the copy.
func (r *relation) applied(ctx context.Context, t *transfer) (bool, error) {
	live, err := r.other.metadata(ctx, r.Resource, t.name)
	if err != nil || live == nil {
		return false, err
	}
	ours := false
	for _, entry := range live.GetManagedFields() {
		if !strings.HasSuffix(entry.Manager, relatedManager) {
			continue
		}
		if entry.Manager != r.engine.fieldManager+relatedManager {
			return false, nil
		}
		ours = true
	}
	return ours, nil
}

// relatedManager ends the field manager of copies.
const relatedManager = "/related"

func (r *relation) delete(ctx context.Context, t *transfer, uid types.UID) error {
	began := time.Now()
	err := r.client(r.other, t.name).Delete(ctx, t.name.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	r.wrote(ctx, "delete-related", t, began, err)
	if absent(err) || apierrors.IsConflict(err) {
		return nil // its event brings us back
	}
	if err != nil {
		return fmt.Errorf("delete copy %s: %w", t.name, err)
	}
	return nil
}

func (r *relation) client(c *Cluster, name cache.ObjectName) dynamic.ResourceInterface {
	return c.writes.Resource(r.Resource).Namespace(name.Namespace)
}

func (r *relation) wrote(ctx context.Context, s string, t *transfer, began time.Time, err error) {
	side := TargetSide
	if r.From == TargetSide {
		side = SourceSide
	}
	r.engine.opts.Hooks.wrote(ctx, Write{Side: side, Step: s, Object: t.name, Took: time.Since(began), Err: err})
}

// transfer reads the original and, if there is one, the copy, and writes the copy
// if it is not what it should be.
func (r *relation) transfer(ctx context.Context, t *transfer, c *copied) error {
	original, err := r.owner.reader(r.Resource)(ctx, t.from.name)
	if err != nil {
		return fmt.Errorf("read original: %w", err)
	}
	if original == nil || isToken(original) {
		*c = copied{original: t.original.GetResourceVersion(), copy: c.copy}
		return nil
	}
	t.from.uid = original.GetUID()
	have, taken, err := r.existing(ctx, t)
	if err != nil {
		return err
	}
	if taken {
		r.tell(c, t, r.conflict(t.name))
		return nil
	}
	r.tell(c, t, "")
	return r.write(ctx, t, c, original, have)
}

func isToken(u *unstructured.Unstructured) bool {
	return u.Object["type"] == string(corev1.SecretTypeServiceAccountToken)
}

// existing reads the copy. Its metadata come first: the content of what is not
// ours is never read.
func (r *relation) existing(ctx context.Context, t *transfer) (have *unstructured.Unstructured, taken bool, err error) {
	live, err := r.other.metadata(ctx, r.Resource, t.name)
	if err != nil {
		return nil, false, fmt.Errorf("read metadata of copy: %w", err)
	}
	if live == nil {
		return nil, false, nil
	}
	if !t.from.sameSlot(live) {
		return nil, true, nil
	}
	have, err = r.other.reader(r.Resource)(ctx, t.name)
	if err != nil {
		return nil, false, fmt.Errorf("read copy: %w", err)
	}
	return have, have != nil && !t.from.sameSlot(have), nil
}

func (r *relation) write(ctx context.Context, t *transfer, c *copied, original, have *unstructured.Unstructured) error {
	want := r.intent(t, original)
	if have != nil && r.same(want, have) {
		c.original, c.copy = original.GetResourceVersion(), have.GetResourceVersion()
		return nil
	}
	if have != nil && (have.Object["immutable"] == true || have.Object["type"] != want.Object["type"]) {
		return r.delete(ctx, t, have.GetUID()) // and make it anew
	}
	opts := metav1.ApplyOptions{FieldManager: r.engine.fieldManager + relatedManager, Force: true}
	want.SetResourceVersion(nothing)
	if have != nil {
		want.SetUID(have.GetUID())
		want.SetResourceVersion("")
	}
	began := time.Now()
	got, err := r.client(r.other, t.name).Apply(ctx, t.name.Name, want, opts)
	r.wrote(ctx, "copy", t, began, err)
	if err != nil {
		return fmt.Errorf("apply copy %s: %w", t.name, withoutContent(err))
	}
	c.original, c.copy = original.GetResourceVersion(), got.GetResourceVersion()
	return nil
}

// withoutContent keeps of an API server's answer only its kind: the text of a
// validation error quotes the values that it does not like.
func withoutContent(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("refused: %s", apierrors.ReasonForError(err))
	}
	return err
}

// intent is what the copy should be.
func (r *relation) intent(t *transfer, original *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := travelling(original.GetAnnotations(), nil, nil)
	maps.Copy(annotations, t.from.annotations())
	annotations[OwnerAnnotation] = "Consumer"
	if r.From == TargetSide {
		annotations[OwnerAnnotation] = "Provider"
	}
	if len(t.referrers) > 0 {
		annotations[ReferrerAnnotation] = t.referrers[0].Name
	}
	labels := travelling(original.GetLabels(), nil, nil)
	labels[BoundAnnotation] = "true"
	object := body(original.Object)
	object["metadata"] = map[string]any{
		"name": t.name.Name, "namespace": t.name.Namespace, "labels": labels, "annotations": annotations,
	}
	return &unstructured.Unstructured{Object: object}
}

// same compares two objects by a keyed hash of their content, and what we keep
// in a copy's metadata.
func (r *relation) same(want, have *unstructured.Unstructured) bool {
	return hmac.Equal(r.digest(want), r.digest(have)) &&
		contains(have.GetAnnotations(), want.GetAnnotations()) && contains(have.GetLabels(), want.GetLabels())
}

func (r *relation) digest(u *unstructured.Unstructured) []byte {
	mac := hmac.New(sha256.New, r.key)
	_ = json.NewEncoder(mac).Encode(body(u.Object)) // JSON values can be encoded, and a hash takes all
	return mac.Sum(nil)
}

func contains(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

// tell makes a problem with a related object known to the claims that refer to it.
func (r *relation) tell(c *copied, t *transfer, problem string) {
	if c.problem == problem {
		return
	}
	if t != nil && problem != "" {
		c.claims = r.claims(t)
	}
	for _, claim := range c.claims {
		r.engine.setProblem(claim, r.index+c.problem, "")
		r.engine.setProblem(claim, r.index+problem, problem)
		r.engine.queue.add(claim, classRelated)
	}
	c.problem = problem
}

// claims are the sources of the bound objects that refer to an original.
func (r *relation) claims(t *transfer) []cache.ObjectName {
	if r.From == SourceSide {
		return t.referrers
	}
	var out []cache.ObjectName
	for _, target := range t.referrers {
		if source, ok := r.engine.opts.Mapper.Source(target); ok {
			out = append(out, source)
		}
	}
	return out
}

// setProblem notes why a related object of a source cannot travel, or that it
// can again.
func (e *engine) setProblem(source cache.ObjectName, id, text string) {
	e.recordsMu.Lock()
	defer e.recordsMu.Unlock()
	problems := e.problems[source]
	if text == "" {
		delete(problems, id)
		if len(problems) == 0 {
			delete(e.problems, source)
		}
		return
	}
	if problems == nil {
		problems = map[string]string{}
		e.problems[source] = problems
	}
	problems[id] = text
}

// metadata reads the metadata of one object live; nil if there is none.
func (c *Cluster) metadata(ctx context.Context, resource schema.GroupVersionResource, name cache.ObjectName) (metav1.Object, error) {
	o, err := c.meta.Resource(resource).Namespace(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	switch {
	case absent(err):
		return nil, nil //nolint:nilnil // no object is an answer
	case err != nil:
		return nil, err
	}
	return o, nil
}
