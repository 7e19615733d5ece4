// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/klutch-go/sdk/internal/fates"
	"github.com/klutch-go/sdk/internal/identity"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// The verbs of tenants: on resources that they read, on resources that they write, and on withdrawn APIs.
var (
	readVerbs  = []string{"get", "list", "watch"}
	writeVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
	DrainVerbs = []string{"get", "list", "watch", "delete"}
)

// settling is how long a right may take to come into force.
const settling = 10 * time.Second

// Rights are what tenants, and the backend itself, may do in the namespaces of tenants.
type Rights struct {
	Clients

	self atomic.Pointer[rbacv1.Subject] // the backend; nil while it is not known
}

// newRights is for what needs rights that the backend has got a moment ago.
var newRights = wait.Backoff{Steps: 8, Duration: 10 * time.Millisecond, Factor: 2}

// Rules are the rights of a tenant in its service namespaces: to write what is
// exported to it, to read what the exports claim for the provider, and to write
// what they claim for the App Cluster. Of what is withdrawn nothing can be made or
// changed any more, but what there is can be deleted to the end: an App Cluster lets
// go of an object only when it has seen that its target is gone. One rule a resource,
// in order.
func Rules(exports []*v1alpha1.APIServiceExport, withdrawn ...*v1alpha1.APIServiceExport) []rbacv1.PolicyRule {
	verbs := map[schema.GroupResource][]string{}
	grant := func(r v1alpha1.GroupResource, wanted, most []string) {
		if len(wanted) > len(most) {
			wanted = most
		}
		if key := schema.GroupResource(r); len(wanted) > len(verbs[key]) { // each list has all verbs of the shorter ones
			verbs[key] = wanted
		}
	}
	for i, export := range slices.Concat(exports, withdrawn) {
		most := writeVerbs
		if i >= len(exports) {
			most = DrainVerbs
		}
		if !IsPrefixed(export) { // else a ClusterRoleBinding does
			grant(v1alpha1.GroupResource{Group: export.Spec.Group, Resource: export.Spec.Names.Plural}, writeVerbs, most)
		}
		for _, claim := range export.Spec.PermissionClaims {
			grant(claim.GroupResource, claimVerbs(claim), most)
		}
	}
	granted := make([]rbacv1.PolicyRule, 0, len(verbs))
	for r, v := range verbs {
		granted = append(granted, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: v})
	}
	slices.SortFunc(granted, func(a, b rbacv1.PolicyRule) int { return strings.Compare(ruleName(a), ruleName(b)) })
	return granted
}

func claimVerbs(claim v1alpha1.PermissionClaim) []string {
	if claim.Selector.Owner == v1alpha1.OwnerConsumer {
		return writeVerbs
	}
	return readVerbs
}

func ruleName(rule rbacv1.PolicyRule) string {
	return schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}.String()
}

// A rightError says that the backend may not pass on a right.
type rightError struct {
	rule    rbacv1.PolicyRule
	refused error // by an API server, which was to pass it on; may be nil
}

func (m *rightError) Error() string {
	return fmt.Sprintf("the backend may not pass on %s on %s: the platform operator has to give it a ClusterRole with this rule and the label %s: \"true\"",
		strings.Join(m.rule.Verbs, ", "), ruleName(m.rule), v1alpha1.AggregateToBackendLabel)
}

func (m *rightError) Unwrap() error { return m.refused }

// Check returns a *rightError if rules are more than the rights on offer to tenants,
// without which the API server refuses to let the backend pass them on, and the rights that are on offer.
func (r *Rights) Check(ctx context.Context, rules []rbacv1.PolicyRule) (held []rbacv1.PolicyRule, err error) {
	offer, err := r.Kube.RbacV1().ClusterRoles().Get(ctx, v1alpha1.BackendOfferRole, metav1.GetOptions{})
	if err != nil {
		return nil, roleless(fmt.Errorf("read what tenants may get: %w", err))
	}
	for _, rule := range rules {
		has, lacking := rule, rule
		has.Verbs, lacking.Verbs = nil, nil
		for _, verb := range rule.Verbs {
			if offers(offer, verb, rule) {
				has.Verbs = append(has.Verbs, verb)
			} else {
				lacking.Verbs = append(lacking.Verbs, verb)
			}
		}
		if len(has.Verbs) > 0 {
			held = append(held, has)
		}
		if len(lacking.Verbs) > 0 && err == nil {
			err = &rightError{rule: lacking}
		}
	}
	return held, err
}

// offers tells whether a rule of role gives verb on the resource of wanted, whatever
// the names of the objects.
func offers(role *rbacv1.ClusterRole, verb string, wanted rbacv1.PolicyRule) bool {
	return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return len(rule.ResourceNames) == 0 && slices.Contains(rule.Verbs, verb) &&
			slices.Contains(rule.APIGroups, wanted.APIGroups[0]) && slices.Contains(rule.Resources, wanted.Resources[0])
	})
}

