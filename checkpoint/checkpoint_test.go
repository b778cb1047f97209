package checkpoint

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/must"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// solvers are all of Gorgonia's, some with all of their options.
var solvers = map[string]func() G.Solver{
	"vanilla": func() G.Solver { return G.NewVanillaSolver(G.WithLearnRate(0.1)) },
	"vanilla, all": func() G.Solver {
		return G.NewVanillaSolver(G.WithLearnRate(0.5), G.WithL1Reg(0.01), G.WithL2Reg(0.02), G.WithClip(0.1), G.WithBatchSize(4))
	},
	"momentum": func() G.Solver { return G.NewMomentum(G.WithLearnRate(0.02), G.WithMomentum(0.8), G.WithClip(0.3)) },
	"RMSProp":  func() G.Solver { return G.NewRMSPropSolver(G.WithRho(0.9), G.WithL2Reg(0.001), G.WithEps(1e-4)) },
	"Adam": func() G.Solver {
		return G.NewAdamSolver(G.WithLearnRate(0.01), G.WithBeta1(0.8), G.WithBeta2(0.99), G.WithBatchSize(3))
	},
	"AdamW":           func() G.Solver { return G.NewAdamW(G.WithLearnRate(0.01)) },
	"AdaGrad":         func() G.Solver { return G.NewAdaGradSolver() },
	"BarzilaiBorwein": func() G.Solver { return G.NewBarzilaiBorweinSolver(G.WithClip(0.05)) },
}

// position is the value that the loops of tests keep.
type position struct {
	Step int
	Seed uint64
	Rate float64
}

// A training that was saved goes on in another process's VM as if it had not been ended: the same
// bits, of every solver.
func TestRoundTrip(t *testing.T) {
	onBackends(t, func(t *testing.T, on cudaops.Option) {
		for name, maker := range solvers {
			for i, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, tensor.Float32, tensor.Float64} {
				every := 1 + i/2*2 // 3: the file is of the middle of a step
				what, path := fmt.Sprint(name, " of ", dt, ", steps of ", every), filepath.Join(t.TempDir(), "run.safetensors")
				whole := newModel(t, dt, 1, 5)
				want := whole.machine(t, on, maker(), cudaops.Seed(9), cudaops.ClipNorm(0.7), cudaops.StepEvery(every))
				whole.steps(t, want, 0, 5)
				at := position{5, math.MaxUint64 - 1, 0.1}
				must.Do(t, Save(path, want, at))
				whole.steps(t, want, 5, 11)

				again := newModel(t, dt, 2, 5)
				got := again.machine(t, on, maker(), cudaops.Seed(10), cudaops.ClipNorm(0.7), cudaops.StepEvery(every))
				var loaded position
				must.Do(t, Load(path, got, &loaded))
				if loaded != at {
					t.Errorf("%s: got the position %+v, want %+v", what, loaded, at)
				}
				again.steps(t, got, 5, 11)
				same(t, what, got, want)
				if s, _ := state(t, got); s.Steps != 11/every || s.Added != 11%every || s.Seed != 9 {
					t.Errorf("%s: got %+v", what, s)
				}
			}
		}
	})
}

// The learning rate of a schedule is that of the file.
func TestSchedule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.safetensors")
	m, s := newModel(t, tensor.Float64, 1, 5), G.NewAdamSolver(G.WithLearnRate(0.1))
	want := m.machine(t, cudaops.OnHost(), s, cudaops.Seed(1))
	G.WithLearnRate(0.07)(s)
	m.steps(t, want, 0, 4)
	must.Do(t, Save(path, want, nil))
	m.steps(t, want, 4, 8)
	again := newModel(t, tensor.Float64, 2, 5)
	got := again.machine(t, cudaops.OnHost(), G.NewAdamSolver(G.WithLearnRate(0.1)))
	must.Do(t, Load(path, got, nil))
	again.steps(t, got, 4, 8)
	same(t, "after a change of the learning rate", got, want)
}

