package gemm

import (
	"bytes"
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
)

// Functions are found to be chains of steps, whatever the order of the arguments of sums
// and products and of the operands.
func TestEpilogueSteps(t *testing.T) {
	for _, c := range []struct {
		text  string
		names string // operands, the product's element first
		chain int32
		slots []int
		shown string
	}{
		{"select(c < 0, -0, 0 + c)", "c", 0x6, nil, "relu(c)"},
		{"b + c", "c b", 0x1, []int{0}, "c + x0"},
		{"tanh(b + c)", "c b", 0x71, []int{0}, "tanh(c + x0)"},
		{"b + (a + c)", "c a b", 0x11, []int{0, 1}, "c + x0 + x1"},
		{"a + (b + c)", "c a b", 0x11, []int{1, 0}, "c + x1 + x0"},
		{"select(a + (b + c) < 0, -0, a + (b + c) + 0)", "c a b", 0x611, []int{1, 0}, "relu(c + x1 + x0)"},
		{"(1 - y * y) * c", "c y", 0x9, []int{0}, "c * (1 - x0 * x0)"},
		{"sigmoid(-t) * y * c", "c t y", 0xa, []int{1, 0}, "c * (x1 * sigmoid(-x0))"},
		{"c * b + b", "c b", 0x14, []int{0, 0}, "c * x0 + x0"},
		{"sigmoid(b - tanh(c / a))", "c a b", 0x837b, []int{0, 1}, "sigmoid(x1 - tanh(c / x0))"},
		{"b - c * a", "c a b", 0x34, []int{0, 1}, "x1 - c * x0"},
		{"(c - b) * (0 <= 1 / r)", "c r b", 0x52, []int{1, 0}, "(c - x1) * step(x0)"},
		{"c * a * (0 <= 1 / r)", "c r a", 0x54, []int{1, 0}, "c * x1 * step(x0)"},
		{"c", "c", 0, nil, "c"},
		{"c + (a + b)", "c a b", -1, nil, ""}, // another order of sums
		{"c * c", "c", -1, nil, ""},
		{"c * (0 <= b)", "c b", -1, nil, ""},
		{"c * (0 < 1 / b)", "c b", -1, nil, ""},
		{"c * 2", "c", -1, nil, ""},
		{"(0 <= c) * (0 + c)", "c", -1, nil, ""}, // NaN for -Inf
		{"select(c < 0, 0, 0 + c)", "c", -1, nil, ""},
		{"a + b", "c a b", -1, nil, ""},
		{"tanh(tanh(tanh(tanh(tanh(c)))))", "c", -1, nil, ""}, // too many steps
		{"c * a + b + a", "c a b", -1, nil, ""},               // too many operands
		{"exp(c)", "c", -1, nil, ""},
	} {
		names := strings.Fields(c.names)
		for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64} {
			f, err := expr.Parse(c.text, dt, names...)
			if err != nil {
				t.Fatal(err)
			}
			e, ok := newEpilogue(dt, f, make([]codegen.View, len(names)-1))
			if ok != (c.chain >= 0) || ok && (e.chain != c.chain || !slices.Equal(e.slots, c.slots) || e.String() != c.shown) {
				t.Errorf("%s: got %#x of operands %v, %v, %v, want %#x of %v, %s", c.text, e.chain, e.slots, e, ok, c.chain, c.slots, c.shown)
			}
		}
	}
}