// Enter gives the backend its rights in a namespace of a tenant, by one of its roles,
// unless it has them. It has none there before.
func (r *Rights) Enter(ctx context.Context, namespace, role string) error {
	made, err := r.enter(ctx, namespace, role, false)
	if err != nil {
		return err
	}
	if role != v1alpha1.BackendTenantRole || time.Since(made.CreationTimestamp.Time) > settling {
		return nil
	}
	// API servers see a new right after some milliseconds, and people who log in wait.
	err = wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, settling, true, func(ctx context.Context) (bool, error) {
		return r.entered(ctx, namespace)
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return outdatedRoles(fmt.Errorf("ClusterRole %s gives no right in %s", role, namespace))
	}
	return err
}

// enter is Enter, but does not wait until the rights are in force.
func (r *Rights) enter(ctx context.Context, namespace, role string, fresh bool) (*rbacv1.RoleBinding, error) {
	self, err := r.identity(ctx)
	if err != nil {
		return nil, err
	}
	made, err := r.ensureRoleBinding(ctx, bindingOf(namespace, v1alpha1.BackendRoleBinding, clusterRole(role), *self), fresh)
	return made, roleless(err)
}

// roleless returns a *RefusalError if err says that the backend has not the roles that
// belong to it. A policy, a webhook or a quota that denies something is another matter.
func roleless(err error) error {
	if fates.LacksRight(err) || fates.Is(err, fates.Absent) && strings.HasPrefix(fates.Resource(err), "clusterrole") {
		return outdatedRoles(err)
	}
	return err
}

func outdatedRoles(err error) *RefusalError {
	return RefuseForNow(v1alpha1.ReasonMissingRights, fmt.Sprintf(
		"the roles of the backend are not those of its version: the platform operator has to run kubectl apply -k deploy/backend (%s)", fates.Stable(err)), err)
}

// entered asks the API server whether the backend has its rights in a tenant namespace.
func (r *Rights) entered(ctx context.Context, namespace string) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "get", Resource: "secrets", Name: v1alpha1.TenantRecordSecret},
	}}
	got, err := r.Kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("review own rights in %s: %w", namespace, err)
	}
	return got.Status.Allowed, nil
}

// identity is who the backend is to the API server.
func (r *Rights) identity(ctx context.Context) (*rbacv1.Subject, error) {
	if known := r.self.Load(); known != nil {
		return known, nil
	}
	self, err := identity.Self(ctx, r.Kube)
	if err == nil {
		r.self.Store(&self)
	}
	return &self, err
}

func clusterRole(name string) rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
}

// ensure gives a tenant rules in one of its service namespaces, and takes all
// others: what the backend may not pass on any more does not keep what is less.
func (r *Rights) ensure(ctx context.Context, namespace, tenant string, rules []rbacv1.PolicyRule, fresh bool) (made *rbacv1.Role, given *rbacv1.RoleBinding, err error) {
	made, err = r.ensureRole(ctx, namespace, rules, fresh)
	if fates.Escalates(err) {
		held, missing := r.Check(ctx, rules)
		if lacking, ok := errors.AsType[*rightError](missing); ok {
			lacking.refused = err
			_, err = r.ensureRole(ctx, namespace, held, fresh)
			return nil, nil, errors.Join(missing, err)
		}
		if missing != nil {
			return nil, nil, missing
		}
		err = retried(ctx, newRights, fates.Escalates, func() (err error) {
			made, err = r.ensureRole(ctx, namespace, rules, fresh)
			return err
		})
	}
	if err != nil {
		return nil, nil, err
	}
	given, err = r.bind(ctx, namespace, tenant, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: v1alpha1.ServiceNamespaceRole}, fresh)
	return made, given, err
}

// bind gives the account of a tenant a role in a namespace.
func (r *Rights) bind(ctx context.Context, namespace, tenant string, role rbacv1.RoleRef, fresh bool) (given *rbacv1.RoleBinding, err error) {
	err = retried(ctx, fewWriters, conflicting, func() (err error) { // a login and the controllers replace it at once
		given, err = r.ensureRoleBinding(ctx, bindingOf(namespace, v1alpha1.TenantRoleBinding, role, identity.ServiceAccount(tenant, v1alpha1.TenantServiceAccount)), fresh)
		return err
	})
	return given, err
}

// bindingOf gives a role in a namespace to subject alone.
func bindingOf(namespace, name string, role rbacv1.RoleRef, subject rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: role, Subjects: []rbacv1.Subject{subject}}
}

