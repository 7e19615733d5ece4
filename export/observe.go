// SPDX-License-Identifier: Apache-2.0

package export

import (
	"net/http"
	"strings"
	"time"
)

// observe tells the hooks about each request.
func (h *handler) observe(next http.Handler) http.Handler {
	hook := h.opts.Handshake.Hooks.Request
	if hook == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin, seen := time.Now(), &statusWriter{ResponseWriter: w, code: http.StatusOK}
		defer func() { hook(routeOf(r), seen.code, time.Since(begin)) }()
		next.ServeHTTP(seen, r)
	})
}

// routeOf is the path of the route that has served r, never what a client typed.
func routeOf(r *http.Request) string {
	_, path, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		return "other"
	}
	return strings.TrimSuffix(path, "{$}")
}

// A statusWriter notes the status.
type statusWriter struct {
	http.ResponseWriter

	code int
}

// WriteHeader implements [http.ResponseWriter].
func (w *statusWriter) WriteHeader(code int) {
	w.code = code
	w.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
