package expr_test

import (
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// Functions of mixed types compute the bits of arithmetic by package big.
func TestMixedTypes(t *testing.T) {
	types := exprtest.MixedTypes
	testutil.CheckProperty(t, func(t *rapid.T) {
		const n = 9
		var terms []*exprtest.Term
		for range rapid.IntRange(1, 3).Draw(t, "outputs") {
			terms = append(terms, exprtest.DrawMixed(t, types, rapid.SampledFrom(types).Draw(t, "type"), rapid.IntRange(0, 12).Draw(t, "size")))
		}
		f, err := exprtest.Func(types, terms...)
		if err != nil {
			t.Fatal(err)
		}
		columns := make([][]uint64, len(types))
		operands, in := make([][]byte, len(types)), make([]unsafe.Pointer, len(types))
		for k, d := range types {
			for range n {
				columns[k] = append(columns[k], exprtest.Bits(t, d))
			}
			operands[k] = exprtest.PackBits(d, columns[k])
			in[k] = unsafe.Pointer(&operands[k][0])
		}
		outputs, out := make([][]byte, len(terms)), make([]unsafe.Pointer, len(terms))
		for k, term := range terms {
			outputs[k] = exprtest.Memory(n * term.Dtype.Size())
			out[k] = unsafe.Pointer(&outputs[k][0])
		}
		if err := expr.NewInterpreter(f).Run(n, in, out); err != nil {
			t.Fatal(err)
		}
		for k, term := range terms {
			want, err := term.Unfused(n, columns, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, got := range exprtest.UnpackBits(term.Dtype, outputs[k]) {
				if !exprtest.SameBits(term.Dtype, got, want[i]) {
					t.Fatalf("element %d of output %d of %v is %#x, want %#x, of %#x", i, k, f, got, want[i], columns)
				}
			}
		}
	})
}

// Two functions of integers and Bool are equal if and only if they are written alike.
func TestMixedStringIdentifies(t *testing.T) {
	types := []expr.Dtype{expr.Int64, expr.Uint8, expr.Bool}
	testutil.CheckProperty(t, func(t *rapid.T) {
		draw := func() expr.Func {
			d := rapid.SampledFrom(types).Draw(t, "type")
			f, err := exprtest.Func(types, exprtest.DrawMixed(t, types, d, rapid.IntRange(0, 4).Draw(t, "size")))
			if err != nil {
				t.Fatal(err)
			}
			return f
		}
		if f, g := draw(), draw(); (f == g) != (f.String() == g.String()) {
			t.Fatalf("%v and %v: equal %v", f, g, f == g)
		}
	})
}

// Texts of operands of several types, and the normal forms of their functions.
func TestParseTypes(t *testing.T) {
	types, names := []expr.Dtype{expr.Uint8, expr.Int32, expr.Int64, expr.Float32, expr.Bool}, []string{"a", "b", "c", "x", "m"}
	for text, want := range map[string]string{
		"a + b":                     "i32(x0) + x1",
		"a + 1":                     "x0 + u8(1)",
		"1 + a":                     "u8(1) + x0",
		"a == 300":                  "i64(x0) == i64(300)",
		"a - 0.5":                   "f32(x0) - 0.5",
		"b / 2":                     "f32(x1) / 2",
		"a * x":                     "f32(x0) * x3",
		"c * 2 + x":                 "f32(x2 * i64(2)) + x3",
		"-b":                        "-x1",
		"-5 + c":                    "i64(-5) + x2",
		"exp(b)":                    "exp(f32(x1))",
		"max(a, 7)":                 "max(x0, u8(7))",
		"min(b, c)":                 "min(i64(x1), x2)",
		"square(b)":                 "x1 * x1",
		"select(m, a, x)":           "select(x4, f32(x0), x3)",
		"select(b, x, 1)":           "select(x1 != i32(0), x3, 1)",
		"m == (a > 3)":              "!(x4 != (u8(3) < x0))",
		"m && !(a < b) || x > 0":    "x4 && !(i32(x0) < x1) || 0 < x3",
		"(m || a == 2) && c != b":   "(x4 || x0 == u8(2)) && x2 != i64(x1)",
		"(a > 2) + (b > 2)":         "i64(u8(2) < x0) + i64(i32(2) < x1)",
		"(a > 2) * x":               "f32(u8(2) < x0) * x3",
		"select(m, m, a == 1)":      "x4 && x4 || !x4 && x0 == u8(1)",
		"a":                         "x0",
		"3":                         "i64(3)",
		"x > 0":                     "0 < x3",
		"pow(b, 2)":                 "pow(f32(x1), 2)",
		"abs(a - b) <= 1 && m != m": "abs(i32(x0) - x1) <= i32(1) && x4 != x4",
	} {
		f, err := expr.ParseTypes(text, types, names...)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if want = "u8, i32, i64, f32, bool: " + want; f.String() != want {
			t.Errorf("%q is %v, want %v", text, f, want)
		}
	}
	floats, err := expr.ParseTypes("(a < b) + 1", []expr.Dtype{expr.Float64, expr.Float64}, "a", "b")
	if want, _ := expr.Parse("(a < b) + 1", expr.Float64, "a", "b"); err != nil || floats != want {
		t.Errorf("of one type: got %v, %v, want %v", floats, err, want)
	}
	mixed, err := expr.ParseTypes("a * 0.1 + b", []expr.Dtype{expr.Float32, expr.Float64}, "a", "b")
	if want := "f32, f64: f64(x0 * f32(0.10000000149011612)) + x1"; err != nil || mixed.String() != want {
		t.Errorf("of two floating-point types: got %v, %v, want %s", mixed, err, want)
	}
	if f, err := expr.ParseTypes("a", types, "a"); err == nil {
		t.Errorf("five types of one name: got %v", f)
	}
	for text, want := range map[string]string{"a & b": "at 3: got &", "a !": "at 3: got !", "a && ": "at 6: got the end", "! && a": "at 3: got &&"} {
		if f, err := expr.ParseTypes(text, types, names...); err == nil || err.Error()[:len(want)] != want {
			t.Errorf("%q: got %v, %v, want an error that starts with %q", text, f, err, want)
		}
	}
}

// Gradients pass integers by, and there are none w.r.t. them.
func TestMixedGradient(t *testing.T) {
	f, err := expr.ParseTypes("select(m, x * a, square(x) + b)", []expr.Dtype{expr.Bool, expr.Float32, expr.Uint8, expr.Int64}, "m", "x", "a", "b")
	if err != nil {
		t.Fatal(err)
	}
	g, err := f.Gradient(1)
	const want = "bool, f32, u8, i64, f32: t0 = select(x0, 0, x4) * x1; t0 + t0 + select(x0, x4, 0) * f32(x2)"
	if err != nil || g.String() != want {
		t.Errorf("got %v, %v, want %s", g, err, want)
	}
	for _, k := range []int{0, 2, 3} {
		if g, err := f.Gradient(k); err == nil {
			t.Errorf("the gradient w.r.t. operand %d is %v, want an error", k, g)
		}
	}
}
