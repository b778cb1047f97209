package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/align"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/internal/bf16split"
)

// Three planes of BF16 hold any finite float32 exactly if they are scaled: denormals, and
// those that rounding to BF16 would make infinite; else numbers from 2^-109 on. Inf and
// NaN are in the first plane alone.
func TestBF16Planes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 1 << 20 {
		x := exprtest.HardFloat32(r, i)
		bits := math.Float32bits(x)
		for _, form := range []struct {
			scale float64
			whole bool
		}{{1, false}, {splitScale, false}, {splitScale, true}} {
			scale := form.scale
			p := bf16split.Split(x, float32(scale), form.whole)
			v := [3]float64{float64(bf16split.Float(p[0])), float64(bf16split.Float(p[1])), float64(bf16split.Float(p[2]))}
			if x-x != 0 {
				if p[1] != 0 || p[2] != 0 || v[0] != float64(x) && (v[0] == v[0] || x == x) {
					t.Fatalf("%#08x has the planes %v, want it and two zeros", bits, v)
				}
				continue
			}
			if form.whole && (v[0] == 0) != (x == 0) {
				t.Fatalf("%#08x has the planes %v, want the first 0 for 0 alone", bits, v)
			}
			got := v[0] + v[1]/scale + v[2]/(scale*scale)
			if got != float64(x) && (scale != 1 || math.Abs(float64(x)) >= 0x1p-109) {
				t.Fatalf("%#08x = %g has the planes %v of scale %g, whose sum is %g", bits, x, v, scale, got)
			}
		}
	}
}

// A plan of planes computes products of any size, transposed or not.
func TestMatMulSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	var plans []*kernels.Plan
	for _, s := range [][4]int64{{1, 5, 3, 4}, {2, 37, 41, 53}, {1, 130, 9, 31}, {3, 1, 40, 70}, {1, 33, 34, 1000}, {1, 129, 7, 1}, {500, 129, 2, 3}} {
		batch, m, n, k := s[0], s[1], s[2], s[3]
		for i := range 4 {
			transA, transB := i >= 2, i%2 == 1
			for _, dev := range tensorDevices {
				p := planBy(t, Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}}.problem(dev), BF16Split)
				matmulRun[float32](t, r, []*kernels.Plan{p}, kernels.Float32, batch, m, n, k, transA, transB)
				plans = append(plans, p)
			}
		}
	}
	checkLaunches(t, plans...)
}

// So do plans of the kernels on the tensor cores in float64, in splits of k.
func TestMatMulDouble(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	var plans []*kernels.Plan
	for _, s := range [][4]int64{{1, 5, 3, 400}, {2, 37, 41, 53}, {3, 130, 70, 300}, {1, 129, 65, 1}, {2, 9, 70, 0}} {
		batch, m, n, k := s[0], s[1], s[2], s[3]
		for i := range 4 {
			transA, transB := i >= 2, i%2 == 1
			x := Product{Dtype: kernels.Float64, Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}}.problem(matmulDevices[1])
			for _, c := range slices.Concat(table...) {
				if !strings.HasPrefix(c.name, "double") {
					continue
				}
				x := x
				if c.orient != nil {
					x = c.orient(x)
				}
				for parts := min(c.cluster, 2); parts <= max(c.cluster, 1); parts = max(2*parts, 1) {
					p := newPlan(Product{Dtype: kernels.Float64, Batch: batch, M: m, N: n, K: k})
					c.emit(p, &x, c.cutIn(&x, 1+r.Int64N(3), max(parts, 1)))
					matmulRun[float64](t, r, []*kernels.Plan{p}, kernels.Float64, batch, m, n, k, transA, transB)
					plans = append(plans, p)
				}
			}
		}
	}
	checkLaunches(t, plans...)
}

