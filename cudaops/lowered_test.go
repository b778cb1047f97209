package cudaops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stheno-ml/stheno/internal/test/testutil"
	"github.com/stheno-ml/stheno/internal/values"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// lowered is a graph of Gorgonia's ops and the plainest computation of the same.
type lowered struct {
	name   string
	shapes [][]int // of the inputs; nil for a scalar
	// positive draws the inputs above 0.
	positive   bool
	build      func(x ...*G.Node) (*G.Node, error)
	ref        func(x ...array) array
	noGradient bool // Gorgonia makes none
	// wrongGradient marks an op whose derivative in Gorgonia is another function; noTape is why the
	// tape machine is no reference.
	wrongGradient, noTape string
}

// A loweredGraph is a case's graph: its output, read, and the sum of the output's
// elements, each weighted, with the gradients of the inputs.
type loweredGraph struct {
	g         *G.ExprGraph
	inputs    G.Nodes
	out       *G.Node
	read      G.Value
	weights   []float64
	gradients bool
}

// graph makes the case's graph. Equal seeds make equal numbers.
func (c lowered) graph(t *testing.T, dt tensor.Dtype, seed uint64) *loweredGraph {
	t.Helper()
	node := testutil.Get[*G.Node](t)
	r := rand.New(rand.NewPCG(seed, 3))
	l := &loweredGraph{g: G.NewGraph()}
	for i, shape := range c.shapes {
		name := G.WithName(fmt.Sprint("x", i))
		if shape == nil {
			v := values.Number(testutil.Get[kernelsDtype](t)(dtypeOf(dt)), c.number(r))
			l.inputs = append(l.inputs, G.NewScalar(l.g, dt, name, G.WithValue(v)))
			continue
		}
		v := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
		for k := range v.Size() {
			setNumber(v, k, c.number(r))
		}
		l.inputs = append(l.inputs, G.NewTensor(l.g, dt, len(shape), name, G.WithShape(shape...), G.WithValue(v)))
	}
	l.out = node(c.build(l.inputs...))
	G.Read(l.out, &l.read)
	if c.noGradient {
		return l
	}
	l.gradients = true
	cost := l.out
	if !l.out.IsScalar() {
		w := tensor.New(tensor.Of(dt), tensor.WithShape(l.out.Shape().Clone()...))
		for k := range w.Size() {
			setNumber(w, k, r.NormFloat64())
		}
		l.weights = floats(t, w)
		weights := G.NewTensor(l.g, dt, l.out.Dims(), G.WithName("weights"), G.WithShape(l.out.Shape().Clone()...), G.WithValue(w))
		cost = node(G.Sum(node(G.HadamardProd(l.out, weights))))
	}
	testutil.Get[G.Nodes](t)(G.Grad(cost, l.inputs...))
	return l
}

// number draws an element of an input, rounded so that float32 holds it.
func (c lowered) number(r *rand.Rand) float64 {
	x := float64(float32(r.NormFloat64()))
	if c.positive {
		return 0.25 + math.Abs(x)
	}
	return x
}

// check runs the case's graph and compares it with the reference, and with the tape
// machine.
func (c lowered) check(t *testing.T, dt tensor.Dtype, on Option) {
	l := c.graph(t, dt, 1)
	vm := machine(t, l.g, on)
	testutil.Do(t, vm.RunAll())
	if got := onTheHost(vm.Report()); len(got) > 0 {
		t.Errorf("on the host: got %v, want nothing", got)
	}
	x := make([]array, len(l.inputs))
	for i, n := range l.inputs {
		x[i] = array{c.shapes[i], floats(t, n.Value())}
	}
	within := 20 * tolerance(dt)
	want := c.ref(x...)
	closeTo(t, "value", l.read, want, within)
	for i, n := range l.inputs {
		if l.gradients && c.wrongGradient == "" {
			closeTo(t, "gradient of "+n.Name(), testutil.Get[G.Value](t)(n.Grad()), c.slope(x, i, l.weights), within+1e-6)
		}
	}
	if c.noTape != "" || G.CUDA {
		return
	}
	tape := c.graph(t, dt, 1)
	m := G.NewTapeMachine(tape.g)
	defer m.Close()
	testutil.Do(t, m.RunAll())
	equal(t, "value on the tape machine", l.read, tape.read, 20*within)
	for i, n := range l.inputs {
		if l.gradients {
			equal(t, "gradient on the tape machine", testutil.Get[G.Value](t)(n.Grad()), testutil.Get[G.Value](t)(tape.inputs[i].Grad()), 20*within)
		}
	}
}

