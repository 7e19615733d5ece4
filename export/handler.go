// SPDX-License-Identifier: Apache-2.0

package export

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/offer"
	"github.com/klutch-go/sdk/internal/limit"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const (
	maxBody = 64 << 10

	txnCookie     = "__Host-klutch-txn"     // a login at the issuer, in flight
	sessionCookie = "__Host-klutch-session" // somebody who is signed in
	doneCookie    = "__Host-klutch-done"    // the answer for the CLI
	maxCookie     = 3900                    // bytes; browsers take 4096 with name and attributes
)

//go:embed pages
var files embed.FS

// A handler serves the handshake. It keeps no state but the sealed cookies of the
// browsers.
type handler struct {
	*Exporter
	pages     *template.Template
	style     []byte
	addresses *limit.Limiter // of requests
	networks  *limit.Limiter // of requests
	subjects  *limit.Limiter // of identities that sign in or bind
	views     *limit.Limiter // of identities that look at what is on offer
	polls     *limit.Limiter // of programs that wait for a person
	refusals  *refusals
}

// A route is a method, a path, and who answers. The routes that need a login show
// nothing without one.
type route struct {
	pattern string
	login   bool
	serve   http.HandlerFunc
}

// Handler returns the HTTP handshake: discovery, login, the page on which a person
// chooses services, and the endpoint at which kubectl-bind redeems its one-time
// code. It answers nothing but 404 if Options had no Provider.
func (e *Exporter) Handler() http.Handler {
	if e.opts.Provider == nil {
		return http.NotFoundHandler()
	}
	h := newHandler(e)
	mux := http.NewServeMux()
	for _, r := range slices.Concat(h.routes(), h.legacyRoutes(), h.deviceRoutes()) {
		mux.HandleFunc(r.pattern, r.serve)
	}
	protect := http.NewCrossOriginProtection()
	protect.SetDenyHandler(http.HandlerFunc(h.crossOrigin))
	return h.identify(h.observe(h.guard(h.limitAddress(protect.Handler(mux)))))
}

func newHandler(e *Exporter) *handler {
	style, _ := files.ReadFile("pages/style.css")
	pages := template.Must(template.New("").Funcs(template.FuncMap{"claim": claimWords, "dict": dict}).ParseFS(files, "pages/*.html"))
	h := &handler{Exporter: e, pages: pages, style: style, refusals: newRefusals()}
	limits := e.opts.Handshake.Limits.withDefaults()
	h.addresses, h.networks = limit.PerMinute(limits.PerAddress), limit.PerMinute(networkFactor*limits.PerAddress)
	h.subjects, h.views = limit.PerMinute(limits.PerSubject), limit.PerMinute(limits.PerSubject)
	h.polls = limit.PerMinute(devicePolls)
	return h
}

