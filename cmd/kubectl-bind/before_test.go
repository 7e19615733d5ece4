// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// What can be seen to be wrong is said before anybody logs in, and nobody is asked.
func TestBeforeTheBrowser(t *testing.T) {
	backend := newFakeAPI(t, nil)
	empty := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", empty)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"accepted and rejected": {[]string{backend.URL, "--accept-claim", "secrets", "--reject-claim", "secrets"}, exitUsage, "secrets is both accepted and rejected"},
		"no claim":              {[]string{backend.URL, "--accept-claim", "Secrets please"}, exitUsage, "is no claim"},
		"a slip in a command":   {[]string{"statu"}, exitUsage, "Did you mean: status?"},
		"no kubeconfig":         {[]string{"status"}, exitError, "--kubeconfig or KUBECONFIG"},
		"none for a bind":       {[]string{backend.URL}, exitError, "--kubeconfig or KUBECONFIG"},
	} {
		r := terminal{}.run(t.Context(), c.args...)
		if r.code != c.code || !strings.Contains(r.errOut, c.says) {
			t.Errorf("%s: %s", name, r)
		}
	}
	if len(backend.requests) > 0 {
		t.Errorf("asked %v", backend.requests)
	}
}
