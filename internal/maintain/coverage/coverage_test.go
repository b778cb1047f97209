package coverage

import (
	"flag"
	"go/ast"
	"os"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Every exported function of Gorgonia's that returns a node is a case.
func TestEveryFunctionIsCovered(t *testing.T) {
	known := slices.Clone(others)
	for _, c := range Cases {
		known = append(known, c.Names...)
	}
	found := 0
	for _, file := range testutil.Sources(t, "gorgonia.org/gorgonia") {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || !returnsNode(f) {
				continue
			}
			found++
			if !slices.Contains(known, f.Name.Name) {
				t.Errorf("%s returns a node and is no case", f.Name.Name)
			}
		}
	}
	if found < 90 {
		t.Errorf("found %d functions that return nodes", found)
	}
}

// returnsNode reports whether a function's first result is a *Node.
func returnsNode(f *ast.FuncDecl) bool {
	if f.Type.Results == nil {
		return false
	}
	star, ok := f.Type.Results.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	name, ok := star.X.(*ast.Ident)
	return ok && name.Name == "Node"
}

var update = flag.Bool("update", false, "write the table anew")

// The table of the page is what is measured.
func TestTable(t *testing.T) {
	const page = "../../../docs/gorgonia-ops.md"
	var rows []Row
	for _, c := range Cases {
		r, err := c.measure()
		if err != nil {
			t.Fatalf("%s: %v", c.Names[0], err)
		}
		rows = append(rows, r)
	}
	text := string(testutil.Get[[]byte](t)(os.ReadFile(page)))
	want := testutil.Get[string](t)(records.Splice(text, "coverage", table(rows)))
	if *update {
		testutil.Write(t, page, want)
	} else if text != want {
		t.Errorf("%s: the table differs from what is measured: run `make readme`", page)
	}
}

// The measured coverage of some ops is the known one.
func TestMeasure(t *testing.T) {
	want := map[string]Row{
		"Tanh":      {Forward: []string{"map"}, Backward: OnDevice, Before: true, After: true},
		"Sum":       {Forward: []string{"rows"}, Backward: OnDevice, Before: true, After: true},
		"Reshape":   {Forward: []string{"view"}, Backward: OnDevice, Before: true, After: true},
		"SizeOf":    {Forward: []string{"constant"}, Backward: None},
		"Sparsemax": {Forward: []string{"host"}, Backward: OnHost},
	}
	for _, c := range Cases {
		w, ok := want[c.Names[0]]
		if !ok {
			continue
		}
		delete(want, c.Names[0])
		r, err := c.measure()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Forward, w.Forward) || r.Backward != w.Backward || r.Before != w.Before || r.After != w.After || (len(r.Types) == 2) == slices.Contains(r.Forward, "host") {
			t.Errorf("%s: got %v, backward %v, fused before %v, after %v, types %v", c.Names[0], r.Forward, r.Backward, r.Before, r.After, r.Types)
		}
	}
	if len(want) > 0 {
		t.Errorf("no case of %v", want)
	}
}
