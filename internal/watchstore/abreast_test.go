// SPDX-License-Identifier: Apache-2.0

package watchstore

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// restored is an API server whose lists have this version, or that answers otherwise.
type restored struct {
	version string
	status  int
	asked   []string
}

func (r *restored) RoundTrip(req *http.Request) (*http.Response, error) {
	r.asked = append(r.asked, req.URL.RawQuery)
	body := `{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"` + r.version + `"},"items":[{"metadata":{"name":"a"}}]}`
	return &http.Response{StatusCode: r.status, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestAbreast(t *testing.T) {
	const one = "fieldSelector=metadata.name%3Da&limit=1"
	for name, c := range map[string]struct {
		query  string
		server restored
		want   int
		asked  []string
	}{
		"as far":           {"watch=true&resourceVersion=7&fieldSelector=metadata.name%3Da", restored{version: "7", status: 200}, 200, []string{one, "watch=true&resourceVersion=7&fieldSelector=metadata.name%3Da"}},
		"behind":           {"watch=true&resourceVersion=7&fieldSelector=metadata.name%3Da&timeoutSeconds=300&allowWatchBookmarks=true", restored{version: "6", status: 200}, 410, []string{one}},
		"refused":          {"watch=true&resourceVersion=7&fieldSelector=metadata.name%3Da", restored{status: 403}, 403, []string{one}},
		"begins anew":      {"watch=true&sendInitialEvents=true&resourceVersion=7", restored{version: "6", status: 200}, 200, []string{"watch=true&sendInitialEvents=true&resourceVersion=7"}},
		"from any version": {"watch=true&resourceVersion=0", restored{version: "6", status: 200}, 200, []string{"watch=true&resourceVersion=0"}},
		"a list":           {"resourceVersion=7", restored{version: "6", status: 200}, 200, []string{"resourceVersion=7"}},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:1/api/v1/secrets?"+c.query, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := Abreast(&c.server).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			if resp.StatusCode != c.want {
				t.Errorf("answered with %d, want %d", resp.StatusCode, c.want)
			}
			if diff := cmp.Diff(c.asked, c.server.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if body, err := io.ReadAll(resp.Body); c.want == http.StatusGone && (err != nil || !strings.Contains(string(body), `"reason":"Expired"`)) {
				t.Errorf("the answer is %q, %v", body, err)
			}
		})
	}
}

// The watches of Config go on only where the API server has come as far.
func TestConfigIsAbreast(t *testing.T) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:1/api/v1/secrets?watch=1&resourceVersion=7", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := through(&restored{version: "6", status: http.StatusOK}).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusGone {
		t.Errorf("answered with %d", resp.StatusCode)
	}
}
