package bench

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// productRow is the time of a candidate of a product, with the grid, block and bytes of shared memory of its launches. Chosen is that of
// the plan.
type productRow struct {
	Device         string
	Dtype, Round   string
	Batch, M, N, K int64
	TransA, TransB bool
	Name           string
	Launches       [][3]int
	Scratch        int64
	Chosen         bool
	Us             float64
}

// sweptProducts are those that were slower than their baselines on an H100.
var sweptProducts = []gemm.Product{
	{Dtype: f32, Batch: 1, M: 1024, N: 1, K: 1024},
	{Dtype: f32, Batch: 1, M: 10, N: 1, K: 10000},
	{Dtype: f32, Batch: 1, M: 1, N: 10000, K: 64},
	{Dtype: f32, Batch: 1, M: 4099, N: 1, K: 4099, A: gemm.Operand{Trans: true}},
	{Dtype: f32, Batch: 1, M: 64, N: 4096, K: 4096},
	{Dtype: f32, Batch: 1, M: 100, N: 4096, K: 4096},
	{Dtype: f32, Batch: 1, M: 128, N: 4096, K: 4096},
	{Dtype: f32, Batch: 1, M: 64, N: 4096, K: 4096, B: gemm.Operand{Trans: true}},
	{Dtype: f32, Batch: 1, M: 4096, N: 128, K: 4096, A: gemm.Operand{Trans: true}},
	{Dtype: f32, Batch: 1, M: 10000, N: 128, K: 784},
	{Dtype: f32, Batch: 1, M: 784, N: 128, K: 10000, A: gemm.Operand{Trans: true}},
	{Dtype: f32, Batch: 1, M: 511, N: 513, K: 512},
	{Dtype: f32, Batch: 512, M: 100, N: 100, K: 100},
	{Dtype: f64, Batch: 1, M: 512, N: 512, K: 512},
	{Dtype: f64, Batch: 1, M: 3001, N: 3001, K: 3001},
	{Dtype: f64, Batch: 1, M: 64, N: 4096, K: 4096},
}

// The times of all candidates of products, as lines of JSON in products.json of the folder STHENO_RECORD. STHENO_SWEEP_PRODUCTS has the number of
// drawn products, their seed and for how many seconds: "150 7 50". A negative number leaves out those of [sweptProducts].
func TestSweepProducts(t *testing.T) {
	fields := strings.Fields(os.Getenv("STHENO_SWEEP_PRODUCTS"))
	if len(fields) == 0 {
		t.Skip("SKIPPED, NOT TIMED: STHENO_SWEEP_PRODUCTS is not set")
	}
	var numbers [3]int
	for i, f := range fields {
		numbers[i] = testutil.Get[int](t)(strconv.Atoi(f))
	}
	r := rand.New(rand.NewPCG(uint64(numbers[1]), 35))
	var cases []gemm.Product
	if numbers[0] > 0 {
		cases = append(cases, sweptProducts...)
	}
	for range max(numbers[0], -numbers[0]) {
		cases = append(cases, drawProduct(r))
	}
	g := sweepGPU(t, r)
	defer g.Close()
	done := sweep(t, g, "products.json", numbers[2], cases, func(p gemm.Product) ([]string, []*kernels.Plan) {
		names, plans, err := p.Candidates(g.Device())
		testutil.Do(t, err)
		return names, plans
	}, func(p gemm.Product, k int, name string, plan *kernels.Plan, us float64) any {
		row := productRow{g.Device().Name, p.Dtype.String(), p.Round.String(), p.Batch, p.M, p.N, p.K, p.A.Trans, p.B.Trans, name, nil, plan.Scratch, k == 0, us}
		for _, l := range plan.Launches {
			row.Launches = append(row.Launches, [3]int{l.Grid[0], l.Block[0], l.Shared})
		}
		return row
	})
	if done < len(cases) {
		t.Logf("out of time after %d of %d products", done, len(cases))
	}
}

// drawProduct draws a product of operands of up to 1 GB and 2^33 multiply-adds.
func drawProduct(r *rand.Rand) gemm.Product {
	for {
		size := func(low, high float64) int64 { return logUniform(r, low, high) }
		p := gemm.Product{Dtype: f32, Batch: 1, A: gemm.Operand{Trans: r.IntN(2) == 0}, B: gemm.Operand{Trans: r.IntN(2) == 0}}
		switch n := r.IntN(20); {
		case n < 5:
			p.Dtype = f64
		case n < 8:
			p.Round = kernels.TF32
		case n < 12:
			p.Round = kernels.BF16
		}
		switch r.IntN(6) {
		case 0:
			p.M, p.N, p.K = size(16, 8192), size(16, 8192), size(16, 8192)
		case 1: // few rows
			p.M, p.N, p.K = size(2, 192), size(256, 12000), size(64, 12000)
		case 2: // a vector
			p.M, p.N, p.K = 1, size(16, 30000), size(16, 30000)
		case 3:
			if p.Batch, p.M, p.N, p.K = size(2, 1000), size(4, 600), size(4, 600), size(4, 600); r.IntN(2) == 0 {
				p.M, p.N, p.K = size(65, 300), size(65, 300), size(65, 300)
			}
		case 4: // near a cube
			n := float64(size(64, 2500))
			p.M, p.N, p.K = size(n/1.5, n*1.5), size(n/1.5, n*1.5), size(n/1.5, n*1.5)
		case 5: // few terms
			p.M, p.N, p.K = size(64, 16000), size(64, 16000), size(1, 64)
		}
		if r.IntN(2) == 0 {
			p.M, p.N = p.N, p.M
		}
		if p.Batch*(p.M*p.K+p.K*p.N+p.M*p.N) <= 1<<28/p.Dtype.Size()*4 && p.Batch*p.M*p.N*p.K <= 1<<33 {
			return p
		}
	}
}
