package bench

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"unsafe"

	"github.com/stheno-ml/stheno/internal/test/bigmath"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"pgregory.net/rapid"
)

// mapOnGPU runs a function on dense operands.
func mapOnGPU(dev kernels.Device, f expr.Func, operands ...[]float64) ([]float64, error) {
	shape := []int{len(operands[0])}
	inputs, views := make([][]byte, len(operands)), make([]codegen.View, len(operands))
	for i, d := range f.Operands() {
		inputs[i], views[i] = exprtest.Pack(d, operands[i]), codegen.Dense(shape)
	}
	p, err := codegen.Map(dev, f, shape, views...)
	if err != nil {
		return nil, err
	}
	out := exprtest.Memory(p.Out)
	if err := Run(0, p, inputs, out); err != nil {
		return nil, err
	}
	return exprtest.Unpack(f.Outputs()[0], out), nil
}

// ofMany returns a device for which plans choose kernels for many elements, as if it had
// few threads.
func ofMany(dev kernels.Device) kernels.Device {
	dev.SMs = 0
	return dev
}

// A fused kernel computes the bits of one kernel for each operation; where all
// operations are exact, those of other code on the host.
func TestMapOnGPU(t *testing.T) {
	device := device0(t)
	all := append(append([]expr.Op(nil), exprtest.Exact...), exprtest.Inexact...)
	for name, ops := range map[string][]expr.Op{"exact": exprtest.Exact, "all": all} {
		t.Run(name, func(t *testing.T) {
			testutil.CheckProperty(t, func(t *rapid.T) {
				m, dev := exprtest.DrawMap(t, ops, rapid.IntRange(0, 10).Draw(t, "size")), device
				if rapid.Bool().Draw(t, "of many") {
					dev = ofMany(device)
				}
				views := make([]codegen.View, len(m.Views))
				for i, v := range m.Views {
					views[i] = codegen.View(v)
				}
				p, err := codegen.Map(dev, m.Func, m.Shape, views...)
				if err != nil {
					t.Fatal(err)
				}
				out := exprtest.Memory(p.Out)
				if err := Run(0, p, m.Inputs(), out); err != nil {
					t.Fatalf("%v: %v", p, err)
				}
				err = m.Check(out, p.Parts, func(f expr.Func, operands ...[]float64) ([]float64, error) { return mapOnGPU(device, f, operands...) })
				if err != nil {
					t.Fatalf("%v; %v", err, p)
				}
			})
		})
	}
}

// Exact operations of two edges, such as NaN, infinities and zeros of both signs,
// have the host's bits.
func TestMapEdgesOnGPU(t *testing.T) {
	device := device0(t)
	for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
		var x, y []float64
		for _, a := range exprtest.Edges {
			for _, b := range exprtest.Edges {
				if d == expr.Float32 {
					a, b = float64(float32(a)), float64(float32(b))
				}
				x, y = append(x, a), append(y, b)
			}
		}
		for _, op := range append(exprtest.Exact, expr.Eq, expr.Ne, expr.Lt, expr.Le, expr.Gt, expr.Ge) {
			b := expr.NewBuilder(d, d)
			args := []expr.Value{b.Operand(0), b.Operand(1)}
			if op == expr.Select {
				args = append([]expr.Value{b.Apply(expr.Lt, args...)}, args...)
			}
			f := testutil.Get[expr.Func](t)(b.Func(b.Apply(op, args[:op.Arity()]...)))
			for _, dev := range []kernels.Device{device, ofMany(device)} {
				got := testutil.Get[[]float64](t)(mapOnGPU(dev, f, x, y))
				for i, want := range mapOnHost(t, f, x, y) {
					if !exprtest.Same(got[i], want) {
						t.Errorf("%v of %v and %v is %v, want %v", f, x[i], y[i], got[i], want)
					}
				}
			}
		}
	}
}

