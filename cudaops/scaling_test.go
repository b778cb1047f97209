package cudaops

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"
)

// hardInputs draws the inputs of a run: normal numbers, at times with one that is NaN, infinite, or one of the others.
func hardInputs(r *rand.Rand, inputs G.Nodes, others ...float32) (list []*tensor.Dense) {
	for _, x := range inputs {
		list = append(list, draw(r, x.Dtype(), x.Shape()...))
	}
	if r.IntN(4) == 0 {
		x := list[r.IntN(len(list))].Float32s()
		others = append(others, float32(math.NaN()), float32(math.Inf(1-2*r.IntN(2))))
		x[r.IntN(len(x))] = others[r.IntN(len(others))]
	}
	return list
}

func bind(t testing.TB, inputs G.Nodes, list []*tensor.Dense) {
	for i, x := range inputs {
		testutil.Do(t, G.Let(x, list[i].Clone()))
	}
}

// scalerReference is PyTorch's GradScaler, with scales of at least 1, in a few lines: update takes whether a step has found a gradient that is not finite.
type scalerReference struct {
	GradScaler
	LossScale
}

func (s *scalerReference) update(found bool) {
	if found {
		s.LossScale.Scale, s.Good, s.Skipped = max(s.LossScale.Scale*s.Backoff, 1), 0, s.Skipped+1
		return
	}
	s.Steps, s.Good, s.Skipped = s.Steps+1, s.Good+1, 0
	if s.Good == s.Interval {
		if grown := float32(s.LossScale.Scale * s.Growth); grown <= math.MaxFloat32 {
			s.LossScale.Scale = float64(grown)
		}
		s.Good = 0
	}
}

// In 300 runs with overflows, whose gradients are 2(w-x), scale and counts are those of a GradScaler in Go, and learnables, moments and averages are bit for bit those of a VM
// without LossScaling that makes only the steps that are not skipped, for every solver and option of a step.
func TestLossScaling(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for name, solver := range trainingSolvers {
			if name == "BarzilaiBorwein" {
				continue
			}
			seed := testutil.Seed(t)
			r := rand.New(rand.NewPCG(seed, 0))
			m, plain := newTargets(t, tensor.Float32, seed), newTargets(t, tensor.Float32, seed)
			every := 1 + r.IntN(3)
			opts := []Option{on, StepEvery(every), EMA(0.9)}
			if r.IntN(2) == 0 {
				opts = append(opts, ClipNorm(0.5))
			}
			ref := scalerReference{GradScaler: GradScaler{Scale: math.Ldexp(1, r.IntN(120)), Growth: 2, Backoff: 0.5, Interval: 1 + r.IntN(9)}}
			ref.LossScale.Scale = ref.GradScaler.Scale
			trains := func(m *targets) []Option {
				return append(slices.Clone(opts), Train(solver(), m.learnables[0]), Train(G.NewAdamSolver(G.WithLearnRate(0.01)), m.learnables[1]))
			}
			vm, want := machine(t, m.g, append(trains(m), LossScaling(ref.GradScaler))...), machine(t, plain.g, trains(plain)...)
			t.Logf("%s: seed %d, a step of %d runs, %+v", name, seed, every, ref.GradScaler)
			skipped := 0
			for range 300 / every {
				testutil.Do(t, vm.Pull())
				var runs [][]*tensor.Dense
				found, sums := false, map[*G.Node][]float32{}
				for range every {
					list := hardInputs(r, m.inputs, 1e38, float32(math.Ldexp(1, r.IntN(128))))
					runs = append(runs, list)
					bind(t, m.inputs, list)
					testutil.Do(t, vm.RunAll())
					for i, w := range m.learnables {
						if sums[w] == nil {
							sums[w] = make([]float32, w.Shape().TotalSize())
						}
						for k, p := range w.Value().Data().([]float32) {
							sums[w][k] += 2 * (p - list[i].Float32s()[k]) * float32(ref.LossScale.Scale)
							found = found || sums[w][k]-sums[w][k] != 0
						}
					}
				}
				if ref.update(found); found {
					skipped++
				} else {
					for _, list := range runs {
						bind(t, plain.inputs, list)
						testutil.Do(t, want.RunAll())
					}
				}
				if got := testutil.Get[LossScale](t)(vm.LossScale()); got != ref.LossScale || vm.Overflowed() != found {
					t.Fatalf("got %+v, found %v, want %+v, %v", got, vm.Overflowed(), ref.LossScale, found)
				}
				if ref.Skipped == maxSkipped-1 {
					break
				}
				if ref.Steps == 0 {
					continue
				}
				a, b := testutil.Get[*Snapshot](t)(vm.Snapshot()), testutil.Get[*Snapshot](t)(want.Snapshot())
				if !sameLearnables(a.Learnables, b.Learnables) {
					t.Fatalf("after %+v the states differ from those of a VM that has made the same steps:\n%v\n%v", ref.LossScale, a.Learnables, b.Learnables)
				}
			}
			if skipped == 0 || ref.Steps == 0 {
				t.Errorf("%s: %d steps made and %d skipped, want both", name, ref.Steps, skipped)
			}
		}
	})
}

