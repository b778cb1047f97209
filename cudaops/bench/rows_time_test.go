package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/codegen"
	"github.com/stheno-ml/stheno/kernels/expr"
	"github.com/stheno-ml/stheno/kernels/expr/exprtest"
)

// The times of functions of rows, and the bandwidth that they reach, a line each, of
// those that the regular expression STHENO_TIMES matches, such as "softmax over.*4096".
func TestRowsTimes(t *testing.T) {
	w := newStopwatch(t)
	shapes := []exprtest.RowShape{
		{Shape: []int{16384, 128}, Axes: []int{1}}, {Shape: []int{16384, 1000}, Axes: []int{1}}, {Shape: []int{16384, 4096}, Axes: []int{1}}, {Shape: []int{16384, 32768}, Axes: []int{1}}, {Shape: []int{16384, 1021}, Axes: []int{1}},
		{Shape: []int{16384, 2048}, Axes: []int{1}}, {Shape: []int{8192, 8192}, Axes: []int{1}}, {Shape: []int{4096, 16384}, Axes: []int{1}},
		{Shape: []int{1 << 20, 7}, Axes: []int{1}}, {Shape: []int{100, 1_000_000}, Axes: []int{1}},
	}
	functions := testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(expr.Float32))
	sum := functions[5]
	times := func(f exprtest.RowFunction, s exprtest.RowShape) {
		name := fmt.Sprintf("%s over %v of %v", f.Name, s.Axes, s.Shape)
		if !w.wants(name) {
			return
		}
		p := testutil.Get[*kernels.Plan](t)(codegen.Rows(w.dev, f.Func, s.Shape, s.Axes, f.PerRow, viewsOf(f.Views(s))...))
		w.plan(name, p, uniformInputs(p), p.Bytes(), 100*time.Millisecond)
	}
	for _, s := range shapes {
		for _, f := range functions {
			times(f, s)
		}
	}
	for _, s := range []exprtest.RowShape{
		{Shape: []int{16384, 10}, Axes: []int{1}}, {Shape: []int{128, 10}, Axes: []int{1}}, {Shape: []int{16384, 4096}, Axes: []int{0}}, {Shape: []int{4096, 512}, Axes: []int{0}},
		{Shape: []int{1 << 20, 64}, Axes: []int{0}}, {Shape: []int{1 << 28}, Axes: []int{0}}, {Shape: []int{64, 256, 56, 56}, Axes: []int{0, 2, 3}}, {Shape: []int{64, 1000, 49}, Axes: []int{1}},
	} {
		times(sum, s)
	}
	for _, s := range []exprtest.RowShape{{Shape: []int{16384, 10}, Axes: []int{1}}, {Shape: []int{128, 10}, Axes: []int{1}}, {Shape: []int{64, 1000, 49}, Axes: []int{1}},
		{Shape: []int{16384, 1001}, Axes: []int{1}}} {
		times(functions[0], s)
	}
	double := testutil.Get[[]exprtest.RowFunction](t)(exprtest.RowFunctions(expr.Float64))
	for _, columns := range []int{1000, 4096} {
		for _, f := range double {
			f.Name = "float64 " + f.Name
			times(f, exprtest.RowShape{Shape: []int{16384, columns}, Axes: []int{1}})
		}
	}
	double[5].Name = "float64 sum"
	times(double[5], exprtest.RowShape{Shape: []int{16384}, Axes: []int{0}})
	for _, columns := range []int{50_257, 65536, 100_003, 128_256} { // more than a thread holds, or in shared memory
		for _, f := range []int{0, 2, 3, 4} {
			times(functions[f], exprtest.RowShape{Shape: []int{2048, columns}, Axes: []int{1}})
		}
	}
}

var numbers []float32 // random ones

// uniform returns bytes of random float32 between 0 and 1.
func uniform(bytes int64, seed int) []byte {
	n := int(bytes/4) + 4*seed
	if len(numbers) < n {
		r := rand.New(rand.NewPCG(1, 2))
		few := make([]float32, 1<<20+7)
		for i := range few {
			few[i] = r.Float32()
		}
		numbers = make([]float32, n)
		for at := 0; at < n; at += len(few) {
			copy(numbers[at:], few)
		}
	}
	return kernels.Bytes(numbers[4*seed : n])
}

// uniformInputs returns operands of a plan, float32 between 0 and 1.
func uniformInputs(p *kernels.Plan) (inputs [][]byte) {
	for i, bytes := range p.Inputs {
		inputs = append(inputs, uniform(bytes, i))
	}
	return inputs
}

// drawnRows are functions of rows of shapes that nobody chose, which together move 4 MB to 1 GB.
func drawnRows(seed uint64, n int) (cases []graphspec.Case) {
	r := rand.New(rand.NewPCG(seed, 1))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, r.Float64()) }
	for len(cases) < n {
		k := len(cases) % 7
		moves := 3.0
		if k < 3 {
			moves = 2
		}
		elements := between(4e6, 1e9) / 4 / moves
		columns := int(between(2, 1e6))
		rows := int(elements) / columns
		if rows < 1 || rows > 1_000_000 {
			continue
		}
		switch name := []string{"softmax", "log-softmax", "layer norm"}[k%3]; {
		case k < 3:
			cases = append(cases, graphspec.Rowwise(name, rows, columns))
		case k < 6:
			cases = append(cases, graphspec.RowwiseGradient(name, rows, columns))
		default:
			cases = append(cases, graphspec.CrossEntropy(rows, columns))
		}
	}
	return cases
}

// The times of functions of rows as users of Gorgonia write them, of drawn shapes: those that the
// regular expression STHENO_TIMES matches.
func TestDrawnRowsTimes(t *testing.T) {
	w := newStopwatch(t)
	for _, c := range drawnRows(20261122, 35) {
		name := fmt.Sprintf("drawn %s of %s", c.Name, c.Size)
		if !w.wants(name) {
			continue
		}
		g, _ := c.Graph(c.Values(kernels.Elements[float32](uniform(4<<20, 0))))
		timing := testutil.Get[*GraphTiming](t)(TimeGraph(0, g, nil, 9, 60*time.Millisecond))
		us, rate, share := w.rate(timing.Runs, c.Bytes())
		t.Logf("%-52s %9.2f us, %d launches, %6.0f MB %6.0f GB/s %4.0f %% of copy", name, us, timing.Launches, float64(c.Bytes())/1e6, rate, share)
	}
}
