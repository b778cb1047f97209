package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// toBits rounds to a number of significant bits, to nearest even. A number from 2^-14 on has as many in BF16 and in F16.
func toBits(x float64, bits int) float64 {
	m, e := math.Frexp(x)
	return math.Ldexp(math.RoundToEven(math.Ldexp(m, bits)), e-bits)
}

// A step on n ranks is that of the mean of their gradients, each of which is rounded before it travels, and the mean after it: within the rounding of
// partial sums on more than two GPUs. The gradient of w is k x.
func TestGradientsIn(t *testing.T) {
	onRanks(t, func(t *testing.T, on func(n int) (Option, int), _ Option) {
		for by, bits := range map[kernels.Precision]int{BF16: 8, F16: 11} {
			for _, more := range [][]Option{nil, {ShardSolver()}, {ClipNorm(1e6)}, {Mixed(BF16), ShardSolver(), ClipNorm(1e6)}} {
				seed := testutil.Seed(t)
				r := rand.New(rand.NewPCG(seed, 0))
				ranks, n := on(1 + r.IntN(4))
				size := 1 + r.IntN(3000)
				g := G.NewGraph()
				x := G.NewVector(g, tensor.Float32, G.WithName("x"), G.WithShape(size))
				k := G.NewVector(g, tensor.Float32, G.WithName("k"), G.WithShape(size))
				w := G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(size), G.WithValue(tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(size))))
				loss := G.Must(G.Sum(G.Must(G.HadamardProd(k, G.Must(G.HadamardProd(x, w))))))
				testutil.Get[G.Nodes](t)(G.Grad(loss, w))
				vm := machine(t, g, append(more, ranks, Split(x), GradientsIn(by), Train(G.NewVanillaSolver(G.WithLearnRate(1)), w))...)
				xs, ks, want, unrounded := make([]float32, n*size), make([]float32, size), make([]float64, size), false
				for i := range ks {
					ks[i] = float32(0.5 + r.Float64())
				}
				for i := range xs {
					xs[i] = float32(0.5 + r.Float64())
					gradient := float64(xs[i] * ks[i%size])
					if n > 1 {
						gradient = toBits(gradient, bits)
					}
					want[i%size] += gradient
				}
				testutil.Do(t, vm.Let(x, tensor.New(tensor.WithShape(n*size), tensor.WithBacking(xs))))
				testutil.Do(t, G.Let(k, tensor.New(tensor.WithShape(size), tensor.WithBacking(ks))))
				testutil.Do(t, vm.RunAll())
				sameOnRanks(t, vm)
				testutil.Do(t, vm.Pull())
				for i, got := range testutil.Get[[]float64](t)(asFloats(w.Value())) {
					limit := 0.0
					if want[i] /= float64(n); n > 1 {
						unrounded = unrounded || toBits(got, bits) != got
						want[i] = toBits(want[i], bits)
					}
					if n > 2 && strings.HasSuffix(t.Name(), "gpus") {
						limit = math.Ldexp(float64(n)*want[i], -bits)
					}
					if d := math.Abs(got + want[i]); !(d <= limit) {
						t.Fatalf("seed %d, %v, %d ranks, %d options: element %d is %v, want %v", seed, by, n, len(more), i, got, -want[i])
					}
				}
				if unrounded {
					t.Errorf("seed %d, %v, %d ranks, %d options: got means that are not rounded", seed, by, n, len(more))
				}
			}
		}
	})
}

// Trainings whose gradients travel in 16 bits end near those in float32, with the same bits whether the solver's state is divided or not, and
// all collectives of gradients have 16 bits; under Mixed products store them so.
func TestGradientsInTraining(t *testing.T) {
	widths := []int{64, 128, 128, 64}
	if testing.Short() { // the race detector follows each element
		widths = []int{32, 64, 64, 32}
	}
	inputs, outputs := widths[0], widths[len(widths)-1]
	for with, opts := range map[string][]Option{"": nil, "Mixed": {Mixed(BF16)}, "StepEvery": {Mixed(BF16), StepEvery(2)}, "LossScaling": {LossScaling(GradScaler{Interval: 3})}} {
		t.Run(with, func(t *testing.T) {
			seed := testutil.Seed(t)
			train := func(more ...Option) (*shareNet, *VM) {
				n := newShare(t, tensor.Float32, 16, widths, seed)
				vm := machine(t, n.g, append(more, append(opts, OnHosts(3), Split(n.x, n.y), Train(G.NewAdamSolver(), n.learnables...))...)...)
				r := rand.New(rand.NewPCG(seed, 1))
				for range 10 {
					n.feed(t, vm, draw(r, tensor.Float32, 48, inputs), draw(r, tensor.Float32, 48, outputs))
					testutil.Do(t, vm.RunAll())
				}
				sameOnRanks(t, vm)
				testutil.Do(t, vm.Pull())
				return n, vm
			}
			plain, _ := train()
			half, vm := train(GradientsIn(BF16))
			divided, _ := train(GradientsIn(BF16), ShardSolver())
			changed := 0.0
			for i, p := range half.learnables {
				d := maxDiff(t, p.Value(), plain.learnables[i].Value())
				if changed = max(changed, d); !(d < 0.02) { // steps of 0.001 of Adam
					t.Errorf("%s differs by %g of that of gradients in float32", p.Name(), d)
				}
				if d := maxDiff(t, divided.learnables[i].Value(), p.Value()); d != 0 && with != "LossScaling" {
					t.Errorf("%s differs by %g of that of an undivided state", p.Name(), d)
				}
			}
			if changed == 0 {
				t.Error("got the learnables of gradients in float32")
			}
			for _, in := range vm.shown.Load().graph.Program.Instrs {
				if op, is := in.Op.(program.Collective); is && in.In[0].Elements() > 1 && in.In[0].Dtype.Size() != 2 {
					t.Errorf("%v has values of %v", op, in.In[0].Dtype)
				}
				if op, mapped := in.Op.(program.Map); mapped && with == "Mixed" && len(in.In) == 1 && op.Func.String() == "bf16(f32(x0))" {
					t.Errorf("a launch rounds what a product could have stored: %v", in.In[0])
				}
			}
		})
	}
}

func TestGradientsInErrors(t *testing.T) {
	n := newShare(t, tensor.Float32, 2, []int{3, 2}, 1)
	train := Train(G.NewVanillaSolver(), n.learnables...)
	for want, opts := range map[string][]Option{
		"GradientsIn got [TF32], want BF16 or F16":                 {GradientsIn(TF32), train},
		"GradientsIn got [BF16 F16], want BF16 or F16, and one":    {GradientsIn(BF16), GradientsIn(F16), train},
		"got the option GradientsIn without Train":                 {GradientsIn(BF16)},
		"GradientsIn got [Precision(9)], want BF16 or F16, and on": {GradientsIn(9), train},
	} {
		vm, err := NewVM(n.g, append(opts, OnHosts(2))...)
		if err == nil {
			vm.Close()
		}
		if err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got error %v, want %q in it", err, want)
		}
	}
}
