package reduce

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
)

// Expressions that are taken, with the normal form that they come down to.
func TestParseReduction(t *testing.T) {
	for expression, want := range map[string]string{
		"a + b":                    "a + b",
		"b+a":                      "a + b",
		" ( (a) +\r\n\t(b) ) ":     "a + b",
		"a + b*b":                  "a + b * b",
		"a - b":                    "a + -b",
		"1 + a - b/2":              "a + (1 - b / 2)",
		"a - b - b":                "a + (-b - b)",
		"a / b":                    "a * (1 / b)",
		"2 * (a * b)":              "a * (b * 2)",
		"a * b / 3":                "a * (b / 3)",
		"max(abs(b), a)":           "max(a, abs(b))",
		"min(min(a, b), 1e-3)":     "min(a, min(b, 0.001))",
		"a + sqrt(b*b + 1)":        "a + sqrt(b * b + 1)",
		"a + -b":                   "a + -b",
		"a + exp(b) * exp(b)":      "t0 = exp(b); a + t0 * t0",
		"a + max(b, -1.5E+2) * .5": "a + max(b, -150) * 0.5",
	} {
		r, err := codegen.ParseReduction(expression)
		if err != nil {
			t.Errorf("%q: %v", expression, err)
		} else if r.String() != want {
			t.Errorf("%q is %v, want %v", expression, r, want)
		}
	}
}

// Expressions that are not, with the position of what is wrong.
func TestParseReductionErrors(t *testing.T) {
	for expression, want := range map[string]string{
		"":                  "at 1: got the end",
		"a + ":              "at 5: got the end",
		"a + c":             "at 5: got c, want a number, a name of a, b",
		"a + b b":           "at 7: got b, want the end of the expression",
		"a + (b":            "at 7: got the end, want )",
		"a $ b":             "at 3: got $",
		"max(a b)":          "at 7: got b, want ,",
		"max(a, b, 1)":      "at 9: got ,, want )",
		"cot(b) + a":        "at 1: got cot",
		"square(a)":         "at 8: got a within *",
		"(a < b) + b":       "at 2: got a within a comparison",
		"exp(a) + b":        "at 5: got a within exp",
		"1.2.3 + a":         "at 1: got 1.2.3",
		"b + b":             "at 1: got no a",
		"a":                 "at 1: got a alone",
		"a + a*b":           "at 5: got a second a",
		"b - a":             "at 5: got a behind -",
		"b / a":             "at 5: got a behind /",
		"sqrt(a + b)":       "at 6: got a within sqrt",
		"-a + b":            "at 2: got a within a minus sign",
		"a*b + 1":           "at 1: got a within *",
		"max(a + b, b)":     "at 5: got a within +",
		"max(a, min(a, b))": "at 12: got a second a",
		"\u00e4 + b":        "at 1: got \u00e4",
	} {
		if r, err := codegen.ParseReduction(expression); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want an error that starts with %q", expression, r, err, want)
		}
	}
}

// An expression may be 4096 characters long, whatever is in it.
func TestParseLongReduction(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("(", n) + "a+b" + strings.Repeat(")", n) }
	if r, err := codegen.ParseReduction(nested(2046)); err != nil || r.String() != "a + b" {
		t.Errorf("4095 characters: got %v, %v, want a + b", r, err)
	}
	want := "at 4097: got 8388611 characters, want at most 4096"
	if r, err := codegen.ParseReduction(nested(1 << 22)); err == nil || err.Error() != want {
		t.Errorf("got %v, %v, want %s", r, err, want)
	}
}

// The PTX of an expression has its instructions wherever reduce.cu has a mark, and
// none of reduce.cu's own.
func TestReductionPTX(t *testing.T) {
	plain, err := own.PTX("reduce")
	if err != nil {
		t.Fatal(err)
	}
	steps, joins := strings.Count(string(plain), "// STEP"), strings.Count(string(plain), "// JOIN")
	if steps < 4 || joins < 4 {
		t.Fatalf("the PTX of reduce.cu has %d steps and %d joins marked", steps, joins)
	}
	r, err := codegen.ParseReduction("max(a, sqrt(b))")
	if err != nil {
		t.Fatal(err)
	}
	for major, parts := range map[int]map[string]int{
		8: {".version 7.0": 1, ".target sm_70": 1, "griddepcontrol": 0},
		9: {".version 7.8": 1, ".target sm_90": 1, "griddepcontrol.launch_dependents": 2, "griddepcontrol.wait": 2},
	} {
		code := testutil.Get[kernels.Code](t)(imageOf(r).Code(major, 0))
		maps.Copy(parts, map[string]int{"sqrt.rn.f64": steps, "max.f64": steps + joins, "// STEP": 0, "// JOIN": 0, ".version": 1, ".target": 1})
		for part, want := range parts {
			if got := strings.Count(string(code.Text), part); got != want {
				t.Errorf("%d.0: %d times %s, want %d", major, got, part, want)
			}
		}
		for _, entry := range []string{"reduce_f32", "reduce_f64"} {
			if got := code.WaitsForDependencies(entry); got != (major >= 9) {
				t.Errorf("%d.0: %s waits for the kernels before it: %v", major, entry, got)
			}
		}
	}
}

