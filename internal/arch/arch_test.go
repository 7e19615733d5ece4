// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/klutch-go/sdk"

// arrows: what a public package may import of ours, besides internal.
var arrows = map[string][]string{
	"auth":               {},
	"sync":               {},
	"klutch/v1alpha1":    {},
	"deploy":             {},
	"export":             {"auth", "klutch/v1alpha1"},
	"bind":               {"sync", "auth", "klutch/v1alpha1", "deploy"},
	"klutch":             {"sync", "auth", "export", "bind", "klutch/v1alpha1"},
	"klutch/conformance": {"auth", "bind", "klutch/v1alpha1"},
}

// modules that public packages may import directly.
var modules = []string{
	"k8s.io/client-go", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver", "k8s.io/api",
	"github.com/coreos/go-oidc/v3", "golang.org/x/oauth2", "github.com/go-logr/logr",
}

type pkg struct {
	ImportPath, Name, Doc, Dir string
	GoFiles                    []string
	Imports                    []string
}

func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Doc,Dir,GoFiles,Imports", module+"/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
}

func TestArrows(t *testing.T) {
	for _, p := range list(t) {
		for _, imp := range ours(p.Imports) {
			if why := forbidden(p.path(), imp); why != "" {
				t.Errorf("%s imports %s: %s", p.path(), imp, why)
			}
		}
	}
}

func ours(imports []string) []string {
	var own []string
	for _, imp := range imports {
		if rest, ok := strings.CutPrefix(imp, module+"/"); ok {
			own = append(own, rest)
		}
	}
	return own
}

// forbidden says why from may not import to; empty means that it may.
func forbidden(from, to string) string {
	allowed, public := arrows[from]
	switch {
	case strings.HasPrefix(to, "internal/test/") && !strings.HasPrefix(from, "internal/test/"):
		return "shipped programs hold nothing that only tests need"
	case strings.HasPrefix(to, from+"/internal/"):
		return ""
	case public && strings.HasPrefix(to, "internal/"):
		return ""
	case public && !slices.Contains(allowed, to):
		return "not an arrow of ARCHITECTURE"
	case strings.HasPrefix(from, "examples/") && strings.HasPrefix(to, "internal/"):
		return "examples show public packages only"
	case strings.HasPrefix(to, "cmd/"):
		return "programs are not libraries"
	}
	return ""
}

// TestForbidden makes sure that the rule itself bites.
func TestForbidden(t *testing.T) {
	for _, c := range []struct {
		from, to string
		bad      bool
	}{
		{"sync", "internal/controller", false},
		{"sync", "auth", true},
		{"export", "bind", true},
		{"bind", "export", true},
		{"klutch/v1alpha1", "klutch", true},
		{"bind", "sync", false},
		{"examples/mirror", "internal/test/cluster", true},
		{"internal/test/demo", "cmd/konnector", true},
		{"internal/test/demo", "internal/test/stack", false},
		{"internal/controller", "internal/test/cluster", true},
		{"export", "export/internal/tenant", false},
	} {
		if got := forbidden(c.from, c.to) != ""; got != c.bad {
			t.Errorf("forbidden(%s, %s) = %v, want %v", c.from, c.to, got, c.bad)
		}
	}
}

func TestPublicDependencies(t *testing.T) {
	for _, p := range list(t) {
		if _, public := arrows[p.path()]; !public {
			continue
		}
		for _, imp := range p.Imports {
			if third := strings.Contains(strings.Split(imp, "/")[0], "."); third && !strings.HasPrefix(imp, module) && !fromModules(imp) {
				t.Errorf("%s imports %s, which is not among the dependencies of public packages", p.path(), imp)
			}
		}
	}
}

func fromModules(imp string) bool {
	return slices.ContainsFunc(modules, func(m string) bool { return imp == m || strings.HasPrefix(imp, m+"/") })
}

