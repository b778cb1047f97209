package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// epilogues are chains of steps on an element c of a product, with operands x0 and x1:
// every step, and some that graphs have.
var epilogues = []string{
	"c + x0",
	"select(c + x0 < 0, -0, c + x0 + 0)",
	"c * (0 <= 1 / x0)",
	"(c + x0) + x1",
	"tanh(c + x0)",
	"sigmoid((c + x0) + x1)",
	"c * (1 - x0 * x0)",
	"c * (x0 * sigmoid(-x1))",
	"(c - x0) * x1",
	"x0 - c",
	"tanh(sigmoid(c))",
	"(x0 - c) / x1",
	"select(c < 0, -0, c + 0)",
	"c / x0",
}

// sizedForm is a product on a device with that many SMs.
type sizedForm struct {
	sms            int
	batch, m, n, k int64
}

// vectorForms are products of matrices and vectors, after matmulForms.
var vectorForms = []sizedForm{
	{132, 3, 67, 1, 50}, {132, 2, 1, 131, 60}, {132, 1, 5, 1, 20000}, {132, 1, 1, 36, 20000}, {132, 1, 33, 34, 0},
	{132, 2, 37, 1, 1002}, {132, 2, 37, 1, 1003}, {132, 1, 20, 1, 5001}, {132, 1, 3000, 1, 3}, {132, 1, 1, 7, 50001}, {132, 3, 1, 63, 1001}, {132, 3, 1, 257, 999}, {132, 2, 1, 1, 40001},
}

// Every form of the product applies an epilogue, to the bit as a kernel of its
// own that follows the product.
func TestMatMulEpilogues(t *testing.T) {
	r := random(t)
	for i, dev := range productDevices(t) {
		var forms []sizedForm
		if i == 0 {
			forms = slices.Clone(vectorForms)
		}
		for _, f := range matmulForms {
			if _, ok := tensorForm(f.kernel); i == 0 || ok {
				forms = append(forms, sizedForm{f.sms, f.batch, f.m, f.n, f.k})
			}
		}
		epiloguesOn(t, r, dev, forms)
	}
}

func epiloguesOn(t *testing.T, r *rand.Rand, dev kernels.Device, forms []sizedForm) {
	chosen := r.IntN(4)
	for i, f := range forms {
		dev.SMs = f.sms
		for j, text := range epilogues {
			if testing.Short() && (j != i%len(epilogues) || i%4 != chosen) {
				continue // a checker follows every access
			}
			transposes := (i + j) % 4
			for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
				p := gemm.Product{Dtype: dt, Batch: f.batch, M: f.m, N: f.n, K: f.k, A: gemm.Operand{Trans: transposes >= 2}, B: gemm.Operand{Trans: transposes%2 == 1}}
				t.Run(fmt.Sprintf("%v %dx%dx%dx%d %v on %d.%d", p, f.batch, f.m, f.n, f.k, text, dev.Major, dev.Minor), func(t *testing.T) {
					if dt == kernels.Float32 {
						finishProduct[float32](t, r, dev, p, text)
					} else {
						finishProduct[float64](t, r, dev, p, text)
					}
				})
			}
		}
	}
}

// operandsOf returns how many operands a text in terms of c, x0 and x1 has.
func operandsOf(text string) (n int) {
	for n < 2 && strings.Contains(text, fmt.Sprint("x", n)) {
		n++
	}
	return n
}

