// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/identity"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// What everybody may do who is signed in, and what a tenant may do in its tenant
// namespace. It is written down here once more, so that no change of the shipped
// roles goes unnoticed.
var (
	everybodysRights = slices.Concat(
		rightsTo("create", "selfsubjectaccessreviews.authorization.k8s.io", "selfsubjectrulesreviews.authorization.k8s.io", "selfsubjectreviews.authentication.k8s.io"),
		// Names and schemas of all APIs, and no object: an operator who offers some of them alone should know it.
		rightsTo("get", "/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"),
		rightsTo("get", "/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"),
	)
	tenantsRights = slices.Concat(
		rightsTo("get list watch create delete", "apiserviceexportrequests.klutch.anynines.com", "apiservicenamespaces.klutch.anynines.com"),
		rightsTo("get list watch", "apiserviceexports.klutch.anynines.com", "clusterbindings.klutch.anynines.com"),
		rightsTo("get", "secrets:kubeconfig"),
		rightsTo("get patch update", "apiserviceexports/status.klutch.anynines.com", "clusterbindings/status.klutch.anynines.com"),
		rightsTo("get", "namespaces"),
		rightsTo("delete", "clusterbindings.klutch.anynines.com:cluster", "secrets:klutch-binder"),
	)
)

// rightsTo are all pairs of a verb and a resource.
func rightsTo(verbs string, resources ...string) (all []string) {
	for _, resource := range resources {
		for verb := range strings.FieldsSeq(verbs) {
			all = append(all, verb+" "+resource)
		}
	}
	return all
}

// A party is a tenant and what it should have.
type party struct {
	user, cluster string
	client        *tenantClient
	exports       sets.Set[string] // by plural: those that are in force
	withdrawn     sets.Set[string] // those that are not
	spaces        sets.Set[string] // by name in the App Cluster
	leaving       bool             // its own rights may be there or not
}

// owns tells whether a namespace is p's, or would be.
func (p *party) owns(namespace string) bool {
	return namespace == p.client.namespace || strings.HasPrefix(namespace, p.client.namespace+"-")
}

// should is what p may do in a namespace.
func (p *party) should(namespace string, claimed []string) sets.Set[string] {
	all := sets.New(everybodysRights...)
	space, isService := strings.CutPrefix(namespace, p.client.namespace+"-")
	switch {
	case namespace == p.client.namespace:
		all.Insert(tenantsRights...)
	case isService && p.spaces.Has(space) && p.exports.Len()+p.withdrawn.Len() > 0:
		all.Insert(rightsTo("get list watch", "secrets")...)
		for plural := range p.withdrawn {
			all.Insert(rightsTo("get list watch delete", plural+".example.org")...)
		}
		for plural := range p.exports {
			all.Insert(rightsTo("get list watch create update patch delete", plural+".example.org")...)
		}
		if p.exports.Has("gadgets") {
			all.Insert(claimed...)
		}
	}
	return all
}

// A matrix holds what tenants may do against what they should.
type matrix struct {
	w       *world
	parties []*party
	claimed []string // what gadgets claim beside Secrets
	cell    int      // the next of all cells to ask about one by one

	mu      sync.Mutex // guards clients of parties while intruders use them
	targets []string   // namespaces
	leaks   []string   // what intruders got
	asked   int
}

// namespaces are all there are.
func (m *matrix) namespaces(ctx context.Context) (names []string) {
	m.w.t.Helper()
	list, err := m.w.admin.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if ctx.Err() == nil && err != nil {
		m.w.t.Fatal(err)
	}
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names
}

