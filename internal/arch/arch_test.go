// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
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
		return "not among the arrows between public packages"
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
