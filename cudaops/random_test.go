package cudaops

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// randomGraph makes a graph of Stheno's and of Gorgonia's ops on matrices of three
// rows, some of whose nodes are read.
func randomGraph(t *testing.T, seed uint64) *G.ExprGraph {
	node := testutil.Get[*G.Node](t)
	r := rand.New(rand.NewPCG(seed, 5))
	g := G.NewGraph()
	const rows = 3
	var pool G.Nodes
	var reads [8]G.Value
	cols := func() int { return 16 * (1 + r.IntN(40)) }
	fresh := func(c int) *G.Node {
		return G.NewMatrix(g, tensor.Float64, G.WithName(fmt.Sprint("x", len(pool))), G.WithShape(rows, c), G.WithValue(draw(r, tensor.Float64, rows, c)))
	}
	pool = append(pool, fresh(cols()), fresh(cols()))
	for i := range 10 + r.IntN(40) {
		a := pool[r.IntN(len(pool))]
		c := a.Shape()[1]
		switch r.IntN(11) {
		case 0:
			a = fresh(cols())
		case 1:
			a = node(G.Tanh(a))
		case 2:
			a = node(ops.Broadcast(node(ops.Mean(a, 1)), cols(), 1))
		case 3:
			a = node(G.Reshape(node(G.Reshape(a, tensor.Shape{c * rows})), tensor.Shape{rows, c}))
		case 4:
			if i < len(reads) {
				G.Read(a, &reads[i])
			}
			a = node(G.Sigmoid(node(ops.Add(a, a))))
		case 5:
			a = node(G.SoftMax(a, r.IntN(2)))
		case 6:
			a = node(G.LogSoftMax(a))
		case 7:
			a = node(ops.Broadcast(node(G.Max(a, 1)), cols(), 1))
		case 8:
			a = node(G.BroadcastHadamardProd(a, node(G.Mean(a, 1)), nil, []byte{1}))
		default:
			b := a
			for _, p := range pool {
				if p.Shape()[1] == c && r.IntN(2) == 0 {
					b = p
				}
			}
			a = node(ops.Add(a, b))
		}
		pool = append(pool, a)
	}
	return g
}

// Random graphs of ops of Stheno and of Gorgonia: right values, no two live
// values in one place, little waste.
func TestRandomGraphs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		worst := 0.0
		for seed := range uint64(25) {
			g := randomGraph(t, seed)
			vm := machine(t, g, on)
			testutil.Do(t, vm.RunAll())
			if err := program.Verify(vm.graph.Program); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if rep := vm.Report(); rep.Peak > 0 {
				ratio := float64(rep.Arena) / float64(rep.Peak)
				if worst = max(worst, ratio); ratio > 1.05 {
					t.Errorf("seed %d: arena %d, peak %d", seed, rep.Arena, rep.Peak)
				}
			}
			got := map[*G.Node]G.Value{}
			for _, o := range vm.graph.Outputs {
				if o.Read == nil {
					got[o.Node] = o.Node.Value()
				} else {
					equal(t, fmt.Sprintf("seed %d: read of %v", seed, o.Node), *o.Read, o.Node.Value(), 0)
				}
			}
			// The plainest machine: every op's Do in order.
			plain := map[*G.Node]G.Value{}
			for _, n := range vm.graph.Nodes {
				switch {
				case n.Op() == nil:
					plain[n.Node] = n.Node.Value()
				case n.Value != nil:
					var in []G.Value
					for _, c := range testutil.Get[G.Nodes](t)(internal.Children(n.Node)) {
						in = append(in, plain[c])
					}
					plain[n.Node] = testutil.Get[G.Value](t)(n.Op().Do(in...))
				}
			}
			for n, v := range got {
				equal(t, fmt.Sprintf("seed %d: %v", seed, n), v, plain[n], 1e-8) // Gorgonia cuts sigmoid off
			}
		}
		t.Logf("worst ratio of arena to peak %.3f", worst)
	})
}