// sameLearnables reports whether learnables and their states have the same bits.
func sameLearnables(a, b []Learnable) bool {
	same := func(x, y G.Value) bool {
		if x == nil || y == nil {
			return x == y
		}
		return bytes.Equal(kernels.Bytes(x.Data().([]float32)), kernels.Bytes(y.Data().([]float32)))
	}
	return slices.EqualFunc(a, b, func(x, y Learnable) bool {
		return same(x.Value, y.Value) && same(x.EMA, y.EMA) && slices.EqualFunc(x.Moments, y.Moments, same)
	})
}

// newScaledNet returns a network of float32 that a seed draws: its inputs, its learnables and its loss.
func newScaledNet(t testing.TB, seed uint64) (g *G.ExprGraph, inputs, learnables G.Nodes, loss *G.Node) {
	r := rand.New(rand.NewPCG(seed, 9))
	var widths []int
	for range 2 + r.IntN(3) {
		widths = append(widths, 8*(1+r.IntN(4)))
	}
	n := newShare(t, tensor.Float32, 1+r.IntN(20), widths, seed)
	return n.g, G.Nodes{n.x, n.y}, n.learnables, n.loss
}

// In drawn networks, in float32 and with activations in 16 bits, a step that overflows changes no bit of a learnable, moment or average and halves the scale; Watch finds
// nothing in it. Other steps change them. A VM that continues from a snapshot has the same bits.
func TestSkippedSteps(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		for _, by := range []kernels.Precision{FullPrecision, BF16, F16} {
			seed := testutil.Seed(t)
			r := rand.New(rand.NewPCG(seed, 1))
			open := func() (vm *VM, inputs G.Nodes, loss *G.Node) {
				g, inputs, learnables, loss := newScaledNet(t, seed)
				opts := []Option{on, Train(G.NewAdamSolver(G.WithLearnRate(0.01)), learnables...), EMA(0.8), LossScaling(GradScaler{Scale: 1 << 40, Interval: 3}), ClipNorm(1), Watch(NaN | Inf)}
				if by != FullPrecision {
					opts = append(opts, Mixed(by))
				}
				return machine(t, g, opts...), inputs, loss
			}
			vm, inputs, loss := open()
			before := testutil.Get[*Snapshot](t)(vm.Snapshot())
			skipped := 0
			for step := range 60 {
				bind(t, inputs, hardInputs(r, inputs))
				testutil.Do(t, vm.RunAll())
				after := testutil.Get[*Snapshot](t)(vm.Snapshot())
				if after.Scale.Skipped > 0 {
					skipped++
					if !sameLearnables(after.Learnables, before.Learnables) || after.Scale.Scale != before.Scale.Scale/2 || after.Scale.Steps != before.Scale.Steps {
						t.Fatalf("step %d is skipped, %+v becomes %+v, and the states change: %v", step, *before.Scale, *after.Scale, !sameLearnables(after.Learnables, before.Learnables))
					}
				} else if v := loss.Value().Data().(float32); sameLearnables(after.Learnables, before.Learnables) || v-v != 0 {
					t.Fatalf("step %d is made, with the loss %v, and changes nothing: %v", step, v, sameLearnables(after.Learnables, before.Learnables))
				}
				before = after
			}
			if skipped < 2 || skipped > 40 {
				t.Errorf("%v: %d of 60 steps are skipped, want some", by, skipped)
			}
			other, others, _ := open()
			testutil.Do(t, other.Restore(before))
			for range 10 {
				list := hardInputs(r, inputs)
				bind(t, inputs, list)
				bind(t, others, list)
				testutil.Do(t, vm.RunAll())
				testutil.Do(t, other.RunAll())
			}
			a, b := testutil.Get[*Snapshot](t)(vm.Snapshot()), testutil.Get[*Snapshot](t)(other.Snapshot())
			if !sameLearnables(a.Learnables, b.Learnables) || *a.Scale != *b.Scale {
				t.Errorf("%v: a VM that continues from a snapshot has other states: %+v, want %+v", by, *b.Scale, *a.Scale)
			}
		}
	})
}