// ensureRoleBinding makes a RoleBinding, or what is there equal to it.
func (r *Rights) ensureRoleBinding(ctx context.Context, next *rbacv1.RoleBinding, fresh bool) (*rbacv1.RoleBinding, error) {
	namespace, name, role, subject := next.Namespace, next.Name, next.RoleRef, next.Subjects[0]
	bindings := r.Kube.RbacV1().RoleBindings(namespace)
	got, _, err := obtain(fresh,
		func() (*rbacv1.RoleBinding, error) { return bindings.Get(ctx, name, metav1.GetOptions{}) },
		func() (*rbacv1.RoleBinding, error) { return bindings.Create(ctx, next, metav1.CreateOptions{}) })
	if err == nil && got.RoleRef != role && (isTenantRole(role) && isTenantRole(got.RoleRef) || got.RoleRef == clusterRole(legacyRole(subject.Namespace))) { // a reference cannot be changed
		_, err = bindings.Create(ctx, next, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if fates.Is(err, fates.Exists) { // it is admitted
			err = IgnoreNotFound(bindings.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &got.UID}}))
		}
		if err == nil {
			got, err = bindings.Create(ctx, next, metav1.CreateOptions{})
		}
	}
	switch {
	case err != nil:
	case got.RoleRef != role:
		return nil, fmt.Errorf("role binding %s/%s %w: it refers to %s", namespace, name, ErrForeign, got.RoleRef.Name)
	case !slices.Equal(got.Subjects, []rbacv1.Subject{subject}):
		got.Subjects = []rbacv1.Subject{subject}
		got, err = bindings.Update(ctx, got, metav1.UpdateOptions{})
	}
	return got, ensured(err, "role binding", namespace)
}

// isTenantRole tells the roles of a tenant in its tenant namespace; earlier versions of this
// backend gave it the last one, too.
func isTenantRole(role rbacv1.RoleRef) bool {
	return role.Kind == "ClusterRole" && slices.Contains([]string{v1alpha1.TenantRole, v1alpha1.KlutchKonnectorRole, v1alpha1.LegacyTenantRole}, role.Name)
}

// usesLegacyKonnector tells whether the platform team lets a tenant use the legacy konnector.
func (o *Options) usesLegacyKonnector(tenant metav1.Object) bool {
	return o.KlutchKonnectors || tenant.GetLabels()[v1alpha1.KlutchKonnectorLabel] == "true"
}

// withAnnotations lets a tenant write the Secrets that it reads: the legacy konnector annotates
// the Secrets that it copies.
func withAnnotations(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for i := range rules {
		if ruleName(rules[i]) == "secrets" && slices.Equal(rules[i].Verbs, readVerbs) {
			rules[i].Verbs = append(slices.Clone(readVerbs), "update", "patch")
		}
	}
	return rules
}

func (r *Rights) ensureRole(ctx context.Context, namespace string, rules []rbacv1.PolicyRule, fresh bool) (*rbacv1.Role, error) {
	roles := r.Kube.RbacV1().Roles(namespace)
	got, _, err := obtain(fresh,
		func() (*rbacv1.Role, error) {
			return roles.Get(ctx, v1alpha1.ServiceNamespaceRole, metav1.GetOptions{})
		},
		func() (*rbacv1.Role, error) {
			return roles.Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ServiceNamespaceRole}, Rules: rules}, metav1.CreateOptions{})
		})
	if err == nil && !equality.Semantic.DeepEqual(got.Rules, rules) {
		got.Rules = rules
		got, err = roles.Update(ctx, got, metav1.UpdateOptions{})
	}
	return got, ensured(err, "role", namespace)
}

// InForce parts the exports that may be used from the others.
func InForce(exports []*v1alpha1.APIServiceExport) (used, withdrawn []*v1alpha1.APIServiceExport) {
	for _, export := range exports {
		if metav1.HasAnnotation(export.ObjectMeta, v1alpha1.WithdrawnAnnotation) {
			withdrawn = append(withdrawn, export)
		} else {
			used = append(used, export)
		}
	}
	return used, withdrawn
}

// take takes the rights of a tenant in a namespace away.
func (r *Rights) take(ctx context.Context, namespace string) error {
	return r.unbind(ctx, namespace, v1alpha1.TenantRoleBinding)
}

func (r *Rights) unbind(ctx context.Context, namespace, binding string) error {
	err := r.Kube.RbacV1().RoleBindings(namespace).Delete(ctx, binding, metav1.DeleteOptions{})
	if IgnoreNotFound(err) != nil {
		return fmt.Errorf("take rights in %s away: %w", namespace, err)
	}
	return nil
}

// AsRefusal returns what the tenant should know of err, or nil.
func AsRefusal(err error) *RefusalError {
	if refused, ok := errors.AsType[*RefusalError](err); ok {
		return refused
	}
	if missing, ok := errors.AsType[*rightError](err); ok {
		return RefuseForNow(v1alpha1.ReasonMissingRights, missing.Error(), missing.refused)
	}
	return nil
}
