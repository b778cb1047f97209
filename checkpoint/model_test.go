package checkpoint

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stheno-ml/stheno/cudaops"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A model has all that a state can have: learnables of several shapes, a scalar among them, two
// BatchNorms and a Dropout.
type model struct {
	g          *G.ExprGraph
	x          *G.Node
	learnables G.Nodes
	norms      []*G.BatchNormOp
	loss       *G.Node
	dt         tensor.Dtype
}

// newModel returns one whose learnables follow from the seed.
func newModel(t testing.TB, dt tensor.Dtype, seed uint64, hidden int) *model {
	m, node, r := &model{g: G.NewGraph(), dt: dt}, testutil.Get[*G.Node](t), rand.New(rand.NewPCG(seed, 1))
	learnable := func(name string, shape ...int) *G.Node {
		n := G.NewMatrix(m.g, dt, G.WithName(name), G.WithShape(shape...), G.WithValue(draw(r, dt, shape...)))
		m.learnables = append(m.learnables, n)
		return n
	}
	m.x = G.NewMatrix(m.g, dt, G.WithName("x"), G.WithShape(8, 4))
	h := m.x
	for i, width := range []int{hidden, 3} {
		h = node(G.Mul(h, learnable(fmt.Sprint("w", i), h.Shape()[1], width)))
		n, _, _, op, err := G.BatchNorm(h, learnable(fmt.Sprint("gamma", i), 1, width), learnable(fmt.Sprint("beta", i), 1, width), 0.25, 1e-5)
		testutil.Do(t, err)
		m.norms = append(m.norms, op)
		h = node(G.Tanh(n))
	}
	h = node(G.Dropout(h, 0.25))
	scale := G.NewScalar(m.g, dt, G.WithName("scale"))
	testutil.Do(t, G.Let(scale, testutil.Get[any](t)(draw(r, dt, 1).At(0))))
	m.learnables = append(m.learnables, scale)
	m.loss = node(G.Mean(node(G.Square(node(G.Sub(node(G.Mul(h, scale)), node(G.Slice(m.x, nil, G.S(0, 3)))))))))
	testutil.Get[G.Nodes](t)(G.Grad(m.loss, m.learnables...))
	return m
}

// draw returns a tensor of normal numbers.
func draw(r *rand.Rand, dt tensor.Dtype, shape ...int) *tensor.Dense {
	d := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	for i := range d.Size() {
		switch s := d.Data().(type) {
		case []float64:
			s[i] = r.NormFloat64()
		case []float32:
			s[i] = float32(r.NormFloat64())
		}
	}
	return d
}

// steps runs the steps from one number to another, each with its own batch.
func (m *model) steps(t testing.TB, vm *cudaops.VM, from, to int) {
	for step := from; step < to; step++ {
		testutil.Do(t, G.Let(m.x, draw(rand.New(rand.NewPCG(11, uint64(step))), m.dt, 8, 4)))
		testutil.Do(t, vm.RunAll())
	}
}

// machine returns a VM that trains the model.
func (m *model) machine(t testing.TB, on cudaops.Option, s G.Solver, opts ...cudaops.Option) *cudaops.VM {
	vm := testutil.Get[*cudaops.VM](t)(cudaops.NewVM(m.g, append(opts, on, cudaops.Train(s, m.learnables...))...))
	t.Cleanup(func() { testutil.Do(t, vm.Close()) })
	return vm
}

// checked ends the test unless a file was loaded whose content has its checksum.
func checked(t testing.TB) func(note string, err error) {
	return func(note string, err error) {
		t.Helper()
		if testutil.Do(t, err); note != "" {
			t.Fatalf("got the note %q, want none", note)
		}
	}
}

// complete is checked for LoadParameters and LoadStore.
func complete(t testing.TB) func(l Loaded, err error) {
	return func(l Loaded, err error) {
		t.Helper()
		checked(t)(l.Note, err)
	}
}

// onBackends runs a test on the host backend and, where there is one, on the GPU.
func onBackends(t *testing.T, test func(t *testing.T, on cudaops.Option)) {
	t.Run("host", func(t *testing.T) { test(t, cudaops.OnHost()) })
	t.Run("gpu", func(t *testing.T) {
		_, err := cudaops.Devices()
		testutil.SkipUnless(t, "GPU", err)
		test(t, cudaops.OnDevice(0))
	})
}

// state returns the state that a VM keeps, with the bytes of its values by name.
func state(t testing.TB, vm *cudaops.VM) (*cudaops.Snapshot, map[string][]byte) {
	s := testutil.Get[*cudaops.Snapshot](t)(vm.Snapshot())
	all := map[string][]byte{}
	add := func(name string, v G.Value) {
		all[fmt.Sprint(name, v.Dtype(), v.Shape())] = testutil.Get[[]byte](t)(values.Bytes(v))
	}
	for _, l := range s.Learnables {
		add(l.Name, l.Value)
		for k, m := range l.Moments {
			add(momentName(k+1, l.Name), m)
		}
		if l.EMA != nil {
			add(emaName(l.Name), l.EMA)
		}
	}
	for i, a := range s.Averages {
		add(averageName(i, "mean"), a.Mean)
		add(averageName(i, "variance"), a.Variance)
	}
	return s, all
}

// same ends the test unless two VMs keep the same bits.
func same(t testing.TB, what string, got, want *cudaops.VM) {
	t.Helper()
	a, values := state(t, got)
	b, wanted := state(t, want)
	if !reflect.DeepEqual(a.Solvers, b.Solvers) || a.Steps != b.Steps || a.Runs != b.Runs || a.Seed != b.Seed || !reflect.DeepEqual(a.Scale, b.Scale) {
		t.Fatalf("%s: got %+v, want %+v", what, a, b)
	}
	if !maps.EqualFunc(values, wanted, bytes.Equal) {
		for name := range wanted {
			if !bytes.Equal(values[name], wanted[name]) {
				t.Errorf("%s: %s: got % x, want % x", what, name, values[name], wanted[name])
			}
		}
		t.Fatal(what)
	}
}
