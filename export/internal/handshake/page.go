// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// choice is what the page shows on which a person chooses services.
type choice struct {
	Person, Account, Issuer, Cluster, Code string
	Legacy, Offer                          bool
	Services                               []option
	Withheld                               []string
	Problems                               []problem // about what was asked for
}

type option struct {
	offer.Service
	Checked bool
	Chosen  bool   // at a login before, for this App Cluster
	Link    string // for the legacy CLI
}

// Documentation is the link to read more, if it is one of the web.
func (o option) Documentation() string {
	u, err := url.Parse(o.DocumentationURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return u.String()
}

// A chooser has people choose services.
type chooser struct {
	opts     *Options
	pages    *renderer
	sessions *sessions
	limits   *limits
	binder   *binder
	endings  *endings
}

// services shows what the person may bind.
func (h *chooser) services(w http.ResponseWriter, r *http.Request) {
	s, ok := h.sessions.open(w, r)
	switch {
	case !ok:
	case s.unclaimed():
		http.Redirect(w, r, devicePage, http.StatusSeeOther)
	case h.limits.view(w, r, &s.Identity):
	default:
		h.choose(w, r, s, http.StatusOK)
	}
}

// choose shows the page with problems on top, or with those of what was asked for.
func (h *chooser) choose(w http.ResponseWriter, r *http.Request, s *session, code int, problems ...problem) {
	o, err := h.binder.offer(r.Context(), s, s.Login.Services)
	if err == nil {
		err = h.sessions.keep(r.Context(), w, s) // it is not idle
	}
	if err != nil {
		h.pages.internal(w, r, err)
		return
	}
	c := choice{
		Person: s.person(), Account: s.Identity.Email, Issuer: s.Identity.Issuer,
		Cluster: s.Login.Cluster, Code: s.Login.code(), Legacy: s.Login.Legacy, Offer: s.Login.Offer, Problems: problems, Withheld: o.Withheld,
	}
	if len(problems) == 0 {
		c.Problems = o.problems()
	}
	_, chosen := h.binder.tenantOf(r.Context(), &s.Identity, s.Login.Cluster)
	for _, service := range o.Allowed {
		before := slices.Contains(chosen, service.Name())
		checked := slices.Contains(s.Login.Services, service.Name()) || before && len(s.Login.Services) == 0
		c.Services = append(c.Services, option{service, checked, before, legacyLink(s, service)})
	}
	name := "services.html"
	switch {
	case s.Login.Legacy:
		name = "resources.html"
	case s.Login.Offer:
		name = "offer.html"
	}
	h.pages.page(w, r, code, name, c)
}

// bind takes the choice: it makes the tenant and sends the one-time code on its way.
func (h *chooser) bind(w http.ResponseWriter, r *http.Request) {
	s, ok := h.sessions.open(w, r)
	if !ok {
		return
	}
	if err := r.ParseForm(); err != nil {
		h.pages.fail(w, r, problem{Status: http.StatusBadRequest, Title: "This form cannot be read", Next: "Go back and try again."})
		return
	}
	if r.PostForm.Get("code") != s.Login.code() || s.Login.Legacy || s.unclaimed() {
		h.pages.otherLogin(w, r)
		return
	}
	h.bindServices(w, r, s, r.PostForm["service"])
}

func (h *chooser) bindServices(w http.ResponseWriter, r *http.Request, s *session, chosen []string) {
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	if h.limits.subject(w, r, &s.Identity) {
		return
	}
	if s.Login.Offer {
		h.endings.tellOffer(w, r, s)
		return
	}
	switch {
	case len(chosen) == 0:
		h.choose(w, r, s, http.StatusUnprocessableEntity, problem{Title: "Nothing is chosen", What: "Choose at least one service."})
		return
	case len(strings.Join(chosen, "")) > longestAsked: // the code, which goes by way of a cookie, has all names
		h.choose(w, r, s, http.StatusUnprocessableEntity, problem{Title: "This is too much at once", What: "Choose fewer services, and the others at another login. Services that are bound already stay."})
		return
	}
	tenant, err := h.binder.obtain(r.Context(), s, chosen)
	if err != nil {
		h.endings.tenantProblem(w, r, s, err)
		return
	}
	h.endings.sendCode(w, r, s, grant{Tenant: tenant, Services: chosen})
}

// selectionWords: an object must meet all that narrows the selection.
func selectionWords(s v1alpha1.ResourceSelector) string {
	var only []string
	if len(s.Names) > 0 && !slices.Contains(s.Names, "*") {
		only = append(only, "those called "+fewOf(s.Names))
	}
	for _, ref := range s.References {
		only = append(only, "those that your own objects of this service name in "+ref.Path)
	}
	if len(s.LabelSelectors) > 0 {
		var sets []string
		for _, set := range s.LabelSelectors {
			sets = append(sets, labels.FormatLabels(set))
		}
		only = append(only, "those with the labels "+strings.Join(few(sets), " or "))
	}
	if len(s.FieldSelectors) > 0 {
		only = append(only, "those with "+fewOf(s.FieldSelectors))
	}
	switch {
	case len(only) > 0:
		return "only " + strings.Join(only, "; and of these ") + "."
	case s.Owner == v1alpha1.OwnerConsumer:
		return "all of them."
	}
	return "any of them that the service makes."
}

func fewOf(names []string) string { return strings.Join(few(names), ", ") }
