package passes

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// launches returns the generated kernels that a graph compiled for an H200 launches, besides its matmuls. The passes must not change what the
// program computes.
func launches(t *testing.T, g *G.ExprGraph) (list []string) {
	t.Helper()
	l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
	inputs, r := make([]G.Value, len(l.Inputs)), testutil.Random(t)
	for i, in := range l.Inputs {
		v, memory := values.New(kernels.Float32, in.Node.Shape())
		for k := range kernels.Elements[float32](memory) {
			kernels.Elements[float32](memory)[k] = float32(r.IntN(9) - 4) // sums are exact in any order
		}
		inputs[i] = v
	}
	small := !slices.ContainsFunc(inputs, func(v G.Value) bool { return v.Shape().TotalSize() > 1<<20 })
	var want []G.Value
	if small {
		want = testutil.Get[[]G.Value](t)(l.Program.Eval(inputs))
	}
	testutil.Do(t, Run(l.Program, Target{Device: H200}, nil))
	testutil.Do(t, program.Verify(l.Program))
	if small {
		for i, v := range testutil.Get[[]G.Value](t)(l.Program.Eval(inputs)) {
			if got, want := testutil.Get[[]byte](t)(values.Bytes(v)), testutil.Get[[]byte](t)(values.Bytes(want[i])); !bytes.Equal(got, want) {
				t.Errorf("output %d of %v has other bits after the passes", i, l.Outputs)
			}
		}
	}
	for _, in := range l.Program.Instrs {
		if _, matmul := program.ProductOf(in.Op); program.Launches(in.Op) && !matmul {
			list = append(list, fmt.Sprint(in.Op))
		}
	}
	return list
}

// A function of rows is one launch, and so is its gradient, apart from the sums over rows for parameters.
func TestRowsAreOneLaunch(t *testing.T) {
	for _, c := range []struct {
		name              string
		build             func(x, scale, bias *G.Node) (*G.Node, error)
		parameters        int
		forward, backward int
	}{
		{"SoftMax", func(x, _, _ *G.Node) (*G.Node, error) { return ops.SoftMax(x, -1) }, 0, 1, 1},
		{"LogSoftMax", func(x, _, _ *G.Node) (*G.Node, error) { return ops.LogSoftMax(x, -1) }, 0, 1, 1},
		{"LogSumExp", func(x, _, _ *G.Node) (*G.Node, error) { return ops.LogSumExp(x, -1) }, 0, 1, 1},
		{"Max", func(x, _, _ *G.Node) (*G.Node, error) { return ops.Max(x, -1) }, 0, 1, 1},
		{"Var", func(x, _, _ *G.Node) (*G.Node, error) { return ops.Var(x, -1) }, 0, 1, 1},
		{"LayerNorm", func(x, scale, bias *G.Node) (*G.Node, error) { return ops.LayerNorm(x, scale, bias, 1e-5) }, 2, 1, 2},
		{"RMSNorm", func(x, scale, _ *G.Node) (*G.Node, error) { return ops.RMSNorm(x, scale, 1e-5) }, 1, 1, 2},
	} {
		for _, gradient := range []bool{false, true} {
			g := G.NewGraph()
			input := func(name string, shape ...int) *G.Node {
				return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...))
			}
			parameters := G.Nodes{input("x", 8, 1024, 768), input("scale", 768), input("bias", 768)}
			y := testutil.Get[*G.Node](t)(c.build(parameters[0], parameters[1], parameters[2]))
			want := c.forward
			if gradient {
				want += c.backward
				last := y.Shape()[y.Dims()-1]
				dy := testutil.Get[*G.Node](t)(ops.MatMul(y, input("w", last, last))) // which separates the two passes
				for _, d := range testutil.Get[G.Nodes](t)(y.Op().(G.SDOp).SymDiff(parameters[:c.parameters+1], y, dy)) {
					G.Read(d, new(G.Value))
				}
				G.Read(y, new(G.Value))
			}
			if got := launches(t, g); len(got) != want {
				t.Errorf("%s, gradient %v: got %d launches %q, want %d", c.name, gradient, len(got), got, want)
			}
		}
	}
}

// Ops with several results compute them in one launch.
func TestSeveralResultsAreOneLaunch(t *testing.T) {
	for name, build := range map[string]func(x *G.Node, channels func(name string) *G.Node) error{
		"TopK": func(x *G.Node, _ func(string) *G.Node) error { _, _, err := ops.TopK(x, 5, -1); return err },
		"BatchNorm": func(x *G.Node, channels func(string) *G.Node) error {
			_, _, _, err := ops.BatchNorm(x, channels("scale"), channels("bias"), channels("mean"), channels("variance"), 0.1, 1e-5)
			return err
		},
	} {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 4, G.WithName("x"), G.WithShape(8, 16, 7, 9))
		testutil.Do(t, build(x, func(name string) *G.Node { return G.NewVector(g, tensor.Float32, G.WithName(name), G.WithShape(16)) }))
		if got := launches(t, g); len(got) != 1 {
			t.Errorf("%s: got %d launches %q, want one", name, len(got), got)
		}
	}
}

