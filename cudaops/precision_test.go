package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// significant are the bits of a number's significand, by precision.
var significant = map[kernels.Precision]int{FullPrecision: 24, TF32: 11, BF16: 8}

// products is max(0, x w + b), by an op of Stheno or of Gorgonia, and x^T y of its result.
type products struct {
	g              *G.ExprGraph
	x, w, b        *G.Node
	first, y, last *G.Node
}

func newProducts(t *testing.T, r *rand.Rand, own bool, m, n, k int) *products {
	node := testutil.Get[*G.Node](t)
	p := &products{g: G.NewGraph()}
	input := func(name string, shape ...int) *G.Node {
		return G.NewTensor(p.g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(draw(r, tensor.Float32, shape...)))
	}
	p.x, p.w, p.b = input("x", m, k), input("w", k, n), input("b", n)
	if own {
		p.first = node(ops.MatMul(p.x, p.w))
	} else {
		p.first = node(G.Mul(p.x, p.w))
	}
	p.y = node(G.Rectify(node(G.BroadcastAdd(p.first, p.b, nil, []byte{0}))))
	p.last = node(ops.MatMul(p.x, p.y, ops.TransA()))
	return p
}

// checkProduct compares some elements of max(0, a op b + add), a stored transposed if trans is set, with sums of exact
// products of rounded operands.
func checkProduct(t *testing.T, what string, by kernels.Precision, got, a, b, add G.Value, trans bool) {
	t.Helper()
	c, x, y := floats(t, got), floats(t, a), floats(t, b)
	n := got.Shape()[1]
	k := len(y) / n
	m := len(c) / n
	var full float64 // how far it is from the product of all bits, as a share
	for i := 0; i < len(c); i += 1 + len(c)/300 {
		var want, exact, abs float64
		for l := range k {
			at := i/n*k + l
			if trans {
				at = l*m + i/n
			}
			u, v := x[at], y[l*n+i%n]
			want += exprtest.Round(u, significant[by]) * exprtest.Round(v, significant[by])
			exact += u * v
			abs += math.Abs(u * v)
		}
		if add != nil {
			d := floats(t, add)[i%n]
			want, exact = max(want+d, 0), max(exact+d, 0)
		}
		if bound := 0x1p-22 * float64(k) * abs; !(math.Abs(c[i]-want) <= bound) {
			t.Fatalf("%s in %v: element %d is %v, want %v (of all bits %v) with %v off at most", what, by, i, c[i], want, exact, bound)
		}
		full = max(full, math.Abs(c[i]-exact)/abs)
	}
	if by != FullPrecision && full < 0x1p-20 {
		t.Errorf("%s in %v: within %v of the product of all bits: nothing was rounded", what, by, full)
	}
}

// Products have the precision of the VM, or that of their node, with and without an epilogue.
func TestProducts(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		r := testutil.Random(t)
		for _, by := range []kernels.Precision{FullPrecision, TF32, BF16} {
			for _, own := range []bool{false, true} {
				m, n, k := 30+r.IntN(9), 20+r.IntN(9), 40+r.IntN(9)
				if strings.HasSuffix(t.Name(), "gpu") {
					m, n, k = m+600, n+500, k+500 // large enough for the tensor cores
				}
				for _, exempt := range []bool{false, true} {
					p := newProducts(t, r, own, m, n, k)
					opts, last := []Option{on, Precision(by), Keep(p.y, p.last)}, by
					if exempt {
						opts, last = slices.Insert(opts, r.IntN(3), Precision(FullPrecision, p.last)), FullPrecision
					}
					testutil.Do(t, machine(t, p.g, opts...).RunAll())
					checkProduct(t, "x w + b", by, p.y.Value(), p.x.Value(), p.w.Value(), p.b.Value(), false)
					checkProduct(t, "x^T y", last, p.last.Value(), p.x.Value(), p.y.Value(), nil, true)
				}
			}
		}
	})
}