// A derivative that no learnable needs may overflow: the step is made, and Watch finds nothing.
func TestDerivativeOfInputOverflows(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node, r := testutil.Get[*G.Node](t), testutil.Random(t)
		g := G.NewGraph()
		x, w := G.NewMatrix(g, tensor.Float32, G.WithName("x"), G.WithShape(5, 8)), G.NewMatrix(g, tensor.Float32, G.WithName("w"), G.WithShape(8, 3))
		loss := node(G.Mean(node(G.Square(node(G.Mul(x, w))))))
		testutil.Get[G.Nodes](t)(G.Grad(loss, w))
		for n, size := range map[*G.Node]float32{x: 1e-25, w: 1e25} {
			v := draw(r, tensor.Float32, n.Shape()...)
			for i := range v.Float32s() {
				v.Float32s()[i] *= size
			}
			testutil.Do(t, G.Let(n, v))
		}
		vm := machine(t, g, on, Train(G.NewAdamSolver(G.WithLearnRate(1e24)), w), LossScaling(GradScaler{Scale: 1 << 62}), Watch(NaN|Inf))
		testutil.Do(t, vm.RunAll())
		if s := testutil.Get[*Snapshot](t)(vm.Snapshot()); s.Scale.Steps != 1 {
			t.Errorf("got %+v after one run, want one step", *s.Scale)
		}
	})
}

