package expr

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
)

// Texts, and the normal forms of their functions.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"tanh(a*b) + c":               "f32, f32, f32: tanh(x0 * x1) + x2",
		" ( (a) +\r\n\t(b) ) ":        "f32, f32, f32: x0 + x1",
		"a - (b - c) - 1":             "f32, f32, f32: x0 - (x1 - x2) - 1",
		"(a + b) + (c + 1)":           "f32, f32, f32: x0 + x1 + (x2 + 1)",
		"a * (b / c) / -1.5E+2":       "f32, f32, f32: x0 * (x1 / x2) / -150",
		"-a * --b":                    "f32, f32, f32: -x0 * x1",
		"-(a + b) + .5":               "f32, f32, f32: -(x0 + x1) + 0.5",
		"exp(a) / (1 + exp(a))":       "f32, f32, f32: t0 = exp(x0); t0 / (1 + t0)",
		"square(a) + cube(b)":         "f32, f32, f32: x0 * x0 + x1 * x1 * x1",
		"inverse(a) - inverseSqrt(b)": "f32, f32, f32: 1 / x0 - 1 / sqrt(x1)",
		"a > b":                       "f32, f32, f32: f32(x1 < x0)",
		"(a >= 0) * a":                "f32, f32, f32: f32(0 <= x0) * x0",
		"select(a < b, a, 2*b)":       "f32, f32, f32: select(x0 < x1, x0, 2 * x1)",
		"select(a, b, c)":             "f32, f32, f32: select(x0 != 0, x1, x2)",
		"pow(max(a, 1e-3), min(b,c))": "f32, f32, f32: pow(max(x0, 0.0010000000474974513), min(x1, x2))",
		"a < b < c":                   "f32, f32, f32: f32(f32(x0 < x1) < x2)",
		"(a+b)*(a+b) - (a+b)":         "f32, f32, f32: t0 = x0 + x1; t0 * t0 - t0",
	} {
		f, err := Parse(text, Float32, "a", "b", "c")
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if f.String() != want {
			t.Errorf("%q is %v, want %v", text, f, want)
		}
	}
}

// Text that is refused, with the position of what is wrong.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "at 1: got the end, want a number, a name of a, b, a function or (",
		"a + ":                "at 5: got the end",
		"a + c":               "at 5: got c, want a number, a name of a, b",
		"a + b b":             "at 7: got b, want the end of the expression",
		"a + (b":              "at 7: got the end, want )",
		"a $ b":               "at 3: got $",
		"a = b":               "at 3: got =",
		"max(a b)":            "at 7: got b, want ,",
		"max(a, b, 1)":        "at 9: got ,, want )",
		"exp a":               "at 5: got a, want (",
		"select(a, b)":        "at 12: got ), want ,",
		"operand(a)":          "at 1: got operand",
		"1.2.3 + a":           "at 1: got 1.2.3",
		"1e999":               "at 1: got 1e999",
		"\u00e4 + b":          "at 1: got \u00e4",
		")":                   "at 1: got )",
		"a +* b":              "at 4: got *",
		"select(,,)":          "at 8: got ,",
		"a" + string(rune(0)): "at 2: got \x00",
	} {
		if f, err := Parse(text, Float32, "a", "b"); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want an error that starts with %q", text, f, err, want)
		}
	}
	nested := func(n int) string { return strings.Repeat("(", n) + "a" + strings.Repeat(")", n) }
	if f, err := Parse(nested(2047), Float32, "a"); err != nil || f.String() != "f32: x0" {
		t.Errorf("4095 characters: got %v, %v, want x0", f, err)
	}
	if _, err := Parse(nested(1<<20), Float32, "a"); err == nil || err.Error() != "at 4097: got 2097153 characters, want at most 4096" {
		t.Errorf("a long text: %v", err)
	}
	if _, err := Parse("a + 1", Int32, "a"); err == nil {
		t.Error("an expression of integers was read")
	}
}

