// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// ErrForbidden is wrapped by the errors of an Authorizer that say no.
var ErrForbidden = offer.ErrForbidden

// An Authorizer decides who may bind what. It is asked when a service is shown,
// before anything is made for the person, and again when the request for the
// export arrives.
type Authorizer interface {
	// Authorize returns nil if id may bind s, an error that wraps ErrForbidden if
	// not, and any other error if it cannot tell.
	Authorize(ctx context.Context, id *auth.Identity, s Service) error
}

// EveryoneGroup is a group of which everyone is a member who can log in.
const EveryoneGroup = "klutch:authenticated"

// Users says under which names people and machines of the issuer are known to the
// Control Plane Cluster's RBAC, as the flags --oidc-username-claim,
// --oidc-username-prefix and --oidc-groups-prefix of a kube-apiserver do. Names
// that begin with "system:" never come out of it.
type Users struct {
	// UsernameClaim is "sub", the default, or "email". A person without a verified
	// e-mail address has no name under the latter, and so only groups.
	UsernameClaim string
	// UsernamePrefix and GroupsPrefix go before names. Empty means "oidc:", "-"
	// means none.
	UsernamePrefix, GroupsPrefix string
}

func (u Users) validate() error {
	switch u.UsernameClaim {
	case "", "sub", "email":
		return nil
	}
	return fmt.Errorf("username claim is %q, must be sub or email", u.UsernameClaim)
}

// user returns the name for a SubjectAccessReview; it may be empty.
func (u Users) user(id *auth.Identity) string {
	name := id.Subject
	if u.UsernameClaim == "email" {
		name = id.Email
	}
	return prefixed(u.UsernamePrefix, name)
}

// groups returns the groups for a SubjectAccessReview.
func (u Users) groups(id *auth.Identity) []string {
	groups := []string{EveryoneGroup}
	for _, g := range id.Groups {
		if g = prefixed(u.GroupsPrefix, g); g != "" {
			groups = append(groups, g)
		}
	}
	return groups
}

// overlap reports whether a name that comes out of u may also come out of other: one
// prefix begins with the other.
func (u Users) overlap(other Users) bool {
	begins := func(a, b string) bool {
		a, b = literal(a), literal(b)
		return strings.HasPrefix(a, b) || strings.HasPrefix(b, a)
	}
	return begins(u.UsernamePrefix, other.UsernamePrefix) || begins(u.GroupsPrefix, other.GroupsPrefix)
}

// literal is what a prefix of Users stands for.
func literal(prefix string) string {
	if prefix = cmp.Or(prefix, "oidc:"); prefix == "-" {
		return ""
	}
	return prefix
}

// prefixed is empty where the result would be a name of Kubernetes itself.
func prefixed(prefix, name string) string {
	if name == "" {
		return ""
	}
	name = literal(prefix) + name
	if strings.HasPrefix(name, "system:") {
		return ""
	}
	return name
}

// reviews is the Authorizer that asks the Control Plane Cluster's own authorizer
// whether a person may "bind" the template of a service.
type reviews struct {
	kube  kubernetes.Interface
	users Users
	// others are the names of those whose issuer is not the one of Options, by issuer.
	others map[string]Users
	first  *auth.Provider // of Options; nil where people sign in elsewhere
}

// usersOf are the names of the people and machines of an issuer. One that is not
// configured any more has none: its subjects must not be taken for those of another.
func (a reviews) usersOf(issuer string) (Users, bool) {
	if users, ok := a.others[issuer]; ok {
		return users, true
	}
	return a.users, a.first == nil || a.first.Issuer() == issuer
}

func (a reviews) Authorize(ctx context.Context, id *auth.Identity, s Service) error {
	users, known := a.usersOf(id.Issuer)
	if !known {
		return fmt.Errorf("%w to bind %s: %s is not an issuer of this backend", ErrForbidden, s.Name(), id.Issuer)
	}
	sar := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:   users.user(id),
		Groups: users.groups(id),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb:      "bind",
			Group:     cmp.Or(s.TemplateGroup, v1alpha1.GroupVersion.Group),
			Version:   v1alpha1.GroupVersion.Version,
			Resource:  templateResource.Resource,
			Namespace: s.Template.Namespace,
			Name:      s.Template.Name,
		},
	}}
	answer, err := a.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, sar, metav1.CreateOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("review access to %s: %w", s.Name(), err)
	case !answer.Status.Allowed || answer.Status.Denied:
		return fmt.Errorf("%w to bind %s", ErrForbidden, s.Name())
	}
	return nil
}

// authorizerAdapter converts the services of package offer for an Authorizer.
type authorizerAdapter struct{ Authorizer }

func (a authorizerAdapter) Authorize(ctx context.Context, id *auth.Identity, s offer.Service) error {
	return a.Authorizer.Authorize(ctx, id, Service(s))
}
