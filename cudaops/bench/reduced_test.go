package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// reducedForms are products in BF16, F16 and TF32 small enough for sanitizers, on a device with so few SMs that
// they are rounded.
var reducedForms = []struct {
	sms            int
	batch, m, n, k int64
}{
	{1, 1, 130, 201, 128}, {2, 1, 260, 641, 65}, {8, 1, 130, 257, 260}, {1, 2, 129, 66, 67}, {4, 1, 130, 380, 200}, {8, 1, 90, 100, 2100}, {2, 3, 128, 256, 64},
	{2, 1, 300, 400, 90}, {4, 1, 130, 120, 300}, {8, 2, 70, 190, 330},
}

// significant are the bits of a number of a precision.
var significant = map[kernels.Precision]int{kernels.TF32: 11, kernels.BF16: 8, kernels.F16: 11}

// Every form is exact where numbers are whole, have as many bits as the precision keeps, and their sums are small.
func TestReducedForms(t *testing.T) {
	r := random(t)
	for i, dev := range productDevices(t) {
		kernel := ""
		if i > 0 {
			kernel = "matmul_mma_"
		} else if dev.Major == 9 {
			kernel = "matmul_hopper_"
		}
		reducedOn(t, r, dev, kernel)
	}
}

// reducedOn runs the forms on a device, by kernels whose names begin with kernel, if that is known.
func reducedOn(t *testing.T, r *rand.Rand, dev kernels.Device, kernel string) {
	for i, f := range reducedForms {
		dev.SMs = f.sms
		for transposes := range 4 {
			if testing.Short() && transposes != i%4 {
				continue // a checker follows every access
			}
			for by, bits := range significant {
				transA, transB := transposes >= 2, transposes%2 == 1
				of := ""
				if kernel != "" {
					of = kernel + strings.ToLower(by.String())
				}
				p := candidate(t, dev, of, by, f.batch, f.m, f.n, f.k, transA, transB)
				t.Run(fmt.Sprintf("%s transposed %v %v on %d.%d", p.Op, transA, transB, dev.Major, dev.Minor), func(t *testing.T) {
					most := [2]int{1, 1<<bits - 1}
					small := r.IntN(2) // the operand of small numbers, so that sums are exact
					whole := func(operand int) float32 {
						most := most[(operand+small)%2]
						return float32(r.IntN(2*most+1) - most)
					}
					reduced(t, p, f.batch, f.m, f.n, f.k, transA, transB, whole, func(x float32) float64 { return float64(x) }, 0)
				})
			}
		}
	}
}

// reduced runs a plan of a product of numbers that are drawn, and compares with plain loops over rounded ones; an element may be off by
// that share of the sum of its terms' magnitudes.
func reduced(t *testing.T, p *kernels.Plan, batch, m, n, k int64, transA, transB bool, draw func(operand int) float32, round func(float32) float64, share float64) {
	t.Helper()
	a, b, out := make([]float32, batch*m*k), make([]float32, batch*k*n), make([]float32, batch*m*n)
	var rounded [2][]float64
	for operand, x := range [][]float32{a, b} {
		for i := range x {
			x[i] = draw(operand)
			rounded[operand] = append(rounded[operand], round(x[i]))
		}
	}
	testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
	wanted, magnitude := productsOf(rounded[0], rounded[1], batch, m, n, k, transA, transB)
	for i, got := range out {
		if want := wanted[i]; !(math.Abs(float64(got)-want) <= share*magnitude[i]) && float64(got) != want && (got == got || want == want) {
			t.Fatalf("%v: c[%d][%d][%d] = %v, want %v", p, int64(i)/(m*n), int64(i)/n%m, int64(i)%n, got, want)
		}
	}
}

// Products of random numbers of sizes that are drawn are those of rounded operands, within the error of float32 sums.
func TestReducedRandom(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		reducedRandomOn(t, r, dev)
	}
}

func reducedRandomOn(t *testing.T, r *rand.Rand, dev kernels.Device) {
	dev.SMs = 1 + r.IntN(2)
	for range 12 {
		batch, m, n, k := 1+r.Int64N(3), 105+r.Int64N(200), 105+r.Int64N(200), 200+r.Int64N(500)
		for by, bits := range significant {
			reducedDrawn(t, r, dev, "", by, bits, batch, m, n, k)
			if testing.Short() {
				return
			}
		}
	}
}