// Equal graphs produce equal Funcs. The order of construction and unused nodes make no difference.
func TestFuncIdentity(t *testing.T) {
	build := func(extra bool) Func {
		b := NewBuilder(Float32, Float64, Bool)
		if extra {
			b.Apply(Exp, b.Operand(0))
			b.Constant(Float64, 3)
		}
		x := b.Convert(b.Operand(0), Float64)
		y := b.Apply(Mul, x, b.Apply(Add, b.Operand(1), b.Constant(Float64, 0.1)))
		f, err := b.Func(b.Apply(Select, b.Operand(2), y, x), b.Apply(Lt, x, y))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := build(false)
	if g := build(true); f != g {
		t.Errorf("%v is not %v", g, f)
	}
	const want = "f32, f64, bool: t0 = f64(x0); t1 = t0 * (x1 + f64(0.1)); select(x2, t1, t0), t0 < t1"
	if f.String() != want {
		t.Errorf("got %v, want %v", f, want)
	}
	if got := f.Operands(); len(got) != 3 || got[1] != Float64 {
		t.Errorf("operands %v", got)
	}
	if got := f.Outputs(); len(got) != 2 || got[0] != Float64 || got[1] != Bool {
		t.Errorf("outputs %v", got)
	}
	if got := f.Operations(); got != 4 {
		t.Errorf("%d operations, want 4", got)
	}
	if a, b := parse(t, "a + 0", Float32, "a"), parse(t, "a + -0", Float32, "a"); a == b || a.String() == b.String() {
		t.Errorf("%v and %v are one", a, b)
	}
	b := NewBuilder(Float32)
	if b.Constant(Float32, math.NaN()) != b.Constant(Float32, -math.NaN()) || b.Constant(Float32, 0.1) != b.Constant(Float32, float64(float32(0.1))) {
		t.Error("equal numbers are two values")
	}
}

// Operands that do nothing are taken out, the others keep their order.
func TestTrim(t *testing.T) {
	f := parse(t, "c * exp(a) + c", Float32, "a", "b", "c", "d")
	g, kept := f.Trim()
	if want := parse(t, "c * exp(a) + c", Float32, "a", "c"); g != want || len(kept) != 2 || kept[0] != 0 || kept[1] != 2 {
		t.Errorf("got %v of %v, want %v", g, kept, want)
	}
	if g, kept := parse(t, "3", Float32, "a").Trim(); len(g.Operands()) != 0 || len(kept) != 0 {
		t.Errorf("got %v of %v, want no operands", g, kept)
	}
}

// A function inlined into another one makes the same graph as the whole text.
func TestInline(t *testing.T) {
	f, g := parse(t, "tanh(a*b)", Float32, "a", "b"), parse(t, "c + exp(d)", Float32, "c", "d")
	b := NewBuilder(Float32, Float32, Float32)
	inner := b.Inline(f, b.Operand(2), b.Operand(0))
	outer := b.Inline(g, inner[0], b.Operand(1))
	got, err := b.Func(outer...)
	if want := parse(t, "tanh(c*a) + exp(b)", Float32, "a", "b", "c"); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

// A builder's error names the argument received and the arguments allowed. The
// builder keeps its first error.
func TestBuilderErrors(t *testing.T) {
	for want, build := range map[string]func(b *Builder) Value{
		"got operand 4, want one of 4":                          func(b *Builder) Value { return b.Operand(4) },
		"got a constant of bool, want one of a number type":     func(b *Builder) Value { return b.Constant(Bool, 1) },
		"got an integer constant of f32, want an integer type":  func(b *Builder) Value { return b.Integer(Float32, 1) },
		"got a conversion of i64 to bf16, want one from or to":  func(b *Builder) Value { return b.Convert(b.Operand(2), BF16) },
		"got arguments of f32 and f64 for +":                    func(b *Builder) Value { return b.Apply(Add, b.Operand(0), b.Operand(1)) },
		"got arguments of i64 and i64 for /, want both of one":  func(b *Builder) Value { return b.Apply(Div, b.Operand(2), b.Operand(2)) },
		"got arguments of i64 and i64 for &&":                   func(b *Builder) Value { return b.Apply(And, b.Operand(2), b.Operand(2)) },
		"got arguments of bool and bool for <":                  func(b *Builder) Value { return b.Apply(Lt, b.Operand(3), b.Operand(3)) },
		"got 1 arguments for pow, want 2":                       func(b *Builder) Value { return b.Apply(Pow, b.Operand(0)) },
		"got a condition of f32 for select, want bool":          func(b *Builder) Value { return b.Apply(Select, b.Operand(0), b.Operand(0), b.Operand(0)) },
		"got value 77, want one that this builder has returned": func(b *Builder) Value { return b.Apply(Abs, 77) },
		"got operation 0":   func(b *Builder) Value { return b.Apply(0) },
		"got operation 200": func(b *Builder) Value { return b.Apply(200) },
		"got 1 operands for f32, f32: x0 + x1, want 2":         func(b *Builder) Value { return b.Inline(mustParse("x + y", "x", "y"), b.Operand(0))[0] },
		"got operand 1 of f64 for f32, f32: x0 + x1, want f32": func(b *Builder) Value { return b.Inline(mustParse("x + y", "x", "y"), b.Operand(0), b.Operand(1))[0] },
	} {
		b := NewBuilder(Float32, Float64, Int64, Bool)
		v := b.Convert(build(b), Float32)
		b.Operand(9)
		if f, err := b.Func(v); err == nil || !strings.HasPrefix(err.Error(), "expr: "+want) {
			t.Errorf("got %v, %v, want an error with %q", f, err, want)
		}
	}
	if _, err := NewBuilder().Func(); err == nil {
		t.Error("a function without outputs was made")
	}
	if _, err := NewBuilder(99).Func(); err == nil {
		t.Error("an operand of an unknown type was taken")
	}
	b := NewBuilder(Float32)
	v := b.Operand(0)
	for range maxNodes {
		v = b.Apply(Exp, v)
	}
	if _, err := b.Func(v); err == nil || !strings.Contains(err.Error(), "more than 65536 operations") {
		t.Errorf("too many operations: %v", err)
	}
}

func mustParse(text string, names ...string) Func {
	f, err := Parse(text, Float32, names...)
	if err != nil {
		panic(err)
	}
	return f
}

// The derivative of a value times a saturating function of it is computed as finite where it is, for values and derivatives of any size.
func TestSaturatedGradient(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	const n = 4096
	for text, gradient := range map[string]func(x float64) float64{
		"a * sigmoid(a)": func(x float64) float64 { s := 1 / (1 + math.Exp(-x)); return s + x*s*(1-s) },
		"0.5 * a * (1 + erf(a * 0.7071067811865476))": func(x float64) float64 {
			return 0.5*(1+math.Erf(x/math.Sqrt2)) + x*math.Exp(-x*x/2)/math.Sqrt(2*math.Pi)
		},
		"tanh(a / 3) * a + a": func(x float64) float64 { y := math.Tanh(x / 3); return 1 + y + x*(1-y*y)/3 },
		"a * tanh(softplus(a))": func(x float64) float64 {
			y := math.Tanh(max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))))
			return y + x*(1-y*y)/(1+math.Exp(-x))
		},
	} {
		f, err := parse(t, text, Float32, "a").Gradient(0)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		x, dy := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i] = float32(math.Copysign(math.Exp2(r.Float64()*188-60), r.Float64()-0.5))
			dy[i] = float32(math.Copysign(math.Exp2(r.Float64()*254-126), r.Float64()-0.5))
		}
		for i, got := range call(t, f, x, dy) {
			want := float64(dy[i]) * gradient(float64(x[i]))
			if math.Abs(want) < 0.99*math.MaxFloat32 && !(math.Abs(float64(got)-want) <= 1e-5*math.Abs(float64(dy[i]))) {
				t.Fatalf("%s at %g, derivative %g by the value: got %g, want %g", text, x[i], dy[i], got, want)
			}
		}
	}
}

