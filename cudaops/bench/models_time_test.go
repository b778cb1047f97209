package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/kernels/basic"
	"github.com/stheno-ml/stheno/kernels/gemm"
)

// modelCase is a plan of a model, of whose inputs `data` has those that are not random.
type modelCase struct {
	name  string
	plan  *kernels.Plan
	bytes int64 // that the plan has to move
	data  map[int][]byte
}

// The times of the ops of models: draws and top-k of rows, products of one row, cumulative sums, the gradient of an embedding. Operands of less than four times the L2 cache in total are
// held several times and used alternately. Launches are captured in a graph. Random operands are normal. bench/model_peers.py times the same in PyTorch: it reads these lines.
func TestModelTimes(t *testing.T) {
	w := newStopwatch(t)
	r := rand.New(rand.NewPCG(31, 31))
	g := testutil.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	defer g.Close()
	const arena, each = 10 << 30, 64 << 20
	testutil.Do(t, g.Alloc(arena+8<<20))
	normal := make([]float32, each/4)
	for i := range normal {
		normal[i] = float32(r.NormFloat64())
	}
	// Each copy begins one element later, so that rows differ.
	testutil.Do(t, g.Upload(exec.Span{Size: each}, kernels.Bytes(normal)))
	for done := int64(each); done < arena; done *= 2 {
		testutil.Do(t, g.Stream().Copy(g.Address(done), g.Address(4), min(done-4, arena-done)))
	}
	testutil.Do(t, g.Sync())
	for _, c := range modelCases(t, w.dev, r) {
		if !w.wants(c.name) {
			continue
		}
		us := captured(t, g, c, arena)
		rate := float64(c.bytes) / us / 1e3
		t.Logf("%-44s %9.2f us %6.0f GB/s %4.0f %% of copy", c.name, us, rate, 100*rate/w.copied)
	}
}

// captured returns the microseconds of a run of a plan: the median over launches of a graph of consecutive runs.
func captured(t *testing.T, g *exec.GPUBackend, c modelCase, arena int64) float64 {
	p := c.plan
	copies := int(min(max((4*g.Device().L2+p.Bytes()-1)/max(p.Bytes(), 1), 1), 64))
	fixed := make([]exec.Span, len(p.Inputs))
	end := arena
	for i, data := range c.data {
		fixed[i] = exec.Span{Offset: end, Size: int64(len(data))}
		end += padded(int64(len(data)))
		testutil.Do(t, g.Upload(fixed[i], data))
	}
	scratch := exec.Span{Offset: arena - padded(p.Scratch), Size: p.Scratch}
	size, out := int64(0), scratch.Offset
	turns := make([]func() error, copies)
	for turn := range turns {
		in := slices.Clone(fixed)
		for i, bytes := range p.Inputs {
			if _, ok := c.data[i]; !ok {
				in[i] = exec.Span{Offset: size, Size: bytes}
				size += padded(bytes)
			}
		}
		out -= padded(p.Out)
		if size > out {
			t.Fatalf("%s: operands of %d bytes", c.name, size)
		}
		turns[turn] = testutil.Get[func() error](t)(g.Bind(p, in, exec.Outputs(p, exec.Span{Offset: out, Size: p.Out}), scratch))
	}
	const groups = 11
	testutil.Do(t, g.Events(groups+1))
	time := func(n, groups int) float64 {
		launch := testutil.Get[func() error](t)(g.Capture([]exec.Work{{Queue: func() error {
			for i := range n {
				if err := turns[i%copies](); err != nil {
					return err
				}
			}
			return nil
		}}}))
		testutil.Do(t, launch())
		for i := range groups + 1 {
			if i > 0 {
				testutil.Do(t, launch())
			}
			testutil.Do(t, g.Record(i))
		}
		testutil.Do(t, g.Sync())
		var times []time.Duration
		for i := range groups {
			times = append(times, testutil.Get[time.Duration](t)(g.Elapsed(i, i+1)))
		}
		return float64(median(times).Nanoseconds()) / 1e3 / float64(n)
	}
	us := time(1, 3)
	return time(max(copies, int(min(2000/us, 200))), groups)
}

// modelCases are the cases of TestModelTimes.
func modelCases(t *testing.T, dev kernels.Device, r *rand.Rand) (list []modelCase) {
	const vocabulary = 50304
	add := func(p *kernels.Plan, err error, bytes int64, data map[int][]byte, format string, args ...any) {
		testutil.Do(t, err)
		list = append(list, modelCase{fmt.Sprintf(format, args...), p, bytes, data})
	}
	for _, rows := range []int64{1, 4, 16, 33, 64, 132, 264, 1024, 8192} {
		draw := func(what string, temperature float32, k int64, p float32) {
			plan, err := basic.Categorical(dev, f32, basic.Draws{Rows: rows, N: vocabulary, Temperature: 1, K: 1, P: 1})
			add(plan, err, rows*vocabulary*4, map[int][]byte{1: kernels.Bytes([]float32{temperature}), 2: kernels.Bytes([]int64{k}), 3: kernels.Bytes([]float32{p}), 4: kernels.Bytes([]int64{7, 1})},
				"draw %s of %d x %d", what, rows, vocabulary)
		}
		for _, k := range []int64{50, 1024} {
			p, err := basic.Largest{Dtype: f32, Rows: rows, N: vocabulary, K: k, Values: true}.Plan(dev)
			add(p, err, rows*vocabulary*4, nil, "topk %d of %d x %d", k, rows, vocabulary)
		}
		draw("k 50", 1, 50, 1)
		draw("k 1", 1, 1, 1)
		draw("k 50 p .9", 1, 50, .9)
		draw("all", 1, 0, 1)
		if rows == 1 || rows == 132 {
			draw("p .9", 1, 0, .9)
		}
	}
	for _, c := range [][2]int64{{1024, 1024}, {2048, 2048}, {4096, 1024}, {1024, 4096}, {4096, 4096}, {1024, 16384}, {16384, 1024}, {8192, 8192}, {768, 50304}, {768, 768}, {768, 2304}, {768, 3072}, {3072, 768}} {
		for _, transposed := range []bool{false, true} { // the matrix is n x k, k x n
			p, err := gemm.Product{Dtype: f32, Batch: 1, M: c[1], N: 1, K: c[0], A: gemm.Operand{Trans: transposed}}.Plan(dev)
			add(p, err, 4*c[0]*c[1], nil, "vector %d %d %v", c[0], c[1], transposed)
		}
	}
	for _, shape := range [][]int{{1 << 26}, {4096, 50304}, {64, 1024, 1024}, {50304}} {
		n := 1
		for _, s := range shape {
			n *= s
		}
		p, err := basic.CumSum(dev, f32, shape, min(len(shape)-1, 1), false)
		add(p, err, int64(8*n), nil, "cumsum %d", shape)
	}
	const count, width = 8192, 768
	for _, kind := range []string{"uniform", "equal"} {
		indices := make([]int64, count)
		for i := range indices {
			if indices[i] = 7; kind == "uniform" {
				indices[i] = r.Int64N(vocabulary)
			}
		}
		p, err := basic.Scatter(dev, f32, []int{vocabulary, width}, 0, count)
		add(p, err, 4*(vocabulary+count)*width, map[int][]byte{1: kernels.Bytes(indices)}, "embedding gradient %s %d of %d x %d", kind, count, vocabulary, width)
	}
	return list
}
