// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHealthAndMetrics(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	for path, want := range map[string][2]int{"/livez": {200, 200}, "/readyz": {200, 200}, "/healthz": {200, 200}, "/metrics": {404, 418}, "/x": {404, 404}} {
		for i, metrics := range []http.Handler{nil, metrics} {
			w := httptest.NewRecorder()
			health(metrics, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if w.Code != want[i] {
				t.Errorf("%s: %d, want %d", path, w.Code, want[i])
			}
		}
	}
}
