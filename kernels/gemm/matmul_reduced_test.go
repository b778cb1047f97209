package gemm

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// exactly rounds a number in float64, by precision.
var exactly = map[kernels.Precision]func(float64) float64{
	kernels.FullPrecision: func(x float64) float64 { return exprtest.Round(x, 24) },
	kernels.TF32:          func(x float64) float64 { return exprtest.Round(x, 11) },
	kernels.BF16:          func(x float64) float64 { return exprtest.Round(x, 8) },
	kernels.F16:           exprtest.RoundF16,
}

func TestPrecisionRound(t *testing.T) {
	r := testutil.Random(t)
	for i := range 1 << 18 {
		x := exprtest.HardFloat32(r, i)
		bits := math.Float32bits(x)
		if i%8 == 5 { // near the numbers of F16
			x = float32(math.Ldexp(float64(x)/math.MaxFloat32, r.IntN(60)-35))
		}
		for by, round := range exactly {
			got, want := by.Round(x), round(float64(x))
			if float64(got) != want && (got == got || want == want) || math.Signbit(float64(got)) != math.Signbit(float64(x)) {
				t.Fatalf("%v.Round(%#08x = %g) = %g, want %g", by, bits, x, got, want)
			}
		}
	}
}

// reducedReference is c[i] of op(A) op(B) of rounded operands in float64, and the sum of the terms' sizes.
func reducedReference(a, b []float32, by kernels.Precision, m, n, k, i int64, transA, transB bool) (sum, abs float64) {
	z, row, col := i/(m*n), i/n%m, i%n
	for l := range k {
		ia, ib := (z*m+row)*k+l, (z*k+l)*n+col
		if transA {
			ia = (z*k+l)*m + row
		}
		if transB {
			ib = (z*n+col)*k + l
		}
		x := exactly[by](float64(a[ia])) * exactly[by](float64(b[ib]))
		sum += x
		abs += math.Abs(x)
	}
	return sum, abs
}

// reducedRun runs a plan on poisoned memory and holds it against the reference: a sum of k terms, exact products of
// rounded operands, is at most k eps of their sizes from exact.
func reducedRun(t *testing.T, p *kernels.Plan, a, b []float32, by kernels.Precision, batch, m, n, k int64, transA, transB bool) {
	t.Helper()
	out, scratch := make([]float32, batch*m*n), make([]float32, p.Scratch/4)
	for _, s := range [][]float32{out, scratch} {
		for i := range s {
			s[i] = float32(math.NaN())
		}
	}
	if err := p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out), kernels.Bytes(scratch)); err != nil {
		t.Fatal(err)
	}
	for i, got := range out {
		want, abs := reducedReference(a, b, by, m, n, k, int64(i), transA, transB)
		if !(math.Abs(float64(got)-want) <= 0x1p-23*float64(k)*abs) {
			t.Fatalf("%v, transposed %v %v: c[%d] = %g, want %g", p, transA, transB, i, got, want)
		}
	}
}

// uniform are numbers in [-1, 1).
func uniform(r *rand.Rand, n int64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.Float64()*2 - 1)
	}
	return x
}

// Products in TF32, BF16 and F16 are those of rounded operands, of any size, transposed or not.
func TestMatMulReduced(t *testing.T) {
	r := testutil.Random(t)
	plans := map[kernels.Precision][]*kernels.Plan{}
	sizes := [][4]int64{{1, 5, 3, 4}, {2, 37, 41, 53}, {1, 130, 9, 31}, {3, 1, 40, 70}, {1, 33, 1, 1000}, {1, 129, 7, 1}, {500, 9, 2, 3}, {1, 8, 257, 8}, {2, 64, 4, 12}}
	for range 3 {
		sizes = append(sizes, [4]int64{1 + r.Int64N(3), 1 + r.Int64N(50), 1 + r.Int64N(50), 1 + r.Int64N(200)})
	}
	for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16, kernels.F16} {
		for _, s := range sizes {
			batch, m, n, k := s[0], s[1], s[2], s[3]
			for i := range 4 {
				transA, transB := i >= 2, i%2 == 1
				a, b := uniform(r, batch*m*k), uniform(r, batch*k*n)
				host := planOf(t, kernels.HostDevice(), by, kernels.Float32, batch, m, n, k, transA, transB)
				list := []*kernels.Plan{host}
				for _, dev := range tensorDevices {
					list = append(list, planBy(t, Product{Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}, Round: by}.problem(dev), Form(by)))
				}
				for _, p := range list {
					reducedRun(t, p, a, b, by, batch, m, n, k, transA, transB)
					plans[by] = append(plans[by], p)
				}
			}
		}
		checkLaunches(t, plans[by]...)
	}
}

