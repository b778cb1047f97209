package opspec

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/kernels"
)

// Every Spec is complete: tests and tables find what they need, and names are used once.
func TestSpecs(t *testing.T) {
	specs := All()
	for i, s := range specs {
		if s.Name == "" || s.Formula == "" || s.Doc == "" || s.Random == nil || len(s.Bad) == 0 {
			t.Errorf("Spec %q lacks a name, formula, sentence, Random or Bad", s.Name)
		}
		if i > 0 && specs[i-1].Name >= s.Name {
			t.Errorf("%s follows %s", s.Name, specs[i-1].Name)
		}
		names, large, one := map[string]bool{}, false, s.Several
		for _, c := range s.Cases {
			if names[c.Name] || c.Name == "" || c.Build == nil || c.Reference == nil || len(c.Types) == 0 {
				t.Errorf("%s: case %q is named twice or lacks a name, Build, Reference or Types", s.Name, c.Name)
			}
			names[c.Name] = true
			large = large || c.Large
			one = one || c.Tested() && c.Elements() == len(c.Shapes)
		}
		if !large && !s.Generated || !one {
			t.Errorf("%s lacks a case beyond 2^31 bytes or one of a single element an input", s.Name)
		}
		for _, b := range s.Bad {
			if names["bad "+b.Name] || b.Name == "" || b.Build == nil || b.Want == "" {
				t.Errorf("%s: bad input %q is named twice or lacks a name, Build or Want", s.Name, b.Name)
			}
			names["bad "+b.Name] = true
		}
	}
	specs[0] = Spec{}
	if All()[0].Name == "" {
		t.Error("All gives its own memory away")
	}
	if _, ok := Find("Sum"); !ok {
		t.Error("Sum is not found")
	}
	if s, ok := Find("Summ"); ok {
		t.Errorf("Summ is found: %v", s.Name)
	}
}

// Large cases are larger than 2^31 bytes, and no other tested case is.
func TestLarge(t *testing.T) {
	for _, s := range All() {
		for _, c := range s.Cases {
			if c.Timed != nil || c.Composed {
				continue
			}
			for _, dt := range c.Types {
				p, _, err := c.Plan(dt, kernels.HostDevice())
				if err != nil {
					t.Fatal(err)
				}
				largest := p.Out
				for _, n := range p.Inputs {
					largest = max(largest, n)
				}
				if c.Large != (largest > 1<<31) {
					t.Errorf("%s, case %s: the largest operand has %d bytes, Large is %v", s.Name, c.Name, largest, c.Large)
				}
			}
		}
	}
}

// elsewhere are constructors without a Spec of their name: package ops tests WhenTraining, which depends on a mode, and Var's Spec has VarCorrection.
var elsewhere = map[string]bool{"WhenTraining": true, "VarCorrection": true}

// Every function of package ops that returns a node has a Spec.
func TestEveryOpHasASpec(t *testing.T) {
	want := constructors(t, "../../../ops")
	if len(want) == 0 {
		t.Fatal("package ops has no constructor")
	}
	for name := range want {
		if _, ok := Find(name); !ok && !elsewhere[name] {
			t.Errorf("ops.%s has no Spec: want internal/test/opspec/%s.go", name, strings.ToLower(name))
		}
	}
	for _, s := range All() {
		if !want[s.Name] {
			t.Errorf("there is a Spec of %s, but no ops.%s", s.Name, s.Name)
		}
	}
}

// constructors returns the exported functions of a package that return a node and an
// error; Apply makes ops of any primitive and is none itself, and Constant has no inputs.
func constructors(t *testing.T, dir string) map[string]bool {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Name.Name == "Apply" || f.Name.Name == "Constant" || f.Type.Results == nil {
				continue
			}
			if star, ok := f.Type.Results.List[0].Type.(*ast.StarExpr); ok {
				if sel, ok := star.X.(*ast.SelectorExpr); ok && sel.Sel.Name == "Node" {
					found[f.Name.Name] = true
				}
			}
		}
	}
	return found
}

// The sums of absolute values that bound the errors of benchmarks are at least those of the
// reference: Magnitude is right for the op.
func TestMagnitude(t *testing.T) {
	for _, s := range All() {
		if s.Exact || s.Generated || s.Once { // attention's bound depends on the scores, and is no op: of timed cases Build itself is near enough
			continue
		}
		for _, c := range s.Cases {
			if !c.Tested() || c.Composed || c.Elements() > 1<<14 {
				continue
			}
			xs := Normal.Draw(rand.New(rand.NewPCG(1, 2)), c, kernels.Float64)
			_, want := c.Reference(xs...)
			for _, x := range xs {
				for i := range x {
					x[i] = math.Abs(x[i])
				}
			}
			c.Build = c.Magnitude
			p, _, err := c.Plan(kernels.Float64, kernels.HostDevice())
			if err != nil {
				t.Fatalf("%s, case %s: %v", s.Name, c.Name, err)
			}
			in := make([][]byte, len(xs))
			for i, x := range xs {
				in[i] = kernels.Bytes(x)
			}
			got := make([]float64, len(want))
			if err := p.Run(in, kernels.Bytes(got), nil); err != nil {
				t.Fatalf("%s, case %s: %v", s.Name, c.Name, err)
			}
			for i := range got {
				if !(got[i] >= want[i]*(1-1e-12)) {
					t.Errorf("%s, case %s: Magnitude gives %v for element %d, the reference %v", s.Name, c.Name, got[i], i, want[i])
					break
				}
			}
		}
	}
}

// Memory that is read in every step counts in every step, but for the part that stays in the level-2 cache.
func TestLeastBytes(t *testing.T) {
	dev := kernels.HostDevice()
	for _, c := range []struct{ n, steps, l2, want int64 }{{3, 2, 72, 96}, {3, 2, 71, 97}, {3, 2, 0, 168}, {3, 5, 36, 72 + 4*36 + 24}, {3, 1, 0, 96}} {
		one := iterateCase(0, int(c.n), int(c.steps))
		plan, _, err := one.Plan(kernels.Float32, dev)
		if err != nil {
			t.Fatal(err)
		}
		dev.L2 = c.l2
		if got := one.Bytes(plan, kernels.Float32, dev); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}
