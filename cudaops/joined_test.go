package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Short reductions that share a launch have the sums of each, also where one has a NaN or an infinity.
func TestShortReductions(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		seed := testutil.Seed(t)
		r := rand.New(rand.NewPCG(seed, 1))
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, c := range []struct{ rows, columns, axis, n int }{{128, 512, 0, 2}, {128, 512, 1, 3}, {33, 7, 0, 8}, {1000, 100, 0, 9}, {2, 1000, 1, 2}} {
				t.Run(fmt.Sprint(dt, c), func(t *testing.T) {
					g := G.NewGraph()
					var xs, sums G.Nodes
					for k := range c.n {
						x := draw(r, dt, c.rows, c.columns)
						testutil.Do(t, x.SetAt(of(dt, []float64{math.NaN(), math.Inf(1), 1}[k%3]), r.IntN(c.rows), r.IntN(c.columns)))
						xs = append(xs, G.NewMatrix(g, dt, G.WithName(fmt.Sprint("x", k)), G.WithShape(c.rows, c.columns), G.WithValue(x)))
						sums = append(sums, testutil.Get[*G.Node](t)(G.Sum(xs[k], c.axis)))
					}
					vm := machine(t, g, on)
					testutil.Do(t, vm.RunAll())
					if launches := len(vm.Report().Steps); launches > (c.n+7)/8 {
						t.Errorf("%d sums took %d launches", c.n, launches)
					}
					for k, x := range xs {
						checkSums(t, fmt.Sprint("seed ", seed, " sum ", k), floats(t, sums[k].Value()), floats(t, x.Value()), c.rows, c.columns, c.axis, dt)
					}
				})
			}
		}
	})
}

// of returns a number as an element.
func of(dt tensor.Dtype, x float64) any {
	if dt == tensor.Float32 {
		return float32(x)
	}
	return x
}

// checkSums compares sums over an axis of a matrix with those in the order of its elements.
func checkSums(t *testing.T, what string, got, x []float64, rows, columns, axis int, dt tensor.Dtype) {
	t.Helper()
	most := map[tensor.Dtype]float64{tensor.Float32: 0x1p-23, tensor.Float64: 0x1p-45}[dt]
	kept := []int{columns, rows}[axis]
	want, size := make([]float64, kept), make([]float64, kept)
	for i, v := range x {
		at := []int{i % columns, i / columns}[axis]
		want[at], size[at] = want[at]+v, size[at]+math.Abs(v)
	}
	if len(got) != kept {
		t.Fatalf("%s: got %d, want %d", what, len(got), kept)
	}
	for i, w := range want {
		if same := got[i] == w || math.IsNaN(got[i]) && math.IsNaN(w); !same && !(math.Abs(got[i]-w) <= most*size[i]) {
			t.Fatalf("%s: number %d is %v, want %v", what, i, got[i], w)
		}
	}
}
