package cudaops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A VM that trains parameters of a Store under Mixed has the launches of one that has the parameters itself, none of which rounds a parameter, and computes the same bits,
// also after the Store or another VM has set the parameters.
func TestStoreMixed(t *testing.T) {
	for name, open := range storeMachines(t) {
		for what, opts := range map[string][]Option{"each run": nil, "clipped": {ClipNorm(0.1)}, "every other run": {StepEvery(2)}} {
			t.Run(fmt.Sprint(name, what), func(t *testing.T) { storeMixed(t, open, opts) })
		}
	}
}

func storeMixed(t *testing.T, open func(g *G.ExprGraph, opts ...Option) (*VM, error), opts []Option) {
	wide := func() *net {
		node, r := testutil.Get[*G.Node](t), rand.New(rand.NewPCG(1, 2))
		n := &net{g: G.NewGraph(), dt: tensor.Float32}
		n.x = G.NewMatrix(n.g, n.dt, G.WithName("x"), G.WithShape(32, 24))
		n.out = n.x
		for i, width := range []int{40, 16} {
			w := G.NewMatrix(n.g, n.dt, G.WithName(fmt.Sprint("w", i)), G.WithShape(n.out.Shape()[1], width), G.WithValue(draw(r, n.dt, n.out.Shape()[1], width)))
			n.learnables = append(n.learnables, w)
			n.out = node(G.Tanh(node(ops.MatMul(n.out, w))))
		}
		G.Read(n.out, &n.read)
		n.loss = node(G.Mean(node(G.Square(n.out))))
		testutil.Get[G.Nodes](t)(G.Grad(n.loss, n.learnables...))
		return n
	}
	get, s := testutil.Get[*VM](t), NewStore()
	defer s.Close()
	own, ref, other := wide(), wide(), wide()
	with := func(n *net) []Option {
		return append(slices.Clone(opts), Mixed(BF16), Seed(1), Train(G.NewAdamSolver(G.WithLearnRate(0.05)), n.learnables...))
	}
	training, plain := get(open(own.g, append(with(own), In(s))...)), get(open(ref.g, with(ref)...))
	defer training.Close()
	defer plain.Close()
	evaluating := get(open(other.g, In(s), Mixed(BF16), Inference()))
	defer evaluating.Close()
	set := func(step int) (list []Learnable) {
		for i, n := range ref.learnables {
			v := draw(rand.New(rand.NewPCG(uint64(step), uint64(i))), ref.dt, n.Shape()...)
			testutil.Do(t, G.Let(n, v))
			list = append(list, Learnable{Name: n.Name(), Value: v})
		}
		testutil.Do(t, plain.Push())
		return list
	}
	for step := range 12 {
		switch step {
		case 4:
			testutil.Do(t, s.SetParameters(set(step)))
		case 6:
			other.run(t, evaluating, step)
		case 8:
			for i, l := range set(step) {
				testutil.Do(t, G.Let(other.learnables[i], testutil.Get[G.Value](t)(G.CloneValue(l.Value))))
			}
			testutil.Do(t, evaluating.Push())
		}
		sameValue(t, fmt.Sprintf("step %d", step), own.run(t, training, step), ref.run(t, plain, step))
	}
	ops := func(vm *VM) (list []string) {
		for _, step := range vm.Report().Steps {
			list = append(list, step.Op)
		}
		return list
	}
	if a, b := ops(training), ops(plain); !slices.Equal(a, b) {
		t.Errorf("got the launches %q, want those without a Store, %q", a, b)
	}
	for i, l := range testutil.Get[*Snapshot](t)(training.Snapshot()).Learnables {
		sameValue(t, l.Name, l.Value, testutil.Get[*Snapshot](t)(plain.Snapshot()).Learnables[i].Value)
	}
}
