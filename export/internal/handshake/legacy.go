// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/oauth2"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/internal/audit"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// isLegacy reports whether query is that of the legacy CLI, which expects its
// credential in a URL: u or p where it listens, s its session, c its cluster.
func isLegacy(query url.Values) bool {
	return !query.Has("redirect_uri") && (query.Has("u") || query.Has("p"))
}

// parseLegacy reads the request of the legacy CLI. What it says is for the person
// at the browser.
func parseLegacy(query url.Values) (login, string) {
	l := login{Legacy: true, Redirect: query.Get("u"), State: query.Get("s"), Cluster: query.Get("c")}
	if l.Redirect == "" {
		l.Redirect = "http://localhost:" + query.Get("p") + redirect.Path
	}
	_, err := redirect.Loopback(l.Redirect, true)
	switch {
	case repeated(query):
		return l, "A parameter is given twice."
	case err != nil:
		return l, "The answer would not go to a program on your own machine."
	case !statePattern.MatchString(l.State) || !clusterPattern.MatchString(l.Cluster):
		return l, "The session or the name of the cluster is missing or malformed."
	}
	l.Challenge = oauth2.S256ChallengeFromVerifier(l.State) // so that pages of two logins are told apart
	return l, ""
}

// legacy serves the legacy CLI.
type legacy struct {
	opts     *Options
	pages    *renderer
	sessions *sessions
	cookies  *cookies
	limits   *limits
	binder   *binder
	endings  *endings
}

// legacyRoutes are the further routes that the legacy CLI needs. The link binds, since
// that CLI knows no form; it belongs to a session that only its own login can begin.
func (h *Server) legacyRoutes() []route {
	if !h.Opts.LegacyCLI {
		return nil
	}
	return []route{{"GET /bind", true, h.legacy.bind}}
}

// legacyLink is where the link of a service leads.
func legacyLink(s *session, service offer.Service) string {
	query := url.Values{"s": {s.Login.State}, "resource": {service.Resource.Resource}, "group": {service.Resource.Group}}
	return "/bind?" + query.Encode()
}

// bind binds the one service of a link and sends the browser back with the
// credential.
func (h *legacy) bind(w http.ResponseWriter, r *http.Request) {
	s, ok := h.sessions.open(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	if !s.Login.Legacy || !same(query.Get("s"), s.Login.State) || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
		h.pages.crossOrigin(w, r)
		return
	}
	if h.limits.subject(w, r, &s.Identity) {
		return
	}
	service := v1alpha1.GroupResource{Group: query.Get("group"), Resource: query.Get("resource")}
	payload, err := h.binding(r.Context(), s, service.String())
	if err != nil {
		h.endings.tenantProblem(w, r, s, err)
		return
	}
	if !h.endings.lastStep(w, r, s) {
		return
	}
	h.cookies.clear(w, SessionCookie)
	http.Redirect(w, r, s.Login.Redirect+"?"+url.Values{"response": {payload}}.Encode(), http.StatusFound)
}

func (h *legacy) binding(ctx context.Context, s *session, service string) (string, error) {
	if _, err := redirect.Loopback(s.Login.Redirect, true); err != nil {
		return "", err
	}
	tenant, err := h.binder.obtain(ctx, s, []string{service})
	if err != nil {
		return "", err
	}
	response, err := h.binder.response(ctx, &grant{Tenant: tenant, Services: []string{service}, Identity: s.account(), Login: s.Login})
	if err != nil {
		return "", err
	}
	if response.Kubeconfig, err = h.opts.Tenants.Credentials.Short(ctx, tenant); err != nil {
		return "", err
	}
	audit.Record(ctx, "credential sent through a browser", append(s.who(), "tenant", tenant)...)
	return LegacyPayload(response)
}

// LegacyPayload encodes a response so that decoders of both base64 alphabets read
// it: the alphabets differ only for characters that it does not use.
func LegacyPayload(response *v1alpha1.BindingResponse) (string, error) {
	data, err := json.Marshal(response)
	if err != nil {
		return "", fmt.Errorf("encode response: %w", err)
	}
	return base64.StdEncoding.EncodeToString([]byte(asciiJSON(string(data)))), nil
}

// asciiJSON escapes characters beyond ASCII, and ? ~ and DEL; > is escaped already. None
// of them stands outside of strings.
func asciiJSON(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r > 0xffff:
			high, low := (r-0x10000)>>10+0xd800, (r-0x10000)&0x3ff+0xdc00
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		case r >= '~' || r == '?' || r == '>':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
