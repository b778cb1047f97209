package basic_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// ranked returns the indices of a row from the largest element on.
func ranked(x []float64) []int64 {
	order := make([]int64, len(x))
	for i := range order {
		order[i] = int64(i)
	}
	slices.SortFunc(order, func(i, j int64) int {
		a, b := x[i], x[j]
		switch {
		case a > b || math.IsNaN(a) && !math.IsNaN(b):
			return -1
		case a < b || math.IsNaN(b) && !math.IsNaN(a):
			return 1
		}
		return cmp.Compare(i, j)
	})
	return order
}

// drawRow draws a row: random, rising, falling, of few values, of few that differ in their last bits, of 16 bits, all equal, or with special values.
func drawRow(r *rand.Rand, x []float64) {
	kind, scale := r.IntN(9), math.Exp(3*r.NormFloat64())
	for i := range x {
		switch v := float64(float32(scale * r.NormFloat64())); kind {
		case 1:
			x[i] = float64(i)
		case 2:
			x[i] = -float64(i)
		case 3:
			x[i] = float64(r.IntN(3))
		case 4:
			x[i] = -1
		case 7:
			x[i] = -2 + 0x1p-22*float64(r.IntN(5))
		case 8:
			x[i] = float64(math.Float32frombits(math.Float32bits(float32(v)) &^ 0xffff))
		case 5:
			x[i] = v
			if r.IntN(10) == 0 {
				x[i] = []float64{math.NaN(), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0}[r.IntN(5)]
			}
		default:
			x[i] = v
		}
	}
}

// TopK returns the indices of a stable sort, NaN first, and Largest their elements too.
func TestTopK(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 24 {
			n := int64(math.Exp(r.Float64() * math.Log(60_000)))
			rows := 1 + r.Int64N(max(100_000/n, 1))
			if testing.Short() {
				rows = min(rows, 3)
			}
			k := 1 + r.Int64N(min(n, []int64{4, 60, basic.MaxTopK}[i%3]))
			dt, dev := []kernels.Dtype{kernels.Float32, kernels.Float64}[i/3%2], m.devices[i%2]
			x := make([]float64, rows*n)
			for row := range rows {
				drawRow(r, x[row*n:(row+1)*n])
			}
			l := basic.Largest{Dtype: dt, Rows: rows, N: n, K: k, Values: i/6%2 == 0}
			p := testutil.Get[*kernels.Plan](t)(l.Plan(dev))
			packed := exprtest.Pack(dt, x)
			out := m.output(t, p, packed)
			got := kernels.Elements[int64](out[:rows*k*8])
			for e := int64(0); l.Values && e < rows*k; e++ {
				size, at := dt.Size(), e/k*n+got[e]
				if !bytes.Equal(out[p.Parts[1]+e*size:][:size], packed[at*size:][:size]) {
					t.Fatalf("%v: value %d has other bits than element %d", p, e, at)
				}
			}
			for row := range rows {
				if want := ranked(x[row*n : (row+1)*n])[:k]; !slices.Equal(got[row*k:(row+1)*k], want) {
					t.Fatalf("%v: row %d is %v, want %v", p, row, got[row*k:(row+1)*k], want)
				}
			}
		}
	})
}

// Blocks estimate a threshold from the first elements of a row. Rows whose first elements are unlike the others have the same largest elements.
func TestTopKUnlikeSample(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 24 {
			n, rows, k := 9000+r.Int64N(60_000), []int64{1, 2, 7}[i%3], 1+r.Int64N([]int64{3, 60, 500, basic.MaxTopK}[i%4])
			if testing.Short() {
				rows = 1
			}
			dt, dev := []kernels.Dtype{kernels.Float32, kernels.Float64}[i%2], m.devices[i/2%2]
			x := make([]float64, rows*n)
			for row := range rows {
				shift, first := []float64{30, -30, math.Inf(1), math.Inf(-1), math.NaN(), 3}[r.IntN(6)], int64(math.Exp(r.Float64()*math.Log(float64(n))))
				for e := range n {
					v := float64(float32(r.NormFloat64()))
					if e < first {
						v = float64(float32(v + shift))
					}
					x[row*n+e] = v
				}
			}
			p := testutil.Get[*kernels.Plan](t)(basic.TopK(dev, dt, rows, n, k))
			got := kernels.Elements[int64](m.output(t, p, exprtest.Pack(dt, x)))
			for row := range rows {
				if want := ranked(x[row*n : (row+1)*n])[:k]; !slices.Equal(got[row*k:(row+1)*k], want) {
					t.Fatalf("%v: row %d is %v, want %v", p, row, got[row*k:(row+1)*k], want)
				}
			}
		}
	})
}

