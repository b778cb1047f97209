package graphspec

import (
	"math"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/cudaops/bench"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	"github.com/stheno-ml/stheno/kernels"
	"gorgonia.org/gorgonia"
)

// small returns every program at sizes that a test can afford: few columns, a prime
// number of them, and more than a block of threads has.
func small() (cases []Case) {
	for name := range chained {
		cases = append(cases, Chain(name, 1), Chain(name, 3))
	}
	for _, size := range [][2]int{{1, 11}, {7, 127}, {3, 2500}} {
		rows, columns := size[0], size[1]
		for name := range rowFuncs {
			cases = append(cases, Rowwise(name, rows, columns), RowwiseGradient(name, rows, columns))
		}
		cases = append(cases, CrossEntropy(rows, columns))
	}
	return append(cases, MLP(2, 3, 4, 2), MLP(13, 31, 17, 19, 10), MLP(64, 60, 10),
		Convnet(3, net{9, []int{3, 4, 2}, 7, 3}), Convnet(5, net{13, []int{2, 5}, 11, 4}))
}

// random returns numbers in [-1, 1), others in every run.
func random(t testing.TB) []float32 {
	r := testutil.Random(t)
	block := make([]float32, 10_007)
	for i := range block {
		block[i] = 2*r.Float32() - 1
	}
	return block
}

// machines are those that run the programs, by name.
func machines(t *testing.T) map[string]func(g *gorgonia.ExprGraph) (gorgonia.VM, error) {
	list := map[string]func(g *gorgonia.ExprGraph) (gorgonia.VM, error){
		"host": func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return cudaops.NewVM(g, cudaops.OnHost()) },
	}
	if !gorgonia.CUDA {
		list["tape machine"] = func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return gorgonia.NewTapeMachine(g), nil }
	}
	_, err := cudaops.Devices()
	if err == nil {
		list["GPU"] = func(g *gorgonia.ExprGraph) (gorgonia.VM, error) { return cudaops.NewVM(g) }
	} else if testutil.Required("GPU") {
		t.Fatalf("STHENO_REQUIRE_GPU=1, but: %v", err)
	}
	return list
}

// run runs a case and returns the values of its outputs.
func run(t *testing.T, c Case, in []gorgonia.Value, machine func(g *gorgonia.ExprGraph) (gorgonia.VM, error)) (out []gorgonia.Value) {
	t.Helper()
	g, nodes := c.Graph(in)
	vm, err := machine(g)
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		out = append(out, n.Value())
	}
	return out
}

// Every program has the results of its reference, on every machine.
func TestPrograms(t *testing.T) {
	block := random(t)
	for name, machine := range machines(t) {
		t.Run(name, func(t *testing.T) {
			for _, c := range small() {
				in := c.Values(block)
				worst, err := c.Check(in, run(t, c, in, machine))
				if err != nil || !(worst.Share <= 1) {
					t.Errorf("%s %s: error %v, %v", c.Name, c.Size, worst, err)
				}
			}
		})
	}
}

// Check sees one wrong element of any output.
func TestCheck(t *testing.T) {
	block, r := random(t), testutil.Random(t)
	for _, c := range small() {
		in := c.Values(block)
		out := run(t, c, in, machines(t)["host"])
		for i, o := range c.Outputs {
			m, err := values.Bytes(out[i])
			if err != nil {
				t.Fatal(err)
			}
			x := kernels.Elements[float32](m)
			at := r.IntN(len(x))
			right := x[at]
			for _, wrong := range []float32{right + 3, -right - 1, float32(math.NaN()), float32(math.Inf(1))} {
				x[at] = wrong
				if worst, err := c.Check(in, out); err != nil || worst.Share <= 1 || worst.Output != o.Name {
					t.Errorf("%s %s: element %d of %s is %v instead of %v, and the error %v, %v, want it above 1", c.Name, c.Size, at, o.Name, wrong, right, worst, err)
				}
			}
			x[at] = right
		}
		if _, err := c.Check(in, out[1:]); err == nil {
			t.Errorf("%s: no error for a missing output", c.Name)
		}
	}
}

// The cases that are timed have names of their own, and what they move and compute
// follows from their sizes.
func TestAll(t *testing.T) {
	want := map[string]struct{ bytes, flops int64 }{
		"map tanh(a*b)+c 2^28":                    {16 << 28, 3 << 28},
		"softmax 16384x1000":                      {2 * 4 * 16384 * 1000, 5 * 16384 * 1000},
		"cross-entropy, gradient 16384x128":       {3*4*16384*128 + 4, 10 * 16384 * 128},
		"MLP 784-512-512-10, gradient batch 4096": {4 * (4096*794 + 2*669_706 + 1), 4096 * 3_209_216},
		"convnet, gradient batch 100":             {4 * (100*794 + 2*818_698 + 1), 100 * 48_612_732},
	}
	seen := map[string]bool{}
	for _, c := range All() {
		name := c.Name + " " + c.Size
		if seen[name] {
			t.Errorf("two cases are named %s", name)
		}
		seen[name] = true
		if w, ok := want[name]; ok && (c.Bytes() != w.bytes || c.Flops != w.flops) {
			t.Errorf("%s: %d bytes and %d operations, want %d and %d", name, c.Bytes(), c.Flops, w.bytes, w.flops)
		}
	}
	for name := range want {
		if !seen[name] {
			t.Errorf("no case is named %s", name)
		}
	}
}

// Where the time of a timed case goes, a step a line, of those that the regular expression
// STHENO_TIMES matches, such as "convnet.*100".
func TestSteps(t *testing.T) {
	if os.Getenv("STHENO_TIMES") == "" {
		t.Skip("SKIPPED, NOT TIMED: STHENO_TIMES is not set")
	}
	chosen := testutil.Get[*regexp.Regexp](t)(regexp.Compile(os.Getenv("STHENO_TIMES")))
	block := random(t)
	for _, c := range All() {
		if !chosen.MatchString(c.Name + " " + c.Size) {
			continue
		}
		in := c.Values(block)
		g, nodes := c.Graph(in)
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.Timed()))
		for range 3 { // the first ones warm up
			testutil.Do(t, vm.RunAll())
		}
		var out []gorgonia.Value
		for _, n := range nodes {
			out = append(out, n.Value())
		}
		if worst, err := c.Check(in, out); err != nil || !(worst.Share <= 1) {
			t.Errorf("%s %s: error %v, %v", c.Name, c.Size, worst, err)
		}
		t.Logf("%s %s\n%v", c.Name, c.Size, vm.Report())
		testutil.Do(t, vm.Close())
		timing := testutil.Get[*bench.GraphTiming](t)(bench.TimeGraph(0, g, nil, 15, time.Second))
		slices.Sort(timing.Runs)
		t.Logf("%s %s: %v as one CUDA graph of %d launches, on the host %q", c.Name, c.Size, timing.Runs[len(timing.Runs)/2], timing.Launches, timing.Host)
	}
}
