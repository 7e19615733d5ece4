// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// scrape returns our own lines of a page, without those of durations.
func scrape(t *testing.T, page http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	page.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var ours []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, "klutch_") && !strings.Contains(line, "_bucket{") && !strings.Contains(line, "_sum{") {
			ours = append(ours, line)
		}
	}
	return strings.Join(ours, "")
}