// Broadcasts, and the gradients of sums and means, are fused with the functions that read them.
func TestBroadcastsAreFused(t *testing.T) {
	for _, along := range [][]int{nil, {0}, {1}} {
		for _, reduce := range []func(x *G.Node, along ...int) (*G.Node, error){ops.Sum, ops.Mean} {
			g := G.NewGraph()
			x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(96, 200))
			y := G.NewVector(g, tensor.Float32, G.WithName("y"), G.WithShape(200))
			node := testutil.Get[*G.Node](t)
			loss := node(reduce(node(ops.Map("a * a * b", x, node(ops.Broadcast(y, 96, 0)))), along...))
			if along != nil {
				loss = node(ops.Sum(node(ops.Map("a * a", loss))))
			}
			testutil.Get[G.Nodes](t)(G.Grad(loss, x, y))
			for _, name := range launches(t, g) {
				if strings.Contains(name, "broadcast") || strings.Contains(name, "Broadcast") {
					t.Errorf("along %v: got the launch %v, want it fused", along, name)
				}
			}
		}
	}
}

// Reductions that read an input directly are one launch with other functions of its rows.
func TestSiblingsOfInputsAreOneLaunch(t *testing.T) {
	for _, along := range [][]int{{0}, {1}} {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(96, 200))
		testutil.Get[*G.Node](t)(ops.Max(x, along...))
		testutil.Get[*G.Node](t)(ops.Min(x, along...))
		testutil.Get[*G.Node](t)(ops.Map("a * a", x))
		if list := launches(t, g); len(list) != 1 {
			t.Errorf("along %v: got the launches %v, want one", along, list)
		}
	}
}

// Views launch nothing before maps, rows, and matmuls of their rows.
func TestViewsCopyNothing(t *testing.T) {
	for name, c := range map[string]struct {
		build func(q, k, v *G.Node) (*G.Node, error)
		want  int
	}{
		"map":  {func(q, k, v *G.Node) (*G.Node, error) { return ops.Map("a*b + c", q, k, v) }, 1},
		"rows": {func(q, _, _ *G.Node) (*G.Node, error) { return ops.SoftMax(q, -1) }, 1},
		"slice of a permuted view": {func(q, _, _ *G.Node) (*G.Node, error) {
			q, err := ops.Permute(q, 1, 2, 0)
			if err != nil {
				return nil, err
			}
			if q, err = ops.Slice(q, nil, G.S(64, 256, 2)); err != nil {
				return nil, err
			}
			return ops.SoftMax(q, 1)
		}, 1},
		"matmul": {func(q, k, _ *G.Node) (*G.Node, error) { return ops.MatMul(q, k, ops.TransB()) }, 0},
		"linear": {func(q, _, _ *G.Node) (*G.Node, error) {
			w := G.NewMatrix(q.Graph(), tensor.Float32, G.WithName("w"), G.WithShape(10, 768))
			return ops.Linear(q, w, nil)
		}, 0},
	} {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 3, G.WithName("x"), G.WithShape(4, 16, 3*768))
		parts := testutil.Get[[]*G.Node](t)(ops.Split(x, -1, 768, 768, 768))
		testutil.Get[*G.Node](t)(c.build(parts[0], parts[1], parts[2]))
		if got := launches(t, g); len(got) != c.want {
			t.Errorf("%s: got launches %q, want %d", name, got, c.want)
		}
	}
}

// Few long rows are split across blocks, one reduction after the other.
func TestLongRowsAreSplit(t *testing.T) {
	for name, c := range map[string]struct {
		build func(x *G.Node) (*G.Node, error)
		want  int
	}{
		"SoftMax":   {func(x *G.Node) (*G.Node, error) { return ops.SoftMax(x, -1) }, 3},
		"LogSumExp": {func(x *G.Node) (*G.Node, error) { return ops.LogSumExp(x, -1) }, 2},
		"Var":       {func(x *G.Node) (*G.Node, error) { return ops.Var(x, -1) }, 2},
		"Max":       {func(x *G.Node) (*G.Node, error) { return ops.Max(x, -1) }, 1},
	} {
		g := G.NewGraph()
		x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(2, 300_000))
		testutil.Get[*G.Node](t)(c.build(x))
		l := testutil.Get[*lower.Graph](t)(lower.New(g, nil))
		v, memory := values.New(kernels.Float32, x.Shape())
		for k := range kernels.Elements[float32](memory) {
			kernels.Elements[float32](memory)[k] = rand.Float32()
		}
		want := testutil.Get[[]G.Value](t)(l.Program.Eval([]G.Value{v}))
		testutil.Do(t, Run(l.Program, Target{Device: H200}, nil))
		testutil.Do(t, program.Verify(l.Program))
		count := 0
		for _, in := range l.Program.Instrs {
			if program.Launches(in.Op) {
				count++
			}
		}
		if count != c.want {
			t.Errorf("%s: got %d launches, want %d", name, count, c.want)
		}
		ref := testutil.Get[[]byte](t)(values.Bytes(want[0]))
		got := testutil.Get[[]byte](t)(values.Bytes(testutil.Get[[]G.Value](t)(l.Program.Eval([]G.Value{v}))[0]))
		for i, y := range kernels.Elements[float32](got) {
			if z := kernels.Elements[float32](ref)[i]; math.Abs(float64(y-z)) > 1e-6*math.Abs(float64(z)) {
				t.Fatalf("%s: element %d is %v after the passes, %v before", name, i, y, z)
			}
		}
	}
}
