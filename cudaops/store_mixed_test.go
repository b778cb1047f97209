package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/cudaops/internal/program"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/ops"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// A VM that trains parameters of a Store under Mixed has the launches of one that has the parameters itself, and computes the same bits,
// also after the Store or another VM has set the parameters. No launch of a run of it, or of a VM that evaluates, rounds a parameter.
func TestStoreMixed(t *testing.T) {
	for name, open := range storeMachines(t) {
		for what, opts := range map[string][]Option{"each run": nil, "clipped": {ClipNorm(0.1)}, "every other run": {StepEvery(2)}} {
			t.Run(fmt.Sprint(name, what), func(t *testing.T) { storeMixed(t, open, opts) })
		}
	}
}

func storeMixed(t *testing.T, open func(g *G.ExprGraph, opts ...Option) (*VM, error), opts []Option) {
	get, s := testutil.Get[*VM](t), NewStore()
	defer s.Close()
	own, ref, other := wideNet(t), wideNet(t), wideNet(t)
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
	for _, step := range evaluating.Report().Steps {
		for _, n := range other.learnables {
			if slices.Contains(step.Nodes, n.Name()) {
				t.Errorf("%s of %v, want none: the Store has the parameters in 16 bits", step.Op, step.Nodes)
			}
		}
	}
	for i, l := range testutil.Get[*Snapshot](t)(training.Snapshot()).Learnables {
		sameValue(t, l.Name, l.Value, testutil.Get[*Snapshot](t)(plain.Snapshot()).Learnables[i].Value)
	}
}

// wideNet returns a net whose products read and write 16 bits under Mixed.
func wideNet(t testing.TB) *net {
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

// member is a VM of a Store, and a VM without one that computes the same if it gets the Store's parameters before each run.
type member struct {
	own, ref  *net
	vm, plain *VM
	learned   []int // indices of the learnables that it trains
	state     int   // index of the learnable that is a State, or -1
}

// newMember opens a VM of a Store that may train learnables that no other VM trains, may change one as a State, and may be Mixed.
func newMember(t *testing.T, s *Store, open func(g *G.ExprGraph, opts ...Option) (*VM, error), r *rand.Rand, trained map[int]bool) *member {
	m := &member{own: wideNet(t), ref: wideNet(t), state: -1}
	switch r.IntN(4) {
	case 0:
		m.state = r.IntN(len(m.own.learnables))
	case 1, 2:
		for i := range m.own.learnables {
			if !trained[i] && r.IntN(3) > 0 {
				m.learned, trained[i] = append(m.learned, i), true
			}
		}
	}
	opts := []Option{Seed(1), Watch(NaN)}
	if p := []kernels.Precision{FullPrecision, BF16, BF16, F16}[r.IntN(4)]; p != FullPrecision {
		opts = append(opts, Mixed(p))
	}
	of := func(n *net) []Option {
		list := slices.Clone(opts)
		if m.state >= 0 {
			list = append(list, State(n.learnables[m.state], testutil.Get[*G.Node](t)(G.Neg(n.learnables[m.state]))))
		}
		if len(m.learned) == 0 {
			return append(list, Inference())
		}
		return append(list, Train(G.NewAdamSolver(G.WithLearnRate(0.05)), program.Collect(m.learned, func(i int) *G.Node { return n.learnables[i] })...))
	}
	m.vm = testutil.Get[*VM](t)(open(m.own.g, append(of(m.own), In(s, m.own.learnables...))...))
	m.plain = testutil.Get[*VM](t)(open(m.ref.g, of(m.ref)...))
	return m
}

// Whatever VMs of a Store do in whatever order, with and without Mixed in BF16 and F16, each run has the bits of a run that gets all parameters anew, and so have the parameters after it.
func TestStoreMixedDrawn(t *testing.T) {
	seeds, draws := testutil.Random(t), 8
	if testing.Short() {
		draws = 2
	}
	for name, open := range storeMachines(t) {
		for range draws {
			seed := seeds.Uint64()
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) { storeMixedDrawn(t, open, rand.New(rand.NewPCG(seed, 1))) })
		}
	}
}

