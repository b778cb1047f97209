package nn_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rankWork is a graph that is timed on one GPU and on several, each of which has the same batch.
type rankWork struct {
	name    string
	graph   *G.ExprGraph
	options []cudaops.Option
}

// numbers returns random numbers in [-1, 1).
func numbers() []float32 {
	list := make([]float32, 1<<20+7)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range list {
		list[i] = 2*r.Float32() - 1
	}
	return list
}

// rankMLP returns the steps of SGD of a perceptron, batch 4096, in float32 and in TF32.
func rankMLP() (work []rankWork) {
	random := numbers()
	for _, s := range graphspec.Steps() {
		if matched, _ := regexp.MatchString("^MLP 784-4096-4096-10, SGD(, TF32)?$", s.Name); matched {
			p := s.Program(s.Values(random))
			work = append(work, rankWork{s.Name, p.Graph, []cudaops.Option{cudaops.Outputs(p.Loss), cudaops.Resident(p.Batch...), cudaops.Precision(s.Precision), cudaops.Train(s.Solver(), p.Learnables...)}})
		}
	}
	return work
}

// rankGPT returns the step of AdamW of GPT-2 124M, batch 8 x 1024, in BF16.
func rankGPT(t *testing.T) rankWork {
	const batch = 8
	g := testutil.Get[*Trained](t)(gpt2.Train(batch, gpt2.Context))
	tokens, labels := text(gpt2, batch, gpt2.Context)
	testutil.Do(t, G.Let(g.Tokens, tokens))
	testutil.Do(t, G.Let(g.Labels, labels))
	return rankWork{"GPT-2 124M", g.Graph, []cudaops.Option{cudaops.Mixed(cudaops.BF16), cudaops.Outputs(g.Loss), cudaops.Resident(g.Tokens, g.Labels),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(3e-4), G.WithBeta2(0.95), G.WithRho(0.1)), g.Parameters...)}}
}

// onGPUs is the option of the first n GPUs.
func onGPUs(n int) cudaops.Option {
	if n == 1 {
		return cudaops.OnDevice(0)
	}
	return cudaops.OnDevices([]int{0, 1, 2, 3, 4, 5, 6, 7}[:n]...)
}

// meanRun returns the median of the times of some runs, each the mean of a few between two that have results.
func meanRun(t *testing.T, graph *G.ExprGraph, opts ...cudaops.Option) (time.Duration, cudaops.Memory) {
	const each, times = 10, 7
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(graph, append(opts, cudaops.Strict(), cudaops.ReadEvery(each))...))
	defer func() { testutil.Do(t, vm.Close()) }()
	var list []time.Duration
	for k := range times + 1 {
		began := time.Now()
		for range each {
			testutil.Do(t, vm.RunAll())
		}
		if k > 0 { // the first ones warm up
			list = append(list, time.Since(began)/each)
		}
	}
	slices.Sort(list)
	return list[len(list)/2], vm.Memory()
}

// TestRankTimes times steps on one GPU and on several, and all-reduces within a captured graph, of those that the regular expression STHENO_TIMES
// matches. With STHENO_RECORD it writes a trace of each training into that folder.
func TestRankTimes(t *testing.T) {
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	chosen := testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_TIMES")))
	all := len(testutil.Get[[]cudaops.Device](t)(cudaops.Devices()))
	var counts []int
	for n := 1; n <= all; n *= 2 {
		counts = append(counts, n)
	}
	for _, w := range append(rankMLP(), rankGPT(t)) {
		one := time.Duration(0)
		for _, n := range counts {
			for _, sharded := range []bool{false, true} {
				name := fmt.Sprintf("%s, %d GPUs", w.name, n)
				opts := append(slices.Clone(w.options), onGPUs(n))
				if sharded {
					name += ", divided state"
					opts = append(opts, cudaops.ShardSolver())
				}
				if !chosen.MatchString(name) || sharded && n == 1 {
					continue
				}
				took, memory := meanRun(t, w.graph, opts...)
				if n == 1 {
					one = took
				}
				t.Logf("%s: %v, %.3f x, solver %d MiB, peak %d MiB", name, took, float64(n)*one.Seconds()/took.Seconds(), memory.Solver>>20, memory.Peak>>20)
				if folder := os.Getenv("STHENO_RECORD"); folder != "" && n > 1 {
					f := testutil.Get[*os.File](t)(os.Create(filepath.Join(folder, name+".trace.json")))
					vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(w.graph, append(opts, cudaops.Trace(f), cudaops.ReadEvery(5))...))
					began := time.Now()
					for range 10 {
						testutil.Do(t, vm.RunAll())
					}
					t.Logf("traced %v", time.Since(began)/10)
					testutil.Do(t, vm.Close())
					testutil.Do(t, f.Close())
				}
			}
		}
	}
	timeAllReduces(t, chosen, all)
}

// timeAllReduces times all-reduces of float32 in one captured graph: the difference between a few and more, one after the other.
func timeAllReduces(t *testing.T, chosen *regexp.Regexp, n int) {
	node, random := testutil.Get[*G.Node](t), numbers()
	for bytes := 1 << 10; bytes <= 1<<30; bytes *= 4 {
		name := fmt.Sprintf("all-reduce of %d KB, %d GPUs", bytes>>10, n)
		if !chosen.MatchString(name) || n < 2 {
			continue
		}
		const few, more = 2, 10
		elements := make([]float32, bytes/4)
		for rest := elements; len(rest) > 0; {
			rest = rest[copy(rest, random):]
		}
		took := map[int]time.Duration{}
		for _, k := range []int{few, more} {
			g := G.NewGraph()
			x := G.NewVector(g, tensor.Float32, G.WithName("x"), G.WithShape(bytes/4), G.WithValue(tensor.New(tensor.WithShape(bytes/4), tensor.WithBacking(elements))))
			y := x
			for range k {
				y = node(ops.AllReduce(y, ops.MeanOfRanks))
			}
			sum := node(G.Sum(y))
			took[k], _ = meanRun(t, g, onGPUs(n), cudaops.Resident(x), cudaops.Outputs(sum))
		}
		t.Logf("%s: %v", name, (took[more]-took[few])/(more-few))
	}
}
