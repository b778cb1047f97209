package passes

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// launching takes a graph through the passes up to the one that plans it, with or without
// the one that makes epilogues of products, and returns the instructions that are launches.
func launching(t interface{ Fatal(...any) }, graph *G.ExprGraph, keep G.Nodes, with bool) (list []*program.Instr) {
	g, err := lower.New(graph, &lower.Wanted{Keep: keep})
	if err != nil {
		t.Fatal(err)
	}
	for _, pass := range All[:slices.IndexFunc(All, func(p Pass) bool { return p.Name == "plan" })] {
		if pass.Name == "epilogue" && !with {
			continue
		}
		if err := pass.Run(g.Program, Target{Device: kernels.HostDevice()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range g.Program.Instrs {
		if program.Launches(in.Op) {
			list = append(list, in)
		}
	}
	return list
}

// text prints instructions.
func text(list []*program.Instr) string { return (&program.Program{Instrs: list}).String() }

// Products with epilogues make fewer launches. Now and then they make one more: a map
// that a product has taken in no longer joins the group that it would have been a part of.
func TestEpiloguesSaveLaunches(t *testing.T) {
	epilogues, saved := 0, 0
	testutil.CheckProperty(t, func(t *rapid.T) {
		b := drawGraph(t)
		with, without := launching(t, b.g, b.keep, true), launching(t, b.g, b.keep, false)
		for _, in := range with {
			if hasEpilogue(in.Op) {
				epilogues++
			}
		}
		if saved += len(without) - len(with); len(with) > len(without)+1 {
			t.Fatalf("got %d launches, without epilogues %d:\n%s\n%s", len(with), len(without), text(with), text(without))
		}
	})
	if !testing.Short() && (epilogues == 0 || saved <= 0) { // a few graphs may have none
		t.Errorf("%d products with epilogues save %d launches, want some", epilogues, saved)
	}
	t.Logf("%d products with epilogues save %d launches", epilogues, saved)
}

// special are numbers in which functions differ that agree elsewhere.
var special = []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -1, 0x1p-140, -0x1p-140, 0x1p-149, -0x1p-149,
	0x1p-1070, -0x1p-1070, math.MaxFloat32, -math.MaxFloat32, math.MaxFloat64, -math.MaxFloat64, 1.5, -3}

// The derivative of a ReLU as a function of its result has the bits of the one as a function of its argument.
func TestRectifier(t *testing.T) {
	testRectifier[float32](t, kernels.Float32)
	testRectifier[float64](t, kernels.Float64)
}

func testRectifier[T kernels.Float](t *testing.T, dt kernels.Dtype) {
	const n = expr.BlockSize
	x, zero, random := make([]T, n), make([]T, n), testutil.Random(t)
	for i := range x {
		x[i] = T(math.Float64frombits(random.Uint64()))
		if i%2 == 0 {
			x[i] = T(math.Float32frombits(random.Uint32()))
		}
	}
	for i, v := range special {
		x[i] = T(v)
	}
	apply := func(f expr.Func, in ...[]T) []T {
		out := make([]T, n)
		operands := make([]unsafe.Pointer, len(in))
		for i, s := range in {
			operands[i] = unsafe.Pointer(&s[0])
		}
		if err := expr.NewInterpreter(f).Run(n, operands, []unsafe.Pointer{unsafe.Pointer(&out[0])}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	r := relus()[dt]
	result := apply(r.f, x)
	byArgument, byResult := apply(r.byArgument, x, zero), apply(r.byResult, result)
	for i, v := range x {
		want, step := v, T(1)
		switch {
		case v != v:
			step = 0
		case v < 0:
			want, step = T(math.Copysign(0, -1)), 0
		case v == 0:
			want = 0
		}
		if same := result[i] == want && math.Signbit(float64(result[i])) == math.Signbit(float64(want)); !same && (want == want || result[i] == result[i]) {
			t.Errorf("%v: the rectifier of %g gives %g, want %g", dt, v, result[i], want)
		}
		if byArgument[i] != step || byResult[i] != step {
			t.Errorf("%v: the derivative at %g is %g, by the result %g %g, want %g", dt, v, byArgument[i], result[i], byResult[i], step)
		}
	}
}

// net is a graph of products, with inputs of numbers of all kinds.
type net struct {
	*testing.T
	g  *G.ExprGraph
	r  *rand.Rand
	dt tensor.Dtype
	in G.Nodes
}

// input returns an input; one in `rare` of its numbers is special.
func (n *net) input(rare int, shape ...int) *G.Node {
	v := tensor.New(tensor.Of(n.dt), tensor.WithShape(shape...))
	for i := range v.Size() {
		x := n.r.NormFloat64()
		if n.r.IntN(rare) == 0 {
			x = special[n.r.IntN(len(special))]
		}
		if s, single := v.Data().([]float32); single {
			s[i] = float32(x)
		} else {
			v.Data().([]float64)[i] = x
		}
	}
	in := G.NewTensor(n.g, n.dt, len(shape), G.WithName(fmt.Sprint("x", len(n.g.AllNodes()))), G.WithShape(shape...), G.WithValue(v))
	n.in = append(n.in, in)
	return in
}

// layers are graphs with the epilogues of their products, those of gradients included.
var layers = map[string]struct {
	build func(n *net) *G.Node
	grad  bool     // by all inputs, of the sum of squares
	want  []string // behind "product", in any order, those without epilogue left out
}{
	"rectifier": {func(n *net) *G.Node {
		return G.Must(G.Rectify(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3)))))
	}, false, []string{"relu(c)"}},
	"bias and rectifier": {func(n *net) *G.Node {
		h := G.Must(G.Rectify(n.biased(0, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))))))
		return G.Must(G.Mul(h, n.input(9, 3, 2)))
	}, true, []string{"relu(c + x0)", "[TransB] c * step(x0)"}},
	"rectifier and mask": { // the result of the ReLU is kept, for its derivative
		func(n *net) *G.Node {
			h := G.Must(G.Rectify(n.biased(0, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))))))
			mask := n.input(4, 5, 3)
			n.in = slices.DeleteFunc(n.in, func(in *G.Node) bool { return in == mask }) // no gradient by it
			return G.Must(G.Mul(G.Must(G.HadamardProd(h, mask)), n.input(9, 3, 2)))
		}, true, []string{"relu(c + x0)", "[TransB] c * x0 * step(x1)"}},
	"bias of rows and tanh": {func(n *net) *G.Node {
		h := G.Must(G.Tanh(n.biased(1, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))))))
		return G.Must(G.Mul(h, n.input(9, 3, 2)))
	}, true, []string{"tanh(c + x0)", "[TransB] c * (1 - x0 * x0)"}},
	"sigmoid, whose derivative reads its argument": {func(n *net) *G.Node {
		h := G.Must(G.Sigmoid(n.biased(0, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))))))
		return G.Must(G.Mul(h, n.input(9, 3, 2)))
	}, true, []string{"c + x0", "[TransB] c * (x0 * sigmoid(-x1))"}},
	"gate": {func(n *net) *G.Node { // the second product is ready later
		h := G.Must(G.Tanh(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 5)))))
		x := G.Must(G.Mul(n.input(9, 5, 3), n.input(9, 3, 4)))
		return G.Must(G.Sigmoid(n.biased(0, G.Must(G.Add(x, G.Must(G.Mul(h, n.input(9, 5, 4))))))))
	}, false, []string{"tanh(c)", "sigmoid(c + x0 + x1)"}},
	"two products at once": {func(n *net) *G.Node { // neither waits for the other
		return G.Must(G.Add(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))), G.Must(G.Mul(n.input(9, 5, 2), n.input(9, 2, 3)))))
	}, false, nil},
	"a weight used twice": {func(n *net) *G.Node { // its gradient is a sum of two products
		w := n.input(9, 4, 4)
		return G.Must(G.Mul(G.Must(G.Mul(n.input(9, 5, 4), w)), w))
	}, true, []string{"[TransA] c + x0"}},
	"scaled": {func(n *net) *G.Node {
		half := G.NewConstant(0.5)
		if n.dt == tensor.Float32 {
			half = G.NewConstant(float32(0.5))
		}
		return G.Must(G.Mul(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))), half))
	}, false, []string{"c * x0"}},
	"matrix and vector": {func(n *net) *G.Node {
		return G.Must(G.Tanh(G.Must(G.Add(n.input(4, 5), G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4)))))))
	}, false, []string{"tanh(c + x0)"}},
	"batched": {func(n *net) *G.Node {
		return G.Must(G.Tanh(G.Must(G.Add(G.Must(G.BatchedMatMul(n.input(9, 3, 5, 4), n.input(9, 3, 4, 2))), n.input(4, 3, 5, 2)))))
	}, false, []string{"tanh(c + x0)"}},
	"tensordot": {func(n *net) *G.Node {
		x := G.Must(G.Tensordot([]int{2}, []int{0}, n.input(9, 3, 5, 4), n.input(9, 4, 2, 3)))
		return G.Must(G.Rectify(G.Must(G.HadamardProd(x, n.input(4, 3, 5, 2, 3)))))
	}, false, []string{"relu(c * x0)"}},
	"reshaped between": {func(n *net) *G.Node {
		x := G.Must(G.Reshape(G.Must(G.Mul(n.input(9, 6, 4), n.input(9, 4, 3))), tensor.Shape{2, 9}))
		return G.Must(G.Tanh(G.Must(G.Add(x, n.input(4, 2, 9)))))
	}, false, []string{"tanh(c + x0)"}},
	"transposed operand": {func(n *net) *G.Node {
		return G.Must(G.Sub(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))), G.Must(G.Transpose(n.input(4, 3, 5)))))
	}, false, []string{"c - x0"}},
	"transposed between": {func(n *net) *G.Node {
		return G.Must(G.Tanh(G.Must(G.Transpose(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3)))))))
	}, false, nil},
	"ops": {func(n *net) *G.Node {
		return G.Must(G.Tanh(G.Must(ops.Add(G.Must(ops.MatMul(n.input(9, 4, 5), n.input(9, 4, 3), ops.TransA())), n.input(4, 5, 3)))))
	}, false, []string{"[TransA] tanh(c + x0)"}},
	"read between": {func(n *net) *G.Node {
		x := n.biased(0, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3))))
		G.Read(x, new(G.Value))
		return G.Must(G.Rectify(x))
	}, false, []string{"c + x0"}},
	"a function that products don't have": {func(n *net) *G.Node {
		return G.Must(G.Exp(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3)))))
	}, false, nil},
	"of itself": {func(n *net) *G.Node {
		return G.Must(G.Square(G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3)))))
	}, false, nil},
	"dot": {func(n *net) *G.Node {
		return G.Must(G.Tanh(G.Must(G.Mul(n.input(9, 5), n.input(9, 5)))))
	}, false, nil},
	"an operand that waits": {func(n *net) *G.Node { // it would be a launch of its own before the product
		x := n.input(9, 5, 3)
		y := G.Must(G.Exp(x))
		return G.Must(G.Add(y, G.Must(G.HadamardProd(y, G.Must(G.Mul(n.input(9, 5, 4), n.input(9, 4, 3)))))))
	}, false, nil},
}

