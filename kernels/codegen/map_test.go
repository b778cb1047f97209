package codegen

import (
	"bytes"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/arith"
	"pgregory.net/rapid"
)

// planMap plans a case for a device.
func planMap(dev kernels.Device, m *exprtest.Map) (*kernels.Plan, error) {
	views := make([]View, len(m.Views))
	for i, v := range m.Views {
		views[i] = View(v)
	}
	return Map(dev, m.Func, m.Shape, views...)
}

// hostApply runs a function on dense operands, for the operations of a case one by
// one.
func hostApply(f expr.Func, operands ...[]float64) ([]float64, error) {
	shape := []int{len(operands[0])}
	inputs, views := make([][]byte, len(operands)), make([]View, len(operands))
	for i, d := range f.Operands() {
		inputs[i], views[i] = exprtest.Pack(d, operands[i]), Dense(shape)
	}
	p, err := Map(kernels.HostDevice(), f, shape, views...)
	if err != nil {
		return nil, err
	}
	out := exprtest.Memory(p.Out)
	if err := p.Run(inputs, out, nil); err != nil {
		return nil, err
	}
	return exprtest.Unpack(f.Outputs()[0], out), nil
}

// runGuarded runs a plan on the host and returns its outputs, which were poison before. It
// is an error if a launch does not fit its entry point, or if the plan writes around
// the outputs.
func runGuarded(p *kernels.Plan, inputs [][]byte) ([]byte, error) {
	if err := checkLaunches(p); err != nil {
		return nil, err
	}
	const guard = 64
	memory := exprtest.Memory(p.Out + 2*guard)
	for i := range memory {
		memory[i] = 0xff
	}
	poison := bytes.Clone(memory[:guard])
	out := memory[guard : guard+p.Out]
	if err := p.Run(inputs, out, nil); err != nil {
		return nil, err
	}
	if !bytes.Equal(memory[:guard], poison) || !bytes.Equal(memory[guard+p.Out:], poison) {
		return nil, fmt.Errorf("%v wrote around the output", p)
	}
	return out, nil
}

