// SPDX-License-Identifier: Apache-2.0

// Package oidcprovider runs a certified OpenID Connect provider, the npm package
// oidc-provider, so that what this module believes of issuers is judged by one that
// it has not written:
//
//	issuer := oidcprovider.Start(t, oidcprovider.Options{…})
//
// It needs Node and npm, and skips the test without. The provider is installed into
// the user's cache folder, once for each version of the lock file.
package oidcprovider

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

//go:embed package.json package-lock.json provider.mjs
var files embed.FS

// Options describe a provider.
type Options struct {
	// Users by subject, with their claims. They log in with any password.
	Users map[string]map[string]any `json:"users"`
	// Clients in the form of RFC 7591.
	Clients []map[string]any `json:"clients"`
	// Audience and Scopes are of the access tokens for any resource.
	Audience string   `json:"audience"`
	Scopes   []string `json:"scopes"`
}

// Start runs a provider until the test ends and returns its issuer URL. It skips
// the test where there is no Node 20 or no npm, and, except in CI, where npm cannot
// get the provider.
func Start(tb testing.TB, opts Options) (issuer string) {
	tb.Helper()
	const untested = "the login at a certified OpenID provider is not tested"
	if lack := lacking(tb.Context()); lack != "" {
		tb.Skipf("%s: %s. On Debian: apt-get install nodejs npm", lack, untested)
	}
	dir, err := install(tb.Context())
	switch {
	case err != nil && os.Getenv("CI") == "":
		tb.Skipf("%s: install oidc-provider: %v", untested, err)
	case err != nil:
		tb.Fatalf("install oidc-provider: %v", err)
	}
	config, err := json.Marshal(opts)
	if err != nil {
		tb.Fatal(err)
	}
	issuer, err = serve(tb, dir, config)
	if err != nil {
		tb.Fatalf("start oidc-provider: %v", err)
	}
	return issuer
}

// lacking says what the provider needs and is not here.
func lacking(ctx context.Context) string {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return program + " is not installed"
		}
	}
	version, err := exec.CommandContext(ctx, "node", "--version").Output()
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, _ := strconv.Atoi(major); err != nil || n < 20 {
		return fmt.Sprintf("node %s is older than 20", strings.TrimSpace(string(version)))
	}
	return ""
}

// install returns a folder in which the provider can run.
func install(ctx context.Context) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	// Another process may do the same: the first whole folder counts.
	temp, err := os.MkdirTemp(filepath.Dir(dir), "oidc-provider-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // it has become dir, or it is rubbish
	if err := os.CopyFS(temp, files); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier")
	npm.Dir = temp
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(temp, dir); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return dir, nil
}

// cacheDir names the folder after what is in it.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json", "provider.mjs"} {
		content, err := files.ReadFile(name)
		if err != nil {
			return "", err
		}
		sum.Write(content)
	}
	return filepath.Join(base, "klutch", "oidc-provider-"+hex.EncodeToString(sum.Sum(nil)[:8])), nil
}

// serve runs the provider until the test ends.
func serve(tb testing.TB, dir string, config []byte) (issuer string, err error) {
	tb.Helper()
	node := exec.Command("node", "provider.mjs") //nolint:noctx // it ends with its standard input
	node.Dir = dir
	var log strings.Builder
	node.Stderr = &log
	stdin, err := node.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := node.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := node.Start(); err != nil {
		return "", err
	}
	tb.Cleanup(func() {
		_ = stdin.Close()
		if err := node.Wait(); err != nil || tb.Failed() {
			tb.Logf("oidc-provider: %v\n%s", err, &log)
		}
	})
	if _, err := stdin.Write(append(config, '\n')); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	return strings.TrimSpace(line), err
}
