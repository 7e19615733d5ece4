// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/permission"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/mark"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
	klutchsync "github.com/klutch-go/sdk/sync"
)

// Takeover says what would happen, object by object, if this konnector took the place of
// Klutch's. Manifests are the manifests of this konnector. Nothing is changed: they are applied as a dry run.
func Takeover(ctx context.Context, config *rest.Config, now time.Time, manifests []*unstructured.Unstructured) []Finding {
	d, all, ok := open(ctx, config, now)
	if !ok || d.foreseeTenants(ctx) && len(all) == 0 {
		return d.found
	}
	d.foreseeKonnector(ctx)
	for _, u := range manifests {
		d.foreseeFields(ctx, u)
	}
	d.checkSecrets(ctx, all)
	for n := range all {
		d.foreseeBinding(ctx, &all[n])
	}
	return d.found
}

// foreseeKonnector tells which konnector runs. Klutch's may do everything everywhere.
func (d *doctor) foreseeKonnector(ctx context.Context) {
	const about = v1alpha1.Namespace + "/konnector"
	runs, err := LegacyKonnector(ctx, d.app)
	wrong := cluster.Trouble(err)
	if runs {
		wrong = "Klutch's konnector runs, and may do everything in this cluster: two konnectors would write the same objects"
	}
	d.note("konnector", about, wrong, "its Deployment, if there is one, would be this konnector's", "Stop it first: "+StopIt)
}

// StopIt stops the konnector of a cluster, whichever it is.
const StopIt = "kubectl -n " + v1alpha1.Namespace + " scale deployment konnector --replicas=0"

// LegacyKonnector reports whether the legacy konnector runs in a cluster: its ClusterRole has
// every right, and its Deployment is to have pods.
func LegacyKonnector(ctx context.Context, app *cluster.App) (bool, error) {
	deployment, err := cluster.Get[appsv1.Deployment](ctx, app.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(v1alpha1.Namespace), "konnector")
	if err != nil || deployment == nil || deployment.Spec.Replicas != nil && *deployment.Spec.Replicas == 0 {
		return false, err
	}
	role, err := cluster.Get[rbacv1.ClusterRole](ctx, app.Resource(cluster.ClusterRoles), konnectorRole)
	return role != nil && slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, rbacv1.ResourceAll) }), err
}

// foreseeFields tells which fields of a manifest other field managers have set, so that an apply
// without force refuses it.
func (d *doctor) foreseeFields(ctx context.Context, u *unstructured.Unstructured) {
	mappings := map[string]schema.GroupVersionResource{}
	lists, _ := d.app.Discovery.ServerResourcesForGroupVersionWithContext(ctx, u.GetAPIVersion())
	if lists == nil {
		return
	}
	gv := u.GroupVersionKind().GroupVersion()
	for _, r := range lists.APIResources {
		if !strings.Contains(r.Name, "/") {
			mappings[r.Kind] = gv.WithResource(r.Name)
		}
	}
	resource, known := mappings[u.GetKind()]
	if !known {
		return
	}
	about := u.GetKind() + " " + u.GetName()
	_, err := d.app.Resource(resource).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kubectl", DryRun: []string{metav1.DryRunAll}})
	if fates.Is(err, fates.Contested) {
		d.note("fields", about, "an apply without force is refused, since others hold fields: "+some(fates.Holders(err)), "",
			"Take them over: kubectl bind konnector manifests --image IMAGE | kubectl apply --server-side --force-conflicts -f -")
		return
	}
	if level := u.GetLabels()[enforceLabel]; err == nil && u.GetKind() == "Namespace" && level != "" {
		d.note("fields", about, "", "its label "+enforceLabel+" becomes "+level+", which refuses the pods of Klutch's konnector: on the way back, remove it", "")
	}
}

const enforceLabel = "pod-security.kubernetes.io/enforce"

// A forecast is what would become of the objects of one binding.
type forecast struct {
	*doctor
	binding  *v1alpha1.APIServiceBinding
	theirs   metadata.Interface // the Control Plane Cluster, as the tenant
	services map[string]string  // service namespaces, by namespace of this cluster
	tenant   string             // the tenant namespace
	wide     bool               // the API is cluster-scoped
}

