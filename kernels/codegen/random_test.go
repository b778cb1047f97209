package codegen

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// The known answers of Random123 for Philox4x32-10.
func TestPhilox(t *testing.T) {
	for _, c := range []struct {
		counter [4]uint32
		key     [2]uint32
		want    [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{math.MaxUint32, math.MaxUint32, math.MaxUint32, math.MaxUint32}, [2]uint32{math.MaxUint32, math.MaxUint32},
			[4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		g := generator{key: c.key, stream: c.counter[2], run: c.counter[3]}
		if got := g.block(uint64(c.counter[1])<<32 | uint64(c.counter[0])); got != c.want {
			t.Errorf("%x with key %x is %x, want %x", c.counter, c.key, got, c.want)
		}
		if got := exprtest.Philox(c.counter, c.key); got != c.want {
			t.Errorf("the reference of %x with key %x is %x, want %x", c.counter, c.key, got, c.want)
		}
	}
}

// The largest random numbers are those before 1, and the least are 0.
func TestFractions(t *testing.T) {
	if most := fraction32(math.MaxUint32); most != math.Nextafter32(1, 0) || fraction32(255) != 0 {
		t.Errorf("float32 go from %v to %v", fraction32(255), most)
	}
	if most := fraction64(math.MaxUint32, math.MaxUint32); most != math.Nextafter(1, 0) || fraction64(1<<11-1, 0) != 0 {
		t.Errorf("float64 go from %v to %v", fraction64(1<<11-1, 0), most)
	}
}

// Normal numbers are those of the formula in float64, but for some units in the last place of the radius, at every angle and for radii of all sizes.
func TestNormals(t *testing.T) {
	r := testutil.Random(t)
	draw := func() uint32 {
		switch r.IntN(4) {
		case 0:
			return []uint32{0, 1, 255, 256, 1 << 29, 1<<29 - 1, 1 << 30, 1 << 31, 3 << 29, 3 << 30, math.MaxUint32 - 255, math.MaxUint32}[r.IntN(12)]
		case 1:
			return math.MaxUint32 >> r.IntN(32)
		}
		return r.Uint32() >> max(r.IntN(60)-30, 0)
	}
	most := 0.0
	for range 200_000 {
		a, b := draw(), draw()
		if r.IntN(4) == 0 {
			a = ^a
		}
		u := float64(float32(float64(float32(a))*256+float64(b%256|1))) / (1 << 40) // what a float32 can tell
		radius, angle := math.Sqrt(-2*math.Log(u)), 2*math.Pi*float64(b>>8)/(1<<24)
		got := normals(a, b)
		for k, want := range []float64{radius * math.Cos(angle), radius * math.Sin(angle)} {
			off := math.Abs(float64(got[k]) - want)
			most = max(most, off/max(radius, 1e-4))
			if !(off <= 3e-7*radius) {
				t.Fatalf("number %d of %#x, %#x is %v, want %v", k, a, b, got[k], want)
			}
		}
	}
	t.Logf("within %.3g of the radius", most)
}

// A fused multiplication and addition of float32 rounds the exact result once.
func TestFMA32(t *testing.T) {
	r := testutil.Random(t)
	draw := func() float32 {
		return math.Float32frombits(r.Uint32()%(1<<23) | uint32(97+r.IntN(60))<<23 | r.Uint32()&(1<<31))
	}
	for range 100_000 {
		x, y := draw(), draw()
		z := draw()
		if r.IntN(2) == 0 { // near the middle between two
			z = -x*y + math.Float32frombits(math.Float32bits(x*y)&^(1<<23-1))*float32(r.IntN(9)-4)*0x1p-24
		}
		exact := new(big.Float).SetPrec(300).Mul(big.NewFloat(float64(x)), big.NewFloat(float64(y)))
		want, _ := exact.Add(exact, big.NewFloat(float64(z))).Float32()
		if got := fma32(x, y, z); got != want {
			t.Fatalf("%v * %v + %v is %v, want %v", x, y, z, got, want)
		}
	}
}

// Views that cannot be random numbers are refused with an error.
func TestRandomErrors(t *testing.T) {
	shape := []int{4, 5}
	view := func(stream int, offset int64) View {
		return View{Elements: RandomState, Offset: offset, Strides: []int{5, 1}, Stream: Stream{Number: stream}}
	}
	short, bounded := view(1, 0), view(1, 0)
	normal := view(1, 0)
	normal.Stream.Normal = true
	short.Elements, bounded.Bounds = 20, Bounds{Axis: 0, From: 1, To: 3}
	for want, c := range map[string]struct {
		d expr.Dtype
		v View
	}{
		"random numbers of i64":                {kernels.Int64, view(1, 0)},
		"state of 20 elements, want 2":         {kernels.Float32, short},
		"numbers from -1 on of stream 1":       {kernels.Float32, view(1, -1)},
		"numbers from 0 on of stream -3":       {kernels.Float64, view(-3, 0)},
		"of random numbers, want none":         {kernels.Float64, bounded},
		"normal numbers of f64, want f32":      {kernels.Float64, normal},
		"got a view of elements 0 to 19, want": {kernels.Float32, View{Elements: RandomState, Strides: []int{5, 1}}},
	} {
		b := expr.NewBuilder(c.d)
		f, err := b.Func(b.Convert(b.Operand(0), kernels.Float32))
		if err != nil {
			t.Fatal(err)
		}
		if p, err := Map(kernels.HostDevice(), f, shape, c.v); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v, want an error with %q", p, err, want)
		}
	}
}

// NVIDIA's assembler takes random numbers of both types, in every layout, and spills
// nothing.
func TestRandomAssembles(t *testing.T) {
	ptxas.Find(t)
	shape := []int{6, 8}
	views := []View{Dense(shape), viewAt(2, 0, 0, 0), viewAt(2, 1, 8, 1), viewAt(2, 0, 0, 1), viewAt(2, 0, 1, 0), viewAt(2, 0, 1, 6)}
	for i := range views {
		views[i].Elements, views[i].Stream.Number = RandomState, 1
	}
	for i, v := range views {
		for k, d := range []expr.Dtype{kernels.Float32, kernels.Float64, kernels.Float32} {
			v.Stream.Normal = k == 2
			if testing.Short() && (i+k)%3 > 0 {
				continue
			}
			b := expr.NewBuilder(d, d)
			x := b.Apply(expr.Select, b.Apply(expr.Lt, b.Operand(0), b.Constant(d, 0.5)), b.Operand(1), b.Constant(d, 0))
			f, err := b.Func(x)
			if err != nil {
				t.Fatal(err)
			}
			p, err := Map(kernels.HostDevice(), f, shape, v, Dense(shape))
			if err != nil {
				t.Fatal(err)
			}
			check := func(what string, p *kernels.Plan) {
				_, registers, spills := assemble(t, p.Launches[0].Kernel.Image, []string{"sm_70", "sm_90"}[(i+k)%2])
				if t.Logf("%s of %v, view %d: %d registers", what, d, i, registers); spills > 0 {
					t.Errorf("%s of %v, view %d spills %d bytes", what, d, i, spills)
				}
			}
			check("map", p)
			if f, err = b.Func(x, b.Apply(expr.RowSum, x)); err != nil {
				t.Fatal(err)
			}
			axis := (i + k) % 2
			if p, err = Rows(kernels.HostDevice(), f, shape, []int{axis}, []bool{false, true}, v, Dense(shape)); err != nil {
				t.Fatal(err)
			}
			check(fmt.Sprint("rows over ", axis), p)
		}
	}
}
