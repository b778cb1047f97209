package nn_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/maintain/records"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// rankWork is a graph that is timed on one GPU and on several, each of which has the same batch.
type rankWork struct {
	name     string
	graph    *G.ExprGraph
	options  []cudaops.Option
	variants []rankVariant // on several GPUs, beside the plain one
}

// rankVariant is an option that makes a difference on several GPUs.
type rankVariant struct {
	name   string
	option cudaops.Option
}

var divided = rankVariant{", divided state", cudaops.ShardSolver()}

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
		if strings.HasPrefix(s.Name, "MLP 784-4096-4096-10, SGD") && s.Precision != cudaops.BF16 {
			p := s.Program(s.Values(random))
			work = append(work, rankWork{s.Name, p.Graph, []cudaops.Option{cudaops.Outputs(p.Loss), cudaops.Resident(p.Batch...), cudaops.Precision(s.Precision), cudaops.Train(s.Solver(), p.Learnables...)}, nil})
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
	return rankWork{"GPT-2 124M, BF16", g.Graph, []cudaops.Option{cudaops.Mixed(cudaops.BF16), cudaops.Outputs(g.Loss), cudaops.Resident(g.Tokens, g.Labels),
		cudaops.Train(G.NewAdamW(G.WithLearnRate(3e-4), G.WithBeta2(0.95), G.WithRho(0.1)), g.Parameters...)},
		[]rankVariant{{", gradients in BF16", cudaops.GradientsIn(cudaops.BF16)}, divided}}
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
	for k := range times + 2 {
		began := time.Now()
		for range each {
			testutil.Do(t, vm.RunAll())
		}
		if k > 1 { // the first ones warm up
			list = append(list, time.Since(began)/each)
		}
	}
	slices.Sort(list)
	return list[len(list)/2], vm.Memory()
}

// rankTimes are the records of TestRankTimes.
type rankTimes struct {
	*testing.T
	chosen *regexp.Regexp
	folder string // of STHENO_RECORD, or ""
	file   records.File
}

// add logs a time, and records it.
func (r *rankTimes) add(op, of string, took time.Duration, values map[string]float64) {
	r.Logf("%s, %s: %v %v", op, of, took, values)
	r.file.Records = append(r.file.Records, records.Record{Kind: records.Time, Key: records.Key{Op: op, Case: of, Dtype: "f32"}, Us: float64(took) / float64(time.Microsecond), Values: values})
}

// TestRankTimes times steps on one GPU and on several, and all-reduces within a captured graph, of those that the regular expression STHENO_TIMES
// matches. STHENO_RECORD is a folder into which it writes a trace of each training on several GPUs, and the records of the set ranks, with the peers
// of the file peers.json there, which bench/ddp_peers.py makes.
func TestRankTimes(t *testing.T) {
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	devices := testutil.Get[[]cudaops.Device](t)(cudaops.Devices())
	d := devices[0]
	r := &rankTimes{t, testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_TIMES"))), os.Getenv("STHENO_RECORD"), records.File{
		Set: records.Ranks, GPU: d.Name, Compute: fmt.Sprintf("%d.%d", d.Major, d.Minor), SMs: d.SMs, L2: d.L2, Memory: d.Memory,
		Runs: []records.Run{{Driver: d.Driver, CUDA: d.CUDA, Go: runtime.Version(), Date: time.Now().Format(time.DateOnly)}}}}
	for _, w := range append(rankMLP(), rankGPT(t)) {
		r.step(w, 1, rankVariant{"", cudaops.Options()})
		for n := 2; n <= len(devices); n *= 2 {
			for _, v := range append([]rankVariant{{"", cudaops.Options()}}, w.variants...) {
				r.step(w, n, v)
			}
		}
	}
	for n := 2; n <= len(devices); n *= 2 {
		r.allReduces(n)
	}
	if r.folder == "" {
		return
	}
	if peers, err := records.ReadPeers(filepath.Join(r.folder, "peers.json")); err == nil {
		r.file.Records = append(r.file.Records, peers...)
	} else {
		t.Log(err)
	}
	testutil.Do(t, r.file.Write(filepath.Join(r.folder, records.Name(d.Name))))
}

// gpus prints a number of GPUs.
func gpus(n int) string {
	if n == 1 {
		return records.OneGPU
	}
	return fmt.Sprint(n, " GPUs")
}

// step times steps on n GPUs, and traces some on several.
func (r *rankTimes) step(w rankWork, n int, v rankVariant) {
	of := gpus(n) + v.name
	if !r.chosen.MatchString(w.name + ", " + of) {
		return
	}
	opts := append(slices.Clone(w.options), onGPUs(n), v.option)
	took, memory := meanRun(r.T, w.graph, opts...)
	r.add(w.name, of, took, map[string]float64{"solver": float64(memory.Solver), "peak": float64(memory.Peak)})
	if r.folder == "" || n == 1 {
		return
	}
	f := testutil.Get[*os.File](r)(os.Create(filepath.Join(r.folder, fmt.Sprintf("%s, %s.trace.json", w.name, of))))
	vm := testutil.Get[*cudaops.VM](r)(cudaops.NewVM(w.graph, append(opts, cudaops.Trace(f), cudaops.ReadEvery(5))...))
	for range 5 {
		testutil.Do(r, vm.RunAll())
	}
	testutil.Do(r, vm.Close())
	testutil.Do(r, f.Close())
}

// allReduces times all-reduces of float32 in one captured graph: the difference between a few and more, one after the other.
func (r *rankTimes) allReduces(n int) {
	node, random := testutil.Get[*G.Node](r), numbers()
	for bytes := 1 << 10; bytes <= 1<<30; bytes *= 4 {
		size := fmt.Sprint(bytes>>10, " KB")
		if bytes >= 1<<20 {
			size = fmt.Sprint(bytes>>20, " MB")
		}
		of := size + ", " + gpus(n)
		if !r.chosen.MatchString(records.AllReduce + ", " + of) {
			continue
		}
		const few, more = 2, 10
		took := map[int]time.Duration{}
		for _, k := range []int{few, more} {
			elements := make([]float32, bytes/4)
			for rest := elements; len(rest) > 0; {
				rest = rest[copy(rest, random):]
			}
			g := G.NewGraph()
			x := G.NewVector(g, tensor.Float32, G.WithName("x"), G.WithValue(tensor.New(tensor.WithShape(len(elements)), tensor.WithBacking(elements))))
			y := x
			for range k {
				y = node(ops.AllReduce(y, ops.MeanOfRanks))
			}
			sum := node(G.Sum(y))
			took[k], _ = meanRun(r.T, g, onGPUs(n), cudaops.Resident(x), cudaops.Outputs(sum))
		}
		r.add(records.AllReduce, of, (took[more]-took[few])/(more-few), map[string]float64{"bytes": float64(bytes)})
	}
}
