package gemm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
)

// matmulDevices are the host and a large GPU, whose plans run on the host too.
var matmulDevices = []kernels.Device{kernels.HostDevice(), {Name: "test", Major: 9, SMs: 132, SharedOptin: 227 << 10, L2: 50 << 20}}

// matmulCheck runs the plans for all devices on random matrices against plain loops in float64.
func matmulCheck[T kernels.Float](t *testing.T, r *rand.Rand, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) {
	t.Helper()
	var plans []*kernels.Plan
	for _, dev := range matmulDevices {
		plans = append(plans, planOf(t, dev, 0, dt, batch, m, n, k, transA, transB))
	}
	matmulRun[T](t, r, plans, dt, batch, m, n, k, transA, transB)
}

// checkLaunches compares the launches of plans with their entry points. Package kernels compares the images with the sources.
func checkLaunches(t *testing.T, plans ...*kernels.Plan) {
	t.Helper()
	var c kernels.Checker
	for _, p := range plans {
		if err := c.Check(p); err != nil {
			t.Error(err)
		}
	}
}

// planOf plans a product in a precision, full for 0.
func planOf(t testing.TB, dev kernels.Device, by kernels.Precision, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) *kernels.Plan {
	t.Helper()
	p, err := Product{Dtype: dt, Batch: batch, M: m, N: n, K: k, A: Operand{Trans: transA}, B: Operand{Trans: transB}, Round: by}.Plan(dev)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// matmulRun runs plans of a product.
func matmulRun[T kernels.Float](t *testing.T, r *rand.Rand, plans []*kernels.Plan, dt kernels.Dtype, batch, m, n, k int64, transA, transB bool) {
	t.Helper()
	a, b, outs := make([]T, batch*m*k), make([]T, batch*k*n), make([][]T, len(plans))
	for i := range a {
		a[i] = T(r.Float64()*2 - 1)
	}
	for i := range b {
		b[i] = T(r.Float64()*2 - 1)
	}
	for i, p := range plans {
		out, scratch := make([]T, batch*m*n), make([]T, p.Scratch/dt.Size())
		for _, s := range [][]T{out, scratch} {
			for i := range s {
				s[i] = T(math.NaN())
			}
		}
		if err := p.Run([][]byte{kernels.Bytes(a), kernels.Bytes(b)}, kernels.Bytes(out), kernels.Bytes(scratch)); err != nil {
			t.Fatal(err)
		}
		outs[i] = out
	}
	eps := 0x1p-23
	if dt == kernels.Float64 {
		eps = 0x1p-52
	}
	rowB, colB := n, int64(1)
	if transB {
		rowB, colB = 1, k
	}
	sums, abs := make([]float64, n), make([]float64, n)
	for z := range batch {
		for i := range m {
			clear(sums)
			clear(abs)
			for l := range k { // the sums of a row are independent of one another
				ia, ib := (z*m+i)*k+l, z*k*n+l*rowB
				if transA {
					ia = (z*k+l)*m + i
				}
				for j := range sums {
					x := float64(a[ia]) * float64(b[ib+int64(j)*colB])
					sums[j] += x
					abs[j] += math.Abs(x)
				}
			}
			for j, sum := range sums {
				for p, out := range outs {
					// Two sums of k terms, each at most k/2 eps from exact.
					if got := float64(out[(z*m+i)*n+int64(j)]); !(math.Abs(got-sum) <= eps*abs[j]*float64(k)) {
						t.Fatalf("%v, transposed %v %v: c[%d][%d][%d] = %g, want %g", plans[p], transA, transB, z, i, j, got, sum)
					}
				}
			}
		}
	}
}

func TestMatMul(t *testing.T) {
	sizes := [][4]int64{ // batch, m, n, k
		{1, 1, 1, 1}, {1, 5, 3, 4}, {1, 1, 37, 53}, {1, 53, 1, 37}, {1, 1, 1, 5003}, {1, 3, 1, 20011}, {1, 1, 130, 4099},
		{1, 129, 65, 31}, {1, 31, 17, 1}, {1, 7, 5, 2053}, {1, 200, 100, 300}, {7, 13, 9, 11}, {1000, 2, 3, 4}, {3, 1, 40, 700}, {140, 33, 8, 4},
		{30, 5, 300, 70}, {1, 40000, 3, 66}, {2, 8, 30000, 9}, {1, 17000, 11, 67}, {2, 5, 18000, 70}, // few rows or columns
		{1, 4, 5, 0}, {1, 4, 1, 0}, {0, 2, 2, 2}, {1, 0, 3, 3}, {1, 3, 0, 3},
	}
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	for range 10 {
		sizes = append(sizes, [4]int64{1 + r.Int64N(4), 1 + r.Int64N(80), 1 + r.Int64N(80), 1 + r.Int64N(300)})
	}
	for _, s := range sizes {
		for i := range 4 {
			matmulCheck[float32](t, r, kernels.Float32, s[0], s[1], s[2], s[3], i >= 2, i%2 == 1)
			matmulCheck[float64](t, r, kernels.Float64, s[0], s[1], s[2], s[3], i >= 2, i%2 == 1)
		}
	}
}

// 0 x Inf and 0 x NaN are NaN in every variant, as on a GPU.
func TestMatMulNonFinite(t *testing.T) {
	for _, dev := range matmulDevices {
		for i := range 4 {
			for _, s := range [][3]int64{{2, 2, 3}, {1, 4, 3}, {4, 1, 3}, {70, 200, 3}, {3, 3, 500}} {
				for _, bad := range []float32{float32(math.Inf(1)), float32(math.NaN())} {
					m, n, k := s[0], s[1], s[2]
					zero, full, out := make([]float32, m*k), make([]float32, k*n), make([]float32, m*n)
					for i := range full {
						full[i] = bad
					}
					p := planOf(t, dev, 0, kernels.Float32, 1, m, n, k, i >= 2, i%2 == 1)
					if err := p.Run([][]byte{kernels.Bytes(zero), kernels.Bytes(full)}, kernels.Bytes(out), nil); err != nil {
						t.Fatal(err)
					}
					for j, v := range out {
						if v == v {
							t.Fatalf("%v: out[%d] = %v of zeros times %v, want NaN", p, j, v, bad)
						}
					}
				}
			}
		}
	}
}

// plannedMatMul is a product and the kernels that its plan launches on a device; nil where predicted times decide, see [TestChoicesAreNearTheBest].
type plannedMatMul struct {
	dev            kernels.Device
	batch, m, n, k int64
	want           []string
}

// plannedMatMuls are products of all sizes on an H200, and some on devices with fewer instructions.
func plannedMatMuls() []plannedMatMul {
	hopper := matmulDevices[1]
	ampere, turing := hopper, hopper
	ampere.Major, turing.Major = 8, 7
	return []plannedMatMul{
		{hopper, 1, 4096, 4096, 4096, nil},
		{hopper, 1, 2000, 2000, 2000, nil},
		{hopper, 1, 1024, 1024, 1024, nil},
		{hopper, 1, 768, 768, 768, nil},
		{hopper, 1, 512, 512, 512, nil},
		{hopper, 1, 256, 256, 4096, nil},
		{hopper, 1, 8682, 5745, 55, nil},
		{hopper, 1, 3000, 3000, 55, nil},
		{hopper, 1, 1536, 1536, 1536, nil},
		{hopper, 1, 512, 512, 128, nil},
		{hopper, 1, 400, 400, 400, nil},
		{hopper, 1, 128, 512, 784, nil},
		{hopper, 1, 64, 64, 10000, nil},
		{hopper, 1, 128, 10, 512, nil},
		{hopper, 1, 512, 10, 4096, nil},
		{hopper, 1, 10, 4096, 512, nil},
		{hopper, 1, 4096, 512, 10, nil},
		{hopper, 5, 4, 82202, 351, nil},
		{hopper, 1, 7, 40000, 5000, nil},
		{hopper, 1, 9, 82202, 351, nil},
		{hopper, 1, 5, 3196, 242975, nil},
		{hopper, 1, 16, 200000, 400, nil},
		{hopper, 1, 1000000, 12, 90, nil},
		{hopper, 1, 10000, 10, 784, nil},
		{hopper, 1, 4096, 10, 4096, nil},
		{hopper, 1, 1647, 8, 80029, nil},
		{hopper, 200, 128, 128, 64, nil},
		{hopper, 100000, 8, 8, 8, nil},
		{hopper, 100, 9, 10, 7, nil},
		{hopper, 4096, 32, 32, 32, nil},
		{hopper, 1, 33, 250000, 1000, nil},
		{hopper, 1, 142, 14713, 3, nil},
		{hopper, 1, 4096, 4096, 3, nil},
		{hopper, 1, 4096, 4097, 7, nil},
		{hopper, 1, 1002, 135, 9, nil},
		{hopper, 20000, 5, 34, 7, nil},
		{hopper, 218, 401, 195, 7, nil},
		{hopper, 20000, 16, 16, 16, nil},
		{hopper, 1, 4, 5548, 55, nil},
		{hopper, 1, 277209, 8, 1, nil},
		{hopper, 1, 3, 1000000, 3, nil},
		{hopper, 1, 1000000, 1, 20, nil},
		{hopper, 1, 1, 8, 1000000, nil},
		{hopper, 1, 50304, 1, 768, nil},
		{hopper, 1, 100, 1, 10000, nil},
		{hopper, 1, 1, 2304, 768, nil},
		{hopper, 12, 1, 64, 1024, nil},
		{hopper, 1, 1, 2305, 768, nil},
		{hopper, 1, 1, 30000, 256, nil},
		{hopper, 1, 1, 768, 50304, nil},
		{ampere, 1, 4096, 4096, 4096, []string{"matmul_hopper_split", "matmul_hopper_rescale", "matmul_mma_f32_nn"}},
		{ampere, 1, 1024, 1024, 1024, []string{"matmul_hopper_split", "matmul_hopper_rescale", "matmul_mma_f32_nn", "matmul_combine_f32"}},
		{ampere, 1, 1000000, 12, 90, []string{"matmul_thin_f32"}},
		{turing, 1, 4096, 4096, 4096, []string{"matmul_large_f32"}},
		{turing, 1, 4097, 4097, 4097, []string{"matmul_large_f32"}},
		{turing, 1, 1024, 1024, 1024, []string{"matmul_medium_f32"}},
		{turing, 1, 128, 512, 784, []string{"matmul_small_f32", "matmul_combine_f32"}},
		{turing, 200, 128, 128, 64, []string{"matmul_short_f32"}},
		{turing, 100000, 8, 8, 8, []string{"matmul_tall_f32"}},
		{turing, 1, 1 << 17, 1, 4096, []string{"matmul_rows_f32"}},
		{turing, 1, 8, 1, 1 << 20, []string{"matmul_rows_f32", "matmul_join_f32"}},
		{turing, 1, 1, 1 << 20, 64, []string{"matmul_columns_f32"}},
		{turing, 1, 1, 4096, 4096, []string{"matmul_columns_f32", "matmul_join_f32"}},
	}
}

// The plan's choices on a device: which kernels, and every multiprocessor at work
// where there are terms enough to share.
func TestMatMulPlan(t *testing.T) {
	for _, c := range plannedMatMuls() {
		p := planOf(t, c.dev, 0, kernels.Float32, c.batch, c.m, c.n, c.k, false, false)
		var got []string
		for _, l := range p.Launches {
			got = append(got, l.Kernel.Entry)
			if l.Grid[0] < 1 || l.Grid[0] > math.MaxInt32 {
				t.Errorf("%v: a grid of %d blocks", p, l.Grid[0])
			}
		}
		if c.want != nil && !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", p.Op, got, c.want)
		}
		if grid := p.Launches[0].Grid[0]; len(got) > 1 && grid < c.dev.SMs/2 {
			t.Errorf("%v: %d blocks on %d multiprocessors", p, grid, c.dev.SMs)
		}
	}
}

