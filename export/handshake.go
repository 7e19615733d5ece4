// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/handshake"
)

// Handshake tunes what [Exporter.Handler] serves.
type Handshake struct {
	// Machines are the issuers whose access tokens machines may bring to
	// POST /bind-noninteractive. None means that only people can bind. Machines of an
	// issuer with which people sign in have names like theirs; those of another one are
	// known to RBAC as "<URL of the issuer>#<subject>", and so are their groups.
	Machines auth.Providers
	// MachineScopes have to be in such a token, all of them.
	MachineScopes []string
	// Issuers with which people may sign in, beside the Provider of Options: a page
	// lets them choose.
	Issuers []Issuer
	// Devices keeps what the two ends of a login on another device tell one another,
	// which sessions have ended, and groups that do not fit a cookie. Nil means that
	// programs without a browser on their machine cannot log in, nor people with
	// hundreds of groups, and that the copy of a cookie outlives a logout.
	Devices auth.DeviceStore
	// LegacyCLI lets Klutch's own kubectl-bind in, which gets its credential in a
	// URL of a loopback address. Browsers keep such URLs: the token lives for ten
	// minutes, in which that konnector fetches a better one.
	LegacyCLI bool
	// Limits on requests.
	Limits Limits
	// TrustedProxies are the gateways in front: the client of a request that comes
	// from one of them is the last address in X-Forwarded-For that is not.
	TrustedProxies []netip.Prefix
	// Sealer is asked at each use for the one to seal and open with, so that keys
	// can be rotated; nil means Options.Sealer.
	Sealer func() *auth.Sealer
	// Hooks are told what happens.
	Hooks Hooks
}

// Limits protect a backend that strangers can reach. Zero means the default, less
// than zero no limit. What goes beyond is answered 429 with Retry-After.
type Limits struct {
	// PerAddress is how many requests a minute one address may send, and how many
	// at once; a /48 of IPv6, whose /64s count as addresses, may send eight times as
	// many. Default 600.
	PerAddress int
	// PerSubject is how often a minute one identity may bind or sign in, how often it may
	// look at the offer, and how often its programs may bring codes. A sign-in counts once more for each 4 KB of groups, which
	// are kept in the Control Plane Cluster for half an hour. Default 60.
	PerSubject int
}

func (l Limits) withDefaults() Limits {
	return Limits{cmp.Or(l.PerAddress, 600), cmp.Or(l.PerSubject, 60)}
}

// Hooks are called while something happens, such as by metrics; nil ones are not.
// Their arguments come from small closed sets.
type Hooks struct {
	// Request is called after each HTTP request: the route, such as "/bind", or
	// "other"; the status; how long it took.
	Request func(route string, code int, took time.Duration)
	// Login is called when a person or machine has tried to sign in.
	Login func(result LoginResult)
}

// A LoginResult is how a login ended.
type LoginResult string

// The results of logins.
const (
	LoginSucceeded   LoginResult = "success"
	LoginRefused     LoginResult = "refused"     // the issuer said no, or its token does not count
	LoginUnavailable LoginResult = "unavailable" // the issuer could not be asked
	LoginLimited     LoginResult = "limited"     // too often
)

func (h Hooks) forHandshake() handshake.Hooks {
	hooks := handshake.Hooks{Request: h.Request}
	if h.Login != nil {
		hooks.Login = func(result handshake.Result) { h.Login(LoginResult(result)) }
	}
	return hooks
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
