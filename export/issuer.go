// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"net/url"
	"regexp"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
)

var issuerPattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`)

// An Issuer is one more with which people may sign in. Tenants, rights and names are
// never shared between issuers.
type Issuer struct {
	// Name is in URLs: lower case letters, digits and dashes.
	Name string
	// Title is what people read; empty means the URL of the issuer.
	Title string
	// Provider has the RedirectURL /callback/NAME at the ExternalURL: an answer that
	// arrives at the path of another issuer does not count, also where issuers send no
	// iss parameter (RFC 9700 section 4.4.2.2).
	Provider *auth.Provider
	// Users are the names of its people for RBAC. Its prefixes are "oidc-NAME:" where
	// they are empty. None may begin with that of another issuer, also the one of
	// Options: what follows it is the issuer's to choose.
	Users Users
}

func (i Issuer) users() Users {
	u := i.Users
	prefix := "oidc-" + i.Name + ":"
	u.UsernamePrefix, u.GroupsPrefix = cmp.Or(u.UsernamePrefix, prefix), cmp.Or(u.GroupsPrefix, prefix)
	return u
}

func (i Issuer) title() string { return cmp.Or(i.Title, i.Provider.Issuer()) }

// machineUsers are the names of machines of an issuer that logs no people in: as a
// kube-apiserver names users where no prefix is given.
func machineUsers(issuer string) Users {
	return Users{UsernamePrefix: issuer + "#", GroupsPrefix: issuer + "#"}
}

// CallbackURL is the RedirectURL of the Provider of the issuer with that name at a
// backend with that external URL; "" names that of Options.
func CallbackURL(external, name string) (string, error) {
	return url.JoinPath(external, handshake.CallbackPath, name)
}