// All numbers of 16 bits become float32, and float32 numbers of all sizes, those in the middle of two such numbers among them, become
// numbers of 16 bits as on the host.
func TestMapHalvesOnGPU(t *testing.T) {
	device := device0(t)
	r := testutil.Random(t)
	for _, d := range []expr.Dtype{expr.BF16, expr.F16} {
		var all []byte
		for bits := range uint32(1 << 16) {
			all = append(all, byte(bits), byte(bits>>8))
		}
		numbers := slices.DeleteFunc(exprtest.Unpack(d, all), func(v float64) bool { return v != v })
		var singles []float64
		for i, v := range numbers {
			middle := float64(float32(v+numbers[(i+1)%len(numbers)]) / 2)
			singles = append(singles, v, middle, float64(math.Nextafter32(float32(middle), 0)), float64(math.Float32frombits(r.Uint32())))
		}
		from, to := expr.NewBuilder(d), expr.NewBuilder(expr.Float32)
		for _, c := range []struct {
			f expr.Func
			x []float64
		}{
			{testutil.Get[expr.Func](t)(from.Func(from.Convert(from.Operand(0), expr.Float32))), numbers},
			{testutil.Get[expr.Func](t)(to.Func(to.Convert(to.Operand(0), d))), singles},
		} {
			for _, dev := range []kernels.Device{device, ofMany(device)} {
				got := testutil.Get[[]float64](t)(mapOnGPU(dev, c.f, c.x))
				for i, want := range mapOnHost(t, c.f, c.x) {
					if !exprtest.Same(got[i], want) {
						t.Fatalf("%v of %v is %v, want %v", c.f, c.x[i], got[i], want)
					}
				}
			}
		}
	}
}

// The sign of a constant -0 is not lost: the assembler drops the abs of a choice of numbers
// between 2 and -0.
func TestMapMinusZeroOnGPU(t *testing.T) {
	device := device0(t)
	for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
		b := expr.NewBuilder(d)
		zero := b.Constant(d, math.Copysign(0, -1))
		chosen := b.Apply(expr.Select, b.Apply(expr.Lt, b.Operand(0), zero), b.Constant(d, 2), zero)
		f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Ceil, b.Apply(expr.Abs, chosen))))
		if got := testutil.Get[[]float64](t)(mapOnGPU(device, f, []float64{-1, 1})); got[0] != 2 || got[1] != 0 || math.Signbit(got[1]) {
			t.Errorf("%v of -1 and 1 is %v, want 2 and 0", f, got)
		}
	}
}

// Numbers become the host's integers.
func TestMapIntegersOnGPU(t *testing.T) {
	dev := device0(t)
	for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
		b := expr.NewBuilder(d)
		f := testutil.Get[expr.Func](t)(b.Func(b.Convert(b.Operand(0), expr.Int64)))
		x := append([]float64{0x1p62, -0x1p62, 0x1p63, -0x1p63, 1.9, -1.9}, exprtest.Edges...)
		if d == expr.Float32 {
			x = exprtest.Unpack(d, exprtest.Pack(d, x))
		}
		for _, dev := range []kernels.Device{dev, ofMany(dev)} {
			got := testutil.Get[[]float64](t)(mapOnGPU(dev, f, x))
			for i, want := range mapOnHost(t, f, x) {
				if got[i] != want {
					t.Errorf("%v is %v, want %v", x[i], got[i], want)
				}
			}
		}
	}
}

