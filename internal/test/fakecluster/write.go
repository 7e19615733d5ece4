// SPDX-License-Identifier: Apache-2.0

package fakecluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// plain is the scheme of objects that need none.
type plain struct{}

func (plain) Convert(_, _, _ any) error { return errors.New("no conversion") }
func (plain) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	return in, nil
}

func (plain) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	return label, value, nil
}
func (plain) Default(runtime.Object) {}
func (plain) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

func fieldManager(r Resource, subresource string) *managedfields.FieldManager {
	kind := r.GroupVersion().WithKind(r.Kind)
	types := r.Types
	if types == nil {
		var err error
		if types, err = plainTypes(); err != nil {
			panic(err) // it is a constant
		}
	}
	m, err := managedfields.NewDefaultCRDFieldManager(types, plain{}, plain{}, plain{}, kind, kind.GroupVersion(), subresource, nil)
	if err != nil {
		panic(err) // no argument of ours can be wrong
	}
	return m
}

func (s *served) manager(subresource string) *managedfields.FieldManager {
	if subresource != "status" {
		subresource = ""
	}
	m := s.managers[subresource]
	if m == nil {
		m = fieldManager(s.Resource, subresource)
		s.managers[subresource] = m
	}
	return m
}

// only keeps of o, for a write to a subresource of live, what it may change.
func (s *served) only(subresource string, o, live *unstructured.Unstructured) *unstructured.Unstructured {
	out := o.DeepCopy()
	switch {
	case subresource == "status":
		out = live.DeepCopy()
		copyStatus(out, o)
	case !s.Plain:
		copyStatus(out, live)
	}
	return out
}

func copyStatus(to, from *unstructured.Unstructured) {
	if v, ok := from.Object["status"]; ok {
		to.Object["status"] = runtime.DeepCopyJSONValue(v)
		return
	}
	delete(to.Object, "status")
}

// A write is a change of one object, with the lock of its cluster held.
type write struct {
	cluster *Cluster
	in      *served
	name    cache.ObjectName
}

func (w write) create(o *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	if w.in.objects[w.name] != nil {
		return nil, apierrors.NewAlreadyExists(w.in.GroupResource(), w.name.Name)
	}
	o = w.in.Schema.pruned(o)
	o.SetUID("")
	if !w.in.Plain {
		delete(o.Object, "status")
	}
	if err := w.check(o); err != nil {
		return nil, err
	}
	empty, _ := plain{}.New(o.GroupVersionKind())
	o = w.in.manager("").UpdateNoErrors(empty, o, manager).(*unstructured.Unstructured)
	w.insert(o)
	return o.DeepCopy(), nil
}

func (w write) update(o *unstructured.Unstructured, manager, subresource string) (*unstructured.Unstructured, error) {
	live, err := w.in.find(w.name)
	if err != nil {
		return nil, err
	}
	if subresource == "status" && w.in.Plain {
		return nil, apierrors.NewNotFound(w.in.GroupResource(), w.name.Name)
	}
	if v := o.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(w.in.GroupResource(), w.name.Name, errors.New("the object has been modified"))
	}
	if err := w.in.immutable(w.name, o, live); err != nil {
		return nil, err
	}
	changed := w.in.only(subresource, w.in.Schema.pruned(o), live)
	changed = w.in.manager(subresource).UpdateNoErrors(live.DeepCopy(), changed, manager).(*unstructured.Unstructured)
	return w.replace(live, changed)
}

func (s *served) immutable(name cache.ObjectName, o, live *unstructured.Unstructured) error {
	if o.GetUID() == "" || o.GetUID() == live.GetUID() {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: s.Group, Kind: s.Kind}, name.Name, field.ErrorList{
		field.Invalid(field.NewPath("metadata", "uid"), string(o.GetUID()), "field is immutable"),
	})
}

// replace stores changed in place of live, if it differs.
func (w write) replace(live, changed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for _, keep := range []string{"uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "name", "namespace"} {
		if v, ok, _ := unstructured.NestedFieldNoCopy(live.Object, "metadata", keep); ok {
			_ = unstructured.SetNestedField(changed.Object, v, "metadata", keep)
		} else {
			unstructured.RemoveNestedField(changed.Object, "metadata", keep)
		}
	}
	if err := w.in.valid(w.name, live, changed); err != nil {
		return nil, err
	}
	if err := w.check(changed); err != nil {
		return nil, err
	}
	if w.in.hidden[w.name] == nil && equality.Semantic.DeepEqual(timeless(live), timeless(changed)) {
		return live.DeepCopy(), nil
	}
	if !equality.Semantic.DeepEqual(w.in.specOf(live), w.in.specOf(changed)) {
		changed.SetGeneration(live.GetGeneration() + 1)
	}
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		w.drop()
		changed.SetResourceVersion(live.GetResourceVersion()) // as API servers do
		return changed, nil
	}
	w.store(watch.Modified, changed)
	return changed.DeepCopy(), nil
}

