// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"cmp"
	"embed"
	"encoding/json"
	"html/template"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

//go:embed pages
var files embed.FS

// A renderer answers people with pages, and programs with JSON.
type renderer struct {
	opts     *Options
	visitors *visitors
	pages    *template.Template
	style    []byte
}

func newRenderer(opts *Options, v *visitors) *renderer {
	style, _ := files.ReadFile("pages/style.css")
	pages := template.Must(template.New("").Funcs(template.FuncMap{"claim": ClaimWords, "dict": dict}).ParseFS(files, "pages/*.html"))
	return &renderer{opts, v, pages, style}
}

// A problem is what went wrong, in words for the person at the browser.
type problem struct {
	Status      int
	Title, What string
	Next        string   // what to do now
	Items       []string // what it is about
	Offer       []string // what there is instead
	Refresh     string   // where the browser goes from here; empty is nowhere
	Again       string   // where to sign in again; empty is nowhere
	Code        string   // for programs; empty means server_error
}

// fail shows a problem, as a page or in JSON.
func (h *renderer) fail(w http.ResponseWriter, r *http.Request, p problem) {
	if p.Refresh != "" {
		w.Header().Set("Refresh", "3; url="+p.Refresh)
	}
	if accept := r.Header.Get("Accept"); isAPI(r) || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		writeJSON(w, p.Status, OAuthError{Code: cmp.Or(p.Code, "server_error"), Description: strings.TrimSpace(p.Title + ". " + p.What), Next: p.Next})
		return
	}
	h.page(w, r, p.Status, "problem.html", p)
}

// page renders a template with the name of the backend around it.
func (h *renderer) page(w http.ResponseWriter, r *http.Request, code int, name string, data any) {
	var body strings.Builder
	err := h.pages.ExecuteTemplate(&body, name, map[string]any{
		"Backend": h.opts.Name, "URL": h.opts.External.String(), "Request": w.Header().Get(RequestHeader), "Data": data,
	})
	if err != nil {
		logr.FromContextOrDiscard(r.Context()).Error(err, "render page", "page", name)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(body.String()))
}

func (h *renderer) home(w http.ResponseWriter, r *http.Request) {
	h.page(w, r, http.StatusOK, "home.html", nil)
}

func (h *renderer) stylesheet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(h.style)
}

func (h *renderer) crossOrigin(w http.ResponseWriter, r *http.Request) {
	h.visitors.refused(r, "form refused", "path", pathOf(r), "origin", originOf(r), "reason", "sent by another site")
	h.fail(w, r, problem{
		Status: http.StatusForbidden, Title: "This form came from another site",
		What: "It was not sent from a page of this platform, and nothing was done.", Next: "Start again from your terminal.",
	})
}

// unable is what a person is shown where the control plane fails.
var unable = problem{
	Status: http.StatusServiceUnavailable, Title: "The platform cannot do this now",
	What: "The control plane could not do what is needed. The reason is in the log of the backend.",
	Next: "Try again in a minute. If it stays like this, tell the platform team.",
}

// internal shows that something is wrong on our side, and logs what.
func (h *renderer) internal(w http.ResponseWriter, r *http.Request, err error) {
	h.visitors.failed(r, err)
	h.fail(w, r, unable)
}

// instead answers what no route of mux serves, which has words for programmers only.
func (h *renderer) instead(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		answer := &headOnly{header: http.Header{}}
		handler.ServeHTTP(answer, r)
		p := problem{Code: "invalid_request", Status: answer.code, Title: "There is no such page", Next: "Run kubectl bind " + h.opts.External.String() + " and use the link that it prints."}
		if allow := answer.header.Get("Allow"); allow != "" {
			w.Header().Set("Allow", allow)
			p.Title, p.What = "This page cannot be opened by its address", "It is one step of a login, and your browser comes by it from the page before."
		}
		h.fail(w, r, p)
	})
}

// headOnly takes an answer without its body.
type headOnly struct {
	header http.Header
	code   int
}

func (a *headOnly) Header() http.Header { return a.header }

func (a *headOnly) Write(data []byte) (int, error) { return len(data), nil }

func (a *headOnly) WriteHeader(code int) { a.code = code }

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error is the client's loss
}

// isAPI reports whether a request is that of a program, which is answered in JSON.
func isAPI(r *http.Request) bool {
	switch r.URL.Path {
	case "/token", "/bind-noninteractive":
		return true
	case devicePage:
		return r.Method == http.MethodPost
	}
	return false
}

// dict makes a map of keys and values, for templates.
func dict(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func (h *renderer) badLink(w http.ResponseWriter, r *http.Request, wrong string) {
	h.fail(w, r, problem{
		Status: http.StatusBadRequest, Title: "This link does not work", What: wrong,
		Next: "Run kubectl bind " + h.opts.External.String() + " and use the link that it prints.",
	})
}

func (h *renderer) notSignedIn(w http.ResponseWriter, r *http.Request) {
	h.fail(w, r, problem{
		Status: http.StatusUnauthorized, Title: "You are not signed in",
		What: "There is no login in this browser, or it has ended.",
		Next: h.anew(),
	})
}

// anew says how to begin again, or to go on with a terminal that waits.
func (h *renderer) anew() string {
	next := "Run kubectl bind " + h.opts.External.String() + " and follow the link that it prints."
	if h.opts.Devices != nil {
		next += " If kubectl bind --device still waits, enter its code at " + h.opts.url(devicePage) + "."
	}
	return next
}

func (h *renderer) otherLogin(w http.ResponseWriter, r *http.Request) {
	h.visitors.refused(r, "form refused", "path", pathOf(r), "origin", originOf(r), "reason", "belongs to another login")
	h.fail(w, r, problem{
		Status: http.StatusConflict, Title: "Another login was begun in this browser",
		What: "This page belongs to a login that is not the last one.", Next: "Close this page and use the other one.",
	})
}

// refuseJSON answers a program whose request failed.
func (h *renderer) refuseJSON(w http.ResponseWriter, r *http.Request, err error) {
	refused := AsOAuth(err)
	if refused == nil {
		h.visitors.failed(r, err)
		refused = &OAuthError{
			Status: http.StatusServiceUnavailable, Code: CodeUnavailable, Description: "the control plane could not do what is needed",
			Next: "try again in a minute; if it stays like this, tell the platform team",
		}
	}
	if refused.Authenticate != "" {
		w.Header().Set("WWW-Authenticate", refused.Authenticate)
	}
	if refused.Code == CodeUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	writeJSON(w, cmp.Or(refused.Status, http.StatusBadRequest), refused)
}

// tooMany answers 429.
func (h *renderer) tooMany(w http.ResponseWriter, r *http.Request, wait time.Duration) {
	h.visitors.refused(r, "request limited", "path", pathOf(r))
	w.Header().Set("Retry-After", strconv.Itoa(seconds(wait)))
	if isAPI(r) {
		writeJSON(w, http.StatusTooManyRequests, OAuthError{Code: "slow_down", Description: "too many requests", Next: waitWords(wait)})
		return
	}
	h.fail(w, r, problem{Status: http.StatusTooManyRequests, Title: "Too many requests", Next: "Please " + waitWords(wait) + "."})
}

func waitWords(wait time.Duration) string {
	return "try again in " + strconv.Itoa(seconds(wait)) + " s"
}

func seconds(wait time.Duration) int { return int(math.Ceil(wait.Seconds())) }

// ClaimWords says in plain words what a permission claim asks for.
func ClaimWords(c v1alpha1.PermissionClaim) string {
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
