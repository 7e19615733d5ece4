// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestSecretsAreNotQuoted: what an API server has against the write of a Secret may have the content of it, so
// that the function that writes it withholds the words: its errors end in logs and conditions.
func TestSecretsAreNotQuoted(t *testing.T) {
	writes := 0
	for _, p := range list(t) {
		if half, _, _ := strings.Cut(p.path(), "/"); !slices.Contains([]string{"sync", "bind", "export", "klutch"}, half) {
			continue
		}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			all, quoting := secretWrites(f)
			writes += all
			for _, fn := range quoting {
				if in := p.path() + "/" + name + " " + fn; secretsWithoutContent[in] == "" {
					t.Errorf("%s writes a Secret, and neither fates.Withheld nor fates.Silent follows", in)
				}
			}
		}
	}
	if writes < 8 {
		t.Errorf("%d writes of Secrets were looked at", writes)
	}
}

// secretsWithoutContent has the functions whose Secrets have nothing to quote, and why.
var secretsWithoutContent = map[string]string{
	"export/internal/tenant/credential.go anchor": "tokens are bound to this Secret, which has no data",
}

// secretWrites counts the writes with clients of Secrets in a file, and returns the functions in which the words of
// the answer to one are not withheld.
func secretWrites(f *ast.File) (all int, quoting []string) {
	for _, decl := range f.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		clients, writes, withheld := map[string]bool{}, []token.Pos{}, token.NoPos
		isClient := func(e ast.Expr) (is bool) {
			ast.Inspect(e, func(n ast.Node) bool {
				id, ok := n.(*ast.Ident)
				is = is || ok && (id.Name == "Secrets" || clients[id.Name])
				return true
			})
			return is
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for i, to := range n.Lhs {
					if id, ok := to.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) && isClient(n.Rhs[i]) {
						clients[id.Name] = true
					}
				}
			case *ast.CallExpr:
				sel, ok := n.Fun.(*ast.SelectorExpr)
				switch {
				case slices.Contains([]string{"fates.Withheld", "fates.Silent"}, called(n)):
					withheld = n.Pos()
				case ok && slices.Contains([]string{"Create", "Update", "Patch", "Apply"}, sel.Sel.Name) && isClient(sel.X):
					writes = append(writes, n.Pos())
				}
			}
			return true
		})
		if all += len(writes); len(writes) > 0 && withheld < slices.Max(writes) {
			quoting = append(quoting, fn.Name.Name)
		}
	}
	return all, quoting
}

// TestSecretWrites makes sure that the rule itself bites.
func TestSecretWrites(t *testing.T) {
	for body, want := range map[string]bool{
		`secrets := c.CoreV1().Secrets("n"); _, err := secrets.Create(ctx, s, o); return err`:                           true,
		`_, err := c.Resource(cluster.Secrets).Namespace("n").Patch(ctx, "s", t, data, o); return err`:                  true,
		`log(fates.Withheld(err)); _, err := c.CoreV1().Secrets("n").Update(ctx, s, o); return err`:                     true,
		`secrets, ok := c.CoreV1().Secrets("n"), true; _, err := secrets.Create(ctx, s, o); return fates.Withheld(err)`: false,
		`_, err := c.CoreV1().Secrets("n").Get(ctx, "s", o); return err`:                                                false,
		`_, err := c.CoreV1().ConfigMaps("n").Update(ctx, s, o); return err`:                                            false,
		`_, err := c.CoreV1().Secrets("n").Apply(ctx, s, o); return fmt.Errorf("apply: %w", fates.Silent(err))`:         false,
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc write() error { "+body+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, quoting := secretWrites(f); (quoting != nil) != want {
			t.Errorf("%s: %v", body, quoting)
		}
	}
}