// valid refuses a spec without a value, which is what becomes of one that loses the
// last part that a manager applied, and new finalizers of what is being deleted.
func (s *served) valid(name cache.ObjectName, live, changed *unstructured.Unstructured) error {
	var errs field.ErrorList
	if spec, ok := changed.Object["spec"]; ok && spec == nil {
		errs = append(errs, field.Invalid(field.NewPath("spec"), "null", "must be of type object"))
	}
	added := sets.New(changed.GetFinalizers()...).Difference(sets.New(live.GetFinalizers()...))
	if live.GetDeletionTimestamp() != nil && added.Len() > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "finalizers"), "no new finalizers can be added if the object is being deleted"))
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: s.Group, Kind: s.Kind}, name.Name, errs)
}

// specOf is what a generation counts the changes of.
func (s *served) specOf(o *unstructured.Unstructured) map[string]any {
	out := maps.Clone(o.Object)
	delete(out, "metadata")
	if !s.Plain {
		delete(out, "status")
	}
	return out
}

// timeless is an object without the times of its managed fields, which are no
// reason to store it.
func timeless(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	fields := o.GetManagedFields()
	for i := range fields {
		fields[i].Time = nil
	}
	o.SetManagedFields(fields)
	return o.Object
}

func (w write) serverSideApply(o *unstructured.Unstructured, options metav1.ApplyOptions, subresource string) (*unstructured.Unstructured, error) {
	if options.FieldManager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	if subresource == "status" && w.in.Plain {
		return nil, apierrors.NewNotFound(w.in.GroupResource(), w.name.Name)
	}
	if err := w.in.declared(o); err != nil {
		return nil, err
	}
	live := w.in.objects[w.name]
	if live == nil {
		return w.createByApply(o, options, subresource)
	}
	if err := w.in.immutable(w.name, o, live); err != nil && subresource == "" { // real ones do not look at it for a status
		return nil, err
	}
	part := w.in.appliedPart(o, subresource)
	if subresource == "" {
		keepMaps(part, live)
	}
	applied, err := w.in.manager(subresource).Apply(live.DeepCopy(), part, options.FieldManager, options.Force)
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(w.in.GroupResource(), w.name.Name, errors.New("the object has been modified"))
	}
	result := applied.(*unstructured.Unstructured)
	if subresource == "" && !w.in.Plain {
		copyStatus(result, live) // also what the manager has applied of it while the resource was plain
	}
	return w.replace(live, result)
}

// keepMaps makes labels and annotations be applied one by one, as the schema of
// metadata says, also where there are none: without a schema a map would go as a
// whole with the last of what its first owner applied.
func keepMaps(applied, live *unstructured.Unstructured) {
	for _, name := range []string{"labels", "annotations"} {
		have, _, _ := unstructured.NestedMap(live.Object, "metadata", name)
		if want, _, _ := unstructured.NestedMap(applied.Object, "metadata", name); len(want) == 0 && len(have) > 0 {
			_ = unstructured.SetNestedMap(applied.Object, map[string]any{}, "metadata", name)
		}
	}
}

func (w write) createByApply(o *unstructured.Unstructured, options metav1.ApplyOptions, subresource string) (*unstructured.Unstructured, error) {
	switch {
	case subresource != "":
		return nil, apierrors.NewNotFound(w.in.GroupResource(), w.name.Name)
	case o.GetUID() != "":
		return nil, apierrors.NewConflict(w.in.GroupResource(), w.name.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", o.GetUID()))
	}
	empty, _ := plain{}.New(o.GroupVersionKind())
	applied, err := w.in.manager("").Apply(empty, w.in.appliedPart(o, ""), options.FieldManager, options.Force)
	if err != nil {
		return nil, err
	}
	created := applied.(*unstructured.Unstructured)
	if err := w.check(created); err != nil {
		return nil, err
	}
	w.insert(created)
	return created.DeepCopy(), nil
}

// appliedPart is what an apply may set.
func (s *served) appliedPart(o *unstructured.Unstructured, subresource string) *unstructured.Unstructured {
	out := o.DeepCopy()
	out.SetResourceVersion("")
	switch {
	case subresource == "status":
		out = &unstructured.Unstructured{Object: map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind()}}
		out.SetName(o.GetName())
		out.SetNamespace(o.GetNamespace())
		copyStatus(out, o)
	case !s.Plain:
		delete(out.Object, "status")
	}
	return out
}

