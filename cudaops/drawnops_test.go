package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// int draws an integer of lo to hi.
func (d *drawing) int(what string, lo, hi int) int { return rapid.IntRange(lo, hi).Draw(d.t, what) }

// some draws one of several texts.
func (d *drawing) some(what string, of ...string) string {
	return rapid.SampledFrom(of).Draw(d.t, what)
}

// integers makes an input of numbers of 0 to n - 1.
func (d *drawing) integers(n int, shape ...int) *G.Node {
	dt := rapid.SampledFrom([]tensor.Dtype{tensor.Int, tensor.Int64, tensor.Int32, tensor.Uint8}).Draw(d.t, "type of integers")
	v := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	r := rand.New(rand.NewPCG(d.r.Uint64(), 0))
	switch s := v.Data().(type) {
	case []int:
		for i := range s {
			s[i] = r.IntN(n)
		}
	case []int64:
		for i := range s {
			s[i] = r.Int64N(int64(n))
		}
	case []int32:
		for i := range s {
			s[i] = r.Int32N(int32(n))
		}
	case []uint8:
		for i := range s {
			s[i] = uint8(r.IntN(min(n, 256)))
		}
	}
	d.indices++
	return G.NewTensor(d.g, dt, len(shape), G.WithName(fmt.Sprint("i", d.indices)), G.WithShape(shape...), G.WithValue(v))
}

// spreads draws a shape that broadcasts to that of a node, by numpy's rule.
func (d *drawing) spreads(a *G.Node) []int {
	shape := slices.Clone([]int(a.Shape()))[d.int("axes left out", 0, a.Dims()):]
	for i := range shape {
		if d.int("one", 0, 2) == 0 {
			shape[i] = 1
		}
	}
	return shape
}

// spread draws a node of a shape that broadcasts to that of another.
func (d *drawing) spread(a *G.Node) *G.Node {
	shape := d.spreads(a)
	return d.one("repeated", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), shape) }, shape...)
}

// swapped returns two nodes in one order or the other.
func (d *drawing) swapped(a, b *G.Node) (*G.Node, *G.Node) {
	if rapid.Bool().Draw(d.t, "swapped") {
		return b, a
	}
	return a, b
}

// condition compares a node with one that broadcasts to its shape.
func (d *drawing) condition(a *G.Node) (*G.Node, error) {
	x, y := d.swapped(a, d.spread(a))
	return sampled(d, "comparison", map[string]binaryOp{"less": ops.Less, "equal": ops.Equal, "greater equal": ops.GreaterEqual, "not equal": ops.NotEqual})(x, y)
}

// kept makes a node an output.
func (d *drawing) kept(n *G.Node, err error) (*G.Node, error) {
	if err == nil && n.Op() != nil && !slices.Contains(d.keep, n) {
		d.keep = append(d.keep, n)
	}
	return n, err
}