// can is what the credential of p is good for in a namespace, as the API server says.
func (p *party) can(ctx context.Context, namespace string) (sets.Set[string], error) {
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	got, err := p.client.kube.AuthorizationV1().SelfSubjectRulesReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	all := sets.New[string]()
	for _, rule := range got.Status.ResourceRules {
		for _, resource := range rule.Resources {
			for _, group := range rule.APIGroups {
				name := schema.GroupResource{Group: group, Resource: resource}.String()
				for _, only := range append(slices.Clone(rule.ResourceNames), "")[:max(1, len(rule.ResourceNames))] {
					all.Insert(rightsTo(strings.Join(rule.Verbs, " "), strings.TrimSuffix(name+":"+only, ":"))...)
				}
			}
		}
	}
	for _, rule := range got.Status.NonResourceRules {
		all.Insert(rightsTo(strings.Join(rule.Verbs, " "), rule.NonResourceURLs...)...)
	}
	if got.Status.Incomplete {
		all.Insert("incomplete: " + got.Status.EvaluationError)
	}
	return all, nil
}

// differences are what tenants may do and should not, and the other way round: in
// their own namespaces, and in those of all others.
func (m *matrix) differences(ctx context.Context) (own, foreign []string) {
	for _, namespace := range m.namespaces(ctx) {
		for _, p := range m.parties {
			can, err := p.can(ctx, namespace)
			should := p.should(namespace, m.claimed)
			switch {
			case apierrors.IsUnauthorized(err) && p.leaving:
				continue
			case err != nil:
				foreign = append(foreign, err.Error())
			case !p.owns(namespace):
				foreign = append(foreign, differ(p, namespace, can, should)...)
			case !p.leaving:
				own = append(own, differ(p, namespace, can, should)...)
			}
		}
	}
	return own, append(foreign, m.misplaced(ctx)...)
}

func differ(p *party, namespace string, can, should sets.Set[string]) (all []string) {
	for right := range can.Difference(should) {
		all = append(all, fmt.Sprintf("%s/%s may %s in %s", p.user, p.cluster, right, namespace))
	}
	for right := range should.Difference(can) {
		all = append(all, fmt.Sprintf("%s/%s may not %s in %s", p.user, p.cluster, right, namespace))
	}
	return all
}

// misplaced are bindings that name a tenant where they should not.
func (m *matrix) misplaced(ctx context.Context) (all []string) {
	clusterWide, err := m.w.admin.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, b := range clusterWide.Items {
		for _, s := range b.Subjects {
			if s.Name == v1alpha1.TenantServiceAccount || strings.HasPrefix(s.Namespace, "cluster-") || strings.Contains(s.Name, ":cluster-") ||
				strings.HasPrefix(s.Name, "system:serviceaccounts") && b.Labels["kubernetes.io/bootstrapping"] == "" {
				all = append(all, fmt.Sprintf("ClusterRoleBinding %s names %s", b.Name, s.Name))
			}
		}
	}
	local, err := m.w.admin.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return []string{err.Error()}
	}
	for _, b := range local.Items {
		for _, s := range b.Subjects {
			if b.Name == v1alpha1.BackendRoleBinding && s == identity.ServiceAccount("klutch-backend", "backend") {
				continue
			}
			if ours := strings.HasPrefix(b.Namespace, "cluster-"); (ours || s.Name == v1alpha1.TenantServiceAccount) &&
				(s.Name != v1alpha1.TenantServiceAccount || b.Namespace != s.Namespace && !strings.HasPrefix(b.Namespace, s.Namespace+"-")) {
				all = append(all, fmt.Sprintf("RoleBinding %s/%s names %s of %s", b.Namespace, b.Name, s.Name, s.Namespace))
			}
		}
	}
	return all
}

// holds waits until all tenants have exactly what they should. That one has something
// in a namespace of others is wrong at once.
func (m *matrix) holds() {
	t := m.w.t
	t.Helper()
	var own []string
	defer func() {
		if t.Failed() && len(own) > 0 {
			t.Logf("in their own namespaces:\n%s", strings.Join(own, "\n"))
		}
	}()
	m.w.eventually("rights", func(ctx context.Context) (bool, error) {
		now, foreign := m.differences(ctx)
		switch {
		case ctx.Err() != nil:
			return false, ctx.Err()
		case len(foreign) > 0:
			t.Fatalf("isolation is broken:\n%s", strings.Join(foreign, "\n"))
		}
		own = now
		return len(own) == 0, nil
	})
	m.reviews(450)
	m.work()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.targets = m.namespaces(m.w.t.Context())
	if len(m.leaks) > 0 {
		t.Fatalf("intruders got through:\n%s", strings.Join(m.leaks, "\n"))
	}
}