func (d *doctor) foreseeBinding(ctx context.Context, b *v1alpha1.APIServiceBinding) {
	crd, err := cluster.Get[unstructured.Unstructured](ctx, d.app.Resource(cluster.CRDs), b.Name)
	wrong, well := cluster.Trouble(err), "there is none yet; this konnector makes it"
	if crd != nil {
		owner, marked := mark.Get(crd)
		referred := slices.ContainsFunc(crd.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == "APIServiceBinding" && o.UID == b.UID })
		well = "it is this binding's, and stays with its objects"
		if !referred && (!marked || owner.UID != b.UID) {
			wrong = "it has no owner reference to the binding, and no mark of this konnector: it would be left as it is, and the binding says ForeignCustomResourceDefinition"
		}
	}
	d.note("crd", b.Name, wrong, well, "If it is this platform's, give it the owner reference: kind APIServiceBinding, name "+b.Name+", uid "+string(b.UID)+", controller true.")
	role, err := cluster.Get[metav1.PartialObjectMetadata](ctx, d.app.Resource(cluster.ClusterRoles), permission.RoleName(b.Name))
	if wrong = cluster.Trouble(err); err == nil && role == nil {
		wrong = "this konnector has no rights on " + b.Name + ": its objects would wait"
	}
	d.note("rights", b.Name, wrong, "this konnector has its ClusterRole", "Run kubectl bind repair: it writes the rights.")
	f := &forecast{doctor: d, binding: b}
	if crd == nil || !f.reach(ctx) {
		return // of which other findings speak
	}
	scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope")
	f.wide = scope == string(v1alpha1.ClusterScope)
	f.objects(ctx)
	f.copies(ctx)
}

// reach opens the Control Plane Cluster, and reads where objects are there.
func (f *forecast) reach(ctx context.Context) bool {
	ref := f.binding.Spec.KubeconfigSecretRef
	u, err := cluster.Get[unstructured.Unstructured](ctx, f.app.Resource(cluster.Secrets).Namespace(ref.Namespace), ref.Name)
	if err != nil || u == nil {
		return false
	}
	k, err := cluster.ReadSecret(u)
	if err != nil {
		return false
	}
	config := k.RESTConfig()
	config.UserAgent, config.Timeout = cluster.FieldManager, cluster.CallTimeout
	if f.theirs, err = metadata.NewForConfig(config); err != nil {
		return false
	}
	client, err := cluster.TenantClient(k)
	if err != nil {
		return false
	}
	list, err := client.Resource(cluster.APIServiceNamespaces).Namespace(k.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		f.note("objects", f.binding.Name, cluster.Trouble(err), "", "")
		return false
	}
	f.services, f.tenant = map[string]string{}, k.Namespace
	for _, o := range list.Items {
		if service, _, _ := unstructured.NestedString(o.Object, "status", "namespace"); service != "" {
			f.services[o.GetName()] = service
		}
	}
	return true
}

// A tally has names of objects by what becomes of them.
type tally map[string][]string

func (t tally) add(outcome, namespace, name string) {
	t[outcome] = append(t[outcome], namespace+"/"+name)
}

// tell notes what becomes of objects of a resource; of the fates with a hint a person should know beforehand.
func (f *forecast) tell(check, resource string, t tally, hints map[string]string) {
	var lines, objects, advice []string
	for _, outcome := range slices.Sorted(maps.Keys(t)) {
		slices.Sort(t[outcome])
		for _, name := range t[outcome] {
			objects = append(objects, resource+" "+name+": "+outcome)
		}
		lines = append(lines, fmt.Sprintf("%d %s: %s", len(t[outcome]), outcome, some(t[outcome])))
		if hint := hints[outcome]; hint != "" {
			advice = append(advice, hint)
		}
	}
	if len(lines) == 0 {
		lines = []string{"there are none"}
	}
	message := resource + ": " + strings.Join(lines, "; ")
	f.found = append(f.found, Finding{
		Check: check, About: f.binding.Name, OK: len(advice) == 0, Message: message, Hint: strings.Join(unique(advice), " "), Objects: objects,
	})
}

// inert is what a shell takes as it is: a platform chooses names and UIDs.
var inert = regexp.MustCompile(`^[A-Za-z0-9./-]+$`)

// listed sets a variable of the commands in deploy/FROM-KLUTCH.md. What a shell could take for a
// command of its own is left out: no API server gives such a name.
func listed(variable string, objects []string) string {
	objects = slices.DeleteFunc(objects, func(o string) bool { return !inert.MatchString(o) })
	slices.Sort(objects)
	return variable + `="` + strings.Join(objects, " ") + `".`
}

