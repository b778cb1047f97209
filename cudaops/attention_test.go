package cudaops

import (
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Causal attention of more queries than keys, and its gradients, are those of the last queries alone, in the same bits, and zeros for the others.
func TestQueriesWithoutKeys(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		const heads, keys, dim, unseen = 2, 5, 64, 1 << 20 / 128
		r := testutil.Random(t)
		numbers := func(rows int) []float32 {
			x := make([]float32, heads*rows*dim)
			for i := range x {
				x[i] = float32(r.NormFloat64())
			}
			return x
		}
		q, k, v := numbers(unseen+keys), numbers(keys), numbers(keys)
		last := func(x []float32) (list []float32) {
			for head := range slices.Chunk(x, (unseen+keys)*dim) {
				list = append(list, head[unseen*dim:]...)
			}
			return list
		}
		attend := func(inputs ...[]float32) (results [][]float32) {
			g := G.NewGraph()
			var in G.Nodes
			for i, x := range inputs {
				value := tensor.New(tensor.WithShape(1, heads, len(x)/heads/dim, dim), tensor.WithBacking(slices.Clone(x)))
				in = append(in, G.NewTensor(g, tensor.Float32, 4, G.WithName("qkv"[i:i+1]), G.WithValue(value)))
			}
			out := testutil.Get[*G.Node](t)(ops.Attention(in[0], in[1], in[2], ops.Causal()))
			grads := testutil.Get[G.Nodes](t)(G.Grad(testutil.Get[*G.Node](t)(ops.Sum(testutil.Get[*G.Node](t)(ops.Map("a * a", out)))), in...))
			kept := append(G.Nodes{out}, grads...)
			testutil.Do(t, machine(t, g, on, Keep(kept...)).RunAll())
			for _, n := range kept {
				results = append(results, n.Value().Data().([]float32))
			}
			return results
		}
		got, want := attend(q, k, v), attend(last(q), k, v)
		for i, x := range got {
			if i < 2 { // of the queries
				rest := slices.Clone(x)
				for head := range slices.Chunk(rest, (unseen+keys)*dim) {
					clear(head[unseen*dim:])
				}
				if slices.ContainsFunc(rest, func(x float32) bool { return x != 0 }) {
					t.Errorf("result %d is not 0 where no key is seen", i)
				}
				x = last(x)
			}
			if !slices.Equal(x, want[i]) {
				t.Errorf("result %d differs from that of the last queries alone", i)
			}
		}
	})
}
