package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// storedCases are functions of rows, or of elements for no axes, of operands by letters as exprtest.RowFunction has them.
var storedCases = []struct {
	name        string
	f           func(b *expr.Builder, x []expr.Value) []expr.Value
	operands    string
	shape, axes []int
	perRow      []bool
	transposed  bool // the second operand is stored transposed
}{
	{"map", gate, "ee", []int{1, 1 << 28}, nil, []bool{false}, false},
	{"map of one operand", gelu, "e", []int{1, 1 << 28}, nil, []bool{false}, false},
	{"map of few", gate, "ee", []int{3, 77}, nil, []bool{false}, false},
	{"transposed", gate, "ee", []int{1000, 1200}, nil, []bool{false}, true},
	{"softmax", softmax, "e", []int{16384, 4096}, []int{1}, []bool{false}, false},
	{"layer norm", layerNorm(4096), "ecc", []int{16384, 4096}, []int{1}, []bool{false}, false},
	{"sum", sums, "e", []int{16384, 4096}, []int{1}, []bool{true}, false},
	{"softmax and product", softmax, "ee", []int{16384, 4096}, []int{1}, []bool{false}, false},
	{"softmax of long rows", softmax, "ee", []int{40, 50304}, []int{1}, []bool{false}, false},
	{"softmax of odd rows", softmax, "ee", []int{300, 1001}, []int{1}, []bool{false}, false},
	{"layer norm of fewer rows", layerNorm(4096), "ecc", []int{61, 4096}, []int{1}, []bool{false}, false},
	{"layer norm of odd rows", layerNorm(1001), "ecc", []int{300, 1001}, []int{1}, []bool{false}, false},
	{"sum of fewer rows", sums, "e", []int{61, 4096}, []int{1}, []bool{true}, false},
	{"sums of rows", sums, "ee", []int{8192, 768}, []int{1}, []bool{true, true}, false},
	{"sums of columns", sums, "ee", []int{8192, 3072}, []int{0}, []bool{true, true}, false},
	{"sums of fewer columns", sums, "ee", []int{2048, 768}, []int{0}, []bool{true, true}, false},
	{"sums of columns of an odd number", sums, "ee", []int{515, 67}, []int{0}, []bool{true, true}, false},
}

// gate is y (1 + tanh x).
func gate(b *expr.Builder, x []expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, x[1], b.Apply(expr.Add, b.Constant(expr.Float32, 1), b.Apply(expr.Tanh, x[0])))}
}

// gelu is GELU by tanh.
func gelu(b *expr.Builder, x []expr.Value) []expr.Value {
	c := func(v float64) expr.Value { return b.Constant(expr.Float32, v) }
	cube := b.Apply(expr.Mul, c(0.044715), b.Apply(expr.Mul, x[0], b.Apply(expr.Mul, x[0], x[0])))
	inner := b.Apply(expr.Mul, c(math.Sqrt(2/math.Pi)), b.Apply(expr.Add, x[0], cube))
	return gate(b, []expr.Value{inner, b.Apply(expr.Mul, c(0.5), x[0])})
}

func softmax(b *expr.Builder, x []expr.Value) []expr.Value {
	e := b.Apply(expr.Exp, b.Apply(expr.Sub, x[0], b.Apply(expr.RowMax, x[0])))
	e = b.Apply(expr.Div, e, b.Apply(expr.RowSum, e))
	if len(x) > 1 {
		e = b.Apply(expr.Mul, x[1], e)
	}
	return []expr.Value{e}
}

// layerNorm returns layer norm of rows of so many columns, with a factor and a term for each column.
func layerNorm(columns float64) func(b *expr.Builder, x []expr.Value) []expr.Value {
	return func(b *expr.Builder, x []expr.Value) []expr.Value {
		mean := func(v expr.Value) expr.Value {
			return b.Apply(expr.Mul, b.Apply(expr.RowSum, v), b.Constant(expr.Float32, 1/columns))
		}
		d := b.Apply(expr.Sub, x[0], mean(x[0]))
		inverse := b.Apply(expr.Div, b.Constant(expr.Float32, 1), b.Apply(expr.Sqrt, b.Apply(expr.Add, mean(b.Apply(expr.Mul, d, d)), b.Constant(expr.Float32, 1e-5))))
		return []expr.Value{b.Apply(expr.Add, b.Apply(expr.Mul, b.Apply(expr.Mul, d, inverse), x[1]), x[2])}
	}
}