// finishProduct compares a product with an epilogue and a product before a map.
func finishProduct[T kernels.Float](t *testing.T, r *rand.Rand, dev kernels.Device, p gemm.Product, text string) {
	shape := []int{int(p.Batch), int(p.M), int(p.N)}
	count := kernels.Count(shape)
	names, inputs := []string{"c"}, [][]byte{kernels.Bytes(somewhat[T](r, p.Batch*p.M*p.K, 4000)), kernels.Bytes(somewhat[T](r, p.Batch*p.K*p.N, 4000))}
	dense := []codegen.View{codegen.Dense([]int{int(count)})}
	var views []codegen.View
	var full [][]byte // the operands, an element for each of C
	for i := range operandsOf(text) {
		m, n := int(p.M), int(p.N)
		v := codegen.View{Offset: r.Int64N(3), Strides: [][]int{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {0, 0, 0}, {m * n, n, 1}, {m * n, 1, m}, {2 * m * n, 2 * n, 2}}[r.IntN(7)]}
		v.Elements = v.Offset + 1
		for a, stride := range v.Strides {
			v.Elements += int64((shape[a] - 1) * stride)
		}
		x, each := somewhat[T](r, v.Elements, 5), make([]T, count)
		for e := range each {
			at, rest := v.Offset, e
			for a := 2; a >= 0; a-- {
				at += int64(rest % shape[a] * v.Strides[a])
				rest /= shape[a]
			}
			each[e] = x[at]
		}
		names, views, inputs = append(names, fmt.Sprint("x", i)), append(views, v), append(inputs, kernels.Bytes(x))
		full, dense = append(full, kernels.Bytes(each)), append(dense, dense[0])
	}
	f := testutil.Get[expr.Func](t)(expr.Parse(text, p.Dtype, names...))
	with, ok := p.With(f, views...)
	if !ok {
		t.Fatalf("%s is not an epilogue", text)
	}
	get := testutil.Get[*kernels.Plan](t)
	plan, plain := get(with.Plan(dev)), get(p.Plan(dev))
	mapped := get(codegen.Map(dev, f, []int{int(count)}, dense...))
	got, product, want := make([]T, count), make([]T, count), make([]T, count)
	testutil.Do(t, Run(0, plan, inputs, kernels.Bytes(got)))
	testutil.Do(t, Run(0, plain, inputs[:2], kernels.Bytes(product)))
	testutil.Do(t, Run(0, mapped, append([][]byte{kernels.Bytes(product)}, full...), kernels.Bytes(want)))
	for i, v := range got {
		if v != want[i] && (v == v || want[i] == want[i]) || v == 0 && math.Signbit(float64(v)) != math.Signbit(float64(want[i])) {
			t.Fatalf("%v\nelement %d is %v, want %v: %s of %v", plan, i, v, want[i], text, product[i])
		}
	}
}

// somewhat draws numbers, one in `special` of them special.
func somewhat[T kernels.Float](r *rand.Rand, n int64, special int) []T {
	kinds := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, -0x1p-130, 0x1p-1070}
	list := make([]T, n)
	for i := range list {
		list[i] = T(r.NormFloat64())
		if r.IntN(special) == 0 {
			list[i] = T(kinds[r.IntN(len(kinds))])
		}
	}
	return list
}

// Functions in epilogues have the bits of those in maps, for numbers of all sizes.
func TestMatMulEpilogueFunctions(t *testing.T) {
	dev, r := device0(t), random(t)
	n := int64(1 << 20)
	if testing.Short() {
		n = 1 << 10
	}
	for _, text := range []string{"tanh(c)", "sigmoid(c)", "c * (x0 * sigmoid(-x0))"} {
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			t.Run(fmt.Sprintf("%s %v", text, dt), func(t *testing.T) {
				if dt == kernels.Float32 {
					compareFunctions(t, dev, text, dt, n, []float32{1, 1}, func() float32 {
						return pick(r, math.Float32frombits(r.Uint32()), float32(4*r.NormFloat64()), float32(100*r.NormFloat64()))
					})
				} else {
					compareFunctions(t, dev, text, dt, n, []float64{1, 1}, func() float64 {
						return pick(r, math.Float64frombits(r.Uint64()), 4*r.NormFloat64(), 500*r.NormFloat64())
					})
				}
			})
		}
	}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// compareFunctions compares functions of the elements of n x 1 times ones.
func compareFunctions[T kernels.Float](t *testing.T, dev kernels.Device, text string, dt kernels.Dtype, n int64, ones []T, draw func() T) {
	x, got, want := make([]T, n), make([]T, 2*n), make([]T, 2*n)
	for i := range x {
		x[i] = draw()
	}
	names, view := []string{"c", "x0"}, codegen.View{Elements: n, Strides: []int{0, 1, 0}}
	views := []codegen.View{view}[:operandsOf(text)]
	f := testutil.Get[expr.Func](t)(expr.Parse(text, dt, names[:1+len(views)]...))
	with, ok := gemm.Product{Dtype: dt, Batch: 1, M: n, N: 2, K: 1}.With(f, views...)
	if !ok {
		t.Fatalf("%s is not an epilogue", text)
	}
	get := testutil.Get[*kernels.Plan](t)
	b := kernels.Bytes(x)
	testutil.Do(t, Run(0, get(with.Plan(dev)), [][]byte{b, kernels.Bytes(ones), b}[:2+len(views)], kernels.Bytes(got)))
	testutil.Do(t, Run(0, get(codegen.Map(dev, f, []int{1, int(n), 2}, append([]codegen.View{view}, views...)...)), [][]byte{b, b}[:1+len(views)], kernels.Bytes(want)))
	wrong := 0
	for i, v := range got {
		if v != want[i] && (v == v || want[i] == want[i]) || v == 0 && math.Signbit(float64(v)) != math.Signbit(float64(want[i])) {
			if wrong++; wrong == 1 {
				t.Errorf("%s of %g is %g, want %g", text, x[i/2], v, want[i])
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d differ", wrong, 2*n)
	}
}