// epilogueSteps are the steps again: in double, of numbers of the element type, rounded
// after each operation by round.
var epilogueSteps = []struct {
	text     string // %[1]s is v, %[2]s and %[3]s are operands
	operands int
	f        func(round func(float64) float64, v, x, y float64) float64
}{
	{"%[1]s + %[2]s", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(v + x) }},
	{"%[1]s - %[2]s", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(v - x) }},
	{"%[2]s - %[1]s", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(x - v) }},
	{"%[1]s * %[2]s", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(v * x) }},
	{"%[1]s * (0 <= 1 / %[2]s)", 1, func(round func(float64) float64, v, x, _ float64) float64 {
		if math.IsNaN(x) || math.Signbit(x) && !math.IsInf(x, -1) { // 1 / -Inf is -0
			return v * 0
		}
		return v
	}},
	{"select(%[1]s < 0, -0, %[1]s + 0)", 0, func(_ func(float64) float64, v, _, _ float64) float64 {
		switch {
		case v == 0:
			return 0
		case v < 0:
			return math.Copysign(0, -1)
		}
		return v
	}},
	{"tanh(%[1]s)", 0, func(round func(float64) float64, v, _, _ float64) float64 { return round(math.Tanh(v)) }},
	{"sigmoid(%[1]s)", 0, func(round func(float64) float64, v, _, _ float64) float64 { return round(logistic(v)) }},
	{"%[1]s * (1 - %[2]s * %[2]s)", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(v * round(1-round(x*x))) }},
	{"%[1]s * (%[2]s * sigmoid(-%[3]s))", 2, func(round func(float64) float64, v, x, y float64) float64 {
		return round(v * round(x*round(logistic(-y))))
	}},
	{"%[1]s / %[2]s", 1, func(round func(float64) float64, v, x, _ float64) float64 { return round(v / x) }},
}

// chained is a random chain of steps.
type chained struct {
	text   string
	steps  []int
	inputs int
	smooth bool // has functions that round more than once
}

// drawChain draws a chain that begins with a step.
func drawChain(r *rand.Rand, first int) chained {
	c := chained{text: "c"}
	for step := first; len(c.steps) < mostSteps; step = r.IntN(len(epilogueSteps)) {
		s := epilogueSteps[step]
		if c.inputs+s.operands > mostSlots || len(c.steps) > 0 && r.IntN(3) == 0 {
			break
		}
		args := []any{"(" + c.text + ")"}
		for i := range 2 {
			args = append(args, fmt.Sprint("x", c.inputs+i))
		}
		c.text = fmt.Sprintf(s.text+"%[4]s", append(args, "")...)
		c.steps, c.inputs = append(c.steps, step), c.inputs+s.operands
		c.smooth = c.smooth || step == 6 || step == 7 || step == 9
	}
	return c
}

// apply applies the chain to an element.
func (c chained) apply(dt kernels.Dtype, v float64, x ...float64) float64 {
	round := func(v float64) float64 { return v }
	if dt == kernels.Float32 {
		round = func(v float64) float64 { return float64(float32(v)) }
	}
	x = append(x, 0, 0)
	for _, step := range c.steps {
		s := epilogueSteps[step]
		v = s.f(round, v, x[0], x[1])
		x = x[s.operands:]
	}
	return v
}

// operandViews draws views of an operand of a product: a number for each column, row or
// matrix, one for all, one for each element in row-major order or transposed.
func operandView(r *rand.Rand, batch, m, n int) codegen.View {
	offset := r.Int64N(3)
	strides := [][]int{{0, 0, 1}, {0, 1, 0}, {1, 0, 0}, {0, 0, 0}, {m * n, n, 1}, {m * n, 1, m}, {n, 0, 1}, {2 * m * n, 2 * n, 2}}[r.IntN(8)]
	last := (batch-1)*strides[0] + (m-1)*strides[1] + (n-1)*strides[2]
	return codegen.View{Elements: offset + int64(last) + 1 + r.Int64N(3), Offset: offset, Strides: strides}
}

// numbers draws numbers of all kinds; few of them are special.
func numbers[T kernels.Float](r *rand.Rand, n int64, special int) []T {
	kinds := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), 1, 0x1p-140, -0x1p-1070}
	list := make([]T, n)
	for i := range list {
		list[i] = T(r.NormFloat64())
		if r.IntN(special) == 0 {
			list[i] = T(kinds[r.IntN(len(kinds))])
		}
	}
	return list
}

// A product with an epilogue computes, to the bit, what the product and then a Map compute, and
// agrees with the steps in double; on plans for every device, of all numbers.
func TestEpilogue(t *testing.T) {
	seed := testutil.Seed(t)
	r, check := rand.New(rand.NewPCG(seed, 0)), new(kernels.Checker)
	for first := range epilogueSteps {
		for range 4 {
			c := drawChain(r, first)
			batch, m, n, k := 1+r.Int64N(3), 1+r.Int64N(40), 1+r.Int64N(40), r.Int64N(30)
			if r.IntN(4) == 0 {
				batch, k = 1, 1000+r.Int64N(1000) // splits of k on a GPU
			}
			if batch*m*n == 1 {
				continue // a dot product
			}
			p := Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: r.IntN(2) == 0}, B: Operand{Trans: r.IntN(2) == 0}}
			for _, dev := range matmulDevices {
				testEpilogue[float32](t, r, dev, p, kernels.Float32, c, check)
				testEpilogue[float64](t, r, dev, p, kernels.Float64, c, check)
			}
		}
	}
}

