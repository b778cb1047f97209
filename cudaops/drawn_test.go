package cudaops

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// drawing is a graph that grows, of tensors of any rank and one element type.
type drawing struct {
	t    *rapid.T
	g    *G.ExprGraph
	dt   tensor.Dtype
	r    *rand.Rand // of the inputs' elements
	pool G.Nodes    // of that type
	keep G.Nodes    // of others
	x    G.Nodes    // the inputs
	// outer reports whether there is an OuterProd, whose derivative Gorgonia gets wrong.
	outer bool
	// partial reports whether Grad failed, and left some of its nodes in the graph.
	partial bool
	extents []int // of axes
	most    int   // elements of a node
	indices int   // inputs of integers
	special bool  // whether inputs have NaN, infinities, zeros and numbers at the ends of the range
	huge    bool  // whether these are also of thousands of millions
	base    []int // the shape whose axes all inputs have; nil for none
}

func (d *drawing) input(shape ...int) *G.Node {
	name := G.WithName(fmt.Sprint("x", len(d.x)))
	var n *G.Node
	if len(shape) == 0 {
		n = G.NewScalar(d.g, d.dt, name, G.WithValue(d.number(d.r.NormFloat64())))
	} else {
		v := draw(d.r, d.dt, shape...)
		if d.special {
			d.specials(v)
		}
		n = G.NewTensor(d.g, d.dt, len(shape), name, G.WithShape(shape...), G.WithValue(v))
	}
	d.x = append(d.x, n)
	return n
}

func (d *drawing) number(x float64) any {
	if d.dt == tensor.Float32 {
		return float32(x)
	}
	return x
}

func (d *drawing) constant(x float64) *G.Node { return G.NewConstant(d.number(x)) }

// shape draws a shape of a rank, or of that of the base.
func (d *drawing) shape(rank int) []int {
	if d.base != nil {
		axes := rapid.Permutation(upTo(len(d.base))).Draw(d.t, "axes of the base")[:min(rank, len(d.base))]
		shape := make([]int, len(axes))
		for i, a := range slices.Sorted(slices.Values(axes)) {
			shape[i] = d.base[a]
		}
		return shape
	}
	shape := rapid.SliceOfN(rapid.SampledFrom(d.extents), rank, rank).Draw(d.t, "shape")
	for i := range shape {
		if tensor.Shape(shape).TotalSize() > d.most {
			shape[i] = 2
		}
	}
	return shape
}

// one draws a node that is as asked for, which it makes an input if there is none.
func (d *drawing) one(what string, is func(*G.Node) bool, shape ...int) *G.Node {
	fit := slices.DeleteFunc(slices.Clone(d.pool), func(n *G.Node) bool { return !is(n) })
	if len(fit) == 0 || rapid.IntRange(0, 7).Draw(d.t, "new") == 0 {
		return d.input(shape...)
	}
	return fit[rapid.IntRange(0, len(fit)-1).Draw(d.t, what)]
}

// like draws a node of the shape of another.
func (d *drawing) like(a *G.Node) *G.Node {
	return d.one("of the same shape", func(n *G.Node) bool { return slices.Equal(n.Shape(), a.Shape()) }, a.Shape()...)
}

func (d *drawing) scalar() *G.Node {
	if rapid.Bool().Draw(d.t, "constant") {
		return d.constant(rapid.SampledFrom([]float64{0, 1, -1, 0.5, 2, -3.25}).Draw(d.t, "number"))
	}
	return d.one("scalar", (*G.Node).IsScalar)
}

// tensor draws a node with axes.
func (d *drawing) tensor(least, greatest int) *G.Node {
	return d.one("tensor", func(n *G.Node) bool { return !n.IsScalar() && n.Dims() >= least && n.Dims() <= greatest },
		d.shape(rapid.IntRange(least, greatest).Draw(d.t, "rank"))...)
}

func (d *drawing) any() *G.Node { return d.pool[rapid.IntRange(0, len(d.pool)-1).Draw(d.t, "operand")] }