// ownGrowths are those by Stheno's ops.
var ownGrowths = map[string]func(d *drawing) (*G.Node, error){
	"own map": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		x, y := d.swapped(a, d.spread(a))
		return ops.Map(d.some("expression", "a + b", "a * b - b", "tanh(a) * b", "select(a > b, a, b*b)", "sigmoid(a) * sin(b)", "max(a, b)", "min(a, b) + a", "a / (1 + b*b)", "b"), x, y)
	},
	"own map of three": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return ops.Map(d.some("expression", "a * b + c", "select(a > b && c > 0, a, b + c)", "(a - b) * tanh(c)"), d.spread(a), a, d.spread(a))
	},
	"own map of integers": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return ops.Map(d.some("expression", "a + b", "a * b", "select(b > 2, a, b)", "a - b / 3", "max(a, b)"), a, d.integers(6, d.spreads(a)...))
	},
	"own unary": func(d *drawing) (*G.Node, error) {
		return sampled(d, "function", map[string]unaryOp{"gelu": ops.GELU, "geluTanh": ops.GELUTanh, "silu": ops.SiLU, "stop": ops.StopGradient,
			"clip": func(x *G.Node) (*G.Node, error) { return ops.Clip(x, -0.5, 0.75) }})(d.any())
	},
	"own where": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		c, err := d.condition(d.spread(a))
		if err != nil {
			return nil, err
		}
		x, y := d.swapped(a, d.spread(a))
		return ops.Where(c, x, y)
	},
	"own cast": func(d *drawing) (*G.Node, error) {
		a := d.any()
		to := rapid.SampledFrom([]tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Int, tensor.Int32, tensor.Uint8, tensor.Bool}).Draw(d.t, "to")
		n, err := d.kept(ops.Cast(a, to))
		if err != nil {
			return nil, err
		}
		return ops.Cast(n, d.dt)
	},
	"own condition": func(d *drawing) (*G.Node, error) {
		n, err := d.condition(d.tensor(1, 4))
		if err != nil {
			return nil, err
		}
		if rapid.Bool().Draw(d.t, "kept") {
			_, err = d.kept(n, err)
			return nil, err
		}
		return ops.Cast(n, d.dt)
	},
	"own reduction": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		f := sampled(d, "reduction", map[string]func(*G.Node, ...int) (*G.Node, error){"sum": ops.Sum, "mean": ops.Mean, "max": ops.Max, "min": ops.Min, "prod": ops.Prod, "lse": ops.LogSumExp,
			"var": func(x *G.Node, along ...int) (*G.Node, error) { return ops.VarCorrection(x, 0, along...) }})
		if n := d.int("axes", 0, a.Dims()); n > 0 {
			return f(a, rapid.Permutation(upTo(a.Dims())).Draw(d.t, "axes")[:n]...)
		}
		return f(a)
	},
	"own softmax": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return sampled(d, "softmax", map[string]func(*G.Node, int) (*G.Node, error){"softmax": ops.SoftMax, "log": ops.LogSoftMax})(a, d.axis(a)-a.Dims()*d.int("from the end", 0, 1))
	},
	"own norm": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		shape := []int(a.Shape())[d.axis(a):]
		scale := d.one("scale", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), shape) }, shape...)
		switch d.int("norm", 0, 2) {
		case 0:
			return ops.RMSNorm(a, scale, 0.1)
		case 1:
			return ops.LayerNorm(a, scale, nil, 0.1)
		}
		return ops.LayerNorm(a, scale, d.like(scale), 0.1)
	},
	"own slice": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		ranges := make([]tensor.Slice, d.int("ranges", 1, a.Dims()))
		for i := range ranges {
			if n := a.Shape()[i]; d.int("whole", 0, 2) > 0 {
				from := d.int("from", 0, n-1)
				ranges[i] = G.S(from, d.int("to", from+1, n), d.int("step", 1, 3))
			}
		}
		return ops.Slice(a, ranges...)
	},
	"own pad": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return ops.Pad(a, d.axis(a), d.int("before", 0, 2), d.int("after", 0, 2))
	},
	"own permute": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		return ops.Permute(a, rapid.Permutation(upTo(a.Dims())).Draw(d.t, "axes")...)
	},
	"own reshape": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		shape := slices.Clone([]int(a.Shape()))
		switch k := d.axis(a); d.int("reshape", 0, 3) {
		case 0:
			shape = slices.Insert(shape, k, 1)
		case 1:
			shape = []int{-1}
		case 2:
			shape = append(shape[:k], append([]int{-1}, shape[k+1:]...)...)
		case 3:
			if k > 0 {
				shape[k-1] *= shape[k]
				shape = slices.Delete(shape, k, k+1)
			}
		}
		return ops.Reshape(a, shape...)
	},
	"own concat": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		k := d.axis(a)
		other := slices.Clone([]int(a.Shape()))
		other[k] = d.int("extent", 1, 3)
		b := d.one("of the other axes", func(n *G.Node) bool {
			return n.Dims() == a.Dims() && !slices.ContainsFunc(upTo(a.Dims()), func(i int) bool { return i != k && n.Shape()[i] != a.Shape()[i] })
		}, other...)
		if rapid.Bool().Draw(d.t, "three") {
			return ops.Concat(k, a, b, a)
		}
		return ops.Concat(k, b, a)
	},
	"own stack": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return ops.Stack(d.int("axis", 0, a.Dims()), a, d.like(a), a)
	},
	"own split": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		k := d.axis(a)
		n := a.Shape()[k]
		if n == 1 {
			return nil, nil
		}
		first := d.int("first", 1, n-1)
		parts, err := ops.Split(a, k, first, n-first)
		if err != nil {
			return nil, err
		}
		d.pool = append(d.pool, parts[0])
		return parts[1], nil
	},
	"own broadcast": func(d *drawing) (*G.Node, error) {
		a := d.any()
		return ops.Broadcast(a, d.int("times", 1, 4), d.int("axis", 0, a.Dims()))
	},
	"own cumsum": func(d *drawing) (*G.Node, error) { a := d.tensor(1, 4); return ops.CumSum(a, d.axis(a)) },
	"own pick": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		k := d.axis(a)
		shape := slices.Clone([]int(a.Shape()))
		n := shape[k]
		shape[k] = d.int("picked", 1, 5)
		return ops.Pick(a, d.integers(n, shape...), k)
	},
	"own embedding": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		return ops.Embedding(a, d.integers(a.Shape()[0], d.shape(d.int("rank of ids", 1, 2))...))
	},
	"own one hot": func(d *drawing) (*G.Node, error) {
		return ops.OneHot(d.integers(4, d.shape(d.int("rank of ids", 1, 2))...), 4, d.dt)
	},
	"own arg": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		n, err := d.kept(sampled(d, "which", map[string]func(*G.Node, int) (*G.Node, error){"max": ops.ArgMax, "min": ops.ArgMin})(a, d.axis(a)))
		if err != nil {
			return nil, err
		}
		return ops.Cast(n, d.dt)
	},
	"own topk": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		k := d.axis(a)
		v, i, err := ops.TopK(a, d.int("k", 1, min(4, a.Shape()[k])), k)
		if err != nil {
			return nil, err
		}
		_, err = d.kept(i, nil)
		return v, err
	},
	"own product": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		var opts []ops.MatMulOption
		inner := a.Shape()[a.Dims()-1]
		if a.Dims() > 1 && rapid.Bool().Draw(d.t, "transpose a") {
			opts, inner = append(opts, ops.TransA()), a.Shape()[a.Dims()-2]
		}
		shape := []int{inner}
		if d.int("matrix", 0, 3) > 0 {
			shape = []int{inner, d.shape(1)[0]}
			if rapid.Bool().Draw(d.t, "transpose b") {
				opts = append(opts, ops.TransB())
				slices.Reverse(shape)
			}
			if a.Dims() > 2 && rapid.Bool().Draw(d.t, "batched") {
				lead := slices.Clone([]int(a.Shape()))[:a.Dims()-2]
				for i := range lead {
					if rapid.Bool().Draw(d.t, "one") {
						lead[i] = 1
					}
				}
				shape = append(lead[d.int("left out", 0, len(lead)):], shape...)
			}
		}
		return ops.MatMul(a, d.one("factor", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), shape) }, shape...), opts...)
	},
	"own linear": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		w := d.input(d.shape(1)[0], a.Shape()[a.Dims()-1])
		if rapid.Bool().Draw(d.t, "bias") {
			return ops.Linear(a, w, d.one("bias", func(n *G.Node) bool { return n.Dims() == 1 && n.Shape()[0] == w.Shape()[0] }, w.Shape()[0]))
		}
		return ops.Linear(a, w, nil)
	},
	"own dot": func(d *drawing) (*G.Node, error) { a := d.tensor(1, 2); return ops.Dot(a, d.like(a)) },
	"own scale": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 2)
		shape := []int(a.Shape())[:a.Dims()-1]
		return ops.Scale(a, d.one("scale", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), shape) }, shape...))
	},
	"own convolution": func(d *drawing) (*G.Node, error) {
		x := d.image()
		groups := 1
		if c := x.Shape()[1]; rapid.Bool().Draw(d.t, "depthwise") {
			groups = c
		}
		r, s := d.int("height", 1, 3), d.int("width", 1, 3)
		opts := []ops.ConvOption{ops.Stride(d.int("stride", 1, 2), d.int("stride", 1, 3)), ops.Dilation(d.int("dilation", 1, 2)), ops.Groups(groups)}
		if r > 1 && s > 1 {
			opts = append(opts, ops.Padding(d.int("padding", 0, 1), d.int("padding", 0, 1)))
		}
		if rapid.Bool().Draw(d.t, "transposed") {
			per := d.int("filters", 1, 2)
			return ops.ConvTranspose2d(x, d.input(x.Shape()[1], per, r, s), d.input(per*groups), opts...)
		}
		k := groups * d.int("filters", 1, 2)
		w := d.input(k, x.Shape()[1]/groups, r, s)
		if rapid.Bool().Draw(d.t, "bias") {
			return ops.Conv2d(x, w, d.input(k), opts...)
		}
		return ops.Conv2d(x, w, nil, opts...)
	},
	"own window": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		if rapid.Bool().Draw(d.t, "same") {
			return ops.WindowSum(a, d.int("radius", 0, 4), ops.Same())
		}
		return ops.WindowSum(a, d.int("radius", 0, (a.Shape()[a.Dims()-1]-1)/2))
	},
	"own rows": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 4)
		k := d.axis(a)
		n := d.int("rows", 1, a.Shape()[k])
		at := d.int("position", 0, a.Shape()[k]-n)
		d.indices++
		position := G.NewScalar(d.g, tensor.Int, G.WithName(fmt.Sprint("i", d.indices)), G.WithValue(at))
		if rapid.Bool().Draw(d.t, "update") {
			shape := slices.Clone([]int(a.Shape()))
			shape[k] = n
			return ops.Update(a, d.one("rows", func(n *G.Node) bool { return slices.Equal([]int(n.Shape()), shape) }, shape...), position, k)
		}
		return ops.RowsAt(a, position, n, k)
	},
	"own cross entropy": func(d *drawing) (*G.Node, error) {
		a := d.tensor(1, 3)
		k := min(1, a.Dims()-1)
		opts := []ops.CrossEntropyOption{ops.LabelSmoothing(float64(d.int("smoothing", 0, 1)) * 0.1), ops.IgnoreLabel(0)}
		if rapid.Bool().Draw(d.t, "each row") {
			opts = append(opts, ops.PerRow())
		}
		if a.Shape()[k] < 2 {
			return nil, nil
		}
		labels := slices.Delete(slices.Clone([]int(a.Shape())), k, k+1)
		if len(labels) == 0 {
			return nil, nil
		}
		return ops.CrossEntropy(a, d.integers(a.Shape()[k], labels...), opts...)
	},
	"own attention": func(d *drawing) (*G.Node, error) {
		q := d.image()
		s := q.Shape()
		if rapid.Bool().Draw(d.t, "of itself") {
			return ops.Attention(q, q, q)
		}
		k := d.input(s[0], s[1], d.int("keys", 1, 5), s[3])
		opts := []ops.AttentionOption{ops.AttentionScale(0.5)}
		if rapid.Bool().Draw(d.t, "causal") {
			opts = append(opts, ops.Causal())
		}
		return ops.Attention(q, k, d.like(k), opts...)
	},
	"own histogram": func(d *drawing) (*G.Node, error) {
		n, err := d.kept(ops.Histogram(d.any(), 4, -1, 1))
		if err != nil {
			return nil, err
		}
		return ops.Cast(n, d.dt)
	},
}

