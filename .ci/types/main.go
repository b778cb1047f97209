// Command types checks, for the targets in its arguments, such as windows/amd64, the types of all packages and of what they import, without
// compiling them, and that a function without a body is one of an assembly file.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// listed is a package as `go list -json` describes it.
type listed struct {
	ImportPath, Dir string
	GoFiles, SFiles []string
	ImportMap       map[string]string
	Module          *struct{ GoVersion string } // nil in the standard library
}

func main() {
	for _, target := range os.Args[1:] {
		if err := check(target); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			os.Exit(1)
		}
	}
}

// check checks ./... and its dependencies, in the order of `go list -deps`, where imported packages come first.
func check(target string) error {
	system, architecture, _ := strings.Cut(target, "/")
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,SFiles,ImportMap,Module", "./...")
	list.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+architecture, "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return err
	}
	checked := map[string]*types.Package{}
	sizes := types.SizesFor("gc", architecture)
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); {
		var p listed
		if err := d.Decode(&p); err != nil {
			return err
		}
		if checked[p.ImportPath], err = p.check(checked, sizes); err != nil {
			return fmt.Errorf("%s: %w", p.ImportPath, err)
		}
	}
	return nil
}

func (p listed) check(checked map[string]*types.Package, sizes types.Sizes) (*types.Package, error) {
	if p.ImportPath == "unsafe" {
		return types.Unsafe, nil
	}
	set := token.NewFileSet()
	var files []*ast.File
	var errs []error
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	config := types.Config{
		Importer: importer(func(path string) (*types.Package, error) {
			if mapped, ok := p.ImportMap[path]; ok {
				path = mapped
			}
			if imported := checked[path]; imported != nil {
				return imported, nil
			}
			return nil, fmt.Errorf("%s is not listed", path)
		}),
		Sizes:            sizes,
		IgnoreFuncBodies: p.Module == nil,
		Error:            func(err error) { errs = append(errs, err) },
	}
	if p.Module != nil && p.Module.GoVersion != "" {
		config.GoVersion = "go" + p.Module.GoVersion
	}
	result, _ := config.Check(p.ImportPath, set, files, nil)
	if p.Module != nil {
		errs = append(errs, p.bodies(set, files)...)
	}
	return result, errors.Join(errs...)
}

// bodies returns an error for each function that has no body in Go, none in assembly, and is no other function by go:linkname.
func (p listed) bodies(set *token.FileSet, files []*ast.File) (errs []error) {
	var elsewhere strings.Builder
	for _, name := range p.SFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		errs = append(errs, err)
		elsewhere.Write(text)
	}
	for _, f := range files {
		for _, group := range f.Comments {
			for _, c := range group.List {
				if name, ok := strings.CutPrefix(c.Text, "//go:linkname "); ok {
					fmt.Fprintf(&elsewhere, "·%s(", strings.Fields(name)[0])
				}
			}
		}
	}
	for _, f := range files {
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body == nil && !strings.Contains(elsewhere.String(), "·"+f.Name.Name+"(") {
				errs = append(errs, fmt.Errorf("%s: %s has no body", set.Position(f.Pos()), f.Name.Name))
			}
		}
	}
	return errs
}

type importer func(path string) (*types.Package, error)

func (i importer) Import(path string) (*types.Package, error) { return i(path) }