// positive is at least 0.25.
func (d *drawing) positive(a *G.Node) *G.Node {
	return G.Must(G.Add(G.Must(G.Sigmoid(a)), d.constant(0.25)))
}

// bounded is between -1 and 1.
func (d *drawing) bounded(a *G.Node) *G.Node { return G.Must(G.Tanh(a)) }

// pair draws two nodes of one shape, or a node and a scalar in either order.
func (d *drawing) pair() (a, b *G.Node) {
	a = d.any()
	switch rapid.IntRange(0, 3).Draw(d.t, "pair") {
	case 0:
		return a, d.scalar()
	case 1:
		return d.scalar(), a
	}
	return a, d.like(a)
}

// broadcast draws two nodes, one of which has fewer elements along some axes, and the axes.
func (d *drawing) broadcast() (a, b *G.Node, left, right []byte) {
	a = d.tensor(1, 4)
	small := slices.Clone([]int(a.Shape()))
	for i := range small {
		if small[i] > 1 && rapid.Bool().Draw(d.t, "repeated") {
			small[i] = 1
			right = append(right, byte(i))
		}
	}
	if n := len(right); n > 0 && n < len(small) && rapid.Bool().Draw(d.t, "without these axes") {
		for _, i := range slices.Backward(right) {
			small = slices.Delete(small, int(i), int(i)+1)
		}
	}
	b = d.one("small", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), small) && !n.IsScalar() }, small...)
	if len(right) == 0 {
		right = nil
	}
	if rapid.Bool().Draw(d.t, "left") {
		return b, a, right, nil
	}
	return a, b, nil, right
}

// image draws a node of four axes.
func (d *drawing) image() *G.Node { return d.tensor(4, 4) }

// axes draws some of a node's axes.
func (d *drawing) axes(a *G.Node) []int {
	all := upTo(a.Dims())
	return rapid.SampledFrom([][]int{nil, all, all[:1], all[len(all)-1:], all[len(all)/2:], all[:(len(all)+1)/2]}).Draw(d.t, "axes")
}

func (d *drawing) axis(a *G.Node) int { return rapid.IntRange(0, a.Dims()-1).Draw(d.t, "axis") }

type (
	unaryOp  = func(*G.Node) (*G.Node, error)
	binaryOp = func(a, b *G.Node) (*G.Node, error)
	spreadOp = func(a, b *G.Node, left, right []byte) (*G.Node, error)
)

func sampled[T any](d *drawing, what string, from map[string]T) T {
	return from[rapid.SampledFrom(slices.Sorted(maps.Keys(from))).Draw(d.t, what)]
}

var comparisons = map[string]func(a, b *G.Node, same bool) (*G.Node, error){"lt": G.Lt, "gt": G.Gt, "lte": G.Lte, "gte": G.Gte, "eq": G.Eq, "ne": G.Ne}

