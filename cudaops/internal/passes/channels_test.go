package passes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TestChannelsLast: on a device with the kernels, values in BF16 between convolutions have their channels last, what reads and writes them runs in that order, and the program computes
// what the program computes whose values are rounded to BF16 at the same places.
func TestChannelsLast(t *testing.T) {
	for range 20 {
		r := rand.New(rand.NewPCG(rand.Uint64(), 0))
		graph := convolved(t, r)
		wanted := &lower.Wanted{Precision: kernels.BF16}
		until := func(last string) *lower.Graph {
			g := testutil.Get[*lower.Graph](t)(lower.New(graph, wanted))
			for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == last })] {
				testutil.Do(t, pass.Run(g.Program, Target{Device: H200, Mixed: kernels.BF16}))
			}
			return g
		}
		mixed, full := until("mixed"), until("fuse")
		testutil.Do(t, mixed.Program.Verify())
		half, copies := map[int]*program.Value{}, 0
		for _, in := range mixed.Program.Instrs {
			for _, v := range in.Out {
				if v.Dtype == expr.BF16 && v.Base == v {
					half[v.ID] = v
				}
			}
			if v, ok := program.ConvOf(in.Op); ok && v.Result == gemm.ConvOutput && !v.ChannelsLast[gemm.ConvOutput] {
				t.Errorf("%v writes float32", in.Op)
			}
		}
		for _, in := range until("layout").Program.Instrs {
			if op, ok := in.Op.(program.Map); ok && len(op.Axes) == 0 && op.Func.Operations() == 0 && len(op.Shape) == 4 {
				copies++
			}
		}
		if len(half) < 8 || copies > 0 {
			t.Errorf("got %d values in BF16 and %d copies, want 8 or more, and none:\n%v", len(half), copies, mixed.Program)
		}
		withFloats(t, mixed.Program)
		roundStored(t, full.Program, half, expr.BF16)
		got, want := testutil.Get[[]G.Value](t)(mixed.Program.Eval(inputsOf(mixed))), testutil.Get[[]G.Value](t)(full.Program.Eval(inputsOf(full)))
		for i := range want {
			x, y := floats(got[i]), floats(want[i])
			largest, worst := 0.0, 0.0
			for k := range y {
				largest, worst = max(largest, math.Abs(float64(y[k]))), max(worst, math.Abs(float64(x[k]-y[k])))
			}
			if !(worst <= 0.03*largest) { // sums of rows have another order, so that a value may be rounded to its neighbour
				t.Errorf("output %d differs by %g, want at most 3%% of %g:\n%v", i, worst, largest, mixed.Program)
			}
		}
	}
}

func floats(v G.Value) []float32 {
	if x, scalar := v.Data().(float32); scalar {
		return []float32{x}
	}
	return v.Data().([]float32)
}

// withFloats makes the convolutions of a program compute in float32 with the channels first, between copies: the host has no others.
func withFloats(t testing.TB, p *program.Program) {
	narrow, wide := expr.NewBuilder(expr.Float32), expr.NewBuilder(expr.BF16)
	toHalf := testutil.Get[expr.Func](t)(narrow.Func(narrow.Convert(narrow.Operand(0), expr.BF16)))
	toFloat := testutil.Get[expr.Func](t)(wide.Func(wide.Convert(wide.Operand(0), expr.Float32)))
	instrs := p.Instrs
	p.Instrs = nil
	// seen returns a value with its axes in another order.
	seen := func(v *program.Value, order [4]int) *program.Value {
		u, view := v.Type, program.View{Strides: make([]int64, 4)}
		u.Shape = make(tensor.Shape, 4)
		for i, a := range order {
			u.Shape[i], view.Strides[i] = v.Shape[a], v.View.Strides[a]
		}
		return p.EmitAlias(nil, v.Name, u, v, view)
	}
	for _, in := range instrs {
		v, ok := program.ConvOf(in.Op)
		if !ok || v.ChannelsLast == [2]bool{} {
			p.Instrs = append(p.Instrs, in)
			continue
		}
		v.ChannelsLast = [2]bool{}
		for i, x := range in.In {
			if x.Dtype == expr.BF16 {
				x = seen(x, [4]int{0, 3, 1, 2})
				def := &program.Instr{Op: program.Map{Func: toFloat, Shape: x.Shape}, In: []*program.Value{x}}
				p.Instrs = append(p.Instrs, def)
				u := x.Type
				u.Dtype = expr.Float32
				in.In[i] = p.NewValue(def, x.Name, u)
			}
		}
		in.Op = program.Kernel{Planner: v}
		p.Instrs = append(p.Instrs, in)
		if out := in.Out[0]; out.Dtype == expr.BF16 {
			u := program.Type{Numeric: true, Dtype: expr.Float32, Shape: tensor.Shape{out.Shape[0], out.Shape[3], out.Shape[1], out.Shape[2]}}
			in.Out = nil
			x := seen(p.NewValue(in, out.Name, u), [4]int{0, 2, 3, 1})
			def := &program.Instr{Op: program.Map{Func: toHalf, Shape: x.Shape}, In: []*program.Value{x}, Out: []*program.Value{out}}
			out.Def = def
			p.Instrs = append(p.Instrs, def)
		}
	}
}

// TestChannelsLastRows: reductions of channels over many pixels, which the device splits among blocks, are instructions that need not read their operands again.
func TestChannelsLastRows(t *testing.T) {
	g, node := G.NewGraph(), testutil.Get[*G.Node](t)
	x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(256, 64, 16, 16), G.WithName("x"))
	w := []*G.Node{G.NewTensor(g, tensor.Float32, 4, G.WithShape(64, 64, 3, 3), G.WithName("v")), G.NewTensor(g, tensor.Float32, 4, G.WithShape(64, 64, 3, 3), G.WithName("w"))}
	y := node(G.Rectify(normedOf(t, node(ops.Conv2d(x, w[0], nil, ops.Padding(1))))))
	testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(ops.Conv2d(y, w[1], nil, ops.Padding(1))))), w...))
	l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: kernels.BF16}))
	testutil.Do(t, Run(l.Program, Target{Device: H200, Mixed: kernels.BF16}, nil))
	split := 0
	for _, in := range l.Program.Instrs {
		if op, ok := in.Op.(program.Map); ok && len(op.Axes) > 0 && !codegen.RowsWhole(H200, op.Shape, op.Axes) {
			if split++; !codegen.RowsSplit(op.Func, op.PerRow) {
				t.Errorf("%v of %v computes elements of the results of reductions", in.Op, op.Shape)
			}
		}
	}
	if split != 2 {
		t.Errorf("got %d reductions that are split, want those of the moments and of the gradient:\n%v", split, l.Program)
	}
}