// Nothing is written again where planes hold all numbers and no sum overflows or loses bits as denormal numbers. Else lines of the operand that
// asks for it get powers of 2, and planes are scaled if there is no other way to hold its numbers.
func TestScaling(t *testing.T) {
	const least = math.SmallestNonzeroFloat32
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	none, a, b, both := [2]bool{}, [2]bool{true, false}, [2]bool{false, true}, [2]bool{true, true}
	for _, c := range []struct {
		numbers      [2][]float32
		again        [2]bool
		lines, other int
		form, single int // without apart
		mma          int
	}{
		{[2][]float32{{0}, {0, 0}}, none, -1, 0, splitPlain, 0, splitPlain},
		{[2][]float32{{0}, {1, inf}}, none, -1, 0, splitNonFinite, 0, splitScaled},
		{[2][]float32{{1, -3, 0x1p-70}, {0x1.8p-50, 2, nan}}, none, -1, 0, splitNonFinite, 0, splitScaled},
		{[2][]float32{{1, -3, 0x1p-70}, {0x1.8p-50, 2}}, none, -1, 0, splitPlain, 0, splitPlain},
		{[2][]float32{{1, 0x1p-71}, {0x1.8p-50, 2}}, a, 0, 0, splitPlain, 98 - 1, splitPlain},
		{[2][]float32{{0x1p49, 1}, {0x1.8p49, -1}}, none, -1, 0, splitPlain, 0, splitPlain},
		{[2][]float32{{0x1p50, 1}, {0x1.8p49, -1}}, a, 0, 0, splitPlain, -1, splitPlain},
		{[2][]float32{{0x1p60, 0x1p-60}, {-0x1p60, 0x1p-60}}, a, 0, 0, splitNonFinite, 0, splitScaled}, // one line of both
		{[2][]float32{{0x1p60, 0x1p-60}, {0x1p-120}}, b, 1, 0, splitPlain, 98 - 60 + 120, splitPlain},
		{[2][]float32{{least, 1}, {1}}, a, 0, 0, splitPlain, 98, splitPlain},
		{[2][]float32{{1}, {least, 0x1p58}}, b, 1, 0, splitPlain, 40, splitPlain},
		{[2][]float32{{1}, {least, 0x1p59}}, both, 1, 0, splitScaled, 98 - 59, splitScaled},
		{[2][]float32{{least, 1}, {1, least}}, both, 0, 40, splitPlain, 98 - 40, splitPlain},
		{[2][]float32{{least, math.MaxFloat32}, {1, least}}, both, 0, 0, splitScaled, 0, splitScaled},
		{[2][]float32{{-math.MaxFloat32}, {0x1p-9}}, a, 0, 0, splitPlain, 100 - 127, splitPlain},
		{[2][]float32{{math.MaxFloat32}, {math.MaxFloat32}}, both, 0, 0, splitPlain, 98 - 127 - 127, splitPlain},
	} {
		r := [2]bf16split.Magnitudes{rangeOf(c.numbers[0]), rangeOf(c.numbers[1])}
		for _, apart := range []bool{true, false} {
			s, want := scalingOf(r, [2]int{}, apart, 0), c.form
			if !apart {
				want = c.mma
			}
			single := 0
			if s.lines >= 0 {
				single, _ = s.exponent(r[s.lines])
			}
			if s.form != want || want == c.form && (s.again != c.again || s.lines != c.lines || s.other != c.other || single != c.single) {
				t.Errorf("%g, apart %v: got %+v, want %+v", c.numbers, apart, s, c)
			}
		}
	}
}

