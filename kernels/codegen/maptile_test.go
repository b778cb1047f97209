package codegen

import (
	"fmt"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/ptxas"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr"
)

// Transposed operands are read by tiles, on a device, where both axes are long enough.
func TestTileLayout(t *testing.T) {
	dev := kernels.Device{Major: 9, SMs: 132}
	big := []int{5, 100, 200}
	for _, c := range []struct {
		text  string
		shape []int
		views []View
		want  string // accesses, tile, axis across; "" for no tiles
		grid  int
	}{
		{"a", []int{200, 100}, []View{viewAt(20000, 0, 1, 200)}, "t 64 0 skewed", 8},
		{"a", big, []View{viewAt(100000, 0, 20000, 1, 100)}, "t 64 1", 40},
		{"a", []int{201, 99}, []View{viewAt(19899, 0, 1, 201)}, "t 64 0 skewed", 8},
		{"a", []int{201, 124}, []View{viewAt(24924, 0, 1, 201)}, "t 64 0 skewed", 12}, // a row may begin with 7 columns less
		{"a", big, []View{viewAt(100000, 0, 1, 5, 500)}, "", 0},                       // of 5
		{"a", big, []View{viewAt(100000, 0, 200, 1000, 1)}, "", 0},
		{"a + tanh(b) + c + 1 + a*b", big, []View{viewAt(100000, 0, 20000, 1, 100), Dense(big), viewAt(1, 0, 0, 0, 0)}, "tgs 32 1", 140},
		{"a * b", big, []View{viewAt(100000, 0, 20000, 1, 100), viewAt(200, 0, 0, 0, 1)}, "tg 64 1", 40},
		{"a * b", big, []View{viewAt(100000, 0, 20000, 1, 100), within(viewAt(50000, 0, 10000, 200, 1), 1, 10, 60)}, "", 0},
	} {
		names := []string{"a", "b", "c"}[:len(c.views)]
		p, err := Map(dev, parseMap(t, c.text, names...), c.shape, c.views...)
		if err != nil {
			t.Fatal(err)
		}
		layout, got := p.Launches[0].Kernel.Image.(image).layout, ""
		if layout.tile > 0 {
			got = fmt.Sprintf("%s %d %d", placeLetters(layout, 0, len(c.views)), layout.tile, layout.tileAxis)
			if layout.skewed {
				got += " skewed"
			}
		}
		if got != c.want || layout.tile > 0 && p.Launches[0].Grid[0] != c.grid {
			t.Errorf("%s of %v: got %q on %v blocks, want %q on %d", c.text, c.views, got, p.Launches[0].Grid, c.want, c.grid)
		}
		host, err := Map(kernels.HostDevice(), parseMap(t, c.text, names...), c.shape, c.views...)
		if err != nil || host.Launches[0].Kernel.Image.(image).layout.tile > 0 {
			t.Errorf("%s: got tiles on the host, %v", c.text, err)
		}
	}
}

// NVIDIA's assembler takes tiles of every type, and what is written into a part of an output,
// and spills nothing.
func TestTilesAssemble(t *testing.T) {
	ptxas.Find(t)
	dev := kernels.Device{Major: 9, SMs: 132}
	check := func(p *kernels.Plan, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := checkLaunches(p); err != nil {
			t.Error(err)
		}
		for _, l := range p.Launches {
			_, registers, spills := assemble(t, l.Kernel.Image, "sm_90")
			t.Logf("%s: %d registers, %+v", p.Op, registers, l.Kernel.Image.(image).layout)
			if spills > 0 {
				t.Errorf("%s spills %d bytes", p.Op, spills)
			}
		}
	}
	shape := []int{3, 100, 200}
	flipped := viewAt(60000, 0, 20000, 1, 100)
	for _, d := range []expr.Dtype{kernels.Float32, kernels.Float64, kernels.Bool, kernels.Uint8, kernels.Int64} {
		b := expr.NewBuilder(d)
		f, err := b.Func(b.Operand(0))
		if err != nil {
			t.Fatal(err)
		}
		check(Map(dev, f, shape, flipped))
		check(Concat(dev, d, []int{3, 100, 233}, 2, []int{200, 33}, flipped, viewAt(9900, 0, 3300, 1, 100)))
		check(Concat(dev, d, []int{3, 100, 236}, 2, []int{200, 36}, Dense(shape), viewAt(1, 0, 0, 0, 0)))
		check(Concat(dev, d, []int{3, 300, 200}, 1, []int{100, 100, 100}, Dense(shape), Dense(shape), Dense(shape)))
		check(Concat(dev, d, []int{3, 100, 400}, 2, []int{200, 200}, flipped, flipped))
	}
	check(Map(dev, parseMap(t, "a + tanh(b) * c", "a", "b", "c"), shape, flipped, Dense(shape), viewAt(1, 0, 0, 0, 0)))
	check(Map(dev, parseMap(t, "a + b * c", "a", "b", "c"), shape, flipped, flipped, viewAt(200, 0, 0, 0, 1)))
	odd := []int{3, 101, 203} // rows of the output begin within sectors
	check(Map(dev, parseMap(t, "a + b * c", "a", "b", "c"), odd, viewAt(3*101*203, 0, 101*203, 1, 101), Dense(odd), viewAt(203, 0, 0, 0, 1)))
	check(Concat(dev, kernels.Float32, []int{3, 101, 206}, 2, []int{203, 1, 1, 1}, viewAt(3*101*203, 0, 101*203, 1, 101), viewAt(1, 0, 0, 0, 0), viewAt(1, 0, 0, 0, 0), viewAt(1, 0, 0, 0, 0)))
	wide := []int{1<<16 + 1, 1<<16 + 1}
	check(Map(dev, parseMap(t, "a + b", "a", "b"), wide, viewAt(1<<33, 0, 1, 1<<16+1), Dense(wide)))
	wide = []int{1 << 16, 1 << 16}
	check(Map(dev, parseMap(t, "a + b", "a", "b"), wide, viewAt(1<<32, 0, 1, 1<<16), Dense(wide)))
}

// A map with several outputs and a transposed operand, which a GPU reads by tiles, has the
// same bits by the Go body, of elements of both sizes.
func TestTilesOfSeveralOutputs(t *testing.T) {
	b := expr.NewBuilder(kernels.Float32)
	f, err := b.Func(b.Operand(0), b.Convert(b.Operand(0), kernels.Float64))
	if err != nil {
		t.Fatal(err)
	}
	const rows, columns = 33, 48
	x := make([]float32, rows*columns)
	for i := range x {
		x[i] = float32(i)
	}
	p, err := Map(kernels.Device{Major: 9, SMs: 132}, f, []int{rows, columns}, viewAt(rows*columns, 0, 1, rows))
	if err != nil {
		t.Fatal(err)
	}
	if p.Launches[0].Kernel.Image.(image).layout.tile == 0 {
		t.Fatal("this test wants tiles")
	}
	out, err := runGuarded(p, [][]byte{kernels.Bytes(x)})
	if err != nil {
		t.Fatal(err)
	}
	narrow, wide := kernels.Elements[float32](out), kernels.Elements[float64](out[p.Parts[1]:])
	for i := range x {
		want := x[i%columns*rows+i/columns]
		if narrow[i] != want || wide[i] != float64(want) {
			t.Fatalf("element %d is %v and %v, want %v", i, narrow[i], wide[i], want)
		}
	}
}
