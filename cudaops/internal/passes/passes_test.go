package passes

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// inputsOf returns the values of a graph's inputs.
func inputsOf(g *lower.Graph) []G.Value {
	in := make([]G.Value, len(g.Inputs))
	for i, n := range g.Inputs {
		in[i] = n.Value()
	}
	return in
}

// equal reports whether two lists of values have the same bits.
func equal(t interface{ Fatal(...any) }, a, b []G.Value) bool {
	for i := range a {
		x, err1 := values.Bytes(a[i])
		y, err2 := values.Bytes(b[i])
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if a[i].Dtype() != b[i].Dtype() || !bytes.Equal(x, y) {
			return false
		}
	}
	return len(a) == len(b)
}

// Every pass leaves a program that Verify accepts and that computes, bit for bit,
// what it did before; and the backend computes what Eval does.
func TestPassesKeepResults(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		b := drawGraph(t)
		w := &lower.Wanted{Keep: b.keep, Precision: rapid.SampledFrom([]kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16}).Draw(t, "precision")}
		if rapid.Bool().Draw(t, "moving") {
			w.Moving = slicesOf(b.g)
		}
		keepsResults(t, b.g, w)
	})
}

// slicesOf returns a graph's ops that are slices.
func slicesOf(g *G.ExprGraph) (ops []G.Op) {
	for _, n := range g.AllNodes() {
		if _, _, ok := internal.Slice(n.Op()); ok {
			ops = append(ops, n.Op())
		}
	}
	return ops
}

// failer is a test, or one of rapid's.
type failer interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// changes returns a function that reports whether a program reads otherwise than after the pass before. It reports true after the last pass, where what does not print shows.
func changes() func(pass string, p *program.Program) bool {
	last := ""
	return func(pass string, p *program.Program) bool {
		var b strings.Builder
		for in := range p.All() {
			fmt.Fprintln(&b, in)
		}
		fmt.Fprint(&b, p.Stage, p.Outputs)
		before := last
		last = b.String()
		return last != before || pass == All[len(All)-1].Name
	}
}

