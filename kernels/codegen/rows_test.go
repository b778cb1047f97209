package codegen

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// planRows plans a case.
func planRows(dev kernels.Device, m *exprtest.Map) (*kernels.Plan, error) {
	views := make([]View, len(m.Views))
	for i, v := range m.Views {
		views[i] = View(v)
	}
	return Rows(dev, m.Func, m.Shape, m.Axes, m.PerRow, views...)
}

// checkLaunches compares a plan's launches with their entry points.
func checkLaunches(p *kernels.Plan) error {
	if err := new(kernels.Checker).Check(p); err != nil {
		return fmt.Errorf("%v: %w", p, err)
	}
	return nil
}

// rowsApply runs functions on dense operands of a shape: of one reduction on rows, and
// element by element.
func rowsApply(shape, axes []int) exprtest.Apply {
	return func(f expr.Func, operands ...[]float64) ([]float64, error) {
		if f.Reductions() == 0 {
			return hostApply(f, operands...)
		}
		p, err := Rows(kernels.HostDevice(), f, shape, axes, []bool{true}, Dense(shape))
		if err != nil {
			return nil, err
		}
		out := exprtest.Memory(p.Out)
		if err := p.Run([][]byte{exprtest.Pack(f.Operands()[0], operands[0])}, out, nil); err != nil {
			return nil, err
		}
		rows, all := exprtest.Unpack(f.Outputs()[0], out), make([]float64, len(operands[0]))
		for i := range all {
			row, _ := exprtest.RowOf(shape, axes, i)
			all[i] = rows[row]
		}
		return all, nil
	}
}

// Random functions with reductions of views of random shapes compute, to the bit, what
// their operations and reductions compute one by one, and write nothing but the outputs.
func TestRows(t *testing.T) {
	ops := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	testutil.CheckProperty(t, func(t *rapid.T) {
		m := exprtest.DrawRows(t, ops, rapid.IntRange(0, 10).Draw(t, "size"))
		p, err := planRows(kernels.HostDevice(), m)
		if err != nil {
			t.Fatal(err)
		}
		out, err := runGuarded(p, m.Inputs())
		if err != nil {
			t.Fatal(err)
		}
		if !RowsWhole(kernels.HostDevice(), m.Shape, m.Axes) && !RowsSplit(m.Func, m.PerRow) {
			return // sums have another order
		}
		if err := m.Check(out, p.Parts, rowsApply(m.Shape, m.Axes)); err != nil {
			t.Fatalf("%v; %v", err, p)
		}
		checkGaps(t, p, m, out)
	})
}

// reductions is the function of the sum, the maximum and the minimum of a row.
func reductions(t testing.TB, d expr.Dtype) exprtest.RowFunction {
	t.Helper()
	f, err := exprtest.Reductions(d)
	if err != nil {
		t.Fatal(err)
	}
	return exprtest.RowFunction{Name: "reductions", Func: f, Operands: "e", PerRow: []bool{true, true, true}}
}

