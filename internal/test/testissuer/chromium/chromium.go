// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klutch-go/sdk/internal/test/tempdir"
)

// Options of a browser. The zero value works.
type Options struct {
	// Trust is the certificate of a server that no authority vouches for.
	Trust *x509.Certificate
}

// Start opens an empty page, whose browser ends with the test. It skips the test
// where Chromium is not installed.
func Start(tb testing.TB, opts Options) *Page {
	tb.Helper()
	program, err := find()
	if err != nil {
		tb.Skip("Chromium is not installed: the pages are not tested in a real browser. On Debian: apt-get install chromium")
	}
	p := &Page{TB: tb, changed: make(chan struct{}, 1)}
	if err := p.launch(program, opts.flags()); err != nil {
		tb.Fatalf("start %s: %v", program, err)
	}
	p.attach()
	return p
}

func find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// flags make a browser that asks no host on the network for anything of its own. Its
// sandbox works neither for root nor in most containers; the pages are the test's.
func (o Options) flags() []string {
	flags := []string{
		"--headless", "--remote-debugging-pipe", "--no-sandbox", "--no-first-run", "--no-default-browser-check", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-extensions", "--disable-breakpad", "--disable-dev-shm-usage",
		"--disable-gpu", "--log-level=3", "--force-color-profile=srgb", "--hide-scrollbars", "--password-store=basic",
	}
	if o.Trust != nil {
		key := sha256.Sum256(o.Trust.RawSubjectPublicKeyInfo)
		flags = append(flags, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	}
	return flags
}

// launch starts the browser and sees to its end.
func (p *Page) launch(program string, flags []string) error {
	profile, remove, err := tempdir.Make("chromium")
	if err != nil {
		return err
	}
	p.Cleanup(func() { _ = remove() })
	commands, toBrowser, err := os.Pipe()
	if err != nil {
		return err
	}
	fromBrowser, answers, err := os.Pipe()
	if err != nil {
		return errors.Join(err, commands.Close(), toBrowser.Close())
	}
	var log strings.Builder
	cmd := exec.Command(program, append(slices.Clip(flags), "--user-data-dir="+profile, "about:blank")...) //nolint:noctx // it ends with its pipe
	cmd.Env = append(os.Environ(), "HOME="+profile, "XDG_CONFIG_HOME="+profile, "XDG_CACHE_HOME="+profile)
	cmd.ExtraFiles = []*os.File{commands, answers} // 3 and 4
	cmd.Stderr = &log
	cmd.WaitDelay = patience
	err = cmd.Start()
	_, _ = commands.Close(), answers.Close()
	if err != nil {
		return errors.Join(err, toBrowser.Close(), fromBrowser.Close())
	}
	p.pipe = newPipe(toBrowser, p.hear)
	var reading sync.WaitGroup
	reading.Go(func() { p.pipe.read(fromBrowser) })
	p.Cleanup(func() {
		p.end(cmd)
		reading.Wait()
		_, _ = toBrowser.Close(), fromBrowser.Close()
		if p.Failed() {
			p.Logf("Chromium said:\n%s", &log)
		}
	})
	return nil
}

// end closes the browser, by force if it does not go.
func (p *Page) end(cmd *exec.Cmd) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.Context()), patience)
	defer cancel()
	_ = p.pipe.call(ctx, "", "Browser.close", nil, nil)
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	_ = cmd.Wait()
}

// attach opens the page and makes the browser tell all that it knows of it.
func (p *Page) attach() {
	p.Helper()
	var target struct{ TargetID string }
	p.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		p.must(domain+".enable", nil, nil)
	}
	p.must("Page.setLifecycleEventsEnabled", map[string]any{"enabled": true}, nil)
	p.must("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	p.must("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
}