// reducedDrawn compares a product, by a kernel if that is named, of drawn numbers and transposes, of operands rounded to so many bits, with its definition.
func reducedDrawn(t *testing.T, r *rand.Rand, dev kernels.Device, kernel string, by kernels.Precision, bits int, batch, m, n, k int64) {
	transA, transB, spread := r.IntN(2) == 1, r.IntN(2) == 1, r.IntN(2)*20
	p := candidate(t, dev, kernel, by, batch, m, n, k, transA, transB)
	round := func(x float32) float64 { return exprtest.Round(float64(x), bits) }
	if by == kernels.F16 {
		spread /= 2 // numbers that F16 has, subnormal ones among them
		round = func(x float32) float64 { return exprtest.RoundF16(float64(x)) }
	}
	draw := func(int) float32 { return float32(math.Ldexp(r.NormFloat64(), r.IntN(2*spread+1)-spread)) }
	reduced(t, p, batch, m, n, k, transA, transB, draw, round, float64(k)*0x1p-23)
}

// A number times 1 is rounded as Precision.Round says, to the bit: ties, subnormals, numbers that round to Inf, Inf and NaN. It is
// the only one in its row of A, since Inf times 0 is NaN.
func TestReducedRounding(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		reducedRoundingOn(t, r, dev, "", 1, 64)
	}
}

// reducedRoundingOn checks the rounding of operands by products of k terms, planned for a device with sms SMs.
func reducedRoundingOn(t *testing.T, r *rand.Rand, dev kernels.Device, kernel string, sms, k int) {
	dev.SMs = sms
	const m, n = 2048, 65
	for by := range significant {
		for _, transA := range []bool{false, true} {
			a, b, out := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
			for i := range b {
				b[i] = 1
			}
			x := make([]float32, m)
			for i := range m {
				x[i] = exprtest.HardFloat32(r, i)
				l := r.IntN(k)
				if transA {
					a[l*m+i] = x[i]
				} else {
					a[i*k+l] = x[i]
				}
			}
			p := candidate(t, dev, kernel, by, 1, m, n, int64(k), transA, false)
			testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out)))
			wrong := 0
			for i, v := range x {
				got, want := out[i*n+i%n], by.Round(v)
				if got != want && (got == got || want == want) {
					if wrong++; wrong < 20 {
						t.Errorf("%v transposed %v: %#08x = %g becomes %#08x = %g, want %#08x = %g", by, transA,
							math.Float32bits(v), v, math.Float32bits(got), got, math.Float32bits(want), want)
					}
				}
			}
			if wrong > 0 {
				t.Errorf("%v transposed %v: %d of %d are wrong", by, transA, wrong, m)
			}
		}
	}
}

// An epilogue computes the bits of a kernel after the product.
func TestReducedEpilogues(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		reducedEpiloguesOn(t, r, dev)
	}
}

func reducedEpiloguesOn(t *testing.T, r *rand.Rand, dev kernels.Device) {
	for i, f := range reducedForms {
		dev.SMs = f.sms
		for j, text := range epilogues {
			if testing.Short() && j != i {
				continue // a checker follows every access
			}
			transposes := (i + j) % 4
			for by := range significant {
				if testing.Short() && int(by)%3 != i%3 {
					continue
				}
				p := gemm.Product{Dtype: kernels.Float32, Batch: f.batch, M: f.m, N: f.n, K: f.k, A: gemm.Operand{Trans: transposes >= 2}, B: gemm.Operand{Trans: transposes%2 == 1}, Round: by}
				t.Run(fmt.Sprintf("%v %dx%dx%dx%d %v on %d.%d", p, f.batch, f.m, f.n, f.k, text, dev.Major, dev.Minor), func(t *testing.T) {
					finishProduct[float32](t, r, dev, p, text)
				})
			}
		}
	}
}

// A matrix in 16 bits times a vector in 16 bits, or a vector times a matrix that is stored transposed: sums in float32, also of Inf and NaN, with the same bits in each run.
func TestReducedVectors(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		for i, by := range slices.Repeat([]kernels.Precision{kernels.BF16, kernels.F16}, 3) {
			k := 8 * (1 + r.Int64N([]int64{16, 128, 800}[i%3]))
			rows := (1<<22)/k + 1 + r.Int64N(40)
			reducedVector(t, r, dev, by, rows, k, r.IntN(2) == 0)
		}
	}
}

