package lower

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Gradients are reduced in buckets in the order of the backward pass, each right behind its last gradient and before any step. All
// buckets but the last have at least BucketBytes, and less without their last gradient.
func TestBuckets(t *testing.T) {
	g := gorgonia.NewGraph()
	h := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(2, 1024), gorgonia.WithName("x"))
	var learnables gorgonia.Nodes
	for i := range 9 { // matrices of 4 MiB
		w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1024, 1024), gorgonia.WithName(fmt.Sprint("w", i)))
		learnables = append(learnables, w)
		h = gorgonia.Must(gorgonia.Tanh(gorgonia.Must(gorgonia.Mul(h, w))))
	}
	testutil.Get[gorgonia.Nodes](t)(gorgonia.Grad(gorgonia.Must(gorgonia.Sum(h)), learnables...))
	reader := testutil.Get[*internal.SolverReader](t)(internal.NewSolverReader(gorgonia.NewVanillaSolver()))
	graph := testutil.Get[*Graph](t)(New(g, &Wanted{Ranks: 2, Train: &Training{Solvers: Gorgonia, Sets: []Set{{reader.Read(), learnables}}}}))
	testutil.Do(t, program.Verify(graph.Program))
	var sizes []int
	var order []*gorgonia.Node
	for i, in := range graph.Program.Instrs {
		if !program.Is[program.Collective](in.Op) || in.In[0].Shape.IsScalar() {
			continue
		}
		bytes := int64(0)
		for k, v := range in.In {
			if last := k == len(in.In)-1; bytes >= BucketBytes {
				t.Errorf("bucket %d: got %d bytes before gradient %d, want less than %d", len(sizes), bytes, k, BucketBytes)
			} else if last && v.Def != graph.Program.Instrs[i-1] {
				t.Errorf("bucket %d: got another instruction before it than that of its last gradient", len(sizes))
			}
			bytes += v.Bytes()
		}
		sizes, order = append(sizes, len(in.In)), append(order, in.Nodes...)
	}
	slices.Reverse(order)
	if !slices.Equal(sizes, []int{4, 4, 1}) || !slices.Equal(order, learnables) {
		t.Errorf("got buckets of %v gradients, in reverse of %v, want 4, 4, 1 of %v", sizes, order, learnables)
	}
}
