package train

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "train: ") || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want one with %q", err, want)
	}
}

// Arguments that Run cannot use are refused before anything runs.
func TestRunErrors(t *testing.T) {
	l, other := newLine(t, false), newLine(t, false)
	idle := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(other.g, cudaops.OnHost()))
	t.Cleanup(func() { testutil.Do(t, idle.Close()) })
	never := SourceFunc(func(int, int) iter.Seq2[Batch, error] {
		t.Error("batches are made")
		return func(func(Batch, error) bool) {}
	})
	ctx := t.Context()
	run := func(opts ...Option) error {
		_, err := Run(ctx, l.vm, l.loss, never, opts...)
		return err
	}
	for want, err := range map[string]error{
		"nil VM":                     func() error { _, err := Run(ctx, nil, l.loss, never); return err }(),
		"nil VM, loss":               func() error { _, err := Run(ctx, l.vm, nil, never); return err }(),
		"loss or source":             func() error { _, err := Run(ctx, l.vm, l.loss, nil); return err }(),
		"nil context":                func() error { _, err := Run((*stopped)(nil), l.vm, l.loss, never); return err }(),
		"a nil VM, loss or":          func() error { _, err := Run(ctx, l.vm, l.loss, (*Data)(nil)); return err }(),
		"VM, loss or source":         func() error { _, err := Run(ctx, l.vm, l.loss, (*DeviceData)(nil)); return err }(),
		", loss or source":           func() error { _, err := Run(ctx, l.vm, l.loss, SourceFunc(nil)); return err }(),
		"a data set that NewData or": func() error { _, err := Run(ctx, l.vm, l.loss, new(Data)); return err }(),
		"or NewDeviceData did not":   func() error { _, err := Run(ctx, l.vm, l.loss, new(DeviceData)); return err }(),
		"Seq got a nil iterator":     func() error { _, err := Run(ctx, l.vm, l.loss, Seq(nil)); return err }(),
		"returned nil for its": func() error {
			_, err := Run(ctx, l.vm, l.loss, SourceFunc(func(int, int) iter.Seq2[Batch, error] { return nil }))
			return err
		}(),
		"makes no steps":  func() error { _, err := Run(ctx, idle, other.loss, never); return err }(),
		"want an output":  func() error { _, err := Run(ctx, l.vm, other.loss, never); return err }(),
		"want a scalar":   func() error { _, err := Run(ctx, l.vm, l.x, never); return err }(),
		"nil option":      run(nil),
		"Epochs got 0":    run(Epochs(0)),
		"Steps got -1":    run(Steps(-1), Epochs(2)),
		"Prefetch got -1": run(Prefetch(-1)),
		"Prefetch got 1099511627776, want 0 to 65536":       run(Prefetch(1 << 40)),
		"Prefetch got 9223372036854775807, want 0 to 65536": run(Prefetch(math.MaxInt)),
		"AfterStep got 0":      run(AfterStep(0, func(Step) error { return nil })),
		"AfterStep got a nil":  run(AfterStep(1, nil)),
		"AfterEpoch got a nil": run(AfterEpoch(nil)),
		"LearnRate got a nil":  run(LearnRate(nil, func(int) float64 { return 1 })),
		"got a learning rate of a *gorgonia.AdamSolver by LearnRate or ReduceOnPlateau that is none of the VM's": run(LearnRate(G.NewAdamSolver(), func(int) float64 { return 1 })),
		"got the option Checkpoint twice": run(Checkpoint(t.TempDir()+"/a", 1), Checkpoint(t.TempDir()+"/b", 1)),
		"got the option KeepBest twice":   run(KeepBest(t.TempDir()+"/a"), KeepBest(t.TempDir()+"/b")),
		"Progress got a nil":              run(Progress(nil)),
		"Weights got a nil":               run(Weights(nil)),
		"Weights got node slope":          run(Weights(l.learnables[0])),
		"From got step -1":                run(From(Position{Step: -1})),
		`in an order of "backward"`:       run(From(Position{Order: "backward"})),
	} {
		wantError(t, err, want)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	h, err := Run(ended, l.vm, l.loss, Seq(l.batches(3, nil)))
	wantError(t, err, "context canceled")
	newReference().check(t, l, h)
	testutil.Get[History](t)(Run(ctx, l.vm, l.loss, never, Steps(5), From(Position{Step: 5}))) // is there already
}

// stopped is a type of contexts.
type stopped struct{ context.Context }

