package cudaops

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/streamcopy"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
)

// perceptronGraph is that of graphspec, 784-512-512-10, and its weights and biases.
func perceptronGraph(batch int) (g *G.ExprGraph, learnables G.Nodes) {
	c := graphspec.MLP(batch, 784, 512, 512, 10)
	random, r := make([]float32, 1<<20), rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = 2*r.Float32() - 1
	}
	g, _ = c.Graph(c.Values(random))
	for _, n := range g.AllNodes() {
		if name := n.Name(); n.Op() == nil && (name[0] == 'w' || name[0] == 'b') {
			learnables = append(learnables, n)
		}
	}
	return g, learnables
}

// benchmarked are the solvers of the benchmarks.
var benchmarked = map[string]func() G.Solver{
	"SGD": func() G.Solver { return G.NewVanillaSolver() }, "Adam": func() G.Solver { return G.NewAdamSolver() },
}

// BenchmarkTrain is a run of a perceptron with the step of its solver, the batch copied
// from the host each time.
func BenchmarkTrain(b *testing.B) {
	for name, s := range benchmarked {
		for _, batch := range []int{128, 4096} {
			for _, every := range []int{1, 10} {
				b.Run(fmt.Sprintf("%s batch %d read every %d", name, batch, every), func(b *testing.B) {
					g, learnables := perceptronGraph(batch)
					vm, err := NewVM(g, OnAny(), Train(s(), learnables...), ReadEvery(every))
					testutil.Do(b, err)
					defer vm.Close()
					for b.Loop() {
						testutil.Do(b, vm.RunAll())
					}
				})
			}
		}
	}
}

// BenchmarkCopies times the ways of a batch of 4096 x 784 float32s to the device: how long it takes to put it into
// pinned memory in several ways, and to copy it from there right afterwards.
func BenchmarkCopies(b *testing.B) {
	backend, err := exec.OpenGPU(0)
	testutil.SkipUnless(b, "GPU", err)
	defer backend.Close()
	const row, most = 784 * 4, 4096 * 784 * 4
	testutil.Do(b, backend.Alloc(most))
	testutil.Do(b, backend.MakeEvents(1))
	memory := map[string][]byte{"pinned": testutil.Get[[]byte](b)(backend.Stage(most)), "Go's, pinned": testutil.Get[[]byte](b)(exec.Pinned(most))}
	plain, order := make([]byte, 5*most), rand.New(rand.NewPCG(1, 2)).Perm(5*4096)
	for i := range plain {
		plain[i] = byte(i)
	}
	pieces := func(to []byte, n int, f func(to, from []byte)) {
		step := int64((len(to)/row + n - 1) / n)
		kernels.Parallel(int64(len(to)/row), step, func(lo, hi int64) { f(to[lo*row:hi*row], plain[lo*row:hi*row]) })
	}
	gather := func(to []byte) {
		for i := range len(to) / row {
			copy(to[i*row:], plain[order[i]*row:][:row])
		}
	}
	ways := map[string]func(to []byte){
		"nothing":              func([]byte) {},
		"one goroutine":        func(to []byte) { copy(to, plain) },
		"8 pieces of 1.6 MB":   func(to []byte) { pieces(to, 8, func(to, from []byte) { copy(to, from) }) },
		"12 pieces of 1.07 MB": func(to []byte) { pieces(to, 12, func(to, from []byte) { copy(to, from) }) },
		"16 pieces of 0.8 MB":  func(to []byte) { pieces(to, 16, func(to, from []byte) { copy(to, from) }) },
		"16 pieces by rows":    func(to []byte) { pieces(to, 16, func(to, _ []byte) { gather(to) }) },
	}
	for _, n := range []int{1, 2, 4, 8, 12, 16} { // past the caches
		ways[fmt.Sprint("streamed, pieces ", n)] = func(to []byte) {
			pieces(to, n, func(to, from []byte) { streamcopy.Copy(to, from); streamcopy.Fence() })
		}
		ways[fmt.Sprint("streamed, by rows, pieces ", n)] = func(to []byte) {
			pieces(to, n, func(to, _ []byte) {
				for i := range len(to) / row {
					streamcopy.Copy(to[i*row:(i+1)*row], plain[order[i]*row:][:row])
				}
				streamcopy.Fence()
			})
		}
	}
	for _, n := range []int{128 * row, most} {
		for kind, m := range memory {
			for name, way := range ways {
				b.Run(fmt.Sprint(n, "/", kind, "/", name), func(b *testing.B) {
					var written, copied time.Duration
					for b.Loop() {
						start := time.Now()
						way(m[:n])
						there := time.Now()
						testutil.Do(b, backend.CopyAsync(exec.Span{Size: int64(n)}, m[:n]))
						testutil.Do(b, backend.SyncCopies())
						written, copied = written+there.Sub(start), copied+time.Since(there)
					}
					b.ReportMetric(float64(written.Nanoseconds())/1e3/float64(b.N), "us-written")
					b.ReportMetric(float64(copied.Nanoseconds())/1e3/float64(b.N), "us-copied")
				})
			}
		}
	}
}
