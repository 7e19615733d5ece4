// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"

	"github.com/klutch-go/sdk/auth"
)

const callbackPath = "/callback"

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

var errNoIssuer = errors.New("no such issuer")

// provider returns the one with which a name's people sign in; "" is that of Options.
func (h *handler) provider(name string) (*auth.Provider, error) {
	if name == "" {
		return h.opts.Provider, nil
	}
	for _, i := range h.opts.Handshake.Issuers {
		if i.Name == name {
			return i.Provider, nil
		}
	}
	return nil, errNoIssuer
}

// A way is a link to sign in with an issuer.
type way struct{ Title, Issuer, Link string }

// chooseIssuer lets a person say where they have their account. It reports false
// where that is said, or there is no choice.
func (h *handler) chooseIssuer(w http.ResponseWriter, r *http.Request) bool {
	query := r.URL.Query()
	if len(h.opts.Handshake.Issuers) == 0 || query.Has("issuer") {
		return false
	}
	link := func(name string) string {
		query.Set("issuer", name)
		return "/authorize?" + query.Encode()
	}
	first := h.opts.Provider.Issuer()
	ways := []way{{first, first, link("")}}
	for _, i := range h.opts.Handshake.Issuers {
		ways = append(ways, way{i.title(), i.Provider.Issuer(), link(i.Name)})
	}
	h.page(w, r, http.StatusOK, "issuers.html", ways)
	return true
}

// begin sends the browser on to an issuer.
func (h *handler) begin(w http.ResponseWriter, r *http.Request, l login, name string) {
	provider, err := h.provider(name)
	if err != nil {
		h.badLink(w, r, "It names an issuer that is not known here.")
		return
	}
	attempt, target, err := provider.Begin(r.Context())
	if err != nil {
		h.refuse(w, r, l, err)
		return
	}
	if err := h.setCookie(w, txnCookie, transaction{l, attempt, name}, txnLife); err != nil {
		h.internal(w, r, err)
		return
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// complete says who has logged in. The answer has to come to the path of the issuer
// that was asked.
func (h *handler) complete(r *http.Request, t *transaction) (*auth.Identity, error) {
	if err := h.openCookie(r, txnCookie, t); err != nil {
		return nil, err
	}
	if r.PathValue("issuer") != t.Issuer {
		return nil, auth.ErrState
	}
	provider, err := h.provider(t.Issuer)
	if err != nil {
		return nil, auth.ErrState
	}
	return provider.Finish(r.Context(), t.Attempt, r.URL.Query())
}

// CallbackURL is the RedirectURL of the Provider of the issuer with that name at a
// backend with that external URL; "" names that of Options.
func CallbackURL(external, name string) (string, error) {
	return url.JoinPath(external, callbackPath, name)
}
