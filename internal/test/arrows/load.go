// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is what there is to see of a package: its files without tests, as they are built on this machine.
type pkg struct {
	path  string
	files []string
	lines int
	types []typ // those with most methods first
	graph graph
	order []int
	uses  map[[2]int][]string // what the first file uses of the second
}

type typ struct {
	name    string
	methods int
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
	Module                  *struct{ Path string }
}

func load(patterns []string) ([]*pkg, error) {
	all, err := list(patterns)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, l := range all {
		exports[l.ImportPath] = l.Export
	}
	var packages []*pkg
	for _, l := range all {
		if l.DepOnly || len(l.GoFiles) == 0 {
			continue
		}
		p, err := read(l, exports)
		if err != nil {
			return nil, fmt.Errorf("package %s: %w", l.ImportPath, err)
		}
		packages = append(packages, p)
	}
	return packages, nil
}

func list(patterns []string) (all []listed, err error) {
	cmd := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly,Module"}, patterns...)...) //nolint:gosec,noctx // a tool of ours, that ends with it
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
}

func read(l listed, exports map[string]string) (*pkg, error) {
	p := &pkg{path: l.ImportPath, files: l.GoFiles, graph: newGraph(len(l.GoFiles)), uses: map[[2]int][]string{}}
	if l.Module != nil {
		p.path = strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, l.Module.Path), "/")
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range l.GoFiles {
		data, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, name, data, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.lines += bytes.Count(data, []byte("\n"))
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	checked, err := config.Check(l.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	p.draw(fset, checked, info)
	p.count(checked)
	return p, nil
}

// draw notes who uses what is declared in another file.
func (p *pkg) draw(fset *token.FileSet, checked *types.Package, info *types.Info) {
	file := func(pos token.Pos) int { return slices.Index(p.files, fset.Position(pos).Filename) }
	for ident, o := range info.Uses {
		if _, isPackage := o.(*types.PkgName); isPackage || o.Pkg() != checked {
			continue
		}
		if a := [2]int{file(ident.Pos()), file(o.Pos())}; a[0] != a[1] && a[1] >= 0 {
			p.graph[a[0]][a[1]] = true
			if !slices.Contains(p.uses[a], o.Name()) {
				p.uses[a] = append(p.uses[a], o.Name())
			}
		}
	}
	for _, names := range p.uses {
		slices.Sort(names)
	}
	p.order = p.graph.order()
}

// count counts the methods of the types.
func (p *pkg) count(checked *types.Package) {
	for _, name := range checked.Scope().Names() {
		t, ok := checked.Scope().Lookup(name).(*types.TypeName)
		if !ok || t.IsAlias() || types.IsInterface(t.Type()) {
			continue
		}
		n := 0
		for m := range types.NewMethodSet(types.NewPointer(t.Type())).Methods() {
			if m.Obj().Pkg() == checked {
				n++
			}
		}
		p.types = append(p.types, typ{name, n})
	}
	slices.SortStableFunc(p.types, func(a, b typ) int { return cmp.Compare(b.methods, a.methods) })
}
