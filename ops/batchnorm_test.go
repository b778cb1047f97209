package ops_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// normed is a BatchNorm and the sum of its products with weights.
type normed struct {
	g                         *G.ExprGraph
	shape                     tensor.Shape
	in                        []*G.Node // x, scale, bias, mean, variance
	out, next, spread, weight *G.Node
	loss                      *G.Node
}

const momentum, epsilon = 0.1, 1e-3

func newNormed(t testing.TB, r *rand.Rand, opts ...ops.BatchNormOption) *normed {
	node, b := testutil.Get[*G.Node](t), &normed{g: G.NewGraph()}
	b.shape = tensor.Shape{2 + r.IntN(4), 1 + r.IntN(4)}
	for range r.IntN(3) {
		b.shape = append(b.shape, 1+r.IntN(4))
	}
	random := func(name string, shape ...int) *G.Node {
		v := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(shape...))
		for i := range v.Float64s() {
			if v.Float64s()[i] = r.NormFloat64(); name == "variance" {
				v.Float64s()[i] = 0.5 + r.Float64()
			}
		}
		return G.NewTensor(b.g, tensor.Float64, len(shape), G.WithName(name), G.WithShape(shape...), G.WithValue(v))
	}
	b.in = append(b.in, random("x", b.shape...))
	for _, name := range []string{"scale", "bias", "mean", "variance"} {
		b.in = append(b.in, random(name, b.shape[1]))
	}
	b.weight = random("weight", b.shape...)
	var err error
	b.out, b.next, b.spread, err = ops.BatchNorm(b.in[0], b.in[1], b.in[2], b.in[3], b.in[4], momentum, epsilon, opts...)
	testutil.Do(t, err)
	b.loss = node(ops.Sum(node(ops.Map("a*b", b.out, b.weight))))
	testutil.Get[G.Nodes](t)(G.Grad(b.loss, b.in[:3]...))
	return b
}

func data(v G.Value) []float64 {
	if f, scalar := v.Data().(float64); scalar {
		return []float64{f}
	}
	return slices.Clone(v.Data().([]float64))
}

// reference returns the output, the next mean and variance, and the loss, of values of the inputs.
func (b *normed) reference(in [][]float64, trains bool) (out, mean, variance []float64, loss float64) {
	channels := b.shape[1]
	inner := b.shape.TotalSize() / b.shape[0] / channels
	out, mean, variance = make([]float64, len(in[0])), slices.Clone(in[3]), slices.Clone(in[4])
	for c := range channels {
		var at []int
		for i := range in[0] {
			if i/inner%channels == c {
				at = append(at, i)
			}
		}
		n, m, v := float64(len(at)), 0.0, 0.0
		for _, i := range at {
			m += in[0][i] / n
		}
		for _, i := range at {
			v += (in[0][i] - m) * (in[0][i] - m) / n
		}
		if trains {
			mean[c] = (1-momentum)*mean[c] + momentum*m
			variance[c] = (1-momentum)*variance[c] + momentum*v*n/(n-1)
		} else {
			m, v = mean[c], variance[c]
		}
		for _, i := range at {
			out[i] = (in[0][i]-m)/math.Sqrt(v+epsilon)*in[1][c] + in[2][c]
			loss += out[i] * data(b.weight.Value())[i]
		}
	}
	return out, mean, variance, loss
}

// TestBatchNorm compares results with loops, and gradients with differences of these, on Gorgonia's machines and Stheno's, in both modes.
func TestBatchNorm(t *testing.T) {
	withoutTag(t)
	seeds := testutil.Random(t)
	for k := range 40 {
		seed := seeds.Uint64()
		var opts []ops.BatchNormOption // a machine is one rank
		if k%2 == 1 {
			opts = append(opts, ops.OverRanks())
		}
		for _, trains := range []bool{true, false} {
			for machine, run := range map[string]func(b *normed){
				"stheno": func(b *normed) {
					opts := []cudaops.Option{cudaops.OnAny(), cudaops.Strict(), cudaops.Keep(b.out, b.next, b.spread)}
					if !trains {
						opts = append(opts, cudaops.EvalMode())
					}
					vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(b.g, opts...))
					defer vm.Close()
					testutil.Do(t, vm.RunAll())
				},
				"tape": func(b *normed) {
					var opts []G.VMOpt
					if !trains {
						opts = append(opts, G.EvalMode())
					}
					vm := G.NewTapeMachine(b.g, opts...)
					defer vm.Close()
					testutil.Do(t, vm.RunAll())
				},
			} {
				b := newNormed(t, rand.New(rand.NewPCG(seed, 1)), opts...)
				run(b)
				var in [][]float64
				for _, n := range b.in {
					in = append(in, data(n.Value()))
				}
				close := func(what string, got, want []float64, tolerance float64) {
					t.Helper()
					for i := range want {
						if math.Abs(got[i]-want[i]) > tolerance*(1+math.Abs(want[i])) {
							t.Fatalf("%s, training %v, shape %v: %s, element %d: got %v, want %v", machine, trains, b.shape, what, i, got[i], want[i])
						}
					}
				}
				out, mean, variance, _ := b.reference(in, trains)
				close("out", data(b.out.Value()), out, 1e-12)
				close("mean", data(b.next.Value()), mean, 1e-12)
				close("variance", data(b.spread.Value()), variance, 1e-12)
				for k := range 3 {
					const h = 1e-5
					want := make([]float64, len(in[k]))
					for i := range in[k] {
						own := in[k][i]
						in[k][i] = own + h
						_, _, _, above := b.reference(in, trains)
						in[k][i] = own - h
						_, _, _, below := b.reference(in, trains)
						in[k][i], want[i] = own, (above-below)/(2*h)
					}
					close("gradient of "+b.in[k].Name(), data(testutil.Get[G.Value](t)(b.in[k].Grad())), want, 1e-5)
				}
			}
		}
	}
}

// TestBatchNormState: the running values stay on the device, and a VM that evaluates neither changes nor copies them.
func TestBatchNormState(t *testing.T) {
	b := newNormed(t, rand.New(rand.NewPCG(1, 2)))
	states := []cudaops.Option{cudaops.OnAny(), cudaops.State(b.in[3], b.next), cudaops.State(b.in[4], b.spread)}
	s := cudaops.NewStore()
	defer s.Close()
	trains := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(b.g, append(states, cudaops.In(s))...))
	defer trains.Close()
	evaluates := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(b.g, append(states, cudaops.In(s), cudaops.Inference())...))
	defer evaluates.Close()
	if steps := evaluates.Report().Steps; len(steps) != 3 {
		t.Errorf("got %d steps of an evaluation, want the deviations, the map and the loss: %v", len(steps), steps)
	}
	in := [][]float64{data(b.in[0].Value()), data(b.in[1].Value()), data(b.in[2].Value()), data(b.in[3].Value()), data(b.in[4].Value())}
	for range 3 {
		testutil.Do(t, trains.RunAll())
		testutil.Do(t, evaluates.RunAll())
		_, in[3], in[4], _ = b.reference(in, true)
	}
	_, _, _, want := b.reference(in, false)
	if got := data(b.loss.Value())[0]; math.Abs(got-want) > 1e-9*(1+math.Abs(want)) {
		t.Errorf("an evaluation after three runs gives the loss %v, want %v", got, want)
	}
}