// biased adds a number to each column, or each row.
func (n *net) biased(along byte, x *G.Node) *G.Node {
	return G.Must(G.BroadcastAdd(x, n.input(4, x.Shape()[1-along]), nil, []byte{along}))
}

// Products have the epilogues that they should have, and passes change no bit, of any
// numbers.
func TestLayers(t *testing.T) {
	for name, layer := range layers {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			t.Run(fmt.Sprint(name, " ", dt), func(t *testing.T) {
				n := &net{T: t, g: G.NewGraph(), r: testutil.Random(t), dt: dt}
				out := layer.build(n)
				if layer.grad {
					if _, err := G.Grad(G.Must(G.Sum(G.Must(G.Square(out)))), n.in...); err != nil {
						t.Fatal(err)
					}
				}
				var got []string
				for _, in := range launching(t, n.g, nil, true) {
					if hasEpilogue(in.Op) {
						got = append(got, strings.TrimPrefix(strings.TrimPrefix(in.Op.String(), "kernel product"), " "))
					}
				}
				slices.Sort(got)
				if want := slices.Sorted(slices.Values(layer.want)); !slices.Equal(got, want) {
					t.Errorf("got products that do %q, want %q:\n%s", got, want, text(launching(t, n.g, nil, true)))
				}
				keepsResults(t, n.g, &lower.Wanted{})
			})
		}
	}
}

