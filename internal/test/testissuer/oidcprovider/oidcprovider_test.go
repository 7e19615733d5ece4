// SPDX-License-Identifier: Apache-2.0

package oidcprovider_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/klutch-go/sdk/internal/test/testissuer/oidcprovider"
)

func TestStart(t *testing.T) {
	issuer := oidcprovider.Start(t, oidcprovider.Options{})
	resp, err := http.Get(issuer + "/.well-known/openid-configuration")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var doc struct{ Issuer string }
	if err := json.NewDecoder(resp.Body).Decode(&doc); err != nil || doc.Issuer != issuer {
		t.Errorf("issuer = %q, %v, want %q", doc.Issuer, err, issuer)
	}
}

// A lock file with addresses would have everybody download from one registry.
func TestLockNamesNoAddress(t *testing.T) {
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) || !strings.Contains(string(lock), `"integrity"`) {
		t.Error("package-lock.json must hold checksums and no addresses: npm install --package-lock-only --omit-lockfile-registry-resolved")
	}
	if strings.Contains(string(lock), "://registry") {
		t.Error("package-lock.json names a registry")
	}
}