// The report names the precision of each product. An operand of two products is rounded once.
func TestProductsReport(t *testing.T) {
	for _, c := range []struct {
		last kernels.Precision
		want string
	}{
		{BF16, "product[BF16] relu(c + x0) of rounded: BF16, product[TransA BF16] of rounded: BF16, rounded 3 times"},
		{TF32, "product[BF16] relu(c + x0) of rounded: BF16, product[TransA TF32] of rounded: TF32, rounded 4 times"},
		{FullPrecision, "product[BF16] relu(c + x0) of rounded: BF16, MatMul[TransA]: float32, rounded 2 times"},
	} {
		p := newProducts(t, rand.New(rand.NewPCG(1, 0)), false, 5, 6, 7)
		vm := machine(t, p.g, OnHost(), Precision(BF16), Precision(c.last, p.last))
		testutil.Do(t, vm.RunAll())
		var got []string
		rounded := 0
		for _, s := range vm.Report().Steps {
			if op := strings.TrimPrefix(s.Op, "kernel "); strings.HasPrefix(op, "rounded") {
				rounded++
			} else {
				got = append(got, fmt.Sprint(op, ": ", s.Precision))
			}
		}
		if got := fmt.Sprintf("%s, rounded %d times", strings.Join(got, ", "), rounded); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestProductsErrors(t *testing.T) {
	p := newProducts(t, rand.New(rand.NewPCG(1, 0)), false, 5, 6, 7)
	other := newProducts(t, rand.New(rand.NewPCG(1, 0)), false, 5, 6, 7)
	g := G.NewGraph()
	double := testutil.Get[*G.Node](t)(G.Mul(G.NewMatrix(g, tensor.Float64, G.WithShape(2, 3)), G.NewMatrix(g, tensor.Float64, G.WithShape(3, 2))))
	for _, c := range []struct {
		g    *G.ExprGraph
		opt  Option
		want string
	}{
		{p.g, Precision(kernels.Precision(7)), "Precision: got precision 7, want FullPrecision, TF32, BF16 or F16"},
		{p.g, Precision(kernels.Precision(4), p.first), "Precision: got precision 4, want"},
		{p.g, Precision(BF16, p.first, nil), "Precision: node 1 is nil, want a product"},
		{p.g, Precision(BF16, p.x), "op <nil>, of float32, want a product of float32 matrices"},
		{p.g, Precision(BF16, p.last, p.y), "want a product of float32 matrices"},
		{p.g, Precision(BF16, other.first), "which is not in the graph, want a product"},
		{g, Precision(TF32, double), "of float64, want a product of float32 matrices"},
	} {
		if vm, err := NewVM(c.g, OnHost(), c.opt); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v, want an error with %q", vm, err, c.want)
		}
	}
}

// Training in reduced precision keeps parameters in float32: steps that are too small for BF16 add up.
func TestTrainInPrecision(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, by := range []kernels.Precision{TF32, BF16} {
			g, node, r := G.NewGraph(), testutil.Get[*G.Node](t), testutil.Random(t)
			m, n, k := 20, 30, 40
			if strings.HasSuffix(t.Name(), "gpu") {
				m, n, k = 620, 530, 540
			}
			x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(m, k), G.WithValue(draw(r, tensor.Float32, m, k)))
			w := G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(k, n), G.WithInit(G.Ones()))
			loss := node(G.Mean(node(G.Mul(x, w))))
			testutil.Get[G.Nodes](t)(G.Grad(loss, w))
			const steps = 20
			rate := 1e-3 * float64(m*n) / 600
			vm := machine(t, g, on, Precision(by), Train(G.NewVanillaSolver(G.WithLearnRate(rate)), w))
			for range steps {
				testutil.Do(t, vm.RunAll())
			}
			testutil.Do(t, vm.Pull())
			got, columns := floats(t, w.Value()), floats(t, x.Value())
			for l := range k {
				var sum, abs float64 // of a column of x
				for i := range m {
					v := exprtest.Round(columns[i*k+l], significant[by])
					sum, abs = sum+v, abs+math.Abs(v)
				}
				// 1 / (m n) is rounded, too, and each step in float32.
				part := rate * steps / float64(m*n)
				want := 1 - part*sum
				if off := math.Abs(got[l*n+l%n] - want); !(off <= part*abs*0x1p-7+steps*0x1p-24) {
					t.Fatalf("in %v: w[%d] is %v after %d steps, want %v", by, l, got[l*n+l%n], steps, want)
				}
			}
		}
	})
}

// On a GPU that splits float32 operands, an operand shared by two products is split once, and both results are right.
func TestProductsOfPlanes(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		if !strings.HasSuffix(t.Name(), "gpu") {
			t.Skip("the host does not split operands")
		}
		r := testutil.Random(t)
		p := newProducts(t, r, false, 1400+r.IntN(9), 1300+r.IntN(9), 1300+r.IntN(9))
		vm := machine(t, p.g, on, Keep(p.y, p.last))
		testutil.Do(t, vm.RunAll())
		checkProduct(t, "x w + b", FullPrecision, p.y.Value(), p.x.Value(), p.w.Value(), p.b.Value(), false)
		checkProduct(t, "x^T y", FullPrecision, p.last.Value(), p.x.Value(), p.y.Value(), nil, true)
		var got []string
		for _, s := range vm.Report().Steps {
			got = append(got, s.Op)
		}
		if all := strings.Join(got, ", "); strings.Count(all, "kernel planes") != 1 || strings.Count(all, "of planes") != 2 {
			t.Errorf("got %s, want the planes of x once, for two products", all)
		}
	})
}