// The error for a wrong batch names the batch, the input, the value that it got and the one that it needs.
func TestBatchErrors(t *testing.T) {
	noLeaks(t)
	other := newLine(t, false)
	for name, c := range map[string]struct {
		batches  func(l *line) []Batch
		want     string
		steps    int
		weighted bool
	}{
		"none":        {batches: func(l *line) []Batch { return nil }, want: "epoch 0 has no batches"},
		"short alone": {batches: func(l *line) []Batch { return []Batch{l.batch(0, 3)} }, want: "no batch of full size: got 3 rows"},
		"short within": {batches: func(l *line) []Batch {
			return []Batch{l.batch(0, 4), l.batch(1, 3), l.batch(2, 4)}
		}, want: "batch 1 of epoch 0 has 3 rows", steps: 1},
		"too long":      {batches: func(l *line) []Batch { return []Batch{l.batch(0, 4), l.batch(1, 5)} }, want: "step 2 (epoch 0, batch 1): input ", steps: 1},
		"nil value":     {batches: func(l *line) []Batch { return []Batch{{l.x: nil}} }, want: "nil node or value"},
		"nil tensor":    {batches: func(l *line) []Batch { return []Batch{{l.x: (*tensor.Dense)(nil)}} }, want: "nil node or value"},
		"nil node":      {batches: func(l *line) []Batch { return []Batch{{nil: l.batch(0, 4)[l.x]}} }, want: "nil node or value"},
		"another graph": {batches: func(l *line) []Batch { return []Batch{other.batch(0, 4)} }, want: "is not in the graph of this VM"},
		"missing":       {batches: func(l *line) []Batch { return []Batch{{l.x: l.batch(0, 4)[l.x]}} }, want: "y has no value"},
		"missing later": {batches: func(l *line) []Batch {
			return []Batch{l.batch(0, 4), {l.x: l.batch(1, 4)[l.x]}}
		}, want: "batch 1 of epoch 0: got no value for input y, want the inputs of the first batch", steps: 1},
		"learnable": {batches: func(l *line) []Batch { return []Batch{l.withLearnable(l.batch(0, 4))} }, want: "got a value for the learnable slope, want only values of inputs"},
		"learnable later": {batches: func(l *line) []Batch { return []Batch{l.batch(0, 4), l.withLearnable(l.batch(1, 4))} },
			want: "batch 1 of epoch 0: got a value for slope, want only the inputs of the first batch", steps: 1},
		"empty": {batches: func(l *line) []Batch { return []Batch{l.batch(0, 4), {}} }, want: "batch 1 of epoch 0: got a batch without values", steps: 1},
		"nil":   {batches: func(l *line) []Batch { return []Batch{l.batch(0, 4), nil} }, want: "batch 1 of epoch 0: got a batch without values", steps: 1},
		"other type": {batches: func(l *line) []Batch {
			return []Batch{{l.x: tensor.New(tensor.WithBacking([]float32{1, 2, 3, 4}))}}
		}, want: "got elements of float32, want float64"},
		"rows that vary": {batches: func(l *line) []Batch { return []Batch{{l.x: l.batch(0, 3)[l.x], l.y: l.batch(0, 2)[l.y]}} }, want: "as for another input of the batch"},
		"weighted": {batches: func(l *line) []Batch {
			return []Batch{{l.x: tensor.New(tensor.WithBacking([]string{"a", "b"})), l.y: l.batch(0, 2)[l.y]}}
		}, want: "which cannot be filled up", weighted: true},
		"by an op": {batches: func(l *line) []Batch { return []Batch{{l.loss: G.NewF64(1)}} }, want: "Cannot bind a value to a non input node"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLine(t, c.weighted)
			var opts []Option
			if c.weighted {
				opts = append(opts, Weights(l.weights))
			}
			source := Seq(func(yield func(Batch, error) bool) {
				for _, b := range c.batches(l) {
					if !yield(b, nil) {
						return
					}
				}
			})
			h, err := Run(t.Context(), l.vm, l.loss, source, opts...)
			wantError(t, err, c.want)
			steps(constant, []int{0, 1, 2}[:c.steps]...).check(t, l, h)
		})
	}
}

// withLearnable returns a batch with a value for a learnable, too.
func (l *line) withLearnable(b Batch) Batch {
	b[l.learnables[0]] = G.NewF64(7)
	return b
}

// A loss that is NaN ends the training with the step that it is of.
func TestNaN(t *testing.T) {
	l := newLine(t, false)
	poison := l.batch(0, points)
	poison[l.y].Data().([]float64)[2] = math.NaN()
	h, err := Run(t.Context(), l.vm, l.loss, Seq(l.batches(2, func(yield func(Batch, error) bool) { yield(poison, nil) })))
	wantError(t, err, "step 3 (epoch 0, batch 3): the loss is NaN")
	if h.Steps != 3 || !math.IsNaN(h.Losses[2].Loss) {
		t.Errorf("the history is %+v", h)
	}
}

// Runs without results have no loss; means are over the runs with results.
func TestReadEvery(t *testing.T) {
	l := newLine(t, false, cudaops.ReadEvery(3))
	var seen []float64
	h := testutil.Get[History](t)(Run(t.Context(), l.vm, l.loss, Seq(l.batches(4, nil)), Epochs(2),
		AfterStep(1, func(s Step) error { seen = append(seen, s.Loss); return nil })))
	r := steps(constant, 0, 1, 2, 3, 0, 1, 2, 3)
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-12 }
	if len(h.Losses) != 2 || h.Losses[0].Step != 3 || h.Losses[1].Step != 6 ||
		!near(h.Losses[0].Loss, r.losses[2]) || !near(h.Losses[1].Loss, r.losses[5]) {
		t.Errorf("losses %v, want those of steps 3 and 6 of %v", h.Losses, r.losses)
	}
	if !near(h.Epochs[0].Loss, r.losses[2]) || !near(h.Epochs[1].Loss, r.losses[5]) {
		t.Errorf("epochs %+v", h.Epochs)
	}
	want := fmt.Sprint([]float64{math.NaN(), math.NaN(), seen[2], seen[2], seen[2], seen[5], seen[5], seen[5]})
	if fmt.Sprint(seen) != want || !near(seen[2], r.losses[2]) {
		t.Errorf("after the steps: %v, want %v", seen, want)
	}
}

