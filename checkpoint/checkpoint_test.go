package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
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
				testutil.Do(t, Save(path, want, at))
				whole.steps(t, want, 5, 11)

				again := newModel(t, dt, 2, 5)
				got := again.machine(t, on, maker(), cudaops.Seed(10), cudaops.ClipNorm(0.7), cudaops.StepEvery(every))
				var loaded position
				checked(t)(Load(path, got, &loaded))
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
	testutil.Do(t, Save(path, want, nil))
	m.steps(t, want, 4, 8)
	again := newModel(t, tensor.Float64, 2, 5)
	got := again.machine(t, cudaops.OnHost(), G.NewAdamSolver(G.WithLearnRate(0.1)))
	checked(t)(Load(path, got, nil))
	again.steps(t, got, 4, 8)
	same(t, "after a change of the learning rate", got, want)
}

// Learnables of both types in one graph, and an order of them that is another one.
func TestTwoTypes(t *testing.T) {
	build := func(from float64) (*G.ExprGraph, G.Nodes) {
		g, node := G.NewGraph(), testutil.Get[*G.Node](t)
		var all G.Nodes
		for i, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			w := G.NewVector(g, dt, G.WithName(fmt.Sprint("w of ", dt)), G.WithShape(3+i), G.WithInit(G.RangedFrom(int(from))))
			one := G.NewScalar(g, dt, G.WithName(fmt.Sprint("derivative of ", dt)))
			testutil.Do(t, G.Let(one, map[tensor.Dtype]any{tensor.Float32: float32(1), tensor.Float64: 1.0}[dt]))
			testutil.Get[G.Nodes](t)(G.Backpropagate(G.Nodes{node(G.Sum(node(G.HadamardProd(w, w))))}, G.Nodes{one}, G.Nodes{w}))
			all = append(all, w)
		}
		return g, all
	}
	machine := func(g *G.ExprGraph, learnables ...*G.Node) *cudaops.VM {
		vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(g, cudaops.OnHost(), cudaops.Seed(1), cudaops.Train(G.NewAdamSolver(), learnables...)))
		t.Cleanup(func() { testutil.Do(t, vm.Close()) })
		return vm
	}
	run := func(vm *cudaops.VM) {
		for range 3 {
			testutil.Do(t, vm.RunAll())
		}
	}
	path := filepath.Join(t.TempDir(), "run.safetensors")
	g, all := build(1)
	want := machine(g, all...)
	run(want)
	testutil.Do(t, Save(path, want, nil))
	run(want)
	g, all = build(5)
	got := machine(g, all[1], all[0])
	checked(t)(Load(path, got, nil))
	run(got)
	same(t, "learnables of two types", got, want)
}

// A file is replaced as a whole: one that cannot be written leaves the old one and nothing beside it.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run.safetensors")
	m := newModel(t, tensor.Float64, 1, 5)
	vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver())
	testutil.Do(t, Save(path, vm, 1))
	if err := Save(path, vm, make(chan int)); err == nil {
		t.Error("a position that JSON has no text for returned no error")
	}
	if err := replace(path, func(io.Writer) error { return errors.New("the disk is full") }); err == nil {
		t.Error("an error of writing is none")
	}
	var at int
	if checked(t)(Load(path, vm, &at)); at != 1 {
		t.Errorf("got the position %d of a file that was not written", at)
	}
	if names := testutil.Get[[]os.DirEntry](t)(os.ReadDir(dir)); len(names) != 1 {
		t.Errorf("got the files %v, want one", names)
	}
}

// Temporary files of programs that were killed are removed, and no others, whatever their names.
func TestReplaceRemovesItsOwn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model")
	left := filepath.Join(dir, ".model.stheno-0123456789abcdef.tmp")
	testutil.Write(t, left, "half a file")
	others := []string{
		".model.my-notes-2026-01.tmp", ".model.2026010112345678.tmp", ".model.0123456789abcdef.tmp", ".model.tmp", ".model..tmp",
		".model.stheno-my-notes-2026-1.tmp", ".model.stheno-0123456789abcde.tmp", ".model.stheno-+123456789abcdef.tmp",
		".model.stheno-0123456789abcdef.tmp.txt", "model.stheno-0123456789abcdef.tmp", ".model2.stheno-0123456789abcdef.tmp",
	}
	for _, name := range others {
		testutil.Write(t, filepath.Join(dir, name), "somebody's file")
	}
	folder := filepath.Join(dir, ".model.stheno-00000000000000ff.tmp")
	testutil.Do(t, os.Mkdir(folder, 0o777))
	testutil.Do(t, replace(path, func(io.Writer) error { return nil }))
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file that a killed program left: %v, want none", err)
	}
	if names := testutil.Get[[]os.DirEntry](t)(os.ReadDir(dir)); len(names) != len(others)+2 {
		t.Errorf("got the files %v, want model, the folder and %q", names, others)
	}
}