// planBy plans a problem by the first kernel that reads operands in a form, however small it is.
func planBy(t *testing.T, x problem, f Form) *kernels.Plan {
	t.Helper()
	p := newPlan(x.Product)
	for _, c := range slices.Concat(table...) {
		if c.form == f && c.can(&x) {
			list := c.cuts(&x, new(candidate), nil)
			c.emit(p, &x, list[0])
			return p
		}
	}
	t.Fatalf("no kernel on %s reads operands in %v", x.dev.Name, f)
	return nil
}

// The product of an operand that is Inf, or rounds to it, is Inf or NaN, and that of NaN is NaN.
func TestMatMulReducedNonFinite(t *testing.T) {
	const k = 20
	inf := float32(math.Inf(1))
	for _, by := range []kernels.Precision{kernels.TF32, kernels.BF16, kernels.F16} {
		for _, c := range []struct{ x, y, want float32 }{{inf, 1, inf}, {inf, 0, float32(math.NaN())}, {float32(math.NaN()), 0, float32(math.NaN())},
			{math.MaxFloat32, 1, inf}, {math.MaxFloat32, -1, -inf}, {0x1p-133, 1, by.Round(0x1p-133)}, {65520, 1, by.Round(65520)}, {65519, 1, by.Round(65519)}, {0x1p-24, 1, 0x1p-24}} {
			a, b, out := make([]float32, 3*k), make([]float32, k*2), make([]float32, 6)
			a[k+7] = c.x
			b[7*2+1] = c.y
			p := planOf(t, kernels.HostDevice(), by, kernels.Float32, 1, 3, 2, k, false, false)
			if err := p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out), nil); err != nil {
				t.Fatal(err)
			}
			if got := out[3]; got != c.want && (got == got || c.want == c.want) {
				t.Errorf("%v: %g times %g gives %g, want %g", by, c.x, c.y, got, c.want)
			}
		}
	}
}

// Operands that lie as TMA reads them are not moved; products that are small for the kernel, vectors, float64 and other GPUs
// have the plans of full precision.
func TestMatMulReducedPlan(t *testing.T) {
	hopper, ampere, turing := tensorDevices[0], tensorDevices[1], tensorDevices[0]
	turing.Major = 7
	for _, c := range []struct {
		dev            kernels.Device
		by             kernels.Precision
		dt             kernels.Dtype
		m, n, k        int64
		transA, transB bool
		want           []string
	}{
		{hopper, kernels.BF16, kernels.Float32, 4096, 4096, 4096, false, false, []string{"matmul_round_bf16", "matmul_hopper_bf16"}},
		{hopper, kernels.BF16, kernels.Float32, 4096, 512, 784, false, true, []string{"matmul_round_bf16", "matmul_hopper_bf16"}},
		{hopper, kernels.BF16, kernels.Float32, 1000, 1000, 784, false, true, []string{"matmul_round_bf16", "matmul_hopper_bf16"}},
		{hopper, kernels.TF32, kernels.Float32, 1000, 1000, 784, false, true, []string{"matmul_hopper_tf32"}},
		{hopper, kernels.TF32, kernels.Float32, 784, 512, 4096, false, true, []string{"matmul_hopper_tf32", "matmul_combine_f32"}},
		{hopper, kernels.BF16, kernels.Float32, 4096, 4095, 4096, true, true, []string{"matmul_round_bf16", "matmul_hopper_bf16"}},
		{hopper, kernels.TF32, kernels.Float32, 4096, 4096, 4096, false, true, []string{"matmul_hopper_tf32"}},
		{hopper, kernels.TF32, kernels.Float32, 4096, 4096, 4095, false, true, []string{"matmul_round_tf32", "matmul_hopper_tf32"}},
		{hopper, kernels.TF32, kernels.Float32, 4096, 4096, 4096, true, false, []string{"matmul_round_tf32", "matmul_hopper_tf32"}},
		{ampere, kernels.TF32, kernels.Float32, 128, 512, 784, false, false, []string{"matmul_small_f32", "matmul_combine_f32"}},
		{hopper, kernels.BF16, kernels.Float64, 2048, 2048, 2048, false, false, []string{"matmul_double"}},
		{hopper, kernels.F16, kernels.Float32, 4096, 4096, 4096, false, false, []string{"matmul_round_f16", "matmul_hopper_f16"}},
		{ampere, kernels.F16, kernels.Float32, 4096, 4096, 4096, true, false, []string{"matmul_round_f16", "matmul_mma_f16_tn"}},
		{turing, kernels.F16, kernels.Float32, 4096, 4096, 4096, false, false, []string{"matmul_large_f32"}},
		{turing, kernels.BF16, kernels.Float32, 4096, 4096, 4096, false, false, []string{"matmul_large_f32"}},
		{ampere, kernels.BF16, kernels.Float32, 4096, 4096, 4096, true, false, []string{"matmul_round_bf16", "matmul_mma_bf16_tn"}},
		{ampere, kernels.TF32, kernels.Float32, 4096, 4096, 4096, false, true, []string{"matmul_mma_round_tf32", "matmul_mma_tf32_nt"}},
		{ampere, kernels.TF32, kernels.Float32, 2048, 2048, 64, true, false, []string{"matmul_mma_round_tf32", "matmul_mma_tf32_nt"}},
		{kernels.HostDevice(), kernels.BF16, kernels.Float64, 20, 20, 20, false, false, []string{"matmul_small_f64"}},
	} {
		p := planOf(t, c.dev, c.by, c.dt, 1, c.m, c.n, c.k, c.transA, c.transB)
		var got []string
		for _, l := range p.Launches {
			got = append(got, l.Kernel.Entry)
		}
		is := func(got, want string) bool { return got == want || isHopper(c.dev) && strings.HasPrefix(got, want) } // predicted times decide between tiles
		if !slices.EqualFunc(got, c.want, is) {
			t.Errorf("%v in %v: got %v, want %v", p.Op, c.by, got, c.want)
		}
	}
}