// Random functions of views of random shapes compute, to the bit, what their
// operations compute one by one on elements looked up one by one, and write nothing
// but the output.
func TestMap(t *testing.T) {
	ops := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	testutil.CheckProperty(t, func(t *rapid.T) {
		m := exprtest.DrawMap(t, ops, rapid.IntRange(0, 10).Draw(t, "size"))
		p, err := planMap(rapid.SampledFrom(devices).Draw(t, "device"), m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runGuarded(p, m.Inputs())
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Check(out, p.Parts, hostApply); err != nil {
			t.Fatalf("%v; %v", err, p)
		}
		checkGaps(t, p, m, out)
	})
}

// checkGaps checks that nothing is written between outputs, which were poison.
func checkGaps(t *rapid.T, p *kernels.Plan, m *exprtest.Map, out []byte) {
	for k, n := range m.Outputs()[:len(p.Parts)-1] {
		end := p.Parts[k] + int64(n)*m.Func.Outputs()[k].Size()
		if gap := out[end:p.Parts[k+1]]; !bytes.Equal(gap, bytes.Repeat([]byte{0xff}, len(gap))) {
			t.Fatalf("%v wrote between its outputs", p)
		}
	}
}

// Numbers become integers toward 0, as far as there are integers; NaN becomes 0.
func TestMapIntegers(t *testing.T) {
	for _, d := range []expr.Dtype{kernels.Float32, kernels.Float64} {
		for _, to := range []expr.Dtype{kernels.Int64, kernels.Int} {
			b := expr.NewBuilder(d)
			f, err := b.Func(b.Convert(b.Operand(0), to))
			if err != nil {
				t.Fatal(err)
			}
			n := []int{len(exprtest.Edges)}
			p, err := Map(kernels.HostDevice(), f, n, Dense(n))
			if err != nil {
				t.Fatal(err)
			}
			out, err := runGuarded(p, [][]byte{exprtest.Pack(d, exprtest.Edges)})
			if err != nil {
				t.Fatal(err)
			}
			for i, x := range exprtest.Unpack(d, exprtest.Pack(d, exprtest.Edges)) {
				want := int64(math.MinInt64)
				if whole, _ := clipped(x).Int(nil); whole.IsInt64() {
					want = whole.Int64()
				} else if x > 0 {
					want = math.MaxInt64
				}
				if got := kernels.Elements[int64](out)[i]; got != want {
					t.Errorf("%v as %v is %d, want %d", x, to, got, want)
				}
			}
		}
	}
}

// clipped returns a number with many digits, 0 for NaN, and 10³⁰ or its negative for those beyond.
func clipped(x float64) *big.Float {
	if math.IsNaN(x) {
		return new(big.Float)
	}
	return big.NewFloat(min(max(x, -1e30), 1e30))
}

// Large outputs are made in parallel, and in place of an input. Blocks of elements are in several rows, or some within one.
func TestMapLarge(t *testing.T) {
	f := parseMap(t, "a * b + 1", "a", "b")
	for _, columns := range []int{333, expr.BlockSize, 1500} {
		shape := []int{1000, columns}
		a, b := make([]float32, kernels.Count(shape)), make([]float32, columns)
		for i := range a {
			a[i] = float32(i)
		}
		for i := range b {
			b[i] = float32(i % 7)
		}
		p, err := Map(kernels.HostDevice(), f, shape, Dense(shape), viewAt(int64(columns), 0, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(a), nil); err != nil {
			t.Fatal(err)
		}
		for i, got := range a {
			if want := float32(i)*b[i%columns] + 1; got != want {
				t.Fatalf("%d columns: element %d is %v, want %v", columns, i, got, want)
			}
		}
	}
}

func parseMap(t testing.TB, text string, names ...string) expr.Func {
	t.Helper()
	f, err := expr.Parse(text, kernels.Float32, names...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// viewAt returns a view without bounds.
func viewAt(elements, offset int64, strides ...int) View {
	return View{Elements: elements, Offset: offset, Strides: strides}
}

// within returns a view with bounds.
func within(v View, axis, from, to int) View {
	v.Bounds = Bounds{Axis: axis, From: from, To: to}
	return v
}

// placeLetters returns a letter for each of n operands or outputs from one on: s for one element, d and u for elements in order, aligned for vectors or not,
// r, c and g for vectors, one element or elements by index, p with bounds, t by tiles.
func placeLetters(l layout, first, n int) string {
	var letters []byte
	for i := range n {
		p, letter := l.place(first+i), byte('g')
		switch {
		case p.rows == fixed:
			letter = 's'
		case p.mark.axis() >= 0:
			letter = 'p'
		case p.rows == unitStride && p.lanes == aligned:
			letter = 'd'
		case p.rows == unitStride:
			letter = 'u'
		case p.lanes == aligned:
			letter = 'r'
		case p.lanes == single:
			letter = 'c'
		case p.lanes == transposed:
			letter = 't'
		}
		letters = append(letters, letter)
	}
	return string(letters)
}

// How operands are read.
func TestMapLayout(t *testing.T) {
	for _, c := range []struct {
		shape  []int
		views  []View
		want   string
		axes   int
		inner  bool
		launch string // grid
	}{
		{[]int{7, 9}, []View{Dense([]int{7, 9}), viewAt(1, 0, 0, 0), viewAt(70, 3, 9, 1)}, "dsu", 0, false, "[1 1 1]"},
		{[]int{64, 1, 512}, []View{Dense([]int{64, 1, 512}), viewAt(512, 0, 0, 0, 1), viewAt(64, 0, 1, 5, 0)}, "drc", 2, true, "[16 1 1]"},
		{[]int{64, 10}, []View{Dense([]int{64, 10}), viewAt(10, 0, 0, 1), viewAt(64, 0, 1, 0)}, "dgg", 2, false, "[1 1 1]"},
		{[]int{3, 5, 8}, []View{viewAt(40, 0, 0, 8, 1), viewAt(15, 0, 5, 1, 0), viewAt(3, 0, 1, 0, 0)}, "rcc", 3, true, "[1 1 1]"},
		{[]int{8, 16}, []View{viewAt(128, 0, 1, 8), viewAt(200, 0, 20, 1), viewAt(200, 2, 20, 1)}, "grg", 2, true, "[1 1 1]"},
		{[]int{1 << 20}, []View{Dense([]int{1 << 20}), viewAt(2<<20, 0, 2), viewAt(1, 0, 0)}, "dgs", 1, true, "[512 1 1]"},
		{[]int{}, []View{viewAt(1, 0), viewAt(5, 4), viewAt(1, 0)}, "sss", 0, false, "[1 1 1]"},
		{[]int{2, 3, 4, 5, 6, 4}, []View{Dense([]int{2, 3, 4, 5, 6, 4}), Dense([]int{2, 3, 4, 5, 6, 4}), viewAt(24, 0, 12, 4, 1, 0, 0, 0)}, "ddc", 2, true, "[2 1 1]"},
		{[]int{6, 8}, []View{Dense([]int{6, 8}), within(viewAt(16, 0, 8, 1), 0, 2, 4), within(viewAt(18, 0, 3, 1), 1, 4, 7)}, "dpp", 2, true, "[1 1 1]"},
		{[]int{6, 8}, []View{Dense([]int{6, 8}), within(viewAt(16, 0, 8, 1), 0, 2, 4), within(viewAt(48, 0, 8, 1), 1, 0, 8)}, "dpd", 1, true, "[1 1 1]"},
	} {
		p, err := Map(kernels.HostDevice(), parseMap(t, "a + b + c", "a", "b", "c"), c.shape, c.views...)
		if err != nil {
			t.Errorf("%v: %v", c.shape, err)
			continue
		}
		got := p.Launches[0].Kernel.Image.(image).layout
		if placeLetters(got, 0, 3) != c.want || got.rowAxes != c.axes || got.inner != c.inner || got.wide || fmt.Sprint(p.Launches[0].Grid) != c.launch {
			t.Errorf("%v, %v: got %+v on %v, want %s", c.shape, c.views, got, p.Launches[0].Grid, c.want)
		}
	}
	h200 := kernels.Device{Major: 9, SMs: 132}
	for n, want := range map[int]string{1000: "1 1 256 ddgg", 132 * 2048: "1 1 256 ddgg", 1 << 20: "4 2 256 ddrc"} { // small maps: one element a thread
		shape := []int{n / 8, 8}
		p, err := Map(h200, parseMap(t, "a + b + c + d", "a", "b", "c", "d"), shape, Dense(shape), viewAt(int64(n), 0, 8, 1), viewAt(8, 0, 0, 1), viewAt(int64(n), 0, 1, 0))
		if err != nil {
			t.Fatal(err)
		}
		l := p.Launches[0].Kernel.Image.(image).layout
		if got := fmt.Sprint(l.width, l.vectors, l.rowsPerBlock, " ", placeLetters(l, 0, 4)); got != want || int64(l.width*l.vectors*l.rowsPerBlock*p.Launches[0].Grid[0]) < int64(n) {
			t.Errorf("%d elements: got %s on %v, want %s", n, got, p.Launches[0].Grid, want)
		}
	}
	for d, want := range map[expr.Dtype]int{expr.Float32: 4, expr.BF16: 16, expr.F16: 16} { // elements a thread
		stored := []expr.Dtype{d, d}
		f, err := parseMap(t, "a + b", "a", "b").Stored(stored, stored[:1])
		if err != nil {
			t.Fatal(err)
		}
		p, err := Map(h200, f, []int{1 << 20}, Dense([]int{1 << 20}), Dense([]int{1 << 20}))
		if err != nil {
			t.Fatal(err)
		}
		if l := p.Launches[0].Kernel.Image.(image).layout; l.width*l.vectors != want {
			t.Errorf("%v: got %d vectors of %d elements, want %d elements", d, l.vectors, l.width, want)
		}
	}
	big := []int{1 << 16, 1 << 15}
	p, err := Map(kernels.HostDevice(), parseMap(t, "a + b", "a", "b"), big, Dense(big), viewAt(1<<16, 0, 1, 0))
	if err != nil || !p.Launches[0].Kernel.Image.(image).layout.wide {
		t.Errorf("2^31 elements: got %v, %v, want indices of 64 bits", p, err)
	}
}

// Equal functions of equal layouts are one image, whatever the extents.
func TestMapImages(t *testing.T) {
	image := func(text string, rows, cols int) kernels.Image {
		shape := []int{rows, cols}
		p, err := Map(kernels.HostDevice(), parseMap(t, text, "a", "b"), shape, Dense(shape), viewAt(int64(cols), 0, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		return p.Launches[0].Kernel.Image
	}
	if image("a + tanh(b)", 10, 64) != image("(a)+tanh( b )", 33, 128) {
		t.Error("one function on two shapes has two images")
	}
	if image("a + tanh(b)", 10, 64) == image("tanh(b) + a", 10, 64) || image("a + b", 10, 64) == image("a + b", 10, 63) {
		t.Error("two functions or layouts have one image")
	}
	if got, want := image("a + b", 1, 4).Name(), "stheno/map(f32, f32: x0 + x1)"; got != want {
		t.Errorf("an image is called %s, want %s", got, want)
	}
}

// Arguments that do not fit are refused with an error that names them.
func TestMapErrors(t *testing.T) {
	f := parseMap(t, "a + b", "a", "b")
	shape := []int{4, 5}
	d := Dense(shape)
	for want, plan := range map[string]func() (*kernels.Plan, error){
		"got 1 operands, want 2":    func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, shape, d) },
		"operand 1: got 1 strides":  func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, shape, d, viewAt(20, 0, 1)) },
		"of elements 0 to 19, want": func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, shape, d, viewAt(19, 0, 5, 1)) },
		"of elements -1 to 18":      func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, shape, d, viewAt(20, -1, 5, 1)) },
		"got strides [-5 1]":        func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, shape, d, viewAt(20, 15, -5, 1)) },
		"want no extent below 0":    func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), f, []int{-1, 5}, d, d) },
		"operand 0: got bounds": func() (*kernels.Plan, error) {
			return Map(kernels.HostDevice(), f, shape, View{Elements: 20, Strides: []int{5, 1}, Bounds: Bounds{Axis: 1, From: 2, To: 6}}, d)
		},
		"of elements 0 to 12, want": func() (*kernels.Plan, error) {
			return Map(kernels.HostDevice(), f, shape, d, View{Elements: 12, Strides: []int{3, 1}, Bounds: Bounds{Axis: 1, From: 1, To: 5}})
		},
		"got a function without outp": func() (*kernels.Plan, error) { return Map(kernels.HostDevice(), expr.Func{}, shape) },
	} {
		if p, err := plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
	p, err := Map(kernels.HostDevice(), f, []int{0, 5}, Dense([]int{0, 5}), viewAt(5, 0, 0, 1))
	if err != nil || len(p.Launches) != 0 || p.Run([][]byte{nil, make([]byte, 20)}, nil, nil) != nil {
		t.Errorf("no elements: got %v, %v, want a plan of no launches", p, err)
	}
}

