// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/internal/text"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	usualHeartbeat = 5 * time.Minute // of a konnector that has not said how often
	tokenSoon      = 5 * time.Minute // by then a konnector has fetched the next one
)

// Check does what Doctor of package bind says.
func Check(ctx context.Context, config *rest.Config, now time.Time) []Finding {
	d, all, ok := open(ctx, config, now)
	if !ok {
		return d.found
	}
	if offers := d.checkTemplates(ctx); offers && len(all) == 0 {
		return d.found // a Control Plane Cluster needs no konnector
	}
	d.checkRights(ctx)
	d.checkKonnector(ctx)
	d.checkLocks(ctx)
	d.checkSecrets(ctx, all)
	for _, b := range all {
		d.checkBinding(ctx, &b)
	}
	return d.found
}

// open looks for the App Cluster and its bindings.
func open(ctx context.Context, config *rest.Config, now time.Time) (d *doctor, all []v1alpha1.APIServiceBinding, ok bool) {
	d = newDoctor(now)
	var err error
	if d.app, err = cluster.OpenApp(ctx, config); err == nil {
		all, err = d.app.List(ctx)
	}
	if err == nil {
		d.meta, err = metadata.NewForConfig(config)
	}
	d.note("app-cluster", config.Host, cluster.Trouble(err), "it answers", ofAppCluster(err))
	return d, all, err == nil
}

// checkSecrets looks at each kubeconfig that bindings use. All are looked at at once, so that
// platforms that hang keep a person waiting no longer than one does.
func (d *doctor) checkSecrets(ctx context.Context, all []v1alpha1.APIServiceBinding) {
	looks := map[v1alpha1.ClusterSecretKeyRef]*doctor{}
	var order []*doctor
	var answers sync.WaitGroup
	for _, b := range all {
		ref := b.Spec.KubeconfigSecretRef
		if looks[ref] != nil {
			continue
		}
		look := newDoctor(d.now)
		look.app, look.silent = d.app, d.silent
		looks[ref], order = look, append(order, look)
		answers.Go(func() { look.checkSecret(ctx, ref.Namespace+"/"+ref.Name, ref.Namespace, ref.Name) })
	}
	answers.Wait()
	for _, look := range order {
		d.found = append(d.found, look.found...)
	}
	for _, b := range all {
		ref := b.Spec.KubeconfigSecretRef
		look, about := looks[ref], ref.Namespace+"/"+ref.Name
		d.nameless[b.Name], d.unheard[b.Name], d.unreached[b.Name] = look.nameless[about], look.unheard[about], look.unreached[about]
	}
}

// checkRights asks whether the person may bind.
func (d *doctor) checkRights(ctx context.Context) {
	var missing []string
	for r, namespace := range map[schema.GroupVersionResource]string{
		cluster.NamespacesResource: "", cluster.CRDs: "", cluster.ClusterRoles: "", cluster.Policies: "", cluster.PolicyBindings: "", cluster.Secrets: v1alpha1.Namespace, cluster.APIServiceBindings: v1alpha1.Namespace,
	} {
		allowed, err := cluster.May(ctx, d.app, authorizationv1.ResourceAttributes{Verb: "create", Group: r.Group, Resource: r.Resource, Namespace: namespace})
		if err != nil {
			d.note("rights", "", cluster.Explain(err), "", "")
			return
		}
		if !allowed {
			missing = append(missing, r.Resource)
		}
	}
	wrong := ""
	if len(missing) > 0 {
		slices.Sort(missing)
		wrong = "you may not create " + strings.Join(missing, ", ")
	}
	d.note("rights", "", wrong, "you may bind APIs", "An administrator of this cluster can bind APIs, or give you the rights.")
}