// objects compares those here with what stands for them in the Control Plane Cluster.
func (f *forecast) objects(ctx context.Context) {
	crd, err := cluster.ReadCRD(ctx, f.app, f.binding.Name)
	resource, served := cluster.ServedResource(crd)
	if err != nil || !served {
		return
	}
	found, places, prefix := tally{}, f.services, ""
	if f.wide {
		places, prefix = map[string]string{metav1.NamespaceAll: metav1.NamespaceAll}, f.tenant+"-"
	}
	var unmarked, unclaimed []string
	for namespace, service := range places {
		here, there, ok := f.both(ctx, "objects", resource, namespace, service)
		if !ok {
			return
		}
		for name, source := range here {
			outcome := outcomeOfClaim(source, there[prefix+name], f.binding.Spec.MaxAdoptedObjects > 0)
			found.add(outcome, namespace, name)
			if outcome == outcomeUnmarked {
				unmarked = append(unmarked, strings.Join([]string{f.binding.Name, namespace, name, string(there[prefix+name].UID)}, "/"))
			}
		}
		for name, target := range there {
			name, is := strings.CutPrefix(name, prefix)
			if outcome := outcomeOfObject(target); is && here[name] == nil && outcome != "" {
				found.add(outcome, namespace, name)
				unclaimed = append(unclaimed, strings.Join([]string{f.binding.Name, service, target.Name}, "/"))
			}
		}
	}
	const byHand = " by the commands of deploy/FROM-KLUTCH.md, with "
	keep := "On a way back, have the platform delete these objects, or keep them" + byHand + listed("UNCLAIMED", unclaimed)
	f.tell("objects", resource.Resource, found, map[string]string{
		outcomeOthers:   "Each of these says so itself, in the annotation " + klutchsync.MessageAnnotation + ", and its object in the Control Plane Cluster stays.",
		outcomeUnmarked: "Have this konnector take up the objects" + byHand + listed("ADOPTED", unmarked),
		outcomeDeleted:  keep,
		outcomeReturned: keep,
		outcomeHeld:     "If the deletions are meant, release them as the messages say. What is to stay has to be gone from here before a way back: take the finalizer " + klutchsync.DefaultFinalizer + " off, while no konnector runs.",
		outcomeAnew:     "Ask the platform's operators what has become of them, before Klutch's konnector comes back.",
	})
}

// copies compares the originals of accepted claims with what has their names on the other side.
func (f *forecast) copies(ctx context.Context) {
	spec := &v1alpha1.APIServiceExportSpec{}
	if f.wide {
		spec.Scope, spec.ClusterScopedIsolation = v1alpha1.ClusterScope, v1alpha1.IsolationPrefixed
	}
	_, spec.Group, _ = strings.Cut(f.binding.Name, ".")
	judge, err := permission.NewJudge(ctx, func() discovery.DiscoveryInterfaceWithContext { return f.app.Discovery }, spec, f.binding.Spec.PermissionClaims)
	if err != nil {
		f.note("copies", f.binding.Name, cluster.Trouble(err), "", "")
		return
	}
	selected, problems, _ := judge.Select(f.binding.Spec.PermissionClaims)
	if len(problems) > 0 {
		f.note("claims", f.binding.Name, strings.Join(problems, " "), "", "")
	}
	for _, r := range selected {
		found := tally{}
		for namespace, service := range f.services {
			here, there, ok := f.both(ctx, "copies", r.Resource, namespace, service)
			if !ok {
				return
			}
			owner, originals, copies := v1alpha1.OwnerProvider, there, here
			if r.From == klutchsync.SourceSide {
				owner, originals, copies = v1alpha1.OwnerConsumer, here, there
			}
			for name, copied := range copies {
				if outcome := outcomeOfCopy(copied, owner, originals[name] != nil && chosen(r, namespace, name)); outcome != "" {
					found.add(outcome, namespace, name)
				}
			}
		}
		const hint = "ClaimsInSync of the binding says so, too. Delete or rename what has the name of an object that should arrive."
		f.tell("copies", r.Resource.Resource, found, map[string]string{outcomeOthers: hint, outcomeAlone: hint})
	}
}

// chosen tells whether a claim is about what has this name; what it refers to stands in objects.
func chosen(r klutchsync.Related, namespace, name string) bool {
	has := func(list []string, value string) bool {
		return slices.Contains(list, permission.AnyName) || slices.Contains(list, value)
	}
	return name != rootCA && (len(r.Names) == 0 && len(r.References) == 0 || has(r.Names, name)) && (len(r.Namespaces) == 0 || has(r.Namespaces, namespace))
}

// rootCA is the ConfigMap that every cluster keeps in each of its namespaces.
const rootCA = "kube-root-ca.crt"

// both lists the metadata of a resource in a namespace here and in its service namespace.
func (f *forecast) both(ctx context.Context, check string, resource schema.GroupVersionResource, namespace, service string) (here, there map[string]*metav1.PartialObjectMetadata, ok bool) {
	lists := [2]map[string]*metav1.PartialObjectMetadata{{}, {}}
	for n, from := range []metadata.ResourceInterface{f.meta.Resource(resource).Namespace(namespace), f.theirs.Resource(resource).Namespace(service)} {
		list, err := from.List(ctx, metav1.ListOptions{})
		if err != nil {
			f.note(check, f.binding.Name, fmt.Sprintf("%s of namespace %s: %s", resource.Resource, []string{namespace, service}[n], cluster.Trouble(err)), "", "")
			return nil, nil, false
		}
		for i := range list.Items {
			lists[n][list.Items[i].Name] = &list.Items[i]
		}
	}
	return lists[0], lists[1], true
}
