// SPDX-License-Identifier: Apache-2.0

package testplatform

import (
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// proxy passes requests on to an API server with the credential that they carry.
func proxy(upstream *rest.Config) (http.Handler, error) {
	target, _, err := rest.DefaultServerUrlFor(upstream)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(upstream))
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
			r.Out.Header.Del("Accept-Encoding")
			r.Out.Header.Set("Accept", asJSON(r.In.Header.Get("Accept")))
		},
	}, nil
}

// asJSON keeps the content types that a fault can read.
func asJSON(accept string) string {
	types := slices.DeleteFunc(strings.Split(accept, ","), func(t string) bool { return strings.Contains(t, "protobuf") || strings.Contains(t, "cbor") })
	if len(types) == 0 || types[0] == "" {
		return "application/json"
	}
	return strings.Join(types, ",")
}