// Learnables of both types in one graph, and an order of them that is another one.
func TestTwoTypes(t *testing.T) {
	build := func(from float64) (*G.ExprGraph, G.Nodes) {
		g, node := G.NewGraph(), must.Get[*G.Node](t)
		var all G.Nodes
		for i, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			w := G.NewVector(g, dt, G.WithName(fmt.Sprint("w of ", dt)), G.WithShape(3+i), G.WithInit(G.RangedFrom(int(from))))
			one := G.NewScalar(g, dt, G.WithName(fmt.Sprint("derivative of ", dt)))
			must.Do(t, G.Let(one, map[tensor.Dtype]any{tensor.Float32: float32(1), tensor.Float64: 1.0}[dt]))
			must.Get[G.Nodes](t)(G.Backpropagate(G.Nodes{node(G.Sum(node(G.HadamardProd(w, w))))}, G.Nodes{one}, G.Nodes{w}))
			all = append(all, w)
		}
		return g, all
	}
	machine := func(g *G.ExprGraph, learnables ...*G.Node) *cudaops.VM {
		vm := must.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.Seed(1), cudaops.Train(G.NewAdamSolver(), learnables...)))
		t.Cleanup(func() { must.Do(t, vm.Close()) })
		return vm
	}
	run := func(vm *cudaops.VM) {
		for range 3 {
			must.Do(t, vm.RunAll())
		}
	}
	path := filepath.Join(t.TempDir(), "run.safetensors")
	g, all := build(1)
	want := machine(g, all...)
	run(want)
	must.Do(t, Save(path, want, nil))
	run(want)
	g, all = build(5)
	got := machine(g, all[1], all[0])
	must.Do(t, Load(path, got, nil))
	run(got)
	same(t, "learnables of two types", got, want)
}

// A file is replaced as a whole: one that cannot be written leaves the old one, what killed
// programs left goes, and a link stays one.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.safetensors")
	m := newModel(t, tensor.Float64, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver())
	must.Do(t, Save(path, vm, 1))
	left := filepath.Join(dir, ".run.safetensors.0123456789abcdef.tmp")
	own := filepath.Join(dir, ".run.safetensors.mine.tmp")
	must.Write(t, left, "half a file")
	must.Write(t, own, "somebody's file")
	must.Do(t, os.Mkdir(filepath.Join(dir, "real"), 0o777))
	if err := os.Symlink(filepath.Join(dir, "real", "run"), filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	must.Write(t, filepath.Join(dir, "real", "run"), "old")
	must.Do(t, Save(filepath.Join(dir, "link"), vm, 2))
	if err := Save(path, vm, make(chan int)); err == nil {
		t.Error("a position that JSON has no text for is no error")
	}
	failing := fmt.Errorf("the disk is full")
	if err := replace(path, func(io.Writer) error { return failing }); err == nil {
		t.Error("an error of writing is none")
	}
	var at int
	must.Do(t, Load(path, vm, &at))
	if at != 1 {
		t.Errorf("got the position %d of a file that was not written", at)
	}
	must.Do(t, Load(filepath.Join(dir, "real", "run"), vm, &at))
	if info := must.Get[os.FileInfo](t)(os.Lstat(filepath.Join(dir, "link"))); at != 2 || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v now, and the file has the position %d", info.Mode(), at)
	}
	must.Do(t, Save(path, vm, 3))
	if _, err := os.Stat(left); err == nil {
		t.Error("the file that a killed program left is still there")
	}
	if names := must.Get[[]string](t)(filepath.Glob(filepath.Join(dir, ".*"))); len(names) != 1 || names[0] != own {
		t.Errorf("got the files %v beside it, want %s alone", names, own)
	}
}

func TestReversed(t *testing.T) {
	m := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	if got := fmt.Sprint(reversed(m, 4), reversed(m, 8), m); got != "[4 3 2 1 8 7 6 5] [8 7 6 5 4 3 2 1] [1 2 3 4 5 6 7 8]" {
		t.Errorf("got %s", got)
	}
}
