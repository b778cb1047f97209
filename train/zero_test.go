package train

import (
	"context"
	"errors"
	"io"
	"iter"
	"math"
	"path/filepath"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Zero values, nils and numbers out of all bounds are errors, and nothing panics.
func TestSurvives(t *testing.T) {
	noLeaks(t)
	l := newLine(t, true)
	enough := errors.New("enough")
	short := Seq(func(yield func(Batch, error) bool) {
		_ = yield(l.batch(0, points), nil) && yield(l.batch(1, points), nil) && yield(nil, enough)
	})
	run := func(opts ...Option) error {
		_, err := Run(t.Context(), l.vm, l.loss, short, opts...)
		return err
	}
	path := filepath.Join(t.TempDir(), "line")
	testutil.SurviveWhole(t, map[string]any{
		"NewData":        NewData,
		"NewDeviceData":  NewDeviceData,
		"Seq":            Seq,
		"Cosine":         Cosine,
		"Linear":         Linear,
		"StepDecay":      StepDecay,
		"Mean":           Mean,
		"Perplexity":     Perplexity,
		"Accuracy":       Accuracy,
		"BinaryAccuracy": BinaryAccuracy,
		"F1":             F1,
		"BinaryF1":       BinaryF1,
		"Evaluate": func(ctx context.Context, vm *cudaops.VM, s Source, m Metric) error {
			_, err := Evaluate(ctx, vm, s, m)
			return err
		},
		"Run": func(ctx context.Context, vm *cudaops.VM, loss *G.Node, source Source, o Option) error {
			_, err := Run(ctx, vm, loss, source, Steps(3), o)
			return err
		},
		"AfterEpoch": func(f func(Epoch) error) error { return run(AfterEpoch(f)) },
		"AfterStep":  func(n int, f func(Step) error) error { return run(AfterStep(n, f)) },
		"Checkpoint": func(name string, n int, value any) error { return run(Checkpoint(name, n, value)) },
		"Epochs":     func(n int) error { return run(Epochs(n)) },
		"EarlyStop":  func(n int) error { return run(EarlyStop(n)) },
		"ReduceOnPlateau": func(s G.Solver, rate, factor float64, patience int) error {
			return run(ReduceOnPlateau(s, rate, factor, patience))
		},
		"KeepBest":  func(name string) error { return run(KeepBest(name)) },
		"Validate":  func(vm *cudaops.VM, s Source, m Metric) error { return run(Validate(vm, s, m)) },
		"From":      func(p Position) error { return run(From(p)) },
		"LearnRate": func(s G.Solver, of func(int) float64) error { return run(LearnRate(s, of)) },
		"Prefetch":  func(n int) error { return run(Prefetch(n)) },
		"Progress":  func(w io.Writer) error { return run(Progress(w)) },
		"Steps":     func(n int) error { return run(Steps(n)) },
		"Weights":   func(n *G.Node) error { return run(Weights(n)) },
	}, -1, 1<<40, math.MaxInt, math.MinInt, path, math.NaN(), uint64(7),
		t.Context(), l.vm, l.g, l.loss, l.x, G.NewVanillaSolver(), io.Discard,
		Batch{}, Columns{l.x: nil}, Columns{new(G.Node): []int{1}}, Columns{l.x: (*tensor.Dense)(nil)}, Columns{l.x: new(tensor.Dense)}, Columns{l.x: []float64{}}, &Data{}, &DeviceData{}, SourceFunc(nil), SourceFunc(func(int, int) iter.Seq2[Batch, error] { return nil }), short,
		tensor.New(tensor.WithBacking([]float64{1, 2, 3})),
		Epoch{}, Metric{}, Mean("m", l.loss), History{}, Loss{}, Position{Epoch: math.MaxInt, Batch: math.MaxInt}, Step{}, Option(nil), Steps(1), struct{ Source }{})
}