// specials puts numbers of special kinds among the elements of a value. None is so large that a product overflows, since kernels round a product
// and a sum once, the host twice, and none is 0 in TF32.
func (d *drawing) specials(v *tensor.Dense) {
	few := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1e-310, -1e-40, 1e-20, 0.5, -2.5, 80, -104}
	if d.huge {
		few = append(few, -3e9)
	}
	for i := range v.DataSize() {
		if d.r.IntN(6) == 0 {
			x := few[d.r.IntN(len(few))]
			switch s := v.Data().(type) {
			case []float64:
				s[i] = x
			case []float32:
				s[i] = float32(x)
			}
		}
	}
}

// Queries, keys and values may be one node, also of one element: its weight is 1, and so is the gradient of the sum.
func TestAttentionOfOneElement(t *testing.T) {
	onBackends(t, func(t *testing.T, o Option) {
		g := G.NewGraph()
		x := G.NewTensor(g, tensor.Float32, 4, G.WithName("x"), G.WithShape(1, 1, 1, 1), G.WithInit(G.ValuesOf(float32(3))))
		out := testutil.Get[*G.Node](t)(ops.Attention(x, x, x))
		testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(ops.Sum(out)), x))
		testutil.Do(t, machine(t, g, o, Keep(out)).RunAll())
		if got := append(floats(t, out.Value()), floats(t, testutil.Get[G.Value](t)(x.Grad()))...); !slices.Equal(got, []float64{3, 1}) {
			t.Errorf("got value and gradient %v, want 3 and 1", got)
		}
	})
}