// checkKonnector looks at its Lease: who holds it works.
func (d *doctor) checkKonnector(ctx context.Context) {
	holder, wrong := Konnector(ctx, d.app, d.now)
	d.silent = Silent(holder, wrong)
	d.note("konnector", holder, wrong, "it works", "Look why it does not run: kubectl -n "+v1alpha1.Namespace+" get pods. To install it: kubectl bind konnector install --help")
}

// checkSecret looks at a kubeconfig, and with it at the Control Plane Cluster.
func (d *doctor) checkSecret(ctx context.Context, about, namespace, name string) {
	u, err := cluster.Get[unstructured.Unstructured](ctx, d.app.Resource(cluster.Secrets).Namespace(namespace), name)
	d.nameless[about] = u == nil || cluster.Backend(u) == ""
	wrong, k, hint := cluster.Trouble(err), &kubeconfig.Kubeconfig{}, cluster.Repair(u)+": it writes a good one."
	switch {
	case err == nil && u == nil:
		wrong = "it is not there"
	case err == nil:
		if k, err = cluster.ReadSecret(u); err != nil {
			wrong = cluster.Explain(err)
		}
	}
	if d.note("secret", about, wrong, "it is clean", hint); wrong != "" {
		return
	}
	d.checkToken(about, k.Token)
	d.checkTenant(ctx, about, k)
}

// checkToken tells how long a token is good, where it says so.
func (d *doctor) checkToken(about, raw string) {
	ends := cluster.ReadToken(raw).Ends()
	if ends.IsZero() {
		return
	}
	wrong, left := "", -d.age(ends)
	if left < tokenSoon {
		wrong = fmt.Sprintf("it ends in %s", left)
	}
	d.note("token", about, wrong, fmt.Sprintf("it is good for %s", left), "The konnector should have the next one by now: look at the other checks. Or run kubectl bind repair.")
}

// tenantTimeout is how long a Control Plane Cluster may take to answer: a person waits.
const tenantTimeout = 10 * time.Second

// checkTenant reads the ClusterBinding, as the konnector does.
func (d *doctor) checkTenant(ctx context.Context, about string, k *kubeconfig.Kubeconfig) {
	ctx, cancel := context.WithTimeout(ctx, tenantTimeout)
	defer cancel()
	client, err := cluster.TenantClient(k)
	b := &v1alpha1.ClusterBinding{}
	if err == nil {
		b, err = cluster.Get[v1alpha1.ClusterBinding](ctx, client.Resource(cluster.ClusterBindings).Namespace(k.Namespace), v1alpha1.ClusterBindingName)
	}
	wrong := cluster.Trouble(err)
	switch {
	case fates.Is(err, fates.Unauthorized):
		wrong = "it does not accept the token: a later login, kubectl bind unbind or the platform has ended it, or the platform has removed this cluster's tenant"
	case err == nil && b == nil:
		wrong = "there is no ClusterBinding: the platform has removed this cluster's tenant"
	case err == nil && b.DeletionTimestamp != nil:
		wrong = "the platform removes this cluster's tenant: its ClusterBinding is being deleted"
	}
	d.unreached[about] = wrong != ""
	if d.note("control-plane", about, wrong, k.Server+" answers", ofControlPlane(k.Server, err, b)); wrong != "" {
		return
	}
	d.unheard[about] = b.Status.LastHeartbeatTime != nil && cluster.AwaitedBy(b) != ""
	wrong = late(b, d)
	d.note("heartbeat", about, wrong, "it is on time", ofHeartbeat(d.unheard[about], wrong))
}

// late says what is wrong with the last heartbeat; empty if nothing. Of a konnector that is silent
// none is on time.
func late(b *v1alpha1.ClusterBinding, d *doctor) string {
	interval := usualHeartbeat
	if every := b.Status.HeartbeatInterval; every != nil {
		interval = every.Duration
	}
	switch last, awaited := b.Status.LastHeartbeatTime, cluster.AwaitedBy(b); {
	case last == nil:
		return "there has been none yet"
	case awaited != "":
		return awaited
	case d.silent:
		return fmt.Sprintf("the last one is %s old, and no konnector writes the next", d.age(last.Time))
	case d.age(last.Time) > 2*interval:
		return fmt.Sprintf("the last one is %s old", d.age(last.Time))
	case d.age(last.Time) < -interval:
		return fmt.Sprintf("the last one is %s ahead of the clock here", -d.age(last.Time))
	}
	return ""
}