// A product that writes its result rounded, too, has the bits of Prepare.
func TestProductAlsoInHalves(t *testing.T) {
	r := testutil.Random(t)
	f, err := expr.Parse("select(c < 0, -0, c + 0)", kernels.Float32, "c")
	if err != nil {
		t.Fatal(err)
	}
	for i, dev := range slices.Repeat(append(tensorDevices, kernels.HostDevice()), 2) { // an odd number
		by := []kernels.Precision{kernels.BF16, kernels.F16}[i%2]
		form := Form(by)
		product, ok := Product{Dtype: kernels.Float32, Batch: 3, M: 140, N: 96, K: 70, A: Operand{Form: form}, B: Operand{Form: form, Trans: true}, Round: by}.With(f)
		with, can := product.AlsoIn(form, dev)
		if !ok || !can {
			t.Fatalf("%v on %s: want one with an epilogue that writes its result rounded", product, dev.Name)
		}
		p, err := with.Plan(dev)
		if err != nil {
			t.Fatal(err)
		}
		checkLaunches(t, p)
		in := make([][]byte, 2)
		for i, bytes := range p.Inputs {
			x := make([]uint16, bytes/2)
			roundRows(by, uniform(r, bytes/2), x, 1, bytes/2, bytes/2)
			in[i] = kernels.Bytes(x)
		}
		out := kernels.Bytes(slices.Repeat([]uint32{0xffffffff}, int(p.Out/4)))
		if err := p.Run(in, out, nil); err != nil {
			t.Fatal(err)
		}
		d, _ := by.Half()
		half, zeros := kernels.Elements[uint16](out[p.Parts[1]:]), 0
		for i, v := range kernels.Elements[float32](out[:3*140*96*4]) {
			if got, want := float64(expr.FromHalf(d, half[i])), exactly[by](float64(v)); got != want {
				t.Fatalf("on %s: element %d is %v and %v, want %v", dev.Name, i, v, got, want)
			}
			if v == 0 {
				zeros++
			}
		}
		if zeros < 1000 || zeros > 3*140*96-1000 {
			t.Errorf("on %s: %d elements are 0 after a rectifier", dev.Name, zeros)
		}
	}
	for _, p := range []Product{{Batch: 1, M: 500, N: 500, K: 5000, Round: kernels.BF16}, {Batch: 1, M: 500, N: 503, K: 100, Round: kernels.BF16}, {Batch: 1, M: 500, N: 504, K: 100, Round: kernels.TF32}} {
		p.A.Form, p.B.Form = Form(p.Round), Form(p.Round)
		if with, ok := p.AlsoIn(BF16, matmulDevices[1]); ok {
			t.Errorf("%v of %d columns and %d terms: writes its result rounded, want none", with, p.N, p.K)
		}
		p.Also = BF16
		if _, err := p.Plan(matmulDevices[1]); err == nil {
			t.Errorf("%v of %d columns and %d terms: no error for halves", p, p.N, p.K)
		}
	}
}

