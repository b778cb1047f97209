package kernels

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
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
		}{{1, false}, {planeScale, false}, {planeScale, true}} {
			scale := form.scale
			p := bf16Planes(x, float32(scale), form.whole)
			v := [3]float64{float64(fromBF16(p[0])), float64(fromBF16(p[1])), float64(fromBF16(p[2]))}
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
func TestMatMulPlanes(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 0))
	var plans []*Plan
	for _, s := range [][4]int64{{1, 5, 3, 4}, {2, 37, 41, 53}, {1, 130, 9, 31}, {3, 1, 40, 70}, {1, 33, 34, 1000}, {1, 129, 7, 1}, {500, 129, 2, 3}} {
		batch, m, n, k := s[0], s[1], s[2], s[3]
		for i := range 4 {
			transA, transB := i >= 2, i%2 == 1
			for _, dev := range tensorDevices {
				p := &Plan{Op: "matmul", Inputs: []int64{batch * m * k * 4, batch * k * n * 4}, Out: batch * m * n * 4}
				p.matmulPlanes(dev, result{Float32, batch, m, n, Epilogue{}}, k, transA, transB, [2]*Ref{})
				matmulRun[float32](t, r, p, Float32, batch, m, n, k, transA, transB)
				plans = append(plans, p)
			}
		}
	}
	if err := Check(own, plans...); err != nil {
		t.Error(err)
	}
}

// So do plans of the kernels on the tensor cores in float64, in splits of k.
func TestMatMulDouble(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 0))
	var plans []*Plan
	for _, s := range [][4]int64{{1, 5, 3, 400}, {2, 37, 41, 53}, {3, 130, 70, 300}, {1, 129, 65, 1}, {2, 9, 70, 0}} {
		batch, m, n, k := s[0], s[1], s[2], s[3]
		for i := range 4 {
			transA, transB := i >= 2, i%2 == 1
			for form, f := range doubleForms {
				for parts := min(f.join, 2); parts <= max(f.join, 1); parts = max(2*parts, 1) {
					p := newMatMul(Float64, batch, m, n, k)
					p.double(matmulDevices[1], doubleCut{form, max(parts, 1), 1 + r.Int64N(3)}, result{Float64, batch, m, n, Epilogue{}}, k, transA, transB)
					matmulRun[float64](t, r, p, Float64, batch, m, n, k, transA, transB)
					plans = append(plans, p)
				}
			}
		}
	}
	if err := Check(own, plans...); err != nil {
		t.Error(err)
	}
}

// Operands are multiplied by powers of 2 where their planes would lose bits or their
// products overflow; if that does not help all of their numbers, planes are scaled.
func TestHopperScaling(t *testing.T) {
	const least = math.SmallestNonzeroFloat32
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		numbers []float32
		e       [2]int // of these numbers and of 2^60
		scale   float32
	}{
		{[]float32{0}, [2]int{0, -11}, 1},
		{[]float32{0, inf, nan}, [2]int{0, -11}, planeScale},
		{[]float32{1, 0x1p-100, inf}, [2]int{0, -11}, planeScale},
		{[]float32{1, -3, 0x1p-109, 0x1.fp49}, [2]int{0, -11}, 1},
		{[]float32{1, 0x1p50}, [2]int{-1, -11}, 1},
		{[]float32{0x1p-40, -0x1p-30}, [2]int{0, -11}, 1},
		{[]float32{0x1p-40, -0x1p-31}, [2]int{49 + 31, -11}, 1},
		{[]float32{-math.MaxFloat32, 1}, [2]int{49 - 127, -11}, 1},
		{[]float32{0x1p-110, 0x1p-100}, [2]int{49 + 100, -11}, 1},
		{[]float32{least}, [2]int{49 + 149, -11}, 1},
		{[]float32{least, 3 * least}, [2]int{49 + 148, -11}, 1},
		{[]float32{least, 0x1p9}, [2]int{49 - 9, -11}, 1},
		{[]float32{least, 0x1p10}, [2]int{49 - 10, -11}, planeScale},
		{[]float32{least, 0x1p25}, [2]int{49 - 25, -11}, planeScale},
		{[]float32{least, 0x1p26}, [2]int{0, -11}, planeScale},
		{[]float32{least, math.MaxFloat32}, [2]int{0, -11}, planeScale},
	} {
		r := [2]sizeRange{emptyRange, emptyRange}
		for _, x := range c.numbers {
			r[0].add(x)
		}
		r[1].add(0x1p60)
		for i, r := range [][2]sizeRange{r, {r[1], r[0]}} {
			e, scale := hopperScaling(r, false)
			if want := [2]int{c.e[i], c.e[1-i]}; e != want || scale != c.scale {
				t.Errorf("%g and 2^60, exchanged %v, are multiplied by 2^%d, planes scaled by %g, want 2^%d and %g", c.numbers, i == 1, e, scale, want, c.scale)
			}
		}
	}
}

// With infinities or NaN among them, numbers that fit are not scaled if the product keeps high products apart.
func TestHopperApart(t *testing.T) {
	r := [2]sizeRange{emptyRange, emptyRange}
	r[0].add(float32(math.Inf(1)))
	r[0].add(1)
	r[1].add(3)
	for _, apart := range []bool{false, true} {
		e, scale := hopperScaling(r, apart)
		if e != [2]int{} || (scale == 1) != apart {
			t.Errorf("apart %v: multiplied by 2^%d, planes scaled by %g", apart, e, scale)
		}
	}
}