// Tiles compute the bits that elements looked up one by one do: transposed operands of every
// type, alone and beside others, and written into a part of the output.
func TestMapTilesOnGPU(t *testing.T) {
	dev := device0(t)
	testutil.CheckProperty(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]expr.Dtype{expr.Float32, expr.Float64, expr.Int64, expr.Bool}).Draw(t, "type")
		shape := []int{rapid.IntRange(1, 3).Draw(t, "batch"), rapid.IntRange(16, 150).Draw(t, "rows"), rapid.IntRange(16, 150).Draw(t, "columns")}
		n, rows, columns := int(kernels.Count(shape)), shape[1], shape[2]
		offset := rapid.IntRange(0, 5).Draw(t, "offset")
		x := drawn(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), d, int64(n+offset))
		view := codegen.View{Elements: int64(len(x)), Offset: int64(offset), Strides: []int{rows * columns, 1, rows}}
		axis := rapid.IntRange(0, 2).Draw(t, "axis")
		whole, extents := append([]int(nil), shape...), []int{shape[axis], rapid.IntRange(0, 20).Draw(t, "more")}
		whole[axis] += extents[1]
		rest := codegen.View{Elements: int64(len(x)), Strides: []int{0, 0, 0}}
		p, err := codegen.Concat(dev, d, whole, axis, extents, view, rest)
		if err != nil {
			t.Fatal(err)
		}
		out := exprtest.Memory(p.Out)
		if err := Run(0, p, [][]byte{exprtest.Pack(d, x), exprtest.Pack(d, x)}, out); err != nil {
			t.Fatal(err)
		}
		index := make([]int, 3)
		for k, got := range exprtest.Unpack(d, out) {
			for a, rest := 2, k; a >= 0; a-- {
				index[a], rest = rest%whole[a], rest/whole[a]
			}
			want := x[0]
			if index[axis] < shape[axis] {
				want = x[offset+index[0]*rows*columns+index[1]+index[2]*rows]
			}
			if !exprtest.Same(got, want) {
				t.Fatalf("element %v is %v, want %v; %v", index, got, want, p)
			}
		}
	})
}

// Tiled operands together with operands of other layouts compute the host's bits, for any alignment of the output's rows.
func TestMapTilesBesideOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	for k := range 12 {
		d := []expr.Dtype{expr.Float32, expr.Float64}[k%2]
		b := expr.NewBuilder(d, d, d)
		v := b.Apply(expr.Add, b.Operand(0), b.Apply(expr.Mul, b.Operand(1), b.Operand(2)))
		f := testutil.Get[expr.Func](t)(b.Func(v, b.Apply(expr.Neg, v)))
		shape := []int{1 + r.IntN(3), 16 + r.IntN(150), 16 + r.IntN(150)}
		n, rows, columns := int(kernels.Count(shape)), shape[1], shape[2]
		views := []codegen.View{{Elements: int64(n), Strides: []int{rows * columns, 1, rows}}, codegen.Dense(shape), {Elements: int64(columns), Strides: []int{0, 0, 1}}}
		var inputs [][]byte
		for _, v := range views {
			inputs = append(inputs, exprtest.Pack(d, drawn(r, d, v.Elements)))
		}
		onHost := testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), f, shape, views...))
		want := exprtest.Memory(onHost.Out)
		testutil.Do(t, onHost.Run(inputs, want, nil))
		p := testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, shape, views...))
		got := exprtest.Memory(p.Out)
		testutil.Do(t, Run(0, p, inputs, got))
		for out, at := range p.Parts {
			size := int64(n) * d.Size()
			from, to := exprtest.Unpack(d, got[at:at+size]), exprtest.Unpack(d, want[at:at+size])
			for i := range from {
				if !exprtest.Same(from[i], to[i]) {
					t.Fatalf("%v: element %d of output %d is %v, want %v", p, i, out, from[i], to[i])
				}
			}
		}
	}
}

// Normal numbers are the host's to the bit, in every layout.
func TestNormalOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	state := []int64{r.Int64(), r.Int64()}
	for _, c := range []struct {
		shape  []int
		offset int64
		stride []int
	}{{[]int{1 << 20}, 0, []int{1}}, {[]int{1 << 20}, 3, []int{1}}, {[]int{1001, 999}, 1 << 40, []int{1, 1001}}, {[]int{5, 7}, 2, []int{0, 0}}, {[]int{600, 600}, 1, []int{1, 0}},
		{[]int{3, 5, 7}, 5, []int{35, 7, 1}}} {
		b := expr.NewBuilder(kernels.Float32)
		f := testutil.Get[expr.Func](t)(b.Func(b.Operand(0)))
		v := codegen.View{Elements: codegen.RandomState, Offset: c.offset, Strides: c.stride, Stream: codegen.Stream{Number: 7, Normal: true}}
		p := testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, c.shape, v))
		onHost := testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), f, c.shape, v))
		got, want := exprtest.Memory(p.Out), exprtest.Memory(p.Out)
		testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(state)}, got))
		testutil.Do(t, onHost.Run([][]byte{kernels.Bytes(state)}, want, nil))
		if !bytes.Equal(got, want) {
			t.Errorf("%v: other numbers than the host's", p)
		}
	}
}

