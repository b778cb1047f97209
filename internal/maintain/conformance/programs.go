package main

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// joined is the folder, in the tree, of the package whose tests are built with all programs and with
// the tests of another package in one binary: they share nearly all of their code, and a
// binary for each would be much to bring to a GPU machine.
const joined = "onnx-go/backend/x/gorgonnx"

// neighbours are tests that need nothing of the package that they are in.
var neighbours = []string{"gorgonia/ops/nn/conv_test.go"}

// join makes packages of the programs in the tree, and a TestMain that runs the program that the first
// argument names, by its folder.
func join(tree string) error {
	var dirs []string
	for _, s := range suites {
		if !s.test && !slices.Contains(dirs, s.dir) {
			dirs = append(dirs, s.dir)
		}
	}
	imports, table := "", ""
	for i, dir := range dirs {
		if err := makePackage(filepath.Join(tree, filepath.FromSlash(dir))); err != nil {
			return err
		}
		imports += fmt.Sprintf("\tp%d %q\n", i, "gorgonia.org/"+dir)
		table += fmt.Sprintf("\t%q: p%d.Main,\n", path.Base(dir), i)
	}
	text := "package gorgonnx_test\n\nimport (\n\t\"os\"\n\t\"testing\"\n\n" + imports + ")\n\nvar programs = map[string]func(){\n" + table + `}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		os.Args = os.Args[1:]
		programs[os.Args[0]]()
		os.Exit(0)
	}
	os.Exit(m.Run())
}
`
	to := filepath.Join(tree, filepath.FromSlash(joined))
	for _, name := range neighbours {
		test, err := os.ReadFile(filepath.Join(tree, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		_, test, _ = bytes.Cut(test, []byte("\n")) // the package clause
		test = append([]byte("package gorgonnx_test\n"), test...)
		if err := os.WriteFile(filepath.Join(to, "stheno_neighbour_"+path.Base(name)), test, 0o666); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(to, "stheno_programs_test.go"), []byte(text), 0o666)
}

// makePackage makes a package with a function Main of the program in a folder.
func makePackage(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	change := strings.NewReplacer("\npackage main\n", "\npackage program\n", "\nfunc main() {", "\nfunc Main() {",
		"\t\"flag\"\n", "\tflag \"gorgonia.org/gorgonia/sthenohook/flags\"\n")
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(name, []byte(change.Replace("\n" + string(text))[1:]), 0o666); err != nil {
			return err
		}
	}
	return nil
}