func reducedVector(t *testing.T, r *rand.Rand, dev kernels.Device, by kernels.Precision, rows, k int64, left bool) {
	t.Helper()
	form, d := gemm.Form(by), half(by)
	p := gemm.Product{Dtype: kernels.Float32, Batch: 1, M: 1, N: rows, K: k, A: gemm.Operand{Form: form}, B: gemm.Operand{Form: form, Trans: true}, Round: by}
	if left {
		p.M, p.N = rows, 1
	}
	plan := testutil.Get[*kernels.Plan](t)(p.Plan(dev))
	if want := "matmul_rows_" + d.String(); dev.Major >= 8 && plan.Launches[0].Kernel.Entry != want {
		t.Errorf("%v: got %s, want %s", plan, plan.Launches[0].Kernel.Entry, want)
	}
	few := make([]uint16, 1<<14+5)
	for i := range few {
		few[i] = expr.ToHalf(d, float32(r.NormFloat64()))
	}
	x, v := make([]uint16, rows*k), make([]uint16, k)
	for at := range x {
		x[at] = few[(at+at>>14)%len(few)]
	}
	for at := range v {
		v[at] = few[r.IntN(len(few))]
	}
	for range 5 {
		x[r.Int64N(rows*k)] = expr.ToHalf(d, float32([]float64{math.Inf(1), math.Inf(-1), math.NaN()}[r.IntN(3)]))
	}
	inputs := [][]byte{kernels.Bytes(v), kernels.Bytes(x)}
	if left {
		slices.Reverse(inputs)
	}
	var out [2][]float32
	for i := range out {
		out[i] = make([]float32, rows)
		testutil.Do(t, Run(0, plan, inputs, kernels.Bytes(out[i])))
	}
	for row, got := range out[0] {
		var want, abs float64
		for l, f := range v {
			term := float64(expr.FromHalf(d, x[int64(row)*k+int64(l)])) * float64(expr.FromHalf(d, f))
			want, abs = want+term, abs+math.Abs(term)
		}
		if finite := !math.IsNaN(want) && !math.IsInf(want, 0); finite && !(math.Abs(float64(got)-want) <= 0x1p-20*abs) || !finite && float64(got) != want && (got == got || want == want) {
			t.Fatalf("%v: row %d is %v, want %v", plan, row, got, want)
		}
		if math.Float32bits(got) != math.Float32bits(out[1][row]) {
			t.Fatalf("%v: row %d has other bits in the second run", plan, row)
		}
	}
}

// A product with a second, rounded output has the same bits as one without, and the rounded output has those of Rounded.
func TestReducedHalves(t *testing.T) {
	r := random(t)
	for _, dev := range productDevices(t) {
		for _, by := range []kernels.Precision{kernels.BF16, kernels.F16} {
			reducedHalvesOn(t, r, dev, by)
		}
	}
}

func reducedHalvesOn(t *testing.T, r *rand.Rand, dev kernels.Device, by kernels.Precision) {
	plan, d := testutil.Get[*kernels.Plan](t), half(by)
	for i, f := range reducedForms {
		dev.SMs = f.sms
		for j, text := range append([]string{""}, epilogues...) {
			if testing.Short() && (j != i || int(by)%2 != i%2) {
				continue // a checker follows every access
			}
			n := (f.n + 7) / 8 * 8
			product := gemm.Product{Dtype: kernels.Float32, Batch: f.batch, M: f.m, N: n, K: f.k, A: gemm.Operand{Trans: j%2 == 1}, B: gemm.Operand{Trans: j%4 > 1}, Round: by}
			operands := make([][]byte, 2, 4)
			for k, x := range []gemm.Prepare{{Rows: f.m, Cols: f.k}, {Rows: f.k, Cols: n}} {
				if x.Form, x.Batch = gemm.Form(by), f.batch; k == 0 && product.A.Trans || k == 1 && product.B.Trans {
					x.Rows, x.Cols = x.Cols, x.Rows
				}
				p := plan(x.Plan(dev))
				operands[k] = make([]byte, p.Out)
				testutil.Do(t, Run(0, p, [][]byte{kernels.Bytes(somewhat[float32](r, p.Inputs[0]/4, 4000))}, operands[k]))
			}
			if text != "" {
				names, views := []string{"c"}, []codegen.View(nil)
				for k := range operandsOf(text) {
					v := codegen.View{Elements: n, Strides: []int{0, 0, 1}}
					names, views = append(names, fmt.Sprint("x", k)), append(views, v)
					operands = append(operands, kernels.Bytes(somewhat[float32](r, n, 5)))
				}
				var ok bool
				if product, ok = product.With(testutil.Get[expr.Func](t)(expr.Parse(text, kernels.Float32, names...)), views...); !ok {
					t.Fatalf("%s is not an epilogue", text)
				}
			}
			with, ok := rounded(product).AlsoIn(gemm.Form(by), dev)
			if !ok {
				continue // splits
			}
			one, two := plan(rounded(product).Plan(dev)), plan(with.Plan(dev))
			want, got := make([]float32, f.batch*f.m*n), make([]byte, two.Out)
			testutil.Do(t, Run(0, one, operands, kernels.Bytes(want)))
			testutil.Do(t, Run(0, two, operands, got))
			c, halves := kernels.Elements[float32](got), kernels.Elements[uint16](got[two.Parts[1]:])
			for i, v := range want {
				if math.Float32bits(c[i]) != math.Float32bits(v) || halves[i] != expr.ToHalf(d, v) && v == v {
					t.Fatalf("%v\nelement %d is %v and %#04x, want %v and %#04x", two, i, c[i], halves[i], v, expr.ToHalf(d, v))
				}
			}
			for _, dense := range []bool{false, true} {
				storedHalves(t, r, dev, product, text, operands, dense)
			}
		}
	}
}

