package bench

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops/internal/exec"
	"github.com/stheno-ml/stheno/cudaops/internal/passes"
	"github.com/stheno-ml/stheno/internal/test/graphspec"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// loadedSteps are the training steps, by their place in [graphspec.Steps], whose loading is timed.
var loadedSteps = map[string]int{"step": 0, "adam": 1, "large": 2, "wide": 10, "convnet": 13, "lstm": 15}

// TestLoadTime measures the time to load the kernels of one program, in a separate process. The program is a product of two
// matrices. With STHENO_LOAD=step, other names, or sizes such as "mlp 100 784 300 10", it is a training step, timed from its graph
// to its first result.
func TestLoadTime(t *testing.T) {
	name := os.Getenv("STHENO_LOAD")
	if name == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_LOAD is not set")
	}
	start := time.Now()
	b := testutil.Get[*exec.GPUBackend](t)(exec.OpenGPU(0))
	t.Logf("opened in %v", time.Since(start))
	if s, ok := loadedStep(t, name); ok {
		loadStep(t, random(t), b, s)
	} else {
		n := map[string]int64{"small": 256, "product": 1024}[name]
		start := time.Now()
		p := product(t, b.Device(), 0, kernels.Float32, 1, n, n, n, false, false)
		testutil.Do(t, Run(0, p, [][]byte{make([]byte, p.Inputs[0]), make([]byte, p.Inputs[1])}, make([]byte, p.Out)))
		t.Logf("all in %v", time.Since(start))
	}
}

// loadedStep returns the training step of a name: one of [loadedSteps], or "mlp" or "lstm" and sizes, the batch first.
func loadedStep(t *testing.T, name string) (s graphspec.Step, ok bool) {
	if i, ok := loadedSteps[name]; ok {
		return graphspec.Steps()[i], true
	}
	words := strings.Fields(name)
	sizes := make([]int, len(words)-1)
	for i := range sizes {
		sizes[i] = testutil.Get[int](t)(strconv.Atoi(words[i+1]))
	}
	switch {
	case words[0] == "mlp" && len(sizes) > 2:
		return graphspec.StepsOf(graphspec.MLP(sizes[0], sizes[1:]...))[0], true
	case words[0] == "lstm" && len(sizes) == 5:
		return graphspec.StepsOf(graphspec.LSTM(sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]))[0], true
	}
	return s, false
}

// loadStep logs what bringing a training step to its first result takes.
func loadStep(t *testing.T, r *rand.Rand, b *exec.GPUBackend, s graphspec.Step) {
	values := make([]float32, 1<<16)
	for i := range values {
		values[i] = r.Float32()*2 - 1
	}
	in := s.Program(s.Values(values))
	train := &Training{Solver: s.Solver(), Learnables: in.Learnables, Precision: s.Precision}
	begin := time.Now()
	last := begin
	took := func(what string) {
		now := time.Now()
		t.Logf("%-40s %v", what, now.Sub(last))
		last = now
	}
	graph, err := lowered(in.Graph, train)
	testutil.Do(t, err)
	took("lowered")
	testutil.Do(t, passes.Run(graph.Program, passes.Target{Device: b.Device(), DoubleBufferMin: exec.CopyLimit}, nil))
	took("passes")
	e := testutil.Get[*exec.Executable](t)(exec.New(graph.Program, b, false))
	took("memory, kernels and graphs")
	inputs := make([]gorgonia.Value, len(graph.Inputs))
	for i, in := range graph.Inputs {
		inputs[i] = in.Value()
	}
	numbers := testutil.Get[[]gorgonia.Value](t)(start(e, graph, train))
	inputs = append(inputs, numbers...)
	took("learnables to the device")
	for _, run := range []string{"the first run", "the second run"} {
		testutil.Get[[]gorgonia.Value](t)(e.Run(inputs))
		took(run)
	}
	t.Logf("all in %v", last.Sub(begin))
}