// A cell is one question: may a tenant do that, in all namespaces if none is named.
type cell struct{ namespace, verb, resource string }

var (
	reviewedVerbs     = strings.Fields("get list watch create update patch delete deletecollection impersonate bind escalate")
	reviewedResources = strings.Fields("secrets configmaps pods serviceaccounts serviceaccounts/token namespaces events resourcequotas widgets.example.org gadgets.example.org gizmos.example.org " +
		"apiserviceexports.klutch.anynines.com apiserviceexportrequests.klutch.anynines.com clusterbindings.klutch.anynines.com apiservicenamespaces.klutch.anynines.com " +
		"apiserviceexporttemplates.klutch.anynines.com roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io clusterrolebindings.rbac.authorization.k8s.io leases.coordination.k8s.io")
)

// reviews asks about the next n cells, every other one as the tenant itself and the
// rest about its name.
func (m *matrix) reviews(n int) {
	m.w.t.Helper()
	namespaces := append(m.namespaces(m.w.t.Context()), "")
	wrong := make([]string, n)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for k := worker; k < n; k += 4 {
				i := m.cell + k
				verb, i := reviewedVerbs[i%len(reviewedVerbs)], i/len(reviewedVerbs)
				resource, i := reviewedResources[i%len(reviewedResources)], i/len(reviewedResources)
				p, i := m.parties[i%len(m.parties)], i/len(m.parties)
				wrong[k] = m.review(p, cell{namespaces[i%len(namespaces)], verb, resource}, k%2 == 0)
			}
		})
	}
	wg.Wait()
	m.cell += n
	if wrong = slices.DeleteFunc(wrong, func(s string) bool { return s == "" }); len(wrong) > 0 {
		m.w.t.Fatal(strings.Join(wrong, "\n"))
	}
}

// review says what is wrong about a cell, if anything is.
func (m *matrix) review(p *party, c cell, asItself bool) string {
	if p.leaving && p.owns(c.namespace) {
		return ""
	}
	resource, group, _ := strings.Cut(c.resource, ".")
	resource, sub, _ := strings.Cut(resource, "/")
	attributes := &authorizationv1.ResourceAttributes{Namespace: c.namespace, Verb: c.verb, Group: group, Resource: resource, Subresource: sub}
	ask := m.askAbout
	if asItself {
		ask = askAs
	}
	allowed, err := ask(m.w.t.Context(), p.client, attributes)
	should := c.namespace != "" && p.should(c.namespace, m.claimed).Has(c.verb+" "+c.resource)
	switch {
	case apierrors.IsUnauthorized(err) && p.leaving:
		return ""
	case err != nil:
		return err.Error()
	case allowed != should:
		return fmt.Sprintf("%s/%s: %+v: allowed %t, want %t (as itself: %t)", p.user, p.cluster, c, allowed, should, asItself)
	}
	return ""
}

func askAs(ctx context.Context, c *tenantClient, attributes *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
	got, err := c.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && got.Status.Allowed, err
}

func (m *matrix) askAbout(ctx context.Context, c *tenantClient, attributes *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + c.namespace + ":" + v1alpha1.TenantServiceAccount,
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + c.namespace, "system:authenticated"},
		ResourceAttributes: attributes,
	}}
	got, err := m.w.admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && got.Status.Allowed, err
}

