// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"

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

// users are the names of those whose issuer is not the first one, by issuer.
func (h Handshake) users(first *auth.Provider) map[string]Users {
	others := map[string]Users{}
	for _, p := range h.Machines {
		if first != nil && p.Issuer() != first.Issuer() {
			others[p.Issuer()] = machineUsers(p.Issuer())
		}
	}
	for _, i := range h.Issuers {
		others[i.Provider.Issuer()] = i.users()
	}
	return others
}

// validateIssuers checks that no two issuers can be taken for one another, nor people
// for machines.
func (h Handshake) validateIssuers(first *auth.Provider, users Users) error {
	taken, err := h.validatePeople(first, users)
	if err == nil {
		err = h.validateMachines(first)
	}
	if err != nil {
		return err
	}
	people := map[string]bool{}
	for _, i := range h.Issuers {
		people[i.Provider.Issuer()] = true
	}
	for issuer, users := range h.users(first) {
		if !people[issuer] && slices.ContainsFunc(taken, users.overlap) {
			return fmt.Errorf("machines of %s: the names of people must not begin as theirs do, which is with %s", issuer, users.UsernamePrefix)
		}
	}
	return nil
}

// validateMachines checks that no token for the client of a login is for machines.
func (h Handshake) validateMachines(first *auth.Provider) error {
	logins := []*auth.Provider{first}
	for _, i := range h.Issuers {
		logins = append(logins, i.Provider)
	}
	for _, p := range h.Machines {
		if slices.ContainsFunc(logins, func(login *auth.Provider) bool { return login != nil && login.Overlaps(p) }) {
			return fmt.Errorf("machines of %s: people sign in there with a client that is an audience too: machines need one of their own", p.Issuer())
		}
	}
	return nil
}

// validatePeople returns the names that people may have.
func (h Handshake) validatePeople(first *auth.Provider, users Users) (taken []Users, err error) {
	names, urls := map[string]bool{}, map[string]bool{}
	taken = []Users{users}
	if first != nil {
		urls[first.Issuer()] = true
	}
	for _, i := range h.Issuers {
		switch {
		case !issuerPattern.MatchString(i.Name) || names[i.Name]:
			return nil, fmt.Errorf("issuer %q: needs a name of its own that matches %s", i.Name, issuerPattern)
		case first == nil || i.Provider == nil:
			return nil, fmt.Errorf("issuer %s: needs a Provider, beside that of Options", i.Name)
		case urls[i.Provider.Issuer()]:
			return nil, fmt.Errorf("issuer %s: there is another one with the URL %s", i.Name, i.Provider.Issuer())
		}
		if err := i.Users.validate(); err != nil {
			return nil, fmt.Errorf("issuer %s: %w", i.Name, err)
		}
		if slices.ContainsFunc(taken, i.users().overlap) {
			return nil, fmt.Errorf("issuer %s: the prefixes of its users and groups must not begin as those of another issuer do", i.Name)
		}
		taken = append(taken, i.users())
		names[i.Name], urls[i.Provider.Issuer()] = true, true
	}
	return taken, nil
}

// CallbackURL is the RedirectURL of the Provider of the issuer with that name at a
// backend with that external URL; "" names that of Options.
func CallbackURL(external, name string) (string, error) {
	return url.JoinPath(external, handshake.CallbackPath, name)
}