// growths are the ways in which a drawing can grow.
var growths = map[string]func(d *drawing) (*G.Node, error){
	"input": func(d *drawing) (*G.Node, error) {
		return d.input(d.shape(rapid.IntRange(0, 4).Draw(d.t, "rank"))...), nil
	},
	"unary": func(d *drawing) (*G.Node, error) {
		return sampled(d, "function", map[string]unaryOp{"abs": G.Abs, "sign": G.Sign, "ceil": G.Ceil, "floor": G.Floor, "sin": G.Sin, "cos": G.Cos, "neg": G.Neg,
			"tanh": G.Tanh, "sigmoid": G.Sigmoid, "mish": G.Mish, "rectify": G.Rectify, "leaky": func(x *G.Node) (*G.Node, error) { return G.LeakyRelu(x, 0.1) }})(d.any())
	},
	"of bounded": func(d *drawing) (*G.Node, error) {
		return sampled(d, "function", map[string]unaryOp{"exp": G.Exp, "square": G.Square, "cube": G.Cube, "expm1": G.Expm1, "softplus": G.Softplus})(d.bounded(d.any()))
	},
	"of positive": func(d *drawing) (*G.Node, error) {
		return sampled(d, "function", map[string]unaryOp{"log": G.Log, "log2": G.Log2, "log1p": G.Log1p, "sqrt": G.Sqrt, "inverse": G.Inverse, "inverseSqrt": G.InverseSqrt})(d.positive(d.any()))
	},
	"binary": func(d *drawing) (*G.Node, error) {
		a, b := d.pair()
		return sampled(d, "operator", map[string]binaryOp{"add": G.Add, "sub": G.Sub, "mul": G.HadamardProd})(a, b)
	},
	"between": func(d *drawing) (*G.Node, error) {
		a := d.any()
		return sampled(d, "operator", map[string]binaryOp{"min": G.MinBetween, "max": G.MaxBetween})(a, d.like(a))
	},
	"div": func(d *drawing) (*G.Node, error) { a, b := d.pair(); return G.HadamardDiv(a, d.positive(b)) },
	"pow": func(d *drawing) (*G.Node, error) { a, b := d.pair(); return G.Pow(d.positive(a), d.bounded(b)) },
	"comparison": func(d *drawing) (*G.Node, error) {
		a, b := d.pair()
		return sampled(d, "operator", comparisons)(a, b, true)
	},
	"bool": func(d *drawing) (*G.Node, error) {
		a, b := d.pair()
		n, err := sampled(d, "operator", comparisons)(a, b, false)
		if err == nil {
			d.keep = append(d.keep, n)
		}
		return nil, err
	},
	"spread": func(d *drawing) (*G.Node, error) {
		a, b, left, right := d.broadcast()
		return sampled(d, "operator", map[string]spreadOp{"add": G.BroadcastAdd, "sub": G.BroadcastSub, "mul": G.BroadcastHadamardProd})(a, b, left, right)
	},
	"reduction": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return sampled(d, "reduction", map[string]func(*G.Node, ...int) (*G.Node, error){"sum": G.Sum, "mean": G.Mean, "max": G.Max})(a, d.axes(a)...)
	},
	"our reduction": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return sampled(d, "reduction", map[string]func(*G.Node, ...int) (*G.Node, error){"sum": ops.Sum, "mean": ops.Mean})(a, d.axes(a)...)
	},
	"norm": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return G.Norm(d.positive(a), d.axis(a), rapid.IntRange(1, 3).Draw(d.t, "p"))
	},
	"softmax": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return sampled(d, "softmax", map[string]func(*G.Node, ...int) (*G.Node, error){"softmax": G.SoftMax, "log": G.LogSoftMax})(a, d.axis(a))
	},
	"product": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 2)
		inner := a.Shape()[a.Dims()-1]
		shape := append([]int{inner}, d.shape(rapid.IntRange(0, 1).Draw(d.t, "columns"))...)
		return G.Mul(a, d.one("factor", func(n *G.Node) bool { return !n.IsScalar() && n.Dims() <= 2 && n.Shape()[0] == inner }, shape...))
	},
	"outer": func(d *drawing) (*G.Node, error) {
		a, b := d.tensor(1, 1), d.tensor(1, 1)
		if a.Shape()[0]*b.Shape()[0] > 1<<20 {
			return nil, nil
		}
		d.outer = true
		return G.OuterProd(a, b)
	},
	"batch": func(d *drawing) (*G.Node, error) {
		a := d.tensor(3, 3)
		return G.BatchedMatMul(a, d.input(a.Shape()[0], a.Shape()[2], d.shape(1)[0]))
	},
	"tensordot": func(d *drawing) (*G.Node, error) {
		a := d.tensor(2, 3)
		k := d.axis(a)
		return G.Tensordot([]int{k}, []int{0}, a, d.input(a.Shape()[k], d.shape(1)[0]))
	},
	"transpose": func(d *drawing) (*G.Node, error) {
		a := d.tensor(2, 4)
		return G.Transpose(a, rapid.Permutation(upTo(a.Dims())).Draw(d.t, "pattern")...)
	},
	"reshape": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		n := a.Shape().TotalSize()
		var shape tensor.Shape
		for len(shape) < 3 && n > 1 {
			for f := rapid.IntRange(1, n).Draw(d.t, "extent"); ; f-- {
				if n%f == 0 {
					shape, n = append(shape, f), n/f
					break
				}
			}
		}
		return G.Reshape(a, append(shape, n))
	},
	"window": func(d *drawing) (*G.Node, error) {
		x := d.image()
		k := rapid.IntRange(1, min(3, x.Shape()[2], x.Shape()[3])).Draw(d.t, "kernel")
		pad, stride := rapid.IntRange(0, k-1).Draw(d.t, "pad"), rapid.IntRange(1, 3).Draw(d.t, "stride")
		if rapid.Bool().Draw(d.t, "pool") {
			return G.MaxPool2D(x, tensor.Shape{k, k}, []int{pad, pad}, []int{stride, stride})
		}
		return G.Im2Col(x, tensor.Shape{k, k}, tensor.Shape{pad, pad}, tensor.Shape{stride, stride}, tensor.Shape{1, 1})
	},
	"convolution": func(d *drawing) (*G.Node, error) {
		x := d.image()
		k := rapid.IntRange(1, min(3, x.Shape()[2], x.Shape()[3])).Draw(d.t, "kernel")
		w := d.input(rapid.IntRange(1, 3).Draw(d.t, "filters"), x.Shape()[1], k, k)
		return G.Conv2d(x, w, tensor.Shape{k, k}, []int{k / 2, k / 2}, []int{1, rapid.IntRange(1, 2).Draw(d.t, "stride")}, []int{1, 1})
	},
	"upsample":  func(d *drawing) (*G.Node, error) { return G.Upsample2D(d.image(), 2) },
	"of images": func(d *drawing) (*G.Node, error) { return G.GlobalAveragePool2D(d.image()) },
	"by indices": func(d *drawing) (*G.Node, error) {
		a := d.tensor(2, 3)
		at := rapid.SliceOfN(rapid.IntRange(0, a.Shape()[0]-1), 1, 6).Draw(d.t, "indices")
		v := tensor.New(tensor.WithShape(len(at)), tensor.WithBacking(at))
		return G.ByIndices(a, G.NewVector(d.g, tensor.Int, G.WithName(fmt.Sprint("indices ", len(d.x), len(d.pool))), G.WithShape(len(at)), G.WithValue(v)), 0)
	},
	"unconcat": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		k := d.axis(a)
		parts, err := G.Unconcat(a, k, a.Shape()[k])
		if err != nil {
			return nil, err
		}
		return parts[len(parts)/2], nil
	},
	"ravel": func(d *drawing) (*G.Node, error) { return G.Ravel(d.tensor(1, 4)) },
	"slice": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		along := make([]tensor.Slice, a.Dims())
		for i, n := range a.Shape() {
			switch from := rapid.IntRange(0, n-1).Draw(d.t, "from"); rapid.IntRange(0, 3).Draw(d.t, "how") {
			case 0:
				along[i] = G.S(from, rapid.IntRange(from+1, n).Draw(d.t, "to"))
			case 1:
				along[i] = G.S(from)
			}
		}
		return G.Slice(a, along...)
	},
	"concat": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return G.Concat(d.axis(a), a, d.like(a), d.like(a))
	},
	"keep dims": func(d *drawing) (*G.Node, error) {
		a := d.tensor(2, 3)
		k := d.axis(a)
		return G.KeepDims(a, false, func(x *G.Node) (*G.Node, error) { return G.Sum(x, k) })
	},
	"map": func(d *drawing) (*G.Node, error) {
		a := d.any()
		f := rapid.SampledFrom([]string{"tanh(a*b) + b", "select(a > b, a, 0.5*b)", "max(a, b) * sigmoid(a) - min(a, 1)", "abs(a) * erf(b)"}).Draw(d.t, "expression")
		return ops.Map(f, a, d.like(a))
	},
	"map of few": func(d *drawing) (*G.Node, error) { // of its operands, or of none
		f := rapid.SampledFrom([]string{"1", "0.5", "b", "floor(a)", "sign(b)", "select(a > 0.5, 2, -1)", "exp(b)", "0 * a + 1"}).Draw(d.t, "expression")
		a := d.any()
		return ops.Map(f, a, d.like(a))
	},
	"keep": func(d *drawing) (*G.Node, error) {
		n := d.any()
		if n.Op() != nil && !slices.Contains(d.keep, n) {
			d.keep = append(d.keep, n)
		}
		return nil, nil
	},
	"reduce": func(d *drawing) (*G.Node, error) {
		return ops.Reduce(d.bounded(d.tensor(1, 4)), rapid.SampledFrom([]string{"a + b*b", "max(a, abs(b))"}).Draw(d.t, "expression"), 0)
	},
}