// half returns the type that holds operands of a precision in 16 bits.
func half(by kernels.Precision) kernels.Dtype {
	d, _ := by.Half()
	return d
}

// storedHalves checks that a product which stores its result in 16 bits, and reads operands of its epilogue in 16 bits, has the bits of the
// product in float32. Operands are drawn views, or if dense a row of float32, such as a bias, then matrices in 16 bits.
func storedHalves(t *testing.T, r *rand.Rand, dev kernels.Device, product gemm.Product, text string, matrices [][]byte, dense bool) {
	plan, by, half := testutil.Get[*kernels.Plan](t), product.Round, half(product.Round)
	for _, c := range []kernels.Dtype{kernels.Float32, half} {
		names, views, types := []string{"c"}, []codegen.View(nil), []kernels.Dtype(nil)
		full, in := slices.Clone(matrices[:2]), slices.Clone(matrices[:2])
		for k := range operandsOf(text) {
			n := product.Batch*product.M*product.N + r.Int64N(9)
			strides, d := []int{int(product.M * product.N), int(product.N), 1}, []kernels.Dtype{kernels.Float32, half}[r.IntN(2)]
			if r.IntN(3) == 0 {
				strides = []int{0, 0, 1}
			}
			v := codegen.View{Elements: n, Offset: r.Int64N(1 + n - product.Batch*product.M*product.N), Strides: strides}
			if dense {
				v.Offset, v.Strides, d = 0, []int{int(product.M * product.N), int(product.N), 1}, half
				if k == 0 {
					v.Strides, d = []int{0, 0, 1}, kernels.Float32
				}
			}
			names, views, types = append(names, fmt.Sprint("x", k)), append(views, v), append(types, d)
			numbers, halves := somewhat[float32](r, n, 5), make([]uint16, n)
			for i, x := range numbers {
				numbers[i] = by.Round(x)
				halves[i] = expr.ToHalf(half, x)
			}
			if full = append(full, kernels.Bytes(numbers)); d == half {
				in = append(in, kernels.Bytes(halves))
			} else {
				in = append(in, kernels.Bytes(numbers))
			}
		}
		product := product
		if text != "" {
			product, _ = product.With(testutil.Get[expr.Func](t)(expr.Parse(text, kernels.Float32, names...)), views...)
		}
		stored, ok := rounded(product).Stored(c, types, dev)
		if !ok {
			t.Fatalf("%v stores no %v with operands in %v", product, c, types)
		}
		if dev.Kind == kernels.CPU || dev.Major != 9 { // there the choice is the same
			one, two := plan(rounded(product).Plan(dev)), plan(stored.Plan(dev))
			sameStored(t, one, two, by, c, full, in)
			continue
		}
		// Parts of K have sums of their own: plans of one candidate have the same bits.
		names, _, ones, err := gemm.Candidates(rounded(product), dev)
		testutil.Do(t, err)
		same, _, twos, err := gemm.Candidates(stored, dev)
		testutil.Do(t, err)
		for tried, at := range append([]int{0}, r.Perm(len(same))...) {
			if tried > 3 || testing.Short() && tried > 1 {
				break
			}
			i := slices.Index(names, same[at])
			if i < 0 {
				t.Fatalf("%v: %s is no candidate of the product in float32, of %v", stored, same[at], names)
			}
			sameStored(t, ones[i], twos[at], by, c, full, in)
		}
	}
}

