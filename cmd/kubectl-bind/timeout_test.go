// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// An API server that takes a question and never answers keeps no command for longer than
// --timeout says, whichever question that is; and none ends as if all were well.
func TestNoCommandOutlivesItsTime(t *testing.T) {
	silent := []string{
		group, bindingsPath, "/api/v1", "/apis/apps/v1", "/apis/anynines.com/v1/postgresqlinstances",
		"/apis/coordination.k8s.io/v1/namespaces/klutch-bind/leases/klutch-bind",
		"/api/v1/namespaces/klutch-bind/secrets/kubeconfig-abcde",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + sick,
	}
	for _, command := range []string{
		"status", "status " + sick, "doctor", "doctor --takeover", "claims", "unbind " + sick, "recover " + sick + " --yes",
		"konnector install --image a/b:c", "konnector uninstall", "offer " + sick,
	} {
		for _, path := range silent {
			t.Run(command+path, func(t *testing.T) {
				t.Parallel()
				w, asked := lostOf(t), atomic.Bool{}
				answers := w.app.Config.Handler
				w.app.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					if r.URL.Path == path {
						asked.Store(true)
						<-r.Context().Done()
						return
					}
					answers.ServeHTTP(rw, r)
				})
				began := time.Now()
				r := terminal{}.run(t.Context(), append(strings.Fields(command), "--timeout", "2s", "--kubeconfig", w.app.kubeconfig(t))...)
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("it took %s", took)
				}
				if asked.Load() && r.code != exitNotReady {
					t.Errorf("%s", r)
				}
			})
		}
	}
}