func storeMixedDrawn(t *testing.T, open func(g *G.ExprGraph, opts ...Option) (*VM, error), r *rand.Rand) {
	s := NewStore()
	defer s.Close()
	var members []*member
	trained := map[int]bool{}
	part := func(m *member) {
		for _, i := range m.learned {
			delete(trained, i)
		}
		testutil.Do(t, m.vm.Close())
		testutil.Do(t, m.plain.Close())
	}
	defer func() {
		for _, m := range members {
			part(m)
		}
	}()
	expected := map[string]G.Value{}
	set := func(i int, w *G.Node) G.Value {
		v := draw(r, w.Dtype(), w.Shape()...)
		expected[w.Name()] = testutil.Get[G.Value](t)(G.CloneValue(v))
		return v
	}
	for step := range 60 {
		k := r.IntN(max(1, len(members)))
		do := r.IntN(14)
		if len(members) == 0 {
			do = 0
		}
		switch {
		case do == 0 && len(members) < 5:
			members = append(members, newMember(t, s, open, r, trained))
		case do == 1:
			part(members[k])
			members = slices.Delete(members, k, k+1)
		case do == 2:
			var list []Learnable
			for i, w := range members[k].own.learnables {
				if r.IntN(2) == 0 {
					list = append(list, Learnable{Name: w.Name(), Value: set(i, w)})
				}
			}
			testutil.Do(t, s.SetParameters(list))
		case do < 5: // a value bound, which the next run, Push or Pull takes
			i := r.IntN(len(members[k].own.learnables))
			w := members[k].own.learnables[i]
			testutil.Do(t, G.Let(w, set(i, w)))
			if do == 3 {
				testutil.Do(t, members[k].vm.Push(w))
			} else {
				testutil.Do(t, members[k].vm.Pull(w))
			}
		case do == 5 && (len(members[k].learned) > 0 || members[k].state >= 0):
			m := members[k]
			before := testutil.Get[*Snapshot](t)(m.vm.Snapshot())
			m.compare(t, step, expected, false)
			testutil.Do(t, m.vm.Restore(before))
			testutil.Do(t, m.plain.Restore(before))
			for _, l := range slices.Concat(before.Learnables, before.States) {
				expected[l.Name] = l.Value
			}
		default:
			members[k].compare(t, step, expected, r.IntN(6) == 0)
		}
		for name, v := range bitsOf(t, s) {
			if expected[name] == nil {
				expected[name] = v
			}
			sameValue(t, fmt.Sprintf("step %d, %d: parameter %s", step, do, name), v, expected[name])
		}
	}
}

// compare runs both VMs with the expected parameters, and changes these as the one without a Store does. A spoilt run is undone.
func (m *member) compare(t *testing.T, step int, expected map[string]G.Value, spoilt bool) {
	t.Helper()
	for i, n := range m.ref.learnables {
		testutil.Do(t, G.Let(n, testutil.Get[G.Value](t)(G.CloneValue(expected[m.own.learnables[i].Name()]))))
	}
	if spoilt {
		for _, n := range []*net{m.own, m.ref} {
			x := draw(rand.New(rand.NewPCG(1, 1)), n.dt, n.x.Shape()...)
			x.Float32s()[7] = float32(math.NaN())
			testutil.Do(t, G.Let(n.x, x))
		}
		a, b := m.vm.RunAll(), m.plain.RunAll()
		if a == nil || b == nil {
			t.Fatalf("a run with a NaN: got the errors %v and %v, want two", a, b)
		}
		return
	}
	sameValue(t, fmt.Sprintf("step %d, learned %v, state %d, %v", step, m.learned, m.state, m.vm.config.mixed), m.own.run(t, m.vm, step), m.ref.run(t, m.plain, step))
	var changed G.Nodes
	for _, i := range m.learned {
		changed = append(changed, m.ref.learnables[i])
	}
	if m.state >= 0 {
		changed = append(changed, m.ref.learnables[m.state])
	}
	if len(changed) == 0 {
		return
	}
	testutil.Do(t, m.plain.Pull(changed...))
	for _, n := range changed {
		expected[n.Name()] = testutil.Get[G.Value](t)(G.CloneValue(n.Value()))
	}
}