// sameStored compares the result of a plan, stored in a type, with that of one in float32.
func sameStored(t *testing.T, one, two *kernels.Plan, by kernels.Precision, c kernels.Dtype, full, in [][]byte) {
	t.Helper()
	want, got := make([]float32, one.Out/4), make([]byte, two.Out)
	testutil.Do(t, Run(0, one, full, kernels.Bytes(want)))
	testutil.Do(t, Run(0, two, in, got))
	for i, v := range want {
		var x float32
		if c == half(by) {
			v, x = by.Round(v), expr.FromHalf(c, kernels.Elements[uint16](got)[i])
		} else {
			x = kernels.Elements[float32](got)[i]
		}
		if math.Float32bits(x) != math.Float32bits(v) && v == v {
			t.Fatalf("%v\nelement %d is %v, want %v", two, i, x, v)
		}
	}
}

// Every candidate of drawn products of prepared operands, whose K clusters divide in parts, computes what the definition does, and the same bits in each run,
// with results in float32 and in 16 bits and an epilogue.
func TestReducedParts(t *testing.T) {
	r, dev := random(t), device0(t)
	if dev.Major != 9 {
		t.Skip("SKIPPED: clusters of these kernels are those of 9.0")
	}
	products, parts := 12, 0
	if testing.Short() {
		products = 2
	}
	for i := range products {
		by := []kernels.Precision{kernels.BF16, kernels.F16, kernels.TF32}[i%3]
		size := func(high float64) int64 { return logUniform(r, 1, high) }
		p := gemm.Product{Dtype: f32, Batch: 1 + r.Int64N(2), M: 10 + size(500), N: 10 + size(500), K: 64 + size(1500), A: gemm.Operand{Trans: r.IntN(2) == 0, Form: gemm.Form(by)}, B: gemm.Operand{Trans: r.IntN(2) == 0, Form: gemm.Form(by)}, Round: by}
		c := f32
		if by != kernels.TF32 && r.IntN(3) > 0 {
			p.N, c = (p.N+7)/8*8, half(by)
		}
		var inputs [][]byte
		var numbers [2][]float64
		for k, x := range p.Prepares(gemm.Form(by)) {
			values := convert(between1(r, x.Batch*x.Rows*x.Cols), func(e float64) float32 { return by.Round(float32(e)) })
			plan := testutil.Get[*kernels.Plan](t)(x.Plan(dev))
			inputs, numbers[k] = append(inputs, make([]byte, plan.Out)), make([]float64, len(values))
			for e, v := range values {
				numbers[k][e] = float64(v)
			}
			testutil.Do(t, Run(0, plan, [][]byte{kernels.Bytes(values)}, inputs[k]))
		}
		want, magnitude := productOf(p, numbers[0], numbers[1])
		if r.IntN(2) == 0 {
			bias := convert(between1(r, p.N), func(e float64) float32 { return float32(8 * e) })
			inputs = append(inputs, kernels.Bytes(bias))
			p, _ = p.With(testutil.Get[expr.Func](t)(expr.Parse("select(c + x < 0, -0, (c + x) + 0)", f32, "c", "x")), codegen.View{Elements: p.N, Strides: []int{0, 0, 1}})
			for e := range want {
				b := float64(bias[int64(e)%p.N])
				want[e], magnitude[e] = max(want[e]+b, 0), magnitude[e]+math.Abs(b)
			}
		}
		var ok bool
		if p, ok = p.Stored(c, make([]kernels.Dtype, len(inputs)-2), dev); !ok {
			t.Fatalf("%v of %d x %d x %d x %d: not stored as %v", p, p.Batch, p.M, p.K, p.N, c)
		}
		names, _, plans, err := gemm.Candidates(p, dev)
		testutil.Do(t, err)
		for at, plan := range plans {
			var out [2][]byte
			for run := range out[:repeats(2)] {
				out[run] = make([]byte, plan.Out)
				testutil.Do(t, Run(0, plan, inputs, out[run]))
			}
			if !testing.Short() && !slices.Equal(out[0], out[1]) {
				t.Fatalf("%v, %s: other bits in the second run", p, names[at])
			}
			if strings.HasPrefix(names[at], "hopper") && plan.Launches[len(plan.Launches)-1].Cluster > 2 {
				parts++
			}
			for e, w := range want {
				got, allowed := 0.0, 0x1p-19*magnitude[e]
				if c == f32 {
					got = float64(kernels.Elements[float32](out[0])[e])
				} else {
					got = float64(expr.FromHalf(c, kernels.Elements[uint16](out[0])[e]))
					allowed += math.Abs(w)*math.Ldexp(1, -significant[by]) + 0x1p-24
				}
				if !(math.Abs(got-w) <= allowed) {
					t.Fatalf("%v of %d x (%d x %d x %d) to %v, %s: element %d: got %v, want %v within %v\n%v", p, p.Batch, p.M, p.K, p.N, c, names[at], e, got, w, allowed, plan)
				}
			}
		}
	}
	t.Logf("%d plans with parts of K", parts)
	if parts < products {
		t.Errorf("got %d plans with parts of K, want %d or more", parts, products)
	}
}

