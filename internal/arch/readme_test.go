// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/examples/catalog"
)

var (
	block = regexp.MustCompile("(?s)```(\\w+)\n(.*?)```")
	link  = regexp.MustCompile(`\]\(([^)#:]+)\)`)
	made  = regexp.MustCompile(`(?m)^make (\w+)`)
)

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReadmeTellsTheTruth: its links lead somewhere, its targets are in the
// Makefile, its YAML is the catalogue's, and its Go is that of the example.
func TestReadmeTellsTheTruth(t *testing.T) {
	text := read(t, "README.md")
	if n := strings.Count(text, "\n"); n > 150 {
		t.Errorf("%d lines", n)
	}
	for _, doc := range []string{"README.md", "CONTRIBUTING.md", "DESIGN.md", "SECURITY.md"} {
		for _, l := range link.FindAllStringSubmatch(read(t, doc), -1) {
			if _, err := os.Stat(filepath.Join("..", "..", l[1])); err != nil {
				t.Errorf("%s: link: %v", doc, err)
			}
		}
	}
	seen := map[string]int{}
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		seen[b[1]]++
		switch b[1] {
		case "yaml":
			checkClaim(t, b[2])
		case "sh":
			checkTargets(t, b[2])
		case "go":
			checkExample(t, b[2])
		}
	}
	for _, language := range []string{"yaml", "sh", "go"} {
		if seen[language] == 0 {
			t.Errorf("no %s in the README", language)
		}
	}
}

// TestExamplesFitAScreen: the README of an example for platform teams is one screen, and begins with
// what the platform's developers get.
func TestExamplesFitAScreen(t *testing.T) {
	for _, name := range []string{"catalog", "crossplane", "operator", "servicebroker"} {
		rows, text := 0, read(t, "examples/"+name+"/README.md")
		if _, first, _ := strings.Cut(text, "\n\n"); !strings.HasPrefix(first, "Developers ") {
			t.Errorf("examples/%s/README.md begins with %.40q, and not with what developers get", name, first)
		}
		for line := range strings.Lines(text) {
			rows += max(1, (utf8.RuneCountInString(strings.TrimRight(line, "\n"))+119)/120)
		}
		if rows > 45 {
			t.Errorf("examples/%s/README.md has %d rows of 120 columns, want 45", name, rows)
		}
	}
}

func checkClaim(t *testing.T, text string) {
	t.Helper()
	var claim struct {
		Kind string
		Spec struct{ Service, Plan string }
	}
	if err := yaml.UnmarshalStrict([]byte(text), &map[string]any{}); err != nil {
		t.Error(err)
	}
	if err := yaml.Unmarshal([]byte(text), &claim); err != nil {
		t.Error(err)
	}
	for _, u := range catalog.Claims() {
		spec, _ := u.Object["spec"].(map[string]any)
		if u.GetKind() == claim.Kind && spec["service"] == claim.Spec.Service && spec["plan"] == claim.Spec.Plan {
			return
		}
	}
	t.Errorf("the catalogue has no such claim:\n%s", text)
}

func checkTargets(t *testing.T, text string) {
	t.Helper()
	makefile := read(t, "Makefile")
	for _, m := range made.FindAllStringSubmatch(text, -1) {
		if !strings.Contains(makefile, "\n"+m[1]+":") {
			t.Errorf("the Makefile has no target %s", m[1])
		}
	}
}

func checkExample(t *testing.T, text string) {
	t.Helper()
	example := read(t, "examples/mirror/main.go")
	for line := range strings.Lines(text) {
		_, call, _ := strings.Cut(strings.TrimSpace(line), "= ")
		name, _, _ := strings.Cut(call, "(")
		if name == "" || !strings.Contains(example, name+"(") {
			t.Errorf("examples/mirror does not call %q", name)
		}
	}
}

// word is a name of the code, with its type in front if there is one.
var word = regexp.MustCompile(`^(?:(\w+)\.)?(\w+)$`)

// TestWaysNameThingsThatExist: each file, package and name that the ways through the tree
// (DESIGN.md) and the steps of a new policy (CONTRIBUTING.md) give to a reader is there.
func TestWaysNameThingsThatExist(t *testing.T) {
	code := sourcesOfTheTree(t)
	for doc, between := range map[string][2]string{
		"DESIGN.md": {"## Ways through the tree", "\n## "}, "CONTRIBUTING.md": {"How to add a policy", "\n\nCommits"},
	} {
		_, text, _ := strings.Cut(read(t, doc), between[0])
		text, _, found := strings.Cut(text, between[1])
		if !found {
			t.Fatalf("%s has no part %q", doc, between[0])
		}
		for _, name := range quoted.FindAllStringSubmatch(text, -1) {
			if !code.has(name[1]) {
				t.Errorf("%s: there is no %s", doc, name[1])
			}
		}
	}
}

// A tree is the Go code: the paths of its files, and the words in them.
type tree struct {
	paths []string
	words map[string]bool
}

func sourcesOfTheTree(t *testing.T) (code tree) {
	t.Helper()
	root := filepath.Join("..", "..")
	code.words = map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.Contains(path, "internal/arch/") {
			return err
		}
		data, err := os.ReadFile(path)
		for w := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			code.words[string(w)] = true
		}
		path, _ = filepath.Rel(root, path)
		code.paths = append(code.paths, "/"+filepath.ToSlash(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// has reports whether there is such a file or folder, by its path from the root or by its name alone, or such a name in the code.
// What is neither, such as a command or a field with its value, is not looked for.
func (code tree) has(name string) bool {
	if strings.ContainsAny(name, " :") {
		return true
	}
	if m := word.FindStringSubmatch(name); m != nil && m[2] != "go" {
		return code.words[m[2]] && (m[1] == "" || code.words[m[1]])
	}
	if strings.Contains(name, "/") {
		_, err := os.Stat(filepath.Join("..", "..", name))
		return err == nil
	}
	return slices.ContainsFunc(code.paths, func(path string) bool { return strings.HasSuffix(path, "/"+name) })
}

// TestMapNamesEveryPackage: each package of the tree is on the map of DESIGN.md, by its
// path or by that of a folder above it that ends with /*.
func TestMapNamesEveryPackage(t *testing.T) {
	_, plan, _ := strings.Cut(read(t, "DESIGN.md"), "## The map")
	plan, _, found := strings.Cut(plan, "\n## ")
	if !found {
		t.Fatal("DESIGN.md has no map")
	}
	var names []string
	for _, name := range quoted.FindAllStringSubmatch(plan, -1) {
		names = append(names, name[1])
	}
	for _, p := range list(t) {
		onMap := func(name string) bool {
			folder, all := strings.CutSuffix(name, "*")
			return p.path() == name || all && strings.HasPrefix(p.path(), folder)
		}
		if p.path() != module && !slices.ContainsFunc(names, onMap) {
			t.Errorf("the map of DESIGN.md lacks %s", p.path())
		}
	}
}