// A product that stores its result in 16 bits, and whose epilogue reads operands in 16 bits, has the bits of the product in float32, rounded.
func TestProductStored(t *testing.T) {
	r, check := testutil.Random(t), new(kernels.Checker)
	f := testutil.Get[expr.Func](t)(expr.Parse("c + x + y", kernels.Float32, "c", "x", "y"))
	for _, dev := range append(tensorDevices, kernels.HostDevice()) {
		for i, c := range []kernels.Dtype{kernels.Float32, expr.BF16, kernels.Float32, expr.F16} {
			half := []kernels.Dtype{expr.BF16, expr.F16}[i/2]
			for _, types := range [][]kernels.Dtype{{kernels.Float32, half}, {half, half}, {half, kernels.Float32}} {
				by := map[kernels.Dtype]kernels.Precision{expr.BF16: kernels.BF16, expr.F16: kernels.F16}[half]
				batch, m, n, k := 1+r.Int64N(3), 130+r.Int64N(40), 8*(12+r.Int64N(8)), 64+r.Int64N(60)
				views := []codegen.View{{Elements: n, Strides: []int{0, 0, 1}}, {Elements: 1 + batch*m*n, Offset: 1, Strides: []int{int(m * n), int(n), 1}}}
				product, ok := Product{Dtype: kernels.Float32, Batch: batch, M: m, N: n, K: k, A: Operand{Form: Form(by)}, B: Operand{Form: Form(by), Trans: r.IntN(2) == 1}, Round: by}.With(f, views...)
				stored, can := product.Stored(c, types, dev)
				if !ok || !can {
					t.Fatalf("%v on %s: want one that stores %v with operands in %v", product, dev.Name, c, types)
				}
				plan, want := testutil.Get[*kernels.Plan](t)(stored.Plan(dev)), testutil.Get[*kernels.Plan](t)(product.Plan(dev))
				testutil.Do(t, check.Check(plan))
				in, full := make([][]byte, 4), make([][]byte, 4)
				for i := range in {
					n := want.Inputs[i] / 4
					if i < 2 {
						n *= 2
					}
					x, numbers := make([]uint16, n), make([]float32, n)
					roundRows(by, uniform(r, 4*n), x, 1, n, n)
					for k, v := range x {
						numbers[k] = expr.FromHalf(half, v)
					}
					in[i], full[i] = kernels.Bytes(numbers), kernels.Bytes(numbers)
					if i < 2 {
						in[i], full[i] = kernels.Bytes(x), kernels.Bytes(x)
					} else if types[i-2] == half {
						in[i] = kernels.Bytes(x)
					}
				}
				out, wanted := kernels.Bytes(slices.Repeat([]uint32{0xffffffff}, int(plan.Out/4))), kernels.Bytes(make([]uint32, want.Out/4))
				testutil.Do(t, plan.Run(in, out, nil))
				testutil.Do(t, want.Run(full, wanted, nil))
				if c == half {
					rounded, sums := make([]uint16, want.Out/4), kernels.Elements[float32](wanted)
					roundRows(by, sums, rounded, 1, int64(len(sums)), int64(len(sums)))
					wanted = kernels.Bytes(rounded)
				}
				if !bytes.Equal(out, wanted) {
					t.Fatalf("%v on %s with operands in %v: other bits than %v", stored, dev.Name, types, product)
				}
			}
		}
	}
	product := Product{Dtype: kernels.Float32, Batch: 1, M: 500, N: 504, K: 100, A: Operand{Form: BF16}, B: Operand{Form: BF16}, Round: kernels.BF16}
	for _, change := range []func(*Product){func(p *Product) { p.N = 503 }, func(p *Product) { p.M, p.N, p.K = 100, 104, 5000 }, func(p *Product) { p.Round, p.A.Form, p.B.Form = kernels.TF32, TF32, TF32 }, func(p *Product) { p.A.Form, p.B.Form = Plain, Plain }} {
		p := product
		change(&p)
		if stored, ok := p.Stored(expr.BF16, nil, matmulDevices[1]); ok {
			t.Errorf("%v of %d columns and %d terms: stores BF16, want none", stored, p.N, p.K)
		}
		p.C = BF16
		if _, err := p.Plan(matmulDevices[1]); err == nil {
			t.Errorf("%v of %d columns and %d terms: no error for C in BF16", p, p.N, p.K)
		}
	}
}