// attempt calls a function of Gorgonia's, some of which panic for unsupported arguments.
func attempt[T any](f func() (T, error)) (out T, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}

// rowGrowths are those that meet in one instruction where shapes are of few axes: rows, values of rows that are
// repeated or kept, and functions of them.
var rowGrowths = []string{"input", "unary", "of bounded", "of bounded", "binary", "spread", "spread", "comparison", "reduction", "our reduction", "softmax", "softmax", "norm", "map", "map of few", "keep", "keep"}

var ownNames = slices.Sorted(maps.Keys(ownGrowths))

// drawGraph draws a graph of nodes that are small, or as large as the plans of a GPU want.
func drawGraph(t *rapid.T, large bool) *drawing {
	d := &drawing{t: t, g: G.NewGraph(), r: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), dt: rapid.SampledFrom([]tensor.Dtype{tensor.Float64, tensor.Float32}).Draw(t, "type"),
		extents: []int{1, 2, 3, 4, 5}, most: 300}
	if large {
		d.extents, d.most = []int{1, 2, 3, 40, 130}, 6000
		if rapid.Bool().Draw(t, "larger") {
			d.extents, d.most = []int{1, 2, 5, 64, 130, 257, 600}, 20_000
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "tiny") == 1 {
		d.extents = []int{1, 1, 2}
	}
	d.special, d.huge = rapid.Bool().Draw(t, "special"), rapid.Bool().Draw(t, "huge")
	names, first := slices.Sorted(maps.Keys(growths)), []int{3, 4}
	if rapid.Bool().Draw(t, "rows") {
		names = rowGrowths
		d.base = rapid.SliceOfN(rapid.SampledFrom([]int{2, 3, 4, 7, 33, 100}), 2, 3).Draw(t, "base")
		if tensor.Shape(d.base).TotalSize() > d.most {
			d.base = []int{2, 3}
		}
		first = d.base
	}
	d.pool = G.Nodes{d.input(first...)}
	for range rapid.IntRange(1, 15).Draw(t, "nodes") {
		name := rapid.SampledFrom(names).Draw(t, "growth")
		growth, own := growths[name], d.special || rapid.Bool().Draw(t, "own")
		if own {
			name = rapid.SampledFrom(ownNames).Draw(t, "own growth")
			growth = ownGrowths[name]
		}
		n, err := attempt(func() (*G.Node, error) { return growth(d) })
		switch {
		case err != nil:
			t.Logf("%s: %v", name, err)
		case n != nil && n.Shape().TotalSize() <= d.most && n.Dtype() == d.dt:
			d.pool = append(d.pool, n)
		}
	}
	return d
}