// A patch is what a client wants to change.
type patch struct {
	kind                 types.PatchType
	data                 []byte
	manager, subresource string
}

func (w write) patch(p patch) (*unstructured.Unstructured, error) {
	live, err := w.in.find(w.name)
	if err != nil {
		return nil, err
	}
	changed := live.DeepCopy()
	switch p.kind {
	case types.MergePatchType:
		var fields map[string]any
		if err := json.Unmarshal(p.data, &fields); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		changed.Object = merge(changed.Object, numbers(fields).(map[string]any)).(map[string]any)
	case types.JSONPatchType:
		if err := jsonPatch(changed.Object, p.data); err != nil {
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", w.in.GroupResource(), w.name.Name, err.Error(), 0, false)
		}
	default:
		return nil, apierrors.NewBadRequest("unknown kind of patch " + string(p.kind))
	}
	if m := changed.GetManagedFields(); len(m) == 1 && m[0].Manager == "" {
		changed.SetManagedFields(nil)
		live = live.DeepCopy()
		live.SetManagedFields(nil)
		if err := w.in.immutable(w.name, changed, live); err != nil {
			return nil, err
		}
		return w.replace(live, changed)
	}
	return w.update(changed, p.manager, p.subresource)
}

// merge is RFC 7386.
func merge(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
			continue
		}
		t[k] = merge(t[k], v)
	}
	return t
}

// numbers turns whole numbers of decoded JSON into int64, as objects have them.
func numbers(v any) any {
	switch v := v.(type) {
	case float64:
		if v == float64(int64(v)) {
			return int64(v)
		}
	case map[string]any:
		for k, item := range v {
			v[k] = numbers(item)
		}
	case []any:
		for i, item := range v {
			v[i] = numbers(item)
		}
	}
	return v
}

// jsonPatch applies the operations test, add, replace and remove of RFC 6902.
func jsonPatch(object map[string]any, data []byte) error {
	var patch []struct {
		Op, Path string
		Value    any
	}
	if err := json.Unmarshal(data, &patch); err != nil {
		return err
	}
	for _, o := range patch {
		path := strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		for i, p := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(p)
		}
		if _, err := operate(object, path, o.Op, numbers(o.Value)); err != nil {
			return fmt.Errorf("%s %s: %w", o.Op, o.Path, err)
		}
	}
	return nil
}

// operate does one operation at a path below node, and returns what becomes of
// node.
func operate(node any, path []string, op string, value any) (any, error) {
	switch n := node.(type) {
	case map[string]any:
		child, exists := n[path[0]]
		if len(path) > 1 {
			changed, err := operate(child, path[1:], op, value)
			n[path[0]] = changed
			return n, err
		}
		if !exists && op != "add" {
			return n, errors.New("no such member")
		}
		switch op {
		case "remove":
			delete(n, path[0])
		case "add", "replace":
			n[path[0]] = value
		case "test":
			return n, same(child, value)
		}
		return n, nil
	case []any:
		return operateList(n, path, op, value)
	default:
		return node, errors.New("no such path")
	}
}

func operateList(n []any, path []string, op string, value any) (any, error) {
	if path[0] == "-" && op == "add" {
		return append(n, value), nil
	}
	i, err := strconv.Atoi(path[0])
	if err != nil || i < 0 || i >= len(n) {
		return n, errors.New("no such item")
	}
	if len(path) > 1 {
		n[i], err = operate(n[i], path[1:], op, value)
		return n, err
	}
	switch op {
	case "remove":
		return append(n[:i:i], n[i+1:]...), nil
	case "replace":
		n[i] = value
	case "add":
		return append(n[:i:i], append([]any{value}, n[i:]...)...), nil
	case "test":
		return n, same(n[i], value)
	}
	return n, nil
}

func same(have, want any) error {
	if !equality.Semantic.DeepEqual(have, want) {
		return errors.New("test failed")
	}
	return nil
}