// Derivatives agree with central differences, for every operation.
// checkGradient compares the gradient of a function of three numbers with differences.
func checkGradient(t *testing.T, f Func) {
	t.Helper()
	g, err := f.Gradient(0, 1, 2)
	if err != nil {
		t.Errorf("%v: %v", f, err)
		return
	}
	at := []float64{0.71, 1.37, -0.6}
	got := outputs64(t, g, append(at[:3:3], 1.5))
	for i := range at {
		const h = 1e-5
		x := append([]float64(nil), at...)
		x[i] += h
		up := outputs64(t, f, x)[0]
		x[i] -= 2 * h
		want := 1.5 * (up - outputs64(t, f, x)[0]) / (2 * h)
		if math.Abs(got[i]-want) > 1e-8*(1+math.Abs(want)) {
			t.Errorf("%v by %c: got %v, want %v; %v", f, 'a'+i, got[i], want, g)
		}
	}
}

// TestOps has the gradient of each operation.
func TestGradient(t *testing.T) {
	for _, text := range []string{
		"abs(-a)", "square(a)", "cube(a)", "inverse(a)", "inverseSqrt(a)", "select(a < b, a*a, b*a)", "tanh(a*b) + c*a", "exp(a)*exp(a) - b/exp(a)",
		"pow(a, 3) * pow(2, b)", "sign(a) * b", "ceil(a) + floor(b) * a", "(a < b) * a", "3", "sigmoid(log(a) * b) / c",
	} {
		checkGradient(t, parse(t, text, Float64, "a", "b", "c"))
	}
	b := NewBuilder(Float32, Float64, Bool)
	x := b.Apply(Mul, b.Convert(b.Operand(0), Float64), b.Operand(1))
	f, err := b.Func(x, b.Apply(Lt, x, b.Operand(1)), b.Apply(Select, b.Operand(2), x, b.Operand(1)))
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Gradient(0)
	const want = "f32, f64, bool, f64, bool, f64: f32((x3 + select(x2, x5, 0)) * x1)"
	if err != nil || strings.ReplaceAll(g.String(), "f64(0)", "0") != want {
		t.Errorf("got %v, %v, want %s", g, err, want)
	}
	if g, err := f.Gradient(2); err == nil {
		t.Errorf("the derivative by a bool is %v", g)
	}
	if g, err := f.Gradient(3); err == nil {
		t.Errorf("the derivative by operand 3 of 3 is %v", g)
	}
}