// differentiate adds the gradients of the inputs that the last node depends on.
func (d *drawing) differentiate() {
	cost := d.pool[len(d.pool)-1]
	_, err := attempt(func() (nodes G.Nodes, err error) {
		if !cost.IsScalar() {
			if cost, err = G.Sum(cost); err != nil {
				return nil, err
			}
		}
		by := slices.DeleteFunc(slices.Clone(d.x), func(x *G.Node) bool { return !dependsOn(cost, x, map[*G.Node]bool{}) })
		if len(by) == 0 {
			return nil, errors.New("the cost depends on no input")
		}
		return G.Grad(cost, by...)
	})
	if err != nil {
		d.partial = true
		d.t.Logf("gradient: %v", err)
	}
}

func dependsOn(n, x *G.Node, seen map[*G.Node]bool) bool {
	if n == x {
		return true
	}
	children, err := internal.Children(n)
	if err != nil || seen[n] {
		return false
	}
	seen[n] = true
	return slices.ContainsFunc(children, func(c *G.Node) bool { return dependsOn(c, x, seen) })
}

// byOp compares the value of a node with what Gorgonia's op makes of the values of its inputs.
func byOp(n *G.Node) error {
	children, err := internal.Children(n)
	if err != nil || n.Op() == nil || n.Value() == nil {
		return err
	}
	scale, args := 1.0, make([]G.Value, len(children))
	for i, c := range children {
		if args[i], err = G.CloneValue(c.Value()); err != nil { // some ops write into them
			return err
		}
		x := numbersOf(args[i])
		scale = max(scale, largest(x))
		if strings.HasPrefix(fmt.Sprint(n.Op()), "Σ") { // Gorgonia adds up in the type of the elements, one after the other
			sum := 0.0
			for _, v := range x {
				sum += math.Abs(v)
			}
			scale = max(scale, sum/10)
		}
	}
	want, err := attempt(func() (G.Value, error) { return n.Op().Do(args...) })
	op := fmt.Sprint(n.Op())
	reduction := strings.HasPrefix(op, "Σ") || strings.HasPrefix(op, "MaxAlong")
	alone := strings.HasPrefix(op, "ByIndices") && args[0].Shape().TotalSize() == 1
	ofZero := op == "sign" && n.IsScalar() && numbersOf(args[0])[0] == 0
	ofVector := strings.HasPrefix(op, "ByIndicesOpDiff") && args[1].Shape().Dims() < args[0].Shape().Dims()
	if err != nil || alone || ofZero || ofVector || reduction && args[0].Shape().Dims() > 3 || strings.HasPrefix(op, "Softmax") && slices.Contains(n.Shape(), 1) {
		return nil // Gorgonia's fails, takes other elements, or subtracts another one
	}
	x, y := numbersOf(n.Value()), numbersOf(values.Compact(want))
	if strings.HasPrefix(op, "Softmax{") && !finite(y) && finite(numbersOf(args[0])) {
		return nil // Gorgonia subtracts another number than the row's maximum
	}
	if len(x) != len(y) {
		return fmt.Errorf("got %d elements, want %d", len(x), len(y))
	}
	within := tolerance(n.Dtype()) * max(scale, largest(y))
	underflows := false // whether weights may be 0 that are not
	if strings.HasPrefix(op, "Attention") {
		size := max(largest(numbersOf(args[0])), largest(numbersOf(args[1]))) // of q and k
		if size > 1e4 {
			return nil // rounding errors of scores decide which weights are 0
		}
		if n.Dtype() == tensor.Float32 && size > 64 { // weights have the rounding errors of scores of thousands, and those below 2^-126 may be 0
			within, underflows = 0.01*scale, true
			if strings.HasPrefix(op, "AttentionGradient") {
				within *= scale
			}
		}
	}
	switch op { // Gorgonia's end at 1 above 19, and at x above 16
	case "sigmoid":
		within = max(within, 1e-8)
	case "softplus":
		within = max(within, 2e-7)
	}
	for i := range x {
		same := x[i] == y[i] || math.IsNaN(x[i]) && math.IsNaN(y[i]) || underflows && math.IsNaN(x[i]) && math.IsInf(y[i], 0)
		if !same && !(math.Abs(x[i]-y[i]) <= within) {
			return fmt.Errorf("element %d is %v, want %v", i, x[i], y[i])
		}
	}
	return nil
}

