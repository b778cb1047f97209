package cudaops

import (
	"bytes"
	"log"
	"math"
	"slices"
	"strings"
	"testing"

	internal "github.com/stheno-ml/stheno/internal/gorgonia"
	"github.com/stheno-ml/stheno/internal/test/testutil"
	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// triple is the graph sum((a + b) * a) with its gradients; the nodes are those of the
// forward pass.
type triple struct {
	g                  *G.ExprGraph
	a, b, sum, product *G.Node
	cost               *G.Node
	grads              G.Nodes
}

func newTriple(t *testing.T) triple {
	node := testutil.Get[*G.Node](t)
	c := triple{g: G.NewGraph()}
	c.a = G.NewVector(c.g, tensor.Float64, G.WithName("a"), G.WithShape(3), G.WithValue(vector(1, 2, 3)))
	c.b = G.NewVector(c.g, tensor.Float64, G.WithName("b"), G.WithShape(3), G.WithValue(vector(4, 5, 6)))
	c.sum = node(G.Add(c.a, c.b))
	c.product = node(G.HadamardProd(c.sum, c.a))
	c.cost = node(G.Sum(c.product))
	c.grads = testutil.Get[G.Nodes](t)(G.Grad(c.cost, c.a, c.b))
	return c
}

func wantFloats(t *testing.T, what string, got G.Value, want ...float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s has no value, want %v", what, want)
	} else if v := floats(t, got); !slices.Equal(v, want) {
		t.Errorf("%s is %v, want %v", what, v, want)
	}
}

// KeepAll binds the value of every node, as the tape machine does; without it interior nodes stay unbound.
func TestKeepAll(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c := newTriple(t)
		testutil.Do(t, machine(t, c.g, on).RunAll())
		if c.sum.Value() != nil || c.product.Value() != nil {
			t.Error("a node inside has a value without KeepAll")
		}
		c = newTriple(t)
		testutil.Do(t, machine(t, c.g, on, KeepAll()).RunAll())
		tape := newTriple(t)
		testutil.Do(t, tapeMachine(t, tape.g, G.TraceExec()).RunAll())
		for i, n := range c.g.AllNodes() {
			other := tape.g.AllNodes()[i]
			if n.Value() == nil {
				t.Errorf("node %s has no value", n.Name())
				continue
			}
			equal(t, n.Name(), n.Value(), other.Value(), 1e-15)
			of, dense := n.Value().(*tensor.Dense)
			if dense && n.Op() != nil && of.Engine() != (G.StandardEngine{}) {
				t.Errorf("node %s has the engine %T, want Gorgonia's", n.Name(), of.Engine())
			}
		}
	})
}

// Parts of a graph run as these parts: the rest gets no value.
func TestParts(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c := newTriple(t)
		for what, option := range map[string]Option{"ForwardOnly": ForwardOnly(), "Inference": Inference()} {
			testutil.Do(t, machine(t, c.g, on, option).RunAll())
			wantFloats(t, "the cost", c.cost.Value(), 5+14+27)
			if c.grads[0].Value() != nil || c.grads[1].Value() != nil {
				t.Errorf("%s computes a derivative", what)
			}
		}

		c = newTriple(t)
		testutil.Do(t, machine(t, c.g, on, Outputs(c.sum)).RunAll())
		wantFloats(t, "the sum", c.sum.Value(), 5, 7, 9)
		if c.cost.Value() != nil || c.grads[0].Value() != nil {
			t.Error("Outputs computes what was not asked for")
		}

		c = newTriple(t)
		program, locations, err := G.CompileFunction(c.g, G.Nodes{c.a, c.b}, G.Nodes{c.product})
		testutil.Do(t, err)
		testutil.Do(t, machine(t, c.g, on, Precompiled(program, locations)).RunAll())
		wantFloats(t, "the product", c.product.Value(), 5, 14, 27)
		if c.cost.Value() != nil {
			t.Error("Precompiled computes what is outside the part")
		}
	})
}

func TestBadParts(t *testing.T) {
	c, other := newTriple(t), newTriple(t)
	for what, option := range map[string]Option{
		"Outputs":     Outputs(other.sum),
		"Precompiled": Precompiled(17, nil),
		"Watch: got class 0, want NaN, Inf or NaN | Inf": Watch(0),
		"Watch: got class 4, want NaN, Inf or NaN | Inf": Watch(Inf << 1),
	} {
		if vm, err := NewVM(c.g, OnHost(), option); err == nil || vm != nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s of something else: got error %v", what, err)
		}
	}
}

