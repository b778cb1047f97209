package passes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// collectives are the ops with their definitions: out of all ranks for x of all ranks.
var collectives = map[string]struct {
	build  func(x *gorgonia.Node, n int) (*gorgonia.Node, error)
	define func(x [][]float64) [][]float64
}{
	"AllReduce sum": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.AllReduce(x, ops.SumOfRanks) },
		func(x [][]float64) [][]float64 { return slices.Repeat([][]float64{total(x, 1)}, len(x)) }},
	"AllReduce mean": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.AllReduce(x, ops.MeanOfRanks) },
		func(x [][]float64) [][]float64 {
			return slices.Repeat([][]float64{total(x, float64(len(x)))}, len(x))
		}},
	"BroadcastFrom": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.BroadcastFrom(x, n-1) },
		func(x [][]float64) [][]float64 { return slices.Repeat(x[len(x)-1:], len(x)) }},
	"AllGather": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.AllGather(x, n) },
		func(x [][]float64) [][]float64 { return slices.Repeat([][]float64{slices.Concat(x...)}, len(x)) }},
	"ReduceScatter sum": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.ReduceScatter(x, n, ops.SumOfRanks) },
		func(x [][]float64) [][]float64 {
			return slices.Collect(slices.Chunk(total(x, 1), len(x[0])/len(x)))
		}},
	"ReduceScatter mean": {
		func(x *gorgonia.Node, n int) (*gorgonia.Node, error) { return ops.ReduceScatter(x, n, ops.MeanOfRanks) },
		func(x [][]float64) [][]float64 {
			return slices.Collect(slices.Chunk(total(x, float64(len(x))), len(x[0])/len(x)))
		}},
}

func total(x [][]float64, over float64) []float64 {
	sum := make([]float64, len(x[0]))
	for _, of := range x {
		for i, v := range of {
			sum[i] += v / over
		}
	}
	return sum
}

// Collectives and their adjoints compute their definitions at every stage, on ranks with values of their own. Derivatives are central
// differences of the sum of all ranks' losses, which are quadratic, so that the differences are exact. Operands are transposed, so that
// a copy precedes the collective.
func TestCollectives(t *testing.T) {
	for name, of := range collectives {
		t.Run(name, func(t *testing.T) {
			r := testutil.Random(t)
			n, cols := 1+r.IntN(4), 1+r.IntN(5)
			rows := n * (1 + r.IntN(3))
			g := gorgonia.NewGraph()
			x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(cols, rows), gorgonia.WithName("x"))
			y := testutil.Get[*gorgonia.Node](t)(of.build(gorgonia.Must(gorgonia.Transpose(x)), n))
			k := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithShape(y.Shape()...), gorgonia.WithName("k"))
			cost := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(k, gorgonia.Must(gorgonia.Square(y))))))
			testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(cost, x))
			graph := testutil.Get[*lower.Graph](t)(lower.New(g, &lower.Wanted{Ranks: n, Keep: gorgonia.Nodes{y, x.Deriv()}}))
			p := graph.Program

			xs, ks := make([][]float64, n), make([][]float64, n) // x as the transposed value
			inputs := make([][]gorgonia.Value, n)
			for rank := range n {
				xs[rank], ks[rank] = normal(r, rows*cols), normal(r, y.Shape().TotalSize())
				for _, in := range graph.Inputs {
					v := tensor.New(tensor.WithShape(y.Shape()...), tensor.WithBacking(ks[rank]))
					if in.Node == x {
						v = tensor.New(tensor.WithShape(cols, rows), tensor.WithBacking(transposed(xs[rank], rows, cols)))
					}
					inputs[rank] = append(inputs[rank], v)
				}
			}
			want := of.define(xs)
			loss := func() (sum float64) {
				for rank, out := range of.define(xs) {
					for i, v := range out {
						sum += ks[rank][i] * v * v
					}
				}
				return sum
			}
			derivatives := make([][]float64, n)
			for rank := range n {
				d := make([]float64, rows*cols)
				for i, v := range xs[rank] {
					const h = 0.5
					xs[rank][i] = v + h
					above := loss()
					xs[rank][i] = v - h
					d[i] = (above - loss()) / (2 * h)
					xs[rank][i] = v
				}
				derivatives[rank] = transposed(d, rows, cols)
			}
			index := map[*gorgonia.Node]int{}
			for _, o := range graph.Outputs {
				index[o.Node] = o.Index
			}
			check := func(pass string, p *program.Program) error {
				if err := program.Verify(p); err != nil {
					return err
				}
				out, _, err := p.StepRanks(inputs, make([][]gorgonia.Value, n))
				if err != nil {
					return err
				}
				for rank := range n {
					for of, want := range map[*gorgonia.Node][]float64{y: want[rank], x.Deriv(): derivatives[rank]} {
						got := kernels.Elements[float64](testutil.Get[[]byte](t)(values.Bytes(values.Compact(out[rank][index[of]]))))
						for i := range want {
							if len(got) != len(want) || !(math.Abs(got[i]-want[i]) <= 1e-12*(1+math.Abs(want[i]))*float64(n*n)) {
								return fmt.Errorf("%s, rank %d of %d, node %v: got %v, want %v", pass, rank, n, of, got, want)
							}
						}
					}
				}
				return nil
			}
			testutil.Do(t, passes.Run(p, passes.Target{Device: kernels.HostDevice()}, check))
			if n > 1 {
				if _, err := p.Eval(inputs[0]); err == nil {
					t.Errorf("one rank of %d: got no error", n)
				}
			}
		})
	}
}

func normal(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = r.NormFloat64()
	}
	return x
}

// transposed returns a matrix of rows x cols transposed.
func transposed(x []float64, rows, cols int) []float64 {
	out := make([]float64, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

// Ranks that disagree with the op are an error of lowering that names both numbers.
func TestOtherRanks(t *testing.T) {
	for _, ranks := range []int{0, 1, 2, 4} {
		g := gorgonia.NewGraph()
		x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(6, 2), gorgonia.WithName("x"))
		testutil.Get[*gorgonia.Node](t)(ops.AllGather(x, 3))
		want := fmt.Sprintf("got %d ranks, want the 3 of AllGather[3]", max(ranks, 1))
		if _, err := lower.New(g, &lower.Wanted{Ranks: ranks}); err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%d ranks: got error %v, want %s", ranks, err, want)
		}
	}
}
