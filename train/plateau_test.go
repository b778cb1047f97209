package train_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// descent is a parameter that each epoch, of one step, lowers by the learning rate, and a validation with given scores.
type descent struct {
	p, loss *G.Node
	solver  G.Solver
	vm      *cudaops.VM
	data    *train.Data
	valid   train.Option
}

func newDescent(t *testing.T, min bool, scores []float64) *descent {
	store := cudaops.NewStore()
	t.Cleanup(func() { store.Close() })
	model := func(opts ...nn.Option) (s *nn.Scope, p, x, y *G.Node) {
		s = nn.New(G.NewGraph(), append(opts, nn.In(store), nn.Dtype(tensor.Float64))...)
		p, x = s.Parameter("p", nn.Constant(0), 1), s.Input("x", tensor.Float64, 2)
		return s, p, x, s.Keep(ops.Sum(s.Keep(ops.Map("a*b", p, x))))
	}
	d := &descent{solver: G.NewVanillaSolver()}
	s, p, x, loss := model()
	testutil.Do(t, s.Grad(loss))
	d.p, d.loss, d.vm = p, loss, testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Train(d.solver, p)))
	d.data = testutil.Get[*train.Data](t)(train.NewData(train.Columns{x: []float64{1, 0}}))
	s, _, x, y := model(nn.Evaluation())
	test := testutil.Get[*cudaops.VM](t)(s.NewVM(cudaops.OnAny(), cudaops.Outputs(y)))
	t.Cleanup(func() { test.Close(); d.vm.Close() })
	held := testutil.Get[*train.Data](t)(train.NewData(train.Columns{x: []float64{1, 0}}))
	d.valid = train.Validate(test, held, train.Metric{Name: "score", Min: min, Nodes: G.Nodes{x}, Sums: func([]G.Value) ([]float64, error) { return nil, nil }, Value: func([]float64) float64 {
		score := scores[0]
		scores = scores[1:]
		return score
	}})
	return d
}

// The rates of ReduceOnPlateau are those of PyTorch's ReduceLROnPlateau, also of a training that continues from its checkpoint.
func TestReduceOnPlateau(t *testing.T) {
	var r struct{ Scores, Min, Max []float64 }
	testutil.Do(t, json.Unmarshal(testutil.Get[[]byte](t)(os.ReadFile("testdata/optimizers.json")), &r))
	for name, want := range map[string][]float64{"min": r.Min, "max": r.Max} {
		for _, until := range []int{len(want), 7, 8, 9} {
			path, last := filepath.Join(t.TempDir(), "checkpoint"), 0.0
			epochs := 0
			for from := 0; from < len(want); from = until {
				scores := make([]float64, len(want))
				for i, s := range r.Scores {
					if scores[i] = s; name == "max" {
						scores[i] = -s
					}
				}
				d := newDescent(t, name == "min", scores[from:])
				end := until
				if from > 0 {
					end = len(want)
				}
				testutil.Get[train.History](t)(train.Run(context.Background(), d.vm, d.loss, d.data, d.valid, train.Epochs(end), train.Checkpoint(path, 1),
					train.ReduceOnPlateau(d.solver, 0.1, 0.5, 1), train.AfterEpoch(func(train.Epoch) error {
						testutil.Do(t, d.vm.Pull())
						p := d.p.Value().Data().([]float64)[0]
						if got := last - p; !(math.Abs(got-want[epochs]) < 1e-12) {
							t.Errorf("%s, until epoch %d at first: epoch %d has the rate %v, want %v", name, until, epochs, got, want[epochs])
						}
						last = p
						epochs++
						return nil
					})))
				if end == len(want) {
					break
				}
			}
			if epochs != len(want) {
				t.Errorf("%s, until epoch %d at first: %d epochs, want %d", name, until, epochs, len(want))
			}
		}
	}
	d := newDescent(t, true, []float64{1})
	reduce, rate := train.ReduceOnPlateau(d.solver, 0.1, 0.5, 1), train.LearnRate(d.solver, train.StepDecay(1, 1, 1))
	path := filepath.Join(t.TempDir(), "checkpoint")
	testutil.Get[train.History](t)(train.Run(context.Background(), d.vm, d.loss, d.data, d.valid, train.Checkpoint(path, 1), reduce))
	for want, opts := range map[string][]train.Option{
		"got ReduceOnPlateau without Validate":           {reduce},
		"two learning rates of one solver":               {d.valid, reduce, rate},
		"one solver by LearnRate or ReduceOnPlateau":     {rate, rate},
		"a training with 1 ReduceOnPlateau, want 0":      {d.valid, train.Checkpoint(path, 1)},
		"rate 0.1, factor 1 and patience 1":              {d.valid, train.ReduceOnPlateau(d.solver, 0.1, 1, 1)},
		"got a solver <nil>, rate 0.1, factor 0.5":       {d.valid, train.ReduceOnPlateau(nil, 0.1, 0.5, 1)},
		"rate NaN, factor 0.5 and patience 1, want a so": {d.valid, train.ReduceOnPlateau(d.solver, math.NaN(), 0.5, 1)},
		"rate 1, factor 0.5 and patience -1":             {d.valid, train.ReduceOnPlateau(d.solver, 1, 0.5, -1)},
	} {
		if _, err := train.Run(context.Background(), d.vm, d.loss, d.data, opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}