// evaluates takes a program through the passes, compares its results after each with those before all, and returns them.
func evaluates(t failer, g *lower.Graph, target Target) (want []G.Value) {
	changed := changes()
	err := Run(g.Program, target, func(pass string, p *program.Program) error {
		if err := program.Verify(p); err != nil {
			t.Fatalf("after %s: %v\n%v", pass, err, p)
		}
		if !changed(pass, p) {
			return nil
		}
		got, err := p.Eval(inputsOf(g))
		if err != nil {
			t.Fatalf("after %s: %v\n%v", pass, err, p)
		}
		if want == nil {
			want = got
		}
		if !equal(t, got, want) {
			t.Fatalf("after %s the program computes something else:\n%v", pass, p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// keepsResults takes a graph through the passes and runs it after each.
func keepsResults(t failer, graph *G.ExprGraph, wanted *lower.Wanted) {
	g, err := lower.New(graph, wanted)
	if err != nil {
		t.Fatal(err)
	}
	want := evaluates(t, g, Target{Device: kernels.HostDevice()})
	e, err := exec.New(g.Program, new(exec.HostBackend), false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := e.Run(inputsOf(g))
		if err != nil {
			t.Fatal(err)
		}
		if !equal(t, got, want) {
			t.Fatalf("the backend computes something else than Eval:\n%v", g.Program)
		}
	}
}

// Instructions that no output needs go, with their operands; inputs stay.
func TestPrune(t *testing.T) {
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(4))
	y := G.NewVector(g, tensor.Float64, G.WithName("y"), G.WithShape(4))
	wanted := G.Must(G.Tanh(x))
	G.Must(G.Exp(G.Must(G.Add(y, G.Must(G.Mul(x, G.NewConstant(2.0)))))))
	lowered, err := lower.New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := lowered.Program
	if len(p.Outputs) != 2 || len(p.Instrs) != 7 || len(p.Setup) != 1 {
		t.Fatalf("got %d outputs, %d instructions, %d constants, want 2, 7 and 1:\n%v", len(p.Outputs), len(p.Instrs), len(p.Setup), p)
	}
	p.Outputs = p.Outputs[:1]
	if p.Outputs[0].Name != internal.Name(wanted) {
		t.Fatalf("the first output is that of %s, want %v", p.Outputs[0].Name, wanted)
	}
	if err := prune(p, Target{}); err != nil {
		t.Fatal(err)
	}
	if err := program.Verify(p); err != nil {
		t.Error(err)
	}
	if len(p.Inputs()) != 2 || len(p.Instrs) != 3 || len(p.Setup) != 0 {
		t.Errorf("got %d inputs, %d instructions, %d constants, want 2, 3 and 0:\n%v", len(p.Inputs()), len(p.Instrs), len(p.Setup), p)
	}
}

// H200 holds the properties of an H200 that plans use.
var H200 = kernels.Device{Name: "NVIDIA H200", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20, Memory: 141 << 30, Cooperative: true}

// goldenGraphs are those whose programs are kept in testdata.
var goldenGraphs = map[string]func() *G.ExprGraph{
	// Every value on the device from the first upload to the last download.
	"chain": func() *G.ExprGraph {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(64, 32))
		w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(32, 16))
		G.Must(ops.Sum(G.Must(ops.MatMul(x, w)), 0))
		return g
	},
	// A layer whose activation has no kernel, a constant, a reshape on either side,
	// and the gradient w.r.t. the weights.
	"layer": func() *G.ExprGraph {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float64, G.WithName("x"), G.WithShape(5, 4))
		w := G.NewMatrix(g, tensor.Float64, G.WithName("w"), G.WithShape(4, 3))
		one := g.AddNode(G.NewConstant(tensor.Ones(tensor.Float64, 5, 3)))
		h := G.Must(G.Tanh(G.Must(ops.Add(G.Must(ops.MatMul(x, w)), one))))
		flat := G.Must(G.Reshape(h, tensor.Shape{15}))
		cost := G.Must(ops.Dot(flat, flat))
		if _, err := G.Grad(cost, w); err != nil {
			panic(err)
		}
		var read G.Value
		G.Read(h, &read)
		return g
	},
}

var update = flag.Bool("update", false, "rewrite the programs in testdata")

func TestGolden(t *testing.T) {
	for name, build := range goldenGraphs {
		t.Run(name, func(t *testing.T) {
			g, err := lower.New(build(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			err = Run(g.Program, Target{Device: H200}, func(pass string, p *program.Program) error {
				text.WriteString("== " + pass + "\n" + p.String() + "\n")
				return program.Verify(p)
			})
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text.String() != string(want) {
				t.Errorf("got\n%s\nwant\n%s\n(-update accepts it)", text.String(), want)
			}
		})
	}
}

// Rows read views with bounds from a copy: the zeros around them are elements, too.
func TestLayoutOfRows(t *testing.T) {
	p := new(program.Program)
	instr := func(op program.Op, in ...*program.Value) *program.Instr {
		i := &program.Instr{Op: op, In: in}
		p.Instrs = append(p.Instrs, i)
		return i
	}
	shaped := func(shape ...int) program.Type {
		return program.Type{Numeric: true, Dtype: kernels.Float64, Shape: shape}
	}
	x := p.NewValue(instr(program.Input{}), "x", shaped(2, 3))
	view := program.View{Strides: []int64{3, 1}, Bounds: codegen.Bounds{Axis: 1, From: 1, To: 4}}
	wide := p.NewAlias(instr(program.Alias{}, x), "wide", shaped(2, 6), x, view)
	b := expr.NewBuilder(kernels.Float64)
	f, err := b.Func(b.Apply(expr.RowMax, b.Operand(0)))
	if err != nil {
		t.Fatal(err)
	}
	p.Outputs = []*program.Value{p.NewValue(instr(program.Map{Func: f, Shape: wide.Shape, Axes: []int{1}, PerRow: []bool{true}}, wide), "most", shaped(2))}
	if err := layout(p, Target{}); err != nil {
		t.Fatal(err)
	}
	if err := program.Verify(p); err != nil {
		t.Fatal(err)
	}
	out, err := p.Eval([]G.Value{tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{-1, -2, -3, -4, 5, -6}))})
	if err != nil {
		t.Fatal(err)
	}
	if got := out[0].Data().([]float64); got[0] != 0 || got[1] != 5 {
		t.Errorf("got %v, want [0 5]", got)
	}
}

// Reductions of different values of one shape over the same axes are one launch if they have few elements, and others are not.
func TestShortReductions(t *testing.T) {
	for _, c := range []struct {
		rows, columns, axis int // of the second
		want                int
	}{{64, 100, 0, 1}, {64, 100, 1, 2}, {64, 50, 0, 2}, {2048, 1024, 0, 2}} {
		g := G.NewGraph()
		sum := func(name string, rows, columns, axis int) {
			x := G.NewMatrix(g, G.Float32, G.WithName(name), G.WithShape(rows, columns), G.WithInit(G.Zeroes()))
			testutil.Get[*G.Node](t)(G.Sum(testutil.Get[*G.Node](t)(G.Tanh(x)), axis))
		}
		rows, columns := c.rows, 100
		if rows > 1000 {
			columns = c.columns
		}
		sum("x", rows, columns, 0)
		sum("y", c.rows, c.columns, c.axis)
		if list := launching(t, g, nil, true); len(list) != c.want {
			t.Errorf("%v: got %d launches, want %d:\n%s", c, len(list), c.want, text(list))
		}
	}
}

// A panic in a pass, or before the first one, is an error that names the pass; the passes after it do not run. That in a plan names the node.
func TestPassPanics(t *testing.T) {
	fault := func(*program.Program, Target) error { _ = kernels.CeilDiv(1, 0); return nil }
	for i := range All {
		g := product(t, 2, 3, 4)
		lowered, last := testutil.Get[*lower.Graph](t)(lower.New(g, nil)), ""
		list := slices.Clone(All)
		list[i].Run = fault
		err := run(list, lowered.Program, Target{Device: H200}, func(pass string, _ *program.Program) error { last = pass; return nil })
		wantLast := "lower"
		if i > 0 {
			wantLast = All[i-1].Name
		}
		for _, want := range []string{"pass " + All[i].Name + " panicked: runtime error: integer divide by zero, at kernels/plan.go:", "passes/passes.go:", "This is a fault of Stheno"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got the error %v, want one with %q", err, want)
			}
		}
		if last != wantLast {
			t.Errorf("pass %s panics: got %s as the last one that ran, want %s", All[i].Name, last, wantLast)
		}
	}
	g := product(t, 2, 3, 4)
	planned := func(*kernels.Plan) { _ = kernels.CeilDiv(1, 0) }
	err := run(All, testutil.Get[*lower.Graph](t)(lower.New(g, nil)).Program, Target{Device: H200, Planned: planned}, nil)
	if want := "pass plan panicked"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got the error %v, want one with %q", err, want)
	}
	m := &program.Instr{Op: program.Map{}, Out: []*program.Value{{}}}
	if _, err := m.PlanFor(H200); err == nil {
		t.Errorf("got no error for a map without a function")
	}
}

// product returns the graph of a matmul.
func product(t *testing.T, m, k, n int) *G.ExprGraph {
	g := G.NewGraph()
	a := G.NewMatrix(g, tensor.Float32, G.WithName("a"), G.WithShape(m, k))
	testutil.Get[*G.Node](t)(G.Mul(a, G.NewMatrix(g, tensor.Float32, G.WithName("b"), G.WithShape(k, n))))
	return g
}
