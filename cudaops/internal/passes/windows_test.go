package passes

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec/exectest"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// odd returns numbers of which many are 0, -0, infinite or none.
func odd(r *rand.Rand, shape ...int) *tensor.Dense {
	v := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range v {
		v[i] = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.NaN()), float32(r.NormFloat64()), float32(r.NormFloat64())}[r.IntN(6)]
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v))
}

// sliced returns a graph that multiplies slices of x, which begin at cuts of an axis, with other matrices each, and
// the gradient w.r.t. x, which is a sum of slices among zeros.
func sliced(r *rand.Rand, shape tensor.Shape, axis int, cuts []int, tanh bool) (g *G.ExprGraph, keep G.Nodes) {
	g = G.NewGraph()
	x := G.NewTensor(g, tensor.Float32, len(shape), G.WithName("x"), G.WithShape(shape...), G.WithValue(odd(r, shape...)))
	var sum *G.Node
	for i := range len(cuts) - 1 {
		at := make([]tensor.Slice, axis+1)
		at[axis] = G.S(cuts[i], cuts[i+1])
		part := G.Must(G.Slice(x, at...))
		if tanh {
			part = G.Must(G.Tanh(part))
		}
		w := G.NewTensor(g, tensor.Float32, part.Dims(), G.WithName("w"+string(rune('a'+i))), G.WithShape(part.Shape()...), G.WithValue(odd(r, part.Shape()...)))
		term := G.Must(G.Sum(G.Must(G.HadamardProd(part, w))))
		if sum == nil {
			sum = term
		} else {
			sum = G.Must(G.Add(sum, term))
		}
	}
	keep, err := G.Grad(sum, x)
	if err != nil {
		panic(err)
	}
	return g, keep
}

// compiledFor returns a program for an H200.
func compiledFor(t *testing.T, g *G.ExprGraph, keep G.Nodes) *program.Program {
	t.Helper()
	p := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Keep: keep})).Program
	testutil.Do(t, Run(p, Target{Device: exectest.H200}, nil))
	if _, err := exectest.Check(p, exectest.H200); err != nil {
		t.Fatalf("%v\n%v", err, p)
	}
	return p
}

// ofKind counts the instructions of an op.
func ofKind[Op program.Op](p *program.Program) (n int) {
	for _, in := range p.Instrs {
		if _, is := in.Op.(Op); is {
			n++
		}
	}
	return n
}

// The gradient w.r.t. a value of which all slices are used is computed part by part: bit for bit as a
// sum, in its place where that is at an address for a value of its own.
func TestWindowsOfSlices(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		shape := tensor.Shape(rapid.SliceOfN(rapid.IntRange(2, 11), 2, 3).Draw(t, "shape"))
		axis := rapid.IntRange(0, len(shape)-1).Draw(t, "axis")
		cuts := []int{0}
		for c := 1; c < shape[axis]; c++ {
			if rapid.Bool().Draw(t, "cut") {
				cuts = append(cuts, c)
			}
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		g, keep := sliced(r, shape, axis, append(cuts, shape[axis]), rapid.Bool().Draw(t, "tanh"))
		keepsResults(t, g, &lower.Wanted{Keep: keep})
		keepsResults(t, g, &lower.Wanted{Keep: keep, Moving: slicesOf(g)})
	})
	r := rand.New(rand.NewPCG(1, 1))
	for name, c := range map[string]struct {
		shape         tensor.Shape
		axis          int
		cuts          []int
		join, concats int
	}{
		"first axis":                {tensor.Shape{4, 8, 8}, 0, []int{0, 1, 2, 4}, 1, 0},
		"first axis, odd addresses": {tensor.Shape{12, 5, 5}, 0, []int{0, 1, 4, 5, 6, 7, 8, 9, 10, 12}, 0, 1},
		"second axis, few":          {tensor.Shape{3, 4, 64}, 1, []int{0, 1, 2, 4}, 0, 0},
		"second axis, many":         {tensor.Shape{3, 12, 64}, 1, []int{0, 3, 4, 7, 12}, 0, 1},
		"a gap":                     {tensor.Shape{4, 8, 8}, 0, []int{1, 2, 4}, 0, 0},
	} {
		g, keep := sliced(r, c.shape, c.axis, c.cuts, true)
		if p := compiledFor(t, g, keep); ofKind[program.ConcatInPlace](p) != c.join || ofKind[program.Concat](p) != c.concats {
			t.Errorf("%s: got %d joins and %d concats, want %d and %d:\n%v", name, ofKind[program.ConcatInPlace](p), ofKind[program.Concat](p), c.join, c.concats, p)
		}
	}
}

// Values that are concatenated along the first axis are computed in place, if a launch computes them and
// nothing else is there.
func TestConcatInPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	x := func(g *G.ExprGraph, name string) *G.Node {
		return G.NewMatrix(g, tensor.Float32, G.WithName(name), G.WithShape(2, 64), G.WithValue(odd(r, 2, 64)))
	}
	for name, c := range map[string]struct {
		build func(a, b *G.Node) *G.Node
		joins int
	}{
		"results":         {func(a, b *G.Node) *G.Node { return G.Must(G.Concat(0, G.Must(G.Tanh(a)), G.Must(G.Exp(b)))) }, 1},
		"an input":        {func(a, b *G.Node) *G.Node { return G.Must(G.Concat(0, a, G.Must(G.Exp(b)))) }, 0},
		"the second axis": {func(a, b *G.Node) *G.Node { return G.Must(G.Concat(1, G.Must(G.Tanh(a)), G.Must(G.Exp(b)))) }, 0},
		"a value twice": {func(a, b *G.Node) *G.Node {
			y := G.Must(G.Tanh(a))
			return G.Must(G.Concat(0, y, G.Must(G.Exp(b)), y))
		}, 1},
		"a transpose": {func(a, b *G.Node) *G.Node {
			return G.Must(G.Concat(0, G.Must(G.Transpose(G.Must(G.Tanh(a)))), G.Must(G.Transpose(G.Must(G.Exp(b))))))
		}, 0},
		"read again later": {func(a, b *G.Node) *G.Node {
			y, z := G.Must(G.Tanh(a)), G.Must(G.Exp(b))
			c := G.Must(G.Concat(0, y, z))
			return G.Must(G.Add(G.Must(G.Add(c, c)), G.Must(G.Concat(0, G.Must(G.Mul(y, G.Must(G.Mul(G.Must(G.Transpose(z)), z)))), z))))
		}, 1},
	} {
		g := G.NewGraph()
		y := c.build(x(g, "a"), x(g, "b"))
		keepsResults(t, g, &lower.Wanted{Keep: G.Nodes{y}})
		if p := compiledFor(t, g, G.Nodes{y}); ofKind[program.ConcatInPlace](p) < c.joins || c.joins == 0 && ofKind[program.ConcatInPlace](p) > 0 {
			t.Errorf("%s: got %d joins, want %d:\n%v", name, ofKind[program.ConcatInPlace](p), c.joins, p)
		}
	}
}
