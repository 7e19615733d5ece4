// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/export/internal/tenant"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// choice is what the page shows on which a person chooses services.
type choice struct {
	Person, Account, Issuer, Cluster, Code string
	Legacy                                 bool
	Services                               []option
	Problems                               []problem // about what was asked for
}

type option struct {
	offer.Service
	Checked bool
	Link    string // for Klutch's own CLI
}

// Documentation is the link to read more, if it is one of the web.
func (o option) Documentation() string {
	u, err := url.Parse(o.DocumentationURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	return u.String()
}

// services shows what the person may bind.
func (h *handler) services(w http.ResponseWriter, r *http.Request) {
	s, ok := h.openSession(w, r)
	switch {
	case !ok:
	case s.unclaimed():
		http.Redirect(w, r, devicePage, http.StatusSeeOther)
	case h.limitViews(w, r, &s.Identity):
	default:
		h.choose(w, r, s, http.StatusOK)
	}
}

// choose shows the page with problems on top, or with those of what was asked for.
func (h *handler) choose(w http.ResponseWriter, r *http.Request, s *session, code int, problems ...problem) {
	o, err := h.offerTo(r.Context(), s, s.Login.Services)
	if err == nil {
		err = h.keepSession(r.Context(), w, s) // it is not idle
	}
	if err != nil {
		h.internal(w, r, err)
		return
	}
	c := choice{
		Person: s.person(), Account: s.Identity.Email, Issuer: s.Identity.Issuer,
		Cluster: s.Login.Cluster, Code: s.Login.code(), Legacy: s.Login.Legacy, Problems: problems,
	}
	if len(problems) == 0 {
		c.Problems = o.problems()
	}
	for _, service := range o.Allowed {
		c.Services = append(c.Services, option{service, slices.Contains(s.Login.Services, service.Name()), legacyLink(s, service)})
	}
	name := "services.html"
	if s.Login.Legacy {
		name = "resources.html"
	}
	h.page(w, r, code, name, c)
}

// problems are those of each kind of what cannot be had.
func (o *offering) problems() (all []problem) {
	for _, part := range []*offering{{Refused: o.Refused}, {Unknown: o.Unknown}, {Unfit: o.Unfit}, {Absent: o.Absent}} {
		if part.missing() > 0 {
			all = append(all, part.problem())
		}
	}
	return all
}

// bind takes the choice: it makes the tenant and sends the one-time code on its way.
func (h *handler) bind(w http.ResponseWriter, r *http.Request) {
	s, ok := h.openSession(w, r)
	if !ok {
		return
	}
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, problem{Status: http.StatusBadRequest, Title: "This form cannot be read", Next: "Go back and try again."})
		return
	}
	if r.PostForm.Get("code") != s.Login.code() || s.Login.Legacy || s.unclaimed() {
		h.otherLogin(w, r)
		return
	}
	h.bindServices(w, r, s, r.PostForm["service"])
}

func (h *handler) otherLogin(w http.ResponseWriter, r *http.Request) {
	h.refused(r, "form refused", "path", pathOf(r), "origin", originOf(r), "reason", "belongs to another login")
	h.fail(w, r, problem{
		Status: http.StatusConflict, Title: "Another login was begun in this browser",
		What: "This page belongs to a login that is not the last one.", Next: "Close this page and use the other one.",
	})
}

func (h *handler) bindServices(w http.ResponseWriter, r *http.Request, s *session, chosen []string) {
	slices.Sort(chosen)
	chosen = slices.Compact(chosen)
	if h.limitSubject(w, r, &s.Identity) {
		return
	}
	if len(chosen) == 0 {
		h.choose(w, r, s, http.StatusUnprocessableEntity, problem{Title: "Nothing is chosen", What: "Choose at least one service."})
		return
	}
	tenant, err := h.obtain(r.Context(), s, chosen)
	if err != nil {
		h.tenantProblem(w, r, s, err)
		return
	}
	h.sendCode(w, r, s, grant{Tenant: tenant, Services: chosen})
}

func (h *handler) tenantProblem(w http.ResponseWriter, r *http.Request, s *session, err error) {
	missing, ok := errors.AsType[*offerError](err)
	switch {
	case ok:
		h.fail(w, r, missing.offer.problem())
	case errors.Is(err, tenant.ErrForeign):
		h.fail(w, r, problem{
			Status: http.StatusConflict, Title: "The name of your tenant is taken", What: err.Error() + ".",
			Next: "Ask the platform team to look at it.",
		})
	case errors.Is(err, tenant.ErrCapped):
		h.fail(w, r, problem{
			Status: http.StatusForbidden, Title: "There are as many App Clusters as there may be", What: err.Error() + ".",
			Next: "Ask the platform team to remove one that is gone, or to allow more.",
		})
	case errors.Is(err, tenant.ErrTerminating):
		h.removing(w, r, s, problem{
			Status: http.StatusServiceUnavailable, Title: "Your tenant is being removed", What: err.Error() + ".",
			Next: "Run kubectl bind again when it is gone.",
		})
	default:
		h.internal(w, r, err)
	}
}