// A quotient by a power of two is a product.
func TestReductionQuotients(t *testing.T) {
	for expression, want := range map[string]bool{"a + b/8": false, "a - b/0.25": false, "a + b/3": true, "a + b/1e-320": true, "a + 2/b": true} {
		r := testutil.Get[codegen.Reduction](t)(codegen.ParseReduction(expression))
		code := testutil.Get[kernels.Code](t)(imageOf(r).Code(9, 0))
		if got := strings.Contains(string(code.Text), "div.rn.f64"); got != want {
			t.Errorf("%s divides: %v, want %v", expression, got, want)
		}
	}
}

// NVIDIA's assembler takes the PTX, for the oldest and the newest devices.
func TestReductionAssembles(t *testing.T) {
	for i, expression := range []string{"a + b*b", "1 + a - b/2", "a + sqrt(abs(b))", "min(-b, a)", "a * max(0.5, min(b, 2))", "a / b", "a + 1", "a + sin(b) * exp(b)", "max(a, pow(b, 3))"} {
		r, err := codegen.ParseReduction(expression)
		if err != nil {
			t.Fatal(err)
		}
		major := []int{7, 9, 12}[i%3]
		code := testutil.Get[kernels.Code](t)(imageOf(r).Code(major, 0))
		if _, _, spills := ptxas.Assemble(t, expression, code.Text, fmt.Sprintf("sm_%d", 10*major)); spills > 0 {
			t.Errorf("%s spills %d bytes", expression, spills)
		}
	}
}

// reducePlan plans a reduction of n float32 on a GPU.
func reducePlan(t *testing.T, expression string, n int64) *kernels.Plan {
	t.Helper()
	r, err := codegen.ParseReduction(expression)
	if err != nil {
		t.Fatal(err)
	}
	return Reduce(kernels.Device{Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20}, kernels.Float32, n, r, r.Identity())
}

// Planning one reduction twice, or in other words, makes the same image; another
// one has another image.
func TestReducePlans(t *testing.T) {
	image := func(expression string) kernels.Image {
		return reducePlan(t, expression, 1<<20).Launches[0].Kernel.Image
	}
	squares, again, sum := image("a + b*b"), image("(b * b) + a"), image("a + b")
	if squares != again {
		t.Error("one reduction in two ways of writing has two images")
	}
	if sum != own.Image("reduce") || sum == squares {
		t.Errorf("the sum is in %s", sum.Name())
	}
	code, err := squares.Code(9, 0)
	if err != nil || code.Target != "ptx" || code.MinDriver != 11000 || !strings.Contains(string(code.Text), "mul.rn.f64") {
		t.Errorf("%s: %d bytes for %s, driver %d, %v", squares.Name(), len(code.Text), code.Target, code.MinDriver, err)
	}
}

// Planning retains no host memory for any number of expressions.
func TestReduceMemory(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	plan := func(first, last int) {
		for i := first; i < last; i++ {
			p := reducePlan(t, fmt.Sprintf("a + b * %d", i), 1<<20)
			if i%100 == 0 {
				if _, err := p.Launches[0].Kernel.Image.Code(9, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	plan(0, 100)
	before := heap()
	plan(100, 10_100)
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("10 000 expressions left %d bytes on the host, want none", grown)
	}
}

// NaN is not lost, as it would be in PTX's own max.
func TestReduceNaN(t *testing.T) {
	for _, expression := range []string{"max(a, b)", "min(a, b)", "a + b", "a * b"} {
		r, err := codegen.ParseReduction(expression)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float64, 5000)
		x[1234] = math.NaN()
		out := make([]float64, 1)
		p := Reduce(kernels.HostDevice(), kernels.Float64, int64(len(x)), r, r.Identity())
		if err := p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(out), nil); err != nil || !math.IsNaN(out[0]) {
			t.Errorf("%s: got %v, %v, want NaN", expression, out[0], err)
		}
	}
}

// No elements reduce to the identity.
func TestReduceNothing(t *testing.T) {
	for expression, identity := range map[string]float64{"a + b": 0, "a * b": 1, "max(a, b)": -5, "min(a, abs(b))": 5} {
		r, err := codegen.ParseReduction(expression)
		if err != nil {
			t.Fatal(err)
		}
		p := Reduce(kernels.HostDevice(), kernels.Float32, 0, r, identity)
		out := []float32{7}
		if err := p.Run([][]byte{nil}, kernels.Bytes(out), nil); err != nil || float64(out[0]) != identity {
			t.Errorf("%s of nothing: got %v, %v, want %v", expression, out[0], err, identity)
		}
	}
}
