package codegen

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// drawMixed draws a map or rows of mixed types, and plans them for a device.
func drawMixed(t *rapid.T, rows bool, dev kernels.Device) (m *exprtest.Map, p *kernels.Plan) {
	size := rapid.IntRange(0, 8).Draw(t, "size")
	if m = exprtest.DrawMixedMap(t, size); rows {
		m = exprtest.DrawMixedRows(t, size)
	}
	var views []View
	for _, v := range m.Views {
		views = append(views, View(v))
	}
	var err error
	if rows {
		p, err = Rows(dev, m.Func, m.Shape, m.Axes, m.PerRow, views...)
	} else {
		p, err = Map(dev, m.Func, m.Shape, views...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, p
}

// Random functions of integers, Bool, floating-point numbers and iotas, with reductions of integers, compute the bits of package big on
// elements looked up one by one, for plans of every device.
func TestMixed(t *testing.T) {
	for _, rows := range []bool{false, true} {
		t.Run(fmt.Sprintf("rows %v", rows), func(t *testing.T) {
			testutil.CheckProperty(t, func(t *rapid.T) {
				m, p := drawMixed(t, rows, rapid.SampledFrom(devices).Draw(t, "device"))
				out, err := runGuarded(p, m.Inputs())
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Check(out, p.Parts, nil); err != nil {
					t.Fatalf("%v; %v", err, p)
				}
			})
		})
	}
}

// NVIDIA's assembler takes them for every target.
func TestMixedAssembles(t *testing.T) {
	ptxas.Find(t)
	n := 40
	if testing.Short() {
		n = 6
	}
	seed := int(testutil.Seed(t) % (1 << 30))
	for i := range n {
		target := targets[i/2%len(targets)]
		p := rapid.Custom(func(t *rapid.T) *kernels.Plan {
			_, p := drawMixed(t, i%2 == 1, target.dev)
			return p
		}).Example(seed + i)
		for _, l := range p.Launches {
			assemble(t, l.Kernel.Image, target.name)
		}
	}
}

// The same of every conversion and every operation on integers and Bool.
func TestIntegersAssemble(t *testing.T) {
	ptxas.Find(t)
	shape := []int{40, 30}
	for i, d := range exprtest.MixedTypes {
		b := expr.NewBuilder(d, d, kernels.Bool)
		x, y, c := b.Operand(0), b.Operand(1), b.Operand(2)
		var outputs []expr.Value
		for _, to := range exprtest.MixedTypes {
			outputs = append(outputs, b.Convert(x, to))
		}
		outputs = append(outputs, b.Apply(expr.Select, c, x, y), b.Apply(expr.Eq, x, y), b.Apply(expr.Ne, x, y))
		if d.IsInteger() {
			outputs = append(outputs, b.Apply(expr.Neg, x), b.Apply(expr.Abs, x), b.Apply(expr.Add, x, y), b.Apply(expr.Sub, x, b.Integer(d, -77)),
				b.Apply(expr.Mul, x, y), b.Apply(expr.Min, x, y), b.Apply(expr.Max, x, y), b.Apply(expr.Lt, x, y), b.Apply(expr.Le, x, y))
		} else if d == kernels.Bool {
			outputs = append(outputs, b.Apply(expr.And, x, y), b.Apply(expr.Or, x, y), b.Apply(expr.Not, x))
		}
		f := testutil.Get[expr.Func](t)(b.Func(outputs...))
		for k := range 3 {
			p := testutil.Get[*kernels.Plan](t)(Map(targets[3*(i%2)+k].dev, f, shape, Dense(shape), Dense(shape), Dense(shape)))
			assemble(t, p.Launches[0].Kernel.Image, targets[k].name)
		}
	}
}

// targets are the devices that kernels are assembled for, also as if work was large on them.
var targets = []struct {
	name string
	dev  kernels.Device
}{
	{"sm_70", kernels.Device{Major: 7, SMs: 80, SharedOptin: 96 << 10}}, {"sm_80", kernels.Device{Major: 8, SMs: 108, SharedOptin: 163 << 10}}, {"sm_90", kernels.Device{Major: 9, SMs: 132, SharedOptin: 227 << 10}},
	{"sm_70", kernels.Device{Major: 7, SharedOptin: 96 << 10}}, {"sm_80", kernels.Device{Major: 8, SharedOptin: 163 << 10}}, {"sm_90", kernels.Device{Major: 9, SharedOptin: 227 << 10}},
}

// Sums, maxima and minima of integers of every type in rows of all kinds are those of a plain loop.
func TestRowsReduceIntegers(t *testing.T) {
	r := testutil.Random(t)
	for _, s := range exprtest.RowShapes {
		for _, d := range []expr.Dtype{kernels.Uint8, kernels.Int32, kernels.Int64, kernels.Int} {
			if s.Elements() > 1<<20 && d != kernels.Int64 {
				continue
			}
			x := exprtest.Integers(r, d, s.Elements())
			p, err := Rows(kernels.HostDevice(), integerReductions(t, d), s.Shape, s.Axes, []bool{true, true, true}, Dense(s.Shape))
			if err != nil {
				t.Fatal(err)
			}
			out := exprtest.Memory(p.Out)
			testutil.Do(t, p.Run([][]byte{exprtest.PackBits(d, x)}, out, exprtest.Memory(p.Scratch)))
			var outputs [][]byte
			for k, at := range p.Parts {
				outputs = append(outputs, out[at:at+p.OutputBytes(k)])
			}
			testutil.Do(t, s.CheckIntegers(d, x, outputs))
		}
	}
}

func integerReductions(t *testing.T, d expr.Dtype) expr.Func {
	t.Helper()
	return testutil.Get[expr.Func](t)(exprtest.Reductions(d))
}

// The kernels of reductions of integers assemble, those of clusters and splits among them.
func TestRowsReduceIntegersAssemble(t *testing.T) {
	if testing.Short() {
		t.Skip("assembles many kernels")
	}
	ptxas.Find(t)
	seen := map[string]bool{}
	for _, s := range exprtest.RowShapes {
		for i, d := range []expr.Dtype{kernels.Uint8, kernels.Int32, kernels.Int64} {
			for _, target := range targets[:3] {
				p, err := Rows(target.dev, integerReductions(t, d), s.Shape, s.Axes, []bool{true, true, true}, Dense(s.Shape))
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range p.Launches {
					key := fmt.Sprintf("%#v %s", l.Kernel.Image, target.name)
					if !seen[key] && (len(seen)+i)%4 == 0 {
						assemble(t, l.Kernel.Image, target.name)
					}
					seen[key] = true
				}
			}
		}
	}
}

// The index of the greatest element of each row, of which the first counts, by an iota along the row.
func TestIotaFindsMaximum(t *testing.T) {
	shape := []int{3, 5}
	b := expr.NewBuilder(kernels.Float32, kernels.Int64)
	most := b.Apply(expr.Eq, b.Operand(0), b.Apply(expr.RowMax, b.Operand(0)))
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.RowMin, b.Apply(expr.Select, most, b.Operand(1), b.Integer(kernels.Int64, 5)))))
	p := testutil.Get[*kernels.Plan](t)(Rows(kernels.HostDevice(), f, shape, []int{1}, []bool{true}, Dense(shape), View{Strides: []int{0, 1}, Iota: true}))
	if len(p.Inputs) != 1 {
		t.Errorf("got %d inputs, want 1", len(p.Inputs))
	}
	out := make([]int64, 3)
	testutil.Do(t, p.Run([][]byte{kernels.Bytes([]float32{1, 7, 2, 7, 0, 5, 5, 5, 5, 5, -3, -2, -4, -1, -9})}, kernels.Bytes(out), nil))
	if out[0] != 1 || out[1] != 0 || out[2] != 3 {
		t.Errorf("got %v, want [1 0 3]", out)
	}
}

// Iotas of other types, with a buffer or with bounds are refused, and so are parts of a concatenation.
func TestIotaErrors(t *testing.T) {
	shape, host := []int{2, 3}, kernels.HostDevice()
	iota := View{Strides: []int{3, 1}, Iota: true}
	buffer, bounds := iota, iota
	buffer.Elements, bounds.Bounds.To = 6, 1
	for _, c := range []struct {
		d    expr.Dtype
		v    View
		want string
	}{
		{kernels.Int32, iota, "got i32, 0 elements"}, {kernels.Int64, buffer, "got i64, 6 elements"}, {kernels.Int64, bounds, "want i64 and neither"},
	} {
		b := expr.NewBuilder(c.d)
		f := testutil.Get[expr.Func](t)(b.Func(b.Operand(0)))
		if p, err := Map(host, f, shape, c.v); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, c.want)
		}
	}
	if p, err := Concat(host, kernels.Int64, shape, 0, []int{2}, iota); err == nil || !strings.Contains(err.Error(), "operand 0: got an iota") {
		t.Errorf("got %v, %v, want an error about the iota", p, err)
	}
}