// removing ends a login whose tenant goes: who waits for it is told too.
func (h *handler) removing(w http.ResponseWriter, r *http.Request, s *session, p problem) {
	if s.Login.Legacy { // that CLI understands no refusal
		h.fail(w, r, p)
		return
	}
	h.finish(w, r, s, refusalValues(&auth.Error{Code: codeUnavailable, Description: p.What + " " + p.Next}), p)
}

// sendCode mints the one-time code for what was bound.
func (h *handler) sendCode(w http.ResponseWriter, r *http.Request, s *session, g grant) {
	g.ID, g.Login, g.Identity, g.Expiry = rand.Text(), s.Login, s.account(), time.Now().Add(codeLife)
	if s.Device != nil {
		g.Expiry = s.Device.Expiry // the program asks at its own pace
	}
	g.Login.Services = nil
	data, err := json.Marshal(g)
	if err != nil {
		h.internal(w, r, err)
		return
	}
	code, err := h.sealer().SealUntil(codePurpose, data, g.Expiry)
	if err != nil {
		h.internal(w, r, err)
		return
	}
	h.finish(w, r, s, url.Values{"code": {code}}, problem{})
}

// An outcome is what a login ended with, for the CLI and for the person.
type outcome struct {
	Back    string  `json:"back,omitempty"` // empty where the CLI comes and asks
	Problem problem `json:"problem"`
}

// finish ends a session with an answer for the CLI. The browser goes there from a
// page of ours: a form must not lead to another origin.
func (h *handler) finish(w http.ResponseWriter, r *http.Request, s *session, answer url.Values, p problem) {
	if !h.lastStep(w, r, s) {
		return
	}
	back, err := h.deliver(r.Context(), s, answer)
	if errors.Is(err, auth.ErrDeviceTaken) || errors.Is(err, auth.ErrUserCode) {
		h.otherLogin(w, r)
		return
	}
	if err == nil {
		err = h.setCookie(w, doneCookie, outcome{back, p}, codeLife)
	}
	if err != nil {
		h.internal(w, r, err)
		return
	}
	clearCookie(w, sessionCookie)
	http.Redirect(w, r, "/done", http.StatusSeeOther)
}

// lastStep reports whether this is the one answer of a session; else it has shown why not.
func (h *handler) lastStep(w http.ResponseWriter, r *http.Request, s *session) bool {
	err := h.useSession(r.Context(), s)
	switch {
	case errors.Is(err, errEnded):
		h.misused(r, "session refused", append(s.who(), "reason", err.Error())...)
		h.notSignedIn(w, r)
	case err != nil:
		h.internal(w, r, err)
	}
	return err == nil
}

// deliver gives the answer to the program that waits, or returns where to take it.
func (h *handler) deliver(ctx context.Context, s *session, answer url.Values) (back string, err error) {
	if s.Device != nil {
		return "", h.answerDevice(ctx, s.Device, answer)
	}
	if _, err := redirect.Loopback(s.Login.Redirect, false); err != nil {
		return "", err
	}
	return s.Login.back(h.external.String(), answer), nil
}

// done sends the browser on to the CLI.
func (h *handler) done(w http.ResponseWriter, r *http.Request) {
	var o outcome
	if h.openCookie(r, doneCookie, &o) != nil {
		if _, ok := h.openSession(w, r); ok {
			http.Redirect(w, r, "/services", http.StatusSeeOther)
		}
		return
	}
	if o.Problem.Status != 0 {
		o.Problem.Refresh = o.Back
		h.fail(w, r, o.Problem)
		return
	}
	if o.Back != "" {
		w.Header().Set("Refresh", "0; url="+o.Back)
	}
	h.page(w, r, http.StatusOK, "done.html", o.Back)
}

// claimWords says in plain words what a permission claim asks for.
func claimWords(c v1alpha1.PermissionClaim) string {
	where := "your namespaces"
	if n := c.Selector.Namespaces; len(n) > 0 && !slices.Contains(n, "*") {
		where = "your namespaces " + fewOf(n)
	}
	words := "Writes " + c.String() + " into " + where
	if c.Selector.Owner == v1alpha1.OwnerConsumer {
		words = "Reads " + c.String() + " of " + where
	}
	words += ": " + selectionWords(c.Selector)
	if c.Create != nil && c.Create.ReplaceExisting {
		words += " Replaces what is there already under the same name."
	}
	if !c.Required {
		words += " You may refuse."
	}
	return words
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
