// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	promised = regexp.MustCompile(`(?m)^\| (P\d+) \| `)
	tested   = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)((?:P\d+)+)[A-Z]\w*\(`)
	numbered = regexp.MustCompile(`P\d+`)
)

// TestEveryPromiseIsTested: -run 'P7' finds what keeps promise P7 of SECURITY.md.
func TestEveryPromiseIsTested(t *testing.T) {
	table, err := os.ReadFile(filepath.Join("..", "..", "SECURITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	promises := promised.FindAllStringSubmatch(string(table), -1)
	if len(promises) < 29 {
		t.Errorf("only %d promises are left", len(promises))
	}
	found := map[string]int{}
	err = filepath.WalkDir(filepath.Join("..", ".."), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range tested.FindAllStringSubmatch(string(text), -1) {
			for _, p := range numbered.FindAllString(name[1], -1) {
				found[p]++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range promises {
		if found[p[1]] == 0 {
			t.Errorf("no test has %s in its name", p[1])
		}
		delete(found, p[1])
	}
	for p := range found {
		t.Errorf("there is no promise %s", p)
	}
}