func testEpilogue[T kernels.Float](t *testing.T, r *rand.Rand, dev kernels.Device, p Product, dt kernels.Dtype, c chained, check *kernels.Checker) {
	p.Dtype = dt
	shape := []int{int(p.Batch), int(p.M), int(p.N)}
	names, inputs := []string{"c"}, [][]byte{kernels.Bytes(numbers[T](r, p.Batch*p.M*p.K, 1000)), kernels.Bytes(numbers[T](r, p.Batch*p.K*p.N, 1000))}
	var views []codegen.View
	var operands [][]T
	for i := range c.inputs {
		v := operandView(r, shape[0], shape[1], shape[2])
		operands = append(operands, numbers[T](r, v.Elements, 4))
		names, views, inputs = append(names, fmt.Sprint("x", i)), append(views, v), append(inputs, kernels.Bytes(operands[i]))
	}
	f, err := expr.Parse(c.text, dt, names...)
	if err != nil {
		t.Fatalf("%s: %v", c.text, err)
	}
	with, ok := p.With(f, views...)
	if !ok {
		t.Fatalf("%s is no epilogue", c.text)
	}
	run := func(p *kernels.Plan, err error, inputs ...[]byte) []byte {
		if err != nil {
			t.Fatal(err)
		}
		out, scratch := bytes.Repeat([]byte{0xff}, int(p.Out)), bytes.Repeat([]byte{0xff}, int(p.Scratch))
		if err := p.Run(inputs, out, scratch); err != nil {
			t.Fatal(err)
		}
		return out
	}
	plan, err := with.Plan(dev)
	got := run(plan, err, inputs...)
	if err := check.Check(plan); err != nil {
		t.Fatalf("%v: %v", plan, err)
	}
	plain, err := p.Plan(dev)
	product := run(plain, err, inputs[:2]...)
	mapped, err := codegen.Map(kernels.HostDevice(), f, shape, append([]codegen.View{codegen.Dense(shape)}, views...)...)
	if want := run(mapped, err, append([][]byte{product}, inputs[2:]...)...); !bytes.Equal(got, want) {
		t.Errorf("%v: %v and then %v give something else", plan, p, mapped)
	}
	for i, v := range kernels.Elements[T](product) {
		var x []float64
		for k, view := range views {
			x = append(x, float64(operands[k][placeIn(view, shape, i)]))
		}
		if got := float64(kernels.Elements[T](got)[i]); !c.gives(got, dt, float64(v), x...) {
			t.Fatalf("%v: element %d is %g, want %g: %s of %g and %v", plan, i, got, c.apply(dt, float64(v), x...), c.text, v, x)
		}
	}
}

// placeIn returns where element i of that shape lies in a view's buffer.
func placeIn(view codegen.View, shape []int, i int) int64 {
	at := view.Offset
	for a := len(shape) - 1; a >= 0; a-- {
		at += int64(i % shape[a] * view.Strides[a])
		i /= shape[a]
	}
	return at
}

// logistic is 1 / (1 + e⁻ˣ), also where e⁻ˣ overflows and its inverse does not.
func logistic(x float64) float64 {
	if x < 0 {
		return math.Exp(x) / (1 + math.Exp(x))
	}
	return 1 / (1 + math.Exp(-x))
}

// gives reports whether got is the epilogue of a sum v and operands x, to the bit if its functions are exact.
func (c chained) gives(got float64, dt kernels.Dtype, v float64, x ...float64) bool {
	want := c.apply(dt, v, x...)
	if got != got || want != want {
		return got != got && want != want
	}
	return got == want && math.Signbit(got) == math.Signbit(want) || c.smooth && math.Abs(got-want) <= 1e-5*math.Max(math.Abs(want), 1)
}
