package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// programs is the folder of the one program, in the tree, that is all of those that are not
// tests: they share nearly all of their code.
const programs = "gorgonia/examples/programs"

// joinPrograms makes packages of the programs in the tree, and the one that runs the program that its
// first argument names, by its folder.
func joinPrograms(tree string) error {
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
	text := "package main\n\nimport (\n\t\"os\"\n\n" + imports + ")\n\nvar programs = map[string]func(){\n" + table +
		"}\n\nfunc main() {\n\tos.Args = os.Args[1:]\n\tprograms[os.Args[0]]()\n}\n"
	to := filepath.Join(tree, filepath.FromSlash(programs), "main.go")
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, []byte(text), 0o666)
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
