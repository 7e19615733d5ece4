// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// auditRow is a row of the table in deploy/README.md: a record, of which program, when,
// with which fields.
var auditRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (backend|konnector) \\| [^|]+ \\| ([^|]*) \\|$")

// P27: the records that are documented are those that the code leaves, with the fields
// that it gives them by name.
func TestP27AuditRecordsAreDocumented(t *testing.T) {
	documented := map[string]map[string][]string{"backend": {}, "konnector": {}}
	for _, row := range auditRow.FindAllStringSubmatch(read(t, "deploy/README.md"), -1) {
		documented[row[2]][row[1]] = strings.Split(strings.ReplaceAll(row[3], "`", ""), ", ")
	}
	for program, dir := range map[string]string{"backend": "export", "konnector": "bind"} {
		left := auditCalls(t, dir)
		if diff := cmp.Diff(slices.Sorted(maps.Keys(documented[program])), slices.Sorted(maps.Keys(left))); diff != "" {
			t.Errorf("records of the %s (-documented +left):\n%s", program, diff)
		}
		for name, fields := range left {
			for _, field := range fields {
				if known := documented[program][name]; known != nil && !slices.Contains(known, field) {
					t.Errorf("%s: record %q has the field %q, which is not documented", program, name, field)
				}
			}
		}
	}
}

// auditCalls are the records that a package, and those inside of it, leave, and their fields.
func auditCalls(t *testing.T, dir string) map[string][]string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("files of %s: %v", dir, err)
	}
	var parsed []*ast.File
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, source, 0)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	found := map[string][]string{}
	for _, f := range parsed {
		for _, decl := range f.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil || fn.Name.Name == "recordRefusal" && fn.Recv != nil {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if ok && len(call.Args) > 1 && slices.Contains(records, called(call)) {
					names := literals(call.Args[1:2])
					if len(names) == 0 {
						names = eventNames(fn, parsed)
					}
					if len(names) == 0 {
						t.Errorf("%s: a record whose name cannot be found out in %s", dir, fn.Name.Name)
					}
					for _, name := range names {
						found[name] = append(found[name], fieldsOf(call.Args[2:])...)
					}
				}
				return true
			})
		}
	}
	return found
}

// records are the calls that leave a record.
var records = []string{"audit", "audit.Record", "h.refused", "h.misused", "h.visitors.refused", "h.visitors.misused"}

// called is the name of the function of a call, or of the method after what has it.
func called(call *ast.CallExpr) string { return dotted(call.Fun) }

func dotted(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		if of := dotted(e.X); of != "" {
			return of + "." + e.Sel.Name
		}
	}
	return ""
}

func literals(exprs []ast.Expr) (texts []string) {
	for _, e := range exprs {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, _ := strconv.Unquote(lit.Value)
			texts = append(texts, text)
		}
	}
	return texts
}

// eventNames are what a function sets its variable event to, or what the package adds to
// the events that it goes through.
func eventNames(fn *ast.FuncDecl, files []*ast.File) (names []string) {
	ranges := false
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			for i, to := range s.Lhs {
				if id, ok := to.(*ast.Ident); ok && id.Name == "event" && len(s.Rhs) == len(s.Lhs) {
					names = append(names, literals(s.Rhs[i:i+1])...)
				}
			}
		case *ast.RangeStmt:
			id, ok := s.Value.(*ast.Ident)
			ranges = ranges || ok && id.Name == "event"
		}
		return true
	})
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if ranges && ok && called(call) == "r.add" {
				names = append(names, literals(call.Args[:1])...)
			}
			return true
		})
	}
	return names
}

// fieldsOf are the names among names and values; what begins a list that is appended to
// is of whom a record is.
func fieldsOf(args []ast.Expr) []string {
	if len(args) == 1 {
		if call, ok := args[0].(*ast.CallExpr); ok && called(call) == "append" {
			args = call.Args[1:]
		}
	}
	var names []string
	for i := 0; i < len(args); i += 2 {
		names = append(names, literals(args[i:i+1])...)
	}
	return names
}