// Parts that are alike have one launch, others one each: they come as on the host.
func TestConcatOnGPU(t *testing.T) {
	dev := device0(t)
	r := testutil.Random(t)
	for _, extents := range [][]int{{5}, {3, 0, 4}, {4, 4, 4, 4}, {1, 1, 1}, {7, 7, 7, 20, 20, 3}, slices.Repeat([]int{4}, 35), slices.Repeat([]int{33}, 3)} {
		for axis := range 3 {
			for _, dt := range []kernels.Dtype{kernels.Float32, kernels.Float64, kernels.Bool} {
				shape := []int{3, 20, 33}
				shape[axis] = 0
				var views []codegen.View
				var inputs [][]byte
				for k, n := range extents {
					part := slices.Clone(shape)
					part[axis] = n
					v := codegen.Dense(part)
					if k%2 == 1 { // turned
						v.Strides = []int{part[1] * part[2], 1, part[1]}
					}
					views, inputs = append(views, v), append(inputs, exprtest.Pack(dt, drawn(r, dt, v.Elements)))
				}
				for _, n := range extents {
					shape[axis] += n
				}
				onHost := testutil.Get[*kernels.Plan](t)(codegen.Concat(kernels.HostDevice(), dt, shape, axis, extents, views...))
				want := exprtest.Memory(onHost.Out)
				testutil.Do(t, onHost.Run(inputs, want, nil))
				p := testutil.Get[*kernels.Plan](t)(codegen.Concat(dev, dt, shape, axis, extents, views...))
				got := exprtest.Memory(p.Out)
				testutil.Do(t, Run(0, p, inputs, got))
				if !bytes.Equal(got, want) {
					t.Errorf("%v: another result than the host's", p)
				}
			}
		}
	}
}

// mapOnHost runs a function on dense operands with its Go body.
func mapOnHost(t *testing.T, f expr.Func, operands ...[]float64) []float64 {
	t.Helper()
	shape := []int{len(operands[0])}
	inputs, views := make([][]byte, len(operands)), make([]codegen.View, len(operands))
	for i, d := range f.Operands() {
		inputs[i], views[i] = exprtest.Pack(d, operands[i]), codegen.Dense(shape)
	}
	p := testutil.Get[*kernels.Plan](t)(codegen.Map(kernels.HostDevice(), f, shape, views...))
	out := exprtest.Memory(p.Out)
	testutil.Do(t, p.Run(inputs, out, nil))
	return exprtest.Unpack(f.Outputs()[0], out)
}

// mapBound is the allowed error of a function in units in the last place.
func mapBound(op expr.Op) float64 {
	for _, exact := range exprtest.Exact {
		if op == exact {
			return 0.5
		}
	}
	if op == expr.Sigmoid || op == expr.Softplus {
		return 4
	}
	return 2
}

// Functions of float64, and Pow of both types, at random arguments, against
// arithmetic of many more digits.
func TestMapFloat64OnGPU(t *testing.T) {
	dev := device0(t)
	n := drawnArguments
	if testing.Short() {
		n = 500
	}
	for _, e := range drawnErrors(t, dev, n) {
		t.Log(e)
		if !(e.most <= mapBound(e.op)) {
			t.Errorf("%s of %v, %v is %v, off by %g units in the last place, want at most %v", e.op, e.x, e.y, e.got, e.most, mapBound(e.op))
		}
	}
}

// drawnArguments is how many arguments of each function are drawn.
const drawnArguments = 4000

// drawnError is the largest error of a function at drawn arguments, and where it is.
type drawnError struct {
	op        expr.Op
	dtype     expr.Dtype
	most      float64 // in units in the last place
	x, y, got float64
}