// work has each tenant use what it has.
func (m *matrix) work() {
	t := m.w.t
	t.Helper()
	for _, p := range m.parties {
		for plural := range p.exports {
			for space := range p.spaces {
				if p.leaving {
					continue
				}
				objects := p.client.dyn.Resource(widgets.GroupVersion().WithResource(plural)).Namespace(p.client.namespace + "-" + space)
				if _, err := objects.List(t.Context(), metav1.ListOptions{}); err != nil {
					t.Fatalf("%s/%s lists its own: %v", p.user, p.cluster, err)
				}
			}
		}
	}
}

// attempts are what a tenant tries in a namespace that is not its own; with an empty
// namespace, in all of them. Each has to be forbidden.
var attempts = []func(ctx context.Context, c *tenantClient, namespace string) error{
	lists(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}),
	lists(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}),
	lists(widgets), lists(widgets.GroupVersion().WithResource("gadgets")),
	lists(tenant.ExportResource), lists(tenant.RequestResource), lists(tenant.NamespaceResource), lists(tenant.ClusterBindingResource),
	lists(rbacv1.SchemeGroupVersion.WithResource("roles")),
	func(ctx context.Context, c *tenantClient, namespace string) error {
		_, err := c.kube.CoreV1().Secrets(namespace).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
		return err
	},
	func(ctx context.Context, c *tenantClient, namespace string) error {
		w, err := c.dyn.Resource(widgets).Namespace(namespace).Watch(ctx, metav1.ListOptions{})
		if err == nil {
			w.Stop()
		}
		return err
	},
	func(ctx context.Context, c *tenantClient, namespace string) error {
		return c.dyn.Resource(widgets).Namespace(namespace).Delete(ctx, "w", metav1.DeleteOptions{})
	},
	func(ctx context.Context, c *tenantClient, namespace string) error {
		return c.dyn.Resource(tenant.ClusterBindingResource).Namespace(namespace).Delete(ctx, v1alpha1.ClusterBindingName, metav1.DeleteOptions{})
	},
	func(ctx context.Context, c *tenantClient, namespace string) error {
		return c.kube.CoreV1().Secrets(namespace).Delete(ctx, v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{})
	},
	makes(widgets, "{apiVersion: example.org/v1, kind: Widget, metadata: {name: intruder}}"),
	makes(tenant.RequestResource, "{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceExportRequest, metadata: {name: intruder}, spec: {resources: [{group: example.org, resource: widgets}]}}"),
	makes(tenant.NamespaceResource, "{apiVersion: klutch.anynines.com/v1alpha1, kind: APIServiceNamespace, metadata: {name: intruder}}"),
	makes(rbacv1.SchemeGroupVersion.WithResource("rolebindings"), "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: intruder}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}}"),
	func(ctx context.Context, c *tenantClient, namespace string) error {
		config := rest.CopyConfig(c.config)
		config.Impersonate.UserName = "system:serviceaccount:" + namespace + ":" + v1alpha1.TenantServiceAccount
		_, err := must(dynamic.NewForConfig(config)).Resource(widgets).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err
	},
}

func lists(gvr schema.GroupVersionResource) func(context.Context, *tenantClient, string) error {
	return func(ctx context.Context, c *tenantClient, namespace string) error {
		_, err := c.dyn.Resource(gvr).Namespace(namespace).List(ctx, metav1.ListOptions{})
		return err
	}
}

func makes(gvr schema.GroupVersionResource, text string) func(context.Context, *tenantClient, string) error {
	return func(ctx context.Context, c *tenantClient, namespace string) error {
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		_, err := c.dyn.Resource(gvr).Namespace(namespace).Create(ctx, object(text), metav1.CreateOptions{})
		return err
	}
}

