// SPDX-License-Identifier: Apache-2.0

package handshake

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// MaxBody is how many bytes a request may have.
const MaxBody = 64 << 10

// A route is a method, a path, and who answers. The routes that need a login show
// nothing without one.
type route struct {
	Pattern string
	Login   bool
	serve   http.HandlerFunc
}

// A Server serves the handshake. It keeps no state but the sealed cookies of the
// browsers, and counts of requests.
type Server struct {
	Opts      *Options
	visitors  *visitors
	pages     *renderer
	limits    *limits
	cookies   *cookies
	sessions  *sessions
	binder    *binder
	terminals *terminals
	endings   *endings
	logins    *logins
	chooser   *chooser
	redeemer  *redeemer
	devices   *devicePages
	machines  *machines
	legacy    *legacy
}

// New returns the handler of the handshake.
func New(opts Options) http.Handler { return newServer(&opts).handler() }

func newServer(opts *Options) *Server {
	v := &visitors{opts: opts, refusals: newRefusals()}
	p := newRenderer(opts, v)
	l := newLimits(opts, v, p)
	c := &cookies{opts, v}
	ss := &sessions{opts, v, p, c}
	b := &binder{opts}
	t := &terminals{opts, l}
	e := &endings{opts, v, p, c, ss, t}
	in := &logins{opts, v, p, c, ss, l, b, e, t}
	return &Server{
		opts, v, p, l, c, ss, b, t, e, in,
		&chooser{opts, p, ss, l, b, e},
		&redeemer{opts, v, p, ss, l, b, t},
		&devicePages{opts, p, c, ss, l, t, in},
		&machines{opts, v, p, l, b},
		&legacy{opts, p, ss, c, l, b, e},
	}
}

// handler is the way of each request: who sends it, whether it counts, and to whom it goes.
func (h *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range slices.Concat(h.Routes(), h.legacyRoutes(), h.DeviceRoutes()) {
		mux.HandleFunc(r.Pattern, r.serve)
	}
	protect := http.NewCrossOriginProtection()
	protect.SetDenyHandler(http.HandlerFunc(h.pages.crossOrigin))
	return h.visitors.identify(h.visitors.observe(h.guard(h.limits.byAddress(protect.Handler(h.pages.instead(mux))))))
}

// Routes are the routes of all backends, beside legacyRoutes and DeviceRoutes.
func (h *Server) Routes() []route {
	return []route{
		{"GET /{$}", false, h.pages.home},
		{"GET /healthz", false, h.health},
		{"GET /style.css", false, h.pages.stylesheet},
		{"GET /export", false, h.discovery},
		{"GET /authorize", false, h.logins.authorize},
		{"GET " + CallbackPath, false, h.logins.callback},
		{"GET " + CallbackPath + "/{issuer}", false, h.logins.callback},
		{"GET /services", true, h.chooser.services},
		{"GET /resources", true, h.chooser.services}, // as other backends call it
		{"POST /bind", true, h.chooser.bind},
		{"GET /done", true, h.endings.done},
		{"POST /logout", false, h.logins.logout},
		{"POST /token", false, h.redeemer.token},
		{"POST /bind-noninteractive", true, h.machines.bind},
	}
}

// guard limits what comes in and sets what every answer needs to be inert.
func (h *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		if h.Opts.External.Scheme == "https" {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		next.ServeHTTP(w, r)
	})
}

func (h *Server) health(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

// discovery says how to log in. It needs neither the issuer nor the API server.
func (h *Server) discovery(w http.ResponseWriter, _ *http.Request) {
	grant := &v1alpha1.OAuth2CodeGrant{AuthenticatedURL: h.Opts.url("/authorize"), TokenURL: h.Opts.url("/token"), Issuer: h.Opts.External.String()}
	if h.Opts.Devices != nil { // what uses a code up that no tenant remembers
		grant.ScopesSupported = []string{v1alpha1.ScopeOffer}
	}
	if h.Opts.Devices != nil {
		grant.DeviceURL = h.Opts.url(devicePage)
	}
	writeJSON(w, http.StatusOK, v1alpha1.BindingProvider{
		TypeMeta:           metav1.TypeMeta{APIVersion: v1alpha1.BindingProviderAPIVersion, Kind: "BindingProvider"},
		Version:            h.Opts.Version,
		ProviderPrettyName: h.Opts.Name,
		AuthenticationMethods: []v1alpha1.AuthenticationMethod{{
			Method: v1alpha1.MethodOAuth2CodeGrant, OAuth2CodeGrant: grant,
		}},
	})
}
