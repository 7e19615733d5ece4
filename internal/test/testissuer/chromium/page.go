// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a page may take that takes milliseconds on an idle machine.
const patience = 2 * time.Minute

// A Page is the one tab of a browser. What does not work fails the test at once.
type Page struct {
	testing.TB

	pipe    *pipe
	session string
	changed chan struct{} // something has happened since it was last looked at

	mu         sync.Mutex
	complaints []string
	urls       []string
	loaded     []string // documents
}

// Open goes to a URL, and returns when what it leads to has loaded.
func (p *Page) Open(url string) {
	p.Helper()
	var went struct{ LoaderID, ErrorText string }
	p.must("Page.navigate", map[string]any{"url": url}, &went)
	if went.ErrorText != "" {
		p.Fatalf("open %s: %s", url, went.ErrorText)
	}
	p.await(url+" has loaded", func(context.Context) bool { return p.hasLoaded(went.LoaderID) })
}

func (p *Page) hasLoaded(loader string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.loaded, loader)
}

// Resize sets the size of the window in CSS pixels.
func (p *Page) Resize(width, height int) {
	p.Helper()
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
}

// Prefer tells pages what the person prefers: the scheme "light" or "dark".
func (p *Page) Prefer(scheme string) {
	p.Helper()
	p.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]any{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Type enters text where the focus is.
func (p *Page) Type(text string) {
	p.Helper()
	p.must("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses keys, one after the other: Tab, Enter, Space, as often as they are named.
func (p *Page) Press(keys ...string) {
	p.Helper()
	for _, name := range keys {
		key := map[string]map[string]any{
			"Tab":   {"key": "Tab", "windowsVirtualKeyCode": 9},
			"Enter": {"key": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"},
			"Space": {"key": " ", "windowsVirtualKeyCode": 32, "text": " "},
		}[name]
		if key == nil {
			p.Fatalf("no key %s", name)
		}
		key["code"] = name
		for _, what := range []string{"keyDown", "keyUp"} {
			key["type"] = what
			p.must("Input.dispatchKeyEvent", key, nil)
			delete(key, "text")
		}
	}
}

// PressUntil presses a key until a JavaScript expression holds, at most times.
func (p *Page) PressUntil(key string, times int, expression string) {
	p.Helper()
	for range times {
		if p.holds(expression) {
			return
		}
		p.Press(key)
	}
	if !p.holds(expression) {
		p.Fatalf("%d times %s, and still not %s", times, key, expression)
	}
}

// Eval evaluates a JavaScript expression, though the page itself may run none, and
// decodes its value.
func (p *Page) Eval(expression string, into any) {
	p.Helper()
	value, err := p.eval(p.Context(), expression)
	if err == nil {
		err = json.Unmarshal(value, into)
	}
	if err != nil {
		p.Fatalf("%s: %v", expression, err)
	}
}

// Await waits until a JavaScript expression holds, also on a page that comes later.
func (p *Page) Await(expression string) {
	p.Helper()
	p.await(expression, func(ctx context.Context) bool {
		value, err := p.eval(ctx, expression)
		return err == nil && string(value) == "true"
	})
}

// await looks again after each event.
func (p *Page) await(what string, done func(context.Context) bool) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	for !done(ctx) {
		select {
		case <-p.changed:
		case <-p.pipe.ended:
			p.Fatalf("await %s: %v", what, errEnded)
		case <-ctx.Done():
			p.Fatalf("not within %s: %s; the page is %s", patience, what, p.describe())
		}
	}
}

func (p *Page) holds(expression string) (held bool) {
	p.Helper()
	p.Eval("!!("+expression+")", &held)
	return held
}

func (p *Page) describe() string {
	p.Helper()
	value, err := p.eval(p.Context(), "location.href + '\\n' + document.body?.innerText")
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(value), `\n`, "\n")
}

func (p *Page) eval(ctx context.Context, expression string) (json.RawMessage, error) {
	var got struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	err := p.pipe.call(ctx, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &got)
	if err == nil && got.ExceptionDetails != nil {
		err = fmt.Errorf("throws %s", got.ExceptionDetails.Exception.Description)
	}
	return got.Result.Value, err
}

// Screenshot writes a picture of the whole page, in PNG.
func (p *Page) Screenshot(file string) {
	p.Helper()
	var shot struct{ Data string }
	p.must("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		p.Fatal(err)
	}
}

// Complaints are what the browser objected to since it was started.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.complaints)
}

// URLs are those that the browser has asked for, redirects included.
func (p *Page) URLs() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.urls)
}

func (p *Page) must(method string, params, result any) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), patience)
	defer cancel()
	if err := p.pipe.call(ctx, p.session, method, params, result); err != nil {
		p.Fatal(err)
	}
}

// hear notes an event.
func (p *Page) hear(m message) {
	var e struct {
		Entry            struct{ Level, Text, URL string }
		Issue            struct{ Code string }
		ExceptionDetails struct{ Text string }
		Request          struct{ URL string }
		Name, LoaderID   string
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	p.mu.Lock()
	switch m.Method {
	case "Log.entryAdded":
		p.complaints = append(p.complaints, strings.TrimSpace(e.Entry.Level+": "+e.Entry.Text+" "+e.Entry.URL))
	case "Audits.issueAdded":
		p.complaints = append(p.complaints, e.Issue.Code+": "+string(m.Params))
	case "Runtime.exceptionThrown":
		p.complaints = append(p.complaints, e.ExceptionDetails.Text)
	case "Runtime.consoleAPICalled":
		p.complaints = append(p.complaints, string(m.Params))
	case "Network.requestWillBeSent":
		p.urls = append(p.urls, e.Request.URL)
	case "Page.lifecycleEvent":
		if e.Name == "load" {
			p.loaded = append(p.loaded, e.LoaderID)
		}
	}
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}