// slope returns the gradient of the weighted sum of the reference's elements by
// input i, as a central difference.
func (c lowered) slope(x []array, i int, weights []float64) array {
	cost := func() (sum float64) {
		for k, v := range c.ref(x...).v {
			if weights != nil {
				v *= weights[k]
			}
			sum += v
		}
		return sum
	}
	out := array{x[i].shape, make([]float64, len(x[i].v))}
	x[i].v = slices.Clone(x[i].v)
	for k, v := range x[i].v {
		const h = 1e-5
		x[i].v[k] = v + h
		up := cost()
		x[i].v[k] = v - h
		out.v[k] = (up - cost()) / (2 * h)
		x[i].v[k] = v
	}
	return out
}

// onTheHost returns the names of the nodes that ran there for want of a kernel.
func onTheHost(r Report) (names []string) {
	for _, n := range r.Nodes {
		if n.Where == "host" {
			names = append(names, n.Name)
		}
	}
	return names
}

// closeTo compares a value with its reference, shape and all.
func closeTo(t *testing.T, what string, got G.Value, want array, within float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: got none", what)
		return
	}
	if !slices.Equal([]int(got.Shape()), want.shape) {
		t.Errorf("%s has shape %v, want %v", what, got.Shape(), want.shape)
	}
	v := floats(t, got)
	if len(v) != len(want.v) {
		t.Fatalf("%s: got %d elements, want %d", what, len(v), len(want.v))
	}
	for i := range v {
		same := v[i] == want.v[i] || math.IsNaN(v[i]) && math.IsNaN(want.v[i])
		if !same && !(math.Abs(v[i]-want.v[i]) <= within*(1+math.Abs(want.v[i]))) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, v[i], want.v[i])
		}
	}
}

// Every op of Gorgonia's that the VM lowers computes the right values and gradients, in
// both types.
func TestLowered(t *testing.T) {
	quiet(t)
	onBackends(t, func(t *testing.T, on Option) {
		for _, c := range loweredCases() {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
				t.Run(fmt.Sprintf("%s/%v", c.name, dt), func(t *testing.T) { c.check(t, dt, on) })
			}
		}
	})
}

// Numbers at the ends of their range, infinities and NaNs go through reductions as they
// should.
func TestLoweredExtremes(t *testing.T) {
	inf := math.Inf(1)
	x := array{[]int{7, 4}, []float64{
		1e4, 1e4 + 1, -1e4, 0,
		-1e30, -1e30, -1e30, -1e30,
		-inf, 1, 2, -inf,
		inf, 1, 2, 3,
		-inf, -inf, -inf, -inf,
		math.NaN(), 1, 2, 3,
		1e-40, -1e-40, math.Copysign(0, -1), 0,
	}}
	for i, v := range x.v { // as float32 has them
		x.v[i] = float64(float32(v))
	}
	onBackends(t, func(t *testing.T, on Option) {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			g := G.NewGraph()
			v := tensor.New(tensor.Of(dt), tensor.WithShape(x.shape...))
			for i, e := range x.v {
				setNumber(v, i, e)
			}
			n := G.NewMatrix(g, dt, G.WithName("x"), G.WithShape(x.shape...), G.WithValue(v))
			// Without the axis, Gorgonia takes the second for the first.
			outputs := map[string]*G.Node{"softmax": G.Must(G.SoftMax(n)), "log softmax": G.Must(G.LogSoftMax(n, 1)), "max": G.Must(G.Max(n, 1)), "sum": G.Must(G.Sum(n, 1))}
			testutil.Do(t, machine(t, g, on).RunAll())
			want := map[string]array{"softmax": x.logSoftMax(1).apply(math.Exp), "log softmax": x.logSoftMax(1), "max": x.max(1), "sum": x.sum(1)}
			for name, n := range outputs {
				closeTo(t, fmt.Sprintf("%s of %v", name, dt), n.Value(), want[name], tolerance(dt))
			}
		}
	})
}
