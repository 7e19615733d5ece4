// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	ownerAnnotation  = "klutch.anynines.com/resource-owner"
	tenantAnnotation = "klutch.anynines.com/cluster-namespace"
	konnectorManager = "konnector"           // of its creates and updates
	specManager      = "klutch.anynines.com" // of its applies
)

// A klutchKonnector does in an App Cluster what Klutch's konnector does there: as an
// administrator here, and with the tenant's credential at the control plane.
type klutchKonnector struct {
	*side

	kubeconfigs map[string][]byte // in use, by the Secret that they came from
	started     bool
}

func newKlutchKonnector(app *side) *klutchKonnector {
	return &klutchKonnector{side: app, kubeconfigs: map[string][]byte{}}
}

// klutchsCRD is that of bindings which Klutch's konnector has embedded: without what is ours alone.
func klutchsCRD() *unstructured.Unstructured {
	u := v1alpha1.CRDs()["apiservicebindings.klutch.anynines.com"].DeepCopy()
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	fields := versions[0].(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["properties"].(map[string]any)["spec"].(map[string]any)["properties"].(map[string]any)
	for _, path := range [][]string{
		{"maxAdoptedObjects"}, {"lostInstances"}, {"permissionClaims", "items", "properties", "selector", "properties", "references"},
	} {
		unstructured.RemoveNestedField(fields, path...)
	}
	if err := unstructured.SetNestedSlice(u.Object, versions, "spec", "versions"); err != nil {
		panic(err)
	}
	return u
}

// start puts the embedded CRD over whatever is there.
func (k *klutchKonnector) start(ctx context.Context) error {
	if k.started {
		return nil
	}
	u := klutchsCRD()
	live, err := k.dyn.Resource(crdsGVR).Get(ctx, u.GetName(), metav1.GetOptions{})
	if err == nil {
		live.Object["spec"] = u.Object["spec"]
		_, err = k.dyn.Resource(crdsGVR).Update(ctx, live, metav1.UpdateOptions{FieldManager: konnectorManager})
	}
	k.started = err == nil
	return err
}

// A connection is what it has of one kubeconfig.
type connection struct {
	*side // the App Cluster

	provider   dynamic.Interface
	tenant     string
	uid        types.UID           // of the tenant namespace
	namespaces map[string]string   // service namespaces by that of the App Cluster
	asked      map[string]struct{} // all APIServiceNamespaces
}

// pass does once what its controllers do at each event.
func (k *klutchKonnector) pass(ctx context.Context) error {
	if err := k.start(ctx); err != nil {
		return err
	}
	bindings, err := k.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, b := range bindings.Items {
		errs = append(errs, k.serve(ctx, &b))
	}
	return errors.Join(errs...)
}

func (k *klutchKonnector) serve(ctx context.Context, b *unstructured.Unstructured) error {
	secret, client, err := k.kubeconfig(ctx, text(b, "spec", "kubeconfigSecretRef", "namespace"), text(b, "spec", "kubeconfigSecretRef", "name"))
	if err != nil {
		return err
	}
	config, err := client.ClientConfig()
	if err != nil {
		return err
	}
	config.QPS = -1
	// Ready with the Secret alone.
	if err := k.conditions(ctx, b, "SecretValid"); err != nil {
		return err
	}
	c := &connection{side: k.side}
	if c.tenant, _, err = client.Namespace(); err != nil {
		return err
	}
	if c.provider, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	// Its informer lists the Secrets, and nothing begins before.
	if _, err := c.provider.Resource(secretsGVR).Namespace(c.tenant).List(ctx, metav1.ListOptions{}); err != nil {
		return err
	}
	if err := c.heartbeat(ctx, secret); err != nil {
		return err
	}
	export, err := c.provider.Resource(exportsGVR).Namespace(c.tenant).Get(ctx, b.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if err := k.install(ctx, b, export); err != nil {
		return err
	}
	if err := c.reports(ctx, export); err != nil {
		return err
	}
	return c.sync(ctx, b, export)
}

// kubeconfig reads a Secret. While it works with what was in one, it makes a deleted one again.
func (k *klutchKonnector) kubeconfig(ctx context.Context, namespace, name string) (*unstructured.Unstructured, clientcmd.ClientConfig, error) {
	secret, err := k.dyn.Resource(secretsGVR).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	key := namespace + "/" + name
	switch inUse := k.kubeconfigs[key]; {
	case apierrors.IsNotFound(err) && inUse != nil:
		secret = object("v1", "Secret", namespace, name, map[string]any{"data": map[string]any{"kubeconfig": base64Of(inUse)}})
		secret, err = k.dyn.Resource(secretsGVR).Namespace(namespace).Create(ctx, secret, metav1.CreateOptions{FieldManager: konnectorManager})
	case err == nil:
		inUse, err = base64.StdEncoding.DecodeString(text(secret, "data", "kubeconfig"))
		k.kubeconfigs[key] = inUse
	}
	if err != nil {
		return nil, nil, err
	}
	client, err := clientcmd.NewClientConfigFromBytes(k.kubeconfigs[key])
	return secret, client, err
}

// conditions sets conditions of a binding to True, and Ready with them.
func (k *klutchKonnector) conditions(ctx context.Context, b *unstructured.Unstructured, add ...string) error {
	had, _, _ := unstructured.NestedSlice(b.Object, "status", "conditions")
	all := []any{}
	changed := false
	for _, name := range append([]string{"Ready"}, add...) {
		if !slices.ContainsFunc(had, func(c any) bool { m, _ := c.(map[string]any); return m["type"] == name && m["status"] == "True" }) {
			changed = true
		}
		all = append(all, map[string]any{"type": name, "status": "True", "lastTransitionTime": time.Now().UTC().Format(time.RFC3339)})
	}
	if !changed {
		return nil
	}
	for _, c := range had {
		if m, _ := c.(map[string]any); m["type"] != "Ready" && !slices.Contains(add, m["type"].(string)) {
			all = append(all, c)
		}
	}
	if err := unstructured.SetNestedSlice(b.Object, all, "status", "conditions"); err != nil {
		return err
	}
	now, err := k.of(b).UpdateStatus(ctx, b, metav1.UpdateOptions{FieldManager: konnectorManager})
	if err == nil {
		*b = *now
	}
	return err
}

// heartbeat reports to the control plane, and fetches the newest credential and the namespaces.
func (c *connection) heartbeat(ctx context.Context, secret *unstructured.Unstructured) error {
	newest, err := c.provider.Resource(secretsGVR).Namespace(c.tenant).Get(ctx, "kubeconfig", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !same(newest.Object["data"], secret.Object["data"]) {
		secret = secret.DeepCopy()
		secret.Object["data"] = newest.Object["data"]
		if _, err := c.of(secret).Update(ctx, secret, metav1.UpdateOptions{FieldManager: konnectorManager}); err != nil {
			return err
		}
	}
	bound, err := c.provider.Resource(clustersGVR).Namespace(c.tenant).Get(ctx, "cluster", metav1.GetOptions{})
	if err != nil {
		return err
	}
	last, _ := time.Parse(time.RFC3339, text(bound, "status", "lastHeartbeatTime"))
	if time.Since(last) > 150*time.Second {
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"status":{"heartbeatInterval":"5m0s","lastHeartbeatTime":%q,"konnectorVersion":"v0.0.0"}}`,
			bound.GetUID(), bound.GetResourceVersion(), time.Now().UTC().Format(time.RFC3339))
		if _, err := c.provider.Resource(clustersGVR).Namespace(c.tenant).Patch(ctx, "cluster", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil && !apierrors.IsConflict(err) {
			return err
		}
	}
	ns, err := c.provider.Resource(namespacesGVR).Get(ctx, c.tenant, metav1.GetOptions{})
	if err != nil {
		return err
	}
	c.uid = ns.GetUID()
	asked, err := c.provider.Resource(requestedGVR).Namespace(c.tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	c.namespaces, c.asked = map[string]string{}, map[string]struct{}{}
	for _, a := range asked.Items {
		_, err := c.dyn.Resource(namespacesGVR).Get(ctx, a.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			err = c.provider.Resource(requestedGVR).Namespace(c.tenant).Delete(ctx, a.GetName(), metav1.DeleteOptions{})
			if err = ignore(apierrors.IsNotFound, err); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		c.asked[a.GetName()] = struct{}{}
		if service := text(&a, "status", "namespace"); service != "" {
			c.namespaces[a.GetName()] = service
		}
	}
	return nil
}

// install creates or updates the CRD of a binding; objects of a foreign one go on.
func (k *klutchKonnector) install(ctx context.Context, b, export *unstructured.Unstructured) error {
	spec := map[string]any{}
	for _, field := range []string{"group", "names", "scope", "versions"} {
		spec[field], _, _ = unstructured.NestedFieldCopy(export.Object, "spec", field)
	}
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", b.GetName(), map[string]any{"spec": spec})
	yes := true
	crd.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "APIServiceBinding", Name: b.GetName(), UID: b.GetUID(), Controller: &yes}})
	live, err := k.dyn.Resource(crdsGVR).Get(ctx, b.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = k.dyn.Resource(crdsGVR).Create(ctx, crd, metav1.CreateOptions{FieldManager: konnectorManager})
	case err == nil && !slices.ContainsFunc(live.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == b.GetUID() }):
		return fmt.Errorf("ForeignCustomResourceDefinition: %s", b.GetName())
	case err == nil:
		live.Object["spec"] = spec
		_, err = k.dyn.Resource(crdsGVR).Update(ctx, live, metav1.UpdateOptions{FieldManager: konnectorManager})
	}
	if err != nil {
		return err
	}
	return k.conditions(ctx, b, "Connected", "SecretValid")
}

// reports writes on an export what the CRD here says, and what Klutch's konnector says beside it:
// never Ready, as nothing sets what ConsumerInSync goes by.
func (c *connection) reports(ctx context.Context, export *unstructured.Unstructured) error {
	u, err := c.dyn.Resource(crdsGVR).Get(ctx, export.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	crd, e := &apiextensionsv1.CustomResourceDefinition{}, &v1alpha1.APIServiceExport{}
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	if err := errors.Join(convert(u.Object, crd), convert(export.Object, e)); err != nil {
		return err
	}
	was := slices.Clone(e.Status.Conditions)
	for i := range was { // of which it knows nothing
		was[i].ObservedGeneration = 0
	}
	now := v1alpha1.SetCondition(slices.Clone(was), v1alpha1.True(v1alpha1.ConditionConnected))
	now = v1alpha1.SetCondition(now, v1alpha1.False("ConsumerInSync", v1alpha1.SeverityInfo, "Unknown", ""))
	for _, of := range crd.Status.Conditions {
		copied := v1alpha1.Condition{Type: string(of.Type), Status: metav1.ConditionStatus(of.Status), Reason: of.Reason, Message: of.Message}
		if of.Status != apiextensionsv1.ConditionTrue {
			copied.Severity = v1alpha1.SeverityError
		}
		now = v1alpha1.SetCondition(now, copied)
	}
	if now = v1alpha1.Summarize(now, 0); same(was, now) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": e.UID, "resourceVersion": e.ResourceVersion}, "status": map[string]any{
		"conditions": now, "acceptedNames": crd.Status.AcceptedNames, "storedVersions": crd.Status.StoredVersions,
	}})
	if err != nil {
		return err
	}
	_, err = c.provider.Resource(exportsGVR).Namespace(c.tenant).Patch(ctx, e.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return ignore(apierrors.IsConflict, err)
}

// sync has one binding's objects go up and down.
func (c *connection) sync(ctx context.Context, b, export *unstructured.Unstructured) error {
	versions, _, _ := unstructured.NestedSlice(export.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)["name"].(string)
	s := &syncer{connection: c, wide: text(export, "spec", "scope") == "Cluster", gvr: schema.GroupVersionResource{
		Group: text(export, "spec", "group"), Version: version, Resource: text(export, "spec", "names", "plural"),
	}}
	local, err := c.dyn.Resource(s.gvr).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, u := range local.Items {
		errs = append(errs, s.up(ctx, &u))
	}
	remote, err := s.remote(ctx, s.gvr)
	errs = append(errs, err)
	for _, u := range remote {
		errs = append(errs, s.down(ctx, &u))
	}
	claims, _, _ := unstructured.NestedSlice(b.Object, "spec", "permissionClaims")
	for _, claim := range claims {
		if m, _ := claim.(map[string]any); m["state"] == "Accepted" {
			errs = append(errs, c.claimed(ctx, m))
		}
	}
	return errors.Join(errs...)
}

type syncer struct {
	*connection

	gvr  schema.GroupVersionResource
	wide bool
}

// remote are the provider's objects in all service namespaces, or with the tenant's prefix.
func (s *syncer) remote(ctx context.Context, gvr schema.GroupVersionResource) (all []unstructured.Unstructured, err error) {
	if s.wide {
		list, err := s.provider.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return slices.DeleteFunc(list.Items, func(u unstructured.Unstructured) bool { return !strings.HasPrefix(u.GetName(), s.tenant+"-") }), nil
	}
	for _, service := range s.namespaces {
		list, err := s.provider.Resource(gvr).Namespace(service).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		all = append(all, list.Items...)
	}
	return all, nil
}

// place is where an object of the App Cluster lies at the provider; empty if there is no namespace yet.
func (s *syncer) place(ctx context.Context, u *unstructured.Unstructured) (namespace, name string, err error) {
	if s.wide {
		return "", s.tenant + "-" + u.GetName(), nil
	}
	if _, asked := s.asked[u.GetNamespace()]; !asked {
		ask := object(v1alpha1.GroupVersion.String(), "APIServiceNamespace", s.tenant, u.GetNamespace(), map[string]any{"spec": map[string]any{}})
		_, err := s.provider.Resource(requestedGVR).Namespace(s.tenant).Create(ctx, ask, metav1.CreateOptions{FieldManager: konnectorManager})
		return "", "", ignore(apierrors.IsAlreadyExists, err)
	}
	if namespace = s.namespaces[u.GetNamespace()]; namespace == "" {
		return "", "", nil
	}
	return namespace, u.GetName(), nil
}

// up brings a spec to the provider.
func (s *syncer) up(ctx context.Context, u *unstructured.Unstructured) error {
	namespace, name, err := s.place(ctx, u)
	if err != nil || name == "" {
		return err
	}
	remote := s.provider.Resource(s.gvr).Namespace(namespace)
	live, err := remote.Get(ctx, name, metav1.GetOptions{})
	deleting := u.GetDeletionTimestamp() != nil
	switch {
	case apierrors.IsNotFound(err) && deleting:
		return s.finalizer(ctx, u, false)
	case apierrors.IsNotFound(err):
		if err := s.finalizer(ctx, u, true); err != nil {
			return err
		}
		made := u.DeepCopy()
		clean(made)
		made.SetNamespace(namespace)
		made.SetName(name)
		annotate(made, v1alpha1.BoundAnnotation, "true")
		if s.wide {
			annotate(made, tenantAnnotation, s.tenant)
			made.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: s.tenant, UID: s.uid}})
		}
		unstructured.RemoveNestedField(made.Object, "status")
		_, err = remote.Create(ctx, made, metav1.CreateOptions{FieldManager: konnectorManager})
		return ignore(apierrors.IsAlreadyExists, err)
	case err != nil:
		return err
	case deleting:
		if live.GetDeletionTimestamp() == nil {
			if err := ignore(apierrors.IsNotFound, remote.Delete(ctx, name, metav1.DeleteOptions{})); err != nil {
				return err
			}
		}
		return s.finalizer(ctx, u, false)
	}
	if err := s.finalizer(ctx, u, true); err != nil || same(u.Object["spec"], live.Object["spec"]) {
		return err
	}
	live.Object["spec"] = u.Object["spec"]
	live.SetManagedFields(nil)
	annotate(live, v1alpha1.BoundAnnotation, "true")
	_, err = remote.Apply(ctx, name, live, metav1.ApplyOptions{FieldManager: specManager, Force: true})
	return err
}

func (s *syncer) finalizer(ctx context.Context, u *unstructured.Unstructured, want bool) error {
	if slices.Contains(u.GetFinalizers(), v1alpha1.SyncerFinalizer) == want {
		return nil
	}
	kept := slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == v1alpha1.SyncerFinalizer })
	if want {
		kept = append(kept, v1alpha1.SyncerFinalizer)
	}
	u.SetFinalizers(kept)
	now, err := s.dyn.Resource(s.gvr).Namespace(u.GetNamespace()).Update(ctx, u, metav1.UpdateOptions{FieldManager: konnectorManager})
	if err == nil {
		*u = *now
	}
	return ignore(apierrors.IsNotFound, err)
}

// down brings a status to the App Cluster, and an object that the provider has made.
func (s *syncer) down(ctx context.Context, u *unstructured.Unstructured) error {
	namespace, name := "", strings.TrimPrefix(u.GetName(), s.tenant+"-")
	if !s.wide {
		namespace, name = s.appNamespace(u.GetNamespace()), u.GetName()
	}
	local := s.dyn.Resource(s.gvr).Namespace(namespace)
	live, err := local.Get(ctx, name, metav1.GetOptions{})
	bound := u.GetAnnotations()[v1alpha1.BoundAnnotation] == "true"
	switch {
	case apierrors.IsNotFound(err) && bound:
		return ignore(apierrors.IsNotFound, s.provider.Resource(s.gvr).Namespace(u.GetNamespace()).Delete(ctx, u.GetName(), metav1.DeleteOptions{}))
	case apierrors.IsNotFound(err):
		made := u.DeepCopy()
		made.SetResourceVersion("")
		made.SetUID("")
		made.SetManagedFields(nil)
		made.SetNamespace(namespace)
		made.SetName(name)
		annotate(made, v1alpha1.BoundAnnotation, "true")
		_, err = local.Create(ctx, made, metav1.CreateOptions{FieldManager: konnectorManager})
		return ignore(apierrors.IsAlreadyExists, err)
	case err != nil:
		return err
	}
	if live.GetAnnotations()[v1alpha1.BoundAnnotation] != "true" {
		annotate(live, v1alpha1.BoundAnnotation, "true")
		if live, err = local.Update(ctx, live, metav1.UpdateOptions{FieldManager: konnectorManager}); err != nil {
			return err
		}
	}
	if same(live.Object["status"], u.Object["status"]) {
		return nil
	}
	live.Object["status"] = u.Object["status"]
	_, err = local.UpdateStatus(ctx, live, metav1.UpdateOptions{FieldManager: konnectorManager})
	return err
}

func (c *connection) appNamespace(service string) string {
	for app, s := range c.namespaces {
		if s == service {
			return app
		}
	}
	return ""
}

// claimed has the objects of a claim follow the side on which they are at home.
func (c *connection) claimed(ctx context.Context, claim map[string]any) error {
	group, _ := claim["group"].(string)
	version, _ := claim["version"].(string)
	resource, _ := claim["resource"].(string)
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
	names, _, _ := unstructured.NestedStringSlice(claim, "selector", "names")
	owner, _, _ := unstructured.NestedString(claim, "selector", "owner")
	var errs []error
	for app, service := range c.namespaces {
		local, err := c.dyn.Resource(gvr).Namespace(app).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		remote, err := c.provider.Resource(gvr).Namespace(service).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		keys := map[string]struct{}{}
		for _, u := range remote.Items {
			keys[u.GetName()] = struct{}{}
		}
		for _, u := range local.Items {
			has := u.GetAnnotations()[ownerAnnotation]
			named := len(names) == 0 || slices.Contains(names, "*") || slices.Contains(names, u.GetName())
			if named && (has == "" || owner == "" || has == owner) {
				keys[u.GetName()] = struct{}{}
			}
		}
		for name := range keys {
			errs = append(errs, c.follow(ctx, gvr, [2]string{app, service}, name))
		}
	}
	return errors.Join(errs...)
}

// follow has one claimed object follow its owner; where is its namespace on either side.
func (c *connection) follow(ctx context.Context, gvr schema.GroupVersionResource, where [2]string, name string) error {
	clients := [2]dynamic.ResourceInterface{c.dyn.Resource(gvr).Namespace(where[0]), c.provider.Resource(gvr).Namespace(where[1])}
	var live [2]*unstructured.Unstructured
	for i, client := range clients {
		u, err := client.Get(ctx, name, metav1.GetOptions{})
		if ignore(apierrors.IsNotFound, err) != nil {
			return err
		}
		if err == nil {
			live[i] = u
		}
	}
	var owner string
	switch noted := [2]string{ownerOf(live[0]), ownerOf(live[1])}; {
	case live[0] == nil && live[1] == nil:
		return nil
	case noted[1] != "":
		owner = noted[1]
	case live[0] == nil:
		owner = "Provider"
	case noted[0] != "":
		owner = noted[0]
	case live[1] == nil:
		owner = "Consumer"
	default: // it gives up
		return nil
	}
	from, to := 0, 1
	if owner == "Provider" {
		from, to = 1, 0
	}
	if live[from] == nil {
		return ignore(apierrors.IsNotFound, clients[to].Delete(ctx, name, metav1.DeleteOptions{}))
	}
	if ownerOf(live[from]) == "" {
		annotate(live[from], ownerAnnotation, owner)
		now, err := clients[from].Update(ctx, live[from], metav1.UpdateOptions{FieldManager: konnectorManager})
		if err != nil {
			return err
		}
		live[from] = now
	}
	made := live[from].DeepCopy()
	clean(made)
	made.SetNamespace(where[to])
	annotate(made, ownerAnnotation, owner)
	if live[to] == nil {
		_, err := clients[to].Create(ctx, made, metav1.CreateOptions{FieldManager: konnectorManager})
		return ignore(apierrors.IsAlreadyExists, err)
	}
	if same(made.Object["data"], live[to].Object["data"]) && same(made.GetLabels(), live[to].GetLabels()) && same(made.GetAnnotations(), live[to].GetAnnotations()) {
		return nil
	}
	_, err := clients[to].Update(ctx, made, metav1.UpdateOptions{FieldManager: konnectorManager})
	return err
}

func ownerOf(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	return u.GetAnnotations()[ownerAnnotation]
}

func annotate(u *unstructured.Unstructured, key, value string) {
	all := u.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	all[key] = value
	u.SetAnnotations(all)
}

// clean takes off what a copy does not have.
func clean(u *unstructured.Unstructured) {
	for _, field := range []string{"uid", "resourceVersion", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences", "finalizers", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
}

// same compares as JSON does: numbers of clients differ in type.
func same(a, b any) bool {
	x, errA := json.Marshal(a)
	y, errB := json.Marshal(b)
	return errA == nil && errB == nil && string(x) == string(y)
}

func ignore(is func(error) bool, err error) error {
	if is(err) {
		return nil
	}
	return err
}
