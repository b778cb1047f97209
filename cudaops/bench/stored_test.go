package bench

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// storedCases are functions of rows, or of elements for no axes, with views of a shape.
var storedCases = []struct {
	name        string
	f           func(b *expr.Builder, x, y expr.Value) []expr.Value
	shape, axes []int
	perRow      []bool
	transposed  bool // y is stored transposed
}{
	{"map", gelu, []int{1, 1 << 28}, nil, []bool{false}, false},
	{"map of few", gelu, []int{3, 77}, nil, []bool{false}, false},
	{"transposed", gelu, []int{1000, 1200}, nil, []bool{false}, true},
	{"softmax", softmax, []int{16384, 4096}, []int{1}, []bool{false}, false},
	{"softmax of long rows", softmax, []int{40, 50304}, []int{1}, []bool{false}, false},
	{"softmax of odd rows", softmax, []int{300, 1001}, []int{1}, []bool{false}, false},
	{"sums of rows", sums, []int{8192, 768}, []int{1}, []bool{true, true}, false},
	{"sums of columns", sums, []int{8192, 3072}, []int{0}, []bool{true, true}, false},
	{"sums of fewer columns", sums, []int{2048, 768}, []int{0}, []bool{true, true}, false},
	{"sums of columns of an odd number", sums, []int{515, 67}, []int{0}, []bool{true, true}, false},
}

func gelu(b *expr.Builder, x, y expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.Mul, y, b.Apply(expr.Add, b.Constant(expr.Float32, 1), b.Apply(expr.Tanh, x)))}
}

func softmax(b *expr.Builder, x, y expr.Value) []expr.Value {
	e := b.Apply(expr.Exp, b.Apply(expr.Sub, x, b.Apply(expr.RowMax, x)))
	return []expr.Value{b.Apply(expr.Mul, y, b.Apply(expr.Div, e, b.Apply(expr.RowSum, e)))}
}

func sums(b *expr.Builder, x, y expr.Value) []expr.Value {
	return []expr.Value{b.Apply(expr.RowSum, x), b.Apply(expr.RowSum, b.Apply(expr.Mul, x, y))}
}

// storedPlans returns the plan of case i in float32 and one that stores elements in a type.
func storedPlans(t *testing.T, dev kernels.Device, i int, d expr.Dtype) (list [2]*kernels.Plan) {
	c := storedCases[i]
	b := expr.NewBuilder(expr.Float32, expr.Float32)
	f := testutil.Get[expr.Func](t)(b.Func(c.f(b, b.Operand(0), b.Operand(1))...))
	outputs := make([]expr.Dtype, len(c.perRow))
	for k, one := range c.perRow {
		if outputs[k] = d; one {
			outputs[k] = expr.Float32
		}
	}
	views := []codegen.View{codegen.Dense(c.shape), codegen.Dense(c.shape)}
	if c.transposed {
		views[1].Strides = []int{1, c.shape[0]}
	}
	for k, f := range []expr.Func{f, testutil.Get[expr.Func](t)(f.Stored([]expr.Dtype{d, d}, outputs))} {
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
			in, full := make([][]byte, 2), make([][]byte, 2)
			for k := range in {
				in[k] = asStored(t, uniform(4*n, int(r.Int32())), expr.Float32, d)
				full[k] = asStored(t, in[k], d, expr.Float32)
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