// A draw is the element at which the cumulative probability in float64 exceeds u, or one beside it if u is within rounding of a boundary.
func TestCategorical(t *testing.T) {
	onMachines(t, func(t *testing.T, r *rand.Rand, m machine) {
		for i := range 40 {
			n := int64(math.Exp(r.Float64() * math.Log(20_000)))
			rows := 1 + r.Int64N(5)
			if i%4 == 0 {
				rows = 140 // more than there are SMs
				n = min(n, 3000)
			}
			if testing.Short() {
				n = min(n, 6000)
				rows = min(rows, 3)
			}
			dt, dev := []kernels.Dtype{kernels.Float32, kernels.Float64}[i%2], m.devices[i/2%2]
			c := draws{dt: dt, rows: rows, n: n, x: make([]float64, rows*n), state: [2]int64{r.Int64(), r.Int64N(1 << 32)}, stream: r.Int64N(1 << 31)}
			for row := range rows {
				if drawRow(r, c.x[row*n:(row+1)*n]); r.IntN(3) > 0 {
					for e := range n {
						if at := &c.x[row*n+e]; math.IsNaN(*at) || math.IsInf(*at, 1) {
							*at = math.Inf(-1)
						}
					}
				}
			}
			each := func(set func() float64) (list []float64) {
				for range []int64{1, rows}[r.IntN(2)] {
					list = append(list, set())
				}
				return list
			}
			mode := i / 4 % 5
			c.temperature = each(func() float64 { return float64(float32([]float64{1, 0, math.Exp(r.NormFloat64())}[r.IntN(3)])) })
			c.k = each(func() float64 {
				return float64([]int64{0, 1 + r.Int64N(50), 1 + r.Int64N(n), n + 7, 1 + r.Int64N(min(n, 1024))}[[]int{0, 1, 2, r.IntN(5), r.IntN(5)}[mode]])
			})
			c.p = each(func() float64 {
				return float64(float32([]float64{1, r.Float64(), .999}[[]int{0, 0, 1, 1, r.IntN(3)}[mode]]))
			})
			c.check(t, m, dev)
		}
	})
}

// draws is a case of TestCategorical.
type draws struct {
	dt                kernels.Dtype
	rows, n           int64
	x                 []float64
	temperature, k, p []float64
	state             [2]int64
	stream            int64
}

func (c draws) plan(t *testing.T, dev kernels.Device) *kernels.Plan {
	t.Helper()
	return testutil.Get[*kernels.Plan](t)(basic.Categorical(dev, c.dt, basic.Draws{Rows: c.rows, N: c.n,
		Temperature: int64(len(c.temperature)), K: int64(len(c.k)), P: int64(len(c.p)), Stream: c.stream}))
}

func (c draws) inputs() [][]byte {
	return [][]byte{exprtest.Pack(c.dt, c.x), exprtest.Pack(c.dt, c.temperature), exprtest.Pack(kernels.Int64, c.k), exprtest.Pack(c.dt, c.p), kernels.Bytes(c.state[:])}
}

func (c draws) check(t *testing.T, m machine, dev kernels.Device) {
	t.Helper()
	p := c.plan(t, dev)
	got := kernels.Elements[int64](m.output(t, p, c.inputs()...))
	for row := range c.rows {
		words := exprtest.Philox([4]uint32{uint32(row / 2), 0, uint32(c.stream), uint32(c.state[1])}, [2]uint32{uint32(c.state[0]), uint32(c.state[0] >> 32)})
		u := (float64(words[row%2*2+1]) + float64(words[row%2*2])/(1<<32)) / (1 << 32)
		of := func(list []float64) float64 { return list[int(row)%len(list)] }
		if err := c.wrong(c.x[row*c.n:(row+1)*c.n], of(c.temperature), of(c.k), of(c.p), u, got[row]); err != "" {
			t.Fatalf("%v: row %d, temperature %v, k %v, p %v, u %v: %s", p, row, of(c.temperature), of(c.k), of(c.p), u, err)
		}
	}
}

// wrong says what is wrong with a draw, if anything is.
func (c draws) wrong(x []float64, temperature, k, p, u float64, got int64) string {
	falling := ranked(x)
	if top := x[falling[0]]; math.IsNaN(top) || math.IsInf(top, 0) {
		if got != -1 {
			return fmt.Sprintf("got %d, want -1, since the largest is %v", got, top)
		}
		return ""
	}
	if got < 0 || got >= int64(len(x)) {
		return fmt.Sprintf("got %d of %d", got, len(x))
	}
	if temperature == 0 {
		if got != falling[0] {
			return fmt.Sprintf("got %d, want the largest, %d", got, falling[0])
		}
		return ""
	}
	order, n := falling, len(x)
	if k >= 1 && int(k) < n {
		n = int(k)
	} else if p >= 1 {
		order = make([]int64, n)
		for i := range order {
			order[i] = int64(i)
		}
	}
	mass := func(i int64) float64 { return math.Exp((x[i] - x[falling[0]]) / temperature) }
	total := 0.
	for _, i := range order[:n] {
		total += mass(i)
	}
	near := 1e-5 // of the total: of float32 exponentials, and of p
	if c.dt == kernels.Float64 {
		near = 1e-11
	}
	// The sum that p keeps is between these, and so are the bounds of the element that was drawn.
	low, high := total, total
	if p < 1 {
		low, high = 0, 0
		sum := 0.
		for _, i := range order[:n] {
			before := sum
			sum += mass(i)
			if low == 0 && sum >= (p-near)*total {
				low = sum
			}
			if before < (p+near)*total {
				high = sum
			}
		}
	}
	sum := 0.
	for _, i := range order[:n] {
		before := sum
		if sum += mass(i); i != got {
			continue
		}
		if mass(i) == 0 || sum < u*low-near*total || before > u*high+near*total {
			return fmt.Sprintf("got %d, from %v to %v of %v, want it at %v to %v", got, before, sum, total, u*low, u*high)
		}
		return ""
	}
	return fmt.Sprintf("got %d, which k excludes", got)
}