// insert stores a new object.
func (w write) insert(o *unstructured.Unstructured) {
	o.SetName(w.name.Name)
	o.SetNamespace(w.name.Namespace)
	o.SetUID(w.cluster.uid())
	o.SetGeneration(1)
	o.SetCreationTimestamp(w.cluster.now())
	o.SetDeletionTimestamp(nil)
	w.store(watch.Added, o)
}

// store gives o a new version and tells the watchers.
func (w write) store(kind watch.EventType, o *unstructured.Unstructured) {
	w.cluster.version++
	o.SetResourceVersion(strconv.FormatInt(w.cluster.version, 10))
	if w.cluster.observe != nil {
		w.cluster.observe(Commit{Request: w.cluster.current, Resource: w.in.GroupVersionResource, Kind: kind, Before: w.in.objects[w.name], After: o})
	}
	delete(w.in.hidden, w.name)
	if kind == watch.Deleted {
		delete(w.in.objects, w.name)
	} else {
		w.in.objects[w.name] = o
	}
	e := event{version: w.cluster.version, kind: kind, object: o}
	w.in.history = append(w.in.history, e)
	for _, watcher := range w.in.watchers {
		watcher.send(e)
		watcher.wake(w.in.lagging)
	}
}

// drop ends an object. Watches show the last state of it that was stored, as those of API servers
// do: with the finalizers that the write that ended it took off.
func (w write) drop() {
	w.store(watch.Deleted, w.in.objects[w.name].DeepCopy())
}

// check refuses what real API servers refuse of any object.
func (w write) check(o *unstructured.Unstructured) error {
	if w.name.Namespace != "" && o.GetUID() == "" {
		if err := w.admits(); err != nil {
			return err
		}
	}
	if w.in.Mutate != nil {
		w.in.Mutate(o)
	}
	if w.in.Check == nil {
		return nil
	}
	if err := w.in.Check(o); err != nil {
		invalid := apierrors.NewInvalid(schema.GroupKind{Group: w.in.Group, Kind: w.in.Kind}, w.name.Name, nil)
		invalid.ErrStatus.Message = fmt.Sprintf("%s %q is invalid: %v", w.in.Kind, w.name.Name, err)
		return invalid
	}
	return nil
}

// admits refuses new objects in namespaces that do not exist, or not for long.
func (w write) admits() error {
	namespaces := w.cluster.served[schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}]
	namespace := namespaces.objects[cache.NewObjectName("", w.name.Namespace)]
	if namespace == nil {
		return apierrors.NewNotFound(namespaces.GroupResource(), w.name.Namespace)
	}
	if namespace.GetDeletionTimestamp() == nil {
		return nil
	}
	err := apierrors.NewForbidden(w.in.GroupResource(), w.name.Name, fmt.Errorf("namespace %s is being terminated", w.name.Namespace))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	return err
}

// remove deletes an object, or marks it as being deleted while it has finalizers, and
// answers as API servers do.
func (w write) remove(options metav1.DeleteOptions) (*unstructured.Unstructured, error) {
	live, err := w.in.find(w.name)
	if err != nil {
		return nil, err
	}
	if p := options.Preconditions; p != nil {
		if err := precondition("UID", p.UID, live.GetUID(), w.in, w.name); err != nil {
			return nil, err
		}
		if err := precondition("ResourceVersion", p.ResourceVersion, live.GetResourceVersion(), w.in, w.name); err != nil {
			return nil, err
		}
	}
	switch {
	case len(live.GetFinalizers()) == 0:
		w.drop()
		return w.in.deleted(live), nil
	case live.GetDeletionTimestamp() == nil:
		live = live.DeepCopy()
		now := w.cluster.now()
		live.SetDeletionTimestamp(&now)
		live.SetGeneration(live.GetGeneration() + 1)
		w.store(watch.Modified, live)
	}
	return live.DeepCopy(), nil
}

func precondition[T ~string](what string, want *T, have T, s *served, name cache.ObjectName) error {
	if want == nil || *want == have {
		return nil
	}
	return apierrors.NewConflict(s.GroupResource(), name.Name,
		fmt.Errorf("the %s in the precondition (%s) does not match the %s in record (%s)", what, *want, what, have))
}

// deleted says that there is no such object any more.
func (s *served) deleted(o *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Status", "metadata": map[string]any{}, "status": metav1.StatusSuccess,
		"details": map[string]any{"name": o.GetName(), "group": s.Group, "kind": s.GroupVersionResource.Resource, "uid": string(o.GetUID())},
	}}
}