// Splits that splitKernel makes hold subnormal numbers and all products of them; huge ones are written again.
func TestScalingShifted(t *testing.T) {
	const least, largest, shift = math.SmallestNonzeroFloat32, 0x1.fep111, splitShift
	inf := float32(math.Inf(1))
	none, a, both := [2]bool{}, [2]bool{true, false}, [2]bool{true, true}
	for _, c := range []struct {
		numbers            [2][]float32
		again              [2]bool
		lines, form, other int
	}{
		{[2][]float32{{least, 1}, {-1, least}}, none, -1 - 2*shift, splitPlain, 0},
		{[2][]float32{{least, 0x1p33}, {0x1.8p33}}, none, -1 - 2*shift, splitPlain, 0},
		{[2][]float32{{least, inf}, {least}}, none, -1 - 2*shift, splitNonFinite, 0},
		{[2][]float32{{0x1p-100, 0x1p33}, {0x1p34}}, a, 0, splitPlain, shift},
		{[2][]float32{{largest}, {0x1p-46}}, none, -1 - 2*shift, splitPlain, 0},
		{[2][]float32{{2 * largest}, {0x1p-46}}, a, 0, splitPlain, shift},
		{[2][]float32{{0x1p120, 0x1p-105}, {1}}, both, 0, splitNonFinite, 0}, // times 2^shift sums would overflow
	} {
		if s := scalingOf([2]bf16split.Magnitudes{rangeOf(c.numbers[0]), rangeOf(c.numbers[1])}, [2]int{shift, shift}, true, 0); s.again != c.again || s.lines != c.lines || s.form != c.form || s.other != c.other {
			t.Errorf("%g: got %+v, want %+v", c.numbers, s, c)
		}
	}
}

func rangeOf(numbers []float32) bf16split.Magnitudes {
	r := bf16split.None
	for _, x := range numbers {
		r.Add(x)
	}
	return r
}

// Whatever the sizes of lines, the planes hold all numbers, no product of two becomes too small for a sum, but for those that it was too small for, and
// planes that are summed together make no sum overflow.
func TestScalingAnyLines(t *testing.T) {
	r := testutil.Random(t)
	for range 100_000 {
		var lines [2][]bf16split.Magnitudes
		var all [2]bf16split.Magnitudes
		for i := range lines {
			all[i] = bf16split.None
			low, high := r.IntN(277)-149, r.IntN(277)-149
			for range 1 + r.IntN(4) {
				line := bf16split.None
				middle := min(low, high) + r.IntN(max(low, high)-min(low, high)+1)
				for range 2 {
					e := min(max(middle+r.IntN(1+r.IntN(60)), -149), 127)
					line.Add(float32(math.Ldexp(1+r.Float64()*0.999, e)))
				}
				lines[i] = append(lines[i], line)
				all[i].Join(line.Packed())
			}
			all[i].Finite = r.IntN(4) > 0
		}
		apart, shifts := r.IntN(2) == 0, [2]int{r.IntN(2) * splitShift, r.IntN(2) * splitShift}
		s := scalingOf(all, shifts, apart, r.IntN(2))
		if !s.again[0] && !s.again[1] && s.lines != -1-shifts[0]-shifts[1] {
			t.Fatalf("%v: sums of splits times 2^%d are divided by %+v", all, shifts, s)
		}
		high := false
		exponent := func(operand int, line bf16split.Magnitudes) int {
			switch operand {
			case s.lines:
				e, is := s.exponent(line)
				high = high || is
				return e
			case 1 - s.lines:
				return s.other
			}
			return shifts[operand]
		}
		if !apart && s.whole && s.form != splitScaled || apart && s.whole && s.form == splitPlain {
			t.Fatalf("%v: infinities or NaN in planes of form %d", all, s.form)
		}
		for i := range lines {
			for _, line := range lines[i] {
				e := exponent(i, line)
				stays := !s.again[i]
				if stays && e != shifts[i] || line.High()+e > 126 && e > 0 && !stays || line.Low()+e < -149 || s.form != splitScaled && line.Low()+e < bf16split.MinExact && (!stays || e == 0) || stays && line.Hard(e) {
					t.Fatalf("%v: operand %d, times 2^%d, by %+v", lines, i, e, s)
				}
			}
		}
		for _, a := range lines[0] {
			for _, b := range lines[1] {
				e := exponent(0, a) + exponent(1, b)
				if least := a.Low() + b.Low() + e; e < 0 && least < minProduct || s.lines == -1 && least < minProduct {
					t.Fatalf("%v: a product comes to 2^%d by %+v", lines, least, s)
				}
				if most := a.High() + b.High() + e; most > maxSum && (s.form == splitPlain || s.open && !high || e > 0) {
					t.Fatalf("%v: a product comes to 2^%d by %+v", lines, most, s)
				}
				if e < -252 || e > 252 {
					t.Fatalf("%v: sums are divided by 2^%d", lines, e)
				}
			}
		}
	}
}