// TestGradientsOfPow: where the power or its logarithm has no derivative, gradients are PyTorch's, but for the limit 0 at +Inf and -1, where PyTorch has NaN.
func TestGradientsOfPow(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	pow := parse(t, "pow(a, b)", Float64, "a", "b")
	byBoth := testutil.Get[Func](t)(pow.Gradient(0, 1))
	for _, c := range []struct{ a, b, byA, byB float64 }{
		{0, 0, 0, 0}, {0, 1, 1, 0}, {0, 2, 0, 0}, {0, 0.5, inf, 0}, {0, -1, -inf, -inf}, {0, 3, 0, 0}, {-2, 2, -4, nan}, {-2, 3, 12, nan}, {-2, -1, -0.25, nan}, {-2, 0, 0, nan}, {-2, 0.5, nan, nan},
		{inf, 0, 0, inf}, {nan, 0, 0, nan}, {inf, -1, 0, 0}, {2, 0, 0, math.Ln2}, {1, nan, nan, 0}, {1, inf, inf, 0},
	} {
		if got := outputs64(t, byBoth, []float64{c.a, c.b, 1}); !alike(got[0], c.byA) || !alike(got[1], c.byB) {
			t.Errorf("the gradient of pow at %v, %v is %v, want %v, %v", c.a, c.b, got, c.byA, c.byB)
		}
	}
}

// alike reports whether numbers are equal, or near, or both NaN.
func alike(x, y float64) bool {
	return x == y || math.Abs(x-y) < 1e-15 || math.IsNaN(x) && math.IsNaN(y)
}