// A perceptron of three layers, with its loss and gradients, takes two launches less: the
// products have taken the biases, the ReLUs and their derivatives.
func TestPerceptronLaunches(t *testing.T) {
	c := graphspec.MLP(128, 784, 512, 512, 10)
	g, _ := c.Graph(c.Values([]float32{1}))
	for _, with := range []bool{true, false} {
		want := map[bool]int{true: 12, false: 15}[with]
		list := launching(t, g, nil, with)
		if len(list) != want {
			t.Errorf("with epilogues %v: got %d launches, want %d:\n%s", with, len(list), want, text(list))
		}
		products := map[string]int{}
		for _, in := range list {
			if hasEpilogue(in.Op) {
				products[in.Op.String()]++
			}
		}
		if want := map[string]int{"kernel product relu(c + x0)": 2, "kernel product c + x0": 1, "kernel product[TransB] c * step(x0)": 2}; with && !maps.Equal(products, want) {
			t.Errorf("got products %v, want %v", products, want)
		}
	}
	type size struct{ launches, bytes, peak int64 }
	sizes := map[bool]size{}
	for _, with := range []bool{true, false} { // on an H200
		l, err := lower.New(g, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, pass := range All {
			if with || pass.Name != "epilogue" {
				if err := pass.Run(l.Program, Target{Device: H200}); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := size{peak: l.Program.Peak}
		for _, in := range l.Program.Instrs {
			if in.Plan != nil {
				s.launches, s.bytes = s.launches+int64(len(in.Plan.Launches)), s.bytes+in.Plan.Bytes()
			}
		}
		sizes[with] = s
	}
	if a, b := sizes[true], sizes[false]; a.launches > b.launches-2 || a.bytes >= b.bytes || a.peak > b.peak {
		t.Errorf("launches, bytes and memory on an H200: got %v with epilogues, %v without", a, b)
	}
	first := launching(t, g, nil, true)[0]
	if len(first.Nodes) < 4 { // product, sum, comparison, product of elements
		t.Errorf("the first layer says that it computes %d nodes: %v", len(first.Nodes), first.Nodes)
	}
}