// Every block of each cut has steps to do, and is on the device from the start.
func TestHopperCut(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for range 20_000 {
		dev := kernels.Device{Major: 9, SMs: 1 + r.IntN(160), L2: 50 << 20}
		x := Product{Batch: 1 + r.Int64N(3), M: 1 + r.Int64N(5000), N: 1 + r.Int64N(5000), K: 1 + r.Int64N(3000)}.problem(dev)
		for _, d := range cutsHopper(hopperSplit, &x, nil) {
			tiles, steps := kernels.CeilDiv(x.M, d.cluster*tensorTile)*kernels.CeilDiv(x.N, tensorTile)*x.Batch, kernels.CeilDiv(x.K, hopperStep)
			work := tiles * d.partials
			if d.streamed > 0 {
				work = tiles - d.streamed + d.streamed*steps
			}
			if d.streamed > tiles || d.streamed > 0 && d.partials > 1 || d.blocks > work || d.streamed > 0 && d.blocks > d.streamed*steps ||
				d.blocks*d.cluster > max(int64(dev.SMs), d.cluster) || (d.partials-1)*d.chunk >= x.K {
				t.Fatalf("%d x %dx%dx%d on %d SMs: cut %+v of %d tiles of %d steps", x.Batch, x.M, x.K, x.N, dev.SMs, d, tiles, steps)
			}
		}
	}
}

// Products of tiny and of huge numbers are as accurate as others, rows of op(A) and columns of op(B) of different sizes too, and infinite where
// they are due.
func TestMatMulSplitRange(t *testing.T) {
	const batch, m, n, k = 2, 41, 33, 40
	r := testutil.Random(t)
	for i, c := range [][2][2]int{ // exponents of lines, from and to
		{{-140, -140}, {110, 110}}, {{-149, -149}, {120, 120}}, {{-149, -149}, {-149, -149}}, {{127, 127}, {-10, -10}}, {{63, 63}, {56, 56}}, {{0, 0}, {0, 0}}, {{100, 100}, {-50, -50}},
		{{-60, 60}, {-60, 60}}, {{-62, 62}, {-62, 62}}, {{-120, 120}, {0, 0}}, {{0, 0}, {-120, 120}}, {{-100, 100}, {-100, 100}}, {{-140, 120}, {-140, 120}}, {{60, 64}, {60, 64}},
	} {
		for form := range 4 {
			transA, transB := form >= 2, form%2 == 1
			a, b := make([]float32, batch*m*k), make([]float32, batch*k*n)
			at := func(z, row, col, rows, cols int, trans bool) int {
				if trans {
					return z*rows*cols + col*rows + row
				}
				return z*rows*cols + row*cols + col
			}
			exponent := func(range_ [2]int) int { return range_[0] + r.IntN(range_[1]-range_[0]+1) }
			for z := range batch {
				for row := range m {
					e := exponent(c[0])
					for l := range k {
						a[at(z, row, l, m, k, transA)] = float32(math.Ldexp(1+r.Float64()*0.999, e))
					}
				}
				for col := range n {
					e := exponent(c[1])
					for l := range k {
						b[at(z, l, col, k, n, transB)] = float32(math.Ldexp(r.Float64()*2-1, e))
					}
				}
			}
			if i%2 == 0 { // add a subnormal number
				a[at(1, 0, 0, m, k, transA)] = math.SmallestNonzeroFloat32
			}
			if i%3 == 2 {
				a[at(0, 3, 5, m, k, transA)], b[at(0, 7, 2, k, n, transB)] = float32(math.Inf(1)), float32(math.NaN())
			}
			for _, dev := range tensorDevices {
				p := planBy(t, Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}}.problem(dev), BF16Split)
				out := make([]float32, batch*m*n)
				if err := p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out), nil); err != nil {
					t.Fatal(err)
				}
				for i, got := range out {
					z, row, col := i/(m*n), i/n%m, i%n
					var want, abs float64
					for l := range k {
						x := float64(a[at(z, row, l, m, k, transA)]) * float64(b[at(z, l, col, k, n, transB)])
						want, abs = want+x, abs+math.Abs(x)
					}
					if want-want == 0 && (abs-math.Abs(want))/2 > math.MaxFloat32 {
						continue // sums of terms overflow either way
					}
					g, rounded := float64(got), float64(float32(want))
					switch {
					case math.IsInf(rounded, 0) || want != want:
						if g != rounded && (g == g || want == want) {
							t.Fatalf("%s: 2^%d times 2^%d: got %g, want %g", dev.Name, c[0], c[1], got, rounded)
						}
					case abs > math.MaxFloat32/2: // sums of some terms may overflow
					case !(math.Abs(g-want) <= k*(0x1p-24*abs+0x1p-150)):
						t.Fatalf("%s: 2^%d times 2^%d: got %g, want %g, of terms of %g", dev.Name, c[0], c[1], got, want, abs)
					}
				}
			}
		}
	}
}

