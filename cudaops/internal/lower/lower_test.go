package lower

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lowered returns the program of a graph.
func lowered(t *testing.T, g *G.ExprGraph) *program.Program {
	t.Helper()
	l, err := New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Verify(l.Program); err != nil {
		t.Fatal(err)
	}
	return l.Program
}

// ops returns the ops of a program that compute something.
func opsOf(p *program.Program) (list []string) {
	for _, in := range p.Instrs {
		switch in.Op.(type) {
		case program.Input, program.Alias:
		default:
			list = append(list, in.Op.String())
		}
	}
	return list
}

func matrix(g *G.ExprGraph, name string, rows, columns int) *G.Node {
	return G.NewMatrix(g, tensor.Float64, G.WithName(name), G.WithShape(rows, columns))
}

// Transposes are no copies: products take their operands transposed.
func TestTransposedProducts(t *testing.T) {
	transposed := func(n *G.Node) *G.Node { return G.Must(G.Transpose(n)) }
	for _, c := range []struct {
		build func(g *G.ExprGraph) *G.Node
		want  []string
	}{
		{func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Mul(transposed(matrix(g, "a", 4, 3)), matrix(g, "b", 4, 5)))
		}, []string{"kernel product[TransA]"}},
		{func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Mul(matrix(g, "a", 3, 4), transposed(matrix(g, "b", 5, 4))))
		}, []string{"kernel product[TransB]"}},
		{func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Mul(transposed(matrix(g, "a", 4, 3)), transposed(matrix(g, "b", 5, 4))))
		}, []string{"kernel product[TransA TransB]"}},
		{func(g *G.ExprGraph) *G.Node {
			return G.Must(G.Tensordot([]int{0}, []int{1}, matrix(g, "a", 4, 3), matrix(g, "b", 5, 4)))
		}, []string{"kernel product[TransA TransB]"}},
		{func(g *G.ExprGraph) *G.Node { // columns of another matrix: a copy
			return G.Must(G.Mul(G.Must(G.Slice(matrix(g, "a", 3, 9), nil, G.S(2, 6))), matrix(g, "b", 4, 5)))
		}, []string{"map f64: x0", "kernel product"}},
	} {
		g := G.NewGraph()
		n := c.build(g)
		if got := opsOf(lowered(t, g)); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %q, want %q", n, got, c.want)
		}
	}
}

// A value that depends on constants alone is one.
func TestFold(t *testing.T) {
	g := G.NewGraph()
	x := matrix(g, "x", 2, 3)
	G.Must(G.Mean(x)) // by 2 times 3
	p := lowered(t, g)
	if got, want := opsOf(p), []string{"rows f64: rowsum(x0) over [0 1]", "map f64, f64: x0 / x1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	six := p.Instrs[len(p.Instrs)-1].In[1]
	c, ok := six.Def.Op.(program.Constant)
	if !ok {
		t.Fatalf("the divisor is %v, want a constant", six.Def)
	}
	if got, _ := values.Float(c.Value); got != 6 {
		t.Errorf("got %v, want 6", got)
	}
}

// A constant of few elements is not folded through a step of very many.
func TestFoldHuge(t *testing.T) {
	for n, want := range map[int]int{1 << 20: 0, 1 << 43: 1} { // launches
		g := G.NewGraph()
		one := testutil.Get[*G.Node](t)(ops.Constant(g, 1.0))
		all := testutil.Get[*G.Node](t)(ops.Broadcast(one, n, 0))
		testutil.Get[*G.Node](t)(ops.Max(all, 0))
		if got := opsOf(lowered(t, g)); len(got) != want {
			t.Errorf("the maximum of %d elements: got %q, want %d", n, got, want)
		}
	}
}

func TestReshapedStrides(t *testing.T) {
	for _, c := range []struct {
		shape   []int
		strides []int64
		to      []int
		want    []int64 // nil: none
	}{
		{[]int{2, 6}, []int64{6, 1}, []int{3, 4}, []int64{4, 1}},
		{[]int{2, 6}, []int64{6, 1}, []int{12}, []int64{1}},
		{[]int{2, 6}, []int64{12, 2}, []int{12}, []int64{2}},
		{[]int{2, 6}, []int64{10, 1}, []int{12}, nil},
		{[]int{2, 6}, []int64{10, 1}, []int{2, 1, 2, 3}, []int64{10, 6, 3, 1}},
		{[]int{2, 6}, []int64{1, 2}, []int{12}, nil},
		{[]int{2, 6}, []int64{0, 0}, []int{4, 3}, []int64{0, 0}},
		{[]int{2, 1, 6}, []int64{1, 77, 2}, []int{2, 6, 1}, []int64{1, 2, 0}},
		{nil, nil, []int{1, 1}, []int64{0, 0}},
		{[]int{1}, []int64{1}, nil, []int64{}},
	} {
		got, ok := reshapedStrides(c.shape, c.strides, c.to)
		if ok != (c.want != nil) || ok && fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v by %v as %v: got %v, %v, want %v", c.shape, c.strides, c.to, got, ok, c.want)
		}
	}
}