func (e drawnError) String() string {
	of := fmt.Sprint(e.x)
	if e.op.Arity() == 2 {
		of += fmt.Sprint(", ", e.y)
	}
	return fmt.Sprintf("| `%v` | %v | %.3f | %s |", e.op, map[expr.Dtype]string{expr.Float32: "float32", expr.Float64: "float64"}[e.dtype], e.most, of)
}

// drawnErrors are those of functions of float64, and of Pow of both types, at n arguments each.
func drawnErrors(t *testing.T, dev kernels.Device, n int) (list []drawnError) {
	t.Helper()
	r := testutil.Random(t)
	for _, op := range exprtest.Inexact {
		for _, d := range []expr.Dtype{expr.Float32, expr.Float64} {
			if op != expr.Pow && d == expr.Float32 {
				continue
			}
			b := expr.NewBuilder(d, d)
			f := testutil.Get[expr.Func](t)(b.Func(b.Apply(op, []expr.Value{b.Operand(0), b.Operand(1)}[:op.Arity()]...)))
			x, y := arguments(r, op, d, n)
			got := testutil.Get[[]float64](t)(mapOnGPU(dev, f, x, y))
			truth, bits := bigmath.Function(op.String()), map[expr.Dtype]int{expr.Float32: 24, expr.Float64: 53}[d]
			worst := drawnError{op: op, dtype: d}
			for i := range got {
				if e := bigmath.Error(got[i], truth(x[i], y[i]), bits); !(e <= worst.most) {
					worst.most, worst.x, worst.y, worst.got = e, x[i], y[i], got[i]
				}
			}
			list = append(list, worst)
		}
	}
	return list
}

// arguments draws n arguments in the domain of an operation: of all magnitudes and
// where functions change; y is for Pow, and mostly such that its value is a number.
func arguments(r *rand.Rand, op expr.Op, d expr.Dtype, n int) (x, y []float64) {
	for len(x) < n {
		v := []float64{math.Ldexp(1+r.Float64(), r.IntN(2000)-1000), 40 * r.Float64(), 1500 * r.Float64(), 1 + (r.Float64()-0.5)/8,
			float64(r.IntN(1e6)) * math.Pi / 2}[r.IntN(5)]
		w := (r.Float64() - 0.5) * 1450 / math.Log(v)
		if r.IntN(2) == 0 && bigmath.Defined(op.String(), -v) {
			v = -v
		}
		if d == expr.Float32 {
			v, w = float64(float32(v)), float64(float32(w/8))
		}
		if v != 0 && v != 1 && !math.IsInf(v, 0) {
			x, y = append(x, v), append(y, w)
		}
	}
	return x, y
}

// More than 2^31 elements take indices of 64 bits.
func TestMapHugeOnGPU(t *testing.T) {
	dev := device0(t)
	if os.Getenv("STHENO_LARGE") != "1" {
		t.Skip("SKIPPED, NOT TESTED: 14 GB of the host's memory, without STHENO_LARGE=1")
	}
	b := expr.NewBuilder(expr.Uint8, expr.Float32)
	f := testutil.Get[expr.Func](t)(b.Func(b.Apply(expr.Lt, b.Convert(b.Operand(0), expr.Float32), b.Operand(1))))
	shape := []int{65537, 32770}
	p := testutil.Get[*kernels.Plan](t)(codegen.Map(dev, f, shape, codegen.Dense(shape), codegen.View{Elements: 65537, Strides: []int{1, 0}}))
	x, limit, out := make([]byte, kernels.Count(shape)), make([]float32, 65537), make([]byte, kernels.Count(shape))
	for i := range x {
		x[i] = byte(i >> 3)
	}
	for i := range limit {
		limit[i] = float32(i % 256)
	}
	testutil.Do(t, Run(0, p, [][]byte{x, unsafe.Slice((*byte)(unsafe.Pointer(&limit[0])), 4*65537)}, out))
	for i, got := range out {
		want := byte(0)
		if float32(x[i]) < limit[i/32770] {
			want = 1
		}
		if got != want {
			t.Fatalf("element %d is %d, want %d", i, got, want)
		}
	}
}
