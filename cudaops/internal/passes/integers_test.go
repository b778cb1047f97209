package passes

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// mixedRows and mixedColumns are the shape of most nodes of drawIntegers.
const mixedRows, mixedColumns = 6, 8

// drawIntegers draws a graph of ops of integers, bool and floating-point numbers, and the gradient w.r.t. its input of float32.
func drawIntegers(t *rapid.T) (g *G.ExprGraph, keep G.Nodes) {
	g = G.NewGraph()
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	must := func(n *G.Node, err error) *G.Node {
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	types := []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Byte, tensor.Int32, tensor.Int64, tensor.Int, tensor.Bool}
	var pool G.Nodes
	for i, dt := range types {
		of, _ := values.Dtype(dt)
		v, m := values.New(of, tensor.Shape{mixedRows, mixedColumns})
		for k := range mixedRows * mixedColumns {
			x := int64(r.IntN(7))
			switch of {
			case kernels.Float32:
				kernels.Elements[float32](m)[k] = float32(x) / 2
			case kernels.Float64:
				kernels.Elements[float64](m)[k] = float64(x) / 2
			case kernels.Bool:
				m[k] = byte(x % 2)
			default:
				m[k*int(of.Size())] = byte(x)
			}
		}
		pool = append(pool, G.NewMatrix(g, dt, G.WithName(string(rune('p'+i))), G.WithShape(mixedRows, mixedColumns), G.WithValue(v)))
	}
	x := pool[0]
	one := func(of ...tensor.Dtype) *G.Node {
		n := rapid.SampledFrom(pool).Draw(t, "operand")
		if len(of) > 0 && n.Dtype() != of[0] {
			n = must(ops.Cast(n, of[0]))
		}
		return n
	}
	numbers := func() *G.Node {
		n := one()
		if n.Dtype() == tensor.Bool {
			n = must(ops.Cast(n, tensor.Byte))
		}
		return n
	}
	text := rapid.SampledFrom([]string{"a + b", "a * b - 1", "max(a, b)", "a - b * 3", "a == b", "a < b && b > 2", "!(a != b) || a > 1", "select(a > b, a, b)", "tanh(a) + b", "a / (b + 1)", "abs(a - b)"})
	for range rapid.IntRange(1, 14).Draw(t, "nodes") {
		var n *G.Node
		switch rapid.SampledFrom([]string{"map", "map", "cast", "where", "one-hot", "argmax", "sum", "softmax", "permute", "slice", "compare", "concat", "number"}).Draw(t, "op") {
		case "map":
			n = must(ops.Map(text.Draw(t, "expression"), one(), one()))
		case "cast":
			n = one(rapid.SampledFrom(types).Draw(t, "type"))
		case "where":
			n = must(ops.Where(one(tensor.Bool), one(), one()))
		case "one-hot":
			n = must(ops.OneHot(must(ops.ArgMin(numbers(), 1)), mixedColumns, rapid.SampledFrom(types).Draw(t, "type")))
		case "argmax":
			n = must(ops.Map("a + b", one(), must(ops.ArgMax(numbers(), 0))))
		case "sum":
			axes := rapid.SampledFrom([][]int{{0}, {0, 1}}).Draw(t, "axes")
			n = must(ops.Map("a - b + c", one(), must(ops.Sum(one(), axes...)), must(ops.Max(numbers(), axes...))))
		case "softmax":
			n = must(ops.SoftMax(one(tensor.Float32), -1))
		case "permute":
			n = must(ops.Reshape(must(ops.Permute(one(), 1, 0)), mixedRows, mixedColumns))
		case "slice":
			n = must(ops.Map("a * b", one(), must(ops.Slice(one(), G.S(2, 3)))))
		case "compare":
			f := rapid.SampledFrom([]func(a, b *G.Node) (*G.Node, error){ops.Equal, ops.NotEqual}).Draw(t, "comparison")
			n = must(f(one(), one()))
		case "number":
			dt := rapid.SampledFrom([]kernels.Dtype{kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int}).Draw(t, "type of the number")
			n = must(ops.Map("a * b - b", one(), must(ops.Constant(g, values.Number(dt, float64(r.IntN(9)))))))
		case "concat":
			a := one()
			n = must(ops.Concat(0, must(ops.Slice(a, G.S(3, mixedRows))), must(ops.Slice(a, G.S(0, 3)))))
		}
		if pool = append(pool, n); rapid.IntRange(0, 4).Draw(t, "kept") == 0 {
			keep = append(keep, n)
		}
	}
	last := must(ops.Cast(pool[len(pool)-1], tensor.Float32))
	loss := must(ops.Sum(must(ops.Map("a * b", last, x))))
	gradients, err := G.Grad(loss, x)
	if err != nil {
		t.Fatal(err)
	}
	return g, append(keep, gradients...)
}

