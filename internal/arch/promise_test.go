// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// promises is the number of those in SECURITY of the design, each of which the tests
// named after it are to keep.
const promises = 29

var (
	tested   = regexp.MustCompile(`(?m)^func (?:Test|Fuzz)((?:P\d+)+)[A-Z]\w*\(`)
	numbered = regexp.MustCompile(`P\d+`)
)

// TestEveryPromiseIsTested: -run 'P7' finds what keeps promise P7.
func TestEveryPromiseIsTested(t *testing.T) {
	found := map[string]int{}
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, e fs.DirEntry, err error) error {
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
	for n := range promises {
		p := fmt.Sprintf("P%d", n+1)
		if found[p] == 0 {
			t.Errorf("no test has %s in its name", p)
		}
		delete(found, p)
	}
	for p := range found {
		t.Errorf("there is no promise %s", p)
	}
}