// intrude tries all attempts for all tenants and foreign namespaces, over and over,
// until ctx is done.
func (m *matrix) intrude(ctx context.Context) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-pace.C:
		}
		m.mu.Lock()
		targets, p := append(slices.Clone(m.targets), ""), m.parties[i%len(m.parties)]
		client := p.client
		m.mu.Unlock()
		attempt := i / len(m.parties)
		namespace := targets[attempt/len(attempts)%len(targets)]
		if (&party{client: client}).owns(namespace) {
			continue
		}
		err := attempts[attempt%len(attempts)](ctx, client, namespace)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		m.asked++
		if !busy(err) && !apierrors.IsUnauthorized(err) && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), " cannot ")) {
			m.leaks = append(m.leaks, fmt.Sprintf("%s/%s, attempt %d in %q: %v", p.user, p.cluster, attempt%len(attempts), namespace, err))
		}
		m.mu.Unlock()
	}
}

// busy tells whether a server has not got as far as to allow or forbid anything.
func busy(err error) bool {
	status, answered := errors.AsType[*apierrors.StatusError](err)
	return err != nil && (!answered || status.ErrStatus.Code >= 500 || apierrors.IsTooManyRequests(err))
}

// login gives a party a new credential, after its choice of services.
func (m *matrix) login(p *party, plurals ...string) {
	m.w.t.Helper()
	var services []string
	for _, plural := range plurals {
		services = append(services, plural+".example.org")
	}
	client := m.w.tenant(p.user, p.cluster, services...)
	m.mu.Lock()
	defer m.mu.Unlock()
	p.client = client
}

// binds has a party choose services and ask for them.
func (m *matrix) binds(p *party, plurals ...string) {
	m.w.t.Helper()
	m.login(p, plurals...)
	for _, plural := range plurals {
		got := p.client.request(plural, plural+".example.org")
		if got.Status.Phase != v1alpha1.RequestSucceeded {
			m.w.t.Fatalf("request: %+v", got.Status)
		}
		p.exports.Insert(plural)
	}
}

func (m *matrix) asks(p *party, space string) {
	m.w.t.Helper()
	p.client.mirror(space)
	p.spaces.Insert(space)
}

