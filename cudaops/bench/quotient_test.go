package bench

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// edgeDivisors are special numbers, and the ends of where a divisor's inverse is used.
var edgeDivisors = []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 0x1p-149, 0x1p-126, math.MaxFloat32,
	0x1p-60, 0x0.ffffffp-60, 0x1p60, 0x1.000002p60, -0x1p-60, -0x1p60, 1, -1, 3, 49, 0x1.fffffep0, 0x1.000002p0, -0x1.fffffep-7}

// hardest returns a number of 24 bits whose quotient by y, another, is as near to the
// middle between two floats as can be, if there is one: (2q + 1) y + d is 0 in its last 24 bits.
func hardest(r *rand.Rand, y uint32) (x uint32, ok bool) {
	zeros := bits.TrailingZeros32(y)
	odd := y >> zeros
	inverse := odd
	for range 5 {
		inverse *= 2 - odd*inverse
	}
	last := 24 + r.IntN(2)
	d := (r.IntN(4) - 2) | 1
	m := uint64(uint32(-d)*inverse) & (1<<(last-zeros) - 1)
	step := uint64(1) << (last - zeros)
	m += step * ((1<<24-m+step-1)/step + r.Uint64N(max(1<<24/step, 1)))
	n := int64(m*uint64(y)) + int64(d)<<zeros
	x = uint32(n >> last)
	return x, m&1 == 1 && m < 1<<25 && n&(1<<last-1) == 0 && x >= 1<<23 && x < 1<<24
}

// Quotients by a number of the row are those of the processor, bit for bit, of all kinds of
// numbers, those nearest to the middle between two floats among them.
func TestRowsQuotientsOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	b := expr.NewBuilder(expr.Float32, expr.Float32)
	x0, x1 := b.Operand(0), b.Operand(1)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Div, x0, x1), b.Apply(expr.RowMax, x0)))
	hard := 0
	for _, s := range []exprtest.RowShape{{Shape: []int{4099, 252}, Axes: []int{1}}, {Shape: []int{301, 1021}, Axes: []int{1}}, {Shape: []int{33, 4096}, Axes: []int{1}}, {Shape: []int{257, 2052}, Axes: []int{0}}} {
		kept := 1 - s.Axes[0]
		y, x := make([]float32, s.Shape[kept]), make([]float32, s.Elements())
		for k := range y {
			y[k] = math.Float32frombits(r.Uint32())
			if k%2 > 0 {
				y[k] = float32(r.NormFloat64())
			}
		}
		copy(y, edgeDivisors)
		strides := []int{s.Shape[1], 1}
		for i := range x {
			row := i / strides[kept] % s.Shape[kept]
			switch r.IntN(8) {
			case 0:
				x[i] = float32(exprtest.Edges[r.IntN(len(exprtest.Edges))])
			case 1, 2:
				x[i] = math.Float32frombits(r.Uint32())
			case 3:
				x[i] = float32(r.NormFloat64())
			default:
				significand, ok := hardest(r, math.Float32bits(y[row])&(1<<23-1)|1<<23)
				if ok {
					hard++
				}
				x[i] = math.Float32frombits(significand&(1<<23-1) | uint32(64+r.IntN(128))<<23 | uint32(r.IntN(2))<<31)
			}
		}
		of := codegen.Dense(s.Shape)
		of.Elements, of.Strides = int64(len(y)), make([]int, 2)
		of.Strides[kept] = 1
		p := testutil.Get[*kernels.Plan](t)(codegen.Rows(dev, f, s.Shape, s.Axes, []bool{false, true}, codegen.Dense(s.Shape), of))
		out := exprtest.Memory(p.Out)
		testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(x), kernels.Bytes(y)}, out))
		for i, got := range kernels.Elements[float32](out[:4*len(x)]) {
			row := i / strides[kept] % s.Shape[kept]
			if want := x[i] / y[row]; math.Float32bits(got) != math.Float32bits(want) && !(got != got && want != want) {
				t.Fatalf("%v: %v / %v is %v, want %v", s.Shape, x[i], y[row], got, want)
			}
		}
	}
	if hard < 100_000 {
		t.Errorf("got %d quotients next to the middle between two floats, want 100000 at least", hard)
	}
}