// The watches name the first node, and leave everything on the host as it was.
func TestWatches(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c := newTriple(t)
		vm := machine(t, c.g, on, Watch(NaN|Inf))
		testutil.Do(t, vm.RunAll())
		for what, bad := range map[string]float64{"NaN": math.NaN(), "Inf": math.Inf(-1)} {
			testutil.Do(t, vm.Let(c.b, vector(4, bad, 6)))
			err := vm.RunAll()
			if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), internal.Name(c.sum)) ||
				!strings.Contains(err.Error(), "element 1") || !strings.Contains(err.Error(), "step 1") {
				t.Errorf("%s: got error %v, want one that names node %s, its element and its step", what, err, internal.Name(c.sum))
			}
			wantFloats(t, "the cost", c.cost.Value(), 5+14+27)
		}
		vm = machine(t, c.g, on, Watch(NaN))
		testutil.Do(t, vm.Let(c.b, vector(4, math.Inf(1), 6)))
		testutil.Do(t, vm.RunAll()) // no NaN
	})
}

func TestLog(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c := newTriple(t)
		var text bytes.Buffer
		vm := machine(t, c.g, on, Log(log.New(&text, "", 0)))
		testutil.Do(t, vm.RunAll())
		steps := len(vm.Report().Steps)
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != steps+1 || !strings.HasPrefix(lines[0], "step 1 of ") || !strings.Contains(lines[steps], "run 1 on ") {
			t.Errorf("got\n%s\nwant %d steps, a line each, and the run's", text.String(), steps)
		}
	})
}

func TestLetAndSet(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		c, other := newTriple(t), newTriple(t)
		vm := machine(t, c.g, on, Keep(c.sum))
		if err := vm.Set(c.a, c.sum); err == nil {
			t.Error("Set of a node without a value gives no error")
		}
		testutil.Do(t, vm.Let(c.a, vector(1, 1, 1)))
		testutil.Do(t, vm.RunAll())
		testutil.Do(t, vm.Set(c.a, c.sum)) // 5 6 7
		testutil.Do(t, vm.RunAll())
		wantFloats(t, "the cost", c.cost.Value(), 5*9+6*11+7*13)
		for what, err := range map[string]error{
			"Let of another graph's node": vm.Let(other.a, vector(1, 2, 3)),
			"Let of an op's node":         vm.Let(c.sum, vector(1, 2, 3)),
			"Let of no node":              vm.Let(nil, vector(1, 2, 3)),
			"Set of another graph's node": vm.Set(other.a, c.b),
			"Let of no VM":                (*VM)(nil).Let(c.a, vector(1, 2, 3)),
		} {
			if err == nil {
				t.Errorf("%s gives no error", what)
			}
		}
	})
}

// A slice that UnsafeLet changes after the machine was made is the slice of the next run.
func TestChangedSlice(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		g := G.NewGraph()
		x := G.NewVector(g, tensor.Float64, G.WithName("x"), G.WithShape(5), G.WithValue(vector(1, 2, 3, 4, 5)))
		part := node(G.Slice(x, G.S(0, 2)))
		testutil.Get[G.Nodes](t)(G.Grad(node(G.Sum(part)), x))
		vm := machine(t, g, on, Keep(part))
		testutil.Do(t, vm.RunAll())
		wantFloats(t, "the slice", part.Value(), 1, 2)
		testutil.Do(t, G.UnsafeLet(part, G.S(3, 5)))
		testutil.Do(t, vm.RunAll())
		wantFloats(t, "the slice", part.Value(), 4, 5)
		wantFloats(t, "the gradient", testutil.Get[G.Value](t)(x.Grad()), 0, 0, 0, 1, 1)
	})
}

// scribbler is an op that writes into its input, as some of Gorgonia's do.
type scribbler struct{ G.Op }

func (s scribbler) Do(in ...G.Value) (G.Value, error) {
	out, err := s.Op.Do(in...)
	clear(in[0].Data().([]float64))
	return out, err
}

// An op on the host that writes into its input changes it for no other op.
func TestOpsThatWriteIntoTheirInputs(t *testing.T) {
	onBackends(t, func(t *testing.T, on Option) {
		node := testutil.Get[*G.Node](t)
		c := newTriple(t)
		of := scribbler{node(foreign(c.a)).Op()}
		first := node(G.ApplyOp(of, c.a))
		second := node(G.ApplyOp(of, node(G.Add(c.a, c.a))))
		vm := machine(t, c.g, on, KeepAll())
		for range 2 {
			testutil.Do(t, vm.RunAll())
			wantFloats(t, "the input", c.a.Value(), 1, 2, 3)
			wantFloats(t, "the sum", c.sum.Value(), 5, 7, 9)
			wantFloats(t, "the op's value", first.Value(), math.Tanh(1), math.Tanh(2), math.Tanh(3))
			wantFloats(t, "its value", second.Value(), math.Tanh(2), math.Tanh(4), math.Tanh(6))
		}
	})
}