// A solver of another module makes its steps on the host, where the learnables are.
func TestSolverOnTheHost(t *testing.T) {
	l := newLine(t, false)
	var err error
	vm, err := cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.Train(own{G.NewVanillaSolver(G.WithLearnRate(rate0))}, l.learnables...))
	testutil.Do(t, err)
	defer vm.Close()
	h := testutil.Get[History](t)(Run(t.Context(), vm, l.loss, Seq(l.batches(3, nil))))
	steps(constant, 0, 1, 2).check(t, l, h)
}

// own is a solver that is none of Gorgonia's types.
type own struct{ G.Solver }

func TestDataErrors(t *testing.T) {
	g := G.NewGraph()
	x := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(4, 3))
	y := G.NewVector(g, tensor.Int, G.WithName("y"), G.WithShape(4))
	five := G.NewVector(g, tensor.Int, G.WithName("five"), G.WithShape(5))
	scalar := G.NewScalar(g, tensor.Float32, G.WithName("scalar"))
	floats := make([]float32, 12)
	for want, c := range map[string]Columns{
		"no columns":               nil,
		"nil node":                 {nil: floats},
		"input scalar: got an inp": {scalar: floats},
		"input x: got a string":    {x: "much"},
		"input x: got a <nil>":     {x: nil},
		"input x: got a []float32": {x: []float32{}},
		"elements of float64":      {x: make([]float64, 12)},
		"elements of []float32":    {x: [][]float32{floats[:3]}},
		"rows of shape (13)":       {x: make([]float32, 13)},
		"rows of shape (3, 4)":     {x: tensor.New(tensor.WithShape(3, 4), tensor.WithBacking(floats))},
		"rows of shape (12)":       {x: tensor.New(tensor.WithShape(12), tensor.WithBacking(floats))},
		"another input has":        {x: floats, y: []int{1, 2, 3}},
		"for batches of":           {five: []int{1, 2, 3, 4}, y: []int{1, 2, 3, 4}},
	} {
		_, err := NewData(c)
		wantError(t, err, "NewData")
		wantError(t, err, want)
	}
	three, four := tensor.New(tensor.WithBacking([]int{1, 2, 3})), tensor.New(tensor.WithBacking([]int{1, 2, 3, 4}))
	for want, make := range map[string]func() (*DeviceData, error){
		"nil graph":                          func() (*DeviceData, error) { return NewDeviceData(nil, 2, three) },
		"batches of 0":                       func() (*DeviceData, error) { return NewDeviceData(g, 0, three) },
		"no tensors":                         func() (*DeviceData, error) { return NewDeviceData(g, 2) },
		"tensor 1: got":                      func() (*DeviceData, error) { return NewDeviceData(g, 2, three, nil) },
		"tensor 1: got 4 rows, want 3":       func() (*DeviceData, error) { return NewDeviceData(g, 2, three, four) },
		"tensor 0: got nil or no axis, want": func() (*DeviceData, error) { return NewDeviceData(g, 2, tensor.New(tensor.FromScalar(7))) },
	} {
		_, err := make()
		wantError(t, err, "NewDeviceData")
		wantError(t, err, want)
	}
}

// cancelling is an op that does something before it computes.
type cancelling struct {
	G.Op
	first func()
}

func (c cancelling) Do(in ...G.Value) (G.Value, error) { c.first(); return c.Op.Do(in...) }

// A context that is done in the middle of a step takes the step back.
func TestCancelledInAStep(t *testing.T) {
	l := newLine(t, false)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough, calls := errors.New("enough"), 0
	tanh := testutil.Get[*G.Node](t)(G.Tanh(G.NewVector(G.NewGraph(), tensor.Float64, G.WithShape(points), G.WithName("x"))))
	testutil.Get[*G.Node](t)(G.ApplyOp(cancelling{tanh.Op(), func() {
		if calls++; calls == 3 {
			cancel(enough)
		}
	}}, l.x))
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(l.g, cudaops.OnHost(), cudaops.Train(G.NewVanillaSolver(G.WithLearnRate(rate0)), l.learnables...)))
	defer vm.Close()
	h, err := Run(ctx, vm, l.loss, Seq(l.batches(5, nil)))
	wantError(t, err, "enough")
	if !errors.Is(err, enough) || calls != 3 || h.Steps != 2 || h.End.Step != 2 {
		t.Errorf("got the error %v and %+v after %d calls, want two steps of three", err, h, calls)
	}
	steps(func(int) float64 { return rate0 }, 0, 1).check(t, l, h)
}
