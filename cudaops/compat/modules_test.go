package compat

import (
	"slices"
	"strings"
	"testing"
)

// modules are the modules of packages and of all that these import.
func modules(t *testing.T, packages ...string) []string {
	t.Helper()
	text, err := goCommand(t, nil, slices.Concat([]string{"list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}"}, packages)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	list := strings.Fields(text)
	slices.Sort(list)
	return slices.Compact(list)
}

// A program that uses the library builds what Gorgonia brings, the modules that load the
// driver and unpack kernels, and no more: modules that draw figures, colour code and read command lines stay with
// the examples and commands.
func TestModules(t *testing.T) {
	gorgonia := modules(t, "gorgonia.org/gorgonia", "gorgonia.org/tensor")
	packages := append([]string{module + "/kernels", module + "/kernels/expr"}, entries...)
	more := slices.DeleteFunc(modules(t, packages...), func(m string) bool { return slices.Contains(gorgonia, m) })
	if want := []string{"github.com/ebitengine/purego", module}; !slices.Equal(more, want) {
		t.Errorf("beside Gorgonia's modules the library brings %q, want %q", more, want)
	}
	if figures := modules(t, module+"/examples/05-step-by-step"); !slices.Contains(figures, "gonum.org/v1/plot") {
		t.Errorf("an example with figures brings %q, without the library that draws them", figures)
	}
}