// dict makes a map of keys and values, for templates.
func dict(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func (h *handler) routes() []route {
	return []route{
		{"GET /{$}", false, h.home},
		{"GET /healthz", false, h.health},
		{"GET /style.css", false, h.stylesheet},
		{"GET /export", false, h.discovery},
		{"GET /authorize", false, h.authorize},
		{"GET " + callbackPath, false, h.callback},
		{"GET " + callbackPath + "/{issuer}", false, h.callback},
		{"GET /services", true, h.services},
		{"GET /resources", true, h.services}, // as other backends call it
		{"POST /bind", true, h.bind},
		{"GET /done", true, h.done},
		{"POST /logout", false, h.logout},
		{"POST /token", false, h.token},
		{"POST /bind-noninteractive", true, h.bindMachine},
	}
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

// sealer seals and opens what travels with a browser or program.
func (h *handler) sealer() *auth.Sealer {
	if h.opts.Handshake.Sealer != nil {
		return h.opts.Handshake.Sealer()
	}
	return h.opts.Sealer
}

// guard limits what comes in and sets what every answer needs to be inert.
func (h *handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if h.external.Scheme == "https" {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// url returns the absolute URL of a path.
func (h *handler) url(path string) string { return h.external.JoinPath(path).String() }

func (h *handler) health(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

func (h *handler) stylesheet(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/css; charset=utf-8")
	w.Header().Set("Cache-Control", "max-age=3600")
	_, _ = w.Write(h.style)
}

// discovery says how to log in. It needs neither the issuer nor the API server.
func (h *handler) discovery(w http.ResponseWriter, _ *http.Request) {
	grant := &v1alpha1.OAuth2CodeGrant{AuthenticatedURL: h.url("/authorize"), TokenURL: h.url("/token"), Issuer: h.external.String()}
	if h.opts.Handshake.Devices != nil {
		grant.DeviceURL = h.url(devicePage)
	}
	writeJSON(w, http.StatusOK, v1alpha1.BindingProvider{
		TypeMeta:           metav1.TypeMeta{APIVersion: v1alpha1.BindingProviderAPIVersion, Kind: "BindingProvider"},
		Version:            h.opts.Version,
		ProviderPrettyName: h.opts.Name,
		AuthenticationMethods: []v1alpha1.AuthenticationMethod{{
			Method: v1alpha1.MethodOAuth2CodeGrant, OAuth2CodeGrant: grant,
		}},
	})
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // an error is the client's loss
}

// errTooLarge says that something is more than browsers take.
var errTooLarge = errors.New("does not fit a cookie")

// setCookie seals value into a cookie.
func (h *handler) setCookie(w http.ResponseWriter, name string, value any, life time.Duration) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	sealed, err := h.sealer().SealUntil(name, data, time.Now().Add(life))
	if err != nil {
		return err
	}
	if len(sealed) > maxCookie {
		return fmt.Errorf("%s %w", name, errTooLarge)
	}
	http.SetCookie(w, cookie(name, sealed, life))
	return nil
}

func clearCookie(w http.ResponseWriter, name string) {
	http.SetCookie(w, cookie(name, "", -time.Second))
}

// cookie is secure also on plain http: browsers treat a loopback address as safe.
func cookie(name, value string, life time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: "/", MaxAge: int(life.Seconds()),
		Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// errNoCookie says that a browser brought no such cookie, or none that counts.
var errNoCookie = errors.New("no valid cookie")

func (h *handler) openCookie(r *http.Request, name string, into any) error {
	c, err := r.Cookie(name)
	if err != nil {
		return errNoCookie
	}
	data, err := h.sealer().Open(name, c.Value)
	if errors.Is(err, auth.ErrSealed) {
		h.refused(r, "cookie refused", "cookie", name)
	}
	if err != nil || json.Unmarshal(data, into) != nil {
		return errNoCookie
	}
	return nil
}

// A problem is what went wrong, in words for the person at the browser.
type problem struct {
	Status      int
	Title, What string
	Next        string   // what to do now
	Items       []string // what it is about
	Offer       []string // what there is instead
	Refresh     string   // where the browser goes from here; empty is nowhere
}

// fail shows a problem, as a page or in JSON.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, p problem) {
	if p.Refresh != "" {
		w.Header().Set("Refresh", "3; url="+p.Refresh)
	}
	if accept := r.Header.Get("Accept"); isAPI(r) || strings.Contains(accept, "application/json") && !strings.Contains(accept, "text/html") {
		writeJSON(w, p.Status, oauthError{Code: "server_error", Description: strings.TrimSpace(p.Title + ". " + p.What), Next: p.Next})
		return
	}
	h.page(w, r, p.Status, "problem.html", p)
}

// page renders a template with the name of the backend around it.
func (h *handler) page(w http.ResponseWriter, r *http.Request, code int, name string, data any) {
	var body strings.Builder
	err := h.pages.ExecuteTemplate(&body, name, map[string]any{
		"Backend": h.opts.Name, "URL": h.external.String(), "Request": w.Header().Get(requestHeader), "Data": data,
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

func (h *handler) home(w http.ResponseWriter, r *http.Request) {
	h.page(w, r, http.StatusOK, "home.html", nil)
}

func (h *handler) crossOrigin(w http.ResponseWriter, r *http.Request) {
	h.refused(r, "form refused", "path", pathOf(r), "origin", originOf(r), "reason", "sent by another site")
	h.fail(w, r, problem{
		Status: http.StatusForbidden, Title: "Refused",
		What: "Another site tried to send this form.", Next: "Start again from your terminal.",
	})
}

// internal shows that something is wrong on our side, and logs what.
func (h *handler) internal(w http.ResponseWriter, r *http.Request, err error) {
	logr.FromContextOrDiscard(r.Context()).Error(err, "handshake", "path", r.URL.Path)
	h.fail(w, r, problem{
		Status: http.StatusServiceUnavailable, Title: "This did not work",
		What: "The control plane could not do what is needed. The reason is in the log of the backend.",
		Next: "Try again in a minute. If it stays like this, tell the platform team.",
	})
}

// An offering is what a person may bind, and why not what else was asked for.
type offering struct {
	Allowed []offer.Service
	Unknown []string // asked for, but not on offer
	Refused []string // asked for, but not for this person
	Absent  []string // asked for, but its API is not there at the moment
	Unfit   []string // asked for, but cluster-scoped
}

// offerTo sorts the catalogue and what was asked for.
func (h *handler) offerTo(ctx context.Context, s *session, asked []string) (*offering, error) {
	services, err := h.opts.Catalog.Services(ctx)
	if err != nil {
		return nil, err
	}
	o := &offering{}
	known := map[string]*[]string{}
	for _, service := range services {
		switch err := h.opts.Authorizer.Authorize(ctx, &s.Identity, service); {
		case errors.Is(err, offer.ErrForbidden):
			known[service.Name()] = &o.Refused
		case err != nil:
			return nil, err
		case !service.Available():
			known[service.Name()] = &o.Absent
		case service.Scope == v1alpha1.ClusterScope:
			known[service.Name()] = &o.Unfit
		default:
			known[service.Name()] = nil
			o.Allowed = append(o.Allowed, service)
		}
	}
	for _, name := range asked {
		list, ok := known[name]
		switch {
		case !ok:
			o.Unknown = append(o.Unknown, name)
		case list != nil:
			*list = append(*list, name)
		}
	}
	return o, nil
}

// names are those of the services that the person may bind.
func (o *offering) names() []string {
	var names []string
	for _, s := range o.Allowed {
		names = append(names, s.Name())
	}
	return names
}

// missing reports how many of the services that were asked for cannot be had.
func (o *offering) missing() int {
	return len(o.Unknown) + len(o.Refused) + len(o.Absent) + len(o.Unfit)
}

// problem says why services that were asked for cannot be had.
func (o *offering) problem() problem {
	p := problem{Offer: few(o.names()), Next: "Choose from what is on offer, or ask the platform team."}
	switch {
	case len(o.Refused) > 0:
		p.Status, p.Title, p.Items = http.StatusForbidden, "Not allowed", o.Refused
		p.What = "The platform team has not allowed you to bind"
	case len(o.Unknown) > 0:
		p.Status, p.Title, p.Items = http.StatusNotFound, "Not on offer", o.Unknown
		p.What = "This platform does not offer"
	case len(o.Unfit) > 0:
		p.Status, p.Title, p.Items = http.StatusConflict, "Not for App Clusters", o.Unfit
		p.What, p.Next = "App Clusters can have namespaced APIs alone, and cluster-scoped is", offer.AdviceUnfit
	default:
		p.Status, p.Title, p.Items = http.StatusConflict, "Not available", o.Absent
		p.What = "On offer, but not there at the moment"
	}
	p.Items = few(p.Items)
	return p
}

// few cuts a list to what one takes in at a glance, and what fits a cookie.
func few(names []string) []string {
	const limit = 8
	if len(names) <= limit {
		return names
	}
	return append(slices.Clone(names[:limit]), "…")
}

// answer is problem for a program, RFC 6749 section 4.1.2.1.
func (o *offering) answer() *auth.Error {
	p := o.problem()
	code := "access_denied"
	if p.Status != http.StatusForbidden {
		code = "invalid_scope"
	}
	description := p.What + " " + strings.Join(p.Items, ", ")
	if len(p.Offer) > 0 {
		description += "; on offer: " + strings.Join(p.Offer, ", ")
	}
	return &auth.Error{Code: code, Description: description}
}