// TestP12IsolationMatrix: three tenants, two of one identity, while much changes. After
// each change the rights of all are exactly what they should be, in all namespaces; and
// all the time each of them tries to get at what is not its own.
func TestP12IsolationMatrix(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{ReviewInterval: time.Second})
	w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: offer-configmaps, labels: {klutch.anynines.com/aggregate-to-backend: "true"}},
		rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, update, patch, delete]}]}`))
	m := &matrix{w: w}
	newParty := func(user, clusterID string) *party {
		p := &party{user: user, cluster: clusterID, exports: sets.New[string](), withdrawn: sets.New[string](), spaces: sets.New[string]()}
		m.login(p, "widgets")
		m.parties = append(m.parties, p)
		return p
	}
	ada, grace, second := newParty("ada", "c1"), newParty("grace", "c1"), newParty("ada", "c2")
	var intruders sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	intruders.Go(func() { m.intrude(ctx) })
	defer intruders.Wait()
	defer stop()
	var removed, revoked *tenantClient
	for i, step := range []struct {
		name   string
		change func()
	}{
		{"tenants without anything", func() {}},
		{"an export, and a service namespace", func() { m.binds(ada, "widgets"); m.asks(ada, "team-a") }},
		{"the same of another identity", func() { m.binds(grace, "gadgets"); m.asks(grace, "team-a") }},
		{"the same of another App Cluster", func() { m.binds(second, "widgets", "gadgets"); m.asks(second, "team-a") }},
		{"what the provider makes", func() { m.provides() }},
		{"one more service namespace", func() { m.asks(ada, "team-b") }},
		{"one more export", func() { m.binds(grace, "widgets") }},
		{"an offer is withdrawn", func() { m.withdraw("widgets") }},
		{"a tenant says that it is not", func() { forge(w.t, second.client, "widgets.example.org") }},
		{"the offer is back", func() { m.offerAgain("widgets", ada, grace, second) }},
		{"claims are widened", func() { m.claim("configmaps") }},
		{"claims are narrowed", func() { m.claim() }},
		{"a service namespace is given back", func() { m.gives(second, "team-a") }},
		{"a tenant is removed", func() {
			grace.leaving, removed = true, grace.client
			removed.remove(w.t, v1alpha1.DeletionPolicyDelete)
		}},
		{"a credential is revoked", func() { revoked = ada.client; m.revoke(ada) }},
		{"others go on", func() { m.asks(ada, "team-c"); m.asks(second, "team-b") }},
		{"a right of people is taken", func() { m.permit("widgets"); ada.loses("gadgets"); second.loses("gadgets") }},
		{"and given again", func() { m.permit("widgets", "gadgets"); second.regains("gadgets") }},
		{"the tenant is gone", func() { removed.isGone(removed.namespace + "-team-a"); removed.isGone(removed.namespace) }},
		{"and is made anew", func() {
			grace.leaving, grace.exports, grace.withdrawn, grace.spaces = false, sets.New[string](), sets.New[string](), sets.New[string]()
			m.login(grace, "widgets")
			m.asks(grace, "team-a")
		}},
		{"with an export", func() { m.binds(grace, "gadgets") }},
		{"and the service namespace too", func() { m.asks(second, "team-a") }},
		{"old credentials are dead", func() { removed.isDead(); revoked.isDead() }},
	} {
		ok := t.Run(fmt.Sprintf("%02d %s", i, step.name), func(t *testing.T) {
			w.t = t
			step.change()
			m.holds()
		})
		if !ok {
			return
		}
	}
	w.t = t
	stop()
	intruders.Wait()
	if all := len(reviewedVerbs) * len(reviewedResources) * len(m.parties) * len(m.namespaces(m.w.t.Context())); m.asked < 500 || m.cell < all {
		t.Errorf("only %d attempts, and %d of %d reviews", m.asked, m.cell, all)
	}
	m.finds(ada, grace)
}

// provides puts what only its owner may read into each service namespace.
func (m *matrix) provides() {
	for _, p := range m.parties {
		for space := range p.spaces {
			namespace := p.client.namespace + "-" + space
			m.w.apply(object("{apiVersion: v1, kind: Secret, metadata: {name: kubeconfig, namespace: "+namespace+"}, stringData: {password: canary}}"),
				object("{apiVersion: example.org/v1, kind: Widget, metadata: {name: w, namespace: "+namespace+"}}"))
		}
	}
}

func (m *matrix) withdraw(plural string) {
	m.w.t.Helper()
	if err := m.w.dyn.Resource(templateResource).Namespace("default").Delete(m.w.t.Context(), plural, metav1.DeleteOptions{}); err != nil {
		m.w.t.Fatal(err)
	}
	for _, p := range m.parties {
		p.loses(plural)
	}
}

// loses is what becomes of an export that is withdrawn.
func (p *party) loses(plural string) {
	if p.exports.Has(plural) {
		p.exports.Delete(plural)
		p.withdrawn.Insert(plural)
	}
}

// regains takes it back.
func (p *party) regains(plural string) {
	p.exports.Insert(plural)
	p.withdrawn.Delete(plural)
}

func (m *matrix) offerAgain(plural string, parties ...*party) {
	m.w.apply(templateOf(plural))
	for _, p := range parties {
		p.regains(plural)
	}
}

// claim lets gadgets claim resources of the App Cluster beside Secrets.
func (m *matrix) claim(resources ...string) {
	claims := []any{map[string]any{"resource": "secrets", "version": "v1", "required": true}}
	m.claimed = nil
	for _, resource := range resources {
		claims = append(claims, map[string]any{"resource": resource, "version": "v1", "required": false, "selector": map[string]any{"owner": "Consumer"}})
		m.claimed = append(m.claimed, rightsTo("get list watch create update patch delete", resource)...)
	}
	m.w.apply(changed(templateOf("gadgets"), claims, "spec", "permissionClaims"))
}

// gives has a party let go of a service namespace.
func (m *matrix) gives(p *party, space string) {
	m.w.t.Helper()
	namespace := p.client.namespace + "-" + space
	if err := p.client.dyn.Resource(widgets).Namespace(namespace).Delete(m.w.t.Context(), "w", metav1.DeleteOptions{}); err != nil {
		m.w.t.Fatal(err)
	}
	if err := p.client.dyn.Resource(tenant.NamespaceResource).Namespace(p.client.namespace).Delete(m.w.t.Context(), space, metav1.DeleteOptions{}); err != nil {
		m.w.t.Fatal(err)
	}
	p.spaces.Delete(space)
}

// permit is what people may bind.
func (m *matrix) permit(templates ...string) {
	m.w.apply(object(`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: developer}, rules: [
		{apiGroups: [klutch.anynines.com], resources: [apiserviceexporttemplates], resourceNames: [` + strings.Join(templates, ", ") + `], verbs: [bind]}]}`))
}

// revoke takes the credential of a tenant, which gets another one at its next login.
func (m *matrix) revoke(p *party) {
	m.w.t.Helper()
	if err := m.w.admin.CoreV1().Secrets(p.client.namespace).Delete(m.w.t.Context(), v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{}); err != nil {
		m.w.t.Fatal(err)
	}
	m.login(p, "widgets")
}

// isDead waits until the credential of c is good for nothing.
func (c *tenantClient) isDead() {
	c.w.t.Helper()
	c.w.eventually("the credential is refused", func(ctx context.Context) (bool, error) {
		_, err := c.kube.CoreV1().Namespaces().Get(ctx, c.namespace, metav1.GetOptions{})
		return apierrors.IsUnauthorized(err), nil
	})
}

// forge has a tenant write into the status of its export that it is on offer: it may
// write there, so nothing may depend on it.
func forge(t *testing.T, c *tenantClient, service string) {
	t.Helper()
	exports := c.dyn.Resource(tenant.ExportResource).Namespace(c.namespace)
	for range 20 {
		_, err := exports.Patch(t.Context(), service, types.MergePatchType, []byte(`{"status":{"conditions":[]}}`), metav1.PatchOptions{}, "status")
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.allowed(t.Context(), c.namespace+"-team-a", "create", "example.org", "widgets", "")
		if err != nil || got {
			t.Fatalf("a tenant gave itself a right: %t %v", got, err)
		}
	}
}

// finds sees to it that the matrix finds what an operator might do by mistake.
func (m *matrix) finds(ada, grace *party) {
	t := m.w.t
	t.Helper()
	subject := "subjects: [{kind: ServiceAccount, name: klutch-binder, namespace: " + grace.client.namespace + "}]"
	foreign, own := ada.client.namespace+"-team-a", grace.client.namespace+"-team-a"
	for name, mistake := range map[string]*unstructured.Unstructured{
		"cluster role binding": object("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: mistake}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, " + subject + "}"),
		"of all accounts": object("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: mistake}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}," +
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:authenticated'}]}"),
		"role binding in another's namespace": object("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: mistake, namespace: " + foreign + "}," +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: klutch-binder}, " + subject + "}"),
		"more in its own": object("{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: mistake, namespace: " + own + "}," +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, " + subject + "}"),
	} {
		gvr := rbacv1.SchemeGroupVersion.WithResource(strings.ToLower(mistake.GetKind()) + "s")
		m.w.apply(mistake)
		m.w.eventually(name+" is found", func(ctx context.Context) (bool, error) {
			own, foreign := m.differences(ctx)
			return len(own)+len(foreign) > 0, nil
		})
		if err := m.w.dyn.Resource(gvr).Namespace(mistake.GetNamespace()).Delete(t.Context(), "mistake", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		m.w.eventually("it is gone", func(ctx context.Context) (bool, error) {
			own, foreign := m.differences(ctx)
			return len(own)+len(foreign) == 0, nil
		})
	}
}