// The times of products in each precision, and of those in reduced precision of operands that are rounded before.
func TestReducedTimes(t *testing.T) {
	w := newStopwatch(t)
	times := func(name string, p *kernels.Plan) {
		if !w.wants(name) {
			return
		}
		w.plan(name, p, uniformInputs(p), p.Bytes(), 40*time.Millisecond)
	}
	plan := testutil.Get[*kernels.Plan](t)
	for _, s := range []struct {
		m, n, k int64
		form    string
	}{
		{4096, 4096, 4096, "nn"}, {4096, 4096, 4096, "nt"}, {4096, 4096, 4096, "tn"}, {4096, 4096, 784, "nn"}, {784, 4096, 4096, "tn"},
		{4096, 512, 784, "nn"}, {784, 512, 4096, "tn"}, {4096, 512, 512, "nn"}, {4096, 512, 512, "nt"}, {512, 512, 4096, "tn"},
		{8192, 8192, 8192, "nn"}, {2048, 2048, 2048, "nt"}, {1024, 1024, 1024, "nt"}, {768, 768, 768, "nt"}, {512, 512, 512, "nt"}, {512, 512, 1024, "nt"}, {128, 512, 784, "nt"},
		{784, 512, 128, "nt"}, {128, 4096, 4096, "nt"}, {256, 1024, 1024, "nt"}, {4096, 4096, 10, "nt"}, {4096, 512, 10, "nt"},
	} {
		transA, transB := s.form[0] == 't', s.form[1] == 't'
		for _, by := range []kernels.Precision{kernels.FullPrecision, kernels.TF32, kernels.BF16, kernels.F16} {
			name := fmt.Sprintf("%dx%dx%d %s %v", s.m, s.n, s.k, s.form, by)
			if p := product(t, w.dev, by, kernels.Float32, 1, s.m, s.n, s.k, transA, transB); p.Precision == by {
				times(name, p)
			}
			if _, half := by.Half(); half || by == kernels.TF32 && s.form == "nt" {
				product := rounded(gemm.Product{Dtype: kernels.Float32, Batch: 1, M: s.m, N: s.n, K: s.k, A: gemm.Operand{Trans: transA}, B: gemm.Operand{Trans: transB}, Round: by})
				times(name+" rounded before", plan(product.Plan(w.dev)))
				if with, ok := product.AlsoIn(gemm.Form(by), w.dev); ok {
					times(name+" rounded before and after", plan(with.Plan(w.dev)))
				}
			}
		}
	}
	for _, s := range [][2]int64{{4096, 4096}, {4096, 784}, {4096, 512}, {784, 512}, {128, 784}} {
		for _, x := range []gemm.Prepare{{Form: gemm.BF16}, {Form: gemm.F16}, {Form: gemm.TF32, Trans: true}} {
			x.Batch, x.Rows, x.Cols = 1, s[0], s[1]
			times(fmt.Sprintf("%v %dx%d", x, s[0], s[1]), plan(x.Plan(w.dev)))
		}
	}
}

// The times of the launches of training steps.
func TestStepTimes(t *testing.T) {
	w := newStopwatch(t)
	r, block := random(t), make([]float32, 100_003)
	for i := range block {
		block[i] = 2*r.Float32() - 1
	}
	for _, s := range graphspec.Steps() {
		name := "step " + s.Name + " " + s.Size
		if !w.wants(name) {
			continue
		}
		p := s.Program(s.Values(block))
		timing := testutil.Get[*GraphTiming](t)(TimeGraph(0, p.Graph, &Training{Solver: s.Solver(), Learnables: p.Learnables, UpdateAlone: s.UpdateAlone, Precision: s.Precision}, 15, 200*time.Millisecond))
		t.Logf("%-60s %9.2f us, %d launches", name, float64(median(timing.Runs).Nanoseconds())/1e3, timing.Launches)
	}
}
