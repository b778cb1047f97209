package cudaops

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/lower"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/graphspec"
	"github.com/stheno-ml/stheno/internal/must"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
					must.Do(b, err)
					defer vm.Close()
					for b.Loop() {
						must.Do(b, vm.RunAll())
					}
				})
			}
		}
	}
}

// BenchmarkStep is the launches of such a run alone, back to back on a device.
func BenchmarkStep(b *testing.B) {
	for name, s := range benchmarked {
		for _, batch := range []int{128, 4096} {
			b.Run(fmt.Sprintf("%s batch %d", name, batch), func(b *testing.B) {
				backend, err := exec.OpenGPU(0)
				must.Have(b, "GPU", err)
				defer backend.Close()
				g, learnables := perceptronGraph(batch)
				options, _, err := internal.ReadSolver(s())
				must.Do(b, err)
				graph, err := lower.New(g, &lower.Wanted{Train: &lower.Training{Learnables: learnables, Solver: options}})
				must.Do(b, err)
				must.Do(b, passes.Run(graph.Program, passes.Target{Device: backend.Device(), Replay: true}, nil))
				e, err := exec.New(graph.Program, backend, false)
				must.Do(b, err)
				var in []G.Value
				for _, n := range graph.Inputs {
					in = append(in, n.Value())
				}
				_, err = e.Run(append(in, graph.Trained.Numbers(options, 1, 0)...))
				must.Do(b, err)
				replay, err := e.Replay()
				must.Do(b, err)
				const times = 200
				for b.Loop() {
					for range times {
						must.Do(b, replay())
					}
					must.Do(b, backend.Sync())
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*times), "us/step")
			})
		}
	}
}

// BenchmarkUpdate is the step of Adam for 100 million parameters, alone, as the device's
// clock has it: the share of a copy's bandwidth that 28 bytes a parameter reach.
func BenchmarkUpdate(b *testing.B) {
	const n = 100_000_000
	g := G.NewGraph()
	x := G.NewVector(g, tensor.Float32, G.WithName("x"), G.WithShape(n), G.WithValue(tensor.New(tensor.WithBacking(make([]float32, n)))))
	w := G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(n), G.WithValue(tensor.New(tensor.WithBacking(make([]float32, n)))))
	must.Get[G.Nodes](b)(G.Grad(must.Get[*G.Node](b)(G.Sum(must.Get[*G.Node](b)(G.HadamardProd(x, w)))), w))
	vm, err := NewVM(g, OnAny(), Timed(), Train(G.NewAdamSolver(), w))
	must.Do(b, err)
	defer vm.Close()
	best := 0.0
	for b.Loop() {
		must.Do(b, vm.RunAll())
		steps := vm.Report().Steps
		last := steps[len(steps)-1]
		best = max(best, 28*n/last.Time.Seconds()/1e9)
	}
	b.ReportMetric(best, "GB/s")
}

// BenchmarkCopies is what brings a batch to the device: into pinned memory on the host, from there to the
// device, and from memory of Go's that was pinned.
func BenchmarkCopies(b *testing.B) {
	backend, err := exec.OpenGPU(0)
	must.Have(b, "GPU", err)
	defer backend.Close()
	const most = 64 << 20
	must.Do(b, backend.Alloc(most))
	must.Do(b, backend.Marks(1))
	pinned := must.Get[[]byte](b)(backend.Stage(most))
	own := make([]byte, most)
	must.Do(b, backend.Pin(own))
	plain := make([]byte, most)
	for i := range plain {
		plain[i] = byte(i)
	}
	for _, n := range []int64{64 << 10, 401408, 4 << 20, 4096 * 784 * 4, most} {
		for name, f := range map[string]func(){
			"host to pinned, one goroutine": func() { copy(pinned[:n], plain[:n]) },
			"host to pinned":                func() { kernels.Parallel(n, 256<<10, func(lo, hi int64) { copy(pinned[lo:hi], plain[lo:hi]) }) },
			"host to pinned, 8":             func() { kernels.Parallel(n, (n+7)/8, func(lo, hi int64) { copy(pinned[lo:hi], plain[lo:hi]) }) },
			"host to pinned, 4":             func() { kernels.Parallel(n, (n+3)/4, func(lo, hi int64) { copy(pinned[lo:hi], plain[lo:hi]) }) },
			"pinned to device":              func() { backend.CopyBeside(exec.Span{Size: n}, pinned[:n]); backend.SyncCopies() },
			"pinned memory of Go's":         func() { backend.CopyBeside(exec.Span{Size: n}, own[:n]); backend.SyncCopies() },
		} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				b.SetBytes(n)
				for b.Loop() {
					f()
				}
			})
		}
	}
}