func finite(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) })
}

func largest(x []float64) (most float64) {
	for _, v := range x {
		if v = math.Abs(v); v > most && !math.IsInf(v, 0) {
			most = v
		}
	}
	return most
}

// numbersOf returns the elements of a value of any type that the device has.
func numbersOf(v G.Value) (list []float64) {
	m, err := values.Bytes(v)
	if err != nil {
		return nil
	}
	switch v.Dtype() {
	case tensor.Float64:
		return kernels.Elements[float64](m)
	case tensor.Float32:
		for _, x := range kernels.Elements[float32](m) {
			list = append(list, float64(x))
		}
	default:
		for _, x := range m {
			list = append(list, float64(x))
		}
	}
	return list
}

// Every node of a drawn graph has the value that Gorgonia's op computes, and a run for the results alone, whose ops
// are fused, has the same bits: on the host, with the Go bodies of the kernels that an H200 would launch, and on a GPU.
func TestDrawnGraphs(t *testing.T) {
	quiet(t)
	on := func(large bool, newVM func(g *G.ExprGraph, opts ...Option) (*VM, error)) func(t *testing.T) {
		return func(t *testing.T) {
			testutil.CheckProperty(t, func(t *rapid.T) {
				d := drawGraph(t, large)
				if rapid.Bool().Draw(t, "gradients") && !d.outer {
					d.differentiate()
				}
				d.check(newVM)
			})
		}
	}
	onBackends(t, func(t *testing.T, o Option) {
		if checks := flag.Lookup("rapid.checks").Value; strings.HasSuffix(t.Name(), "gpu") && checks.String() == strconv.Itoa(testutil.Checks) {
			testutil.Do(t, checks.Set("20")) // the driver compiles every kernel
			defer func() { testutil.Do(t, checks.Set(strconv.Itoa(testutil.Checks))) }()
		}
		on(strings.HasSuffix(t.Name(), "gpu"), func(g *G.ExprGraph, opts ...Option) (*VM, error) { return NewVM(g, append(opts, o)...) })(t)
	})
	t.Run("plans for a GPU", on(true, func(g *G.ExprGraph, opts ...Option) (*VM, error) {
		c := new(config)
		for _, o := range opts {
			o(c)
		}
		return newVM(g, c, &fakeGPU{fake{closes: new(atomic.Int32)}})
	}))
}

