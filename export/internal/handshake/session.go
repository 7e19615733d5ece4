// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"cmp"
	"crypto/subtle"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
)

// ClientID is kubectl-bind's, which is a public client (RFC 6749 section 2.1).
const ClientID = "kubectl-bind"

// How long a session and a one-time code live.
const (
	sessionLife = 30 * time.Minute
	sessionIdle = 10 * time.Minute
	codeLife    = time.Minute
)

// A login is what the CLI that waits for its end asked for.
type login struct {
	Redirect  string   `json:"redirect"`
	State     string   `json:"state"`
	Challenge string   `json:"challenge"`
	Cluster   string   `json:"cluster"`
	Services  []string `json:"services,omitempty"`
	Offer     bool     `json:"offer,omitempty"`    // only the offer is asked for, v1alpha1.ScopeOffer
	Legacy    bool     `json:"legacy,omitempty"`   // it is the legacy CLI that waits
	UserCode  string   `json:"userCode,omitempty"` // of a program without a browser, which listens nowhere
}

// back returns the URL at which the CLI listens, with an answer.
func (l login) back(issuer string, answer url.Values) string {
	answer.Set("state", l.State)
	answer.Set("iss", issuer)
	return l.Redirect + "?" + answer.Encode()
}

// A session is a person who has signed in to answer one login.
type session struct {
	ID         string        `json:"id"`
	Login      login         `json:"login"`
	Identity   auth.Identity `json:"identity"`
	GroupsKept bool          `json:"groupsKept,omitempty"` // elsewhere: they do not fit a cookie
	Claimed    time.Time     `json:"claimed,omitzero"`     // when the user code was confirmed
	Device     *auth.Device  `json:"device,omitempty"`     // once its program has said what it asks for
	Since      time.Time     `json:"since"`
}

var (
	challengePattern = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	clusterPattern   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?$`)
	statePattern     = regexp.MustCompile(`^[!-~]{1,200}$`)
	servicePattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
)

// longestAsked is how many bytes the names of services may have together that are asked for or chosen:
// with a person of long names they fit a cookie, and so does the code for them.
const longestAsked = 1 << 10

func repeated(query url.Values) bool {
	for name, values := range query {
		if name != "service" && len(values) > 1 {
			return true
		}
	}
	return false
}

// wrong says what is wrong with a login that a program asks for in params; it is
// empty if nothing is.
func (l login) wrong(params url.Values) string {
	switch {
	case repeated(params):
		return "A parameter is given twice."
	case params.Get("client_id") != ClientID:
		return "It is not from kubectl-bind."
	case params.Get("code_challenge_method") != "S256" || !challengePattern.MatchString(l.Challenge):
		return "It has no code challenge with method S256."
	case params.Get("scope") != "" && !l.Offer:
		return "Its scope is none that this backend knows."
	case !statePattern.MatchString(l.State) || !clusterPattern.MatchString(l.Cluster) && (l.Cluster != "" || !l.Offer):
		return "The state or the name of the cluster is missing or malformed."
	case len(l.Services) > offer.MaxAsked || len(strings.Join(l.Services, "")) > longestAsked || slices.ContainsFunc(l.Services, func(s string) bool { return !servicePattern.MatchString(s) }):
		return "A service is not written as RESOURCE.GROUP, or there are too many, or their names are too long."
	}
	return ""
}

func refusalValues(err *auth.Error) url.Values {
	return url.Values{"error": {err.Code}, "error_description": {err.Description}}
}

// code is the code that terminal and page show alike.
func (l login) code() string {
	if l.UserCode != "" {
		return l.UserCode
	}
	return auth.DisplayCode(l.Challenge)
}

// person is how a person is called on the page.
func (s *session) person() string {
	return cmp.Or(strings.TrimSpace(s.Identity.Name), strings.TrimSpace(s.Identity.Email), s.Identity.Subject)
}

// account is how an identity is called in a BindingResponse, for people to read.
func (s *session) account() string { return s.Identity.Issuer + "/" + s.Identity.Subject }

// who says in an audit record whose session it is.
func (s *session) who() []any {
	return []any{"issuer", s.Identity.Issuer, "subject", s.Identity.Subject, "cluster", s.Login.Cluster}
}

// CodePurpose is what one-time codes are sealed for.
const CodePurpose = "code"

// A grant is what a one-time code stands for. It is sealed into the code.
type grant struct {
	ID       string   `json:"id"`
	Tenant   string   `json:"tenant"`
	Services []string `json:"services"`
	Login    login    `json:"login"`
	Identity string   `json:"identity"` // "<issuer>/<subject>", for people
	// Person to whom the offer is told, without groups: those are kept with the session. Nil
	// for a code that stands for a tenant's credential.
	Person  *auth.Identity `json:"person,omitempty"`
	Session string         `json:"session,omitempty"`
	// Expiry is that of the code.
	Expiry time.Time `json:"expiry"`
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// signedOut is what a program learns whose person has gone.
func signedOut() url.Values {
	return refusalValues(&auth.Error{Code: "access_denied", Description: "the person signed out"})
}
