package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// normProgram is a graph of norms or random numbers on a tensor, and how many times the
// tensor's bytes it must move.
type normProgram struct {
	name  string
	shape []int
	moves int64
	build func(x, scale, bias *G.Node) *G.Node
	// gradient adds the sum of the output's products with weights, and its derivatives.
	gradient bool
}

func normPrograms() (list []normProgram) {
	batch := func(x, scale, bias *G.Node) *G.Node {
		y, _, _, _, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		return G.Must(y, err)
	}
	evaluated := func(x, scale, bias *G.Node) *G.Node {
		y, _, _, op, err := G.BatchNorm(x, scale, bias, 0.9, 1e-5)
		if err == nil {
			err = op.SetTraining(false)
		}
		return G.Must(y, err)
	}
	group := func(x, scale, bias *G.Node) *G.Node {
		return G.Must(G.GroupNorm(x, scale, bias, 32, x.Shape()[1], 1e-5))
	}
	drop := func(x, _, _ *G.Node) *G.Node { return G.Must(G.Dropout(x, 0.25)) }
	for _, shape := range [][]int{{64, 256, 128, 128}, {256, 64, 128, 128}, {1 << 18, 1024}} {
		list = append(list, normProgram{"batch norm", shape, 3, batch, false}, normProgram{"batch norm, gradient", shape, 6, batch, true})
	}
	large, small := []int{64, 256, 128, 128}, []int{1024, 256, 32, 32}
	return append(list,
		normProgram{"batch norm, evaluating", large, 2, evaluated, false},
		normProgram{"group norm", large, 3, group, false}, normProgram{"group norm, gradient", large, 6, group, true},
		normProgram{"group norm", small, 2, group, false}, normProgram{"group norm, gradient", small, 3, group, true},
		normProgram{"dropout", large, 2, drop, false}, normProgram{"dropout, gradient", large, 3, drop, true},
		normProgram{"uniform", large, 1, func(x, _, _ *G.Node) *G.Node {
			return G.UniformRandomNode(x.Graph(), tensor.Float32, 0, 1, x.Shape()...)
		}, false},
		normProgram{"gaussian", large, 1, func(x, _, _ *G.Node) *G.Node {
			return G.GaussianRandomNode(x.Graph(), tensor.Float32, 0, 1, x.Shape()...)
		}, false})
}

// graph makes the program's graph, its inputs bound to random numbers.
func (p normProgram) graph(t *testing.T) *G.ExprGraph {
	g := G.NewGraph()
	input := func(name string, shape ...int) *G.Node {
		v, memory := values.New(kernels.Float32, shape)
		copy(memory, uniform(int64(len(memory)), len(name)))
		return G.NewTensor(g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(v))
	}
	factors := slices.Repeat([]int{1}, len(p.shape))
	factors[1] = p.shape[1]
	x, scale, bias := input("x", p.shape...), input("scale", factors...), input("bias", factors...)
	y := p.build(x, scale, bias)
	if p.gradient {
		by := G.Nodes{x, scale, bias}
		if p.name == "dropout, gradient" {
			by = by[:1]
		}
		loss := G.Must(G.Sum(G.Must(G.HadamardProd(y, input("weights", p.shape...)))))
		testutil.Get[G.Nodes](t)(G.Grad(loss, by...))
	}
	return g
}

// The times of norms, dropout and random tensors of 1 GB, as a share of the time that a copy takes
// for the bytes that they must move, of those that the regular expression STHENO_TIMES
// matches.
func TestNormTimes(t *testing.T) {
	w := newStopwatch(t)
	for _, p := range normPrograms() {
		name := fmt.Sprintf("%s of %v", p.name, p.shape)
		if !w.wants(name) {
			continue
		}
		timing := testutil.Get[*GraphTiming](t)(TimeGraph(0, p.graph(t), nil, 15, 300*time.Millisecond))
		us, rate, share := w.rate(timing.Runs, 4*p.moves*kernels.Count(p.shape))
		t.Logf("%-46s %9.1f us, %d launches, %6.0f GB/s, %4.0f %% of copy, host %v", name, us, timing.Launches, rate, share, timing.Host)
	}
}