// Products with the magic number divide, for all that indices can be.
func TestDivisor(t *testing.T) {
	r := testutil.Random(t)
	for range 100_000 {
		for _, wide := range []bool{false, true} {
			width := 31
			if wide {
				width = 63
			}
			random := func() int64 { return int64(r.Uint64()) & math.MaxInt64 >> (63 - width) >> r.IntN(width) }
			d := max(random(), 2)
			if r.IntN(4) == 0 {
				d = 1 << (1 + r.IntN(width-1))
			}
			magic, shift := arith.Divisor(d, wide)
			q := random()
			for _, n := range []int64{q, q / d * d, q/d*d - 1, 1<<(width-1) - 1 + 1<<(width-1), d - 1, d} {
				if n = max(n, 0); n > 1<<(width-1)-1+1<<(width-1) {
					continue
				}
				got := uint64(n) * magic >> 32
				if wide {
					got, _ = bits.Mul64(uint64(n), magic)
				} else if magic >= 1<<32 {
					t.Fatalf("the magic number of %d is %d, want 32 bits", d, magic)
				}
				if got >>= shift; got != uint64(n/d) {
					t.Fatalf("%d / %d is %d, want %d", n, d, got, n/d)
				}
			}
		}
	}
}

// Functions of numbers are computed by the device, as those of operands are: the
// assembler's own results may differ from the device's in the last bit. It does not know numbers that are
// arguments of the launch, all but 0, 1 and -1.
func TestMapOfNumbers(t *testing.T) {
	for text, hidden := range map[string]bool{"a + tanh(1 + 1)": true, "a + pow(1, a)": true, "a + tanh(1 + 2)": false, "a + pow(2, a)": false, "tanh(a + 1)": false, "pow(a, 2) + sqrt(2)": false} {
		p, err := Map(kernels.HostDevice(), parseMap(t, text, "a"), []int{8}, Dense([]int{8}))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(ptxOf(t, p.Launches[0].Kernel.Image, 9)), "ld.const.b32"); got != hidden {
			t.Errorf("%s: a number is hidden from the assembler: %v, want %v", text, got, hidden)
		}
	}
}
