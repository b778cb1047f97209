package testutil

import (
	"fmt"
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
func Sources(t testing.TB, module string) (files []*ast.File) {
	t.Helper()
	dir := Get[[]byte](t)(exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output())
	names := Get[[]string](t)(filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go")))
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, Get[*ast.File](t)(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)))
		}
	}
	if len(files) == 0 {
		Do(t, fmt.Errorf("no file of %s", module))
	}
	return files
}
