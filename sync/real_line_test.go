// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Line is the configuration of a client whose requests to an API server go through
// what through makes of a proxy.
func Line(tb testing.TB, config *rest.Config, through func(proxy http.Handler) http.Handler) *rest.Config {
	tb.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		tb.Fatal(err)
	}
	server := httptest.NewServer(through(&httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
	}))
	tb.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// Fail answers a request with a failure of a kind, or not at all.
func Fail(w http.ResponseWriter, kind string) {
	none := schema.GroupResource{Group: "example.org", Resource: "widgets"}
	err := map[string]*apierrors.StatusError{
		"conflict":    apierrors.NewConflict(none, "", errors.New("the object has been modified")),
		"throttled":   apierrors.NewTooManyRequests("slow down", 1),
		"internal":    apierrors.NewInternalError(errors.New("etcdserver: leader changed")),
		"unavailable": apierrors.NewServiceUnavailable("starting"),
		"forbidden":   apierrors.NewForbidden(none, "", errors.New("may not do that")),
		"expired":     apierrors.NewUnauthorized("Unauthorized"),
		"gone":        apierrors.NewResourceExpired("too old resource version"),
	}[kind]
	if err == nil {
		panic(http.ErrAbortHandler)
	}
	if kind == "throttled" {
		w.Header().Set("Retry-After", "1")
	}
	status := err.ErrStatus
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status) // a client that does not read it does not want it
}
