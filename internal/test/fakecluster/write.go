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
	m, err := managedfields.NewDefaultCRDFieldManager(managedfields.NewDeducedTypeConverter(), plain{}, plain{}, plain{}, kind, kind.GroupVersion(), subresource, nil)
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
		copyField(out, o, "status")
	case !s.Plain:
		copyField(out, live, "status")
	}
	return out
}

func copyField(to, from *unstructured.Unstructured, name string) {
	if v, ok := from.Object[name]; ok {
		to.Object[name] = runtime.DeepCopyJSONValue(v)
		return
	}
	delete(to.Object, name)
}

func (c *Cluster) create(s *served, name cache.ObjectName, o *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	if s.objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(s.GroupResource(), name.Name)
	}
	o = s.pruned(o)
	o.SetUID("")
	if !s.Plain {
		delete(o.Object, "status")
	}
	if err := c.check(s, name, o); err != nil {
		return nil, err
	}
	empty, _ := plain{}.New(o.GroupVersionKind())
	o = s.manager("").UpdateNoErrors(empty, o, manager).(*unstructured.Unstructured)
	c.insert(s, name, o)
	return o.DeepCopy(), nil
}

func (c *Cluster) update(s *served, name cache.ObjectName, o *unstructured.Unstructured, manager, subresource string) (*unstructured.Unstructured, error) {
	live, err := s.find(name)
	if err != nil {
		return nil, err
	}
	if subresource == "status" && s.Plain {
		return nil, apierrors.NewNotFound(s.GroupResource(), name.Name)
	}
	if v := o.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(s.GroupResource(), name.Name, errors.New("the object has been modified"))
	}
	if err := s.immutable(name, o, live); err != nil {
		return nil, err
	}
	changed := s.only(subresource, s.pruned(o), live)
	changed = s.manager(subresource).UpdateNoErrors(live.DeepCopy(), changed, manager).(*unstructured.Unstructured)
	return c.replace(s, name, live, changed)
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
func (c *Cluster) replace(s *served, name cache.ObjectName, live, changed *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	for _, keep := range []string{"uid", "creationTimestamp", "deletionTimestamp", "generation", "resourceVersion", "name", "namespace"} {
		if v, ok, _ := unstructured.NestedFieldNoCopy(live.Object, "metadata", keep); ok {
			_ = unstructured.SetNestedField(changed.Object, v, "metadata", keep)
		} else {
			unstructured.RemoveNestedField(changed.Object, "metadata", keep)
		}
	}
	if err := s.valid(name, live, changed); err != nil {
		return nil, err
	}
	if err := c.check(s, name, changed); err != nil {
		return nil, err
	}
	if s.hidden[name] == nil && equality.Semantic.DeepEqual(timeless(live), timeless(changed)) {
		return live.DeepCopy(), nil
	}
	if !equality.Semantic.DeepEqual(s.specOf(live), s.specOf(changed)) {
		changed.SetGeneration(live.GetGeneration() + 1)
	}
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		c.store(s, watch.Deleted, name, changed)
		changed = changed.DeepCopy()
		changed.SetResourceVersion(live.GetResourceVersion()) // as API servers do
		return changed, nil
	}
	c.store(s, watch.Modified, name, changed)
	return changed.DeepCopy(), nil
}

// valid refuses a spec without a value, which is what becomes of one that loses the
// last part that somebody applied, and new finalizers of what is being deleted.
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

func (c *Cluster) serverSideApply(s *served, name cache.ObjectName, o *unstructured.Unstructured, options metav1.ApplyOptions, subresource string) (*unstructured.Unstructured, error) {
	if options.FieldManager == "" {
		return nil, apierrors.NewBadRequest("fieldManager is required for apply patch")
	}
	if subresource == "status" && s.Plain {
		return nil, apierrors.NewNotFound(s.GroupResource(), name.Name)
	}
	if err := s.declared(o); err != nil {
		return nil, err
	}
	live := s.objects[name]
	if live == nil {
		return c.createByApply(s, name, o, options, subresource)
	}
	if err := s.immutable(name, o, live); err != nil && subresource == "" { // real ones do not look at it for a status
		return nil, err
	}
	part := s.appliedPart(o, subresource)
	if subresource == "" {
		keepMaps(part, live)
	}
	applied, err := s.manager(subresource).Apply(live.DeepCopy(), part, options.FieldManager, options.Force)
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != live.GetResourceVersion() {
		return nil, apierrors.NewConflict(s.GroupResource(), name.Name, errors.New("the object has been modified"))
	}
	return c.replace(s, name, live, applied.(*unstructured.Unstructured))
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

func (c *Cluster) createByApply(s *served, name cache.ObjectName, o *unstructured.Unstructured, options metav1.ApplyOptions, subresource string) (*unstructured.Unstructured, error) {
	switch {
	case subresource != "":
		return nil, apierrors.NewNotFound(s.GroupResource(), name.Name)
	case o.GetUID() != "":
		return nil, apierrors.NewConflict(s.GroupResource(), name.Name,
			fmt.Errorf("uid mismatch: the provided object specified uid %s, and no existing object was found", o.GetUID()))
	}
	empty, _ := plain{}.New(o.GroupVersionKind())
	applied, err := s.manager("").Apply(empty, s.appliedPart(o, ""), options.FieldManager, options.Force)
	if err != nil {
		return nil, err
	}
	created := applied.(*unstructured.Unstructured)
	if err := c.check(s, name, created); err != nil {
		return nil, err
	}
	c.insert(s, name, created)
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
		copyField(out, o, "status")
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

func (c *Cluster) patch(s *served, name cache.ObjectName, p patch) (*unstructured.Unstructured, error) {
	live, err := s.find(name)
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
			return nil, apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "patch", s.GroupResource(), name.Name, err.Error(), 0, false)
		}
	default:
		return nil, apierrors.NewBadRequest("unknown kind of patch " + string(p.kind))
	}
	if m := changed.GetManagedFields(); len(m) == 1 && m[0].Manager == "" {
		changed.SetManagedFields(nil)
		live = live.DeepCopy()
		live.SetManagedFields(nil)
		if err := s.immutable(name, changed, live); err != nil {
			return nil, err
		}
		return c.replace(s, name, live, changed)
	}
	return c.update(s, name, changed, p.manager, p.subresource)
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
