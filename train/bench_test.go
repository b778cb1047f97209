package train

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Batches of a data set in the size of MNIST's.
func BenchmarkData(b *testing.B) {
	const rows, batch, row = 20000, 4096, 784
	x := G.NewMatrix(G.NewGraph(), tensor.Float32, G.WithName("x"), G.WithShape(batch, row))
	data := testutil.Get[*Data](b)(NewData(Columns{x: make([]float32, rows*row)})).Shuffle(1)
	b.SetBytes(batch * row * 4)
	b.ReportAllocs()
	made := 0
	for epoch := 0; made < b.N; epoch++ {
		for batch, err := range data.Batches(epoch, 0) {
			testutil.Do(b, err)
			data.recycle(batch)
			if made++; made == b.N {
				break
			}
		}
	}
}

// The time that the loop adds to a step: the same steps by hand, and by Run.
func BenchmarkSteps(b *testing.B) {
	byHand := func(b *testing.B, l *line, batches []Batch) {
		for i := range b.N {
			for n, v := range batches[i%len(batches)] {
				testutil.Do(b, G.Let(n, v))
			}
			testutil.Do(b, l.vm.RunAll())
		}
	}
	b.Run("by hand", func(b *testing.B) {
		l := newLine(b, false)
		byHand(b, l, []Batch{l.batch(0, points), l.batch(1, points)})
	})
	for _, ahead := range []int{0, 1, 8} {
		b.Run(fmt.Sprint("Run, prefetch ", ahead), func(b *testing.B) {
			l := newLine(b, false)
			x, y := set(100 * points)
			data := testutil.Get[*Data](b)(NewData(Columns{l.x: x, l.y: y}))
			testutil.Get[History](b)(Run(b.Context(), l.vm, l.loss, data.Shuffle(1), Steps(b.N), Prefetch(ahead)))
		})
	}
}

// Steps of a perceptron, 784-512-512-10, whose batches come from the host, from a data set of MNIST's size in ordinary or in pinned
// memory: us a step.
func BenchmarkPerceptron(b *testing.B) {
	for _, batch := range []int{128, 4096} {
		for _, every := range []int{1, 10} {
			for _, pinned := range []bool{false, true} {
				for _, shuffled := range []bool{false, true} {
					made := sync.OnceValues(func() (*perceptron, *Data) {
						p := newPerceptron(b, batch, pinned, cudaops.OnAny(), cudaops.ReadEvery(every))
						if shuffled {
							return p, p.data.Shuffle(1)
						}
						return p, p.data
					})
					for _, ahead := range []int{0, 1, 2, 4} {
						b.Run(fmt.Sprintf("batch %d, read every %d, pinned %v, shuffled %v, prefetch %d", batch, every, pinned, shuffled, ahead), func(b *testing.B) {
							p, data := made()
							testutil.Get[History](b)(Run(b.Context(), p.vm, p.loss, data, Steps(20), Prefetch(ahead)))
							b.ResetTimer()
							testutil.Get[History](b)(Run(b.Context(), p.vm, p.loss, data, Steps(b.N), Prefetch(ahead)))
						})
					}
				}
			}
		}
	}
}

// perceptron is a graph of that kind and a data set for it.
type perceptron struct {
	vm   *cudaops.VM
	loss *G.Node
	data *Data
}

func newPerceptron(t testing.TB, batch int, pinned bool, opts ...cudaops.Option) *perceptron {
	const rows = 15 * 4096
	c := graphspec.MLP(batch, 784, 512, 512, 10)
	random := make([]float32, 1<<20)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = 2*r.Float32() - 1
	}
	g, _ := c.Graph(c.Values(random))
	p := &perceptron{}
	columns := Columns{}
	var learnables G.Nodes
	for _, n := range g.AllNodes() {
		if n.Op() != nil {
			continue
		}
		if name := n.Name(); name[0] == 'w' || name[0] == 'b' {
			learnables = append(learnables, n)
			continue
		}
		x := slices.Repeat(n.Value().Data().([]float32), rows/batch)
		if columns[n] = x; pinned {
			set := testutil.Get[*tensor.Dense](t)(cudaops.Pinned(tensor.Float32, rows, n.Shape()[1]))
			copy(set.Data().([]float32), x)
			columns[n] = set
		}
	}
	var err error
	p.vm, err = cudaops.NewVM(g, append(opts, cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(1e-6)), learnables...))...)
	testutil.Do(t, err)
	t.Cleanup(func() { testutil.Do(t, p.vm.Close()) })
	for _, n := range p.vm.Results() {
		if n.Shape().TotalSize() == 1 {
			p.loss = n
		}
	}
	p.data = testutil.Get[*Data](t)(NewData(columns))
	return p
}
