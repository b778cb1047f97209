package expr

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/bigmath"
	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// call evaluates a function of elements of one type with its Go body.
func call[T float](t *testing.T, f Func, operands ...[]T) []T {
	t.Helper()
	in := NewInterpreter(f)
	out := make([]T, len(operands[0]))
	for lo := 0; lo < len(out); lo += BlockSize {
		n := min(BlockSize, len(out)-lo)
		pointers := make([]unsafe.Pointer, len(operands))
		for i := range operands {
			pointers[i] = unsafe.Pointer(&operands[i][lo])
		}
		if err := in.Run(n, pointers, []unsafe.Pointer{unsafe.Pointer(&out[lo])}); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func parse(t *testing.T, text string, d Dtype, names ...string) Func {
	t.Helper()
	f, err := Parse(text, d, names...)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return f
}

// sweep returns arguments of all magnitudes and both signs, and many of the range
// in which functions change.
func sweep(r *rand.Rand, n, exponents int) []float64 {
	var xs []float64
	for range n {
		v := math.Ldexp(1+r.Float64(), r.IntN(2*exponents)-exponents)
		for _, x := range []float64{v, 40 * (r.Float64() - 0.5), 200 * (r.Float64() - 0.5), 1 + (r.Float64()-0.5)/16, 1500 * (r.Float64() - 0.5)} {
			xs = append(xs, x, -x)
		}
	}
	return xs
}

// bounds are the allowed errors in units in the last place.
func bound(name string) float64 {
	if name == "sigmoid" || name == "softplus" {
		return 4
	}
	return 2
}

// The Go bodies are within 2 units in the last place of the true value, composites
// within 4.
func TestPrecision(t *testing.T) {
	r := testutil.Random(t)
	n := 250
	if testing.Short() {
		n = 60
	}
	_, functions := Ops()
	for _, op := range append(functions, Sqrt, InverseSqrt) {
		name := op.String()
		if op.Arity() != 1 {
			continue
		}
		xs := sweep(r, n, 1020)
		if name == "sin" || name == "cos" { // where they are small
			for range n {
				xs = append(xs, float64(r.IntN(1e6))*math.Pi/2)
			}
			xs = append(xs, 6381956970095103*0x1p797) // as near to a multiple of pi/2 as can be
		}
		precision(t, name, Float64, domain(name, xs, math.MaxFloat64), nil)
		singles := make([]float64, len(xs))
		for i, x := range xs {
			singles[i] = float64(float32(x))
		}
		precision(t, name, Float32, domain(name, singles, math.MaxFloat32), nil)
	}
	var xs, ys []float64
	for _, x := range sweep(r, n, 1020) {
		y := 100 * (r.Float64() - 0.5)
		if i := r.IntN(3); i == 0 { // a power that is a number
			y = 1400 * (r.Float64() - 0.5) / math.Log(math.Abs(x))
		} else if i == 1 {
			y = math.Round(y)
		}
		xs, ys = append(xs, math.Abs(x)), append(ys, y)
	}
	precision(t, "pow", Float64, xs, ys)
	for i := range xs {
		xs[i], ys[i] = float64(float32(math.Sqrt(math.Sqrt(math.Sqrt(xs[i]))))), float64(float32(ys[i]))
	}
	precision(t, "pow", Float32, xs, ys)
}

// domain keeps the numbers that a function is defined for.
func domain(name string, xs []float64, most float64) []float64 {
	return slices.DeleteFunc(slices.Clone(xs), func(x float64) bool {
		return x == 0 || math.Abs(x) > most || !bigmath.Defined(name, x)
	})
}

// precision compares the results of a function of x, and y if there is one, with
// the true values.
func precision(t *testing.T, name string, d Dtype, x, y []float64) {
	t.Helper()
	truth := bigmath.Function(name)
	var out []float64
	if y == nil {
		out = values(t, parse(t, name+"(x)", d, "x"), x)
	} else {
		out = values(t, parse(t, name+"(x, y)", d, "x", "y"), x, y)
	}
	worst, at := 0.0, 0
	for i := range out {
		args := []float64{x[i]}
		if y != nil {
			args = append(args, y[i])
		}
		if e := bigmath.Error(out[i], truth(args...), map[Dtype]int{Float32: 24, Float64: 53}[d]); e > worst {
			worst, at = e, i
		}
	}
	t.Logf("%-12s %v %.3f ulp at %v", name, d, worst, x[at])
	if worst > bound(name) {
		t.Errorf("%s of %v is %v, off by %g units in the last place, want at most %v", name, x[at], out[at], worst, bound(name))
	}
}

// values evaluates a function of one type on numbers of that type.
func values(t *testing.T, f Func, operands ...[]float64) []float64 {
	t.Helper()
	if f.Operands()[0] == Float64 {
		return call(t, f, operands...)
	}
	singles := make([][]float32, len(operands))
	for i, list := range operands {
		for _, v := range list {
			singles[i] = append(singles[i], float32(v))
		}
	}
	var out []float64
	for _, v := range call(t, f, singles...) {
		out = append(out, float64(v))
	}
	return out
}

// outputs64 evaluates a function of float64 once.
func outputs64(t *testing.T, f Func, x []float64) []float64 {
	t.Helper()
	in := make([]unsafe.Pointer, len(x))
	for i := range x {
		in[i] = unsafe.Pointer(&x[i])
	}
	out := make([]float64, len(f.Outputs()))
	pointers := make([]unsafe.Pointer, len(out))
	for i := range out {
		pointers[i] = unsafe.Pointer(&out[i])
	}
	if err := NewInterpreter(f).Run(1, in, pointers); err != nil {
		t.Fatal(err)
	}
	return out
}

// Whole results are exact, and functions have their limits at the ends of the
// numbers.
func TestEdges(t *testing.T) {
	inf, nan, zero := math.Inf(1), math.NaN(), math.Copysign(0, -1)
	const least = math.SmallestNonzeroFloat64
	for text, cases := range map[string][][2]float64{
		"sign(x)":     {{0, 0}, {zero, zero}, {nan, nan}, {-least, -1}, {inf, 1}, {-inf, -1}},
		"abs(x)":      {{zero, 0}, {-inf, inf}, {nan, nan}, {-least, least}},
		"-x":          {{0, zero}, {zero, 0}, {inf, -inf}},
		"ceil(x)":     {{-0.5, zero}, {least, 1}, {inf, inf}, {1e300, 1e300}, {2.5, 3}},
		"floor(x)":    {{0.5, 0}, {zero, zero}, {-least, -1}, {-inf, -inf}, {-2.5, -3}},
		"sqrt(x)":     {{zero, zero}, {-least, nan}, {inf, inf}, {4, 2}},
		"exp(x)":      {{0, 1}, {zero, 1}, {inf, inf}, {-inf, 0}, {710, inf}, {-746, 0}, {nan, nan}},
		"expm1(x)":    {{0, 0}, {zero, zero}, {inf, inf}, {-inf, -1}, {least, least}, {1e-300, 1e-300}},
		"log(x)":      {{1, 0}, {0, -inf}, {zero, -inf}, {-1, nan}, {inf, inf}, {nan, nan}},
		"log2(x)":     {{1, 0}, {8, 3}, {least, -1074}, {0x1p1023, 1023}, {0, -inf}, {-1, nan}, {inf, inf}, {nan, nan}},
		"log1p(x)":    {{0, 0}, {zero, zero}, {-1, -inf}, {-2, nan}, {inf, inf}, {least, least}},
		"sin(x)":      {{0, 0}, {zero, zero}, {inf, nan}, {-inf, nan}, {nan, nan}, {least, least}},
		"cos(x)":      {{0, 1}, {inf, nan}, {nan, nan}, {least, 1}},
		"tanh(x)":     {{zero, zero}, {inf, 1}, {-inf, -1}, {nan, nan}, {least, least}, {1e300, 1}},
		"erf(x)":      {{zero, zero}, {inf, 1}, {-inf, -1}, {nan, nan}},
		"sigmoid(x)":  {{0, 0.5}, {inf, 1}, {-inf, 0}, {1000, 1}, {-1000, 0}, {nan, nan}},
		"softplus(x)": {{0, math.Ln2}, {inf, inf}, {-inf, 0}, {1e300, 1e300}, {-1000, 0}, {nan, nan}},
		"pow(x, 0)":   {{nan, 1}, {inf, 1}, {0, 1}},
		"pow(1, x)":   {{nan, 1}, {inf, 1}, {-inf, 1}},
		"pow(x, 2)":   {{3, 9}, {-7, 49}, {1e200, inf}, {-inf, inf}, {nan, nan}, {0x1.fffp500, 0x1.ffe0008p1001}},
		"pow(x, 3)":   {{-3, -27}, {zero, zero}, {-inf, -inf}, {5, 125}, {0.1, 0.0010000000000000002}},
		"pow(x, -1)":  {{4, 0.25}, {zero, -inf}, {0, inf}, {-inf, zero}},
		"pow(x, 0.5)": {{4, 2}, {-4, nan}, {9, 3}, {zero, 0}, {inf, inf}},
		"pow(2, x)":   {{-1074, least}, {1023, 0x1p1023}, {1024, inf}, {-1076, 0}, {10, 1024}, {inf, inf}, {-inf, 0}, {nan, nan}},
		"pow(-1, x)":  {{inf, 1}, {3, -1}, {1e300, 1}, {0.5, nan}},
		"max(x, 1)":   {{nan, nan}, {2, 2}, {-inf, 1}},
		"min(x, 0)":   {{nan, nan}, {zero, zero}, {inf, 0}},
		"max(x, 0)":   {{zero, 0}, {-1, 0}, {nan, nan}},
		"x < 1":       {{nan, 0}, {-inf, 1}, {1, 0}},
		"x <= 1":      {{nan, 0}, {1, 1}},
		"x > 1":       {{nan, 0}, {inf, 1}, {1, 0}},
		"x >= 1":      {{nan, 0}, {1, 1}},
		"x == x":      {{nan, 0}, {inf, 1}, {zero, 1}},
		"x != x":      {{nan, 1}, {inf, 0}},
		"x == 0":      {{zero, 1}, {least, 0}},
	} {
		f := parse(t, text, Float64, "x")
		for _, c := range cases {
			if got := outputs64(t, f, c[:1])[0]; math.Float64bits(got) != math.Float64bits(c[1]) && !(got != got && c[1] != c[1]) {
				t.Errorf("%s of %v is %v, want %v", text, c[0], got, c[1])
			}
		}
	}
}
