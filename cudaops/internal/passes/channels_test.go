package passes

import (
	"fmt"
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

// TestChannelsLast: on a device with the kernels, values between convolutions have their channels last, in BF16 under Mixed and in float32 in TF32. What reads and writes them runs in that
// order, and the program computes what the program computes whose values are in the graph's order, rounded to BF16 at the same places.
func TestChannelsLast(t *testing.T) {
	for _, by := range []kernels.Precision{kernels.BF16, kernels.TF32} {
		for range 20 {
			testChannelsLast(t, by, convolved(t, rand.New(rand.NewPCG(rand.Uint64(), 0))), 8, 8)
			testChannelsLast(t, by, pooled(t, rand.New(rand.NewPCG(rand.Uint64(), 0))), 6, 8)
		}
	}
}

// testChannelsLast wants at least that many values in 16 bits, and with channels last of convolutions.
func testChannelsLast(t *testing.T, by kernels.Precision, graph *G.ExprGraph, wantHalf, wantLast int) {
	target, bound := Target{Device: H200}, 1e-5 // sums of rows have another order
	if by == kernels.BF16 {
		target.Mixed, bound = by, 0.03 // so that a value may be rounded to its neighbour
	}
	until := func(last string) *lower.Graph {
		g := testutil.Get[*lower.Graph](t)(lower.New(graph, &lower.Wanted{Precision: by}))
		for _, pass := range All[:1+slices.IndexFunc(All, func(p Pass) bool { return p.Name == last })] {
			testutil.Do(t, pass.Run(g.Program, target))
		}
		return g
	}
	got, want := until("channels"), until("fuse")
	testutil.Do(t, program.Verify(got.Program))
	half, last, copies := map[int]*program.Value{}, 0, 0
	for _, in := range got.Program.Instrs {
		for _, v := range in.Out {
			if v.Dtype == expr.BF16 && v.Base == v {
				half[v.ID] = v
			}
		}
		if v, ok := program.ConvOf(in.Op); ok {
			for _, x := range v.ChannelsLast {
				last += map[bool]int{true: 1}[x]
			}
			if v.Result == gemm.ConvOutput && !v.ChannelsLast[gemm.ConvOutput] {
				t.Errorf("%v writes its channels first", in.Op)
			}
		}
	}
	for _, in := range until("layout").Program.Instrs {
		if op, ok := in.Op.(program.Map); ok && len(op.Axes) == 0 && op.Func.Operations() == 0 && len(op.Shape) == 4 {
			copies++
		}
	}
	if by == kernels.BF16 && len(half) < wantHalf || last < wantLast || copies > 0 {
		t.Errorf("%v: got %d values in BF16, %d of convolutions with channels last and %d copies, want %d, %d or more, and none:\n%v", by, len(half), last, copies, wantHalf, wantLast, got.Program)
	}
	withFloats(t, got.Program)
	roundStored(t, want.Program, half, expr.BF16)
	values := testutil.Get[[]G.Value](t)(want.Program.Eval(inputsOf(want)))
	for i, v := range testutil.Get[[]G.Value](t)(got.Program.Eval(inputsOf(got))) {
		x, y := floats(v), floats(values[i])
		largest, worst := 0.0, 0.0
		for k := range y {
			largest, worst = max(largest, math.Abs(float64(y[k]))), max(worst, math.Abs(float64(x[k]-y[k])))
		}
		if !(worst <= bound*largest) {
			t.Errorf("%v: output %d differs by %g, want at most %g of %g:\n%v", by, i, worst, bound, largest, got.Program)
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
	copied := testutil.Get[expr.Func](t)(expr.Identity(expr.Float32))
	toHalf := map[expr.Dtype]expr.Func{expr.Float32: copied, expr.BF16: testutil.Get[expr.Func](t)(narrow.Func(narrow.Convert(narrow.Operand(0), expr.BF16)))}
	toFloat := map[expr.Dtype]expr.Func{expr.Float32: copied, expr.BF16: testutil.Get[expr.Func](t)(wide.Func(wide.Convert(wide.Operand(0), expr.Float32)))}
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
		last := v.ChannelsLast
		v.ChannelsLast = [2]bool{}
		for i, x := range in.In {
			if of := [3][2]gemm.ConvResult{{gemm.ConvImages, gemm.ConvFilters}, {gemm.ConvOutput, gemm.ConvFilters}, {gemm.ConvImages, gemm.ConvOutput}}[v.Result][i]; of != gemm.ConvFilters && last[of] {
				x = seen(x, [4]int{0, 3, 1, 2})
				def := &program.Instr{Op: program.Map{Func: toFloat[x.Dtype], Shape: x.Shape}, In: []*program.Value{x}}
				p.Instrs = append(p.Instrs, def)
				u := x.Type
				u.Dtype = expr.Float32
				in.In[i] = p.NewValue(def, x.Name, u)
			}
		}
		in.Op = program.Kernel{Planner: v}
		p.Instrs = append(p.Instrs, in)
		if out := in.Out[0]; v.Result != gemm.ConvFilters && last[v.Result] {
			u := program.Type{Numeric: true, Dtype: expr.Float32, Shape: tensor.Shape{out.Shape[0], out.Shape[3], out.Shape[1], out.Shape[2]}}
			in.Out = nil
			x := seen(p.NewValue(in, out.Name, u), [4]int{0, 2, 3, 1})
			def := &program.Instr{Op: program.Map{Func: toHalf[out.Dtype], Shape: x.Shape}, In: []*program.Value{x}, Out: []*program.Value{out}}
			out.Def = def
			p.Instrs = append(p.Instrs, def)
		}
	}
}

// TestChannelsLastRows: reductions of channels over many pixels, which the device splits among blocks, read their operands once, and store elements only where two others read them: the
// gradient w.r.t. a sum of two branches, and not that w.r.t. a ReLU's argument, which its readers compute.
func TestChannelsLastRows(t *testing.T) {
	for _, by := range []kernels.Precision{kernels.BF16, kernels.TF32} {
		for _, residual := range []bool{false, true} {
			g, node := G.NewGraph(), testutil.Get[*G.Node](t)
			x := G.NewTensor(g, tensor.Float32, 4, G.WithShape(256, 64, 16, 16), G.WithName("x"))
			var w []*G.Node
			conv := func(x *G.Node) *G.Node {
				w = append(w, G.NewTensor(g, tensor.Float32, 4, G.WithShape(64, 64, 3, 3), G.WithName(fmt.Sprint("w", len(w)))))
				return node(ops.Conv2d(x, w[len(w)-1], nil, ops.Padding(1)))
			}
			y, stored := normedOf(t, conv(x)), 0
			if residual {
				y, stored = node(G.Add(y, normedOf(t, conv(x)))), 1
			}
			testutil.Get[G.Nodes](t)(G.Grad(node(ops.Mean(node(G.Tanh(conv(node(G.Rectify(y))))))), w...))
			l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Precision: by}))
			target := Target{Device: H200}
			if by == kernels.BF16 {
				target.Mixed = by
			}
			testutil.Do(t, Run(l.Program, target, nil))
			split, elements := 0, 0
			for _, in := range l.Program.Instrs {
				if op, ok := in.Op.(program.Map); ok && len(op.Axes) > 0 && !codegen.RowsWhole(H200, op.Shape, op.Axes) {
					split, elements = split+1, elements+len(elementwise(in))
					if !slices.Equal(op.Shape, []int{256, 16, 16, 64}) || !codegen.RowsSplit(op.Func, op.PerRow) || len(in.Plan.Launches) != 2 {
						t.Errorf("%v, residual %v: %v of %v in %d launches, want channels last, and two launches: of splits, and of their sums", by, residual, in.Op, op.Shape, len(in.Plan.Launches))
					}
				}
			}
			if split != 2+stored || elements != stored {
				t.Errorf("%v, residual %v: got %d reductions that are split, which store %d values, want %d, those of the moments and one of the gradients, and %d:\n%v", by, residual, split, elements, 2+stored, stored, l.Program)
			}
		}
	}
}
