// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// asking are the functions of apimachinery that look at the code, the reason or the causes of
// an API server's error.
var asking = regexp.MustCompile(`^(Is[A-Z]\w*|ReasonForError|HasStatusCause|StatusCause|SuggestsClientDelay)$`)

// What follows from an API server's error is decided in the table of package fates: nothing
// else in sync, bind and export looks at it.
func TestFatesAreDecidedInOnePlace(t *testing.T) {
	const apierrors = "k8s.io/apimachinery/pkg/api/errors"
	read := 0
	for _, folder := range []string{"sync", "bind", "export"} {
		err := filepath.WalkDir(filepath.Join("..", "..", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			read++
			files := token.NewFileSet()
			file, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := ""
			for _, i := range file.Imports {
				if strings.Trim(i.Path.Value, `"`) == apierrors {
					if name = "errors"; i.Name != nil {
						name = i.Name.Name
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if of, ok := call.X.(*ast.Ident); ok && name != "" && of.Name == name && asking.MatchString(call.Sel.Name) {
					t.Errorf("%s asks %s of an API server's error: ask package fates", files.Position(n.Pos()), call.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if read < 50 {
		t.Errorf("%d files were read", read)
	}
}