// One sum after the other is one along all their axes, where nobody needs the first.
func TestSumsOfSums(t *testing.T) {
	for _, c := range []struct {
		shared bool
		axes   []int
		want   []string
	}{
		{false, []int{2, 0}, []string{"rows f64: rowsum(x0) over [2]", "rows f64: rowsum(x0) over [0 2]"}},
		{false, []int{0, 0}, []string{"rows f64: rowsum(x0) over [0]", "rows f64: rowsum(x0) over [0 1]"}},
		{true, []int{1, 1}, []string{"rows f64: rowsum(x0) over [1]", "map f64: tanh(x0)", "rows f64: rowsum(x0) over [1]"}},
	} {
		g := G.NewGraph()
		sum := G.Must(G.Sum(G.NewTensor(g, tensor.Float64, 3, G.WithName("x"), G.WithShape(2, 3, 4)), c.axes[0]))
		if c.shared {
			G.Must(G.Tanh(sum))
		}
		G.Must(G.Sum(sum, c.axes[1]))
		got := opsOf(lowered(t, g))
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("sums along %v: got %q, want %q", c.axes, got, c.want)
		}
	}
}

// Random numbers are numbered in the order of the graph, a Dropout and its derivative
// alike, and a graph is stale once an op trains no longer.
func TestStreams(t *testing.T) {
	g := G.NewGraph()
	x := matrix(g, "x", 3, 4)
	y := G.Must(G.Dropout(G.Must(G.Tanh(G.Must(G.Dropout(x, 0.5)))), 0.25))
	z := G.Must(G.Add(y, G.GaussianRandomNode(g, tensor.Float64, 0, 1, 3, 4)))
	if _, err := G.Grad(G.Must(G.Sum(z)), x); err != nil {
		t.Fatal(err)
	}
	l, err := New(g, nil)
	if err != nil {
		t.Fatal(err)
	}
	var streams []int
	for _, in := range l.Program.Instrs {
		for _, v := range in.Out {
			if v.IsRandom() {
				streams = append(streams, v.View.Stream.Number)
			}
		}
	}
	slices.Sort(streams)
	if want := []int{1, 1, 2, 2, 3, 4}; !slices.Equal(streams, want) || len(l.Random) != 2 {
		t.Errorf("got streams %v and a state of %d, want %v and 2", streams, len(l.Random), want)
	}
	op := y.Op().(G.TrainModeOp)
	for _, training := range []bool{true, false, true} {
		if err := op.SetTraining(training); err != nil {
			t.Fatal(err)
		}
		if l.Stale() == training {
			t.Errorf("training %v: stale %v", training, l.Stale())
		}
	}
}

// loweredOps are the types of Gorgonia's ops that rules take, at least on some operands.
var loweredOps = []string{
	"constantScalar", "constantTensor", "sizeOp", "reshapeOp", "transposeOp", "sliceOp", "sliceIncrOp", "repeatOp", "atOp", "elemUnaryOp", "elemBinOp",
	"minBetween", "maxBetween", "dtConvOp", "linAlgBinOp", "tensordotOp", "sumOp", "maxOp", "softmaxOp", "softmaxDiffOp", "globalAveragePoolOp",
	"concatOp", "byIndicesOp", "byIndicesOpDiffOp", "diagFlatOp",
	"im2colOp", "col2imOp", "maxPoolOp", "maxPoolDiffOp", "avgPoolOp", "avgPoolDiffOp", "upsampleOp", "upsampleDiffOp",
	"BatchNormOp", "batchnormDiffOp", "GroupNormOp", "groupNormDiffOp", "dropoutOp", "dropoutDiffOp", "randomOp",
}

// Every op of Gorgonia's is lowered, or known to be left to the host.
func TestEveryOpIsKnown(t *testing.T) {
	methods := map[string][]string{}
	for _, file := range testutil.Sources(t, "gorgonia.org/gorgonia") {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
				receiver := f.Recv.List[0].Type
				if star, pointer := receiver.(*ast.StarExpr); pointer {
					receiver = star.X
				}
				name := receiver.(*ast.Ident).Name
				methods[name] = append(methods[name], f.Name.Name)
			}
		}
	}
	var found []string
	for name, has := range methods {
		missing := func(method string) bool { return !slices.Contains(has, method) }
		if !slices.ContainsFunc([]string{"Arity", "Do"}, missing) {
			found = append(found, name)
		}
	}
	want := slices.Concat(loweredOps, unlowered, []string{"letOp", "readOp"}, // statements
		[]string{"Iop", "devTrans", "scalarBinOp", "tBinOp", "clampOp"}) // in no graph, or inside another op
	slices.Sort(found)
	slices.Sort(want)
	if !slices.Equal(found, want) {
		t.Errorf("Gorgonia's ops are\n%v, want\n%v", found, want)
	}
}

// The gradients of a sum are views of the sum's gradient.
func TestGradientsOfSumAreViews(t *testing.T) {
	g := G.NewGraph()
	x, y := G.NewMatrix(g, tensor.Float32, G.WithShape(3, 4), G.WithName("x")), G.NewMatrix(g, tensor.Float32, G.WithShape(3, 4), G.WithName("y"))
	sum := testutil.Get[*G.Node](t)(ops.Map("a + b", x, y))
	loss := testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Map("exp(a)", sum))))
	testutil.Get[G.Nodes](t)(G.Grad(loss, x, y))
	for _, in := range lowered(t, g).Instrs {
		if m, ok := in.Op.(program.Map); ok {
			if _, copies := m.Func.IsOperand(); copies {
				t.Errorf("%v copies its operand", in)
			}
		}
	}
}
