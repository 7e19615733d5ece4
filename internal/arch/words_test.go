// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// unnamed are words for an actor without a name. A comment names the actor: the konnector, a tenant, another manager.
var unnamed = regexp.MustCompile(`(?i)\b(nobody|somebody|anybody|whoever)\b`)

// TestCommentsNameActors: no comment speaks of an actor without a name, and no more does a document.
func TestCommentsNameActors(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md" && entry.Name() != "CHANGELOG.md":
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(read(t, name), "\n") {
				if word := unnamed.FindString(line); word != "" {
					t.Errorf("%s:%d says %q: name the actor", name, i+1, word)
				}
			}
		case filepath.Ext(path) == ".go":
			files++
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, group := range file.Comments {
				for _, c := range group.List {
					if word := unnamed.FindString(c.Text); word != "" && !strings.HasSuffix(path, "words_test.go") {
						t.Errorf("%s says %q: name the actor", set.Position(c.Pos()), word)
					}
				}
			}
		}
		return nil
	})
	if err != nil || files < 500 {
		t.Fatalf("%d files are read: %v", files, err)
	}
}
