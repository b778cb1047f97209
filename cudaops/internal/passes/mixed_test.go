package passes

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// StoresRounded checks that Mixed computes what the program computes if the values that Mixed stores in 16 bits are rounded when they are stored, bit
// for bit, that each later pass keeps the bits, and that the host backend computes them. It returns how many values are in 16 bits. change changes the lowered
// program.
func StoresRounded(t failer, graph *G.ExprGraph, wanted *lower.Wanted, change ...func(*program.Program)) map[int]*program.Value {
	lowered := func() *lower.Graph {
		g, err := lower.New(graph, wanted)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range change {
			f(g.Program)
		}
		return g
	}
	d, _ := wanted.Precision.Half()
	half, g, target := map[int]*program.Value{}, lowered(), Target{Device: kernels.HostDevice(), Mixed: wanted.Precision}
	var want []G.Value
	mixed, changed := false, changes()
	if err := Run(g.Program, target, func(pass string, p *program.Program) error {
		if err := program.Verify(p); err != nil {
			t.Fatalf("after %s: %v\n%v", pass, err, p)
		}
		if mixed = mixed || pass == "mixed"; !mixed {
			return nil
		}
		for in := range p.All() {
			for _, v := range in.Out {
				if pass == "mixed" && v.Dtype == d {
					half[v.ID] = v
				}
			}
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
	}); err != nil {
		t.Fatal(err)
	}
	for _, v := range g.Program.Outputs {
		if v.Dtype == d {
			t.Fatalf("output %v is stored in 16 bits:\n%v", v, g.Program)
		}
	}
	full := lowered()
	for _, pass := range All[:slices.IndexFunc(All, func(p Pass) bool { return p.Name == "mixed" })] {
		if err := pass.Run(full.Program, target); err != nil {
			t.Fatal(err)
		}
	}
	roundStored(t, full.Program, half, d)
	got, err := full.Program.Eval(inputsOf(full))
	if err != nil {
		t.Fatal(err)
	}
	if !equal(t, got, want) {
		t.Fatalf("Mixed computes something else than the program with rounded values:\n%v\n%v", g.Program, full.Program)
	}
	e, err := exec.New(g.Program, new(exec.HostBackend), false)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = e.Run(inputsOf(g)); err != nil {
		t.Fatal(err)
	} else if !equal(t, got, want) {
		t.Fatalf("the backend computes something else than Eval:\n%v", g.Program)
	}
	return half
}

// roundStored rounds values with an instruction for each, whose result all others read.
func roundStored(t failer, p *program.Program, half map[int]*program.Value, d kernels.Dtype) {
	b := expr.NewBuilder(expr.Float32)
	f, err := b.Func(b.Convert(b.Convert(b.Operand(0), d), expr.Float32))
	if err != nil {
		t.Fatal(err)
	}
	rounded := map[*program.Value]*program.Value{}
	var instrs []*program.Instr
	for _, in := range p.Instrs {
		for i, v := range in.In {
			if r := rounded[v]; r != nil {
				in.In[i] = r
			}
		}
		instrs = append(instrs, in)
		for _, v := range slices.Clone(in.Out) {
			if r := rounded[v.Base]; r != nil {
				v.Base = r
			} else if half[v.ID] != nil && v.Base == v {
				def := &program.Instr{Op: program.Map{Func: f, Shape: v.Shape}, In: []*program.Value{v}}
				rounded[v] = p.NewValue(def, v.Name, v.Type)
				instrs = append(instrs, def)
			}
		}
	}
	p.Instrs = instrs
}

// Graphs with rows of any length compute what they compute with rounded values.
func TestMixedKeepsResults(t *testing.T) {
	stored := 0
	testutil.CheckProperty(t, func(t *rapid.T) {
		b := drawGraph(t)
		by := rapid.SampledFrom([]kernels.Precision{kernels.BF16, kernels.F16}).Draw(t, "by")
		stored += len(StoresRounded(t, b.g, &lower.Wanted{Keep: b.keep, Precision: by}))
	})
	t.Logf("%d values stored in 16 bits", stored)
}

// doubler plans 2 x of n elements of a type.
type doubler struct {
	kernels.Dtype
	n int
}

func (d doubler) Plan(dev kernels.Device) (*kernels.Plan, error) {
	b := expr.NewBuilder(expr.Float32)
	f, err := b.Func(b.Apply(expr.Add, b.Operand(0), b.Operand(0)))
	if err == nil {
		f, err = f.Stored([]kernels.Dtype{d.Dtype}, []kernels.Dtype{d.Dtype})
	}
	if err != nil {
		return nil, err
	}
	return codegen.Map(dev, f, []int{d.n}, codegen.Dense([]int{d.n}))
}

func (d doubler) Stored(to kernels.Dtype, _ kernels.Device) (p kernels.Planner, inputs, outputs []bool, ok bool) {
	return doubler{to, d.n}, []bool{true}, []bool{true}, d.n%16 == 0
}

// A kernel that can have its operands and outputs in BF16 has: of its results and of what the result of a product, or a float32 input, becomes.
func TestMixedStorer(t *testing.T) {
	for rows, want := range map[int]int{32: 4, 33: 0} { // a kernel without 16 bits between the products
		g := G.NewGraph()
		matrix := func(name string, rows, cols int) *G.Node {
			return G.NewMatrix(g, tensor.Float32, G.WithName(name), G.WithShape(rows, cols), G.WithInit(G.Uniform(-1, 1)))
		}
		y := G.Must(G.Mul(G.Must(G.Tanh(G.Must(G.Mul(G.Must(G.Tanh(matrix("x", rows, 8))), matrix("w", 8, 24))))), matrix("v", 24, 16)))
		got := len(StoresRounded(t, g, &lower.Wanted{Keep: G.Nodes{y}, Precision: kernels.BF16}, func(p *program.Program) {
			for _, in := range p.Instrs {
				if program.Is[program.Map](in.Op) {
					in.Op = program.Kernel{Planner: doubler{kernels.Float32, int(in.Out[0].Elements())}}
				}
			}
		}))
		if got != want {
			t.Errorf("of %d rows %d values are stored in BF16, want %d", rows, got, want)
		}
	}
}

// Attention between products, with its gradients, has q, k, v, its output and their gradients in BF16: it computes what attention in float32 computes of rounded operands.
func TestMixedAttention(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		g, number := G.NewGraph(), func(name string, from, to int) int { return rapid.IntRange(from, to).Draw(t, name) }
		batch, time, keyHeads, group, dim := number("batch", 1, 2), number("time", 1, 80), number("key heads", 1, 2), number("group", 1, 2), 8*number("dim", 1, 3)
		heads := keyHeads * group
		matrix := func(name string, rows, cols int) *G.Node {
			return G.NewMatrix(g, tensor.Float32, G.WithName(name), G.WithShape(rows, cols), G.WithInit(G.Uniform(-1, 1)))
		}
		from := matrix("x", 8*batch*time, 8)
		x := G.Must(G.Tanh(from))
		part := func(name string, heads int) *G.Node {
			return G.Must(ops.Reshape(G.Must(ops.MatMul(x, matrix(name, 8, heads*dim))), 8*batch, time, heads, dim))
		}
		options := []ops.AttentionOption{ops.RowsFirst(), ops.Causal()}
		if rapid.Bool().Draw(t, "counts") {
			list := make([]int32, time)
			for i := range list {
				list[i] = int32(number("keys", 0, time))
			}
			options[1] = ops.KeyCounts(G.Must(ops.Constant(g, tensor.New(tensor.WithBacking(list)))))
		}
		y := G.Must(ops.Attention(part("q", heads), part("k", keyHeads), part("v", keyHeads), options...))
		y = G.Must(ops.MatMul(G.Must(ops.Reshape(y, 8*batch*time, heads*dim)), matrix("o", heads*dim, 8)))
		if _, err := G.Grad(G.Must(ops.Mean(G.Must(ops.Map("a * a", y)))), from); err != nil {
			t.Fatal(err)
		}
		attended := 0
		for _, v := range StoresRounded(t, g, &lower.Wanted{Precision: kernels.BF16}) {
			if _, ok := program.AttentionOf(v.Def.Op); ok {
				attended++
			}
		}
		if attended != 4 {
			t.Fatalf("%d results of attention are in BF16, want the output and three gradients", attended)
		}
	})
}