// check runs the graph twice, once with all values kept.
func (d *drawing) check(newVM func(g *G.ExprGraph, opts ...Option) (*VM, error)) {
	run := func(opts ...Option) *VM {
		vm, err := newVM(d.g, append(opts, Keep(d.keep...))...)
		if err == nil {
			err = vm.RunAll()
		}
		if err != nil {
			d.t.Fatalf("%v\n%v", err, d.g.AllNodes())
		}
		return vm
	}
	vm := run()
	if got := onTheHost(vm.Report()); len(got) > 0 && !d.partial {
		d.t.Errorf("on the host: %v", got)
	}
	if err := program.Verify(vm.graph.Program); err != nil {
		d.t.Error(err)
	}
	before := map[*G.Node][]float64{}
	for _, o := range vm.graph.Outputs {
		before[o.Node] = slices.Clone(numbersOf(o.Node.Value()))
	}
	same := func(how string) {
		for n, x := range before {
			y := numbersOf(n.Value())
			if len(x) != len(y) {
				d.t.Fatalf("%v has %d elements, %d %s", n, len(x), len(y), how)
			}
			for i := range x {
				if math.Float64bits(x[i]) != math.Float64bits(y[i]) && !(math.IsNaN(x[i]) && math.IsNaN(y[i])) {
					d.t.Errorf("%v of %v has other bits %s: element %d is %v and then %v", n, n.Shape(), how, i, x[i], y[i])
					break
				}
			}
		}
	}
	if err := vm.RunAll(); err != nil {
		d.t.Fatal(err)
	}
	same("in the second run")
	all := run(KeepAll())
	same("where every node is kept")
	for _, n := range all.graph.Nodes {
		if _, own := n.Node.Op().(*ops.Op); d.special && !own {
			continue
		}
		if err := byOp(n.Node); err != nil {
			d.t.Errorf("%v of %v %v: %v", n.Node, n.Shape(), n.Op(), err)
		}
	}
	if err := errors.Join(vm.Close(), all.Close()); err != nil {
		d.t.Error(err)
	}
}
