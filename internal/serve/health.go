// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"fmt"
	"net/http"
)

// Health answers /livez, /readyz and /healthz. The zero value always says ok.
type Health struct {
	// Ready says why the program cannot do its work at the moment; nil is ready.
	// It is asked by /readyz and /healthz.
	Ready func() error
	// Live says why the program should be restarted; nil is alive.
	Live func() error
}

// ServeHTTP answers 200 "ok" or 503 with the reason.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	check := h.Ready
	switch r.URL.Path {
	case "/livez":
		check = h.Live
	case "/readyz", "/healthz":
	default:
		http.NotFound(w, r)
		return
	}
	if check != nil {
		if err := check(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	_, _ = fmt.Fprintln(w, "ok")
}