// lossOf draws a loss of a vector, in which a constant 1 has several parts.
func lossOf(t *rapid.T, g *G.ExprGraph, w *G.Node) *G.Node {
	one := func() *G.Node { return G.NewConstant(float32(1)) }
	sum := func() *G.Node {
		x := w
		for range rapid.IntRange(0, 3).Draw(t, "ops") {
			f := rapid.SampledFrom([]func(*G.Node) *G.Node{
				func(x *G.Node) *G.Node { return G.Must(G.Tanh(x)) },
				func(x *G.Node) *G.Node { return G.Must(G.Sigmoid(x)) },
				func(x *G.Node) *G.Node { return G.Must(G.Sub(one(), x)) },
				func(x *G.Node) *G.Node { return G.Must(G.HadamardProd(x, w)) },
				func(x *G.Node) *G.Node { return G.Must(G.HadamardProd(one(), x)) },
				func(x *G.Node) *G.Node {
					return G.Must(G.HadamardDiv(one(), G.Must(G.Add(one(), G.Must(G.Square(x))))))
				},
				func(x *G.Node) *G.Node { return G.Must(G.Log1p(G.Must(G.Square(x)))) },
			}).Draw(t, "f")
			x = f(x)
		}
		return rapid.SampledFrom([]func(*G.Node) *G.Node{
			func(x *G.Node) *G.Node { return G.Must(G.Sum(x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Mean(x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Mul(x, w)) },
		}).Draw(t, "reduce")(x)
	}
	loss := sum()
	for range rapid.IntRange(0, 4).Draw(t, "scalars") {
		f := rapid.SampledFrom([]func(*G.Node) *G.Node{
			func(x *G.Node) *G.Node { return G.Must(G.Add(x, sum())) },
			func(x *G.Node) *G.Node { return G.Must(G.Add(x, G.Must(G.Square(x)))) },
			func(x *G.Node) *G.Node { return G.Must(G.Sub(sum(), x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Sub(one(), x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Mul(x, sum())) },
			func(x *G.Node) *G.Node { return G.Must(G.Mul(x, x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Sigmoid(x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Neg(x)) },
			func(x *G.Node) *G.Node { return G.Must(G.Div(x, G.Must(G.Add(one(), G.Must(G.Square(sum())))))) },
			func(x *G.Node) *G.Node { return G.Must(G.Log(G.Must(G.Add(one(), G.Must(G.Square(x)))))) },
		}).Draw(t, "scalar")
		loss = f(loss)
	}
	return loss
}

// Whatever the loss is made of, constants 1 among it, the step and everything that is handed over has the bits of a VM without LossScaling: a scale of a power of 2
// changes none, unless numbers underflow.
func TestLossScalingIsInvisible(t *testing.T) {
	testutil.CheckProperty(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		size := rapid.IntRange(1, 5).Draw(t, "size")
		g := G.NewGraph()
		r := rand.New(rand.NewPCG(seed, 3))
		w := G.NewVector(g, tensor.Float32, G.WithName("w"), G.WithShape(size), G.WithValue(draw(r, tensor.Float32, size)))
		loss := lossOf(t, g, w)
		_, err := G.Grad(loss, w)
		if err != nil {
			t.Skip(err)
		}
		var results [2][]G.Value
		for i, opts := range [][]Option{nil, {LossScaling(GradScaler{Scale: 1024})}} {
			start := draw(rand.New(rand.NewPCG(seed, 4)), tensor.Float32, size)
			if err := G.Let(w, start); err != nil {
				t.Fatal(err)
			}
			vm, err := NewVM(g, append(opts, OnHost(), KeepAll(), Train(G.NewVanillaSolver(G.WithLearnRate(0.1)), w))...)
			if err == nil {
				err = vm.RunAll()
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range g.AllNodes() {
				if n.Op() != nil && n.Value() != nil {
					results[i] = append(results[i], n.Value())
				}
			}
			if err := vm.Close(); err != nil {
				t.Fatal(err)
			}
			results[i] = append(results[i], start)
		}
		for k, v := range results[0] {
			if got := results[1][k]; !reflect.DeepEqual(got.Data(), v.Data()) && !hasNaN(v) {
				t.Fatalf("value %d is %v with LossScaling, want %v", k, got, v)
			}
		}
	})
}

// hasNaN reports whether a value of float32 has a NaN or an infinity.
func hasNaN(v G.Value) bool {
	switch x := v.Data().(type) {
	case float32:
		return x-x != 0
	case []float32:
		return slices.ContainsFunc(x, func(x float32) bool { return x-x != 0 })
	}
	return false
}

// After 100 skipped steps in a row a run that copies its results returns an error, and the next finite gradient makes a step.
func TestSkipsInARow(t *testing.T) {
	m := newTargets(t, tensor.Float32, 1)
	vm := machine(t, m.g, OnHost(), Train(G.NewAdamSolver(), m.learnables...), LossScaling(GradScaler{}))
	list := hardInputs(m.r, m.inputs)
	list[0].Float32s()[3] = float32(math.NaN())
	for i := range 102 {
		bind(t, m.inputs, list)
		err := vm.RunAll()
		if want := i >= 99; want != (err != nil) || want && !strings.Contains(err.Error(), fmt.Sprintf("LossScaling: got %d skipped steps in a row", i+1)) {
			t.Fatalf("run %d: got %v", i+1, err)
		}
	}
	for _, x := range list {
		clear(x.Float32s())
	}
	bind(t, m.inputs, list)
	testutil.Do(t, vm.RunAll())
	if s := testutil.Get[LossScale](t)(vm.LossScale()); s.Steps != 1 || s.Skipped != 0 || vm.Overflowed() {
		t.Errorf("after a finite gradient: got %+v", s)
	}
}

// Wrong numbers, and what LossScaling cannot scale, are errors.
func TestLossScalingErrors(t *testing.T) {
	m := newTargets(t, tensor.Float32, 1)
	adam := func() Option { return Train(G.NewAdamSolver(), m.learnables...) }
	for want, opts := range map[string][]Option{
		"LossScaling without Train": {LossScaling(GradScaler{})},
		"want a single GradScaler":  {adam(), LossScaling(GradScaler{}), LossScaling(GradScaler{})},
		"Scale:-1 ":                 {adam(), LossScaling(GradScaler{Scale: -1})},
		"Scale:0.5 ":                {adam(), LossScaling(GradScaler{Scale: 0.5})},
		"Scale:NaN ":                {adam(), LossScaling(GradScaler{Scale: math.NaN()})},
		"Growth:0.5 ":               {adam(), LossScaling(GradScaler{Growth: 0.5})},
		"Backoff:2 ":                {adam(), LossScaling(GradScaler{Backoff: 2})},
		"Interval:-1":               {adam(), LossScaling(GradScaler{Interval: -1})},
		"LossScaling wants one of Gorgonia's solver":  {Train(otherSolver{own: G.NewAdamSolver()}, m.learnables...), LossScaling(GradScaler{})},
		"LossScaling: got the solver BarzilaiBorwein": {Train(G.NewBarzilaiBorweinSolver(), m.learnables...), LossScaling(GradScaler{})},
	} {
		if vm, err := NewVM(m.g, append(opts, OnHost())...); err == nil || !strings.Contains(err.Error(), want) {
			vm.Close()
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	vm := machine(t, m.g, OnHost(), adam())
	if _, err := vm.LossScale(); err == nil || !strings.Contains(err.Error(), "want a VM with the option LossScaling") {
		t.Errorf("LossScale without LossScaling: got %v", err)
	}
	scaled := machine(t, m.g, OnHost(), adam(), LossScaling(GradScaler{}))
	with, without := testutil.Get[*Snapshot](t)(scaled.Snapshot()), testutil.Get[*Snapshot](t)(vm.Snapshot())
	if err := vm.Restore(with); err == nil || !strings.Contains(err.Error(), "got a state with a scale of the loss") {
		t.Errorf("Restore of a scale without LossScaling: got %v", err)
	}
	without.Steps = 7
	testutil.Do(t, scaled.Restore(without))
	if s := testutil.Get[LossScale](t)(scaled.LossScale()); s != (LossScale{Scale: 65536, Steps: 7}) {
		t.Errorf("a snapshot without a scale: got %+v, want the first scale after 7 steps", s)
	}
	with.Scale.Scale = math.Inf(1)
	if err := scaled.Restore(with); err == nil || !strings.Contains(err.Error(), "want a scale above 0") {
		t.Errorf("Restore of an infinite scale: got %v", err)
	}
}