// A product of operands that were split beforehand, one or both, has the same bits as a product that splits them itself. This
// holds for all ranges of numbers, including pairs of ranges for which the splits are rescaled into separate memory.
func TestPreparedSplits(t *testing.T) {
	for _, dev := range tensorDevices {
		dev.SMs = 1 // so that small products are on the tensor cores
		preparedSplitsOn(t, dev)
	}
}

func preparedSplitsOn(t *testing.T, dev kernels.Device) {
	const batch, m, n, k = 2, 250, 251, 300
	r := rand.New(rand.NewPCG(5, 0))
	var plans []*kernels.Plan
	for i, exponents := range [][2]int{{0, 0}, {-140, 110}, {127, -10}, {100, -50}} {
		product := Product{Dtype: kernels.Float32, Batch: batch, M: m, N: n, K: k, A: Operand{Trans: i%2 == 1}, B: Operand{Trans: i >= 2}}
		form, _ := product.Wants(dev)
		if form != BF16Split {
			t.Fatalf("%v is not taken apart", product)
		}
		var in, planes [2][]byte
		for j, x := range product.Prepares(form) {
			numbers := make([]float32, x.Batch*x.Rows*x.Cols)
			for l := range numbers {
				numbers[l] = float32(math.Ldexp(r.Float64()-0.5, exponents[j]))
			}
			if i == 3 {
				numbers[0] = math.SmallestNonzeroFloat32
			}
			in[j] = kernels.Bytes(numbers)
			p, err := x.Plan(dev)
			if err != nil {
				t.Fatal(err)
			}
			planes[j] = kernels.Bytes(align.Make[float64](kernels.CeilDiv(p.Out, 8)))[:p.Out]
			if err := p.Run([][]byte{in[j]}, planes[j], nil); err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
		want := run(t, product, dev, in[:])
		for _, given := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			inputs, with := in[:2:2], product
			for j, is := range given {
				if is {
					inputs = append(inputs, planes[j])
					*[]*Form{&with.A.Form, &with.B.Form}[j] = form
				}
			}
			got := run(t, with, dev, inputs)
			if !bytes.Equal(got, want) {
				t.Errorf("numbers near 2^%d, planes %v: not the bits of the product alone", exponents, given)
			}
			p, err := with.Plan(dev)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
	}
	checkLaunches(t, plans...)
}

// run returns the result of a planner's plan for a device, computed on the host.
func run(t *testing.T, of kernels.Planner, dev kernels.Device, inputs [][]byte) []byte {
	t.Helper()
	p, err := of.Plan(dev)
	if err != nil {
		t.Fatal(err)
	}
	out := kernels.Bytes(align.Make[float64](kernels.CeilDiv(p.Out, 8)))[:p.Out]
	for i := range out {
		out[i] = 0xff
	}
	if err := p.Run(inputs, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}