// TestOneTableOfFates: what an answer of an API server says is read in internal/fates alone.
func TestOneTableOfFates(t *testing.T) {
	looked, unread, uncoded := 0, maps.Clone(notOfAPIServers), maps.Clone(codesOfOthers)
	for _, p := range list(t) {
		half, _, _ := strings.Cut(p.path(), "/")
		if !slices.Contains([]string{"sync", "bind", "export", "klutch", "auth", "cmd"}, half) {
			continue
		}
		looked++
		if slices.Contains(p.Imports, "k8s.io/apimachinery/pkg/api/errors") {
			t.Errorf("%s looks at API errors itself: internal/fates has the table of what becomes of them", p.path())
		}
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			file := p.path() + "/" + name
			if texts := readsErrors(string(source)); texts != nil && notOfAPIServers[file] == "" {
				t.Errorf("%s reads the text of an error: %q; what API servers say is read in internal/fates alone", file, texts)
			} else if texts != nil {
				delete(unread, file)
			}
			if codes := readsCodes(string(source)); codes != nil && codesOfOthers[file] == "" {
				t.Errorf("%s looks at the code of an answer: %q; internal/fates has the table of what becomes of it", file, codes)
			} else if codes != nil {
				delete(uncoded, file)
			}
		}
	}
	if looked < 35 || len(unread) > 0 || len(uncoded) > 0 {
		t.Errorf("%d packages were looked at; no text of an error is read in %v, and no code in %v", looked, unread, uncoded)
	}
}

// codesOfOthers has the files that look at codes and reasons which are none of an API server.
var codesOfOthers = map[string]string{
	"bind/client.go":                "the handshake of a backend",
	"auth/grant.go":                 "the token endpoint of a backend",
	"auth/provider.go":              "an issuer",
	"klutch/conformance/browser.go": "the pages of a backend",
}

var (
	codeOfAnswer = regexp.MustCompile(`StatusReason\w*|APIStatus|ErrStatus|\w+\.StatusCode\b`)
	askedFates   = regexp.MustCompile(`fates\.OfCode\(\w+\.StatusCode\)`)
)

// readsCodes returns where a source looks at the code or the reason of an answer itself.
func readsCodes(source string) []string {
	return codeOfAnswer.FindAllString(askedFates.ReplaceAllString(source, ""), -1)
}

// notOfAPIServers has the files that read texts of errors that are no answer of an API server.
var notOfAPIServers = map[string]string{
	"bind/client.go":             "net/http's error for a server that speaks http",
	"cmd/kubectl-bind/exit.go":   "errors of client-go and package net for the way to a server, and our own",
	"cmd/kubectl-bind/plugin.go": "cobra's error for an unknown command",
}

var textOfError = regexp.MustCompile(`(?:strings\.(?:Contains|HasPrefix|HasSuffix|EqualFold|Index|Cut|CutPrefix|CutSuffix)|\.(?:MatchString|FindString\w*))\([^\n]*\.Error\(\)|\.Error\(\) [!=]= `)

// readsErrors returns where a source looks into the text of an error.
func readsErrors(source string) []string { return textOfError.FindAllString(source, -1) }

// TestReadsErrors makes sure that the rule itself bites.
func TestReadsErrors(t *testing.T) {
	for _, source := range []string{
		`return strings.Contains(err.Error(), "denied")`, `pattern.FindStringSubmatch(err.Error())`, `err.Error() == "no"`,
		`strings.HasPrefix(strings.ToLower(err.Error()), "no")`,
	} {
		if readsErrors(source) == nil {
			t.Errorf("%s is not seen", source)
		}
	}
	if got := readsErrors(`log.Info("refused", "reason", err.Error())`); got != nil {
		t.Errorf("%q reads nothing", got)
	}
	for _, source := range []string{
		`if resp.StatusCode == http.StatusUnauthorized {`, `if resp.StatusCode >= 500 {`, `switch resp.StatusCode {`, `var status apierrors.APIStatus`,
		`s.Reason == metav1.StatusReasonForbidden`, `err.ErrStatus.Code`,
	} {
		if readsCodes(source) == nil {
			t.Errorf("%s is not seen", source)
		}
	}
	if got := readsCodes(`if fates.OfCode(resp.StatusCode) == fates.Unauthorized { w.WriteHeader(http.StatusNotFound) }`); got != nil {
		t.Errorf("%q decides nothing by a code", got)
	}
}

func TestPackagesExplainThemselves(t *testing.T) {
	for _, p := range list(t) {
		if p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
		if _, public := arrows[p.path()]; public && !slices.Contains(p.GoFiles, "doc.go") && p.path() != "deploy" {
			t.Errorf("%s is public and has no doc.go", p.ImportPath)
		}
	}
}
