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
	// Tell has lines for people about what is wrong and does not count for Ready; nil has
	// none. /readyz and /healthz add them.
	Tell func() string
}

// ServeHTTP answers 200 "ok" and what there is to tell, or 503 with the reason.
func (h Health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	check, tell := h.Ready, h.Tell
	switch r.URL.Path {
	case "/livez":
		check, tell = h.Live, nil
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
	if tell != nil {
		_, _ = fmt.Fprint(w, tell())
	}
}