// sums are the sum of x and, of two operands, of their products.
func sums(b *expr.Builder, x []expr.Value) []expr.Value {
	list := []expr.Value{b.Apply(expr.RowSum, x[0])}
	if len(x) > 1 {
		list = append(list, b.Apply(expr.RowSum, b.Apply(expr.Mul, x[0], x[1])))
	}
	return list
}

// storedPlans returns the plan of case i in float32 and one that stores elements in a type.
func storedPlans(t *testing.T, dev kernels.Device, i int, d expr.Dtype) (list [2]*kernels.Plan) {
	c := storedCases[i]
	b := expr.NewBuilder(slices.Repeat([]expr.Dtype{expr.Float32}, len(c.operands))...)
	f := testutil.Get[expr.Func](t)(b.Func(c.f(b, b.Inputs())...))
	outputs := make([]expr.Dtype, len(c.perRow))
	for k, one := range c.perRow {
		if outputs[k] = d; one {
			outputs[k] = expr.Float32
		}
	}
	views := viewsOf(exprtest.RowFunction{Operands: c.operands}.Views(exprtest.RowShape{Shape: c.shape, Axes: c.axes}))
	if c.transposed {
		views[1].Strides = []int{1, c.shape[0]}
	}
	for k, f := range []expr.Func{f, testutil.Get[expr.Func](t)(f.Stored(slices.Repeat([]expr.Dtype{d}, len(c.operands)), outputs))} {
		if c.axes == nil {
			list[k] = testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, c.shape, views...))
		} else {
			list[k] = testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, c.shape, c.axes, c.perRow, views...))
		}
	}
	return list
}

// Functions of numbers stored in 16 bits have the bits of the float32 function, of operands and with outputs that are rounded.
func TestStoredOnGPU(t *testing.T) {
	dev, r := device0(t), random(t)
	for i, c := range storedCases {
		n := kernels.Count(c.shape)
		if n > 1<<23 || testing.Short() && n > 1<<18 {
			continue
		}
		for _, d := range []expr.Dtype{expr.BF16, expr.F16} {
			plans := storedPlans(t, dev, i, d)
			var in, full [][]byte
			for _, bytes := range plans[0].Inputs {
				stored := asStored(t, uniform(bytes, r.IntN(1<<10)), expr.Float32, d)
				in, full = append(in, stored), append(full, asStored(t, stored, d, expr.Float32))
			}
			want, got := make([]byte, plans[0].Out), make([]byte, plans[1].Out)
			testutil.Do(t, Run(0, plans[0], full, want))
			testutil.Do(t, Run(0, plans[1], in, got))
			if !c.perRow[0] {
				want = asStored(t, want, expr.Float32, d)
			}
			if !slices.Equal(want, got) {
				t.Errorf("%s in %v: other bits than in float32", c.name, d)
			}
		}
	}
}

// asStored returns elements of a type in another one, converted on the host.
func asStored(t *testing.T, m []byte, from, to expr.Dtype) []byte {
	b, n := expr.NewBuilder(from), int(int64(len(m))/from.Size())
	p := testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), testutil.Get[expr.Func](t)(b.Func(b.Convert(b.Operand(0), to))), []int{n}, codegen.Dense([]int{n})))
	out := make([]byte, p.Out)
	testutil.Do(t, p.Run([][]byte{m}, out, nil))
	return out
}

// The times of functions in float32 and of numbers stored in BF16, all between 0 and 1.
func TestStoredTimes(t *testing.T) {
	w := newStopwatch(t)
	for i, c := range storedCases {
		if kernels.Count(c.shape) < 1<<22 {
			continue
		}
		for k, p := range storedPlans(t, w.dev, i, expr.BF16) {
			name := fmt.Sprintf("%s %v %s", c.name, c.shape, []string{"float32", "BF16"}[k])
			if !w.wants(name) {
				continue
			}
			inputs := uniformInputs(p)
			if k == 1 {
				for i, n := range p.Inputs {
					few := asStored(t, uniform(4<<20, i), expr.Float32, expr.BF16)
					inputs[i] = bytes.Repeat(few, int(n)/len(few)+1)[:n]
				}
			}
			w.plan(name, p, inputs, p.Bytes(), 100*time.Millisecond)
		}
	}
}