func (d *doctor) checkBinding(ctx context.Context, b *v1alpha1.APIServiceBinding) {
	wrong, well, hint := "", "it is ready", ofBinding(b)
	switch {
	case !cluster.IsReady(b):
		wrong = "it is not ready" + cluster.WaitingFor(b)
	case d.unheard[b.Name]:
		wrong, hint = "it was ready when another konnector said so", "See the check heartbeat."
	case warning(b) != "":
		wrong = "it is ready, with a warning: " + warning(b)
	case d.silent:
		well = "it was ready when the konnector said so last"
	}
	d.note("binding", b.Name, wrong, well, hint)
	if c := v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionClaimsInSync); c != nil && c.Reason != "" {
		d.note("claims", b.Name, c.Message, "", ofClaims(b, c.Reason))
	}
	d.checkKind(ctx, b)
	d.checkGrants(ctx, b)
	crd, err := cluster.ReadCRD(ctx, d.app, b.Name)
	resource, served := cluster.ServedResource(crd)
	if err != nil || !served {
		return // of which the binding speaks
	}
	d.checkObjects(ctx, b, resource)
}

// warning is what a binding that is ready warns of, but for its claims and its objects, which have checks of their own.
func warning(b *v1alpha1.APIServiceBinding) string {
	others := []string{v1alpha1.ConditionClaimsInSync, v1alpha1.ConditionObjectsSynced, v1alpha1.ConditionObjectsAdopted}
	return strings.TrimPrefix(cluster.Because(slices.DeleteFunc(slices.Clone(b.Status.Conditions), func(c v1alpha1.Condition) bool {
		return c.Severity != v1alpha1.SeverityWarning || slices.Contains(others, c.Type)
	})), ": ")
}

// checkObjects names the objects that are not in step, the oldest first.
func (d *doctor) checkObjects(ctx context.Context, b *v1alpha1.APIServiceBinding, resource schema.GroupVersionResource) {
	found, err := behind.Look(ctx, behind.Cluster{Objects: d.meta, Events: d.app}, b, resource, d.now)
	var named []string
	for _, o := range found.Behind[:min(len(found.Behind), mostNamed)] {
		named = append(named, fmt.Sprintf("%s for %s: %s: %s", cache.NewObjectName(o.Namespace, o.Name), d.age(o.Since), o.Reason, text.Clip(o.Message, longestNamed)))
	}
	wrong := strings.Join(named, "; ")
	if more := len(found.Behind) - mostNamed; more > 0 {
		wrong += fmt.Sprintf("; and %d more", more)
	}
	well := "all are in step"
	if d.silent || d.unheard[b.Name] || d.unreached[b.Name] || stopped(b) {
		well = "none says that it is not in step; whether all are in step is not known now"
	} else if found.Cut {
		well = "those that were looked at are in step; there are more"
	}
	d.note("objects", b.Name, cmp.Or(wrong, cluster.Trouble(err)), well, ofObjects(b, found.Behind))
}

// stopped reports whether a binding says that its objects are not looked at.
func stopped(b *v1alpha1.APIServiceBinding) bool {
	return slices.ContainsFunc(b.Status.Conditions, func(c v1alpha1.Condition) bool {
		decides := []string{v1alpha1.ConditionSecretValid, v1alpha1.ConditionConnected, v1alpha1.ConditionInformersSynced}
		return c.Status != metav1.ConditionTrue && slices.Contains(decides, c.Type)
	})
}

// longestNamed is that of what keeps one object from being in step.
const longestNamed = 300
