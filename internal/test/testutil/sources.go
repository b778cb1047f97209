package testutil

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Sources returns the files of the root package of a module that the project requires, without
// tests.
func Sources(t testing.TB, module string) []*ast.File {
	t.Helper()
	dir := Get[[]byte](t)(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output())
	return parsed(t, strings.TrimSpace(string(dir)))
}

// parsed returns the files of the package in a folder, without tests.
func parsed(t testing.TB, dir string) (files []*ast.File) {
	t.Helper()
	for _, name := range Get[[]string](t)(filepath.Glob(filepath.Join(dir, "*.go"))) {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, Get[*ast.File](t)(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)))
		}
	}
	if len(files) == 0 {
		t.Fatalf("got no Go file in %s", dir)
	}
	return files
}