// Every block of a cut has steps to do, and is on the device from the start.
func TestHopperCut(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	for range 20_000 {
		dev := Device{Major: 9, SMs: 1 + r.IntN(160), L2: 50 << 20}
		c := result{Float32, 1 + r.Int64N(3), 1 + r.Int64N(5000), 1 + r.Int64N(5000), Epilogue{}}
		k := 1 + r.Int64N(3000)
		d := hopperPolicies.on(dev).cut(dev, c, k)
		tiles, steps := CeilDiv(c.m, d.cluster*hopperTile)*CeilDiv(c.n, hopperTile)*c.batch, CeilDiv(k, hopperStep)
		work := tiles * d.copies
		if d.shared > 0 {
			work = tiles - d.shared + d.shared*steps
		}
		if d.shared > tiles || d.shared > 0 && d.copies > 1 || d.blocks > work || d.shared > 0 && d.blocks > d.shared*steps ||
			d.blocks*d.cluster > max(int64(dev.SMs), d.cluster) || (d.copies-1)*hopperChunk(k, d.copies) >= k {
			t.Fatalf("%d x %dx%dx%d on %d multiprocessors: cut %+v of %d tiles of %d steps", c.batch, c.m, k, c.n, dev.SMs, d, tiles, steps)
		}
	}
}

// Products of tiny and of huge numbers are as accurate as others.
func TestMatMulPlanesRange(t *testing.T) {
	const n = 40
	r := rand.New(rand.NewPCG(3, 0))
	for _, c := range [][2]int{{-140, 110}, {-149, 120}, {127, -10}, {63, 56}, {0, 0}, {100, -50}} {
		a, b, out := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
		for i := range a {
			a[i], b[i] = float32(math.Ldexp(1+r.Float64(), c[0])), float32(math.Ldexp(1+r.Float64(), c[1]))
		}
		if c[0] == 0 { // numbers of all sizes
			a[0], a[1] = math.SmallestNonzeroFloat32, 0x1p100
		}
		if c[0] == 100 { // and small ones beside them
			a[0] = math.SmallestNonzeroFloat32
		}
		for _, dev := range tensorDevices {
			p := &Plan{Op: "matmul", Inputs: []int64{n * n * 4, n * n * 4}, Out: n * n * 4}
			p.matmulPlanes(dev, result{Float32, 1, n, n, Epilogue{}}, n, false, false, [2]*Ref{})
			if err := p.Run([][]byte{Bytes(a), Bytes(b)}, Bytes(out), nil); err != nil {
				t.Fatal(err)
			}
			for i := range out {
				var want float64
				for l := range n {
					want += float64(a[i/n*n+l]) * float64(b[l*n+i%n])
				}
				if got := float64(out[i]); !(math.Abs(got-want) <= n*0x1p-24*want) {
					t.Fatalf("%s: 2^%d times 2^%d: got %g, want %g", dev.Name, c[0], c[1], got, want)
				}
			}
		}
	}
}

// A product of planes made before it, of either operand or both, has the bits of the product alone, whatever the
// numbers: those of two ranges that ask for it are written again beside them.
func TestPlanesProduct(t *testing.T) {
	for _, dev := range tensorDevices {
		dev.SMs = 1 // so that small products are on the tensor cores
		planesProductOn(t, dev)
	}
}

func planesProductOn(t *testing.T, dev Device) {
	const batch, m, n, k = 2, 130, 131, 140
	r := rand.New(rand.NewPCG(5, 0))
	var plans []*Plan
	for i, exponents := range [][2]int{{0, 0}, {-140, 110}, {127, -10}, {100, -50}} {
		product := Product{Dtype: Float32, Batch: batch, M: m, N: n, K: k, TransA: i%2 == 1, TransB: i >= 2}
		operands, ok := product.Planes(dev)
		if !ok {
			t.Fatalf("%v is not taken apart", product)
		}
		var in, planes [2][]byte
		for j, x := range operands {
			numbers := make([]float32, x.Batch*x.Rows*x.Cols)
			for l := range numbers {
				numbers[l] = float32(math.Ldexp(r.Float64()-0.5, exponents[j]))
			}
			if i == 3 {
				numbers[0] = math.SmallestNonzeroFloat32
			}
			in[j] = Bytes(numbers)
			p, err := x.Plan(dev)
			if err != nil {
				t.Fatal(err)
			}
			planes[j] = Bytes(makeAligned[float64](CeilDiv(p.Out, 8)))[:p.Out]
			if err := p.Run([][]byte{in[j]}, planes[j], nil); err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
		want := run(t, product, dev, in[:])
		for _, given := range [][2]bool{{true, false}, {false, true}, {true, true}} {
			inputs := in[:2:2]
			for j, is := range given {
				if is {
					inputs = append(inputs, planes[j])
				}
			}
			got := run(t, PlanesProduct{product, given}, dev, inputs)
			if !bytes.Equal(got, want) {
				t.Errorf("numbers near 2^%d, planes %v: not the bits of the product alone", exponents, given)
			}
			p, err := PlanesProduct{product, given}.Plan(dev)
			if err != nil {
				t.Fatal(err)
			}
			plans = append(plans, p)
		}
	}
	if err := Check(own, plans...); err != nil {
		t.Error(err)
	}
}

// run returns the result of a planner's plan for a device, computed on the host.
func run(t *testing.T, of Planner, dev Device, inputs [][]byte) []byte {
	t.Helper()
	p, err := of.Plan(dev)
	if err != nil {
		t.Fatal(err)
	}
	out := Bytes(makeAligned[float64](CeilDiv(p.Out, 8)))[:p.Out]
	for i := range out {
		out[i] = 0xff
	}
	if err := p.Run(inputs, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}
