package passes

import (
	"math"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/gemm"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Two products of one large matrix are computed in chunks of its rows, which have their splits in common: X B has the same bits, X^T D those of a sum of the chunks' products.
func TestChunks(t *testing.T) {
	const m, k, n = 4000, 768, 1152
	r, values := testutil.Random(t), map[string]*tensor.Dense{}
	for name, shape := range map[string]tensor.Shape{"x": {m, k}, "y": {m, k}, "b": {k, n}, "d": {m, n}} {
		values[name] = tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
		for i := range values[name].Float32s() {
			values[name].Float32s()[i] = r.Float32() - 0.5
		}
	}
	for _, c := range []struct {
		first  bool  // X^T D comes first
		limit  int64 // in rows
		chunks int
	}{{false, m, 1}, {r.IntN(2) == 0, 1792 + r.Int64N(1792), 3}, {false, 1791, 1}} {
		build := func() *lower.Graph {
			g := G.NewGraph()
			input := func(name string, rows, columns int) *G.Node {
				return G.NewMatrix(g, tensor.Float32, G.WithShape(rows, columns), G.WithName(name), G.WithValue(values[name]))
			}
			x, b, d := testutil.Get[*G.Node](t)(ops.Add(input("x", m, k), input("y", m, k))), input("b", k, n), input("d", m, n)
			for _, rows := range []bool{!c.first, c.first} {
				if rows {
					testutil.Get[*G.Node](t)(ops.MatMul(x, b))
				} else {
					testutil.Get[*G.Node](t)(ops.MatMul(x, d, ops.TransA()))
				}
			}
			return testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{}))
		}
		want, got := build(), build()
		p := got.Program
		for _, pass := range All {
			if pass.Name == "round" {
				break
			}
			if pass.Name != "mixed" {
				testutil.Do(t, pass.Run(want.Program, Target{Device: H200}))
				testutil.Do(t, pass.Run(p, Target{Device: H200}))
			}
		}
		testutil.Do(t, chunks(p, H200, c.limit*4*k))
		testutil.Do(t, program.Verify(p))
		products := 0
		for _, in := range p.Instrs {
			if _, ok := program.ProductOf(in.Op); ok {
				products++
			}
		}
		if products != 2*c.chunks {
			t.Errorf("%+v: got %d products, want %d chunks of two:\n%v", c, products, c.chunks, p)
		}
		if c.chunks > 1 {
			sameChunks(t, m, evaluated(t, want), got)
		}
		testutil.Do(t, castOperands(p, Target{Device: H200}))
		testutil.Do(t, program.Verify(p))
		prepared := 0
		for _, in := range p.Instrs {
			if op, is := in.Op.(program.Kernel); is {
				if prepare, is := op.Planner.(gemm.Prepare); is && prepare.Cols == k {
					prepared++
				}
			}
		}
		if prepared != c.chunks {
			t.Errorf("%+v: X is split in %d parts, want %d:\n%v", c, prepared, c.chunks, p)
		}
	}
}

func evaluated(t *testing.T, l *lower.Graph) []G.Value {
	return testutil.Get[[]G.Value](t)(l.Program.Eval(inputsOf(l)))
}

// sameChunks checks that of outputs and those of a program X B has the same bits, and X^T D those of another order of its sums.
func sameChunks(t *testing.T, rows int, a []G.Value, got *lower.Graph) {
	b := evaluated(t, got)
	for i := range a {
		if loss, scalar := a[i].Data().(float32); scalar {
			if b[i].Data().(float32) != loss {
				t.Errorf("output %d is %v, want %v", i, b[i], loss)
			}
			continue
		}
		x, y, most := a[i].Data().([]float32), b[i].Data().([]float32), 0.0
		for j := range x {
			most = max(most, math.Abs(float64(x[j])-float64(y[j])))
		}
		if most > 0 && a[i].Shape()[0] == rows || !(most < 1e-3) {
			t.Errorf("output %d differs by up to %v", i, most)
		}
	}
}

// A gradient w.r.t. logits, which a launch computes with the losses of rows, is computed in the chunks of the two products that read it, and each chunk is stored as splits alone.
func TestRowChunks(t *testing.T) {
	const m, classes, width = 4032, 768, 1152
	r, values := testutil.Random(t), map[string]*tensor.Dense{}
	for name, shape := range map[string]tensor.Shape{"h": {m, width}, "w": {classes, width}} {
		values[name] = tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
		for i := range values[name].Float32s() {
			values[name].Float32s()[i] = (r.Float32() - 0.5) / 8
		}
	}
	values["labels"] = tensor.New(tensor.Of(tensor.Int32), tensor.WithShape(m))
	for i := range values["labels"].Int32s() {
		values["labels"].Int32s()[i] = r.Int32N(classes)
	}
	build := func() *lower.Graph {
		g := G.NewGraph()
		h := G.NewMatrix(g, tensor.Float32, G.WithShape(m, width), G.WithName("h"), G.WithValue(values["h"]))
		w := G.NewMatrix(g, tensor.Float32, G.WithShape(classes, width), G.WithName("w"), G.WithValue(values["w"]))
		labels := G.NewVector(g, tensor.Int32, G.WithShape(m), G.WithName("labels"), G.WithValue(values["labels"]))
		loss := testutil.Get[*G.Node](t)(ops.CrossEntropy(testutil.Get[*G.Node](t)(ops.MatMul(h, w, ops.TransB())), labels))
		testutil.Get[G.Nodes](t)(G.Grad(loss, h, w))
		return testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{}))
	}
	want, got := build(), build()
	p := got.Program
	for _, pass := range All {
		if pass.Name == "round" {
			break
		}
		if pass.Name != "mixed" {
			testutil.Do(t, pass.Run(want.Program, Target{Device: H200}))
			testutil.Do(t, pass.Run(p, Target{Device: H200}))
		}
	}
	testutil.Do(t, chunks(p, H200, 1792*4*classes))
	testutil.Do(t, program.Verify(p))
	whole := evaluated(t, want)
	sameChunks(t, m, whole, got)
	testutil.Do(t, storeSplits(p, H200))
	testutil.Do(t, program.Verify(p))
	sameChunks(t, m, whole, got)
	stored := 0
	for _, in := range p.Instrs {
		for _, v := range in.Out {
			if v.Dtype == kernels.Float32 && v.Elements()%classes == 0 && v.Elements() > m && in.Out[0] != v && program.Is[program.Map](in.Op) {
				t.Errorf("%v is stored as float32", v)
			}
		}
		if op, mapped := in.Op.(program.Map); mapped && len(op.Axes) > 0 && slices.Contains(op.Split, codegen.SplitInOrder) {
			stored++
		}
	}
	if stored != 3 {
		t.Errorf("got %d launches that store splits of gradients w.r.t. logits, want 3:\n%v", stored, p)
	}
}