// Sums, maxima and minima of rows of all kinds, of numbers, and of edges such as NaN
// and -0, are those of a plain loop.
func TestRowsReduce(t *testing.T) {
	r := testutil.Random(t)
	for _, c := range exprtest.RowShapes {
		for _, d := range []expr.Dtype{kernels.Float32, kernels.Float64} {
			for _, edges := range []bool{false, true} {
				x := make([]float64, kernels.Count(c.Shape))
				for i := range x {
					if x[i] = r.NormFloat64(); edges && r.IntN(4) == 0 {
						x[i] = exprtest.Edges[r.IntN(len(exprtest.Edges))]
						if math.Abs(x[i]) > 1e300 || math.IsNaN(x[i]) && r.IntN(20) > 0 { // what overflows depends on the order
							x[i] = math.Copysign(0, -1)
						}
					}
					if d == kernels.Float32 {
						x[i] = float64(float32(x[i]))
					}
				}
				p, err := rowsOf(kernels.HostDevice(), reductions(t, d), c)
				if err != nil {
					t.Fatal(err)
				}
				if err := checkLaunches(p); err != nil {
					t.Error(err)
				}
				out := bytes.Repeat([]byte{0xff}, int(p.Out))
				if err := p.Run([][]byte{exprtest.Pack(d, x)}, out, nil); err != nil {
					t.Fatal(err)
				}
				if err := c.CheckReductions(d, x, unpack(p, out, d)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// unpack returns the elements of a plan's outputs of one type.
func unpack(p *kernels.Plan, out []byte, d expr.Dtype) (list [][]float64) {
	for k, at := range p.Parts {
		list = append(list, exprtest.Unpack(d, out[at:at+p.OutputBytes(k)]))
	}
	return list
}

// rowsOf plans a function with reductions of a shape.
func rowsOf(dev kernels.Device, f exprtest.RowFunction, s exprtest.RowShape) (*kernels.Plan, error) {
	var views []View
	for _, v := range f.Views(s) {
		views = append(views, View(v))
	}
	return Rows(dev, f.Func, s.Shape, s.Axes, f.PerRow, views...)
}

// NVIDIA's assembler takes the code of functions of all layouts, and spills next to
// nothing; of float64 some, where blocks of 1024 threads leave 64 registers to each.
func TestRowsAssembles(t *testing.T) {
	ptxas.Find(t)
	targets := []string{"sm_70", "sm_80", "sm_90"}
	i := 0
	dev := kernels.Device{Major: 9, SMs: 132, SharedOptin: 232448}
	large := []exprtest.RowShape{{Shape: []int{16384, 128}, Axes: []int{1}}, {Shape: []int{16384, 1000}, Axes: []int{1}}, {Shape: []int{16384, 4096}, Axes: []int{1}},
		{Shape: []int{16384, 32768}, Axes: []int{1}}, {Shape: []int{16384, 50_257}, Axes: []int{1}}, {Shape: []int{16384, 100_003}, Axes: []int{1}},
		{Shape: []int{16384, 65536}, Axes: []int{1}}, {Shape: []int{1 << 16, 1 << 16}, Axes: []int{0}}}
	for _, c := range slices.Concat(exprtest.RowShapes, large) {
		for _, d := range []expr.Dtype{kernels.Float32, kernels.Float64} {
			functions, err := exprtest.RowFunctions(d)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range functions {
				every := 41
				if testing.Short() {
					every = 59
				}
				if i++; i%every > 0 {
					continue
				}
				p, err := rowsOf(dev, f, c)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range p.Launches {
					target := targets[i%len(targets)]
					if l.Shared > 0 || l.Kernel.Image.(image).layout.cluster > 0 {
						target = "sm_90"
					}
					_, registers, spills := assemble(t, l.Kernel.Image, target)
					t.Logf("%s %v over %v of %v: %d registers on %s, %+v", f.Name, d, c.Axes, c.Shape, registers, target, l.Kernel.Image.(image).layout)
					if spills > map[expr.Dtype]int{kernels.Float32: 64, kernels.Float64: 512}[d] {
						t.Errorf("%s %v over %v of %v spills %d bytes on %s", f.Name, d, c.Axes, c.Shape, spills, target)
					}
				}
			}
		}
	}
}

// Arguments that do not fit are refused with an error that names them.
func TestRowsErrors(t *testing.T) {
	f := reductions(t, kernels.Float32).Func
	shape := []int{4, 5}
	all := []bool{true, true, true}
	b := expr.NewBuilder(kernels.Float32, kernels.Float32)
	varying, err := b.Func(b.Apply(expr.Add, b.Apply(expr.RowSum, b.Operand(0)), b.Operand(1)))
	if err != nil {
		t.Fatal(err)
	}
	for want, plan := range map[string]func() (*kernels.Plan, error){
		"got 2 flags for 3 outputs": func() (*kernels.Plan, error) {
			return Rows(kernels.HostDevice(), f, shape, []int{1}, all[:2], Dense(shape))
		},
		"got axes [1 0] of shape [4 5]": func() (*kernels.Plan, error) {
			return Rows(kernels.HostDevice(), f, shape, []int{1, 0}, all, Dense(shape))
		},
		"got axes [2] of shape [4 5]": func() (*kernels.Plan, error) {
			return Rows(kernels.HostDevice(), f, shape, []int{2}, all, Dense(shape))
		},
		"of elements 0 to 19, want": func() (*kernels.Plan, error) {
			return Rows(kernels.HostDevice(), f, shape, []int{1}, all, viewAt(19, 0, 5, 1))
		},
		"operand 0: got bounds": func() (*kernels.Plan, error) {
			v := Dense(shape)
			v.Bounds = Bounds{Axis: 0, From: 1, To: 3}
			return Rows(kernels.HostDevice(), f, shape, []int{1}, all, v)
		},
		"depends on operand 1, of strides [5 1]": func() (*kernels.Plan, error) {
			return Rows(kernels.HostDevice(), varying, shape, []int{1}, all[:1], Dense(shape), Dense(shape))
		},
	} {
		if p, err := plan(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
}

// The reductions of rows without elements are their identities; no rows need no launch.
func TestRowsEmpty(t *testing.T) {
	b := expr.NewBuilder(kernels.Float32, kernels.Float32, kernels.Float64)
	x, y := b.Operand(0), b.Operand(1)
	f, err := b.Func(
		b.Apply(expr.Add, b.Apply(expr.RowSum, x), y), b.Apply(expr.Mul, x, b.Apply(expr.RowMax, x)),
		b.Apply(expr.RowMin, b.Operand(2)), b.Apply(expr.RowMax, b.Apply(expr.RowSum, x)))
	if err != nil {
		t.Fatal(err)
	}
	perRow := []bool{true, false, true, true}
	shape := []int{3, 0, 2}
	p, err := Rows(kernels.HostDevice(), f, shape, []int{1}, perRow, View{Elements: 0, Offset: 9, Strides: []int{1, 1, 1}}, View{Elements: 7, Offset: 1, Strides: []int{2, 0, 1}}, View{Elements: 0, Offset: -5, Strides: []int{0, 0, 0}})
	if err != nil {
		t.Fatal(err)
	}
	if err := checkLaunches(p); err != nil {
		t.Error(err)
	}
	out := exprtest.Memory(p.Out)
	if err := p.Run([][]byte{nil, kernels.Bytes([]float32{0, 1, 2, 3, 4, 5, 6}), nil}, out, nil); err != nil {
		t.Fatal(err)
	}
	sums, least, most := kernels.Elements[float32](out[p.Parts[0]:])[:6], kernels.Elements[float64](out[p.Parts[2]:])[:6], kernels.Elements[float32](out[p.Parts[3]:])[:6]
	for i := range sums {
		if want := float32(i + 1); sums[i] != want || !math.IsInf(least[i], 1) || !math.IsInf(float64(most[i]), -1) {
			t.Errorf("row %d: got %v, %v and %v, want %v, +Inf and -Inf", i, sums[i], least[i], most[i], want)
		}
	}
	if p, err = Rows(kernels.HostDevice(), f, []int{0, 5}, []int{1}, perRow, Dense([]int{0, 5}), View{Elements: 0, Offset: 0, Strides: []int{1, 0}}, Dense([]int{0, 5})); err != nil || len(p.Launches) != 0 {
		t.Errorf("no rows: got %v, %v, want a plan of no launches", p, err)
	}
}

// If rows are split among blocks and a function outputs per-row results, and for each element what depends on no reduction, the function
// computes the same bits as separate plans of its parts.
func TestRowsSplit(t *testing.T) {
	dev := kernels.HostDevice()
	b := expr.NewBuilder(kernels.Float32, kernels.Float32, kernels.Float32)
	product := b.Apply(expr.Mul, b.Operand(0), b.Apply(expr.Exp, b.Operand(1)))
	f, err := b.Func(b.Apply(expr.Sqrt, b.Apply(expr.Add, b.Apply(expr.RowSum, product), b.Operand(2))), b.Apply(expr.RowMin, product), product)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []exprtest.RowShape{{Shape: []int{3, 100_004}, Axes: []int{1}}, {Shape: []int{70_001, 5}, Axes: []int{0}}, {Shape: []int{2, 40_000, 2, 2}, Axes: []int{1, 3}}, {Shape: []int{1 << 18}, Axes: []int{0}}} {
		if RowsWhole(dev, s.Shape, s.Axes) {
			t.Fatalf("%v over %v are whole rows, want some that are split", s.Shape, s.Axes)
		}
		r := testutil.Random(t)
		x, y := make([]float64, s.Elements()), make([]float64, s.Elements())
		for i := range x {
			x[i], y[i] = float64(r.Float32()), float64(r.Float32())
		}
		perRow := View{Elements: 1, Strides: make([]int, len(s.Shape))}
		p, err := Rows(dev, f, s.Shape, s.Axes, []bool{true, true, false}, Dense(s.Shape), Dense(s.Shape), perRow)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkLaunches(p); err != nil {
			t.Error(err)
		}
		if len(p.Launches) != 2 {
			t.Errorf("got %v, want two launches", p)
		}
		out := exprtest.Memory(p.Out)
		if err := p.Run([][]byte{exprtest.Pack(kernels.Float32, x), exprtest.Pack(kernels.Float32, y), kernels.Bytes([]float32{0.5})}, out, bytes.Repeat([]byte{0xff}, int(p.Scratch))); err != nil {
			t.Fatal(err)
		}
		apply := rowsApply(s.Shape, s.Axes)
		one := func(op expr.Op, args ...[]float64) []float64 {
			b := expr.NewBuilder(slices.Repeat([]kernels.Dtype{kernels.Float32}, len(args))...)
			values := make([]expr.Value, len(args))
			for i := range args {
				values[i] = b.Operand(i)
			}
			f, err := b.Func(b.Apply(op, values...))
			if err != nil {
				t.Fatal(err)
			}
			list, err := apply(f, args...)
			if err != nil {
				t.Fatal(err)
			}
			return list
		}
		terms := one(expr.Mul, x, one(expr.Exp, y))
		sums, least := one(expr.Sqrt, one(expr.Add, one(expr.RowSum, terms), slices.Repeat([]float64{0.5}, len(x)))), one(expr.RowMin, terms)
		got := unpack(p, out, kernels.Float32)
		for i := range x {
			if row, _ := exprtest.RowOf(s.Shape, s.Axes, i); got[0][row] != sums[i] || got[1][row] != least[i] || got[2][i] != terms[i] {
				t.Fatalf("row %d, element %d of %v over %v: got %v, %v, %v, want %v, %v, %v", row, i, s.Shape, s.Axes, got[0][row], got[1][row], got[2][i], sums[i], least[i], terms[i])
			}
		}
	}
}

// An output may lie where an input does.
func TestRowsInPlace(t *testing.T) {
	functions, err := exprtest.RowFunctions(kernels.Float32)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range exprtest.RowShapes {
		p, err := rowsOf(kernels.HostDevice(), functions[0], s)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, s.Elements())
		for i := range x {
			x[i] = float32(i % 17)
		}
		want := make([]float32, len(x))
		if err := p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(want), nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Run([][]byte{kernels.Bytes(x)}, kernels.Bytes(x), nil); err != nil || !slices.Equal(x, want) {
			t.Errorf("softmax over %v of %v in place: %v, want what it is elsewhere", s.Axes, s.Shape, err)
		}
	}
}

// Equal functions of equal layouts are one image, whatever the extents.
func TestRowsImages(t *testing.T) {
	functions, err := exprtest.RowFunctions(kernels.Float32)
	if err != nil {
		t.Fatal(err)
	}
	dev := kernels.Device{Major: 9, SMs: 132, SharedOptin: 232448}
	image := func(f int, shape ...int) kernels.Image {
		p, err := rowsOf(dev, functions[f], exprtest.RowShape{Shape: shape, Axes: []int{len(shape) - 1}})
		if err != nil {
			t.Fatal(err)
		}
		return p.Launches[0].Kernel.Image
	}
	if image(0, 16384, 1000) != image(0, 20000, 996) || image(3, 16384, 100_000) != image(3, 10000, 99_004) {
		t.Error("one function on two shapes has two images")
	}
	if image(0, 16384, 1000) == image(1, 16384, 1000) || image(0, 16384, 1000) == image(0, 16384, 1001) || image(0, 16384, 1000) == image(0, 16384, 128) {
		t.Error("two functions or layouts have one image")
	}
	if got, want := image(5, 16384, 1000).Name(), "stheno/rows(f32: rowsum(x0))"; got != want {
		t.Errorf("an image is called %s, want %s", got, want)
	}
}