// The permissions of the old file stay, whatever the umask takes.
func TestReplaceKeepsMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no permissions")
	}
	path := filepath.Join(t.TempDir(), "run")
	testutil.Write(t, path, "old")
	for _, mode := range []os.FileMode{0o600, 0o640, 0o666, 0o664, 0o444, 0o755, 0o777} {
		testutil.Do(t, os.Chmod(path, mode))
		testutil.Do(t, replace(path, func(io.Writer) error { return nil }))
		if got := testutil.Get[os.FileInfo](t)(os.Stat(path)).Mode(); got != mode {
			t.Errorf("got %v, want %v, as before", got, mode)
		}
	}
}

// A link is followed, to a file that is there or not yet, and stays a link.
func TestReplaceFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "far", "real")
	testutil.Do(t, os.MkdirAll(real, 0o777))
	t.Chdir(dir)
	testutil.Write(t, filepath.Join(real, "old"), "old")
	for link, to := range map[string]string{
		"absolute": filepath.Join(real, "old"), "relative": filepath.Join("far", "real", "old"),
		"new": filepath.Join("far", "real", "new"), "chain": "new", // a file that is not there
		"folder": filepath.Join("far", "real"), filepath.Join("far", "real", "up"): filepath.Join("..", "beside"),
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip(err)
		}
	}
	sep := string(filepath.Separator)
	for path, want := range map[string]string{
		"absolute": filepath.Join(real, "old"), filepath.Join(dir, "relative"): filepath.Join(real, "old"),
		"new": filepath.Join(real, "new"), "chain": filepath.Join(real, "new"),
		"folder" + sep + "up": filepath.Join(dir, "far", "beside"),
	} {
		before := testutil.Get[os.FileInfo](t)(os.Lstat(path))
		testutil.Do(t, replace(path, func(w io.Writer) error { _, err := io.WriteString(w, path); return err }))
		after := testutil.Get[os.FileInfo](t)(os.Lstat(path))
		got, err := os.ReadFile(want)
		if string(got) != path || !os.SameFile(before, after) || after.Mode()&os.ModeSymlink == 0 {
			t.Errorf("%s is %v now, and %s has %q, %v, want a link as before, and %q", path, after.Mode(), want, got, err, path)
		}
	}
	testutil.Do(t, os.Symlink("two", "one"))
	testutil.Do(t, os.Symlink("one", "two"))
	if err := replace("one", func(io.Writer) error { return nil }); err == nil {
		t.Error("links in a circle returned no error")
	}
}

// All of several goroutines that save to one path succeed, and whoever loads meanwhile finds a whole
// file.
func TestSaveSideBySide(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	var group sync.WaitGroup
	for k := range 4 {
		m := newModel(t, tensor.Float32, 1, 1+40*k) // files of several sizes
		vm := m.machine(t, cudaops.OnHost(), G.NewAdamSolver())
		testutil.Do(t, Save(path, vm, nil))
		group.Go(func() {
			for range 50 {
				if err := Save(path, vm, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for busy := true; busy; {
		select {
		case <-done:
			busy = false
		default:
		}
		f, err := open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		testutil.Get[*cudaops.Snapshot](t)(f.state())
		testutil.Do(t, f.Close())
	}
	if names := testutil.Get[[]os.DirEntry](t)(os.ReadDir(dir)); len(names) != 1 {
		t.Errorf("got the files %v, want one", names)
	}
}

// The size of a file is that of the opened file, even if the path named another file just before.
func TestOpenWhileReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run")
	var files [2][]byte
	for k := range files {
		m := newModel(t, tensor.Float32, 1, 1+20*k)
		testutil.Do(t, SaveParameters(path, m.learnables...))
		files[k] = testutil.Get[[]byte](t)(os.ReadFile(path))
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for k := 0; ; k ^= 1 {
			select {
			case <-stop:
				return
			default:
				if err := errors.Join(os.WriteFile(path+".new", files[k], 0o666), os.Rename(path+".new", path)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	}()
	for range 3000 {
		if f, err := open(path); err != nil {
			t.Error(err)
		} else {
			testutil.Do(t, f.Close())
		}
	}
	close(stop)
	<-ended
}

func TestReversed(t *testing.T) {
	m := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	if got := fmt.Sprint(reversed(m, 4), reversed(m, 8), m); got != "[4 3 2 1 8 7 6 5] [8 7 6 5 4 3 2 1] [1 2 3 4 5 6 7 8]" {
		t.Errorf("got %s", got)
	}
}