// Graphs of integers, bool and indices compute the same bits after every pass, and on the host backend.
func TestPassesKeepIntegers(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		g, keep := drawIntegers(t)
		keepsResults(t, g, &lower.Wanted{Keep: keep})
	})
}

// The same on a GPU, where launches that share memory are ordered.
func TestIntegersOnDevices(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		g, keep := drawIntegers(t)
		l, err := lower.New(g, &lower.Wanted{Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		evaluates(t, l, Target{Device: exectest.H200})
		if _, err := exectest.Check(l.Program, exectest.H200); err != nil {
			t.Fatalf("%v\n%v", err, l.Program)
		}
	})
}

// Constants of one number are literals of the function, not operands.
func TestNumbersAreLiterals(t *testing.T) {
	for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int} {
		g := G.NewGraph()
		x := G.NewMatrix(g, values.Tensor(dt), G.WithName("x"), G.WithShape(mixedRows, mixedColumns))
		three := testutil.Get[*G.Node](t)(ops.Constant(g, values.Number(dt, 3)))
		testutil.Get[*G.Node](t)(ops.Map("a + b", x, three))
		l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
		testutil.Do(t, Run(l.Program, Target{Device: H200}, nil))
		for _, in := range l.Program.Instrs {
			if program.Launches(in.Op) && len(in.In) != 1 {
				t.Errorf("%v: got %d operands, want x alone: %v", values.Tensor(dt), len(in.In), l.Program)
			}
		}
	}
}

// The index of the greatest element, its one-hot row, and what uses it, are one launch.
func TestIotasFuse(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(512, 1000))
	labels := G.NewVector(g, tensor.Int, G.WithName("labels"), G.WithShape(512))
	hot := testutil.Get[*G.Node](t)(ops.OneHot(labels, 1000, tensor.Float32))
	logp := testutil.Get[*G.Node](t)(ops.LogSoftMax(x, 1))
	testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Map("a*b", logp, hot)), 1))
	l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
	testutil.Do(t, Run(l.Program, Target{Device: H200}, nil))
	testutil.Do(t, program.Verify(l.Program))
	var iotas, launches int
	for in := range l.Program.All() {
		if _, iota := in.Op.(program.Iota); iota {
			iotas++
		}
		if program.Launches(in.Op) {
			launches += len(in.Plan.Launches)
		}
	}
	if iotas != 1 || launches > 2 {
		t.Errorf("got %d iotas and %d launches, want 1 and at most 2:\n%v", iotas, launches, l.Program)
	}
}

// ArgMax of a few long rows, which the host splits at their reductions, finds the greatest elements.
func TestArgMaxOfLongRows(t *testing.T) {
	const rows, columns = 3, 70_001
	r := testutil.Random(t)
	list, want := make([]float32, rows*columns), make([]int, rows)
	for i := range list {
		if list[i] = r.Float32(); list[i] > list[i/columns*columns+want[i/columns]] {
			want[i/columns] = i % columns
		}
	}
	for _, target := range []Target{{Device: kernels.HostDevice()}, {Device: exectest.H200}} {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(rows, columns), G.WithValue(tensor.New(tensor.WithShape(rows, columns), tensor.WithBacking(list))))
		at := testutil.Get[*G.Node](t)(ops.ArgMax(x, 1))
		testutil.Get[*G.Node](t)(ops.Map("a + b", at, at))
		l := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Keep: G.Nodes{at}}))
		got := evaluates(t, l, target)[0].Data().([]int)
		if !slices.Equal(got, want) {
			t.Errorf("on %s: got %v, want %v", target.Device.Name, got, want)
		}
		launches := 0
		for _, in := range l.Program.Instrs {
			if program.Launches(in.Op) {
				launches++
			}
		}
		if target.Device.Kind == kernels.CPU && launches < 2 {
			t.Errorf("got %d launches on the host, want the rows split", launches)
		}
	}
}
