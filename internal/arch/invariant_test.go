// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	invariantRow  = regexp.MustCompile(`(?m)^\| (I\d+) \| .* \| (.*) \|$`)
	quoted        = regexp.MustCompile("`([^`]+)`")
	testFunction  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	playedBy      = regexp.MustCompile(`\bTest[A-Z]\w+`)
	invariantTest = regexp.MustCompile(`^(?:Test|Fuzz)(I\d+)[A-Z]`)
	invariantCite = regexp.MustCompile(`(?:"|// )(I\d+)\b`)
)

// TestEveryInvariantIsTested compares the table of invariants in DESIGN.md with the
// tests: each name in it is that of a test, each test that bears the number of an
// invariant stands beside it, and each number is cited by the tests.
func TestEveryInvariantIsTested(t *testing.T) {
	rows := map[string][]string{}
	for i, row := range invariantRow.FindAllStringSubmatch(read(t, "DESIGN.md"), -1) {
		if want := fmt.Sprint("I", i+1); row[1] != want {
			t.Errorf("row %d of the invariants is %s, want %s", i+1, row[1], want)
		}
		for _, name := range quoted.FindAllStringSubmatch(row[2], -1) {
			rows[row[1]] = append(rows[row[1]], name[1])
		}
		if len(rows[row[1]]) == 0 {
			t.Errorf("%s names no test", row[1])
		}
	}
	if len(rows) < 17 {
		t.Errorf("only %d invariants are left", len(rows))
	}
	tests, cited := testsOfTheTree(t)
	for number, names := range rows {
		for _, name := range names {
			if !tests[name] {
				t.Errorf("%s names %s, which is no test", number, name)
			}
		}
		if !cited[number] {
			t.Errorf("no test cites %s", number)
		}
	}
	for name := range tests {
		if number := invariantTest.FindStringSubmatch(name); number != nil && !slices.Contains(rows[number[1]], name) {
			t.Errorf("%s does not name %s", number[1], name)
		}
	}
	for number := range cited {
		if rows[number] == nil {
			t.Errorf("tests cite %s, which is no invariant", number)
		}
	}
}

// TestEveryLossIsPlayed: each section of deploy/LOST.md names the tests that play it.
func TestEveryLossIsPlayed(t *testing.T) {
	tests, _ := testsOfTheTree(t)
	for i, section := range strings.Split(read(t, "deploy/LOST.md"), "\n## ") {
		played := playedBy.FindAllString(section, -1)
		if title, _, _ := strings.Cut(section, "\n"); i > 0 && len(played) == 0 {
			t.Errorf("no test plays %q", title)
		}
		for _, name := range played {
			if !tests[name] {
				t.Errorf("deploy/LOST.md names %s, which is no test", name)
			}
		}
	}
}

// testsOfTheTree returns the names of all tests, and the invariants that they, or what is
// below internal/test, cite in messages, comments or names.
func testsOfTheTree(t *testing.T) (tests, cited map[string]bool) {
	t.Helper()
	tests, cited = map[string]bool{}, map[string]bool{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !isTestCode(filepath.ToSlash(path)) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, f := range testFunction.FindAllStringSubmatch(string(text), -1) {
			tests[f[1]] = true
			if number := invariantTest.FindStringSubmatch(f[1]); number != nil {
				cited[number[1]] = true
			}
		}
		for _, c := range invariantCite.FindAllStringSubmatch(string(text), -1) {
			cited[c[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, cited
}

func isTestCode(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".go") && strings.Contains(path, "internal/test/")
}