func BenchmarkMatMul(b *testing.B) {
	const n = 512
	for _, form := range []string{"nn", "nt", "tn", "tt"} {
		b.Run(form, func(b *testing.B) {
			p := planOf(b, kernels.HostDevice(), 0, kernels.Float32, 1, n, n, n, form[0] == 't', form[1] == 't')
			x, out := kernels.Bytes(make([]float32, n*n)), kernels.Bytes(make([]float32, n*n))
			for i := range kernels.Elements[float32](x) {
				kernels.Elements[float32](x)[i] = float32(i%7) + 1
			}
			for b.Loop() {
				if err := p.Run([][]byte{x, x}, out, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(p.Flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}

// Operands whose rows and matrices are strided, or of one matrix for all, give what dense ones give, of whole numbers, whose sums are exact, on plans for every device.
func TestStridedProduct(t *testing.T) {
	r := testutil.Random(t)
	for range 60 {
		p := Product{Dtype: kernels.Dtype(r.IntN(2)), Batch: 1 + r.Int64N(3), M: 1 + r.Int64N(70), N: 1 + r.Int64N(70), K: r.Int64N(200)}
		p.A.Trans, p.B.Trans = r.IntN(2) == 0, r.IntN(2) == 0
		for _, dev := range matmulDevices {
			if p.Dtype == kernels.Float32 {
				stridedProduct[float32](t, r, dev, p)
			} else {
				stridedProduct[float64](t, r, dev, p)
			}
		}
	}
	if _, err := (Product{Batch: 1, M: 3, N: 3, K: 5, A: Operand{Row: 4}}).Plan(matmulDevices[0]); err == nil {
		t.Error("rows of 5 elements, 4 apart: no error")
	}
}

func stridedProduct[T kernels.Float](t *testing.T, r *rand.Rand, dev kernels.Device, p Product) {
	strided, in := p, [2][][]byte{}
	for i, x := range p.Prepares(Plain) {
		o := []*Operand{&strided.A, &strided.B}[i]
		o.Row = x.Cols + 1 + r.Int64N(9)
		o.Matrix = x.Rows*o.Row + r.Int64N(30)
		if r.IntN(3) == 0 {
			o.Shared, o.Matrix = true, 0
		}
		if r.IntN(3) == 0 {
			o.Row = x.Cols
		}
		from, to := make([]T, x.Batch*x.Rows*x.Cols), make([]T, o.extent(p.Batch, []int64{p.M, p.K}[i], []int64{p.K, p.N}[i]))
		for j := range to {
			to[j] = T(math.NaN())
		}
		for j := range from {
			from[j] = T(r.IntN(15) - 7)
			if one := x.Rows * x.Cols; o.Shared && int64(j) >= one {
				from[j] = from[int64(j)-one]
			}
			row := int64(j) / x.Cols
			to[row/x.Rows*o.Matrix+row%x.Rows*o.Row+int64(j)%x.Cols] = from[j]
		}
		in[0], in[1] = append(in[0], kernels.Bytes(from)), append(in[1], kernels.Bytes(to))
	}
	if got, want := run(t, strided, dev, in[1]), run(t, p, dev, in[0]); !slices.Equal(kernels.Elements[T](got), kernels.Elements[T](want)) {
		t.Errorf("%d matrices of %d x %d x %d of %v on %s, strides %+v and %+v: not the dense product", p.Batch, p.M, p.K, p.N, p.Dtype, dev.Name, strided.A, strided.B)
	}
}
